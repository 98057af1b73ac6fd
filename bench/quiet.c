#include "bench/quiet.h"

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "bench/now.h"

/* A line of /proc/PID/stat, without the name. */
#define STAT_BYTES    1024
#define PROCESSES_MAX 4096

struct process {
    pid_t id, parent;
    unsigned long long ticks; /* its own, and those of children that it has waited for */
    bool is_ours;
};

/* In ticks, since the machine started; 0: not known. Steal counts: it is another machine's. */
static unsigned long long busy_ticks(void)
{
    unsigned long long user, nice, system, idle, iowait, irq, softirq, steal = 0;
    FILE *file = fopen("/proc/stat", "re");
    if (file == NULL) {
        return 0;
    }
    const int found = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &user, &nice,
                             &system, &idle, &iowait, &irq, &softirq, &steal);
    (void)fclose(file);
    return found >= 7 ? user + nice + system + steal : 0;
}

/* False: it has ended. */
static bool read_process(const char *id, struct process *out)
{
    char path[64];
    char text[STAT_BYTES];
    (void)snprintf(path, sizeof path, "/proc/%.20s/stat", id);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    const char *rest = strrchr(text, ')'); /* behind the name, which may have anything in it */
    int parent;
    unsigned long long user, system;
    long long children_user, children_system;
    if (rest == NULL ||
        sscanf(rest + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld", &parent,
               &user, &system, &children_user, &children_system) != 5) {
        return false;
    }
    *out = (struct process){
        .id = (pid_t)strtol(id, NULL, 10),
        .parent = parent,
        .ticks = user + system + (unsigned long long)(children_user + children_system),
    };
    return true;
}

static uint32_t read_processes(struct process *out)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    while (folder != NULL && count < PROCESSES_MAX && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') {
            count += read_process(entry->d_name, &out[count]) ? 1 : 0;
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return count;
}

static bool is_ours(const struct process *list, uint32_t count, pid_t id)
{
    for (uint32_t i = 0; i < count; i++) {
        if (list[i].id == id) {
            return list[i].is_ours;
        }
    }
    return false;
}

static unsigned long long own_ticks(void)
{
    static struct process list[PROCESSES_MAX];
    const uint32_t count = read_processes(list);
    unsigned long long ticks = 0;
    /* A child may stand before its parent: until a pass finds no other. */
    for (bool found = true; found;) {
        found = false;
        for (uint32_t i = 0; i < count; i++) {
            struct process *process = &list[i];
            if (!process->is_ours &&
                (process->id == getpid() || is_ours(list, count, process->parent))) {
                process->is_ours = found = true;
                ticks += process->ticks;
            }
        }
    }
    return ticks;
}

/* Of other programs so far, in seconds. */
static double others_s(void)
{
    const unsigned long long own = own_ticks();
    const unsigned long long busy = busy_ticks();
    return ((double)busy - (double)own) / (double)sysconf(_SC_CLK_TCK);
}

static double now_s(void)
{
    return (double)sl_bench_now_ns() / (double)SL_CLOCK_NS_PER_S;
}

void sl_bench_quiet_begin(struct sl_bench_quiet *quiet)
{
    *quiet = (struct sl_bench_quiet){.others_s = others_s(), .at_s = now_s()};
}

bool sl_bench_quiet_was_disturbed(const struct sl_bench_quiet *quiet)
{
    return others_s() - quiet->others_s > SL_BENCH_QUIET_SHARE * (now_s() - quiet->at_s);
}
