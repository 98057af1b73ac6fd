#include "bench/machine.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "reactor/topology.h"

#define CACHES_MAX 8 /* of one core, in /sys */

/* The first line of a small file without its end; false when there is none. */
static bool read_line(const char *path, char *text, size_t text_bytes)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    const bool read = fgets(text, (int)text_bytes, file) != NULL;
    (void)fclose(file);
    if (read) {
        text[strcspn(text, "\n")] = '\0';
    }
    return read && text[0] != '\0';
}

static void read_cpu(char *cpu, size_t cpu_bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[512];
    (void)snprintf(cpu, cpu_bytes, "unknown");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && value != NULL) {
            value += 1 + strspn(value + 1, " ");
            (void)snprintf(cpu, cpu_bytes, "%.*s", (int)strcspn(value, "\n"), value);
            break;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

/* "always [madvise] never" is madvise. */
static void read_huge_pages(char *mode, size_t mode_bytes)
{
    char line[128];
    const char *first = NULL;
    if (read_line("/sys/kernel/mm/transparent_hugepage/enabled", line, sizeof line)) {
        first = strchr(line, '[');
    }
    if (first == NULL) {
        (void)snprintf(mode, mode_bytes, "unknown");
        return;
    }
    (void)snprintf(mode, mode_bytes, "%.*s", (int)strcspn(first + 1, "]"), first + 1);
}

static void read_build(char *build, size_t build_bytes)
{
    /* __VERSION__ is "12.2.0" of gcc, and begins with a word ("Clang 14", "Debian Clang 14") of
     * others. */
    const char *compiler =
        isdigit((unsigned char)__VERSION__[0]) ? "gcc " __VERSION__ : __VERSION__;
    (void)snprintf(build, build_bytes, "starling %s, %s, %s", STARLING_VERSION, compiler,
                   STARLING_BUILD_TYPE);
}

void sl_bench_machine_read(struct sl_bench_machine *out)
{
    struct utsname kernel;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (struct sl_bench_machine){.cores = online > 0 ? (uint32_t)online : 1,
                                     .cores_usable = sl_topology_core_count()};
    read_cpu(out->cpu, sizeof out->cpu);
    if (uname(&kernel) == 0) {
        (void)snprintf(out->kernel, sizeof out->kernel, "%s %s", kernel.sysname, kernel.release);
    } else {
        (void)snprintf(out->kernel, sizeof out->kernel, "unknown");
    }
    read_huge_pages(out->huge_pages, sizeof out->huge_pages);
    if (!read_line("/proc/sys/net/ipv4/tcp_congestion_control", out->congestion,
                   sizeof out->congestion)) {
        (void)snprintf(out->congestion, sizeof out->congestion, "unknown");
    }
    read_build(out->build, sizeof out->build);
}

/* Whether a list as /sys has it, "0-3,8", names the core. */
static bool list_names(const char *list, int core)
{
    while (*list != '\0') {
        char *end;
        const long first = strtol(list, &end, 10);
        long last = first;
        if (*end == '-') {
            last = strtol(end + 1, &end, 10);
        }
        if (core >= first && core <= last) {
            return true;
        }
        if (*end != ',') {
            return false;
        }
        list = end + 1;
    }
    return false;
}

static bool read_core(int core, const char *name, char *text, size_t text_bytes)
{
    char path[160];
    (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/%s", core, name);
    return read_line(path, text, text_bytes);
}

/* Whether core a's file, a list of cores, names core b. */
static bool shares(int core_a, int core_b, const char *name)
{
    char list[256];
    return read_core(core_a, name, list, sizeof list) && list_names(list, core_b);
}

void sl_bench_machine_nearness(int core_a, int core_b, char *text, size_t text_bytes)
{
    int least = 0; /* the level nearest to the cores that both have */
    char name[64], level[32], size[32] = "";
    for (int index = 0; index < CACHES_MAX; index++) {
        (void)snprintf(name, sizeof name, "cache/index%d/shared_cpu_list", index);
        const bool is_shared = shares(core_a, core_b, name);
        (void)snprintf(name, sizeof name, "cache/index%d/level", index);
        if (is_shared && read_core(core_a, name, level, sizeof level) && atoi(level) > 0 &&
            (least == 0 || atoi(level) < least)) {
            least = atoi(level);
            (void)snprintf(name, sizeof name, "cache/index%d/size", index);
            size[0] = '\0';
            (void)read_core(core_a, name, size, sizeof size);
        }
    }
    if (core_a == core_b) {
        (void)snprintf(text, text_bytes, "the same core");
    } else if (shares(core_a, core_b, "topology/thread_siblings_list")) {
        (void)snprintf(text, text_bytes, "hyper-threads of one core");
    } else if (least == 0) {
        (void)snprintf(text, text_bytes, "share no cache");
    } else {
        (void)snprintf(text, text_bytes, "share L%d%s%s", least, size[0] == '\0' ? "" : " of ",
                       size);
    }
}
