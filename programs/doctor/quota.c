/* CPU quota of the control groups above this process. */
#include "programs/doctor/quota.h"

#include <inttypes.h>
#include <string.h>

#include "programs/doctor/files.h"

#define GROUP_BYTES 512

/* Parses "MAX PERIOD" of version 2, where MAX may be "max", to 1/1000 core. */
static uint64_t parse_max(const char *line)
{
    uint64_t quota, period;
    const bool limited = sscanf(line, "%" SCNu64 " %" SCNu64, &quota, &period) == 2;
    return limited && period != 0 ? quota * 1000 / period : UINT64_MAX;
}

static uint64_t read_group(const struct sl_doctor *doctor, const char *mount, const char *group)
{
    char quota[64], period[64], line[160];
    if (sl_doctor_files_line(doctor, line, sizeof line, "%s%s/cpu.max", mount, group)) {
        return parse_max(line);
    }
    /* Version 1: -1 is no limit. */
    if (!sl_doctor_files_line(doctor, quota, sizeof quota, "%s%s/cpu.cfs_quota_us", mount, group) ||
        !sl_doctor_files_line(doctor, period, sizeof period, "%s%s/cpu.cfs_period_us", mount,
                              group) ||
        quota[0] == '-') {
        return UINT64_MAX;
    }
    (void)snprintf(line, sizeof line, "%s %s", quota, period);
    return parse_max(line);
}

/* Returns the smallest quota of a group and its ancestors. In a container, group names may be those
 * of the host, with only the root visible. */
static uint64_t read_groups(const struct sl_doctor *doctor, const char *mount, char *group)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        const bool is_top = group[0] == '\0' || strcmp(group, "/") == 0;
        const uint64_t here = read_group(doctor, mount, is_top ? "" : group);
        least = here < least ? here : least;
        if (is_top) {
            return least;
        }
        char *slash = strrchr(group, '/');
        *(slash == NULL ? group : slash) = '\0';
    }
}

/* Finds the controller's group in lines like "4:cpu,cpuacct:/group", or "0::/group" in version
 * 2. */
static void find_group(const char *lines, const char *controller, char *group, size_t group_bytes)
{
    group[0] = '\0';
    for (const char *line = lines; *line != '\0'; line += strspn(line, "\n")) {
        const char *end = line + strcspn(line, "\n");
        const char *names = memchr(line, ':', (size_t)(end - line));
        const char *path = names == NULL ? NULL : memchr(names + 1, ':', (size_t)(end - names) - 1);
        line = end;
        if (path == NULL) {
            continue;
        }
        char list[128];
        (void)snprintf(list, sizeof list, ",%.*s,", (int)(path - names - 1), names + 1);
        if (strstr(list, controller) != NULL) {
            (void)snprintf(group, group_bytes, "%.*s", (int)(end - path - 1), path + 1);
        }
    }
}

uint64_t sl_doctor_quota(const struct sl_doctor *doctor)
{
    static const struct {
        const char *controller, *mount;
    } places[] = {
        {",,", "/sys/fs/cgroup"},
        {",,", "/sys/fs/cgroup/unified"},
        {",cpu,", "/sys/fs/cgroup/cpu"},
    };
    char lines[4096];
    sl_doctor_files_text(doctor, lines, sizeof lines, "/proc/self/cgroup");
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char group[GROUP_BYTES];
        find_group(lines, places[i].controller, group, sizeof group);
        const uint64_t here = read_groups(doctor, places[i].mount, group);
        least = here < least ? here : least;
    }
    return least;
}
