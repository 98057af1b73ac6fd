#include "bench/quiet.h"

#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "bench/now.h"

#define STAT_BYTES 1024 /* of /proc/PID/stat */

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

/* Of a process and the children that it has waited for; 0: it has ended. */
static unsigned long long ticks_of(pid_t id)
{
    char path[64], text[STAT_BYTES];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)id);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    const char *rest = strrchr(text, ')'); /* behind the name, which may have anything in it */
    unsigned long long user, system;
    long long children_user, children_system;
    if (rest == NULL ||
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %lld %lld", &user,
               &system, &children_user, &children_system) != 4) {
        return 0;
    }
    return user + system + (unsigned long long)(children_user + children_system);
}

/* Of a process and all below it. */
static unsigned long long ticks_below(pid_t id)
{
    char path[64];
    int child;
    unsigned long long ticks = ticks_of(id);
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)id, (int)id);
    FILE *file = fopen(path, "re");
    while (file != NULL && fscanf(file, "%d", &child) == 1) {
        ticks += ticks_below(child);
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return ticks;
}

/* Of other programs so far, in seconds. */
static double others_s(void)
{
    const unsigned long long own = ticks_below(getpid());
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
