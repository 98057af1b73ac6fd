/* A minimal program that uses libstarling: adds to some rows of a table and reads them back.
 *
 *   starling-ps --help                       how to start a ps
 *   cc push_pull.c $(pkg-config --cflags --libs starling) -o push_pull
 *   ./push_pull 127.0.0.1:3333               the control endpoint of ps task 0; not needed where
 *                                            starling-launch runs it */
#include <starling.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_COUNT  4
#define DIM        2
#define TIMEOUT_MS 5000

static int push_and_pull(struct sl_client *client)
{
    struct sl_table_spec spec = {
        .struct_size = sizeof spec, .name = "example", .kind = SL_TABLE_SPARSE, .dim = DIM};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_table *table;
    int err = sl_client_table_open(client, &spec, TIMEOUT_MS, &table);
    if (err != 0) {
        return err;
    }

    const uint64_t keys[KEY_COUNT] = {7, 42, 1000, 18446744073709551615U};
    const float gradients[KEY_COUNT][DIM] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    float rows[KEY_COUNT][DIM];

    /* A step gathers operations, is sent once, and completes once, within its deadline. Here both
     * operations travel together; each shard carries them out in this order. */
    struct sl_step *step;
    err = sl_step_begin(client, 0, &step);
    if (err != 0) {
        return err;
    }
    sl_step_push(step, table, keys, KEY_COUNT, &gradients[0][0]);
    sl_step_pull(step, table, keys, KEY_COUNT, &rows[0][0]);
    err = sl_step_submit(step, TIMEOUT_MS);
    if (err == 0) {
        err = sl_step_wait(step);
    }
    if (err != 0) {
        fprintf(stderr, "step: %s\n", sl_step_error(step));
    }
    sl_step_destroy(&step);

    for (int i = 0; err == 0 && i < KEY_COUNT; i++) {
        printf("%llu: %g %g\n", (unsigned long long)keys[i], (double)rows[i][0],
               (double)rows[i][1]);
    }
    return err;
}

int main(int argc, char **argv)
{
    const char *coordinator = argc == 2 ? argv[1] : getenv("STARLING_COORDINATOR");
    if (argc > 2 || coordinator == NULL) {
        fprintf(stderr, "usage: %s HOST:PORT   (the control endpoint of ps task 0)\n", argv[0]);
        return 2;
    }
    const struct sl_client_options options = {
        .struct_size = sizeof options,
        .coordinator = coordinator,
        .task_index = -1, /* reads and writes, but takes no part in the workers' clocks */
        .start_timeout_ms = TIMEOUT_MS,
    };
    struct sl_client *client;
    int err = sl_client_create(&options, &client);
    if (err == 0) {
        err = push_and_pull(client);
        sl_client_destroy(&client);
    }
    if (err != 0) {
        fprintf(stderr, "%s: %s\n", argv[0], sl_last_error());
    }
    return err == 0 ? 0 : 1;
}
