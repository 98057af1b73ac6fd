#include "fixture.h"

#include <stdio.h>
#include <string.h>

static struct sl_table_spec table_spec(uint32_t id)
{
    static const enum sl_consistency_mode modes[] = {
        [BSP] = SL_CONSISTENCY_BSP,
        [SSP] = SL_CONSISTENCY_SSP,
        [ASP] = SL_CONSISTENCY_ASP,
        [DENSE] = SL_CONSISTENCY_BSP,
    };
    struct sl_table_spec spec = {
        .kind = id == DENSE ? SL_TABLE_DENSE : SL_TABLE_SPARSE,
        .dim = id == DENSE ? 0 : DIM,
        .length = id == DENSE ? 3000 : 0,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .consistency = {.mode = modes[id],
                        .staleness = id == SSP ? 2 : 0,
                        .worker_count = id == ASP ? 0 : WORKERS},
    };
    (void)snprintf(spec.name, sizeof spec.name, "table%u", id);
    return spec;
}

void fixture_make(struct fixture *f, size_t push_buffer_bytes_max)
{
    struct sl_shard_options options = {
        .index = 0, .count = 1, .push_buffer_bytes_max = push_buffer_bytes_max};
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    for (uint32_t id = 0; id < 4; id++) {
        struct sl_table_spec spec = table_spec(id);
        assert_int_equal(sl_shard_table_open(f->shard, id, &spec, &f->reason), 0);
    }
}

void fixture_setup(struct fixture *f)
{
    fixture_make(f, 0);
}

void fixture_teardown(struct fixture *f)
{
    sl_shard_destroy(&f->shard);
}

void fixture_commit(struct fixture *f)
{
    while (sl_shard_iteration_due(f->shard)) {
        (void)sl_shard_apply_iteration(f->shard, 3);
    }
}

void fixture_begin(struct fixture *f, uint32_t worker)
{
    struct sl_shard_client caller = {.has_clock = worker != NOBODY,
                                     .worker = worker == NOBODY ? 0 : worker};
    assert_int_equal(sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes,
                                    &f->work, &f->reason),
                     0);
}

int fixture_go_on(struct fixture *f)
{
    int result = SL_SHARD_AGAIN;
    while (result == SL_SHARD_AGAIN && !sl_shard_iteration_due(f->shard)) {
        uint32_t spent;
        result = sl_shard_run(f->shard, &f->work, f->reply, 1000, &spent, &f->reason);
    }
    return result;
}

int fixture_run(struct fixture *f, uint32_t worker)
{
    fixture_begin(f, worker);
    return fixture_go_on(f);
}

int fixture_tick(struct fixture *f, uint32_t worker, uint32_t clock)
{
    shard_request_begin(&f->request, clock);
    shard_request_tick(&f->request);
    return fixture_run(f, worker);
}

int fixture_push(struct fixture *f, uint32_t worker, uint32_t clock, uint16_t table, uint64_t key,
                 float value)
{
    float gradient[DIM] = {value, value};
    shard_request_begin(&f->request, clock);
    shard_request_push(&f->request, SL_REQUEST_PUSH, table, &key, 1, gradient, DIM);
    return fixture_run(f, worker);
}

void fixture_tick_all(struct fixture *f, uint32_t clock)
{
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        assert_int_equal(fixture_tick(f, worker, clock), SL_SHARD_DONE);
    }
}

void fixture_push_all(struct fixture *f, uint32_t clock, uint16_t table, uint64_t key, float value)
{
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        assert_int_equal(fixture_push(f, worker, clock, table, key, value), SL_SHARD_DONE);
    }
}

void fixture_long(struct fixture *f, uint8_t op, uint16_t table, uint32_t clock)
{
    static uint64_t keys[LONG_KEYS];
    static float gradients[LONG_KEYS * DIM];
    for (uint32_t i = 0; i < LONG_KEYS; i++) {
        keys[i] = i;
        gradients[i * DIM] = 1.0F;
    }
    shard_request_begin(&f->request, clock);
    shard_request_push(&f->request, op, table, keys, LONG_KEYS, gradients, DIM);
}

int fixture_pull(struct fixture *f, uint32_t worker, uint32_t clock, uint16_t table, uint64_t key,
                 float *out)
{
    shard_request_begin(&f->request, clock);
    shard_request_pull(&f->request, table, &key, 1);
    int result = fixture_run(f, worker);
    memcpy(out, f->reply, sizeof *out);
    return result;
}

float fixture_peek(struct fixture *f, uint16_t table, uint64_t key)
{
    float value;
    assert_int_equal(fixture_pull(f, NOBODY, 0, table, key, &value), SL_SHARD_DONE);
    return value;
}
