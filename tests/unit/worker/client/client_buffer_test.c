/* Buffers of the client: memory like any other, by whatever way a step goes. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"

static void *make_buffer(size_t bytes)
{
    void *buffer = NULL;
    assert_int_equal(sl_client_buffer_create(fixture.client, bytes, &buffer), 0);
    assert_non_null(buffer);
    assert_int_equal((uintptr_t)buffer % 4096, 0);
    return buffer;
}

static void free_buffer(void *buffer)
{
    sl_client_buffer_free(fixture.client, &buffer);
    assert_null(buffer);
}

CLIENT_CASE(buffer_create__makes_zeros_until_there_are_too_many)
{
    void *buffers[SL_CLIENT_BUFFERS_MAX];
    for (uint32_t round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
            size_t bytes = 1 + 1000 * (size_t)i;
            uint8_t *bytes_of = buffers[i] = make_buffer(bytes);
            assert_int_equal(bytes_of[0] | bytes_of[bytes / 2] | bytes_of[bytes - 1], 0);
            memset(bytes_of, 255, bytes);
        }
        void *more = NULL;
        assert_int_equal(sl_client_buffer_create(fixture.client, 1, &more), SL_ERR_TOO_LARGE);
        assert_null(more);
        for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
            free_buffer(buffers[i]);
        }
    }
    void *none = NULL;
    sl_client_buffer_free(fixture.client, &none);
    assert_int_equal(sl_client_buffer_create(fixture.client, SIZE_MAX - 5000, &none),
                     SL_ERR_NO_MEMORY);
}

CLIENT_CASE(buffer_keep__leaves_memory_that_outlives_the_client)
{
    void *buffers[SL_CLIENT_BUFFERS_MAX + 1];
    for (uint32_t i = 0; i <= SL_CLIENT_BUFFERS_MAX; i++) { /* a kept one leaves its place */
        buffers[i] = make_buffer(5000);
        memset(buffers[i], (int)i + 1, 5000);
        sl_client_buffer_keep(fixture.client, buffers[i]);
    }
    sl_client_destroy(&fixture.client);
    for (uint32_t i = 0; i <= SL_CLIENT_BUFFERS_MAX; i++) {
        const uint8_t *bytes = buffers[i];
        assert_int_equal(bytes[0], i + 1);
        assert_int_equal(bytes[4999], i + 1);
        assert_int_equal(munmap(buffers[i], 5000), 0);
    }
}

#define LENGTH 1000003U /* several messages to each shard, and an odd element */

/* Pushed from one place of a buffer, pulled into another; what lies between stays as it is. */
CLIENT_CASE(dense_push_pull__works_within_buffers)
{
    const struct sl_table_spec spec = fixture_dense("dense", LENGTH);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    float *gradients = make_buffer((2 * (size_t)LENGTH + 5) * sizeof *gradients);
    float *values = gradients + LENGTH + 4;
    for (uint32_t i = 0; i < LENGTH; i++) {
        gradients[i] = (float)(i % 1000);
    }
    gradients[LENGTH] = values[-1] = values[LENGTH] = -1;
    for (uint32_t round = 1; round < 4; round++) {
        struct sl_step *step = fixture_step(fixture.client, 0);
        assert_int_equal(sl_step_dense_push_pull(step, table, 0, LENGTH, gradients, values), 0);
        fixture_run(step);
        for (uint32_t i = 0; i < LENGTH; i++) {
            assert_true(values[i] == (float)round * gradients[i]);
        }
        memset(values, 0, LENGTH * sizeof *values);
        step = fixture_step(fixture.client, 0);
        assert_int_equal(sl_step_dense_pull(step, table, 0, LENGTH, values), 0);
        fixture_run(step);
        for (uint32_t i = 0; i < LENGTH; i++) {
            assert_true(values[i] == (float)round * gradients[i]);
        }
        assert_true(gradients[LENGTH] == -1 && values[-1] == -1 && values[LENGTH] == -1);
    }
    free_buffer(gradients);
}

/* Values are pushed and pulled in the same place. */
CLIENT_CASE(kv__works_within_one_buffer)
{
    enum { ARRAYS = 40, VALUES = 3000 };
    struct sl_table_spec spec = {
        .struct_size = sizeof spec, .kind = SL_TABLE_KV, .dim = sizeof(float), .name = "kv"};
    spec.optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    float *values = make_buffer(ARRAYS * VALUES * sizeof *values);
    uint64_t keys[ARRAYS];
    for (uint32_t i = 0; i < ARRAYS; i++) {
        keys[i] = i * (UINT64_MAX / ARRAYS);
    }
    for (uint32_t i = 0; i < ARRAYS * VALUES; i++) {
        values[i] = (float)(i % 4096);
    }
    const struct sl_kv_batch batch = {.keys = keys,
                                      .key_count = ARRAYS,
                                      .value_count = (uint64_t)ARRAYS * VALUES,
                                      .push = values,
                                      .pull = values};
    for (uint32_t round = 0; round < 4; round++) {
        struct sl_step *step = fixture_step(fixture.client, 0);
        assert_int_equal(sl_step_kv(step, table, &batch), 0);
        fixture_run(step);
        for (uint32_t i = 0; i < ARRAYS * VALUES; i++) { /* x, 2x, 4x: what is pushed is the sum */
            assert_true(values[i] == (float)(1U << round) * (float)(i % 4096));
        }
    }
    free_buffer(values);
}

/* Buffers come and go while other threads work in theirs. */
struct worker {
    pthread_t thread;
    struct sl_table *table;
    uint32_t start;
};

static void *work(void *ctx)
{
    struct worker *worker = ctx;
    enum { COUNT = 30000 };
    for (uint32_t round = 1; round < 8; round++) {
        float *values = make_buffer(2 * COUNT * sizeof *values);
        for (uint32_t i = 0; i < COUNT; i++) {
            values[i] = 1;
        }
        struct sl_step *step = fixture_step(fixture.client, 0);
        assert_int_equal(sl_step_dense_push_pull(step, worker->table, worker->start, COUNT, values,
                                                 values + COUNT),
                         0);
        fixture_run(step);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(values[COUNT + i] == (float)round);
        }
        free_buffer(values);
    }
    return NULL;
}

CLIENT_CASE(buffer_create__works_beside_other_threads)
{
    if (fixture_caller_driven) {
        return; /* there is one thread */
    }
    struct worker workers[3];
    const struct sl_table_spec spec = fixture_dense("threads", 100000);
    for (uint32_t i = 0; i < 3; i++) {
        workers[i].table = fixture_table(fixture.client, &spec);
        workers[i].start = i * 33000;
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
    }
}

static int register_memory(uint8_t *base, size_t bytes)
{
    return sl_client_buffer_register(fixture.client, base, bytes);
}

CLIENT_CASE(buffer_register__takes_memory_once)
{
    static uint8_t memory[30000];
    uint8_t *middle = memory + 10001; /* of any alignment */
    assert_int_equal(register_memory(middle, 10000), 0);
    assert_int_equal(register_memory(middle, 10000), SL_ERR_EXISTS);
    assert_int_equal(register_memory(middle - 1, 2), SL_ERR_EXISTS);
    assert_int_equal(register_memory(middle + 9999, 1), SL_ERR_EXISTS);
    assert_int_equal(register_memory(memory, sizeof memory), SL_ERR_EXISTS);
    assert_int_equal(register_memory(middle - 1, 1), 0);
    assert_int_equal(register_memory(middle + 10000, 1), 0);
    sl_client_buffer_unregister(fixture.client, middle);
    assert_int_equal(register_memory(middle + 1, 9999), 0);
    sl_client_buffer_unregister(fixture.client, middle + 1);
    sl_client_buffer_unregister(fixture.client, middle - 1);
    sl_client_buffer_unregister(fixture.client, middle + 10000);
    uint8_t *made = make_buffer(10000);
    assert_int_equal(register_memory(made + 9999, 1), SL_ERR_EXISTS);
    free_buffer(made);
}

CLIENT_CASE(buffer_register__counts_with_those_that_were_created)
{
    static uint8_t memory[SL_CLIENT_BUFFERS_MAX];
    void *made = make_buffer(1);
    for (uint32_t i = 1; i < SL_CLIENT_BUFFERS_MAX; i++) {
        assert_int_equal(register_memory(memory + i, 1), 0);
    }
    assert_int_equal(register_memory(memory, 1), SL_ERR_TOO_LARGE);
    void *more = NULL;
    assert_int_equal(sl_client_buffer_create(fixture.client, 1, &more), SL_ERR_TOO_LARGE);
    free_buffer(made);
    assert_int_equal(register_memory(memory, 1), 0);
    for (uint32_t i = 0; i < SL_CLIENT_BUFFERS_MAX; i++) {
        sl_client_buffer_unregister(fixture.client, memory + i);
    }
}

/* Registered or not, a step finds its values there. */
CLIENT_CASE(dense_push_pull__works_in_registered_memory)
{
    enum { COUNT = 300000 };
    const struct sl_table_spec spec = fixture_dense("registered", COUNT);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    float *gradients = malloc(2 * COUNT * sizeof *gradients), *values = gradients + COUNT;
    for (uint32_t i = 0; i < COUNT; i++) {
        gradients[i] = (float)(i % 1000);
    }
    for (uint32_t round = 1; round < 4; round++) {
        if (round == 2) {
            assert_int_equal(
                sl_client_buffer_register(fixture.client, gradients, 2 * COUNT * sizeof *gradients),
                0);
        } else if (round == 3) {
            sl_client_buffer_unregister(fixture.client, gradients);
        }
        struct sl_step *step = fixture_step(fixture.client, 0);
        assert_int_equal(sl_step_dense_push_pull(step, table, 0, COUNT, gradients, values), 0);
        fixture_run(step);
        for (uint32_t i = 0; i < COUNT; i++) {
            assert_true(values[i] == (float)round * gradients[i]);
        }
    }
    free(gradients);
}

/* What was registered stays the caller's; and it need not be unregistered. */
CLIENT_CASE(client_destroy__leaves_registered_memory_alone)
{
    uint8_t *memory = malloc(5000);
    memset(memory, 7, 5000);
    assert_int_equal(register_memory(memory, 5000), 0);
    fixture_stop(&fixture);
    assert_int_equal(memory[0] + memory[4999], 14);
    fixture = fixture_start(&fixture_shape);
    assert_int_equal(register_memory(memory, 5000), 0);
    sl_client_buffer_unregister(fixture.client, memory);
    free(memory);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){2, 2, 2, SL_PROTOCOL_BATCHED};
}

SL_UNIT_WAYS(fixture_way);
