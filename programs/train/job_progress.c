#include "programs/train/job_progress.h"

#include <stdio.h>

#include "core/log.h"

/* A number of the best evaluation is the sum of two rows: 48 of its bits. */
enum { BEST_NUMBERS = 4, BEST_ROWS = 2 * BEST_NUMBERS };

static const uint64_t best_keys[BEST_ROWS] = {SL_JOB_PROGRESS_BEST,     SL_JOB_PROGRESS_BEST + 1,
                                              SL_JOB_PROGRESS_BEST + 2, SL_JOB_PROGRESS_BEST + 3,
                                              SL_JOB_PROGRESS_BEST + 4, SL_JOB_PROGRESS_BEST + 5,
                                              SL_JOB_PROGRESS_BEST + 6, SL_JOB_PROGRESS_BEST + 7};

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

static int assign(const struct sl_milestones *milestones, const uint64_t *keys, uint32_t key_count,
                  const float *rows)
{
    struct sl_step *step;
    int err = sl_step_begin(milestones->client, 0, &step);
    if (err == 0) {
        err = sl_step_assign(step, milestones->table, keys, key_count, rows);
        err = err != 0 ? err : sl_step_submit(step, milestones->timeout_ms);
        err = err != 0 ? err : sl_step_wait(step);
        sl_step_destroy(&step);
    }
    return log_recording(err);
}

int sl_job_progress_withdraw(const struct sl_milestones *milestones, enum sl_job_progress milestone)
{
    const uint64_t key = (uint64_t)milestone;
    const float none = 0;
    return assign(milestones, &key, 1, &none);
}

int sl_job_progress_set_best(const struct sl_milestones *milestones,
                             const struct sl_job_progress_best *best)
{
    const double numbers[BEST_NUMBERS] = {best->evaluations, best->auc, best->epoch,
                                          (double)best->saved_rows};
    float rows[BEST_ROWS];
    for (uint32_t i = 0; i < BEST_NUMBERS; i++) {
        rows[2 * i] = (float)numbers[i];
        rows[2 * i + 1] = (float)(numbers[i] - rows[2 * i]);
    }
    return assign(milestones, best_keys, BEST_ROWS, rows);
}

/* Errors, logged: those of a step. */
static int read_rows(const struct sl_milestones *milestones, const uint64_t *keys,
                     uint32_t key_count, float *rows)
{
    int err = sl_client_pull(milestones->client, milestones->table, keys, key_count, rows,
                             milestones->timeout_ms);
    if (err != 0) {
        sl_log_error("no server could be asked how far the job is: %s", sl_err_name(err));
    }
    return err;
}

int sl_job_progress_get_best(const struct sl_milestones *milestones,
                             struct sl_job_progress_best *out)
{
    double numbers[BEST_NUMBERS];
    float rows[BEST_ROWS];
    int err = read_rows(milestones, best_keys, BEST_ROWS, rows);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; i < BEST_NUMBERS; i++) {
        numbers[i] = (double)rows[2 * i] + (double)rows[2 * i + 1];
    }
    *out = (struct sl_job_progress_best){.evaluations = (uint32_t)numbers[0],
                                         .auc = numbers[1],
                                         .epoch = numbers[2],
                                         .saved_rows = (uint64_t)numbers[3]};
    return 0;
}

int sl_job_progress_is_reached(const struct sl_milestones *milestones,
                               enum sl_job_progress milestone, bool *out)
{
    const uint64_t key = (uint64_t)milestone;
    float count;
    int err = read_rows(milestones, &key, 1, &count);
    if (err == 0) {
        *out = count > 0;
    }
    return err;
}
