/* Rates of pushes: each multiplies the table's learning rate, wherever the push waits meanwhile. */

#include <stdio.h>
#include <string.h>

#include "fixture.h"
#include "ps/shard/state.h"

#define RATE   0.375F
#define PUSHES 4
#define KINDS  SL_OPTIMIZER_KIND_COUNT

/* A table with this id, optimizer and learning rate. */
static void open_table(struct fixture *f, uint32_t id, uint32_t kind, float factor, bool is_dense,
                       enum sl_consistency_mode mode)
{
    struct sl_table_spec spec = {
        .kind = is_dense ? SL_TABLE_DENSE : SL_TABLE_SPARSE,
        .dim = is_dense ? 0 : DIM,
        .length = is_dense ? 100 : 0,
        .optimizer = sl_optimizer_defaults((enum sl_optimizer_kind)kind),
        .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = 0.5F},
        .consistency = {.mode = mode, .worker_count = mode == SL_CONSISTENCY_ASP ? 0 : WORKERS},
    };
    spec.optimizer.lr = (kind == SL_OPTIMIZER_SGD ? 1 : spec.optimizer.lr) * factor;
    (void)snprintf(spec.name, sizeof spec.name, "rated%u", id);
    assert_int_equal(sl_shard_table_open(f->shard, id, &spec, &f->reason), 0);
}

static void push(struct fixture *f, uint32_t id, bool is_dense, float rate)
{
    static const float gradients[100] = {1.5F, -0.25F, 3};
    const uint64_t key = 5;
    shard_request_begin(&f->request, 0);
    f->request.rate = rate;
    if (is_dense) {
        shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, (uint16_t)id, 0, 100, gradients);
    } else {
        shard_request_push(&f->request, SL_REQUEST_PUSH, (uint16_t)id, &key, 1, gradients, DIM);
    }
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

static void read_values(struct fixture *f, uint32_t id, bool is_dense, float values[100])
{
    const uint64_t key = 5;
    shard_request_begin(&f->request, 0);
    if (is_dense) {
        shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, (uint16_t)id, 0, 100, NULL);
    } else {
        shard_request_pull(&f->request, (uint16_t)id, &key, 1);
    }
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    memcpy(values, f->reply, (is_dense ? 100 : DIM) * sizeof *values);
}

/* To the bit, except for SUM, which has no learning rate. */
CASE(rate__is_as_another_learning_rate)
{
    for (uint32_t i = 0; i < 2 * KINDS; i++) {
        const uint32_t kind = i % KINDS, rated = 4 + 2 * i, other = rated + 1;
        const bool is_dense = i >= KINDS;
        float values[2][100] = {0};
        open_table(f, rated, kind, 1, is_dense, SL_CONSISTENCY_ASP);
        open_table(f, other, kind, RATE, is_dense, SL_CONSISTENCY_ASP);
        for (uint32_t round = 0; round < PUSHES; round++) {
            push(f, rated, is_dense, RATE);
            push(f, other, is_dense, 1);
        }
        read_values(f, rated, is_dense, values[0]);
        read_values(f, other, is_dense, values[1]);
        assert_memory_equal(values[0], values[1], sizeof values[0]);
        push(f, rated, is_dense, 1); /* it holds for its push only */
        push(f, other, is_dense, 1);
        read_values(f, rated, is_dense, values[0]);
        read_values(f, other, is_dense, values[1]);
        assert_int_equal(memcmp(values[0], values[1], sizeof values[0]) == 0,
                         kind == SL_OPTIMIZER_SUM);
    }
}

CASE(rate__of_a_push_that_waits_for_its_iteration)
{
    static const float rates[WORKERS] = {0.5F, 4, 1}, gradient[DIM] = {2, 2};
    const uint64_t key = 5;
    for (uint32_t id = 4; id < 6; id++) {
        open_table(f, id, SL_OPTIMIZER_SGD, 1, id == 5, SL_CONSISTENCY_BSP);
    }
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        shard_request_begin(&f->request, 0);
        f->request.rate = rates[worker];
        shard_request_push(&f->request, SL_REQUEST_PUSH, 4, &key, 1, gradient, DIM);
        shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, 5, 7, 1, gradient);
        assert_int_equal(fixture_run(f, worker), SL_SHARD_DONE);
    }
    float values[100];
    read_values(f, 4, false, values);
    assert_true(values[0] == 0.5F);
    fixture_tick_all(f, 0);
    fixture_commit(f);
    read_values(f, 4, false, values);
    assert_true(values[0] == 0.5F - 2 * 5.5F);
    read_values(f, 5, true, values);
    assert_true(values[7] == 0.5F - 2 * 5.5F && values[6] == 0.5F);
}

CASE(rate__whose_product_with_the_learning_rate_is_not_positive_and_finite)
{
    static const float lrs[] = {1e30F, 1e-30F, 1e30F}, rates[] = {1e30F, 1e-30F, 1e-30F};
    static const float gradients[100] = {1};
    const struct sl_shard_client nobody = {.has_clock = false};
    for (uint32_t i = 0; i < 6; i++) {
        open_table(f, 4 + i, SL_OPTIMIZER_SGD, lrs[i % 3], i >= 3, SL_CONSISTENCY_ASP);
        shard_request_begin(&f->request, 0);
        f->request.rate = rates[i % 3];
        if (i >= 3) {
            shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH, (uint16_t)(4 + i), 0, 100,
                                gradients);
        } else {
            shard_request_push(&f->request, SL_REQUEST_PUSH, (uint16_t)(4 + i), &(uint64_t){5}, 1,
                               gradients, DIM);
        }
        const int err = sl_shard_begin(f->shard, &nobody, f->request.payload, f->request.bytes,
                                       &f->work, &f->reason);
        assert_int_equal(err, i % 3 == 2 ? 0 : SL_ERR_INVALID);
        assert_true(err == 0 || strstr(f->reason.text, "its product with lr 1e") != NULL);
    }
}

/* In slices, and as another copy of the shard follows it. */
CASE(rate__of_a_long_push)
{
    open_table(f, 4, SL_OPTIMIZER_SGD, 1, false, SL_CONSISTENCY_ASP);
    for (uint32_t round = 1; round < 3; round++) {
        fixture_long(f, SL_REQUEST_PUSH, 4, 0);
        struct sl_request_section section;
        memcpy(&section, f->request.payload + sizeof(struct sl_request_prefix), sizeof section);
        section.command = sl_rate_to_bits(0.25F);
        memcpy(f->request.payload + sizeof(struct sl_request_prefix), &section, sizeof section);
        fixture_begin(f, NOBODY);
        if (round == 2) {
            sl_shard_apply_only(&f->work, 1);
        }
        uint32_t spent, slices = 1;
        while (sl_shard_run(f->shard, &f->work, f->reply, 500, &spent, &f->reason) ==
               SL_SHARD_AGAIN) {
            slices++;
        }
        assert_true(slices > 5);
        assert_true(fixture_peek(f, 4, 0) == 0.5F - 0.25F * (float)round);
        assert_true(fixture_peek(f, 4, LONG_KEYS - 1) == 0.5F - 0.25F * (float)round);
    }
}
