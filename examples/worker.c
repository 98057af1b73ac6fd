/* A worker of your own: it finds the job in its environment, trains, and survives a restart.
 *
 *   cc worker.c $(pkg-config --cflags --libs starling) -o worker
 *   starling-launch --ps 2 --workers 8 -- ./worker          also with --host-list or --slurm
 *   STARLING_COORDINATOR=h1:3333 srun -n 8 ./worker         servers run already; also under
 * torchrun */
#include <starling.h>
#include <stdio.h>

#define ITERATIONS 100
#define DIM        4
#define TIMEOUT_MS 60000

/* One iteration: pushes, ticks the clock, and pulls for the next iteration, in one message. */
static int iterate(struct sl_client *client, struct sl_table *table, uint32_t clock, float *row)
{
    static const uint64_t key = 7;
    static const float gradient[DIM] = {1, 2, 3, 4};
    struct sl_step *step;
    int err = sl_step_begin(client, clock, &step);
    if (err != 0) {
        return err;
    }
    sl_step_push(step, table, &key, 1, gradient);
    sl_step_tick(step);
    sl_step_pull(step, table, &key, 1, row);
    err = sl_step_submit(step, TIMEOUT_MS); /* also reports what the calls above found wrong */
    err = err != 0 ? err : sl_step_wait(step);
    sl_step_destroy(&step);
    return err;
}

static int train(struct sl_client *client, const struct sl_client_options *options)
{
    struct sl_table_spec spec = {
        .struct_size = sizeof spec,
        .name = "worker/rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = options->worker_count}};
    struct sl_table *table;
    float row[DIM] = {0};
    int err = sl_client_table_open(client, &spec, TIMEOUT_MS, &table);
    /* The clock of a new job is 0; that of a restarted worker is where the job is. */
    for (uint32_t clock = sl_client_clock(client); err == 0 && clock < ITERATIONS; clock++) {
        err = iterate(client, table, clock, row);
    }
    if (err == 0) {
        printf("worker %d of %u: %g\n", options->task_index, options->worker_count, (double)row[0]);
    }
    return err;
}

int main(int argc, char **argv)
{
    struct sl_client_options options = SL_CLIENT_OPTIONS_INIT;
    struct sl_client *client = NULL;
    int err = sl_client_options_from_env(&options, &argc, argv);
    err = err != 0 ? err : sl_client_create(&options, &client);
    if (err == 0) {
        err = train(client, &options);
        sl_client_destroy(&client);
    }
    if (err != 0) {
        fprintf(stderr, "worker: %s\n", sl_last_error());
    }
    sl_client_options_fini(&options);
    return err == 0 ? 0 : 1;
}
