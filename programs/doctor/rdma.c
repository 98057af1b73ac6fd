/* RDMA: libraries, devices known to them, active ports, lockable memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/format.h"
#include "programs/doctor/checks.h"
#include "programs/doctor/files.h"
#include "programs/doctor/gid.h"

#define DEVICES          "/sys/class/infiniband"
#define PORTS_MAX        8
#define CAP_IPC_LOCK_BIT 14

/* Memory that a busy reactor registers: requests and replies (256 MiB) and the transport's own. It
 * starts with little; below LEAST_BYTES no connection is possible. */
#define KIB              ((uint64_t)1 << 10)
#define MIB              ((uint64_t)1 << 20)
#define REACTOR_BYTES    (320 * MIB)
#define LEAST_BYTES      (256 * KIB)

static const uint32_t rdma = SL_DOCTOR_OF(SL_ENDPOINT_RDMA);

struct devices {
    char names[SL_DOCTOR_DEVICES_MAX][SL_RDMA_DEVICE_NAME_BYTES]; /* by preference */
    uint32_t count;
};

static bool doctor_rdma_has_name(const struct devices *devices, const char *name, size_t length)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        if (strlen(devices->names[i]) == length && memcmp(devices->names[i], name, length) == 0) {
            return true;
        }
    }
    return false;
}

static void join_names(const struct devices *devices, char *text, size_t text_bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < devices->count; i++) {
        (void)sl_format_add(text, text_bytes, ", ", "%s", devices->names[i]);
    }
}

/* Selects the requested devices that exist, in the requested order. */
static void choose_devices(struct sl_doctor *doctor, const struct devices *all,
                           struct devices *chosen)
{
    const char *at = doctor->options->rdma.device;
    if (at == NULL) {
        *chosen = *all;
        return;
    }
    chosen->count = 0;
    while (*at != '\0') {
        const size_t length = strcspn(at, ",");
        if (doctor_rdma_has_name(all, at, length)) {
            if (chosen->count < SL_DOCTOR_DEVICES_MAX) {
                (void)snprintf(chosen->names[chosen->count++], SL_RDMA_DEVICE_NAME_BYTES, "%.*s",
                               (int)length, at);
            }
        } else {
            char names[160];
            join_names(all, names, sizeof names);
            sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma device",
                                            "%.*s: there is no such device", (int)length, at),
                             "--rdma-device accepts %s", names);
        }
        at += length + (at[length] == ',');
    }
}

/* Leaves the devices of InfiniBand and RoCE. A process that names another one ends with an error.
 */
static void leave_out_iwarp(struct sl_doctor *doctor, struct devices *devices)
{
    const bool is_named = doctor->options->rdma.device != NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < devices->count; i++) {
        char type[32];
        if (!sl_doctor_files_line(doctor, type, sizeof type, DEVICES "/%s/node_type",
                                  devices->names[i]) ||
            strstr(type, "RNIC") == NULL) {
            memmove(devices->names[count++], devices->names[i], sizeof devices->names[i]);
            continue;
        }
        sl_doctor_advise(sl_doctor_find(doctor, is_named ? SL_DOCTOR_MISSING : SL_DOCTOR_WARNING,
                                        is_named ? rdma : 0, "rdma device",
                                        "%s: iWARP is not supported", devices->names[i]),
                         "use RoCE mode or TCP");
    }
    devices->count = count;
}

static bool find_devices(struct sl_doctor *doctor, struct devices *chosen)
{
    struct devices all = {0};
    all.count = sl_doctor_files_list(doctor, DEVICES, all.names, SL_DOCTOR_DEVICES_MAX);
    if (all.count == 0) {
        sl_doctor_advise(
            sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma device", "none in " DEVICES),
            "load the adapter's driver (modprobe mlx5_ib, irdma, bnxt_re ...); without "
            "an adapter: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev "
            "eth0, which is slow");
        return false;
    }
    choose_devices(doctor, &all, chosen);
    const uint32_t chosen_count = chosen->count;
    leave_out_iwarp(doctor, chosen);
    if (chosen->count == 0 && chosen_count != 0) {
        sl_doctor_advise(
            sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma device", "none can be used"),
            "see above");
    }
    return chosen->count != 0;
}

static void check_node(struct sl_doctor *doctor, const char *path, const char *module)
{
    int err = sl_doctor_files_access(doctor, path);
    if (err == 0) {
        return;
    }
    struct sl_doctor_finding *finding =
        sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma node", "%s: %s", path, strerror(err));
    if (err == EACCES) {
        sl_doctor_advise(finding, "give the user read and write access to it (group rdma, or a "
                                  "rule of udev)");
    } else {
        sl_doctor_advise(
            finding, "modprobe %s; in a container: docker run --device=/dev/infiniband", module);
    }
}

/* Device nodes of the connection manager and of each device. */
static void check_nodes(struct sl_doctor *doctor, const struct devices *devices)
{
    static const char directory[] = "/sys/class/infiniband_verbs";
    char nodes[SL_DOCTOR_DEVICES_MAX][SL_RDMA_DEVICE_NAME_BYTES];
    const uint32_t count = sl_doctor_files_list(doctor, directory, nodes, SL_DOCTOR_DEVICES_MAX);
    check_node(doctor, "/dev/infiniband/rdma_cm", "rdma_ucm");
    for (uint32_t i = 0; i < count; i++) {
        char name[SL_RDMA_DEVICE_NAME_BYTES], path[128];
        (void)snprintf(path, sizeof path, "/dev/infiniband/%.63s", nodes[i]);
        if (sl_doctor_files_line(doctor, name, sizeof name, "%s/%s/ibdev", directory, nodes[i]) &&
            doctor_rdma_has_name(devices, name, strlen(name))) {
            check_node(doctor, path, "ib_uverbs");
        }
    }
}

/* Devices of the kernel that the libraries do not support. */
static void check_providers(struct sl_doctor *doctor, const struct devices *devices)
{
    struct devices known = {0};
    uint32_t lacking = 0;
    const uint32_t count = doctor->system->rdma_devices(known.names, SL_DOCTOR_DEVICES_MAX);
    known.count = count < SL_DOCTOR_DEVICES_MAX ? count : SL_DOCTOR_DEVICES_MAX;
    for (uint32_t i = 0; i < devices->count; i++) {
        const char *name = devices->names[i];
        if (!doctor_rdma_has_name(&known, name, strlen(name))) {
            lacking++;
            sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma provider",
                                            "%s: libibverbs has none for it", name),
                             "install ibverbs-providers, or what the adapter's maker has");
        }
    }
    if (lacking == 0) {
        char names[160];
        join_names(devices, names, sizeof names);
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "rdma provider", "of %s", names);
    }
}

struct port_state {
    char state[32], layer[32], rate[64], netdev[32], node[16];
    bool is_active;
};

static bool read_port(const struct sl_doctor *doctor, const char *device, uint32_t number,
                      struct port_state *out)
{
    char directory[160];
    (void)snprintf(directory, sizeof directory, DEVICES "/%s/ports/%u", device, number);
    if (!sl_doctor_files_line(doctor, out->state, sizeof out->state, "%s/state", directory)) {
        return false;
    }
    (void)sl_doctor_files_line(doctor, out->layer, sizeof out->layer, "%s/link_layer", directory);
    (void)sl_doctor_files_line(doctor, out->rate, sizeof out->rate, "%s/rate", directory);
    if (!sl_doctor_files_line(doctor, out->netdev, sizeof out->netdev, "%s/gid_attrs/ndevs/0",
                              directory)) {
        (void)sl_doctor_files_line(doctor, out->netdev, sizeof out->netdev, DEVICES "/%s/parent",
                                   device);
    }
    (void)sl_doctor_files_line(doctor, out->node, sizeof out->node, DEVICES "/%s/device/numa_node",
                               device);
    /* "4: ACTIVE" */
    const char *name = strstr(out->state, ": ");
    if (name != NULL) {
        memmove(out->state, name + 2, strlen(name + 2) + 1);
    }
    out->is_active = strcmp(out->state, "ACTIVE") == 0;
    return true;
}

static void say_port(struct sl_doctor *doctor, const char *device, uint32_t number,
                     const struct port_state *port)
{
    const bool has_netdev = port->netdev[0] != '\0';
    const bool has_node = port->node[0] != '\0' && port->node[0] != '-';
    const bool is_ethernet = strcmp(port->layer, "Ethernet") == 0;
    struct sl_doctor_finding *finding =
        sl_doctor_find(doctor, port->is_active ? SL_DOCTOR_OK : SL_DOCTOR_WARNING, 0, "rdma port",
                       "%s/%u: %s, %s, %s%s%s%s%s", device, number, port->state, port->layer,
                       port->rate, has_netdev ? ", " : "", port->netdev,
                       has_node ? ", NUMA node " : "", has_node ? port->node : "");
    if (!port->is_active) {
        sl_doctor_advise(finding,
                         is_ethernet ? "ip link set %s up; look at the cable and the switch"
                                     : "look at the cable, the switch, and the subnet manager "
                                       "(opensm)%.0s",
                         has_netdev ? port->netdev : "its network interface");
    }
}

/* Returns the number of active ports. */
static uint32_t check_ports(struct sl_doctor *doctor, const char *device, bool is_first)
{
    uint32_t active = 0;
    struct port_state port = {0};
    for (uint32_t i = 1; i <= PORTS_MAX && read_port(doctor, device, i, &port); i++) {
        say_port(doctor, device, i, &port);
        active += port.is_active;
        if (port.is_active) {
            const struct sl_doctor_port table = {
                .device = device,
                .number = i,
                .is_ethernet = strcmp(port.layer, "Ethernet") == 0,
                .is_first = is_first && active == 1,
            };
            sl_doctor_gid_check(doctor, &table);
        }
    }
    return active;
}

static void check_memlock(struct sl_doctor *doctor)
{
    const uint64_t limit = doctor->system->memlock_max;
    const uint32_t reactors = doctor->options->reactors;
    const uint64_t needed = reactors * REACTOR_BYTES;
    if (limit == UINT64_MAX) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "memlock", "no limit");
        return;
    }
    if (limit >= needed || sl_doctor_files_may(doctor, CAP_IPC_LOCK_BIT)) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "memlock", "%" PRIu64 " MiB%s", limit / MIB,
                             limit >= needed ? "" : ", which CAP_IPC_LOCK lifts");
        return;
    }
    struct sl_doctor_finding *finding = sl_doctor_find(
        doctor, limit < LEAST_BYTES ? SL_DOCTOR_MISSING : SL_DOCTOR_WARNING, rdma, "memlock",
        "%" PRIu64 " %s may be locked; each reactor (here %u) may use up to %" PRIu64 " MiB",
        limit < MIB ? limit / KIB : limit / MIB, limit < MIB ? "KiB" : "MiB", reactors,
        REACTOR_BYTES / MIB);
    sl_doctor_advise(finding, "raise the hard limit: memlock unlimited in "
                              "/etc/security/limits.conf, LimitMEMLOCK=infinity of systemd, docker "
                              "run --ulimit memlock=-1");
}

void sl_doctor_rdma_check(struct sl_doctor *doctor)
{
    struct devices devices = {0};
    const bool has_libraries = sl_doctor_check_transport(doctor, SL_ENDPOINT_RDMA, "rdma library",
                                                         "libibverbs, librdmacm", "");
    if (!find_devices(doctor, &devices)) {
        return;
    }
    check_nodes(doctor, &devices);
    if (has_libraries) {
        check_providers(doctor, &devices);
    }
    uint32_t active = 0;
    for (uint32_t i = 0; i < devices.count; i++) {
        active += check_ports(doctor, devices.names[i], active == 0);
    }
    if (active == 0) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, rdma, "rdma port", "none is up"),
                         "see above");
    }
    sl_doctor_gid_check_endpoints(doctor);
    check_memlock(doctor);
}
