#include "programs/doctor/checks.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/doctor/machine.h"

#include <stdio.h>
#include <unistd.h>

#define V4 "0000:0000:0000:0000:0000:ffff:0a00:0001" /* 10.0.0.1 */
#define V6 "fe80:0000:0000:0000:5054:00ff:fe12:3456"

static const uint32_t rdma = SL_DOCTOR_OF(SL_ENDPOINT_RDMA);

static void add_roce(void)
{
    machine_add_device("mlx5_0", "4: ACTIVE", "Ethernet");
    machine_add_gid("mlx5_0", 0, V6, "IB/RoCE v1", "eth2");
    machine_add_gid("mlx5_0", 1, V6, "RoCE v2", "eth2");
    machine_add_gid("mlx5_0", 2, "0000:0000:0000:0000:0000:0000:0000:0000", "RoCE v2", "");
    machine_add_gid("mlx5_0", 3, V4, "RoCE v2", "eth2");
}

MACHINE_CASE(doctor_rdma_check__library_and_device_that_lack)
{
    machine.missing[SL_ENDPOINT_RDMA] = "libibverbs.so.1: no such file: install libibverbs1";
    machine_run(sl_doctor_rdma_check);
    const struct sl_doctor_finding *finding =
        machine_expect("rdma library", 0, SL_DOCTOR_MISSING, "libibverbs.so.1: no such file");
    assert_string_equal(finding->advice, "install libibverbs1");
    machine_expect("rdma device", 0, SL_DOCTOR_MISSING, "rdma link add");
    assert_int_equal(machine_count("memlock"), 0);
    assert_int_equal(machine.doctor.stopped, rdma);
}

MACHINE_CASE(doctor_rdma_check__a_device_without_provider)
{
    add_roce();
    machine_add_device("irdma0", "4: ACTIVE", "Ethernet");
    machine.providers[0] = "irdma0";
    machine.providers[1] = NULL;
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma provider", 0, SL_DOCTOR_MISSING, "mlx5_0");
    machine_expect("rdma provider", 0, SL_DOCTOR_MISSING, "ibverbs-providers");
    assert_int_equal(machine_count("rdma provider"), 1);
}

MACHINE_CASE(doctor_rdma_check__devices_are_chosen_by_name)
{
    add_roce();
    machine_add_device("mlx5_1", "1: DOWN", "Ethernet");
    machine.options.rdma.device = "mlx5_0";
    machine_run(sl_doctor_rdma_check);
    assert_int_equal(machine_count("rdma port"), 1);
    machine.options.rdma.device = "mlx5_9,mlx5_0";
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma device", 0, SL_DOCTOR_MISSING, "mlx5_9: there is no such device");
    machine_expect("rdma device", 0, SL_DOCTOR_MISSING, "mlx5_0, mlx5_1");
    assert_int_equal(machine_count("rdma port"), 1);
}

MACHINE_CASE(doctor_rdma_check__ports_that_are_down)
{
    machine_add_device("mlx5_1", "1: DOWN", "Ethernet");
    machine_write("/sys/class/infiniband/mlx5_1/parent", "eth7");
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma port", 0, SL_DOCTOR_WARNING, "ip link set eth7 up");
    machine_expect("rdma port", 1, SL_DOCTOR_MISSING, "none is up");
    assert_int_equal(machine.doctor.stopped, rdma);
    /* One that is up is enough. */
    add_roce();
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma port", 1, SL_DOCTOR_WARNING, "mlx5_1/1: DOWN");
    assert_int_equal(machine.doctor.stopped, 0);
}

MACHINE_CASE(doctor_rdma_check__infiniband_asks_for_its_subnet_manager)
{
    machine_add_device("ib0", "2: INIT", "InfiniBand");
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma port", 0, SL_DOCTOR_WARNING, "subnet manager (opensm)");
    machine_add_device("ib0", "4: ACTIVE", "InfiniBand");
    machine_add_gid("ib0", 0, V6, "IB/RoCE v1", "");
    machine_run(sl_doctor_rdma_check);
    assert_int_equal(machine_count("rdma gid"), 1);
    machine_expect("rdma gid", 0, SL_DOCTOR_OK, "fe80::");
}

MACHINE_CASE(doctor_rdma_check__entrances_of_the_kernel)
{
    char path[128];
    add_roce();
    (void)snprintf(path, sizeof path, "%s/dev/infiniband/rdma_cm", machine.root);
    assert_int_equal(unlink(path), 0);
    (void)snprintf(path, sizeof path, "%s/dev/infiniband/uverbs_mlx5_0", machine.root);
    assert_int_equal(unlink(path), 0);
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma node", 0, SL_DOCTOR_MISSING, "modprobe rdma_ucm");
    machine_expect("rdma node", 1, SL_DOCTOR_MISSING, "modprobe ib_uverbs");
    assert_int_equal(machine.doctor.stopped, rdma);
}

MACHINE_CASE(doctor_gid_check__a_chosen_index)
{
    static const struct {
        uint32_t index, nth;
        enum sl_doctor_verdict verdict;
        const char *words;
    } cases[] = {
        {3, 2, SL_DOCTOR_OK, "10.0.0.1, eth2 (chosen)"},
        {0, 0, SL_DOCTOR_WARNING, "choose an index of type RoCE v2"},
        {2, 3, SL_DOCTOR_MISSING, "mlx5_0/1 has none of index 2"},
        {99, 3, SL_DOCTOR_MISSING, "mlx5_0/1 has none of index 99"},
    };
    add_roce();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine.options.rdma.has_gid_index = true;
        machine.options.rdma.gid_index = cases[i].index;
        machine_run(sl_doctor_rdma_check);
        machine_expect("rdma gid", cases[i].nth, cases[i].verdict, cases[i].words);
    }
}

MACHINE_CASE(doctor_gid_check__a_port_without_an_address)
{
    machine_add_device("mlx5_0", "4: ACTIVE", "Ethernet");
    machine_add_gid("mlx5_0", 0, V6, "IB/RoCE v1", "eth2");
    machine_add_gid("mlx5_0", 1, "rubbish", "RoCE v2", "eth2");
    machine_run(sl_doctor_rdma_check);
    assert_int_equal(machine_count("rdma gid"), 2);
    machine_expect("rdma gid", 1, SL_DOCTOR_WARNING, "ip addr add");
}

MACHINE_CASE(doctor_gid_check__endpoints_are_looked_for)
{
    struct sl_endpoint endpoints[] = {
        {.scheme = SL_ENDPOINT_RDMA, .host = "10.0.0.7", .port = 5},
        {.scheme = SL_ENDPOINT_RDMA, .host = "10.0.0.1", .port = 6},
    };
    add_roce();
    machine.options.endpoints = endpoints;
    machine.options.endpoint_count = 2;
    machine_run(sl_doctor_rdma_check);
    assert_int_equal(machine_count("rdma endpoint"), 1);
    machine_expect("rdma endpoint", 0, SL_DOCTOR_OK, "rdma://10.0.0.1:6: mlx5_0/1, GID 3");
    machine.options.endpoint_count = 1;
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma endpoint", 0, SL_DOCTOR_WARNING, "rdma://10.0.0.7:5");
}

MACHINE_CASE(doctor_rdma_check__iwarp)
{
    machine_add_device("irdma0", "4: ACTIVE", "Ethernet");
    machine_write("/sys/class/infiniband/irdma0/node_type", "4: RNIC");
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma device", 0, SL_DOCTOR_WARNING, "irdma0: iWARP is not supported");
    machine_expect("rdma device", 0, SL_DOCTOR_WARNING, "use RoCE mode or TCP");
    machine_expect("rdma device", 1, SL_DOCTOR_MISSING, "none can be used");
    assert_int_equal(machine_count("rdma port"), 0);
    assert_int_equal(machine.doctor.stopped, rdma);
    /* A RoCE device beside it is enough, unless the other is named. */
    add_roce();
    machine_run(sl_doctor_rdma_check);
    assert_int_equal(machine_count("rdma device"), 1);
    assert_int_equal(machine_count("rdma port"), 1);
    assert_int_equal(machine.doctor.stopped, 0);
    machine.options.rdma.device = "mlx5_0,irdma0";
    machine_run(sl_doctor_rdma_check);
    machine_expect("rdma device", 0, SL_DOCTOR_MISSING, "irdma0: iWARP is not supported");
    assert_int_equal(machine.doctor.stopped, rdma);
}

MACHINE_CASE(doctor_rdma_check__memory_that_may_be_locked)
{
    static const uint64_t mib = 1 << 20;
    add_roce();
    machine_write("/proc/self/status", "Name: x\nCapEff:\t0000000000000000");
    machine.system.memlock_max = 64 << 10;
    machine_run(sl_doctor_rdma_check);
    machine_expect("memlock", 0, SL_DOCTOR_MISSING,
                   "64 KiB may be locked; each reactor (here 4) may use up to 320 MiB");
    machine_expect("memlock", 0, SL_DOCTOR_MISSING, "LimitMEMLOCK=infinity");
    machine.system.memlock_max = 256 << 10;
    machine_run(sl_doctor_rdma_check);
    machine_expect("memlock", 0, SL_DOCTOR_WARNING, "256 KiB");
    machine.system.memlock_max = 1279 * mib;
    machine_run(sl_doctor_rdma_check);
    machine_expect("memlock", 0, SL_DOCTOR_WARNING, "1279 MiB");
    machine.system.memlock_max = 1280 * mib;
    machine_run(sl_doctor_rdma_check);
    machine_expect("memlock", 0, SL_DOCTOR_OK, "1280 MiB");
    machine.system.memlock_max = 0;
    machine_write("/proc/self/status", "Name: x\nCapEff:\t0000000000004000");
    machine_run(sl_doctor_rdma_check);
    machine_expect("memlock", 0, SL_DOCTOR_OK, "CAP_IPC_LOCK");
}

/* More than is ever said: the rest is dropped, and nothing else is. */
MACHINE_CASE(doctor_gid_check__a_table_without_end)
{
    add_roce();
    for (uint32_t i = 4; i < 300; i++) {
        machine_add_gid("mlx5_0", i, V4, "RoCE v2", "eth2");
    }
    machine.options.rdma.has_gid_index = true;
    machine.options.rdma.gid_index = 289;
    machine_run(sl_doctor_rdma_check);
    assert_int_equal(machine_count("rdma gid"), 65);
    machine_expect("rdma gid", 64, SL_DOCTOR_OK, "mlx5_0/1 289");
    machine_expect("memlock", 0, SL_DOCTOR_OK, "no limit");
}
