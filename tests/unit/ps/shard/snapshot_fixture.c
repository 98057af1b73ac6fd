#include "snapshot_fixture.h"
#include "core/reason.h"

#include <stdio.h>

const struct sl_shard_snapshot_options snapshot_everything;
uint64_t snapshot_keys[SNAPSHOT_KEYS];
float snapshot_gradients[SNAPSHOT_KEYS * 8];

void snapshot_fill(uint32_t count, uint64_t first, float value)
{
    for (uint32_t i = 0; i < count; i++) {
        snapshot_keys[i] = first + i;
    }
    for (uint32_t i = 0; i < count * 8; i++) {
        snapshot_gradients[i] = value;
    }
}

uint32_t snapshot_slice(struct fixture *f, uint32_t budget, int wanted)
{
    uint32_t spent;
    assert_int_equal(sl_shard_run(f->shard, &f->work, f->reply, budget, &spent, &f->reason),
                     wanted);
    return spent;
}

void snapshot_run_to_end(struct fixture *f)
{
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
}

void snapshot_open_table(struct fixture *f, uint32_t id, enum sl_table_kind kind, uint32_t dim,
                         uint64_t length)
{
    struct sl_table_spec spec = {
        .kind = kind,
        .dim = dim,
        .length = length,
        .optimizer =
            sl_optimizer_defaults(kind == SL_TABLE_KV ? SL_OPTIMIZER_SUM : SL_OPTIMIZER_ADAM),
    };
    (void)snprintf(spec.name, sizeof spec.name, "more%u", id);
    assert_int_equal(sl_shard_table_open(f->shard, id, &spec, &f->reason), 0);
}

void snapshot_push_wide(struct fixture *f, uint32_t count, uint64_t first, uint32_t dim)
{
    static float wide[256 * 1024];
    snapshot_fill(count, first, 0);
    for (uint32_t i = 0; i < count * dim; i++) {
        wide[i] = 0.5F;
    }
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, WIDE, snapshot_keys, count, wide, dim);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

/* Block by block, as long as somebody says that there are some; then there are none. */
void snapshot_clean(struct sl_shard *shard)
{
    while (sl_shard_snapshot_has_spare(shard)) {
        const size_t bytes = sl_shard_snapshot_memory_bytes(shard);
        sl_shard_snapshot_clean(shard);
        assert_true(sl_shard_snapshot_memory_bytes(shard) < bytes);
        assert_true(bytes - sl_shard_snapshot_memory_bytes(shard) <= SL_SNAPSHOT_BLOCK_BYTES + 64);
    }
}

void snapshot_end(struct fixture *f)
{
    sl_shard_snapshot_end(f->shard, NULL);
    assert_int_equal(sl_shard_snapshot_state(f->shard), SL_SHARD_SNAPSHOT_NONE);
    snapshot_clean(f->shard);
    assert_int_equal(sl_shard_snapshot_memory_bytes(f->shard), 0);
}

struct shard_stream snapshot_finish(struct sl_shard *shard, struct sl_shard_snapshot_base **base)
{
    struct shard_stream stream = {0};
    while (shard_stream_snapshot(shard, 50, &stream)) {
    }
    sl_shard_snapshot_end(shard, base);
    snapshot_clean(shard);
    assert_int_equal(sl_shard_snapshot_memory_bytes(shard), 0);
    return stream;
}

struct shard_stream snapshot_of(struct sl_shard *shard, const struct sl_shard_snapshot_base *from,
                                struct sl_shard_snapshot_base **base)
{
    const struct sl_shard_snapshot_options options = {.base = from};
    assert_int_equal(sl_shard_snapshot_begin(shard, &options), 0);
    return snapshot_finish(shard, base);
}

uint64_t snapshot_records(const struct shard_stream *stream)
{
    return stream->end.records[SL_SNAPSHOT_ROWS] + stream->end.records[SL_SNAPSHOT_DENSE] +
           stream->end.records[SL_SNAPSHOT_KV];
}

void snapshot_load(const struct shard_stream *stream, struct sl_shard **shard)
{
    const struct sl_shard_options options = {.count = 1};
    struct sl_reason reason;
    if (*shard == NULL) {
        assert_int_equal(sl_shard_create(&options, shard), 0);
    }
    if (shard_stream_load(stream, *shard, 1000, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
}

struct sl_shard *snapshot_copy(struct sl_shard *shard)
{
    struct sl_shard *copy = NULL;
    struct shard_stream stream;
    shard_stream_make(shard, NULL, SL_SNAPSHOT_BLOCK_BYTES, &stream);
    snapshot_load(&stream, &copy);
    shard_stream_fini(&stream);
    return copy;
}

void snapshot_same(struct sl_shard *a, struct sl_shard *b)
{
    const char *difference = shard_stream_differ_at_all(a, b);
    if (difference != NULL) {
        fail_msg("%s", difference);
    }
}

void snapshot_check(struct sl_shard *still, struct shard_stream *stream)
{
    struct sl_shard *made = NULL;
    snapshot_load(stream, &made);
    snapshot_same(still, made);
    sl_shard_destroy(&made);
    sl_shard_destroy(&still);
    shard_stream_fini(stream);
}
