#include "ps/process/job.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/event.h"
#include "ps/process/leadership.h"
#include "ps/process/main_thread.h"
#include "ps/process/replica_groups.h"
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
    sl_log_event(
        SL_LOG_INFO,
        SL_EVENT("job_ended", SL_EVENT_TEXT("reason", process->job.why[SL_COORDINATOR_ENDING])),
        "the job has ended: %s", process->job.why[SL_COORDINATOR_ENDING]);
    process->main.is_over = true;
}

void sl_process_on_ended(void *ctx, const char *why)
{
    struct sl_process *process = ctx;
    char *text = process->job.why[SL_COORDINATOR_ENDING];
    if (text[0] == '\0') {
        (void)snprintf(text, sizeof process->job.why[0], "%s", why[0] == '\0' ? "no more" : why);
        tell_main(process, main_ended, 0, 0);
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

/* After a long absence of the scheduler: checks one core after the other for a worker. */
static void core_look_for_worker(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_core *core = ctx;
    struct sl_process *process = core->process;
    for (uint32_t which = 0; which < sl_process_hosted_count(process); which++) {
        if (sl_server_has_worker(sl_process_server(process, which, core->index))) {
            return; /* checked again in a second */
        }
    }
    if (core->index + 1 < process->options.reactors.shards) {
        sl_reactor_post(core->reactor, sl_process_reactor_of(process, core->index + 1),
                        (struct sl_mail){.run = core_look_for_worker, .ctx = core + 1});
    } else if (!process->job.is_abandoned) {
        process->job.is_abandoned = true;
        sl_log_error("no connection to the scheduler for %g s, and no worker is left: ends",
                     (double)process->options.times.start_timeout_ns / (double)SL_CLOCK_NS_PER_S);
        sl_process_answer(core, SL_ERR_DEADLINE);
    }
}

void sl_process_on_absent(void *ctx)
{
    core_look_for_worker(&((struct sl_process *)ctx)->cores[0], 0, 0);
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

static void core_drained(void *ctx)
{
    struct sl_process_core *core = ctx;
    if (--core->drains_left == 0) {
        sl_process_answer(core, 0);
    }
}

static void core_drain_servers(void *ctx)
{
    struct sl_process_core *core = ctx;
    const struct sl_process *process = core->process;
    core->drains_left = sl_process_hosted_count(process);
    for (uint32_t which = 0; which < sl_process_hosted_count(process); which++) {
        sl_server_drain(sl_process_server(process, which, core->index),
                        process->options.times.drain_timeout_ns, core_drained, core);
    }
}

static void core_drain(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process_core *core = ctx;
    sl_process_replica_switch_over(core);
    if (core->process->leadership != NULL && core->index == 0) {
        sl_process_leadership_end(core, core_drain_servers);
    } else {
        core_drain_servers(core);
    }
}

/* The switchover decision matches the coordinator's at the Goodbye that follows. */
void sl_process_drain(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ((const struct sl_process_core *)ctx)->process;
    sl_process_replica_end(process, core_drain);
    if (process->agent != NULL) {
        sl_agent_leave(process->agent);
    }
}
