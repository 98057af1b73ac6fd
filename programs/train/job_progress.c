#include "programs/train/job_progress.h"

#include <stdio.h>

#include "core/log.h"

int sl_job_progress_open(struct sl_milestones *milestones, struct sl_client *client,
                         uint32_t timeout_ms)
{
    /* Row m counts workers that reached milestone m: SUM adds the pushed ones. */
    struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .kind = SL_TABLE_SPARSE,
        .dim = 1,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
    };
    (void)snprintf(spec.name, sizeof spec.name, "%s", SL_JOB_PROGRESS_TABLE);
    struct sl_table *table;
    int err = sl_client_table_open(client, &spec, timeout_ms, &table);
    if (err != 0) {
        sl_log_error("%s", sl_last_error());
        return err;
    }
    *milestones =
        (struct sl_milestones){.client = client, .table = table, .timeout_ms = timeout_ms};
    return 0;
}

/* Errors, logged: those of a step. */
static int log_recording(int err)
{
    if (err != 0) {
        sl_log_error("cannot record the progress of the job on the servers: %s", sl_err_name(err));
    }
    return err;
}

int sl_job_progress_reach(const struct sl_milestones *milestones, enum sl_job_progress milestone)
{
    const uint64_t key = (uint64_t)milestone;
    const float one = 1;
    return log_recording(sl_client_push(milestones->client, milestones->table, &key, 1, &one,
                                        milestones->timeout_ms));
}

int sl_job_progress_withdraw(const struct sl_milestones *milestones, enum sl_job_progress milestone)
{
    const uint64_t key = (uint64_t)milestone;
    const float none = 0;
    struct sl_step *step;
    int err = sl_step_begin(milestones->client, 0, &step);
    if (err == 0) {
        err = sl_step_assign(step, milestones->table, &key, 1, &none);
        err = err != 0 ? err : sl_step_submit(step, milestones->timeout_ms);
        err = err != 0 ? err : sl_step_wait(step);
        sl_step_destroy(&step);
    }
    return log_recording(err);
}

int sl_job_progress_is_reached(const struct sl_milestones *milestones,
                               enum sl_job_progress milestone, bool *out)
{
    const uint64_t key = (uint64_t)milestone;
    float count;
    int err = sl_client_pull(milestones->client, milestones->table, &key, 1, &count,
                             milestones->timeout_ms);
    if (err != 0) {
        sl_log_error("no server could be asked how far the job is: %s", sl_err_name(err));
        return err;
    }
    *out = count > 0;
    return 0;
}
