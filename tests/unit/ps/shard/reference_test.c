/* A table against a plain reference: an array of rows, and the optimizer's scalar kernel. Random
 * pushes, pulls, finds, scans, assigns, erases, evictions, drops, iterations of BSP, snapshots and
 * restores, with every optimizer, and with policies of every part and every pair of parts. The
 * policy chooses what goes; the reference checks that it may go, and then erases the same keys.
 * Tables store f32 or narrower rows, and pulls return either. Rows, slots, counts and steps are
 * equal, bit for bit. The seed is in the test's output where it
 * fails. REFERENCE_ALL in the environment: every optimizer with every pair, in place of one. */
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/hash.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/narrow.h"
#include "ps/optimizer/update.h"
#include "ps/shard/state.h"
#include "reference_spec.h"
#include "snapshot_fixture.h"

#define FIRST_ID     8 /* of the table; after a drop, the next one */
#define FEW_KEYS     REFERENCE_KEYS_FEW
#define MANY_KEYS    REFERENCE_KEYS_MANY
#define FEW_OF_PUSH  24
#define PENDING_MAX  12
#define MANY_OF_PUSH 700
#define FLOATS_MAX   (DIM * 4 + 4)
#define MEMORY_BYTES ((size_t)2 << 20)
#define BUDGET       200
#define ROUND_PART   4 /* a row goes at the latest a quarter of its threshold after it was due */

struct reference_row {
    bool is_there;
    uint32_t last_step, count;
    uint32_t counted; /* pushes while it had no row */
    uint64_t counted_step;
    uint64_t birth;           /* how many rows had come before it */
    float floats[FLOATS_MAX]; /* values, then slots */
};

/* A push that BSP buffers. */
struct pending {
    uint32_t worker, count;
    float rate;
    uint64_t keys[FEW_OF_PUSH];
    float gradients[FEW_OF_PUSH * DIM];
};

struct reference {
    struct sl_table_spec spec;
    uint32_t id;
    uint32_t clock; /* BSP: the iteration of all workers */
    uint32_t pending_count;
    struct pending pending[PENDING_MAX];
    const struct sl_optimizer *optimizer;
    struct sl_optimizer_state state;
    uint64_t step;
    uint32_t key_count, slot_floats;
    uint64_t row_count;
    uint64_t births;
    struct reference_row rows[MANY_KEYS]; /* [key_count]; the rest is unused */
};

static struct model {
    struct reference now, saved; /* saved: at the last snapshot */
    struct shard_stream full, delta;
    struct sl_shard_snapshot_base *base;
    bool is_saved, has_delta;
    bool is_prompt; /* rows go after each write, as in a server that has time */
    uint64_t random;
    size_t memory_bytes_max;
    uint64_t evicted, awaited, restored, refused, iterations, dropped;
} model;

static uint32_t draw(uint64_t below)
{
    return (uint32_t)(sl_hash_random(&model.random) % below);
}

/* Reference */

static void reference_copy(struct reference *to, const struct reference *from)
{
    memcpy(to, from,
           offsetof(struct reference, rows) + from->key_count * sizeof(struct reference_row));
}

static bool is_bsp(const struct reference *reference)
{
    return reference->spec.consistency.mode == SL_CONSISTENCY_BSP;
}

/* What narrowing leaves of values: rounded to the nearest, or randomly. */
static void round_values(enum sl_precision precision, float *values, uint32_t count, bool random,
                         uint64_t seed)
{
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    uint8_t narrow[FLOATS_MAX * sizeof *values];
    if (random) {
        kernels->narrow_random(precision, values, count, seed, narrow);
    } else {
        kernels->narrow(precision, values, count, narrow);
    }
    kernels->widen(precision, narrow, count, values);
}

/* visits: of the row before; rounds randomly. NULL: a new row, to the nearest. */
static void round_row(struct reference *reference, uint64_t key, const uint32_t *visits)
{
    float *floats = reference->rows[key].floats;
    const uint64_t seed = visits == NULL ? 0 : sl_hash_key(key ^ sl_hash_key(*visits));
    round_values(reference->spec.values, floats, DIM, visits != NULL, seed);
    round_values(reference->spec.slots, floats + DIM, reference->optimizer->slots_per_value * DIM,
                 visits != NULL, ~seed);
}

static void first_row(struct reference *reference, uint64_t key)
{
    struct reference_row *row = &reference->rows[key];
    const bool counts = reference->spec.policy.admission == SL_ADMISSION_COUNT;
    reference->row_count += !row->is_there;
    *row = (struct reference_row){
        .is_there = true,
        .counted = counts ? 0 : row->counted,
        .counted_step = row->counted_step,
        .birth = row->is_there ? row->birth : reference->births++,
    };
    sl_initializer_fill(&reference->spec.initializer, key, 0, DIM, row->floats);
    sl_optimizer_init_slots(reference->optimizer, &reference->spec.optimizer, DIM,
                            row->floats + DIM);
    round_row(reference, key, NULL);
}

/* Counts a push of a key without a row. Returns true when that creates the row. */
static bool admits(struct reference *reference, uint64_t key)
{
    const struct sl_policy_spec *policy = &reference->spec.policy;
    struct reference_row *row = &reference->rows[key];
    if (policy->admission == SL_ADMISSION_PROBABILITY) {
        return sl_policy_draws(policy, reference->spec.initializer.seed, key, reference->step);
    }
    if (policy->admission == SL_ADMISSION_BLOOM && policy->admit_age_steps > 0) {
        const uint64_t age = policy->admit_age_steps;
        const uint64_t halvings = reference->step / age - row->counted_step / age;
        row->counted >>= halvings < 8 ? halvings : 8;
    }
    row->counted_step = reference->step;
    const bool is_admitted = row->counted + 1 >= policy->admit_count;
    row->counted += !is_admitted;
    return is_admitted;
}

static bool has_row(const struct sl_shard *shard, uint32_t id, uint64_t key)
{
    uint32_t record;
    return sl_sparse_table_find(shard->tables[id]->sparse, &key, 1, &record);
}

/* A filter of many keys admits some early, as the shard shows; of few keys it counts exactly. */
static bool agrees(struct reference *reference, const struct sl_shard *shard, uint64_t key)
{
    const bool is_admitted = admits(reference, key);
    const bool has = has_row(shard, reference->id, key);
    const bool may =
        reference->spec.policy.admission == SL_ADMISSION_BLOOM && reference->key_count == MANY_KEYS;
    assert_true(has == is_admitted || (may && has));
    model.refused += !has;
    return has;
}

/* shard: it has executed the push. */
static void reference_push(struct reference *reference, const struct sl_shard *shard,
                           const uint64_t *keys, uint32_t count, const float *gradients, float rate)
{
    struct sl_optimizer_visit visit = {
        .spec = &reference->spec.optimizer,
        .state = &reference->state,
        .lr = reference->spec.optimizer.lr * rate,
        .dim = DIM,
        .slot_stride = DIM,
        .step = ++reference->step,
    };
    for (uint32_t i = 0; i < count; i++) {
        struct reference_row *row = &reference->rows[keys[i]];
        float *slots = row->floats + DIM;
        if (!row->is_there && !is_bsp(reference) && !agrees(reference, shard, keys[i])) {
            continue;
        }
        if (!row->is_there) {
            first_row(reference, keys[i]);
        }
        visit.count = row->count;
        sl_update_apply(&reference->spec.update, reference->optimizer, &visit, row->floats, slots,
                        slots + (size_t)reference->optimizer->slots_per_value * DIM,
                        gradients + (size_t)i * DIM);
        round_row(reference, keys[i], &visit.count);
        row->count++;
        row->last_step = (uint32_t)reference->step;
    }
    if (reference->optimizer->end_push != NULL) {
        reference->optimizer->end_push(&reference->spec.optimizer, &reference->state);
    }
}

static void reference_assign(struct reference *reference, const uint64_t *keys, uint32_t count,
                             const float *values)
{
    reference->step++;
    for (uint32_t i = 0; i < count; i++) {
        first_row(reference, keys[i]);
        memcpy(reference->rows[keys[i]].floats, values + (size_t)i * DIM, DIM * sizeof *values);
        round_row(reference, keys[i], NULL);
        reference->rows[keys[i]].last_step = (uint32_t)reference->step;
    }
}

static void reference_erase(struct reference *reference, const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct reference_row *row = &reference->rows[keys[i]];
        reference->row_count -= row->is_there;
        row->is_there = false;
        row->counted = reference->spec.policy.admission == SL_ADMISSION_COUNT ? 0 : row->counted;
    }
}

/* Policy */

static uint32_t age_of(const struct reference *reference, const struct reference_row *row)
{
    return (uint32_t)reference->step - row->last_step;
}

static bool is_due(const struct reference *reference, const struct reference_row *row)
{
    const struct sl_policy_spec *policy = &reference->spec.policy;
    const float square = row->floats[0] * row->floats[0] + row->floats[1] * row->floats[1];
    return (policy->ttl_steps > 0 && age_of(reference, row) >= policy->ttl_steps) ||
           row->count < policy->count_below || square < policy->l2_below * policy->l2_below;
}

static bool is_full(const struct sl_shard *shard)
{
    return model.memory_bytes_max > 0 && shard->memory_bytes / 92 >= model.memory_bytes_max / 100;
}

/* Each key may go at this step; of what goes only for room, no more than is needed. */
static void check_evicted(bool was_full, const struct sl_shard_evicted *out)
{
    const struct reference *reference = &model.now;
    const struct sl_policy_spec *policy = &reference->spec.policy;
    uint64_t for_room = 0;
    for (uint32_t i = 0; i < out->count; i++) {
        const struct reference_row *row = &reference->rows[out->keys[i]];
        assert_true(out->keys[i] < reference->key_count);
        if (!row->is_there) { /* it waits for a row */
            assert_true(policy->admission == SL_ADMISSION_COUNT && row->counted > 0);
            assert_true(was_full ||
                        (policy->admit_age_steps > 0 &&
                         reference->step - row->counted_step >= policy->admit_age_steps));
            continue;
        }
        assert_true(age_of(reference, row) >= policy->protect_steps);
        for_room += !is_due(reference, row);
    }
    const uint64_t most = policy->rows_max;
    const uint64_t beyond =
        most > 0 && reference->row_count > most ? reference->row_count - most : 0;
    assert_true(for_room <= beyond || (policy->order != SL_POLICY_NONE && was_full));
}

/* All that is due has gone, but for what this round has passed, and what is protected. */
static void check_settled(void)
{
    const struct reference *reference = &model.now;
    const struct sl_policy_spec *policy = &reference->spec.policy;
    uint64_t protected = 0;
    for (uint32_t key = 0; key < reference->key_count; key++) {
        const struct reference_row *row = &reference->rows[key];
        const uint32_t age = age_of(reference, row);
        const uint32_t least = policy->count_below > 0 || policy->l2_below > 0
                                   ? policy->protect_steps
                                   : policy->ttl_steps;
        if (!row->is_there) {
            const uint32_t most = policy->admit_age_steps;
            assert_true(policy->admission != SL_ADMISSION_COUNT || row->counted == 0 || most == 0 ||
                        reference->step - row->counted_step <=
                            most + (most + ROUND_PART - 1) / ROUND_PART + 1);
            continue;
        }
        protected += age < policy->protect_steps;
        assert_true(policy->ttl_steps == 0 || age <= policy->ttl_steps + least / ROUND_PART + 1);
        assert_true(!is_due(reference, row) || policy->ttl_steps > 0 ||
                    age <= policy->protect_steps + least / ROUND_PART + 1);
    }
    if (policy->rows_max > 0 && protected == 0) {
        assert_true(reference->row_count <= policy->rows_max);
    }
}

static void evict(struct fixture *f)
{
    static struct sl_shard_evicted out;
    bool was_full = is_full(f->shard);
    while (sl_shard_evict(f->shard, BUDGET, &out) > 0) {
        assert_int_equal(out.table_id, model.now.id);
        check_evicted(was_full, &out);
        reference_erase(&model.now, out.keys, out.count);
        model.evicted += out.count;
        was_full = is_full(f->shard);
    }
    assert_false(sl_shard_eviction_due(f->shard));
}

/* Requests */

static uint32_t draw_keys(void)
{
    const bool is_many = model.now.key_count == MANY_KEYS;
    const uint32_t most = is_many ? MANY_OF_PUSH : FEW_OF_PUSH;
    const uint32_t count = 1 + draw(most);
    const uint32_t first = draw(model.now.key_count);
    const uint32_t stride = 1 + draw(7); /* of numbers that are prime to 7: no key comes twice */
    for (uint32_t i = 0; i < count; i++) {
        snapshot_keys[i] = (first + (uint64_t)i * stride) % model.now.key_count;
    }
    for (uint32_t i = 0; i < count * DIM; i++) {
        snapshot_gradients[i] = (float)draw(33) / 8.0F - 2.0F;
    }
    return count;
}

static void run_as(struct fixture *f, uint32_t worker)
{
    fixture_begin(f, worker);
    while (!sl_shard_ready(f->shard, &f->work, UINT64_MAX)) {
        model.awaited++;
        evict(f);
    }
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    if (model.memory_bytes_max > 0) {
        assert_true(f->shard->memory_bytes <= model.memory_bytes_max);
    }
}

static void run(struct fixture *f)
{
    run_as(f, NOBODY);
}

static void create_pending(struct reference *reference, const struct pending *pending)
{
    for (uint32_t i = 0; i < pending->count; i++) {
        if (!reference->rows[pending->keys[i]].is_there) {
            first_row(reference, pending->keys[i]);
        }
    }
}

/* A worker's push: its rows are there at once, with no visit. */
static void push_later(struct fixture *f, uint32_t count, float rate)
{
    struct reference *now = &model.now;
    struct pending *pending = &now->pending[now->pending_count++];
    *pending = (struct pending){.worker = draw(WORKERS), .count = count, .rate = rate};
    memcpy(pending->keys, snapshot_keys, count * sizeof *snapshot_keys);
    memcpy(pending->gradients, snapshot_gradients, count * DIM * sizeof *snapshot_gradients);
    run_as(f, pending->worker);
    create_pending(now, pending);
}

static void do_push(struct fixture *f)
{
    const uint32_t count = draw_keys();
    static const float rates[] = {1, 1, 0.5F, 2};
    const float rate = rates[draw(4)];
    const bool waits = is_bsp(&model.now) && model.now.pending_count < PENDING_MAX && draw(3) > 0;
    shard_request_begin(&f->request, model.now.clock);
    f->request.rate = rate;
    shard_request_push(&f->request, draw(3) == 0 && !waits ? SL_REQUEST_PUSH_PULL : SL_REQUEST_PUSH,
                       (uint16_t)model.now.id, snapshot_keys, count, snapshot_gradients, DIM);
    if (waits) {
        push_later(f, count, rate);
        return;
    }
    run(f);
    reference_push(&model.now, f->shard, snapshot_keys, count, snapshot_gradients, rate);
}

/* All workers end an iteration; then rows go that may. */
static void do_iteration(struct fixture *f)
{
    struct reference *now = &model.now;
    fixture_tick_all(f, now->clock);
    fixture_commit(f);
    for (uint32_t worker = 0; worker < WORKERS; worker++) {
        for (uint32_t i = 0; i < now->pending_count; i++) {
            const struct pending *pending = &now->pending[i];
            if (pending->worker == worker) {
                reference_push(now, f->shard, pending->keys, pending->count, pending->gradients,
                               pending->rate);
            }
        }
    }
    now->pending_count = 0;
    now->clock++;
    for (uint64_t key = 0; key < now->key_count; key++) {
        const struct reference_row *row = &now->rows[key];
        if (row->is_there && !has_row(f->shard, now->id, key)) {
            assert_true(is_due(now, row));
            assert_true(age_of(now, row) >= now->spec.policy.protect_steps);
            reference_erase(now, &key, 1);
            model.evicted++;
        }
    }
    model.iterations++;
}

/* Writes the values that a pull of the key returns. */
static void read_row(uint64_t key, float *values)
{
    const struct reference_row *row = &model.now.rows[key];
    sl_initializer_fill(&model.now.spec.initializer, key, 0, DIM, values);
    round_values(model.now.spec.values, values, DIM, false, 0);
    memcpy(values, row->is_there ? row->floats : values, DIM * sizeof *values);
}

/* Of one INT8 row there are several forms: what is compared are values. */
static void check_returned(const uint8_t *reply, uint32_t row, enum sl_precision as, float *values)
{
    float returned[DIM];
    sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)
        ->widen(as, reply + row * sl_precision_row_bytes(as, DIM), DIM, returned);
    round_values(as, values, DIM, false, 0);
    assert_memory_equal(returned, values, sizeof returned);
}

static void do_pooled(struct fixture *f)
{
    const uint32_t count = draw_keys();
    const enum sl_precision as = draw(SL_PRECISION_COUNT);
    uint32_t ends[4 * MANY_OF_PUSH], bags = 0, end = 0, key = 0;
    while (end < count || draw(4) == 0) { /* bags of 0 keys too */
        end += draw(draw(2) == 0 ? 4 : count + 1);
        end = end < count ? end : count;
        ends[bags++] = end;
    }
    shard_request_begin(&f->request, model.now.clock);
    shard_request_pooled(&f->request, (uint16_t)model.now.id, snapshot_keys, count, ends, bags);
    shard_request_set_flags(&f->request, (uint8_t)(as << SL_REQUEST_RETURNED_SHIFT));
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    for (uint32_t bag = 0; bag < bags; bag++) {
        float sum[DIM] = {0};
        for (; key < ends[bag]; key++) {
            float values[DIM];
            read_row(snapshot_keys[key], values);
            for (uint32_t i = 0; i < DIM; i++) {
                sum[i] += values[i];
            }
        }
        check_returned(f->reply, bag, as, sum);
    }
}

/* A find is a pull that also tells which keys have a row; neither creates one. */
static void do_pull(struct fixture *f)
{
    const uint32_t count = draw_keys();
    const bool finds = draw(2) == 0;
    const enum sl_precision as = finds ? SL_PRECISION_F32 : draw(SL_PRECISION_COUNT);
    shard_request_begin(&f->request, model.now.clock);
    (finds ? shard_request_find : shard_request_pull)(&f->request, (uint16_t)model.now.id,
                                                      snapshot_keys, count);
    shard_request_set_flags(&f->request, (uint8_t)(as << SL_REQUEST_RETURNED_SHIFT));
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    for (uint32_t i = 0; i < count; i++) {
        assert_true(!finds || f->reply[sl_bytes_pad8(count * DIM * sizeof(float)) + i] ==
                                  model.now.rows[snapshot_keys[i]].is_there);
        float values[DIM];
        read_row(snapshot_keys[i], values);
        check_returned(f->reply, i, as, values);
    }
}

static void do_assign(struct fixture *f)
{
    const uint32_t count = draw_keys();
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_ASSIGN, (uint16_t)model.now.id, snapshot_keys, count,
                       snapshot_gradients, DIM);
    run(f);
    reference_assign(&model.now, snapshot_keys, count, snapshot_gradients);
}

static void do_erase(struct fixture *f)
{
    const uint32_t count = 1 + draw(draw_keys());
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, (uint16_t)model.now.id, snapshot_keys, count);
    run(f);
    reference_erase(&model.now, snapshot_keys, count);
}

/* Comparison */

static void check_rows(const struct reference *reference, struct sl_shard *shard)
{
    struct sl_shard_table *table = shard->tables[reference->id];
    const size_t bytes = (DIM + reference->slot_floats) * sizeof(float);
    float floats[FLOATS_MAX];
    assert_int_equal(table->step, reference->step);
    assert_int_equal(sl_sparse_table_row_count(table->sparse), reference->row_count);
    for (uint64_t key = 0; key < reference->key_count; key++) {
        const struct reference_row *row = &reference->rows[key];
        uint32_t record;
        assert_int_equal(sl_sparse_table_find(table->sparse, &key, 1, &record), row->is_there);
        if (row->is_there) {
            const struct sl_row *is = sl_sparse_table_record(table->sparse, record);
            assert_int_equal(is->last_step, row->last_step);
            assert_int_equal(is->count, row->count);
            sl_narrow_read(sl_sparse_table_layout(table->sparse), is->values, floats);
            assert_memory_equal(floats, row->floats, bytes);
        }
        if (sl_shard_waiting_keys(table) != NULL) {
            sl_sparse_table_find(table->waiting->sparse, &key, 1, &record);
            assert_int_equal(record == SL_ROW_NONE
                                 ? 0
                                 : sl_sparse_table_record(table->waiting->sparse, record)->count,
                             row->counted);
        }
    }
}

/* Snapshots */

static void forget_saved(void)
{
    if (model.is_saved) {
        shard_stream_fini(&model.full);
        sl_shard_snapshot_base_destroy(&model.base);
    }
    if (model.has_delta) {
        shard_stream_fini(&model.delta);
    }
    model.is_saved = model.has_delta = false;
}

/* A shard from what was saved, which is as the reference was then. */
static struct sl_shard *restored(void)
{
    struct sl_shard *made = NULL;
    snapshot_load(&model.full, &made);
    if (model.has_delta) {
        snapshot_load(&model.delta, &made);
    }
    check_rows(&model.saved, made);
    return made;
}

static void write_some(struct fixture *f);

/* A full snapshot, or one that adds to it. Writes come while it goes on. */
static void do_snapshot(struct fixture *f)
{
    struct shard_stream stream = {0};
    struct sl_shard_snapshot_base *base = NULL;
    const bool may_add = model.is_saved && !model.has_delta && draw(3) > 0;
    const struct sl_shard_snapshot_options options = {.base = may_add ? model.base : NULL};
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    const bool adds = !sl_shard_snapshot_is_full(f->shard); /* too much may have gone since */
    if (!adds) {
        forget_saved();
    }
    reference_copy(&model.saved, &model.now);
    for (uint32_t i = 0; i < model.saved.pending_count; i++) {
        create_pending(&model.saved, &model.saved.pending[i]); /* rows erased since the push */
    }
    while (shard_stream_snapshot(f->shard, 40, &stream)) {
        write_some(f);
    }
    sl_shard_snapshot_end(f->shard, &base);
    if (adds) {
        sl_shard_snapshot_base_destroy(&base);
        model.delta = stream;
        model.has_delta = true;
    } else {
        model.full = stream;
        model.base = base;
        model.is_saved = true;
    }
    struct sl_shard *made = restored();
    sl_shard_destroy(&made);
}

static void do_restore(struct fixture *f)
{
    if (model.is_saved) {
        struct sl_shard *made = restored();
        made->options.memory_bytes_max = f->shard->options.memory_bytes_max;
        sl_shard_destroy(&f->shard);
        f->shard = made;
        reference_copy(&model.now, &model.saved);
        forget_saved(); /* its base is of another shard */
        model.restored++;
    }
}

static void write_some(struct fixture *f)
{
    const uint32_t what = draw(10);
    if (what < 6) {
        do_push(f);
    } else if (what < 7) {
        do_assign(f);
    } else if (what < 8) {
        do_erase(f);
    } else if (is_bsp(&model.now)) {
        do_iteration(f);
    } else {
        evict(f);
    }
    if (model.is_prompt && !is_bsp(&model.now)) {
        evict(f);
        if (model.now.key_count == FEW_KEYS || draw(16) == 0) {
            check_settled();
        }
    }
}

/* Rows come as they are at the moment of their message. One that lived throughout comes once. */
static void do_scan(struct fixture *f)
{
    static uint8_t comes[MANY_KEYS];
    struct reference *now = &model.now;
    const uint64_t births = now->births;
    const uint32_t floats = DIM + now->slot_floats;
    const uint32_t rows_max = now->key_count == MANY_KEYS ? 4096 : 1 + draw(100);
    struct sl_request_section section = {
        .table_id = (uint16_t)now->id, .count = rows_max, .bag_count = (uint16_t)floats};
    struct sl_request_scan body = {.end = UINT64_MAX};
    memset(comes, 0, now->key_count);
    while (section.start != UINT64_MAX) {
        struct sl_request_scanned head;
        shard_request_begin(&f->request, 0);
        shard_request_scan(&f->request, section, &body);
        assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
        memcpy(&head, f->reply, sizeof head);
        const uint8_t *keys = f->reply + sizeof head;
        const uint8_t *marks = keys + rows_max * sizeof(uint64_t);
        const uint8_t *rows = marks + rows_max * sizeof(struct sl_request_scan_mark);
        for (uint32_t i = 0; i < head.row_count; i++) {
            uint64_t key;
            struct sl_request_scan_mark mark;
            memcpy(&key, keys + i * sizeof key, sizeof key);
            memcpy(&mark, marks + i * sizeof mark, sizeof mark);
            assert_true(key < now->key_count && now->rows[key].is_there);
            assert_int_equal(mark.count, now->rows[key].count);
            assert_memory_equal(rows + i * floats * sizeof(float), now->rows[key].floats,
                                floats * sizeof(float));
            comes[key]++;
        }
        section.start = head.next;
        body.copy = head.copy;
        if (draw(4) == 0) {
            write_some(f);
        }
    }
    for (uint64_t key = 0; key < now->key_count; key++) {
        const bool lived = now->rows[key].is_there && now->rows[key].birth < births;
        assert_true(!lived || comes[key] == 1);
    }
}

static void reference_open(struct fixture *f, const struct sl_table_spec *spec, uint32_t id,
                           uint32_t key_count);

/* The table ends; another one of its name begins. */
static void do_drop(struct fixture *f)
{
    struct sl_shard_storage storage;
    const struct sl_table_spec spec = model.now.spec;
    const uint32_t id = model.now.id, key_count = model.now.key_count;
    assert_true(sl_shard_table_drop(f->shard, id));
    snapshot_keys[0] = 1;
    shard_request_begin(&f->request, 0);
    shard_request_find(&f->request, (uint16_t)id, snapshot_keys, 1);
    assert_int_equal(fixture_run(f, NOBODY), SL_ERR_NOT_FOUND);
    assert_true(sl_shard_take_dropped(f->shard, &storage));
    sl_shard_storage_free(&storage);
    reference_open(f, &spec, id + 1, key_count);
    model.dropped++;
}

static void act(struct fixture *f)
{
    const uint32_t what = draw(1000);
    if (what < 770) {
        write_some(f);
    } else if (what < 860) {
        do_pull(f);
    } else if (what < 900) {
        do_pooled(f);
    } else if (what < 925) {
        do_scan(f);
    } else if (what < 970) {
        do_snapshot(f);
    } else if (what < 995) {
        do_restore(f);
    } else if (model.now.pending_count == 0) {
        do_drop(f);
    }
}

/* Runs */

static void reference_open(struct fixture *f, const struct sl_table_spec *spec, uint32_t id,
                           uint32_t key_count)
{
    struct reference *now = &model.now;
    const uint32_t clock = now->clock;
    assert_int_equal(sl_shard_table_open(f->shard, id, spec, &f->reason), 0);
    memset(now, 0, offsetof(struct reference, rows) + key_count * sizeof now->rows[0]);
    now->spec = *spec;
    now->id = id;
    now->clock = clock;
    now->key_count = key_count;
    now->optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR);
    now->slot_floats = (uint32_t)sl_optimizer_slot_floats(now->optimizer, DIM);
    assert_true(DIM + now->slot_floats <= FLOATS_MAX);
    sl_optimizer_state_init(&spec->optimizer, &now->state);
}

static void open_table(struct fixture *f, const struct sl_table_spec *spec)
{
    const struct sl_shard_options options = {.count = 1,
                                             .memory_bytes_max = model.memory_bytes_max};
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    model.now.clock = 0;
    reference_open(f, spec, FIRST_ID, model.memory_bytes_max > 0 ? MANY_KEYS : FEW_KEYS);
}

static void check_run(struct fixture *f, enum sl_optimizer_kind kind, uint32_t parts, uint32_t acts)
{
    model.memory_bytes_max = (parts & 1U << MEMORY) != 0 ? MEMORY_BYTES : 0;
    const struct sl_table_spec spec = reference_spec(&model.random, kind, parts);
    open_table(f, &spec);
    model.is_prompt = draw(2) == 0;
    for (uint32_t i = 0; i < acts; i++) {
        act(f);
        if (i % 32 == 31) {
            check_rows(&model.now, f->shard);
        }
    }
    check_rows(&model.now, f->shard);
    forget_saved();
}

static bool is_possible(uint32_t parts)
{
    return (parts & BIT(IN_BSP)) == 0 || (parts & (ORDERED | ADMITS)) == 0;
}

CASE(reference__every_optimizer_and_every_pair_of_parts)
{
    const uint32_t kinds = getenv("REFERENCE_ALL") == NULL ? 1 : SL_OPTIMIZER_KIND_COUNT;
    uint32_t seed = 0;
    model.evicted = model.restored = model.refused = model.iterations = model.dropped = 0;
    for (uint32_t turn = 0; turn < kinds; turn++) {
        for (uint32_t a = 0; a < PART_COUNT; a++) {
            for (uint32_t b = a; b < PART_COUNT; b++) {
                const uint32_t parts = BIT(a) | BIT(b);
                const uint32_t kind = (seed + turn) % SL_OPTIMIZER_KIND_COUNT;
                model.random = ++seed;
                if ((parts & BIT(MEMORY)) == 0 && is_possible(parts)) {
                    print_message("seed %u: optimizer %u, parts %x\n", seed, kind, parts);
                    check_run(f, (enum sl_optimizer_kind)kind, parts, 200);
                }
            }
        }
    }
    assert_true(model.evicted > 1000);
    assert_true(model.restored > 50);
    assert_true(model.refused > 1000);
    assert_true(model.iterations > 50);
    assert_true(model.dropped > 10);
}

CASE(reference__near_the_memory_limit)
{
    model.evicted = model.awaited = 0;
    for (uint32_t a = 0; a < PART_COUNT; a++) {
        const uint32_t parts = BIT(a) | BIT(MEMORY);
        if (a != HALF_LIFE && a != ROWS_MAX && is_possible(parts)) {
            model.random = 1000 + a;
            print_message("part %u\n", a);
            check_run(f, (enum sl_optimizer_kind)(a % SL_OPTIMIZER_KIND_COUNT), parts, 150);
        }
    }
    assert_true(model.evicted > 10000);
}
