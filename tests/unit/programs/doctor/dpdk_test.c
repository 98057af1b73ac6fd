#include "core/reason.h"
#include "programs/doctor/checks.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/doctor/machine.h"

#include <stdio.h>
#include <unistd.h>

#define NIC      "/sys/bus/pci/devices/0000:3b:00.0"
#define PAGES    "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages"
#define ALL_CAPS "CapEff:\t000001ffffffffff"
#define NO_CAPS  "CapEff:\t0000000000000000"

static const uint32_t dpdk = SL_DOCTOR_OF(SL_ENDPOINT_DPDK);

static struct sl_endpoint_device device;

/* What a ps would have. */
static void name_device(const char *text)
{
    struct sl_reason reason = {0};
    if (sl_endpoint_device_parse(text, false, &device, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    machine.options.dpdk_devices = &device;
    machine.options.dpdk_device_count = 1;
}

static void add_link(const char *path, const char *target)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s%s", machine.root, path);
    assert_int_equal(symlink(target, whole), 0);
}

static void add_nic(const char *driver)
{
    char target[128];
    machine_write(NIC "/vendor", "0x8086");
    (void)snprintf(target, sizeof target, "../../../drivers/%s", driver);
    add_link(NIC "/driver", target);
    name_device("0000:3b:00.0?addr=10.0.0.1/24");
}

MACHINE_CASE(doctor_dpdk_check__nothing_is_there)
{
    machine.missing[SL_ENDPOINT_DPDK] = "starling-dpdk.so: not found: install libdpdk-dev";
    machine_run(sl_doctor_dpdk_check);
    const struct sl_doctor_finding *finding =
        machine_expect("dpdk plug-in", 0, SL_DOCTOR_MISSING, "starling-dpdk.so: not found");
    assert_string_equal(finding->advice, "install libdpdk-dev");
    machine_expect("dpdk device", 0, SL_DOCTOR_MISSING, "--dpdk-device");
    assert_int_equal(machine.doctor.stopped, dpdk);
    assert_int_equal(machine_count("dpdk memory"), 0);
}

MACHINE_CASE(doctor_dpdk_check__few_huge_pages)
{
    name_device("net_null0,copy=1?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk memory", 0, SL_DOCTOR_WARNING, "0 MiB of huge pages are free, about 132");
    machine_expect("dpdk memory", 0, SL_DOCTOR_WARNING, "echo 66 > /sys/kernel/mm/hugepages");
    assert_int_equal(machine.doctor.stopped, 0);
    machine_write("/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk memory", 0, SL_DOCTOR_OK, "1024 MiB");
}

MACHINE_CASE(doctor_dpdk_check__device_of_another_machine)
{
    name_device("0000:3b:00.1?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_MISSING, "0000:3b:00.1: this machine has no such");
    assert_int_equal(machine.doctor.stopped, dpdk);
}

MACHINE_CASE(doctor_dpdk_check__device_of_the_kernel)
{
    add_nic("ixgbe");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk driver", 0, SL_DOCTOR_MISSING, "ixgbe leaves it to no program");
    machine_expect("dpdk driver", 0, SL_DOCTOR_MISSING, "--bind=vfio-pci 0000:3b:00.0");
    assert_int_equal(machine.doctor.stopped, dpdk);
}

MACHINE_CASE(doctor_dpdk_check__device_without_driver)
{
    machine_write(NIC "/vendor", "0x8086");
    name_device("0000:3b:00.0?addr=10.0.0.1/24");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk driver", 0, SL_DOCTOR_MISSING, "no driver has it");
}

MACHINE_CASE(doctor_dpdk_check__vfio_without_iommu_or_nodes)
{
    add_nic("vfio-pci");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk driver", 0, SL_DOCTOR_MISSING, "intel_iommu=on");
    machine_expect("dpdk node", 0, SL_DOCTOR_MISSING, "/dev/vfio/vfio: No such file");
    add_link(NIC "/iommu_group", "../../../../kernel/iommu_groups/7");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk node", 1, SL_DOCTOR_MISSING, "/dev/vfio/7: No such file");
    machine_write("/dev/vfio/vfio", "");
    machine_write("/dev/vfio/noiommu-7", "");
    machine_run(sl_doctor_dpdk_check);
    assert_int_equal(machine_count("dpdk node"), 0);
}

MACHINE_CASE(doctor_dpdk_check__vfio_counts_locked_memory)
{
    add_nic("vfio-pci");
    add_link(NIC "/iommu_group", "../../../../kernel/iommu_groups/7");
    machine_write("/dev/vfio/vfio", "");
    machine_write("/dev/vfio/7", "");
    machine_write(PAGES, "1024");
    machine.system.memlock_max = 8 << 20;
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk memory", 1, SL_DOCTOR_WARNING, "8 MiB may be locked");
    machine_write("/proc/self/status", ALL_CAPS);
    machine_run(sl_doctor_dpdk_check);
    assert_int_equal(machine_count("dpdk memory"), 1);
}

MACHINE_CASE(doctor_dpdk_check__device_that_the_kernel_shares)
{
    add_nic("mlx5_core");
    machine_write(NIC "/net/eth2/ifindex", "4");
    machine_write("/sys/class/net/eth2/operstate", "down");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_OK, "mlx5_core");
    machine_expect("dpdk link", 0, SL_DOCTOR_WARNING, "eth2 is down");
    machine_expect("dpdk link", 0, SL_DOCTOR_WARNING, "ip link set eth2 up");
    assert_int_equal(machine.doctor.stopped, 0);
}

MACHINE_CASE(doctor_dpdk_check__packet_sockets_need_an_interface_and_rights)
{
    name_device("net_af_packet0,iface=eth3?addr=10.0.0.1");
    machine_write("/proc/self/status", NO_CAPS);
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk link", 0, SL_DOCTOR_MISSING, "there is no network interface eth3");
    machine_expect("dpdk rights", 0, SL_DOCTOR_MISSING, "cap_net_raw");
    machine_write("/sys/class/net/eth3/operstate", "up");
    machine_write("/proc/self/status", ALL_CAPS);
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk link", 0, SL_DOCTOR_OK, "eth3 is up");
    assert_int_equal(machine.doctor.stopped, 0);
    name_device("net_af_packet0,qpairs=1?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk link", 0, SL_DOCTOR_MISSING, "iface=NAME");
}

MACHINE_CASE(doctor_dpdk_check__xdp_sockets_need_more)
{
    name_device("net_af_xdp0,iface=eth3?addr=10.0.0.1");
    machine_write("/sys/class/net/eth3/operstate", "unknown");
    machine_write("/proc/self/status", "CapEff:\t0000000000002000"); /* CAP_NET_RAW */
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk rights", 0, SL_DOCTOR_MISSING, "CAP_BPF");
    machine_write("/proc/self/status", "CapEff:\t0000008000003000"); /* and two more */
    machine_run(sl_doctor_dpdk_check);
    assert_int_equal(machine_count("dpdk rights"), 0);
}

MACHINE_CASE(doctor_dpdk_check__memif_needs_its_socket)
{
    name_device("net_memif0,role=server,socket=/run/s/0,socket-abstract=no?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_MISSING, "/run/s/: No such file");
    machine_write("/run/s/other", "");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_OK, "net_memif0, server, at /run/s/0");
    name_device("net_memif0,role=client,socket=/run/s/0,socket-abstract=no?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_WARNING, "nobody is at /run/s/0 yet");
    machine_write("/run/s/0", "");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_OK, "net_memif0, client");
    name_device("net_memif0,role=server,socket=/run/none/0?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_OK, "at @/run/none/0");
}

MACHINE_CASE(doctor_dpdk_check__name_without_arguments)
{
    name_device("net_ring0?addr=10.0.0.1");
    machine_run(sl_doctor_dpdk_check);
    machine_expect("dpdk device", 0, SL_DOCTOR_WARNING, "STARLING_DPDK_EAL_ARGS");
    assert_int_equal(machine.doctor.stopped, 0);
}
