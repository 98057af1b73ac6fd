/* Bytes that are no snapshot of a shard are refused, and a damaged snapshot does no harm. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/partition.h"
#include "ps/shard/load.h"
#include "tests/support/shard_stream.h"
#include "tests/support/shard_work.h"
#include "tests/support/unit.h"

#define BLOCK_BYTES 40000

static struct sl_reason reason;

static void load(const struct shard_stream *stream, struct sl_shard *shard, uint32_t key_budget)
{
    const int err = shard_stream_load(stream, shard, key_budget, &reason);
    if (err != 0) {
        fail_msg("%s", reason.text);
    }
}

static struct sl_snapshot_table a_table(const char *name, enum sl_table_kind kind)
{
    struct sl_snapshot_table table = {
        .spec = {.kind = kind,
                 .dim = kind == SL_TABLE_SPARSE ? 2
                        : kind == SL_TABLE_KV   ? 4
                                                : 0,
                 .length = kind == SL_TABLE_DENSE ? 1100 : 0,
                 .optimizer = sl_optimizer_defaults(kind == SL_TABLE_KV ? SL_OPTIMIZER_SUM
                                                                        : SL_OPTIMIZER_ADAM_ASYNC)},
        .step = 3,
        .state = {.beta1_power = 0.5F, .beta2_power = 0.25F},
    };
    if (kind != SL_TABLE_KV) {
        table.spec.consistency =
            (struct sl_consistency_spec){.mode = SL_CONSISTENCY_BSP, .worker_count = 2};
    }
    (void)snprintf(table.spec.name, sizeof table.spec.name, "%s", name);
    return table;
}

static void append_table(struct shard_stream *stream, uint32_t id, const char *name,
                         enum sl_table_kind kind, uint64_t step)
{
    struct sl_snapshot_table table = a_table(name, kind);
    table.step = step;
    table.state.beta1_power = (float)step / 16;
    sl_snapshot_put_table(
        shard_stream_append(stream, SL_SNAPSHOT_TABLE, id, SL_SNAPSHOT_TABLE_BYTES), id, &table);
}

static void append_row(struct shard_stream *stream, uint32_t id, uint64_t key)
{
    const float floats[7] = {1, 2, 3, 4, 5, 6, 7};
    const struct sl_snapshot_record record = {
        .key = key, .last_step = 1, .count = 1, .floats = floats};
    assert_true(
        sl_snapshot_put_record(shard_stream_append(stream, SL_SNAPSHOT_ROWS, id, 256), &record, 6));
}

static void append_buffered(struct shard_stream *stream, uint32_t id, uint32_t worker,
                            uint32_t clock, uint64_t count, uint64_t first, uint32_t here)
{
    struct sl_snapshot_block *block =
        shard_stream_append(stream, SL_SNAPSHOT_BUFFERED_PUSH, id, 40 + here * 16);
    const struct sl_snapshot_buffered_push piece = {
        .worker = worker, .clock = clock, .count = first + here, .first = first};
    uint64_t *keys;
    float *gradients;
    assert_int_equal(sl_snapshot_put_buffered_push(block, &piece, 2, &keys, &gradients), here);
    memcpy(block->payload + 8, &count, sizeof count);
    for (uint32_t i = 0; i < here; i++) {
        keys[i] = first + i;
        gradients[2 * i] = gradients[2 * i + 1] = 1;
    }
}

static void append_clock(struct shard_stream *stream, uint32_t worker, uint32_t clock)
{
    const struct sl_clocks_worker record = {.clock = clock, .seen = true};
    assert_true(sl_snapshot_put_clock(shard_stream_append(stream, SL_SNAPSHOT_CLOCKS, 0, 64),
                                      worker, &record));
}

static void append_end(struct shard_stream *stream, uint32_t shard, uint32_t shard_count)
{
    stream->end = (struct sl_snapshot_end){.shard = shard, .shard_count = shard_count};
    for (const struct sl_snapshot_block *block = stream->first; block != NULL;
         block = block->next) {
        sl_snapshot_end_add(&stream->end, block);
    }
    sl_snapshot_put_end(shard_stream_append(stream, SL_SNAPSHOT_END, 0, SL_SNAPSHOT_END_BYTES),
                        &stream->end);
}

/* Loads it into shard 0 of 1, and forgets both. */
static int load_alone(struct shard_stream *stream, size_t memory_bytes_max)
{
    struct sl_shard *shard = shard_work_shard(0, 1, memory_bytes_max);
    reason.text[0] = '\0';
    const int err = shard_stream_load(stream, shard, 8192, &reason);
    sl_shard_destroy(&shard);
    shard_stream_fini(stream);
    return err;
}

/* "table NAME", "dense", "row TABLE KEY", "push WORKER CLOCK FIRST HERE OF" (keys), "clock WORKER
 * CLOCK", "xerased TABLE KEY", "end SHARD OF". */
static void append(struct shard_stream *stream, const char *text)
{
    const char *rest = strchr(text, ' ');
    uint32_t n[5] = {0};
    if (rest != NULL) {
        (void)sscanf(rest, "%u %u %u %u %u", &n[0], &n[1], &n[2], &n[3], &n[4]);
    }
    switch (text[0]) {
    case 't':
        append_table(stream, 0, rest + 1, SL_TABLE_SPARSE, 3);
        break;
    case 'd':
        append_table(stream, 1, "w", SL_TABLE_DENSE, 3);
        break;
    case 'r':
        append_row(stream, n[0], n[1]);
        break;
    case 'x':
        assert_true(
            sl_snapshot_put_erased(shard_stream_append(stream, SL_SNAPSHOT_ERASED, n[0], 8), n[1]));
        break;
    case 'p':
        append_buffered(stream, 0, n[0], n[1], n[4], n[2], n[3]);
        break;
    case 'c':
        append_clock(stream, n[0], n[1]);
        break;
    default:
        append_end(stream, n[0], n[1]);
    }
}

SL_CASE(shard_load__refuses_what_is_no_snapshot)
{
    static const struct {
        const char *says;
        const char *records[6];
    } CASES[] = {
        {"has no end", {"table emb"}},
        {"behind its end", {"end 0 1", "clock 0 1"}},
        {"it is of shard 1 of 2", {"end 1 2"}},
        {"table 7 has not been named before", {"row 7 5", "end 0 1"}},
        {"a block of rows of table w: the table is of another kind",
         {"dense", "row 1 0", "end 0 1"}},
        {"embeddings", {"table emb", "table embeddings", "end 0 1"}},
        {"a buffered push is not complete",
         {"table emb", "push 1 4 0 4 10", "clock 1 4", "end 0 1"}},
        {"a block of staged of table emb: record 0 of 1 is invalid",
         {"table emb", "push 1 4 0 4 10", "push 1 4 5 5 10", "clock 1 4", "end 0 1"}},
        {"worker/1, at iteration 4, has pushed to table emb in iteration 5",
         {"table emb", "push 1 5 0 4 4", "clock 1 4", "end 0 1"}},
        {"a block of erased of table emb: it stands behind buffered pushes",
         {"table emb", "push 1 4 0 4 4", "xerased 0 1", "clock 1 4", "end 0 1"}},
        {"a block of erased of table w: the table is of another kind",
         {"dense", "xerased 1 0", "end 0 1"}},
        {"worker/2", /* nobody waits for it */
         {"table emb", "push 2 4 0 4 4", "clock 2 4", "end 0 1"}},
        {"pushes of worker/1 go back to iteration 3",
         {"table emb", "push 1 4 0 4 4", "push 1 3 0 4 4", "clock 1 4", "end 0 1"}},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct shard_stream stream = {0};
        for (size_t k = 0; k < 6 && CASES[i].records[k] != NULL; k++) {
            append(&stream, CASES[i].records[k]);
        }
        stream.end = (struct sl_snapshot_end){.shard_count = 1};
        assert_int_equal(load_alone(&stream, 0), SL_ERR_CORRUPT);
        if (strstr(reason.text, CASES[i].says) == NULL) {
            fail_msg("\"%s\" does not say \"%s\"", reason.text, CASES[i].says);
        }
    }
}

SL_CASE(shard_load__a_snapshot_that_lacks_a_block)
{
    struct shard_stream stream = {0};
    append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
    append_row(&stream, 0, 5);
    append_end(&stream, 0, 1);
    struct sl_snapshot_block *rows = stream.first->next;
    stream.first->next = rows->next;
    sl_snapshot_block_destroy(&rows);
    assert_int_equal(load_alone(&stream, 0), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "it counts 1 records of rows, and 0 came"));
}

/* Key 1 belongs to one of two shards, so that no snapshot of the other can have it. */
SL_CASE(shard_load__a_row_of_another_shard)
{
    int corrupt = 0;
    for (uint32_t s = 0; s < 2; s++) {
        struct shard_stream stream = {0};
        append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
        append_row(&stream, 0, 1);
        append_end(&stream, s, 2);
        const int err = load_alone(&stream, 0);
        corrupt += err == SL_ERR_CORRUPT &&
                   strstr(reason.text, "key 1 does not belong to that shard") != NULL;
        assert_true(err == 0 || err == SL_ERR_CORRUPT);
    }
    assert_int_equal(corrupt, 1);
}

/* A stream with a table that counts keys by a filter of two blocks, and one block of it. */
static int load_filter_block(uint64_t number, uint32_t floats)
{
    static const float counters[SL_PARTITION_BLOCK_ELEMENTS];
    const struct sl_snapshot_record record = {.key = number, .last_step = 1, .floats = counters};
    struct shard_stream stream = {0};
    struct sl_snapshot_table table = a_table("emb", SL_TABLE_SPARSE);
    table.spec.consistency = (struct sl_consistency_spec){0};
    table.spec.policy = (struct sl_policy_spec){
        .admission = SL_ADMISSION_BLOOM, .admit_count = 2, .keys_expected = 1000};
    sl_snapshot_put_table(
        shard_stream_append(&stream, SL_SNAPSHOT_TABLE, 0, SL_SNAPSHOT_TABLE_BYTES), 0, &table);
    assert_true(sl_snapshot_put_record(
        shard_stream_append(&stream, SL_SNAPSHOT_WAITING, 0, BLOCK_BYTES), &record, floats));
    append_end(&stream, 0, 1);
    return load_alone(&stream, 0);
}

SL_CASE(shard_load__a_block_of_a_filter)
{
    assert_int_equal(load_filter_block(1, SL_PARTITION_BLOCK_ELEMENTS), 0);
    assert_int_equal(load_filter_block(2, SL_PARTITION_BLOCK_ELEMENTS), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "block 2 does not belong to that shard"));
    assert_int_equal(load_filter_block(0, 8), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "a block of waiting of table emb: record 0 of 1"));
}

SL_CASE(shard_load__memory_ends_and_the_limit_is_named)
{
    struct shard_stream stream = {0};
    append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
    for (uint64_t key = 0; key < 20000; key++) {
        append_row(&stream, 0, key);
    }
    append_end(&stream, 0, 1);
    assert_int_equal(load_alone(&stream, 512 << 10), SL_ERR_NO_MEMORY);
    assert_non_null(strstr(reason.text, "the limit is 524288"));

    stream = (struct shard_stream){0};
    append_table(&stream, 0, "arrays", SL_TABLE_KV, 3);
    const float value = 1;
    const struct sl_snapshot_kv piece = {
        .key = 3, .length = UINT32_MAX, .first = UINT32_MAX - 1, .count = 1, .values = &value};
    assert_int_equal(
        sl_snapshot_put_kv(shard_stream_append(&stream, SL_SNAPSHOT_KV, 0, 64), &piece, 4), 1);
    append_end(&stream, 0, 1);
    assert_int_equal(load_alone(&stream, 1 << 20), SL_ERR_NO_MEMORY);
    assert_non_null(strstr(reason.text, "the limit is 1048576"));
}

/* Of snapshots of another number of shards, the greatest step counts, and the state that goes with
 * it. */
SL_CASE(shard_load__the_greatest_step_brings_its_state)
{
    static const uint64_t steps[3] = {7, 9, 8};
    struct sl_shard *shard = shard_work_shard(0, 1, 0);
    for (uint32_t s = 0; s < 3; s++) {
        struct shard_stream stream = {0};
        append_table(&stream, 0, "emb", SL_TABLE_SPARSE, steps[s]);
        append_end(&stream, s, 3);
        load(&stream, shard, 8192);
        shard_stream_fini(&stream);
    }
    struct shard_stream stream;
    shard_stream_make(shard, NULL, BLOCK_BYTES, &stream);
    struct sl_snapshot_table table;
    assert_int_equal(sl_snapshot_take_table(stream.first, &table, &reason), 0);
    assert_true(table.step == 9);
    assert_true(table.state.beta1_power == 9.0F / 16);
    shard_stream_fini(&stream);
    sl_shard_destroy(&shard);
}

/* A shard that is restored is behind its workers, who join where they are. */
SL_CASE(shard_load_let_ahead__workers_join_ahead)
{
    struct shard_stream stream = {0};
    append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
    append_buffered(&stream, 0, 1, 4, 4, 0, 4);
    const struct sl_clocks_worker clock = {.clock = 4, .seen = true, .began = true, .pushed = true};
    assert_true(
        sl_snapshot_put_clock(shard_stream_append(&stream, SL_SNAPSHOT_CLOCKS, 0, 64), 1, &clock));
    append_clock(&stream, 0, 3);
    append_end(&stream, 0, 1);
    struct sl_shard *shard = shard_work_shard(0, 1, 0);
    load(&stream, shard, 8192);
    assert_int_equal(sl_shard_worker_join(shard, 1, 6), 4);
    sl_shard_load_allow_ahead(shard);
    assert_int_equal(sl_shard_worker_join(shard, 1, 6), 6);
    assert_int_equal(sl_shard_worker_join(shard, 0, 6), 6);
    assert_true(sl_shard_iteration_due(shard)); /* what it had pushed takes effect */
    sl_shard_destroy(&shard);
    shard_stream_fini(&stream);
}

/* Everybody had passed the iteration, but its pushes had not been applied. */
SL_CASE(shard_load__pushes_that_are_due)
{
    struct shard_stream stream = {0};
    append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
    append_buffered(&stream, 0, 1, 4, 4, 0, 4);
    append_clock(&stream, 0, 5);
    append_clock(&stream, 1, 5);
    append_end(&stream, 0, 1);
    struct sl_shard *shard = shard_work_shard(0, 1, 0);
    load(&stream, shard, 8192);
    assert_true(sl_shard_iteration_due(shard));
    sl_shard_destroy(&shard);
    shard_stream_fini(&stream);
}

/* A later snapshot of a shard replaces an earlier one, also if the earlier one had the higher
 * clock. */
SL_CASE(shard_load__clocks_may_go_back)
{
    struct sl_shard *shard = shard_work_shard(0, 1, 0);
    for (uint32_t round = 0; round < 2; round++) {
        const uint32_t clock = round == 0 ? 7 : 3;
        struct shard_stream stream = {0};
        append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
        append_buffered(&stream, 0, 1, clock, 4, 0, 4);
        append_clock(&stream, 0, clock);
        append_clock(&stream, 1, clock);
        append_end(&stream, 0, 1);
        load(&stream, shard, 8192);
        assert_int_equal(sl_shard_clock_min(shard), clock);
        assert_false(sl_shard_iteration_due(shard));
        shard_stream_fini(&stream);
    }
    sl_shard_destroy(&shard);
}

/* A snapshot with a few records of every kind, packed. */
static uint8_t *small_stream(size_t *bytes)
{
    struct shard_stream stream = {0};
    append_table(&stream, 0, "emb", SL_TABLE_SPARSE, 3);
    append_row(&stream, 0, 1);
    append_row(&stream, 0, 2);
    append_table(&stream, 1, "arrays", SL_TABLE_KV, 1);
    const float values[5] = {1, 2, 3, 4, 5};
    const struct sl_snapshot_kv piece = {
        .key = 3, .length = 5, .initialized_count = 5, .count = 5, .values = values};
    assert_int_equal(
        sl_snapshot_put_kv(shard_stream_append(&stream, SL_SNAPSHOT_KV, 1, 64), &piece, 4), 5);
    append_table(&stream, 2, "w", SL_TABLE_DENSE, 1);
    static const float floats[3 * 76];
    const struct sl_snapshot_record record = {.key = 1, .count = 1, .floats = floats};
    assert_true(sl_snapshot_put_record(shard_stream_append(&stream, SL_SNAPSHOT_DENSE, 2, 2048),
                                       &record, 228));
    append_buffered(&stream, 0, 1, 4, 6, 0, 4);
    append_buffered(&stream, 0, 1, 4, 6, 4, 2);
    append_clock(&stream, 1, 4);
    append_clock(&stream, 0, 3);
    append_end(&stream, 0, 1);
    *bytes = shard_stream_pack(&stream, NULL);
    uint8_t *packed = malloc(*bytes);
    assert_non_null(packed);
    (void)shard_stream_pack(&stream, packed);
    shard_stream_fini(&stream);
    return packed;
}

/* What has been loaded can be used, and saved again. */
static void use(struct sl_shard *shard)
{
    for (uint32_t i = 0; sl_shard_iteration_due(shard) && i < 1000; i++) {
        (void)sl_shard_apply_iteration(shard, 100);
    }
    sl_shard_worker_expired(shard, 1);
    sl_shard_worker_left(shard, 0);
    for (uint32_t i = 0; sl_shard_iteration_due(shard) && i < 1000; i++) {
        (void)sl_shard_apply_iteration(shard, 100);
    }
    assert_false(sl_shard_iteration_due(shard));
    struct shard_stream stream;
    shard_stream_make(shard, NULL, BLOCK_BYTES, &stream);
    struct sl_shard *again = shard_work_shard(0, 1, 0);
    load(&stream, again, 8192);
    assert_null(shard_stream_differ_at_all(shard, again));
    sl_shard_destroy(&again);
    shard_stream_fini(&stream);
}

static int load_damaged(const uint8_t *packed, size_t bytes)
{
    struct sl_shard *shard = shard_work_shard(0, 1, 4 << 20);
    reason.text[0] = '\0';
    const int err = shard_stream_load_packed(packed, bytes, 0, 1, shard, &reason);
    if (err == 0) {
        use(shard);
    } else {
        assert_true(err == SL_ERR_CORRUPT || err == SL_ERR_NO_MEMORY);
        assert_true(strlen(reason.text) > 0);
    }
    sl_shard_destroy(&shard);
    return err;
}

SL_CASE(shard_load__snapshot_short_anywhere)
{
    size_t bytes;
    uint8_t *packed = small_stream(&bytes);
    assert_int_equal(load_damaged(packed, bytes), 0);
    for (size_t left = 0; left < bytes; left += STRIDE) {
        uint8_t *part = malloc(left + 1); /* just so long, that a read behind it is seen */
        assert_non_null(part);
        memcpy(part, packed, left);
        assert_int_equal(load_damaged(part, left), SL_ERR_CORRUPT);
        free(part);
    }
    free(packed);
}

/* The same ones each time, and few: the fuzz target `snapshot` looks for others.
 * STARLING_TEST_FLIPS: how many. */
SL_CASE(shard_load__bits_flipped_anywhere)
{
    const char *flips = getenv("STARLING_TEST_FLIPS");
    const uint32_t rounds = flips == NULL ? 600 / STRIDE : (uint32_t)strtoul(flips, NULL, 10);
    size_t bytes;
    uint8_t *packed = small_stream(&bytes);
    uint64_t seed = 3;
    uint32_t refused = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        const size_t at = (size_t)(sl_hash_random(&seed) % bytes);
        const uint8_t bit = (uint8_t)(1U << sl_hash_random(&seed) % 8);
        packed[at] ^= bit;
        refused += load_damaged(packed, bytes) != 0;
        packed[at] ^= bit;
    }
    assert_true(refused > rounds / 20);
    assert_true(refused < rounds);
    free(packed);
}

SL_UNIT_SETUP()
{
    /* The C library shall map a shard's working memory anew each time: else it clears it. */
    (void)mallopt(M_MMAP_THRESHOLD, 128 << 10);
}
