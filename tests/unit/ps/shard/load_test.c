/* Shards whose snapshots are loaded are what they were, bit for bit, whatever the number of shards;
 * and bytes that are no snapshot of a shard are refused. */

#include "ps/shard/snapshot.h"
#include "tests/support/shard_stream.h"
#include "tests/support/shard_work.h"
#include "tests/support/unit.h"

#define BLOCK_BYTES 40000 /* short, so that arrays and pushes are cut into pieces */

static struct sl_reason reason;

static void assert_no_difference(const char *difference)
{
    if (difference != NULL) {
        fail_msg("%s", difference);
    }
}

static void load(const struct shard_stream *stream, struct sl_shard *shard, uint32_t key_budget)
{
    const int err = shard_stream_load(stream, shard, key_budget, &reason);
    if (err != 0) {
        fail_msg("%s", reason.text);
    }
}

/* All shards of the cluster, loaded from all snapshots of another one. */
static void restore(const struct shard_stream *streams, uint32_t stream_count, uint32_t count,
                    struct shard_work *out)
{
    shard_work_init(out, count, false, 99);
    for (uint32_t s = 0; s < count; s++) {
        for (uint32_t i = 0; i < stream_count; i++) {
            load(&streams[i], out->shards[s], 50);
        }
    }
}

static void make_all(const struct shard_work *work, struct shard_stream *streams)
{
    for (uint32_t s = 0; s < work->count; s++) {
        shard_stream_make(work->shards[s], NULL, BLOCK_BYTES, &streams[s]);
    }
}

static void fini_all(struct shard_stream *streams, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        shard_stream_fini(&streams[i]);
    }
}

/* The same shard: everything, also buffered pushes and clocks; and all later requests have the same
 * effect on both. */
SL_CASE(shard_load__the_same_shard_goes_on_as_it_would_have)
{
    uint64_t buffered = 0;
    for (uint64_t seed = 1; seed <= 6; seed++) {
        struct shard_work was;
        shard_work_init(&was, 1, true, seed);
        shard_work_run(&was, 700);
        if (seed > 3) {
            shard_work_come_and_go(&was);
            shard_work_run(&was, 100);
        }
        struct shard_stream stream;
        shard_stream_make(was.shards[0], NULL, BLOCK_BYTES, &stream);
        struct shard_work is = was;
        is.shards[0] = shard_work_shard(0, 1, 0);
        load(&stream, is.shards[0], seed % 2 == 0 ? 1 : 8192);
        assert_no_difference(shard_stream_differ_at_all(was.shards[0], is.shards[0]));
        shard_work_run(&was, 300);
        shard_work_run(&is, 300);
        assert_no_difference(shard_stream_differ_at_all(was.shards[0], is.shards[0]));
        buffered += stream.end.records[SL_SNAPSHOT_BUFFERED_PUSH];
        shard_stream_fini(&stream);
        shard_work_fini(&is);
        shard_work_fini(&was);
    }
    assert_true(buffered > 20);
}

/* The comparison above can fail. */
SL_CASE(shard_load__a_difference_is_seen)
{
    struct shard_work work;
    shard_work_init(&work, 1, true, 5);
    shard_work_run(&work, 300);
    struct shard_stream stream;
    shard_stream_make(work.shards[0], NULL, BLOCK_BYTES, &stream);
    struct sl_shard *other = shard_work_shard(0, 1, 0);
    load(&stream, other, 8192);
    shard_work_run(&work, 1);
    assert_non_null(shard_stream_differ_at_all(work.shards[0], other));
    sl_shard_destroy(&other);
    shard_stream_fini(&stream);
    shard_work_fini(&work);
}

/* One shard of three, with its buffered pushes. */
SL_CASE(shard_load__one_shard_of_three)
{
    struct shard_work work;
    shard_work_init(&work, 3, true, 11);
    shard_work_run(&work, 900);
    struct shard_stream streams[3];
    make_all(&work, streams);
    for (uint32_t s = 0; s < 3; s++) {
        struct sl_shard *shard = shard_work_shard(s, 3, 0);
        load(&streams[s], shard, 100);
        assert_no_difference(shard_stream_differ_at_all(work.shards[s], shard));
        sl_shard_destroy(&shard);
    }
    fini_all(streams, 3);
    shard_work_fini(&work);
}

/* 1 -> 3 -> 2 -> 1. */
SL_CASE(shard_load__onto_another_number_of_shards)
{
    struct shard_work one;
    struct shard_work three;
    struct shard_work two;
    struct shard_work again;
    struct shard_stream streams[3];
    shard_work_init(&one, 1, true, 21);
    shard_work_run(&one, 900);

    make_all(&one, streams);
    restore(streams, 1, 3, &three);
    assert_no_difference(shard_stream_differ(one.shards, 1, three.shards, 3));
    fini_all(streams, 1);

    make_all(&three, streams);
    restore(streams, 3, 2, &two);
    assert_no_difference(shard_stream_differ(one.shards, 1, two.shards, 2));
    fini_all(streams, 3);

    make_all(&two, streams);
    restore(streams, 2, 1, &again);
    assert_no_difference(shard_stream_differ(one.shards, 1, again.shards, 1));
    assert_no_difference(shard_stream_differ(again.shards, 1, one.shards, 1));
    fini_all(streams, 2);

    shard_work_fini(&again);
    shard_work_fini(&two);
    shard_work_fini(&three);
    shard_work_fini(&one);
}

/* Three shards, a full snapshot and two incremental ones of each, onto the same shards and onto
 * two. */
SL_CASE(shard_load__incremental_snapshots)
{
    struct shard_work work;
    struct shard_stream streams[9]; /* of shard 0 in order, of shard 1, of shard 2 */
    struct shard_stream_base bases[3];
    shard_work_init(&work, 3, true, 31);
    for (uint32_t step = 0; step < 3; step++) {
        shard_work_run(&work, step == 0 ? 600 : 150);
        for (uint32_t s = 0; s < 3; s++) {
            shard_stream_make(work.shards[s], step == 0 ? NULL : &bases[s], BLOCK_BYTES,
                              &streams[s * 3 + step]);
            shard_stream_base_of(work.shards[s], &bases[s]);
        }
    }
    assert_true(streams[1].end.records[SL_SNAPSHOT_ROWS] <
                streams[0].end.records[SL_SNAPSHOT_ROWS]);
    assert_true(streams[1].end.records[SL_SNAPSHOT_ROWS] > 0);
    for (uint32_t s = 0; s < 3; s++) {
        struct sl_shard *shard = shard_work_shard(s, 3, 0);
        for (uint32_t step = 0; step < 3; step++) {
            load(&streams[s * 3 + step], shard, 100);
        }
        assert_no_difference(shard_stream_differ_at_all(work.shards[s], shard));
        sl_shard_destroy(&shard);
    }
    struct shard_work two;
    restore(streams, 9, 2, &two);
    assert_no_difference(shard_stream_differ(work.shards, 3, two.shards, 2));
    assert_no_difference(shard_stream_differ(two.shards, 2, work.shards, 3));
    shard_work_fini(&two);
    fini_all(streams, 9);
    shard_work_fini(&work);
}

/* What a snapshot makes while the shard serves, with pushes between its slices. *base: what it adds
 * to, or NULL; then of it. */
static void snapshot(struct shard_work *work, uint32_t shard, struct sl_shard_snapshot_base **base,
                     struct shard_stream *out)
{
    const struct sl_shard_snapshot_options options = {.base = *base};
    struct sl_shard *of = work->shards[shard];
    assert_int_equal(sl_shard_snapshot_begin(of, &options), 0);
    *out = (struct shard_stream){0};
    while (shard_stream_snapshot(of, 40, out)) {
        shard_work_run(work, 2);
    }
    sl_shard_snapshot_base_destroy(base);
    sl_shard_snapshot_end(of, base);
    assert_non_null(*base);
}

/* The shard as it was when the snapshot began: from a second snapshot, made at once in that
 * moment. */
static struct sl_shard *as_it_was(struct sl_shard *shard, uint32_t index, uint32_t count)
{
    struct shard_stream stream;
    struct sl_shard *copy = shard_work_shard(index, count, 0);
    shard_stream_make(shard, NULL, BLOCK_BYTES, &stream);
    load(&stream, copy, 8192);
    shard_stream_fini(&stream);
    return copy;
}

/* A shard that has been loaded is a base for what changes from then on. */
SL_CASE(shard_load__then_what_has_changed_since)
{
    struct shard_work work;
    shard_work_init(&work, 1, true, 51);
    shard_work_run(&work, 400);
    struct shard_stream full;
    shard_stream_make(work.shards[0], NULL, BLOCK_BYTES, &full);
    struct shard_work is = work;
    is.shards[0] = shard_work_shard(0, 1, 0);
    load(&full, is.shards[0], 8192);
    struct sl_shard_snapshot_base *base = NULL;
    assert_int_equal(sl_shard_snapshot_base_create(is.shards[0], &base), 0);
    shard_work_run(&is, 100);
    struct sl_shard *was = as_it_was(is.shards[0], 0, 1);
    struct shard_stream adds;
    snapshot(&is, 0, &base, &adds);
    assert_true(adds.end.records[SL_SNAPSHOT_ROWS] < full.end.records[SL_SNAPSHOT_ROWS]);
    struct sl_shard *again = shard_work_shard(0, 1, 0);
    load(&full, again, 8192);
    load(&adds, again, 8192);
    assert_no_difference(shard_stream_differ_at_all(was, again));
    sl_shard_destroy(&again);
    sl_shard_destroy(&was);
    sl_shard_snapshot_base_destroy(&base);
    shard_stream_fini(&adds);
    shard_stream_fini(&full);
    shard_work_fini(&is);
    shard_work_fini(&work);
}

/* A snapshot of a shard that does nothing meanwhile. *base: what it adds to, or NULL; then of it.
 */
static void take(struct sl_shard *shard, struct sl_shard_snapshot_base **base,
                 struct shard_stream *out)
{
    const struct sl_shard_snapshot_options options = {.base = *base};
    assert_int_equal(sl_shard_snapshot_begin(shard, &options), 0);
    *out = (struct shard_stream){0};
    while (shard_stream_snapshot(shard, 1000, out)) {
    }
    sl_shard_snapshot_base_destroy(base);
    sl_shard_snapshot_end(shard, base);
    assert_non_null(*base);
}

static uint32_t count_erased(const struct shard_stream *streams, uint32_t count)
{
    uint32_t keys = 0;
    for (uint32_t i = 0; i < count; i++) {
        for (const struct sl_snapshot_block *at = streams[i].first; at != NULL; at = at->next) {
            keys += at->kind == SL_SNAPSHOT_ERASED ? at->count : 0;
        }
    }
    return keys;
}

/* Three shards, a full snapshot and three incremental ones with erased rows, onto one, two and
 * three shards: no erased row comes back. */
SL_CASE(shard_load__erased_rows_stay_erased)
{
    struct shard_work work;
    struct shard_stream streams[12]; /* of shard 0 in order, of shard 1, of shard 2 */
    struct sl_shard_snapshot_base *bases[3] = {NULL};
    shard_work_init(&work, 3, true, 61);
    for (uint32_t step = 0; step < 4; step++) {
        shard_work_run(&work, step == 0 ? 600 : 60);
        shard_work_erase(&work, 40);
        shard_work_run(&work, 30);
        for (uint32_t s = 0; s < 3; s++) {
            take(work.shards[s], &bases[s], &streams[s * 4 + step]);
        }
    }
    assert_true(count_erased(streams, 12) > 500);
    for (uint32_t count = 1; count <= 3; count++) {
        struct shard_work again;
        restore(streams, 12, count, &again);
        assert_no_difference(shard_stream_differ(work.shards, 3, again.shards, count));
        assert_no_difference(shard_stream_differ(again.shards, count, work.shards, 3));
        shard_work_fini(&again);
    }
    for (uint32_t s = 0; s < 3; s++) {
        sl_shard_snapshot_base_destroy(&bases[s]);
    }
    fini_all(streams, 12);
    shard_work_fini(&work);
}
