/* Snapshots of shards: any sequence of blocks is refused, or loaded into a shard that can be used;
 * a snapshot of that shard is loaded again, the same bit for bit. Also a block of sessions, whose
 * records are encoded as they were decoded. The input: the shard of the snapshot, and the blocks as
 * shard_stream_pack has them. */
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/shard/snapshot.h"
#include "tests/fuzz/input.h"
#include "tests/support/shard_stream.h"

#define MEMORY_BYTES  ((size_t)2 << 20)
#define STAGING_BYTES ((size_t)1 << 20)
#define SHARDS        3
#define COMMITS       10000 /* slices, more than such snapshots need */

static struct sl_reason reason;

static struct sl_shard *shard_of(uint32_t index, uint32_t count, size_t memory_bytes_max)
{
    const struct sl_shard_options options = {
        .index = index,
        .count = count,
        .memory_bytes_max = memory_bytes_max,
        .push_buffer_bytes_max = STAGING_BYTES,
    };
    struct sl_shard *shard;
    sl_assert(sl_shard_create(&options, &shard) == 0);
    return shard;
}

static void commit(struct sl_shard *shard)
{
    for (uint32_t i = 0; sl_shard_iteration_due(shard); i++) {
        sl_assert(i < COMMITS);
        (void)sl_shard_apply_iteration(shard, 1000);
    }
}

/* A snapshot of the shard, loaded, gives the same shard again. */
static void check_snapshot(struct sl_shard *shard, uint32_t index, uint32_t count)
{
    const struct sl_shard_snapshot_options options = {.base = NULL};
    struct shard_stream snapshot = {0};
    sl_assert(sl_shard_snapshot_begin(shard, &options) == 0);
    while (shard_stream_snapshot(shard, 1000, &snapshot)) {
    }
    sl_shard_snapshot_end(shard, NULL);
    struct sl_shard *again = shard_of(index, count, 0);
    sl_assert(shard_stream_load(&snapshot, again, 1000, &reason) == 0);
    sl_assert(shard_stream_differ_at_all(shard, again) == NULL);
    sl_shard_destroy(&again);
    shard_stream_fini(&snapshot);
}

/* Workers go, so that all that they had pushed takes effect, or none. */
static void use(struct sl_shard *shard)
{
    commit(shard);
    for (uint32_t worker = 0; worker < 4; worker++) {
        const struct sl_shard_worker at = sl_shard_worker_find(shard, worker);
        (void)sl_shard_worker_join(shard, worker, at.clock);
        if (worker % 2 == 0) {
            sl_shard_worker_expired(shard, worker);
        } else {
            sl_shard_worker_left(shard, worker);
        }
        commit(shard);
    }
    struct sl_message_stats stats = {0};
    sl_assert(sl_shard_stats(shard, &stats) == 0);
    for (uint32_t i = 0; i < stats.table_count; i++) {
        sl_assert(stats.tables[i].bytes <= MEMORY_BYTES);
    }
    struct sl_message message = {.kind = SL_MESSAGE_STATS, .stats = stats};
    sl_message_fini(&message);
}

static void check_sessions(const uint8_t *bytes, size_t byte_count)
{
    static _Alignas(8) uint8_t payload[4096];
    struct sl_snapshot_block *block;
    struct sl_snapshot_session session;
    byte_count = (byte_count < sizeof payload ? byte_count : sizeof payload) / 8 * 8;
    if (byte_count > 0) {
        memcpy(payload, bytes, byte_count);
    }
    sl_assert(sl_snapshot_block_create(sizeof payload, &block) == 0);
    sl_snapshot_block_begin(block, SL_SNAPSHOT_SESSIONS, 0);
    struct sl_bytes cursor = sl_bytes_over(payload, byte_count);
    while (sl_snapshot_take_session(&cursor, &session)) {
        sl_assert(sl_snapshot_put_session(block, &session));
    }
    sl_assert(memcmp(block->payload, payload, block->bytes) == 0);
    sl_snapshot_block_destroy(&block);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    const uint8_t who = sl_bytes_u8(&input);
    const uint32_t snapshot_count = 1 + who % SHARDS;
    const uint32_t stream_shard = who / SHARDS % snapshot_count;
    const uint32_t count = who >= 128 ? 1U + who % 2 : snapshot_count;
    const uint32_t index = who >= 128 ? 0 : stream_shard;
    check_sessions(input.next, input.left);
    struct sl_shard *shard = shard_of(index, count, MEMORY_BYTES);
    reason.text[0] = '\0';
    const int err = shard_stream_load_packed(input.next, input.left, stream_shard, snapshot_count,
                                             shard, &reason);
    if (err == 0) {
        check_snapshot(shard, index, count);
        use(shard);
        check_snapshot(shard, index, count);
    } else {
        sl_assert(err == SL_ERR_CORRUPT || err == SL_ERR_NO_MEMORY);
        sl_assert(reason.text[0] != '\0');
    }
    sl_shard_destroy(&shard);
    return 0;
}
