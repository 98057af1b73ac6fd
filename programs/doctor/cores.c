/* Cores, CPU quota, NUMA, clock, huge pages. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "programs/doctor/checks.h"
#include "programs/doctor/files.h"
#include "programs/doctor/quota.h"

#define PROCESSES_MAX       4096
#define SERVER_ORDINARY_KIB (64U << 10) /* not worth a word */

static void check_cores(struct sl_doctor *doctor)
{
    const struct sl_doctor_options *options = doctor->options;
    const uint32_t cores = doctor->system->cores, reactors = options->reactors;
    const bool is_crowded = reactors > cores;
    const bool spins_on_all = options->polling && reactors == cores && cores > 1;
    struct sl_doctor_finding *finding = sl_doctor_find(
        doctor, is_crowded || spins_on_all ? SL_DOCTOR_WARNING : SL_DOCTOR_OK, 0, "cores",
        "%u, for %u reactor%s, %s%s", cores, reactors, sl_log_plural(reactors),
        options->pin ? "pinned" : "not pinned", options->polling ? ", polling" : "");
    if (is_crowded) {
        sl_doctor_advise(finding,
                         "--reactors %u, or let the process use more cores (taskset, cpuset of the "
                         "control group)",
                         cores);
    } else if (spins_on_all) {
        sl_doctor_advise(finding,
                         "--reactors %u: leave a core to other threads, or do without --polling",
                         cores - 1);
    }
}

static void check_quota(struct sl_doctor *doctor)
{
    const uint64_t quota = sl_doctor_quota(doctor);
    const uint32_t reactors = doctor->options->reactors;
    if (quota == UINT64_MAX) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "cpu quota", "none");
        return;
    }
    const bool is_short = quota < (uint64_t)reactors * 1000;
    struct sl_doctor_finding *finding =
        sl_doctor_find(doctor, is_short ? SL_DOCTOR_WARNING : SL_DOCTOR_OK, 0, "cpu quota",
                       "%" PRIu64 ".%" PRIu64 " cores for %u reactor%s", quota / 1000,
                       quota % 1000 / 100, reactors, sl_log_plural(reactors));
    if (is_short) {
        sl_doctor_advise(finding,
                         "--reactors %" PRIu64 ", or a larger quota: a process that has used it up "
                         "stands still for tens of milliseconds",
                         quota < 2000 ? 1 : quota / 1000);
    }
}

static void check_numa(struct sl_doctor *doctor)
{
    char nodes[128];
    if (!sl_doctor_files_line(doctor, nodes, sizeof nodes, "/sys/devices/system/node/online")) {
        return;
    }
    const bool has_several = strpbrk(nodes, "-,") != NULL;
    const bool roams = has_several && !doctor->options->pin;
    struct sl_doctor_finding *finding =
        sl_doctor_find(doctor, roams ? SL_DOCTOR_WARNING : SL_DOCTOR_OK, 0, "numa", "node%s %s",
                       has_several ? "s" : "", nodes);
    if (roams) {
        sl_doctor_advise(finding,
                         "--pin-cores keeps each reactor beside its memory; one server for "
                         "each node (numactl --cpunodebind) does too");
    }
}

static void check_clock(struct sl_doctor *doctor)
{
    static const char *const fast_clocks[] = {
        "tsc",      "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page",
        "timebase", "tod",       "riscv_clocksource"};
    static const char directory[] = "/sys/devices/system/clocksource/clocksource0";
    char current[64], available[256];
    if (!sl_doctor_files_line(doctor, current, sizeof current, "%s/current_clocksource",
                              directory)) {
        return;
    }
    current[strcspn(current, " ")] = '\0';
    bool is_fast = false;
    for (size_t i = 0; i < sizeof fast_clocks / sizeof fast_clocks[0]; i++) {
        is_fast = is_fast || strcmp(current, fast_clocks[i]) == 0;
    }
    struct sl_doctor_finding *finding =
        sl_doctor_find(doctor, is_fast ? SL_DOCTOR_OK : SL_DOCTOR_WARNING, 0, "clock", "%s%s",
                       current, is_fast ? "" : ": each look at it is a system call, or slower");
    if (!is_fast) {
        (void)sl_doctor_files_line(doctor, available, sizeof available, "%s/available_clocksource",
                                   directory);
        sl_doctor_advise(finding,
                         strstr(available, "tsc") != NULL
                             ? "echo tsc > %s/current_clocksource, as root"
                             : "see in dmesg why the tsc is not used (%s)",
                         directory);
    }
}

static void check_pages(struct sl_doctor *doctor)
{
    char transparent[64], memory[4096], free_pages[32];
    (void)sl_doctor_files_line(doctor, transparent, sizeof transparent,
                               "/sys/kernel/mm/transparent_hugepage/enabled");
    sl_doctor_files_text(doctor, memory, sizeof memory, "/proc/meminfo");
    const bool has_reserved =
        sl_doctor_files_field(memory, "HugePages_Free:", free_pages, sizeof free_pages) &&
        strcmp(free_pages, "0") != 0;
    const bool has_transparent =
        strstr(transparent, "[always]") != NULL || strstr(transparent, "[madvise]") != NULL;
    if (has_reserved || has_transparent) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "huge pages", "%s%s%s%s",
                             has_transparent ? "transparent" : "",
                             has_transparent && has_reserved ? ", and " : "",
                             has_reserved ? free_pages : "", has_reserved ? " reserved ones" : "");
        return;
    }
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "huge pages",
                                    "none: a look at a row costs about a third more"),
                     "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root; or "
                     "reserve some: sysctl -w vm.nr_hugepages=N");
}

static uint64_t kib_of(const char *text, const char *key)
{
    char value[32];
    return sl_doctor_files_field(text, key, value, sizeof value) ? strtoull(value, NULL, 10) : 0;
}

/* Reports a running server of which a large part is on ordinary pages. */
static void check_server(struct sl_doctor *doctor, const char *pid)
{
    char name[32], path[96], text[2048];
    (void)sl_doctor_files_line(doctor, name, sizeof name, "/proc/%s/comm", pid);
    if (strcmp(name, "starling-ps") != 0) {
        return;
    }
    (void)snprintf(path, sizeof path, "/proc/%s/smaps_rollup", pid);
    sl_doctor_files_text(doctor, text, sizeof text, path);
    const uint64_t all = kib_of(text, "Anonymous:");
    const uint64_t ordinary = all - kib_of(text, "AnonHugePages:");
    if (ordinary <= all / 10 || ordinary <= SERVER_ORDINARY_KIB) {
        return;
    }
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "huge pages",
                                    "server %s: %" PRIu64 " of %" PRIu64
                                    " MiB are on ordinary pages",
                                    pid, ordinary / 1024, all / 1024),
                     "normal while its tables grow, and for a minute afterwards; else see its "
                     "metrics ordinary_page_bytes and huge_pages_refused_total");
}

static void check_servers(struct sl_doctor *doctor)
{
    static char names[PROCESSES_MAX][SL_RDMA_DEVICE_NAME_BYTES];
    const uint32_t count = sl_doctor_files_list(doctor, "/proc", names, PROCESSES_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (names[i][0] >= '1' && names[i][0] <= '9') {
            check_server(doctor, names[i]);
        }
    }
}

void sl_doctor_cores_check(struct sl_doctor *doctor)
{
    check_cores(doctor);
    check_quota(doctor);
    check_numa(doctor);
    check_clock(doctor);
    check_pages(doctor);
    check_servers(doctor);
}
