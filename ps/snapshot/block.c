#include "ps/snapshot/block.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/partition.h"
#include "core/rate.h"

/* shortest piece of an array or push that is put at the end of a block */
#define PIECE_BYTES_MIN      4096

#define RECORD_HEADER_BYTES  16
#define KV_HEADER_BYTES      24
#define CLOCK_BYTES          16
#define STAGED_HEADER_BYTES  40
#define SESSION_HEADER_BYTES 48
#define FAILURE_BYTES        16

static_assert(SESSION_HEADER_BYTES + SL_SNAPSHOT_FAILURES * FAILURE_BYTES <=
                  SL_SNAPSHOT_BLOCK_BYTES,
              "a session fits into a block");
static_assert(RECORD_HEADER_BYTES + SL_LIMIT_DIM * sizeof(float) * 8 <= SL_SNAPSHOT_BLOCK_BYTES,
              "a row with seven slots a value fits into a block");
static_assert(PIECE_BYTES_MIN + STAGED_HEADER_BYTES + SL_LIMIT_DIM * sizeof(float) <=
                  SL_SNAPSHOT_BLOCK_BYTES,
              "an empty block takes a piece");

/* Blocks */

int sl_snapshot_block_create(uint32_t capacity, struct sl_snapshot_block **out)
{
    struct sl_snapshot_block *block = malloc(sizeof *block + capacity);
    if (block == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    static_assert(sizeof *block % 8 == 0, "the payload is aligned");
    *block = (struct sl_snapshot_block){.capacity = capacity, .payload = (uint8_t *)(block + 1)};
    *out = block;
    return 0;
}

void sl_snapshot_block_destroy(struct sl_snapshot_block **block)
{
    free(*block);
    *block = NULL;
}

void sl_snapshot_block_begin(struct sl_snapshot_block *block, enum sl_snapshot_kind kind,
                             uint32_t table_id)
{
    sl_assert(table_id < SL_LIMIT_TABLES);
    block->kind = (uint8_t)kind;
    block->table_id = table_id;
    block->count = 0;
    block->bytes = 0;
}

const char *sl_snapshot_kind_name(uint8_t kind)
{
    static const char *const names[SL_SNAPSHOT_KIND_COUNT] = {
        "?",      "table",    "rows", "dense",  "kv",      "clocks",
        "staged", "sessions", "end",  "erased", "waiting",
    };
    return names[kind < SL_SNAPSHOT_KIND_COUNT ? kind : 0];
}

bool sl_snapshot_kind_is_of_table(uint8_t kind)
{
    return (kind >= SL_SNAPSHOT_TABLE && kind <= SL_SNAPSHOT_KV) ||
           kind == SL_SNAPSHOT_BUFFERED_PUSH || kind == SL_SNAPSHOT_ERASED ||
           kind == SL_SNAPSHOT_WAITING;
}

int sl_snapshot_block_check(const struct sl_snapshot_block *block, struct sl_reason *reason)
{
    const char *name = sl_snapshot_kind_name(block->kind);
    const bool of_table = sl_snapshot_kind_is_of_table(block->kind);
    if (block->kind == 0 || block->kind >= SL_SNAPSHOT_KIND_COUNT) {
        sl_reason_set(reason, "a block is of kind %u: accepts 1 to %d", block->kind,
                      SL_SNAPSHOT_KIND_COUNT - 1);
    } else if (block->table_id >= (of_table ? SL_LIMIT_TABLES : 1)) {
        sl_reason_set(reason, "a block of %s names table %u: accepts %s%d", name, block->table_id,
                      of_table ? "0 to " : "", of_table ? SL_LIMIT_TABLES - 1 : 0);
    } else if (block->bytes > SL_SNAPSHOT_BLOCK_BYTES || block->bytes % 8 != 0) {
        sl_reason_set(reason, "a block of %s has %u bytes: accepts multiples of 8 up to %u", name,
                      block->bytes, SL_SNAPSHOT_BLOCK_BYTES);
    } else if (block->count > block->bytes / 8) {
        sl_reason_set(reason, "a block of %s has %u records in %u bytes", name, block->count,
                      block->bytes);
    } else {
        return 0;
    }
    return SL_ERR_CORRUPT;
}

static size_t room(const struct sl_snapshot_block *block)
{
    return block->capacity - block->bytes;
}

/* Appends a record of `bytes` bytes, for which there is room, with its padding zeroed. Returns a
 * writer over it. */
static struct sl_bytes_writer block_append(struct sl_snapshot_block *block, size_t bytes)
{
    const size_t padded = (size_t)sl_bytes_pad8(bytes);
    sl_assert(padded <= room(block));
    uint8_t *at = block->payload + block->bytes;
    memset(at + bytes, 0, padded - bytes);
    block->bytes += (uint32_t)padded;
    block->count++;
    return sl_bytes_writer_over(at, bytes);
}

/* Skips the padding to the next multiple of 8 and checks that it is zero. */
static bool take_padding(struct sl_bytes *cursor, uint64_t bytes)
{
    static const uint8_t zeros[8];
    const size_t padding = (size_t)(sl_bytes_pad8(bytes) - bytes);
    const void *at = sl_bytes_take(cursor, padding);
    return padding == 0 ? !cursor->bad : at != NULL && memcmp(at, zeros, padding) == 0;
}

/* TABLE */

void sl_snapshot_put_table(struct sl_snapshot_block *block, uint32_t table_id,
                           const struct sl_snapshot_table *table)
{
    const struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .table_open = {.spec = table->spec, .table_id = table_id},
    };
    const size_t bytes = sl_message_encoded_bytes(&message);
    sl_snapshot_block_begin(block, SL_SNAPSHOT_TABLE, table_id);
    struct sl_bytes_writer writer = block_append(block, 8 + (size_t)sl_bytes_pad8(bytes) + 32);
    sl_bytes_put_u32(&writer, (uint32_t)bytes);
    sl_bytes_put_u32(&writer, table->row_count);
    uint8_t *encoded = sl_bytes_reserve(&writer, (size_t)sl_bytes_pad8(bytes));
    sl_message_encode(&message, encoded);
    memset(encoded + bytes, 0, (size_t)sl_bytes_pad8(bytes) - bytes);
    sl_bytes_put_u64(&writer, table->step);
    sl_bytes_put(&writer, &table->state.beta1_power, sizeof(float));
    sl_bytes_put(&writer, &table->state.beta2_power, sizeof(float));
    sl_bytes_put_u64(&writer, table->pulled_rows);
    sl_bytes_put_u64(&writer, table->pushed_rows);
    sl_assert(!writer.bad);
}

/* Decodes and checks the table specification. */
static int take_spec(const void *encoded, size_t bytes, uint32_t table_id,
                     struct sl_table_spec *out, struct sl_reason *reason)
{
    struct sl_message message;
    int err = sl_message_decode(encoded, bytes, &message);
    if (err != 0) {
        sl_reason_set(reason, "a table's specification does not decode");
        return err == SL_ERR_NO_MEMORY ? err : SL_ERR_CORRUPT;
    }
    if (message.kind != SL_MESSAGE_TABLE_OPEN || message.table_open.table_id != table_id) {
        err = sl_reason_fail(reason, SL_ERR_CORRUPT,
                             "what stands for a table's specification is another");
    } else if (sl_message_check_spec(&message.table_open.spec, reason) != 0) {
        err = SL_ERR_CORRUPT;
    } else {
        *out = message.table_open.spec;
    }
    sl_message_fini(&message);
    return err;
}

/* Range of AdamAsync's powers of beta1 and beta2: at 1 its step size has no bound. NaN fails
 * too. */
static bool is_power(float power)
{
    return power >= 0 && power < 1;
}

int sl_snapshot_take_table(const struct sl_snapshot_block *block, struct sl_snapshot_table *out,
                           struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_snapshot_records(block);
    const uint32_t bytes = sl_bytes_u32(&cursor);
    struct sl_snapshot_table table = {.row_count = sl_bytes_u32(&cursor)};
    const void *encoded = sl_bytes_take(&cursor, bytes);
    const bool padded = take_padding(&cursor, bytes);
    table.step = sl_bytes_u64(&cursor);
    sl_bytes_copy(&cursor, &table.state.beta1_power, sizeof(float));
    sl_bytes_copy(&cursor, &table.state.beta2_power, sizeof(float));
    table.pulled_rows = sl_bytes_u64(&cursor);
    table.pushed_rows = sl_bytes_u64(&cursor);
    if (block->count != 1 || cursor.bad || !padded || cursor.left != 0) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT,
                              "a block of table has not the length of its record");
    }
    if (!is_power(table.state.beta1_power) || !is_power(table.state.beta2_power)) {
        return sl_reason_fail(
            reason, SL_ERR_CORRUPT,
            "a block of table has powers of beta1 and beta2 that are not in [0, 1)");
    }
    const int err = take_spec(encoded, bytes, block->table_id, &table.spec, reason);
    if (err == 0) {
        *out = table;
    }
    return err;
}

/* ROWS and DENSE */

bool sl_snapshot_put_record(struct sl_snapshot_block *block,
                            const struct sl_snapshot_record *record, uint32_t float_count)
{
    const size_t float_bytes = float_count * sizeof(float);
    if (sl_snapshot_record_bytes(float_count) > room(block)) {
        return false;
    }
    struct sl_bytes_writer writer = block_append(block, RECORD_HEADER_BYTES + float_bytes);
    sl_bytes_put_u64(&writer, record->key);
    sl_bytes_put_u32(&writer, record->last_step);
    sl_bytes_put_u32(&writer, record->count);
    sl_bytes_put(&writer, record->floats, float_bytes);
    return true;
}

bool sl_snapshot_take_record(struct sl_bytes *cursor, uint32_t float_count,
                             struct sl_snapshot_record *out)
{
    *out = (struct sl_snapshot_record){.key = sl_bytes_u64(cursor)};
    out->last_step = sl_bytes_u32(cursor);
    out->count = sl_bytes_u32(cursor);
    out->floats = sl_bytes_take_array(cursor, float_count, sizeof(float));
    return take_padding(cursor, RECORD_HEADER_BYTES + float_count * sizeof(float));
}

uint32_t sl_snapshot_dense_elements(uint64_t length, uint64_t number)
{
    if (number >= (length + SL_PARTITION_BLOCK_ELEMENTS - 1) / SL_PARTITION_BLOCK_ELEMENTS) {
        return 0;
    }
    const uint64_t left = length - number * SL_PARTITION_BLOCK_ELEMENTS;
    return left < SL_PARTITION_BLOCK_ELEMENTS ? (uint32_t)left : SL_PARTITION_BLOCK_ELEMENTS;
}

/* ERASED */

bool sl_snapshot_put_erased(struct sl_snapshot_block *block, uint64_t key)
{
    if (room(block) < sizeof key) {
        return false;
    }
    struct sl_bytes_writer writer = block_append(block, sizeof key);
    sl_bytes_put_u64(&writer, key);
    return true;
}

bool sl_snapshot_take_erased(struct sl_bytes *cursor, uint64_t *key)
{
    *key = sl_bytes_u64(cursor);
    return !cursor->bad;
}

/* KV */

/* Returns how many of `count` items fit behind a header; 0 when only a short piece would fit. */
static uint32_t fitting(const struct sl_snapshot_block *block, size_t header_bytes, uint64_t count,
                        size_t item_bytes)
{
    const size_t left = room(block);
    if (left < header_bytes) {
        return 0;
    }
    const uint64_t most = (left - header_bytes) / item_bytes;
    if (count <= most) {
        return (uint32_t)count;
    }
    return left - header_bytes < PIECE_BYTES_MIN ? 0 : (uint32_t)most;
}

uint32_t sl_snapshot_put_kv(struct sl_snapshot_block *block, const struct sl_snapshot_kv *piece,
                            uint32_t value_bytes)
{
    const uint32_t count = fitting(block, KV_HEADER_BYTES, piece->count, value_bytes);
    if (count == 0) {
        return 0;
    }
    struct sl_bytes_writer writer =
        block_append(block, KV_HEADER_BYTES + (size_t)count * value_bytes);
    sl_bytes_put_u64(&writer, piece->key);
    sl_bytes_put_u32(&writer, piece->length);
    sl_bytes_put_u32(&writer, piece->first);
    sl_bytes_put_u32(&writer, count);
    sl_bytes_put_u32(&writer, piece->initialized_count);
    sl_bytes_put(&writer, piece->values, (size_t)count * value_bytes);
    return count;
}

bool sl_snapshot_take_kv(struct sl_bytes *cursor, uint32_t value_bytes, struct sl_snapshot_kv *out)
{
    *out = (struct sl_snapshot_kv){.key = sl_bytes_u64(cursor)};
    out->length = sl_bytes_u32(cursor);
    out->first = sl_bytes_u32(cursor);
    out->count = sl_bytes_u32(cursor);
    out->initialized_count = sl_bytes_u32(cursor);
    out->values = sl_bytes_take_array(cursor, out->count, value_bytes);
    return take_padding(cursor, KV_HEADER_BYTES + (uint64_t)out->count * value_bytes) &&
           out->count > 0 && out->count <= out->length && out->initialized_count <= out->length &&
           out->first <= out->length - out->count;
}

/* CLOCKS */

enum { HEARD = 1, JOINED = 2, BEGAN = 4, PUSHED = 8 };
enum { RESTORED = 2 }; /* flag of a session, beside HEARD */

bool sl_snapshot_put_clock(struct sl_snapshot_block *block, uint32_t worker,
                           const struct sl_clocks_worker *clock)
{
    if (CLOCK_BYTES > room(block)) {
        return false;
    }
    struct sl_bytes_writer writer = block_append(block, CLOCK_BYTES);
    sl_bytes_put_u32(&writer, worker);
    sl_bytes_put_u32(&writer, clock->clock);
    sl_bytes_put_u8(&writer, clock->state);
    sl_bytes_put_u8(&writer, (uint8_t)((clock->seen ? HEARD : 0) | (clock->joined ? JOINED : 0) |
                                       (clock->began ? BEGAN : 0) | (clock->pushed ? PUSHED : 0)));
    sl_bytes_put_u16(&writer, 0);
    sl_bytes_put_u32(&writer, 0);
    return true;
}

bool sl_snapshot_take_clock(struct sl_bytes *cursor, uint32_t *worker, struct sl_clocks_worker *out)
{
    *worker = sl_bytes_u32(cursor);
    out->clock = sl_bytes_u32(cursor);
    out->state = sl_bytes_u8(cursor);
    const uint8_t flags = sl_bytes_u8(cursor);
    const uint16_t zero = sl_bytes_u16(cursor);
    const uint32_t zeros = sl_bytes_u32(cursor);
    out->seen = (flags & HEARD) != 0;
    out->joined = (flags & JOINED) != 0;
    out->began = (flags & BEGAN) != 0;
    out->pushed = (flags & PUSHED) != 0;
    return !cursor->bad && zero == 0 && zeros == 0 && flags <= (HEARD | JOINED | BEGAN | PUSHED) &&
           *worker < SL_LIMIT_WORKERS && out->state <= SL_CLOCKS_STATE_FINISHED &&
           (out->clock != SL_CLOCKS_FINISHED || out->state != SL_CLOCKS_STATE_ACTIVE);
}

/* BUFFERED_PUSH */

static size_t buffered_item_bytes(uint32_t dim)
{
    return dim == 0 ? sizeof(float) : sizeof(uint64_t) + dim * sizeof(float);
}

uint32_t sl_snapshot_put_buffered_push(struct sl_snapshot_block *block,
                                       const struct sl_snapshot_buffered_push *piece, uint32_t dim,
                                       uint64_t **keys, float **gradients)
{
    const size_t item_bytes = buffered_item_bytes(dim);
    const uint32_t here =
        fitting(block, STAGED_HEADER_BYTES, piece->count - piece->first, item_bytes);
    if (here == 0) {
        return 0;
    }
    struct sl_bytes_writer writer = block_append(block, STAGED_HEADER_BYTES + here * item_bytes);
    sl_bytes_put_u32(&writer, piece->worker);
    sl_bytes_put_u32(&writer, piece->clock);
    sl_bytes_put_u64(&writer, piece->count);
    sl_bytes_put_u64(&writer, piece->start);
    sl_bytes_put_u64(&writer, piece->first);
    sl_bytes_put_u32(&writer, here);
    sl_bytes_put_u32(&writer, sl_rate_to_bits(piece->rate));
    *keys = dim == 0 ? NULL : sl_bytes_reserve(&writer, here * sizeof(uint64_t));
    *gradients = sl_bytes_reserve(&writer, writer.left);
    return here;
}

bool sl_snapshot_take_buffered_push(struct sl_bytes *cursor, uint32_t dim,
                                    struct sl_snapshot_buffered_push *out, const uint64_t **keys,
                                    const float **gradients)
{
    *out = (struct sl_snapshot_buffered_push){.worker = sl_bytes_u32(cursor)};
    out->clock = sl_bytes_u32(cursor);
    out->count = sl_bytes_u64(cursor);
    out->start = sl_bytes_u64(cursor);
    out->first = sl_bytes_u64(cursor);
    out->here = sl_bytes_u32(cursor);
    out->rate = sl_rate_from_bits(sl_bytes_u32(cursor));
    *keys = dim == 0 ? NULL : sl_bytes_take_array(cursor, out->here, sizeof(uint64_t));
    *gradients =
        sl_bytes_take_array(cursor, out->here, dim == 0 ? sizeof(float) : dim * sizeof(float));
    return take_padding(cursor, STAGED_HEADER_BYTES + out->here * buffered_item_bytes(dim)) &&
           sl_rate_is_valid(out->rate) && out->here > 0 && out->worker < SL_LIMIT_WORKERS &&
           out->clock < SL_CLOCKS_FINISHED && out->here <= out->count &&
           out->first <= out->count - out->here && (dim == 0 || out->start == 0);
}

/* SESSIONS */

bool sl_snapshot_put_session(struct sl_snapshot_block *block,
                             const struct sl_snapshot_session *session)
{
    sl_assert(session->failure_count <= SL_SNAPSHOT_FAILURES);
    const size_t bytes = SESSION_HEADER_BYTES + session->failure_count * FAILURE_BYTES;
    if (bytes > room(block)) {
        return false;
    }
    struct sl_bytes_writer writer = block_append(block, bytes);
    sl_bytes_put_u64(&writer, session->client_id);
    sl_bytes_put_u8(&writer, session->role);
    sl_bytes_put_u8(&writer,
                    (uint8_t)((session->heard ? HEARD : 0) | (session->restored ? RESTORED : 0)));
    sl_bytes_put_u16(&writer, 0);
    sl_bytes_put_u32(&writer, session->task_index);
    sl_bytes_put_u64(&writer, session->id_max);
    sl_bytes_put_u64(&writer, session->last_write_id);
    sl_bytes_put_u64(&writer, session->partial_id);
    sl_bytes_put_u32(&writer, session->partial_sections);
    sl_bytes_put_u32(&writer, session->failure_count);
    for (uint32_t i = 0; i < session->failure_count; i++) {
        sl_bytes_put_u64(&writer, session->failures[i].id);
        sl_bytes_put(&writer, &session->failures[i].err, sizeof(int32_t));
        sl_bytes_put_u32(&writer, 0);
    }
    return true;
}

static bool take_failure(struct sl_bytes *cursor, struct sl_snapshot_failure *out)
{
    out->id = sl_bytes_u64(cursor);
    sl_bytes_copy(cursor, &out->err, sizeof out->err);
    return sl_bytes_u32(cursor) == 0 && !cursor->bad && out->id != 0 && out->err < 0 &&
           out->err >= SL_ERR_CANCELLED;
}

bool sl_snapshot_take_session(struct sl_bytes *cursor, struct sl_snapshot_session *out)
{
    out->client_id = sl_bytes_u64(cursor);
    out->role = sl_bytes_u8(cursor);
    const uint8_t flags = sl_bytes_u8(cursor);
    const uint16_t zero = sl_bytes_u16(cursor);
    out->heard = (flags & HEARD) != 0;
    out->restored = (flags & RESTORED) != 0;
    out->task_index = sl_bytes_u32(cursor);
    out->id_max = sl_bytes_u64(cursor);
    out->last_write_id = sl_bytes_u64(cursor);
    out->partial_id = sl_bytes_u64(cursor);
    out->partial_sections = sl_bytes_u32(cursor);
    out->failure_count = sl_bytes_u32(cursor);
    const bool is_worker = out->role == SL_MESSAGE_ROLE_WORKER;
    const bool is_partial = out->partial_sections != 0;
    if (cursor->bad || zero != 0 || flags > (HEARD | RESTORED) ||
        is_partial != (out->partial_id != 0) || out->partial_id > out->id_max ||
        out->partial_sections > SL_LIMIT_REQUEST_SECTIONS ||
        (!is_worker && out->role != SL_MESSAGE_ROLE_CLIENT) ||
        (is_worker && out->task_index >= SL_LIMIT_WORKERS) || out->last_write_id > out->id_max ||
        out->failure_count > SL_SNAPSHOT_FAILURES) {
        return false;
    }
    for (uint32_t i = 0; i < out->failure_count; i++) {
        if (!take_failure(cursor, &out->failures[i])) {
            return false;
        }
    }
    return true;
}

/* END */

void sl_snapshot_end_add(struct sl_snapshot_end *end, const struct sl_snapshot_block *block)
{
    if (block->kind <= SL_SNAPSHOT_BUFFERED_PUSH) {
        end->records[block->kind] += block->count;
    }
}

void sl_snapshot_put_end(struct sl_snapshot_block *block, const struct sl_snapshot_end *end)
{
    sl_snapshot_block_begin(block, SL_SNAPSHOT_END, 0);
    struct sl_bytes_writer writer = block_append(block, SL_SNAPSHOT_END_BYTES);
    sl_bytes_put_u32(&writer, end->shard);
    sl_bytes_put_u32(&writer, end->shard_count);
    sl_bytes_put(&writer, end->records, sizeof end->records);
}

bool sl_snapshot_take_end(const struct sl_snapshot_block *block, struct sl_snapshot_end *out)
{
    struct sl_bytes cursor = sl_snapshot_records(block);
    out->shard = sl_bytes_u32(&cursor);
    out->shard_count = sl_bytes_u32(&cursor);
    sl_bytes_copy(&cursor, out->records, sizeof out->records);
    return block->count == 1 && !cursor.bad && cursor.left == 0 &&
           out->shard_count <= SL_LIMIT_SHARDS && out->shard < out->shard_count;
}
