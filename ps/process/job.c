#include "ps/process/job.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/event.h"
#include "ps/process/hosted.h"
#include "ps/process/leadership.h"
#include "ps/process/main_thread.h"
#include "ps/process/report.h"

/* End of the job */

static void tell_main(struct sl_process *process, sl_mail_fn *run, uint64_t a, uint64_t b)
{
    struct sl_mail mail = {.run = run, .ctx = process, .a = a, .b = b};
    int err = sl_mailbox_post(process->cores[0].to_main, mail);
    sl_assert(err == 0); /* a job has only a few stages */
}

static void main_ended(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ctx;
    const char *why = process->job.why[SL_COORDINATOR_ENDING];
    if (a != 0) {
        sl_log_event(
            SL_LOG_INFO,
            SL_EVENT("server_drained", SL_EVENT_NUMBER("task", process->member.task_index)), "%s",
            why);
    } else {
        sl_log_event(SL_LOG_INFO, SL_EVENT("job_ended", SL_EVENT_TEXT("reason", why)),
                     "the job has ended: %s", why);
    }
    process->main.is_over = true;
}

void sl_process_on_ended(void *ctx, const char *why)
{
    struct sl_process *process = ctx;
    char *text = process->job.why[SL_COORDINATOR_ENDING];
    if (text[0] == '\0') {
        (void)snprintf(text, sizeof process->job.why[0], "%s", why[0] == '\0' ? "no more" : why);
        tell_main(process, main_ended,
                  process->shards.has_joined && sl_process_hosted_is_empty(process), 0);
    }
}

static void main_stage(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ctx;
    int err = (int)(int64_t)b;
    process->main.is_over = a == SL_COORDINATOR_OVER;
    process->main.job_failed = process->main.job_failed || err != 0;
    sl_process_report_stage(process, (enum sl_coordinator_stage)a, err);
}

void sl_process_on_stage(void *ctx, enum sl_coordinator_stage stage, int err, const char *why)
{
    struct sl_process *process = ctx;
    (void)snprintf(process->job.why[stage], sizeof process->job.why[stage], "%s", why);
    tell_main(process, main_stage, (uint64_t)stage, (uint64_t)(int64_t)err);
}

/* After a long absence of the scheduler: checks one shard after the other for a worker. */
static void look_for_worker(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    struct sl_process *process = hosted->process;
    struct sl_process_hosted *next = sl_process_hosted_next(hosted);
    if (hosted->server != NULL && sl_server_has_worker(hosted->server)) {
        return; /* checked again in a second */
    }
    if (next != NULL) {
        sl_reactor_post(hosted->core->reactor, next->core->index,
                        (struct sl_mail){.run = look_for_worker, .ctx = next});
    } else if (!process->job.is_abandoned) {
        process->job.is_abandoned = true;
        sl_log_error("no connection to the scheduler for %g s, and no worker is left: ends",
                     (double)process->options.times.start_timeout_ns / (double)SL_CLOCK_NS_PER_S);
        sl_process_answer(hosted->core, SL_ERR_DEADLINE);
    }
}

void sl_process_on_absent(void *ctx)
{
    const struct sl_process *process = ctx;
    struct sl_process_hosted *first = sl_process_hosted_first(process);
    if (first != NULL) {
        sl_reactor_post(process->reactors[0], first->core->index,
                        (struct sl_mail){.run = look_for_worker, .ctx = first});
    }
}

void sl_process_end_job(void *ctx, uint64_t a, uint64_t b)
{
    const struct sl_process_core *core = ctx;
    core->process->job.ends_by_signal = true;
    if (core->process->coordinator == NULL) {
        sl_process_on_stage(core->process, SL_COORDINATOR_OVER, 0, "it is another's to end");
        return;
    }
    sl_coordinator_end_job(core->process->coordinator, sl_process_signal_name((int)a),
                           sl_reactor_now_ns(core->reactor));
}

/* Orderly shutdown */

/* Reactor 0. */
static void reactor_0_drained(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ctx;
    if (--process->shards.drains_left == 0) {
        sl_process_answer(&process->cores[0], 0);
    }
}

static void core_drained(void *ctx)
{
    const struct sl_process_core *core = ctx;
    sl_reactor_post(core->reactor, 0,
                    (struct sl_mail){.run = reactor_0_drained, .ctx = core->process});
}

static void core_drain_server(void *ctx)
{
    struct sl_process_core *core = ctx;
    sl_server_drain(core->server, core->process->options.times.drain_timeout_ns, core_drained,
                    core);
}

static void core_drain(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_core *core = ctx;
    if (core->process->leadership != NULL && core->index == 0) {
        sl_process_leadership_end(core, core_drain_server);
    } else {
        core_drain_server(core);
    }
}

/* Without a server there is nothing to wait for; one that ends has no connections. */
static void shard_drain(void *ctx, uint64_t switches_over, uint64_t b)
{
    struct sl_process_hosted *hosted = ctx;
    sl_process_hosted_set_switchover(hosted, switches_over != 0);
    if (hosted->server == NULL || hosted->end.is_ending) {
        core_drained(hosted->core);
    } else {
        sl_server_drain(hosted->server, hosted->process->options.times.drain_timeout_ns,
                        core_drained, hosted->core);
    }
}

/* The switchover decision matches the coordinator's at the Goodbye that follows. */
void sl_process_drain(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ((const struct sl_process_core *)ctx)->process;
    process->shards.drains_left =
        process->options.reactors.count + sl_process_hosted_end(process, shard_drain);
    for (uint32_t i = 0; i < process->options.reactors.count; i++) {
        sl_reactor_post(process->reactors[0], i,
                        (struct sl_mail){.run = core_drain, .ctx = &process->cores[i]});
    }
    if (process->agent != NULL) {
        sl_agent_leave(process->agent);
    }
}
