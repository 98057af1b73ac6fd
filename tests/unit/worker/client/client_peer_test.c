/* A ps that does what no ps should: the client says so, gives the caller his memory back, and stays
 * whole. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/worker/client/client_peer.h"
#include "worker/client/table_opening.h"

#define KEYS 5000 /* their rows are longer than the transport's own buffers take */
static uint64_t keys[KEYS];
static float rows[KEYS];

static struct sl_step *submit(struct peer_world *world, uint32_t key_count)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, key_count, rows), 0);
    assert_int_equal(sl_step_submit(step, 500), 0);
    return step;
}

static void run(struct peer_world *world, enum peer_manner manner, uint32_t key_count, int err,
                const char *text)
{
    world->manner = manner;
    peer_expect(world, submit(world, key_count), err, text);
}

PEER_CASE(link__breaks_when_an_answer_has_no_request)
{
    peer_start_with_table(world, -1);
    run(world, PEER_CORRECT, 10, 0, "");
    run(world, PEER_UNKNOWN_ID, 10, SL_ERR_CLOSED, "it answered a request that is not in flight");
    run(world, PEER_CORRECT, 10, SL_ERR_CLOSED, "it answered a request that is not in flight");
}

PEER_CASE(link__breaks_when_an_answer_comes_twice)
{
    peer_start_with_table(world, -1);
    run(world, PEER_TWICE, KEYS, 0, "");
    run(world, PEER_SILENT, 10, SL_ERR_CLOSED, "it answered a request that is not in flight");
}

PEER_CASE(link__breaks_when_a_reply_has_the_wrong_length)
{
    peer_start_with_table(world, -1);
    run(world, PEER_WRONG_LENGTH, KEYS, SL_ERR_PROTOCOL, "its reply has the wrong length");
    run(world, PEER_CORRECT, 10, SL_ERR_CLOSED, "had the wrong length");
}

PEER_CASE(link__passes_on_what_the_shard_says)
{
    peer_start_with_table(world, -1);
    run(world, PEER_ERROR_WITHOUT_TEXT, KEYS, SL_ERR_NO_MEMORY, sl_err_name(SL_ERR_NO_MEMORY));
    run(world, PEER_ERROR_WITH_LONG_TEXT, KEYS, SL_ERR_NOT_FOUND, "): no?tablexxx");
    run(world, PEER_LATE, KEYS, SL_ERR_DEADLINE, "): deadline of 500 ms passed: no turn");
    run(world, PEER_CORRECT, KEYS, 0, "");
}

PEER_CASE(link__drops_replies_that_nobody_waits_for)
{
    peer_start_with_table(world, -1);
    for (uint32_t i = 0; i < 3; i++) {
        run(world, PEER_SILENT, KEYS, SL_ERR_DEADLINE, "deadline of 500 ms passed");
    }
    run(world, PEER_CORRECT, KEYS, 0, "");
}

/* One credit: all but one request wait in the client. */
PEER_CASE(link__sends_as_credit_comes)
{
    enum { STEPS = 20 };
    world->welcome.credit_requests = 1;
    peer_start_with_table(world, -1);
    struct sl_step *steps[STEPS];
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = submit(world, 3);
    }
    for (uint32_t i = 0; i < STEPS; i++) {
        peer_expect(world, steps[i], 0, "");
    }
    world->manner = PEER_SILENT;
    for (uint32_t i = 0; i < STEPS; i++) {
        steps[i] = submit(world, 3);
    }
    for (uint32_t i = STEPS; i > 0; i--) {
        peer_expect(world, steps[i - 1], SL_ERR_DEADLINE, "deadline");
    }
}

/* A process that does not know an option answers as if it had opened the table with it. */
static void check_older(struct peer_world *world, const struct sl_table_spec *spec,
                        const char *unknown)
{
    assert_int_equal(peer_start_client(world, -1), 0);
    struct sl_table_opening opening;
    assert_int_equal(sl_table_opening_begin(&opening, world->client, spec, 1000), 0);
    int err = SL_ERR_AGAIN;
    for (int turns = 0; err == SL_ERR_AGAIN && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        err = sl_table_opening_poll(&opening, &world->table);
    }
    assert_int_equal(err, SL_ERR_VERSION);
    assert_non_null(strstr(sl_last_error(), unknown));
}

PEER_CASE(table_open__refuses_a_process_that_ignores_reject_nonfinite)
{
    const struct sl_table_spec spec = {.name = "t", .dim = PEER_DIM, .reject_nonfinite = true};
    check_older(world, &spec, "does not know reject_nonfinite");
}

PEER_CASE(table_open__refuses_a_process_that_ignores_policies)
{
    const struct sl_table_spec spec = {.name = "t", .dim = PEER_DIM, .policy.ttl_steps = 5};
    check_older(world, &spec, "does not know policies");
}

PEER_CASE(table_open__refuses_a_process_that_ignores_updates)
{
    const struct sl_table_spec spec = {.name = "t", .dim = PEER_DIM, .update.clip_norm = 1};
    check_older(world, &spec, "does not know decay, clip_norm and value_bound");
}

PEER_CASE(start__refuses_a_shard_that_grants_too_little)
{
    world->welcome.credit_bytes = 1000;
    assert_int_equal(peer_start_client(world, -1), SL_ERR_PROTOCOL);
}

PEER_CASE(start__refuses_a_shard_of_another_cluster)
{
    world->welcome.shard_count = 2;
    assert_int_equal(peer_start_client(world, -1), SL_ERR_PROTOCOL);
}

PEER_CASE(start__cuts_to_what_the_shard_takes)
{
    world->welcome.payload_bytes_max = 64 << 10;
    peer_start_with_table(world, -1);
    enum { MANY = 100000 };
    uint64_t *many = calloc(MANY, sizeof *many);
    float *values = calloc(MANY, sizeof *values);
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, many, MANY, values), 0);
    assert_int_equal(sl_step_submit(step, 500), 0);
    peer_expect(world, step, 0, "");
    free(many);
    free(values);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
