#include "tests/unit/programs/doctor/machine.h"
#include "programs/doctor/findings.h"
#include "tests/support/unit.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct machine machine;

static int probe_ring(struct sl_doctor_ring *out)
{
    if (machine.ring_result == 0) {
        *out = machine.ring;
    }
    return machine.ring_result;
}

static const char *missing(enum sl_endpoint_scheme scheme)
{
    return machine.missing[scheme];
}

static uint32_t list_providers(char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most)
{
    uint32_t count = 0;
    for (; machine.providers[count] != NULL; count++) {
        assert_true(count < most);
        (void)snprintf(names[count], SL_RDMA_DEVICE_NAME_BYTES, "%s", machine.providers[count]);
    }
    return count;
}

static void read_devices(struct sl_devices *out)
{
    sysfs_tree_read(&machine.tree, out);
}

void machine_make(void)
{
    memset(&machine, 0, sizeof machine);
    (void)snprintf(machine.root, sizeof machine.root, "/tmp/starling_doctor_XXXXXX");
    machine.options = (struct sl_doctor_options){
        .transports = SL_DOCTOR_OF(SL_ENDPOINT_TCP),
        .reactors = 4,
    };
    machine.system = (struct sl_doctor_system){
        .root = machine.root,
        .cores = 4,
        .files_max = 65536,
        .memlock_max = UINT64_MAX,
        .probe_ring = probe_ring,
        .missing = missing,
        .rdma_devices = list_providers,
        .read_devices = read_devices,
    };
    machine.ring = (struct sl_doctor_ring){
        .deferred_taskrun = true, .multishot_recv = true, .provided_buffer_rings = true};
    machine.doctor.options = &machine.options;
    machine.doctor.system = &machine.system;
    assert_non_null(mkdtemp(machine.root));
    memcpy(machine.tree.root, machine.root, sizeof machine.root);
}

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    return remove(path);
}

void machine_remove(void)
{
    free(machine.doctor.nic_priority_matrix);
    sysfs_tree_free_addresses(&machine.tree);
    assert_int_equal(nftw(machine.root, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void machine_write(const char *path, const char *line)
{
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s%s", machine.root, path);
    for (char *slash = strchr(whole + strlen(machine.root) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(whole, 0755) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    assert_true(fprintf(file, "%s\n", line) > 0);
    assert_int_equal(fclose(file), 0);
}

void machine_add_tree(const char *description)
{
    sysfs_tree_add(&machine.tree, machine.root, description);
}

static void write_of(const char *device, const char *what, const char *line)
{
    char path[256];
    (void)snprintf(path, sizeof path, "/sys/class/infiniband/%s/%s", device, what);
    machine_write(path, line);
}

void machine_add_device(const char *name, const char *state, const char *link_layer)
{
    char path[256];
    write_of(name, "node_type", "1: CA");
    write_of(name, "ports/1/state", state);
    write_of(name, "ports/1/link_layer", link_layer);
    write_of(name, "ports/1/rate", "100 Gb/sec (4X EDR)");
    (void)snprintf(path, sizeof path, "/sys/class/infiniband_verbs/uverbs_%s/ibdev", name);
    machine_write(path, name);
    (void)snprintf(path, sizeof path, "/dev/infiniband/uverbs_%s", name);
    machine_write(path, "");
    machine_write("/dev/infiniband/rdma_cm", "");
    for (size_t i = 0; i < sizeof machine.providers / sizeof machine.providers[0] - 1; i++) {
        if (machine.providers[i] == NULL) {
            machine.providers[i] = name;
            break;
        }
    }
}

void machine_add_gid(const char *device, uint32_t index, const char *gid, const char *type,
                     const char *netdev)
{
    char what[64];
    (void)snprintf(what, sizeof what, "ports/1/gids/%u", index);
    write_of(device, what, gid);
    (void)snprintf(what, sizeof what, "ports/1/gid_attrs/types/%u", index);
    write_of(device, what, type);
    (void)snprintf(what, sizeof what, "ports/1/gid_attrs/ndevs/%u", index);
    write_of(device, what, netdev);
}

uint32_t machine_count(const char *check)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < machine.doctor.count; i++) {
        count += strcmp(machine.doctor.findings[i].check, check) == 0;
    }
    return count;
}

const struct sl_doctor_finding *machine_expect(const char *check, uint32_t nth,
                                               enum sl_doctor_verdict verdict, const char *words)
{
    for (uint32_t i = 0; i < machine.doctor.count; i++) {
        const struct sl_doctor_finding *finding = &machine.doctor.findings[i];
        if (strcmp(finding->check, check) != 0 || nth-- != 0) {
            continue;
        }
        const bool has_words =
            strstr(finding->found, words) != NULL || strstr(finding->advice, words) != NULL;
        if (finding->verdict != verdict || !has_words) {
            fail_msg("%s: verdict %d, \"%s\" -> \"%s\"", check, (int)finding->verdict,
                     finding->found, finding->advice);
        }
        return finding;
    }
    fail_msg("nothing was found about %s", check);
    return NULL;
}

void machine_run(void (*check)(struct sl_doctor *doctor))
{
    free(machine.doctor.nic_priority_matrix);
    machine.doctor = (struct sl_doctor){.options = &machine.options, .system = &machine.system};
    check(&machine.doctor);
}
