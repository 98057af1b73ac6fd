/* Admission of keys: which pushes create a row, and that backups, snapshots and failed pushes agree
 * on what was counted. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/partition.h"
#include "ps/shard/state.h"
#include "snapshot_fixture.h"

#define ROWS      8 /* id of the table with admission */
#define BUDGET    300
#define MODEL     200 /* keys of the random pushes */
#define SHARD_MAX 3

static struct fixture backup; /* follows the log of the fixture's shard */
static struct sl_shard_evicted evicted;

static struct sl_table_spec spec_with(const struct sl_policy_spec *policy)
{
    return (struct sl_table_spec){
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .initializer = {.kind = SL_INITIALIZER_CONSTANT, .value = 100.0F, .seed = 7},
        .policy = *policy,
    };
}

static const struct sl_policy_spec bloom = {
    .admission = SL_ADMISSION_BLOOM, .admit_count = 3, .keys_expected = 10000};

static void open_with(struct fixture *f, const struct sl_policy_spec *policy)
{
    const struct sl_table_spec spec = spec_with(policy);
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
}

static struct sl_shard_table *table_of(const struct fixture *f)
{
    return f->shard->tables[ROWS];
}

static const struct sl_row *find_in(const struct sl_shard_table *table, uint64_t key)
{
    uint32_t record;
    return table != NULL && sl_sparse_table_find(table->sparse, &key, 1, &record)
               ? sl_sparse_table_record(table->sparse, record)
               : NULL;
}

static uint64_t row_count(const struct fixture *f)
{
    return sl_sparse_table_row_count(table_of(f)->sparse);
}

static uint64_t waiting_count(const struct fixture *f)
{
    return sl_sparse_table_row_count(table_of(f)->waiting->sparse);
}

/* Row i of the gradients is value + i in all columns. */
static void request_keys(struct fixture *f, uint8_t op, const uint64_t *keys, uint32_t count,
                         float value)
{
    for (uint32_t i = 0; i < count * DIM; i++) {
        snapshot_gradients[i] = value + (float)(i / DIM);
    }
    shard_request_begin(&f->request, 0);
    if (op == SL_REQUEST_ERASE) {
        shard_request_erase(&f->request, ROWS, keys, count);
    } else {
        shard_request_push(&f->request, op, ROWS, keys, count, snapshot_gradients, DIM);
    }
}

static int push_keys(struct fixture *f, uint8_t op, const uint64_t *keys, uint32_t count,
                     float value)
{
    request_keys(f, op, keys, count, value);
    return fixture_run(f, NOBODY);
}

static void push_one(struct fixture *f, uint64_t key, float value)
{
    assert_int_equal(push_keys(f, SL_REQUEST_PUSH, &key, 1, value), SL_SHARD_DONE);
}

static void push_range(struct fixture *f, uint64_t first, uint32_t count)
{
    snapshot_fill(count, first, 1.0F);
    assert_int_equal(push_keys(f, SL_REQUEST_PUSH, snapshot_keys, count, 1.0F), SL_SHARD_DONE);
}

CASE(key_admission__a_row_begins_with_the_push_that_is_admitted)
{
    struct sl_message_table_stats stats;
    open_with(f, &(struct sl_policy_spec){.admit_count = 3});
    push_one(f, 5, 1.0F);
    push_one(f, 5, 2.0F);
    assert_true(fixture_peek(f, ROWS, 5) == 100.0F);
    assert_int_equal(row_count(f), 0);
    assert_int_equal(waiting_count(f), 1);
    push_one(f, 5, 4.0F);
    assert_true(fixture_peek(f, ROWS, 5) == 104.0F);
    push_one(f, 5, 8.0F);
    assert_true(fixture_peek(f, ROWS, 5) == 112.0F);
    assert_int_equal(find_in(table_of(f), 5)->count, 2);
    push_one(f, 6, 1.0F);
    sl_shard_table_stats(table_of(f), &stats);
    assert_int_equal(stats.rows, 1);
    assert_int_equal(stats.admitted, 1);
    assert_int_equal(stats.refused, 3);
    assert_int_equal(stats.waiting, 1);
    assert_int_equal(f->shard->rows_created, 1);
}

/* As with exact counts, but for what the counts of a few keys leave in a filter. */
CASE(key_admission__a_filter_counts_pushes_and_keeps_no_keys)
{
    const uint64_t keys[] = {5, 6, 5, 5, 7, 5, 6};
    struct sl_message_table_stats stats;
    open_with(f, &bloom);
    const size_t memory = f->shard->memory_bytes;
    push_one(f, 1, 1.0F);
    push_one(f, 1, 2.0F);
    assert_int_equal(row_count(f), 0);
    push_one(f, 1, 4.0F);
    assert_true(fixture_peek(f, ROWS, 1) == 104.0F);
    assert_int_equal(push_keys(f, SL_REQUEST_PUSH, keys, 7, 1.0F), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ROWS, 5) == 100.0F + 4.0F + 6.0F);
    sl_shard_table_stats(table_of(f), &stats);
    assert_int_equal(stats.rows, 2);
    assert_int_equal(stats.admitted, 2);
    assert_int_equal(stats.refused, 2 + 2 + 2 + 1);
    assert_int_equal(stats.waiting, 0);
    assert_in_range(stats.bytes_admission, 10000 * 9.58 / 2, 10000 * 9.58 / 2 + 3 * 4096);
    assert_true(memory >= stats.bytes_admission);
}

/* A key whose row went is admitted at once, until its counts are halved. */
CASE(key_admission__a_filter_remembers_keys_whose_rows_went)
{
    const uint64_t key = 5;
    struct sl_policy_spec policy = bloom;
    policy.admit_age_steps = 50;
    open_with(f, &policy);
    for (uint32_t i = 0; i < 3; i++) {
        push_one(f, key, 1.0F);
    }
    assert_int_equal(push_keys(f, SL_REQUEST_ERASE, &key, 1, 0), SL_SHARD_DONE);
    push_one(f, key, 1.0F);
    assert_int_equal(row_count(f), 1);
    assert_int_equal(push_keys(f, SL_REQUEST_ERASE, &key, 1, 0), SL_SHARD_DONE);
    while (table_of(f)->step < 49) {
        push_one(f, 1000, 1.0F);
    }
    push_one(f, key, 1.0F); /* step 50: of 2 counts one is left */
    assert_null(find_in(table_of(f), key));
    push_one(f, key, 1.0F);
    assert_non_null(find_in(table_of(f), key));
}

CASE(key_admission__no_memory_for_a_filter_is_an_error_of_the_open)
{
    const struct sl_shard_options options = {.count = 1, .memory_bytes_max = (size_t)8 << 20};
    struct sl_policy_spec policy = bloom;
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    policy.keys_expected = 2000000; /* 9.6 MB */
    const struct sl_table_spec spec = spec_with(&policy);
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), SL_ERR_NO_MEMORY);
    assert_non_null(strstr(f->reason.text, "no memory for table rows"));
    assert_int_equal(f->shard->memory_bytes, 0);
    policy.keys_expected = 1000000;
    open_with(f, &policy);
    assert_in_range(f->shard->memory_bytes, 4800000, options.memory_bytes_max);
}

CASE(key_admission__each_occurrence_in_a_push_counts)
{
    const uint64_t keys[] = {5, 6, 5, 5, 7, 5, 6};
    open_with(f, &(struct sl_policy_spec){.admit_count = 3});
    assert_int_equal(push_keys(f, SL_REQUEST_PUSH, keys, 7, 1.0F), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ROWS, 5) == 100.0F + 4.0F + 6.0F);
    assert_int_equal(find_in(table_of(f), 5)->count, 1);
    assert_int_equal(find_in(table_of(f)->waiting, 6)->count, 2);
    assert_int_equal(waiting_count(f), 2);
    assert_int_equal(table_of(f)->step, 1);
}

CASE(key_admission__an_assign_admits_and_an_erase_forgets)
{
    const uint64_t keys[] = {1, 2};
    open_with(f, &(struct sl_policy_spec){.admit_count = 2});
    assert_int_equal(push_keys(f, SL_REQUEST_PUSH, keys, 2, 1.0F), SL_SHARD_DONE);
    assert_int_equal(push_keys(f, SL_REQUEST_ASSIGN, keys, 1, 3.0F), SL_SHARD_DONE);
    assert_true(fixture_peek(f, ROWS, 1) == 3.0F);
    assert_int_equal(waiting_count(f), 1);
    assert_int_equal(push_keys(f, SL_REQUEST_ERASE, keys, 2, 0), SL_SHARD_DONE);
    assert_int_equal(waiting_count(f), 0);
    assert_int_equal(row_count(f), 0);
    push_one(f, 2, 1.0F);
    assert_int_equal(row_count(f), 0);
}

/* The highest two bits of a key are its slot. */
CASE(key_admission__slots_have_counts_of_their_own)
{
    open_with(f, &(struct sl_policy_spec){.admit_count = 2,
                                          .slot_shift = 62,
                                          .slot_bits = 2,
                                          .slot_count = 3,
                                          .slots = {{.admit_count = 1}, {.admit_count = 4}}});
    static const uint32_t wanted[] = {1, 4, 2, 2};
    for (uint64_t slot = 0; slot < 4; slot++) {
        for (uint32_t pushes = 1; pushes <= 5; pushes++) {
            push_one(f, slot << 62 | 5, 1.0F);
            assert_int_equal(find_in(table_of(f), slot << 62 | 5) != NULL, pushes >= wanted[slot]);
        }
    }
    assert_int_equal(waiting_count(f), 0);
}

CASE(key_admission__by_chance)
{
    open_with(f, &(struct sl_policy_spec){.admission = SL_ADMISSION_PROBABILITY,
                                          .admit_probability = 0.25F});
    push_range(f, 0, 1000);
    assert_in_range(row_count(f), 200, 300);
    const uint64_t first = row_count(f);
    push_range(f, 0, 1000); /* another draw */
    assert_in_range(row_count(f), first + 140, first + 240);
    assert_int_equal(table_of(f)->admitted, row_count(f));
    assert_int_equal(table_of(f)->admitted + table_of(f)->refused, 2000 - first);
    assert_null(table_of(f)->waiting);
}

static uint32_t evict_all(struct fixture *f)
{
    uint32_t count = 0;
    while (sl_shard_evict(f->shard, BUDGET, &evicted) > 0) {
        if (evicted.count > 0 && backup.shard != NULL) {
            assert_int_equal(push_keys(&backup, SL_REQUEST_ERASE, evicted.keys, evicted.count, 0),
                             SL_SHARD_DONE);
        }
        count += evicted.count;
    }
    return count;
}

CASE(key_admission__keys_that_wait_for_long_count_anew)
{
    open_with(f, &(struct sl_policy_spec){.admit_count = 2, .admit_age_steps = 8});
    push_range(f, 0, 100);
    for (uint32_t i = 0; i < 11; i++) {
        push_one(f, 1000, 1.0F);
        (void)evict_all(f);
    }
    assert_int_equal(waiting_count(f), 0);
    assert_int_equal(row_count(f), 1);
    assert_int_equal(f->shard->rows_erased, 0);
    push_range(f, 0, 100);
    assert_int_equal(row_count(f), 1);
}

/* New keys without end find room below the limit, whether rows may go or not. */
CASE(key_admission__keys_that_wait_make_room)
{
    const struct sl_shard_options options = {.count = 1, .memory_bytes_max = (size_t)8 << 20};
    for (uint32_t with = 0; with < 2; with++) {
        sl_shard_destroy(&f->shard);
        assert_int_equal(sl_shard_create(&options, &f->shard), 0);
        open_with(f, &(struct sl_policy_spec){.admit_count = 2,
                                              .order = with == 0 ? SL_POLICY_NONE : SL_POLICY_LRU});
        for (uint64_t key = 0; key < 500000; key += 200) {
            push_range(f, key, 200);
            assert_true(f->shard->memory_bytes <= options.memory_bytes_max);
            (void)evict_all(f);
        }
        assert_int_equal(row_count(f), 0);
        assert_true(waiting_count(f) > 10000);
    }
}

static void push_until_full(struct fixture *f, uint64_t *key)
{
    int err = SL_SHARD_DONE;
    for (; err == SL_SHARD_DONE; *key += 500) {
        snapshot_fill(500, *key, 1.0F);
        err = push_keys(f, SL_REQUEST_PUSH, snapshot_keys, 500, 1.0F);
    }
    assert_int_equal(err, SL_ERR_NO_MEMORY);
}

/* The keys of a push that finds no memory are as before, also those that it would have admitted. */
static void check_failing_pushes(struct fixture *f, const struct sl_policy_spec *policy)
{
    const struct sl_shard_options options = {.count = 1, .memory_bytes_max = (size_t)3 << 20};
    static uint64_t keys[8000];
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    open_with(f, policy);
    push_range(f, 0, 900);
    push_range(f, 0, 600);
    uint64_t key = 1000000;
    push_until_full(f, &key);
    for (uint32_t long_push = 0; long_push < 2; long_push++) {
        const uint32_t count = long_push ? 8000 : 1000;
        for (uint32_t i = 0; i < count; i++) {
            keys[i] = i < 900 ? i : i % 3 == 0 ? 850 : 2000000 + i;
        }
        struct sl_shard *before = snapshot_copy(f->shard);
        assert_int_equal(push_keys(f, SL_REQUEST_PUSH, keys, count, 1.0F), SL_ERR_NO_MEMORY);
        snapshot_same(before, f->shard);
        assert_int_equal(f->shard->snapshots.pushes_in_part, 0);
        sl_shard_destroy(&before);
    }
}

CASE(key_admission__a_push_that_fails_counts_nothing)
{
    check_failing_pushes(f, &(struct sl_policy_spec){.admit_count = 3});
    check_failing_pushes(f, &bloom);
}

/* A backup executes pushes one after the other; their counts must not depend on slices. */
CASE(key_admission__a_short_push_waits_for_a_long_one)
{
    static struct fixture other;
    uint32_t spent;
    open_with(f, &(struct sl_policy_spec){.admit_count = 2});
    snapshot_fill(LARGE, 0, 1.0F);
    request_keys(f, SL_REQUEST_PUSH, snapshot_keys, LARGE, 1.0F);
    fixture_begin(f, NOBODY);
    (void)snapshot_slice(f, 20, SL_SHARD_AGAIN);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), SL_ERR_AGAIN);
    other.shard = f->shard;
    request_keys(&other, SL_REQUEST_PUSH, (const uint64_t[]){0}, 1, 1.0F);
    fixture_begin(&other, NOBODY);
    assert_false(sl_shard_ready(f->shard, &other.work, UINT64_MAX));
    assert_int_equal(sl_shard_run(f->shard, &other.work, other.reply, 1000, &spent, &f->reason),
                     SL_SHARD_AGAIN);
    assert_false(sl_shard_stop_writes(&f->work)); /* its client is gone; the push continues */
    snapshot_run_to_end(f);
    assert_int_equal(waiting_count(f), LARGE);
    snapshot_run_to_end(&other);
    assert_int_equal(row_count(f), 1);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    snapshot_end(f);
}

/* The reference: how often a key that waits was pushed, and the rows. */
struct model {
    uint32_t wanted;
    uint32_t counts[MODEL];
    bool has_row[MODEL];
    float rows[MODEL];
};

static void model_write(struct model *model, uint8_t op, const uint64_t *keys, uint32_t count,
                        float value)
{
    for (uint32_t i = 0; i < count; i++, value += 1.0F) {
        const uint64_t key = keys[i];
        if (op == SL_REQUEST_ERASE) {
            model->has_row[key] = false;
            model->counts[key] = 0;
        } else if (op == SL_REQUEST_ASSIGN) {
            model->has_row[key] = true;
            model->rows[key] = value;
        } else if (model->has_row[key] || ++model->counts[key] >= model->wanted) {
            model->rows[key] = (model->has_row[key] ? model->rows[key] : 100.0F) + value;
            model->has_row[key] = true;
        }
        model->counts[key] = model->has_row[key] ? 0 : model->counts[key];
    }
}

static void model_check(const struct model *model, const struct fixture *f)
{
    uint64_t rows = 0, waiting = 0;
    for (uint64_t key = 0; key < MODEL; key++) {
        const struct sl_row *row = find_in(table_of(f), key);
        const struct sl_row *waits = find_in(table_of(f)->waiting, key);
        assert_int_equal(row != NULL, model->has_row[key]);
        assert_true(row == NULL || row->values[DIM - 1] == model->rows[key]);
        assert_int_equal(waits == NULL ? 0 : waits->count, model->counts[key]);
        rows += row != NULL;
        waiting += waits != NULL;
    }
    assert_int_equal(rows, row_count(f));
    assert_int_equal(waiting, waiting_count(f));
}

static uint8_t draw_op(uint64_t *random)
{
    const uint64_t draw = sl_hash_random(random) % 20;
    return draw == 0 ? SL_REQUEST_ERASE : draw == 1 ? SL_REQUEST_ASSIGN : SL_REQUEST_PUSH;
}

/* Mostly a few keys of all; now and then so many that the push takes several slices. */
static uint32_t draw_keys(uint64_t *random, uint64_t *keys)
{
    const uint32_t count = sl_hash_random(random) % 20 == 0
                               ? 1500 + (uint32_t)(sl_hash_random(random) % 1000)
                               : 1 + (uint32_t)(sl_hash_random(random) % 10);
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = sl_hash_random(random) % MODEL;
    }
    return count;
}

CASE(key_admission__random_writes_agree_with_a_reference)
{
    static uint64_t keys[3000];
    for (uint64_t seed = 1; seed <= 30; seed++) {
        uint64_t random = seed;
        struct model model = {.wanted = 2 + (uint32_t)(seed % 4)};
        sl_shard_destroy(&f->shard);
        fixture_make(f, 0);
        open_with(f, &(struct sl_policy_spec){.admit_count = model.wanted});
        for (uint32_t i = 0; i < 100; i++) {
            const uint8_t op = draw_op(&random);
            const uint32_t count = draw_keys(&random, keys);
            assert_int_equal(push_keys(f, op, keys, count, 1.0F), SL_SHARD_DONE);
            model_write(&model, op, keys, count, 1.0F);
            model_check(&model, f);
        }
    }
}

static struct sl_policy_spec draw_policy(uint64_t *random)
{
    struct sl_policy_spec policy = {.admit_count = 2 + (uint32_t)(sl_hash_random(random) % 3)};
    if (sl_hash_random(random) % 4 == 0) {
        return (struct sl_policy_spec){.admission = SL_ADMISSION_PROBABILITY,
                                       .admit_probability = 0.5F};
    }
    if (sl_hash_random(random) % 2 == 0) {
        policy.admission = SL_ADMISSION_BLOOM;
        policy.keys_expected = MODEL / 2; /* many are counted too high */
        policy.false_positives = 0.25F;
    }
    policy.admit_age_steps = sl_hash_random(random) % 2 == 0 ? 0 : 15;
    policy.ttl_steps = sl_hash_random(random) % 2 == 0 ? 0 : 30;
    if (sl_hash_random(random) % 2 == 0) {
        policy.order = SL_POLICY_LRU;
        policy.rows_max = 50;
    }
    return policy;
}

/* What the primary executes, of snapshots too. The chain of a full snapshot and its incrementals
 * makes the shard again. */
struct chain {
    struct sl_shard_snapshot_base *base;
    struct sl_shard *made;
};

static void chain_add(struct chain *chain, struct sl_shard *shard)
{
    struct sl_shard_snapshot_base *base;
    struct shard_stream stream = snapshot_of(shard, chain->base, &base);
    snapshot_load(&stream, &chain->made);
    snapshot_same(shard, chain->made);
    shard_stream_fini(&stream);
    sl_shard_snapshot_base_destroy(&chain->base);
    chain->base = base;
}

/* Random writes under random policies: a backup that repeats them, and the erases that stand for
 * evictions, has the same rows and the same waiting keys, bit for bit; likewise each checkpoint. */
CASE(key_admission__backups_and_snapshots_have_the_same_keys)
{
    static uint64_t keys[3000];
    for (uint64_t seed = 1; seed <= 40; seed++) {
        uint64_t random = seed;
        struct chain chain = {0};
        const struct sl_policy_spec policy = draw_policy(&random);
        sl_shard_destroy(&f->shard);
        fixture_make(f, 0);
        fixture_make(&backup, 0);
        open_with(f, &policy);
        open_with(&backup, &policy);
        for (uint32_t i = 0; i < 120; i++) {
            const uint8_t op = draw_op(&random);
            const uint32_t count = draw_keys(&random, keys);
            assert_int_equal(push_keys(f, op, keys, count, 1.0F), SL_SHARD_DONE);
            assert_int_equal(push_keys(&backup, op, keys, count, 1.0F), SL_SHARD_DONE);
            (void)evict_all(f);
            if (sl_hash_random(&random) % 15 == 0) {
                chain_add(&chain, f->shard);
            }
        }
        snapshot_same(f->shard, backup.shard);
        chain_add(&chain, f->shard);
        sl_shard_snapshot_base_destroy(&chain.base);
        sl_shard_destroy(&chain.made);
        sl_shard_destroy(&backup.shard);
    }
}

static void check_snapshot(struct fixture *f, const struct sl_policy_spec *policy)
{
    struct shard_stream stream = {0};
    sl_shard_destroy(&f->shard);
    fixture_make(f, 0);
    open_with(f, policy);
    push_range(f, 0, 2000);
    push_range(f, 500, 500);
    struct sl_shard *still = snapshot_copy(f->shard);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    for (uint64_t key = 0; shard_stream_snapshot(f->shard, 20, &stream); key += 20) {
        push_range(f, 1990 - key % 1900, 30);
        (void)evict_all(f);
    }
    sl_shard_snapshot_end(f->shard, NULL);
    snapshot_clean(f->shard);
    snapshot_check(still, &stream);
}

/* A snapshot has the keys of its beginning, whatever is pushed and admitted meanwhile. */
CASE(key_admission__a_snapshot_keeps_the_keys_of_its_beginning)
{
    struct sl_policy_spec policy = {.admit_count = 2, .admit_age_steps = 50};
    check_snapshot(f, &policy);
    policy = bloom;
    policy.admit_age_steps = 50;
    check_snapshot(f, &policy);
}

static void shards_make(struct sl_shard **shards, uint32_t count,
                        const struct shard_stream *streams, uint32_t stream_count)
{
    struct sl_reason reason;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(
            sl_shard_create(&(struct sl_shard_options){.index = i, .count = count}, &shards[i]), 0);
        for (uint32_t s = 0; s < stream_count; s++) {
            assert_int_equal(shard_stream_load(&streams[s], shards[i], 1000, &reason), 0);
        }
    }
}

/* Keys that wait belong to shards as rows do: a checkpoint of one shard, restored onto three and
 * from there onto two. */
CASE(key_admission__another_number_of_shards_has_the_same_keys)
{
    static const uint32_t counts[] = {3, 2, 1};
    struct sl_shard *shards[SHARD_MAX] = {NULL};
    struct shard_stream streams[SHARD_MAX];
    open_with(f, &(struct sl_policy_spec){.admit_count = 3});
    push_range(f, 0, 3000);
    push_range(f, 1000, 1000);
    push_range(f, 1500, 700);
    uint32_t stream_count = 1;
    streams[0] = snapshot_of(f->shard, NULL, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        shards_make(shards, counts[i], streams, stream_count);
        const char *difference = shard_stream_differ(&f->shard, 1, shards, counts[i]);
        assert_null(difference);
        for (uint32_t s = 0; s < stream_count; s++) {
            shard_stream_fini(&streams[s]);
        }
        stream_count = counts[i];
        for (uint32_t s = 0; s < stream_count; s++) {
            streams[s] = snapshot_of(shards[s], NULL, NULL);
            sl_shard_destroy(&shards[s]);
        }
    }
    shard_stream_fini(&streams[0]);
}

/* A filter is restored onto another number of shards: each key needs as many pushes as before, or
 * fewer for a few keys that share counters. */
CASE(key_admission__another_number_of_shards_has_the_counts_of_a_filter)
{
    static const uint32_t counts[] = {3, 2, 1};
    struct sl_shard *shards[SHARD_MAX] = {NULL};
    struct shard_stream streams[SHARD_MAX];
    struct sl_policy_spec policy = bloom;
    policy.admit_count = 4;
    open_with(f, &policy);
    push_range(f, 0, 3000);
    push_range(f, 1000, 1000);
    streams[0] = snapshot_of(f->shard, NULL, NULL);
    uint32_t stream_count = 1;
    for (uint32_t i = 0; i < 3; i++) {
        shards_make(shards, counts[i], streams, stream_count);
        for (uint32_t s = 0; s < stream_count; s++) {
            shard_stream_fini(&streams[s]);
        }
        stream_count = counts[i];
        for (uint32_t s = 0; s < stream_count; s++) {
            streams[s] = snapshot_of(shards[s], NULL, NULL);
            if (i < 2) {
                sl_shard_destroy(&shards[s]);
            }
        }
    }
    shard_stream_fini(&streams[0]);
    sl_shard_destroy(&f->shard);
    f->shard = shards[0];
    push_range(f, 1000, 1000);
    assert_in_range(row_count(f), 0, 20);
    push_range(f, 1000, 1000);
    assert_int_equal(row_count(f), 1000);
    push_range(f, 0, 1000);
    push_range(f, 0, 1000);
    assert_in_range(row_count(f), 1000, 1020);
    push_range(f, 0, 1000);
    assert_int_equal(row_count(f), 2000);
    push_range(f, 5000, 1000);
    push_range(f, 5000, 1000);
    push_range(f, 5000, 1000);
    assert_in_range(row_count(f), 2000, 2020);
}
