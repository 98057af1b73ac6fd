/* A loaded table gets another policy: keys that wait, rows that are evicted, the backup. */
#include <string.h>

#include "ps/shard/state.h"
#include "snapshot_fixture.h"

#define ROWS 8 /* id of the table */

static const struct sl_policy_spec plain = {.ttl_steps = 1000};
static const struct sl_policy_spec counting = {.admit_count = 3, .admit_age_steps = 50};
static const struct sl_policy_spec counting_longer = {.admit_count = 5, .order = SL_POLICY_LRU};
static const struct sl_policy_spec bloom = {
    .admission = SL_ADMISSION_BLOOM, .admit_count = 3, .keys_expected = 10000};
static const struct sl_policy_spec chance = {.admission = SL_ADMISSION_PROBABILITY,
                                             .admit_probability = 1.0F};

static int open_with(struct sl_shard *shard, const struct sl_policy_spec *policy, uint32_t dim,
                     struct sl_reason *reason)
{
    const struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = dim,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .policy = *policy,
    };
    return sl_shard_table_open(shard, ROWS, &spec, reason);
}

static int reopen(struct fixture *f, const struct sl_policy_spec *policy)
{
    return open_with(f->shard, policy, DIM, &f->reason);
}

static void push(struct fixture *f, uint64_t first, uint32_t count)
{
    snapshot_fill(count, first, 1.0F);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ROWS, snapshot_keys, count, snapshot_gradients,
                       DIM);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

/* The table comes from a snapshot. */
static void restore(struct fixture *f)
{
    struct sl_shard *copy = snapshot_copy(f->shard);
    sl_shard_destroy(&f->shard);
    f->shard = copy;
}

static const struct sl_shard_table *table_of(const struct fixture *f)
{
    return f->shard->tables[ROWS];
}

static uint64_t waiting_count(const struct fixture *f)
{
    struct sl_message_table_stats stats;
    sl_shard_table_stats(table_of(f), &stats);
    return stats.waiting;
}

static uint64_t row_count(const struct fixture *f)
{
    return sl_sparse_table_row_count(table_of(f)->sparse);
}

/* As if it had been opened so. */
static void expect_counts(const struct fixture *f, uint32_t evicting_before)
{
    const struct sl_shard_table *table = table_of(f);
    const size_t waiting = table->waiting == NULL ? 0 : table->waiting->counted.memory;
    size_t bytes = table->counted.memory + table->counted.beside + waiting;
    for (uint32_t i = 0; i < ROWS; i++) {
        const struct sl_shard_table *other = f->shard->tables[i];
        bytes += other == NULL ? 0 : other->counted.memory + other->counted.beside;
    }
    assert_int_equal(f->shard->memory_bytes, bytes);
    assert_int_equal(f->shard->evicting_count,
                     evicting_before + sl_shard_eviction_has(&table->spec));
}

CASE(replace_policy__once_and_only_of_a_table_that_was_loaded)
{
    assert_int_equal(reopen(f, &plain), 0);
    assert_int_equal(reopen(f, &counting), SL_ERR_EXISTS);
    restore(f);
    assert_int_equal(reopen(f, &plain), 0); /* not another one */
    assert_int_equal(open_with(f->shard, &counting, DIM + 1, &f->reason), SL_ERR_EXISTS);
    assert_int_equal(reopen(f, &counting), 0);
    assert_int_equal(table_of(f)->spec.policy.admit_count, 3);
    assert_int_equal(reopen(f, &counting), 0);
    assert_int_equal(reopen(f, &plain), SL_ERR_EXISTS);
}

/* From each kind of admission to each other, with the memory and the numbers of the shard. */
CASE(replace_policy__keys_wait_as_the_new_one_says)
{
    static const struct sl_policy_spec none;
    static const struct sl_policy_spec *const policies[] = {
        &none, &plain, &counting, &counting_longer, &bloom, &chance};
    static const uint32_t admitted[] = {1, 1, 3, 5, 3, 1}; /* with this push */
    for (uint32_t from = 0; from < 6; from++) {
        for (uint32_t to = 0; to < 6; to++) {
            sl_shard_destroy(&f->shard);
            const struct sl_shard_options options = {.count = 1};
            assert_int_equal(sl_shard_create(&options, &f->shard), 0);
            assert_int_equal(reopen(f, policies[from]), 0);
            push(f, 0, 100);
            restore(f);
            expect_counts(f, 0);
            assert_int_equal(reopen(f, policies[to]), 0);
            expect_counts(f, 0);
            const uint64_t rows = row_count(f);
            const bool stays = from == to || (from == 2 && to == 3) || (from == 3 && to == 2);
            const uint32_t counted = stays && admitted[from] > 1 ? 1 : 0;
            assert_int_equal(rows, admitted[from] == 1 ? 100 : 0);
            for (uint32_t i = 1; i <= 5; i++) {
                const bool comes = rows > 0 || i + counted >= admitted[to];
                push(f, 0, 100);
                assert_int_equal(row_count(f), comes ? 100 : 0);
            }
            assert_int_equal(waiting_count(f), 0);
            expect_counts(f, 0);
        }
    }
}

/* The rows are counted already: a filter has what they leave of the limit. */
CASE(replace_policy__a_filter_that_does_not_fit_changes_nothing)
{
    const struct sl_shard_options options = {.count = 1, .memory_bytes_max = (size_t)16 << 20};
    struct sl_policy_spec large = bloom;
    sl_shard_destroy(&f->shard);
    assert_int_equal(sl_shard_create(&options, &f->shard), 0);
    assert_int_equal(reopen(f, &plain), 0);
    for (uint64_t first = 0; first < 300000; first += 10000) {
        push(f, first, 10000);
    }
    assert_true(f->shard->memory_bytes > options.memory_bytes_max / 2);
    restore(f);
    f->shard->options.memory_bytes_max = options.memory_bytes_max;
    const size_t before = f->shard->memory_bytes;
    large.keys_expected = 2000000; /* 9.6 MB */
    assert_int_equal(reopen(f, &large), SL_ERR_NO_MEMORY);
    assert_int_equal(f->shard->memory_bytes, before);
    assert_int_equal(reopen(f, &bloom), 0);
    assert_true(f->shard->memory_bytes > before);
}

CASE(replace_policy__rows_go_by_the_new_one)
{
    struct sl_shard_evicted rows;
    assert_int_equal(reopen(f, &plain), 0);
    push(f, 0, 100);
    restore(f);
    assert_int_equal(reopen(f, &(struct sl_policy_spec){.ttl_steps = 8}), 0);
    for (uint32_t i = 0; i < 20; i++) {
        push(f, 1000, 1);
    }
    while (sl_shard_evict(f->shard, 300, &rows) > 0) {
    }
    assert_int_equal(row_count(f), 1);
}

/* A long push has judged some keys by the old policy. Thresholds do not matter to it. */
CASE(replace_policy__waits_for_a_push_in_progress)
{
    assert_int_equal(reopen(f, &plain), 0);
    restore(f);
    fixture_long(f, SL_REQUEST_PUSH, ROWS, 0);
    fixture_begin(f, NOBODY);
    (void)snapshot_slice(f, 200, SL_SHARD_AGAIN);
    assert_int_equal(reopen(f, &counting), SL_ERR_CANCELLED);
    assert_non_null(strstr(f->reason.text, "table rows"));
    assert_non_null(strstr(f->reason.text, "open it again"));
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_int_equal(reopen(f, &counting), 0);
}

/* Buffered pushes that are due were counted by the old policy. */
CASE(replace_policy__waits_for_an_iteration_of_bsp)
{
    struct sl_table_spec spec = {
        .name = "rows",
        .kind = SL_TABLE_SPARSE,
        .dim = DIM,
        .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        .consistency = {.mode = SL_CONSISTENCY_BSP, .worker_count = WORKERS},
        .policy = {.ttl_steps = 1000},
    };
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
    for (uint64_t key = 0; key < 100; key++) {
        assert_int_equal(fixture_push(f, 0, 0, ROWS, key, 1.0F), SL_SHARD_DONE);
    }
    restore(f);
    fixture_tick_all(f, 0);
    spec.policy.ttl_steps = 8;
    assert_true(sl_shard_iteration_due(f->shard));
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), SL_ERR_CANCELLED);
    fixture_commit(f);
    assert_int_equal(row_count(f), 100);
    assert_int_equal(sl_shard_table_open(f->shard, ROWS, &spec, &f->reason), 0);
    for (uint32_t clock = 1; clock < 20; clock++) {
        assert_int_equal(fixture_push(f, 0, clock, ROWS, 1000, 1.0F), SL_SHARD_DONE);
        fixture_tick_all(f, clock);
        fixture_commit(f);
    }
    assert_int_equal(row_count(f), 1);
}

/* The snapshot in progress would have rows of one policy and waiting keys of the other. The next
 * one is a full one. */
CASE(replace_policy__ends_a_snapshot)
{
    struct sl_shard_snapshot_base *base;
    assert_int_equal(reopen(f, &counting), 0);
    push(f, 0, 3000);
    restore(f);
    struct shard_stream full = snapshot_of(f->shard, NULL, &base);
    shard_stream_fini(&full);
    struct sl_shard_snapshot_options options = {.base = base};
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    assert_false(sl_shard_snapshot_is_full(f->shard));
    (void)sl_shard_snapshot_run(f->shard, 10);
    assert_int_equal(reopen(f, &bloom), 0);
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_FAILED);
    assert_non_null(strstr(sl_shard_snapshot_why(f->shard), "another policy"));
    snapshot_end(f);
    push(f, 0, 100);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &options), 0);
    assert_true(sl_shard_snapshot_is_full(f->shard));
    snapshot_end(f);
    sl_shard_snapshot_base_destroy(&base);
    struct sl_shard *copy = snapshot_copy(f->shard);
    snapshot_same(f->shard, copy);
    sl_shard_destroy(&copy);
}

/* A backup that loaded the same snapshot follows the open. */
CASE(replace_policy__a_backup_follows)
{
    static struct fixture backup;
    assert_int_equal(reopen(f, &plain), 0);
    push(f, 0, 100);
    backup.shard = snapshot_copy(f->shard);
    restore(f);
    struct fixture *const both[] = {f, &backup};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(reopen(both[i], &counting), 0);
        push(both[i], 50, 100);
        push(both[i], 50, 80);
    }
    assert_int_equal(waiting_count(f), 50);
    snapshot_same(f->shard, backup.shard);
    sl_shard_destroy(&backup.shard);
}

/* Shards of one checkpoint may have been caught on both sides of the replacement. */
CASE(replace_policy__a_load_takes_the_later_one)
{
    struct sl_shard *made = NULL;
    struct shard_stream streams[2];
    assert_int_equal(reopen(f, &counting), 0);
    push(f, 0, 100);
    shard_stream_make(f->shard, NULL, SL_SNAPSHOT_BLOCK_BYTES, &streams[0]);
    restore(f);
    assert_int_equal(reopen(f, &plain), 0);
    push(f, 0, 100);
    shard_stream_make(f->shard, NULL, SL_SNAPSHOT_BLOCK_BYTES, &streams[1]);
    for (uint32_t i = 0; i < 2; i++) {
        snapshot_load(&streams[i], &made);
        shard_stream_fini(&streams[i]);
    }
    assert_int_equal(made->tables[ROWS]->spec.policy.ttl_steps, 1000);
    assert_int_equal(sl_sparse_table_row_count(made->tables[ROWS]->sparse), 100);
    sl_shard_destroy(&made);
}
