/* A table against a plain reference: an array of rows, and the optimizer's scalar kernel. Random
 * pushes, pulls, assigns, erases, evictions, snapshots and restores, with every optimizer, and with
 * policies of every part and every pair of parts. The policy chooses what goes; the reference
 * checks that it may go, and then erases the same keys. Rows, slots, counts and steps are equal,
 * bit for bit. The seed is in the test's output where it fails. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "ps/optimizer/initializer.h"
#include "ps/optimizer/update.h"
#include "ps/shard/state.h"
#include "snapshot_fixture.h"

#define ROWS         8 /* id of the table */
#define FEW_KEYS     300
#define MANY_KEYS    60000
#define FEW_OF_PUSH  24
#define MANY_OF_PUSH 700
#define FLOATS_MAX   (DIM * 4 + 4)
#define MEMORY_BYTES ((size_t)2 << 20)
#define BUDGET       200
#define ROUND_PART   4 /* a row goes at the latest a quarter of its threshold after it was due */

struct reference_row {
    bool is_there;
    uint32_t last_step, count;
    float floats[FLOATS_MAX]; /* values, then slots */
};

struct reference {
    struct sl_table_spec spec;
    const struct sl_optimizer *optimizer;
    struct sl_optimizer_state state;
    uint64_t step;
    uint32_t key_count, slot_floats;
    uint64_t row_count;
    struct reference_row rows[MANY_KEYS];
};

static struct model {
    struct reference now, saved; /* saved: at the last snapshot */
    struct shard_stream full, delta;
    struct sl_shard_snapshot_base *base;
    bool is_saved, has_delta;
    bool is_prompt; /* rows go after each write, as in a server that has time */
    uint64_t random;
    size_t memory_bytes_max;
    uint64_t evicted, awaited, restored;
} model;

static uint32_t draw(uint64_t below)
{
    return (uint32_t)(sl_hash_random(&model.random) % below);
}

/* Reference */

static void first_row(struct reference *reference, uint64_t key)
{
    struct reference_row *row = &reference->rows[key];
    reference->row_count += !row->is_there;
    *row = (struct reference_row){.is_there = true};
    sl_initializer_fill(&reference->spec.initializer, key, 0, DIM, row->floats);
    sl_optimizer_init_slots(reference->optimizer, &reference->spec.optimizer, DIM,
                            row->floats + DIM);
}

static void reference_push(struct reference *reference, const uint64_t *keys, uint32_t count,
                           const float *gradients, float rate)
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
        if (!row->is_there) {
            first_row(reference, keys[i]);
        }
        visit.count = row->count;
        sl_update_apply(&reference->spec.update, reference->optimizer, &visit, row->floats, slots,
                        slots + (size_t)reference->optimizer->slots_per_value * DIM,
                        gradients + (size_t)i * DIM);
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
        reference->rows[keys[i]].last_step = (uint32_t)reference->step;
    }
}

static void reference_erase(struct reference *reference, const uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        reference->row_count -= reference->rows[keys[i]].is_there;
        reference->rows[keys[i]].is_there = false;
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
        assert_true(row->is_there);
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
        assert_int_equal(out.table_id, ROWS);
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

static void run(struct fixture *f)
{
    fixture_begin(f, NOBODY);
    while (!sl_shard_ready(f->shard, &f->work, UINT64_MAX)) {
        model.awaited++;
        evict(f);
    }
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    if (model.memory_bytes_max > 0) {
        assert_true(f->shard->memory_bytes <= model.memory_bytes_max);
    }
}

static void do_push(struct fixture *f)
{
    const uint32_t count = draw_keys();
    static const float rates[] = {1, 1, 0.5F, 2};
    const float rate = rates[draw(4)];
    shard_request_begin(&f->request, 0);
    f->request.rate = rate;
    shard_request_push(&f->request, draw(3) == 0 ? SL_REQUEST_PUSH_PULL : SL_REQUEST_PUSH, ROWS,
                       snapshot_keys, count, snapshot_gradients, DIM);
    run(f);
    reference_push(&model.now, snapshot_keys, count, snapshot_gradients, rate);
}

static void do_pull(struct fixture *f)
{
    const uint32_t count = draw_keys();
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, ROWS, snapshot_keys, count);
    run(f);
    for (uint32_t i = 0; i < count; i++) {
        const struct reference_row *row = &model.now.rows[snapshot_keys[i]];
        float initial[DIM];
        sl_initializer_fill(&model.now.spec.initializer, snapshot_keys[i], 0, DIM, initial);
        assert_memory_equal(f->reply + i * sizeof initial, row->is_there ? row->floats : initial,
                            sizeof initial);
    }
}

static void do_assign(struct fixture *f)
{
    const uint32_t count = draw_keys();
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_ASSIGN, ROWS, snapshot_keys, count,
                       snapshot_gradients, DIM);
    run(f);
    reference_assign(&model.now, snapshot_keys, count, snapshot_gradients);
}

static void do_erase(struct fixture *f)
{
    const uint32_t count = 1 + draw(draw_keys());
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, ROWS, snapshot_keys, count);
    run(f);
    reference_erase(&model.now, snapshot_keys, count);
}

/* Comparison */

static void check_rows(const struct reference *reference, struct sl_shard *shard)
{
    struct sl_shard_table *table = shard->tables[ROWS];
    const size_t bytes = (DIM + reference->slot_floats) * sizeof(float);
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
            assert_memory_equal(is->values, row->floats, bytes);
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
    memcpy(&model.saved, &model.now, sizeof model.now);
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
        memcpy(&model.now, &model.saved, sizeof model.now);
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
    } else {
        evict(f);
    }
    if (model.is_prompt) {
        evict(f);
        check_settled();
    }
}

static void act(struct fixture *f)
{
    const uint32_t what = draw(39);
    if (what < 30) {
        write_some(f);
    } else if (what < 36) {
        do_pull(f);
    } else if (what < 38) {
        do_snapshot(f);
    } else {
        do_restore(f);
    }
}

/* Runs */

/* Parts of policies: each, and each pair. An order stands for one of them, with rows_max or a limit
 * of memory. */
enum part { TTL, COUNT, L2, PROTECT, ROWS_MAX, MEMORY, HALF_LIFE, PART_COUNT };

static struct sl_policy_spec policy_of(uint32_t parts)
{
    struct sl_policy_spec policy = {0};
    const bool has_order = (parts & (1U << ROWS_MAX | 1U << MEMORY | 1U << HALF_LIFE)) != 0;
    const bool is_young = (parts & (1U << COUNT | 1U << L2 | 1U << PROTECT)) != 0;
    policy.protect_steps = is_young ? 1 + draw(8) : 0;
    policy.ttl_steps = (parts & 1U << TTL) != 0 ? policy.protect_steps + 1 + draw(20) : 0;
    policy.count_below = (parts & 1U << COUNT) != 0 ? 1 + draw(3) : 0;
    policy.l2_below = (parts & 1U << L2) != 0 ? 0.5F : 0;
    policy.rows_max = (parts & (1U << ROWS_MAX | 1U << HALF_LIFE)) != 0 ? 20 + draw(150) : 0;
    policy.order = has_order ? 1 + draw(SL_POLICY_ORDER_COUNT - 1) : SL_POLICY_NONE;
    if ((parts & 1U << HALF_LIFE) != 0) {
        policy.order = SL_POLICY_LFU;
        policy.half_life_steps = 1 + draw(20);
    }
    return policy;
}

static struct sl_table_spec spec_of(enum sl_optimizer_kind kind, uint32_t parts)
{
    struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(kind),
        .initializer = {.kind = SL_INITIALIZER_UNIFORM, .low = -1, .high = 1, .seed = 7},
        .policy = policy_of(parts),
    };
    spec.optimizer.lr = 0.25F;
    spec.optimizer.decay_steps = 5;
    if (draw(3) == 0) {
        spec.update = (struct sl_update_spec){.clip_norm = 1.5F, .value_bound = 3};
    }
    return spec;
}

static void open_table(struct fixture *f, const struct sl_table_spec *spec)
{
    const struct sl_shard_options options = {.count = 1,
                                             .memory_bytes_max = model.memory_bytes_max};
    const bool is_many = model.memory_bytes_max > 0;
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, spec, &f->reason), 0);
    memset(&model.now, 0, sizeof model.now);
    model.now.spec = *spec;
    model.now.key_count = is_many ? MANY_KEYS : FEW_KEYS;
    model.now.optimizer = sl_optimizer_find(spec->optimizer.kind, SL_OPTIMIZER_SIMD_SCALAR);
    model.now.slot_floats = (uint32_t)sl_optimizer_slot_floats(model.now.optimizer, DIM);
    assert_true(DIM + model.now.slot_floats <= FLOATS_MAX);
    sl_optimizer_state_init(&spec->optimizer, &model.now.state);
}

static void check_run(struct fixture *f, enum sl_optimizer_kind kind, uint32_t parts, uint32_t acts)
{
    model.memory_bytes_max = (parts & 1U << MEMORY) != 0 ? MEMORY_BYTES : 0;
    const struct sl_table_spec spec = spec_of(kind, parts);
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

CASE(reference__every_optimizer_and_every_pair_of_parts)
{
    uint64_t seed = 0;
    model.evicted = model.restored = 0;
    for (uint32_t kind = 0; kind < SL_OPTIMIZER_KIND_COUNT; kind++) {
        for (uint32_t a = 0; a < PART_COUNT; a++) {
            for (uint32_t b = a; b < PART_COUNT; b++) {
                const uint32_t parts = 1U << a | 1U << b;
                model.random = ++seed;
                if ((parts & 1U << MEMORY) == 0) {
                    print_message("seed %u: optimizer %u, parts %x\n", (unsigned)seed, kind, parts);
                    check_run(f, (enum sl_optimizer_kind)kind, parts, 100);
                }
            }
        }
    }
    assert_true(model.evicted > 10000);
    assert_true(model.restored > 50);
}

CASE(reference__near_the_memory_limit)
{
    model.evicted = model.awaited = 0;
    for (uint32_t a = 0; a < PART_COUNT; a++) {
        if (a != HALF_LIFE && a != ROWS_MAX) {
            model.random = 1000 + a;
            print_message("part %u\n", a);
            check_run(f, (enum sl_optimizer_kind)(a % SL_OPTIMIZER_KIND_COUNT),
                      1U << a | 1U << MEMORY, 150);
        }
    }
    assert_true(model.evicted > 10000);
}
