/* The shard's consistency: BSP, SSP, workers that finish or leave. */

#include <string.h>

#include "core/hash.h"
#include "fixture.h"
#include "tests/support/unit.h"

CASE(shard_bsp__pull_waits_and_names_the_slowest)
{
    float value;
    assert_int_equal(fixture_tick(f, 0, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_pull(f, 0, 1, BSP, 9, &value), SL_SHARD_PARKED);
    assert_true(sl_shard_waits(f->shard, &f->work));
    char text[512];
    sl_shard_describe_wait(f->shard, &f->work, text, sizeof text);
    assert_non_null(strstr(text, "worker/1"));
    assert_non_null(strstr(text, "table0"));
    struct sl_shard_request parked = f->work;
    static struct shard_request bytes;
    bytes = f->request;
    parked.cursor.next = bytes.payload + (parked.cursor.next - f->request.payload);
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_false(sl_shard_waits(f->shard, &parked));
}

CASE(shard_bsp__nothing_runs_before_what_is_due)
{
    assert_int_equal(fixture_push(f, 0, 0, BSP, 1, 1.0F), SL_SHARD_DONE);
    fixture_tick_all(f, 0);
    float value;
    assert_true(sl_shard_iteration_due(f->shard));
    assert_int_equal(fixture_pull(f, 0, 1, BSP, 1, &value), SL_SHARD_AGAIN);
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 100, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_int_equal(spent, 0);
    assert_false(sl_shard_ready(f->shard, &f->work, UINT32_MAX));
    fixture_commit(f);
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 100, &spent, &f->reason),
                     SL_SHARD_DONE);
    memcpy(&value, f->reply, sizeof value);
    assert_true(value == 1.0F);
}

/* Gradients whose sum depends on the order of addition, pushed by the workers in an order drawn
 * from the seed; each worker's own pushes keep their order. */
static void train_in_random_order(struct fixture *f, uint64_t seed, uint64_t *hash)
{
    for (uint32_t clock = 0; clock < 5; clock++) {
        uint32_t done[WORKERS] = {0};
        uint32_t left = WORKERS * 4;
        while (left > 0) {
            uint32_t worker = (uint32_t)(sl_hash_random(&seed) % WORKERS);
            if (done[worker] == 4) {
                continue;
            }
            uint64_t mixed = worker * 100 + done[worker] * 10 + clock;
            float value = (float)(sl_hash_key(mixed) % 1000003) * 1e-3F;
            if (done[worker] == 3) {
                assert_int_equal(fixture_tick(f, worker, clock), SL_SHARD_DONE);
            } else {
                assert_int_equal(fixture_push(f, worker, clock, BSP, done[worker] % 2, value),
                                 SL_SHARD_DONE);
                shard_request_begin(&f->request, clock);
                shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, DENSE, done[worker], 1,
                                    &value);
                assert_int_equal(fixture_run(f, worker), SL_SHARD_DONE);
            }
            done[worker]++;
            left--;
            fixture_commit(f);
        }
    }
    shard_request_begin(&f->request, 0);
    uint64_t keys[] = {0, 1};
    shard_request_pull(&f->request, BSP, keys, 2);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, DENSE, 0, 3, NULL);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    *hash = sl_hash_bytes(f->reply, f->work.reply_bytes, 0);
}

CASE(shard_bsp__result_does_not_depend_on_the_order_of_arrival)
{
    uint64_t first;
    train_in_random_order(f, 1, &first);
    for (uint64_t seed = 2; seed < 20; seed++) {
        sl_shard_destroy(&f->shard);
        fixture_make(f, 0);
        uint64_t other;
        train_in_random_order(f, seed, &other);
        assert_true(first == other);
    }
}

CASE(shard_bsp__long_pushes_with_repeats_are_kept_whole)
{
    enum { COUNT = 5000 };
    static uint64_t keys[COUNT];
    static float gradients[COUNT * DIM];
    for (uint32_t i = 0; i < COUNT; i++) {
        keys[i] = i % 1700;
        gradients[i * DIM] = gradients[i * DIM + 1] = 1.0F;
    }
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        shard_request_begin(&f->request, 0);
        shard_request_push(&f->request, SL_REQUEST_PUSH, BSP, keys, COUNT, gradients, DIM);
        assert_int_equal(fixture_run(f, worker), SL_SHARD_DONE);
        assert_int_equal(fixture_tick(f, worker, 0), SL_SHARD_DONE);
    }
    fixture_commit(f);
    for (uint64_t key = 0; key < 1700; key += 100) {
        assert_true(fixture_peek(f, BSP, key) == 3.0F * (float)(key < COUNT - 2 * 1700 ? 3 : 2));
    }
}

CASE(shard_bsp__push_of_another_clock_breaks_the_protocol)
{
    assert_int_equal(fixture_push(f, 0, 1, BSP, 1, 1.0F), SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "worker/0"));
    assert_int_equal(fixture_tick(f, 0, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_push(f, 0, 0, BSP, 1, 1.0F), SL_ERR_PROTOCOL);
    assert_int_equal(fixture_tick(f, 0, 0), SL_ERR_PROTOCOL);
    assert_int_equal(fixture_push(f, 0, 1, BSP, 1, 1.0F), SL_SHARD_DONE);
}

CASE(shard_bsp__clients_without_a_clock_act_at_once)
{
    assert_int_equal(fixture_push(f, NOBODY, 7, BSP, 1, 1.0F), SL_SHARD_DONE);
    assert_true(fixture_peek(f, BSP, 1) == 1.0F);
    /* So does a worker beyond the table's count. */
    assert_int_equal(fixture_push(f, WORKERS, 7, BSP, 1, 1.0F), SL_SHARD_DONE);
    float value;
    assert_int_equal(fixture_pull(f, WORKERS, 7, BSP, 1, &value), SL_SHARD_DONE);
    assert_true(value == 2.0F);
}

CASE(shard_bsp__push_buffer_full_is_no_memory_until_the_iteration_ends)
{
    sl_shard_destroy(&f->shard);
    fixture_make(f, 8192);
    int result = SL_SHARD_DONE;
    uint32_t pushed = 0;
    for (; result == SL_SHARD_DONE; pushed++) {
        result = fixture_push(f, 0, 0, BSP, 1, 1.0F);
    }
    assert_int_equal(result, SL_ERR_NO_MEMORY);
    assert_non_null(strstr(f->reason.text, "8192"));
    fixture_tick_all(f, 0);
    fixture_commit(f);
    assert_true(fixture_peek(f, BSP, 1) == (float)(pushed - 1));
    assert_int_equal(fixture_push(f, 0, 1, BSP, 1, 1.0F), SL_SHARD_DONE);
}

/* Tables that cannot be made leave no trace, however many there are. */
CASE(shard_table_open__without_room_for_push_buffer_is_no_memory)
{
    sl_shard_destroy(&f->shard);
    struct sl_shard_options options = {
        .index = 0, .count = 1, .push_buffer_bytes_max = (size_t)1 << 60};
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    struct sl_table_spec spec = {
        .name = "t",
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .consistency = {.mode = SL_CONSISTENCY_BSP},
    };
    for (uint32_t count = 1; count <= SL_LIMIT_TABLES + 1; count++) {
        spec.consistency.worker_count = count;
        assert_int_equal(sl_shard_table_open(f->shard, 0, &spec, &f->reason), SL_ERR_NO_MEMORY);
    }
}

CASE(shard_ssp__pull_waits_beyond_the_staleness)
{
    float value;
    for (uint32_t clock = 0; clock < 3; clock++) {
        assert_int_equal(fixture_pull(f, 0, clock, SSP, 1, &value), SL_SHARD_DONE);
        assert_int_equal(fixture_push(f, 0, clock, SSP, 1, 1.0F), SL_SHARD_DONE);
        assert_int_equal(fixture_tick(f, 0, clock), SL_SHARD_DONE);
        assert_true(fixture_peek(f, SSP, 1) == (float)(clock + 1)); /* its pushes show at once */
    }
    assert_int_equal(fixture_pull(f, 0, 3, SSP, 1, &value), SL_SHARD_PARKED);
    assert_int_equal(fixture_pull(f, 0, 3, ASP, 1, &value), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_pull(f, 0, 3, SSP, 1, &value), SL_SHARD_DONE);
}

CASE(shard_tick__commits_before_the_sections_behind_it)
{
    assert_int_equal(fixture_push(f, 0, 0, BSP, 1, 1.0F), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    uint64_t key = 1;
    shard_request_begin(&f->request, 0);
    shard_request_tick(&f->request);
    shard_request_pull(&f->request, BSP, &key, 1);
    assert_int_equal(fixture_run(f, 0), SL_SHARD_AGAIN);
    fixture_commit(f);
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, 100, &spent, &f->reason),
                     SL_SHARD_DONE);
    float value;
    memcpy(&value, f->reply, sizeof value);
    assert_true(value == 1.0F);
}
