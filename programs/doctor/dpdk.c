/* DPDK: the plug-in, packet memory, and the needs of each named device. Opens no device and does
 * not start DPDK. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "programs/doctor/checks.h"
#include "programs/doctor/files.h"

#define PCI           "/sys/bus/pci/devices"
#define NET           "/sys/class/net"
#define HUGE_PAGES    "/sys/kernel/mm/hugepages/hugepages-"

#define CAP_NET_ADMIN 12U
#define CAP_NET_RAW   13U
#define CAP_IPC_LOCK  14U
#define CAP_SYS_ADMIN 21U
#define CAP_BPF       39U

/* Memory of a process, and of each reactor per device, as in the plug-in; for frames of 1500
 * bytes. */
#define MIB           ((uint64_t)1 << 20)
#define PROCESS_BYTES (64 * MIB)
#define DEVICE_BYTES  (17 * MIB)

static const uint32_t dpdk = SL_DOCTOR_OF(SL_ENDPOINT_DPDK);

static struct sl_doctor_finding *doctor_dpdk_missing(struct sl_doctor *doctor, const char *check,
                                                     const struct sl_endpoint_device *device,
                                                     const char *what)
{
    return sl_doctor_find(doctor, SL_DOCTOR_MISSING, dpdk, check, "%s: %s", device->name, what);
}

/* Memory */

static uint64_t free_huge_bytes(const struct sl_doctor *doctor)
{
    static const struct {
        const char *size;
        unsigned shift;
    } sizes[] = {{"2048", 21}, {"1048576", 30}};
    uint64_t bytes = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char line[32];
        (void)sl_doctor_files_line(doctor, line, sizeof line, HUGE_PAGES "%skB/free_hugepages",
                                   sizes[i].size);
        bytes += strtoull(line, NULL, 10) << sizes[i].shift;
    }
    return bytes;
}

static void check_memory(struct sl_doctor *doctor, uint32_t device_count)
{
    const uint64_t free_bytes = free_huge_bytes(doctor);
    const uint64_t wanted = PROCESS_BYTES + doctor->options->reactors * device_count * DEVICE_BYTES;
    if (free_bytes >= wanted) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "dpdk memory",
                             "%" PRIu64 " MiB of huge pages are free", free_bytes / MIB);
        return;
    }
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "dpdk memory",
                                    "%" PRIu64 " MiB of huge pages are free, about %" PRIu64
                                    " MiB are wanted by a server: it takes ordinary ones, which is "
                                    "slower, and which not every device can use",
                                    free_bytes / MIB, wanted / MIB),
                     "echo %" PRIu64 " > " HUGE_PAGES "2048kB/nr_hugepages",
                     (wanted + 2 * MIB - 1) / (2 * MIB));
}

/* PCI devices */

static bool is_pci(const char *name)
{
    unsigned domain, bus, slot, function;
    char rest;
    return sscanf(name, "%x:%x:%x.%x%c", &domain, &bus, &slot, &function, &rest) == 4;
}

static void check_node(struct sl_doctor *doctor, const struct sl_endpoint_device *device,
                       const char *path, int err)
{
    if (err != 0) {
        char what[256];
        (void)snprintf(what, sizeof what, "%s: %s", path, strerror(err));
        sl_doctor_advise(doctor_dpdk_missing(doctor, "dpdk node", device, what),
                         err == EACCES ? "run as root, or give the user read and write access to it"
                                       : "modprobe vfio-pci; in a container: docker run "
                                         "--device=/dev/vfio");
    }
}

/* vfio assigns a device to a program by its IOMMU group. */
static void check_vfio(struct sl_doctor *doctor, const struct sl_endpoint_device *device)
{
    char group[64], path[128];
    check_node(doctor, device, "/dev/vfio/vfio", sl_doctor_files_access(doctor, "/dev/vfio/vfio"));
    if (!sl_doctor_files_link(doctor, group, sizeof group, PCI "/%s/iommu_group", device->name)) {
        sl_doctor_advise(
            doctor_dpdk_missing(doctor, "dpdk driver", device, "vfio-pci, but there is no IOMMU"),
            "turn it on in the firmware, and by intel_iommu=on or amd_iommu=on; or, "
            "unsafe: modprobe vfio enable_unsafe_noiommu_mode=1");
        return;
    }
    (void)snprintf(path, sizeof path, "/dev/vfio/noiommu-%s", group);
    if (sl_doctor_files_access(doctor, path) != 0) {
        (void)snprintf(path, sizeof path, "/dev/vfio/%s", group);
        check_node(doctor, device, path, sl_doctor_files_access(doctor, path));
    }
    if (doctor->system->memlock_max < PROCESS_BYTES + doctor->options->reactors * DEVICE_BYTES &&
        !sl_doctor_files_may(doctor, CAP_IPC_LOCK)) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "dpdk memory",
                                        "%" PRIu64 " MiB may be locked, and what vfio's devices "
                                        "use counts",
                                        doctor->system->memlock_max / MIB),
                         "raise the hard limit: memlock unlimited in /etc/security/limits.conf, "
                         "LimitMEMLOCK=infinity of systemd, docker run --ulimit memlock=-1");
    }
}

/* Checks a network interface that shares the device with the kernel, or that the device uses. */
static void check_interface(struct sl_doctor *doctor, const struct sl_endpoint_device *device,
                            const char *name)
{
    char state[32];
    if (!sl_doctor_files_line(doctor, state, sizeof state, NET "/%.64s/operstate", name)) {
        char what[128];
        (void)snprintf(what, sizeof what, "there is no network interface %.64s", name);
        sl_doctor_advise(doctor_dpdk_missing(doctor, "dpdk link", device, what),
                         "ip link lists them");
        return;
    }
    const bool is_down = strcmp(state, "down") == 0 || strcmp(state, "lowerlayerdown") == 0;
    struct sl_doctor_finding *finding =
        sl_doctor_find(doctor, is_down ? SL_DOCTOR_WARNING : SL_DOCTOR_OK, 0, "dpdk link",
                       "%s: %s is %s", device->name, name, state);
    if (is_down) {
        sl_doctor_advise(finding, "ip link set %s up; look at the cable and the switch", name);
    }
}

static void check_pci(struct sl_doctor *doctor, const struct sl_endpoint_device *device)
{
    static const char *const shared[] = {"mlx5_core", "mlx4_core", "mana"};
    char vendor[32], driver[64], names[8][SL_RDMA_DEVICE_NAME_BYTES], directory[160];
    if (!sl_doctor_files_line(doctor, vendor, sizeof vendor, PCI "/%s/vendor", device->name)) {
        sl_doctor_advise(doctor_dpdk_missing(doctor, "dpdk device", device,
                                             "this machine has no such device on its PCI bus"),
                         "dpdk-devbind.py --status-dev net lists them");
        return;
    }
    const bool has_driver =
        sl_doctor_files_link(doctor, driver, sizeof driver, PCI "/%s/driver", device->name);
    if (!has_driver) {
        (void)snprintf(driver, sizeof driver, "no driver");
    }
    (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "dpdk device", "%s, %s", device->name, driver);
    if (strcmp(driver, "vfio-pci") == 0) {
        check_vfio(doctor, device);
        return;
    }
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        if (strcmp(driver, shared[i]) == 0) {
            (void)snprintf(directory, sizeof directory, PCI "/%s/net", device->name);
            const uint32_t count = sl_doctor_files_list(doctor, directory, names, 8);
            for (uint32_t j = 0; j < count; j++) {
                check_interface(doctor, device, names[j]);
            }
            return;
        }
    }
    if (strcmp(driver, "uio_pci_generic") != 0 && strcmp(driver, "igb_uio") != 0) {
        char what[128];
        (void)snprintf(what, sizeof what, "%s %s", driver,
                       has_driver ? "leaves it to no program" : "has it");
        sl_doctor_advise(doctor_dpdk_missing(doctor, "dpdk driver", device, what),
                         "dpdk-devbind.py --bind=vfio-pci %s, by which the kernel loses it",
                         device->name);
    }
}

/* Virtual devices */

/* Finds the value of `key` in "key=value,key=value"; false: none. */
static bool find_argument(const struct sl_endpoint_device *device, const char *key, char *value,
                          size_t value_bytes)
{
    const size_t length = strlen(key);
    for (const char *at = device->arguments; *at != '\0';) {
        const size_t bytes = strcspn(at, ",");
        if (strncmp(at, key, length) == 0 && at[length] == '=') {
            (void)snprintf(value, value_bytes, "%.*s", (int)(bytes - length - 1), at + length + 1);
            return true;
        }
        at += bytes + (at[bytes] == ',');
    }
    return false;
}

static void check_memif(struct sl_doctor *doctor, const struct sl_endpoint_device *device)
{
    char socket[192] = "", role[16] = "client", abstract[8] = "yes", directory[192];
    const bool has_socket = find_argument(device, "socket", socket, sizeof socket);
    (void)find_argument(device, "role", role, sizeof role);
    (void)find_argument(device, "socket-abstract", abstract, sizeof abstract);
    if (!has_socket || strcmp(abstract, "no") != 0) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "dpdk device", "%s, %s, at %s%s",
                             device->name, role, has_socket ? "@" : "memif's own socket", socket);
        return;
    }
    const bool is_server = strcmp(role, "server") == 0 || strcmp(role, "master") == 0;
    const char *slash = strrchr(socket, '/');
    (void)snprintf(directory, sizeof directory, "%.*s",
                   slash == NULL ? 1 : (int)(slash - socket) + 1, slash == NULL ? "." : socket);
    const int err = sl_doctor_files_access(doctor, is_server ? directory : socket);
    if (err == 0) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "dpdk device", "%s, %s, at %s", device->name,
                             role, socket);
    } else if (is_server || err != ENOENT) {
        char what[256];
        (void)snprintf(what, sizeof what, "%s: %s", is_server ? directory : socket, strerror(err));
        sl_doctor_advise(doctor_dpdk_missing(doctor, "dpdk device", device, what),
                         "make the directory, and let the user write to it");
    } else {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "dpdk device",
                                        "%s: nobody is at %s yet", device->name, socket),
                         "start its server, which has the same socket and id; it is waited for");
    }
}

static void check_rights(struct sl_doctor *doctor, const struct sl_endpoint_device *device,
                         bool is_xdp)
{
    const bool may_raw = sl_doctor_files_may(doctor, CAP_NET_RAW);
    const bool may_load =
        sl_doctor_files_may(doctor, CAP_SYS_ADMIN) ||
        (sl_doctor_files_may(doctor, CAP_NET_ADMIN) && sl_doctor_files_may(doctor, CAP_BPF));
    if (!may_raw || (is_xdp && !may_load)) {
        sl_doctor_advise(
            doctor_dpdk_missing(doctor, "dpdk rights", device,
                                is_xdp ? "AF_XDP needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF"
                                       : "AF_PACKET needs CAP_NET_RAW"),
            "run as root, or setcap %s+ep starling-ps",
            is_xdp ? "cap_net_raw,cap_net_admin,cap_bpf,cap_ipc_lock" : "cap_net_raw");
    }
}

static void check_made(struct sl_doctor *doctor, const struct sl_endpoint_device *device)
{
    char interface[64];
    const bool is_packet = strncmp(device->name, "net_af_packet", 13) == 0;
    const bool is_xdp = strncmp(device->name, "net_af_xdp", 10) == 0;
    if (strncmp(device->name, "net_memif", 9) == 0) {
        check_memif(doctor, device);
        return;
    }
    (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "dpdk device", "%s is made at the start",
                         device->name);
    if (is_packet || is_xdp) {
        if (find_argument(device, "iface", interface, sizeof interface)) {
            check_interface(doctor, device, interface);
        } else {
            sl_doctor_advise(
                doctor_dpdk_missing(doctor, "dpdk link", device, "it does not say of what"),
                "add iface=NAME to its arguments");
        }
        check_rights(doctor, device, is_xdp);
    }
}

/* All devices */

static void check_device(struct sl_doctor *doctor, const struct sl_endpoint_device *device)
{
    if (device->arguments[0] != '\0') {
        check_made(doctor, device);
    } else if (is_pci(device->name)) {
        check_pci(doctor, device);
    } else {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "dpdk device",
                                        "%s has no arguments to make it by", device->name),
                         "write them behind the name, after a comma; or make it by --vdev in "
                         "STARLING_DPDK_EAL_ARGS");
    }
}

void sl_doctor_dpdk_check(struct sl_doctor *doctor)
{
    const struct sl_doctor_options *options = doctor->options;
    (void)sl_doctor_check_transport(doctor, SL_ENDPOINT_DPDK, "dpdk plug-in", "it loads",
                                    "install the starling-dpdk.so of this version");
    if (options->dpdk_device_count == 0) {
        sl_doctor_advise(
            sl_doctor_find(doctor, SL_DOCTOR_MISSING, dpdk, "dpdk device", "none is named"),
            "--dpdk-device DEVICE?addr=A; dpdk-devbind.py --status-dev net lists "
            "those of the PCI bus");
        return;
    }
    check_memory(doctor, options->dpdk_device_count);
    for (uint32_t i = 0; i < options->dpdk_device_count; i++) {
        check_device(doctor, &options->dpdk_devices[i]);
    }
}
