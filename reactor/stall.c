#include "reactor/stall.h"

#include <sys/resource.h>
#include <time.h>

#include "core/event.h"
#include "core/limits.h"

#define LOG_EVERY_NS SL_CLOCK_NS_PER_S
#define LONG_NS      (100 * SL_CLOCK_NS_PER_MS)

static void sample_take(struct sl_stall_sample *sample, uint64_t now_ns)
{
    /* The processor time from getrusage is only as recent as the last scheduler tick. */
    struct timespec cpu = {0};
    struct rusage usage = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    getrusage(RUSAGE_THREAD, &usage);
    sample->at_ns = now_ns;
    sample->cpu_ns = (uint64_t)cpu.tv_sec * SL_CLOCK_NS_PER_S + (uint64_t)cpu.tv_nsec;
    sample->blocks = (uint64_t)usage.ru_nvcsw;
    sample->sleeps = 0;
}

void sl_stall_init(struct sl_stall *stall, const struct sl_clock *clock, const char *reactor_name,
                   uint64_t now_ns)
{
    *stall = (struct sl_stall){.clock = clock, .reactor_name = reactor_name};
    sample_take(&stall->sample, now_ns);
}

static void charge(struct sl_stall *stall, uint64_t now_ns, const char *phase)
{
    uint64_t took_ns = now_ns - stall->mark_ns;
    stall->mark_ns = now_ns;
    if (took_ns >= stall->longest_ns) {
        stall->longest_ns = took_ns;
        stall->longest_phase = phase;
    }
}

void sl_stall_mark(struct sl_stall *stall, const char *phase)
{
    charge(stall, sl_clock_now_ns(stall->clock), phase);
}

/* Whether the turn that began at begin_ns computed or blocked for long. Between the old sample and
 * begin_ns the thread computed at most that span; more was computed in the turn. More blocks than
 * intended sleeps were in the turn, too. */
static bool was_its_own(const struct sl_stall_sample *before, const struct sl_stall_sample *after,
                        uint64_t begin_ns)
{
    uint64_t cpu_ns = after->cpu_ns - before->cpu_ns;
    return after->blocks - before->blocks > before->sleeps ||
           cpu_ns >= begin_ns - before->at_ns + SL_LIMIT_TURN_STALL_NS;
}

/* A long stall is a warning, a short one a debug line. A short one does not keep a long one from
 * being logged. */
static void log_stall(struct sl_stall *stall, uint64_t now_ns)
{
    const uint64_t took_ns = now_ns - stall->begin_ns;
    const bool is_long = took_ns >= LONG_NS;
    if (stall->logged_ns != 0 && now_ns - stall->logged_ns < LOG_EVERY_NS &&
        is_long <= stall->logged_long) {
        stall->unlogged++;
        return;
    }
    sl_log_event(
        is_long ? SL_LOG_WARN : SL_LOG_DEBUG,
        SL_EVENT(is_long ? "reactor_stalled" : NULL, SL_EVENT_TEXT("reactor", stall->reactor_name),
                 SL_EVENT_NUMBER("took_us", took_ns / 1000),
                 SL_EVENT_TEXT("phase", stall->longest_phase)),
        "reactor %s: a turn took %.1f ms, of which %s %.1f ms (%llu earlier stalls not "
        "logged)",
        stall->reactor_name, (double)took_ns / SL_CLOCK_NS_PER_MS, stall->longest_phase,
        (double)stall->longest_ns / SL_CLOCK_NS_PER_MS, (unsigned long long)stall->unlogged);
    stall->logged_ns = now_ns;
    stall->logged_long = is_long;
    stall->unlogged = 0;
}

enum sl_stall_verdict sl_stall_end(struct sl_stall *stall, uint64_t now_ns, const char *last_phase,
                                   const char **out_phase)
{
    bool longer = now_ns - stall->begin_ns > SL_LIMIT_TURN_STALL_NS;
    if (!longer && now_ns - stall->sample.at_ns < SL_LIMIT_TURN_STALL_NS) {
        return SL_STALL_NONE;
    }
    struct sl_stall_sample before = stall->sample;
    sample_take(&stall->sample, now_ns);
    if (!longer || stall->excused) {
        return SL_STALL_NONE;
    }
    if (!was_its_own(&before, &stall->sample, stall->begin_ns)) {
        return SL_STALL_PREEMPTED;
    }
    charge(stall, now_ns, last_phase);
    log_stall(stall, now_ns);
    *out_phase = stall->longest_phase;
    return SL_STALL_STALLED;
}

void sl_stall_slept(struct sl_stall *stall)
{
    stall->sample.sleeps++;
}
