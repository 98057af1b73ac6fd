#include "tests/sim/jobs.h"

#include "core/assert.h"

void sl_sim_jobs_post(struct sl_sim_jobs *jobs, struct sl_offload_job *job)
{
    jobs->count++;
    job->next = NULL;
    *jobs->last = job;
    jobs->last = &job->next;
    if (!sl_completion_ended(&jobs->idle)) {
        sl_completion_end(&jobs->idle);
    }
}

static void job_done(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_sim_jobs *jobs = ctx;
    jobs->count--;
    jobs->running->done(jobs->running);
    sl_completion_end(&jobs->delivered);
}

static void run_jobs(void *ctx)
{
    struct sl_sim_jobs *jobs = ctx;
    while (!jobs->is_closed) {
        struct sl_offload_job *job = jobs->first;
        if (job == NULL) {
            sl_completion_begin(&jobs->idle);
            sl_sim_app_wait(jobs->app, &jobs->idle);
            continue;
        }
        jobs->first = job->next;
        jobs->last = jobs->first == NULL ? &jobs->first : jobs->last;
        job->err = 0;
        jobs->running = job;
        job->work(job);
        sl_completion_begin(&jobs->delivered);
        const int err = sl_mailbox_post(jobs->lane, (struct sl_mail){.run = job_done, .ctx = jobs});
        sl_assert(err == 0);
        sl_sim_app_wait(jobs->app, &jobs->delivered);
    }
}

void sl_sim_jobs_init(struct sl_sim_jobs *jobs, struct sl_sim_app *app,
                      struct sl_mailbox_lane *lane)
{
    *jobs = (struct sl_sim_jobs){.app = app, .lane = lane, .last = &jobs->first};
    sl_sim_app_thread(app, run_jobs, jobs);
}

static uint32_t open_count(const struct sl_sim_jobs *jobs, uint32_t count)
{
    uint32_t open = 0;
    for (uint32_t i = 0; i < count; i++) {
        open += jobs[i].count;
    }
    return open;
}

void sl_sim_jobs_close(struct sl_sim_jobs *jobs, uint32_t count)
{
    while (open_count(jobs, count) > 0) {
        sl_sim_app_sleep(jobs->app, SL_CLOCK_NS_PER_MS);
    }
    for (uint32_t i = 0; i < count; i++) {
        jobs[i].is_closed = true;
        if (!sl_completion_ended(&jobs[i].idle)) {
            sl_completion_end(&jobs[i].idle);
        }
    }
    while (!sl_sim_app_others_ended(jobs->app)) {
        sl_sim_app_sleep(jobs->app, SL_CLOCK_NS_PER_MS);
    }
}
