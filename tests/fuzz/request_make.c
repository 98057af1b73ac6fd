#include "tests/fuzz/request_make.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/partition.h"
#include "core/reason.h"
#include "net/wire/request.h"
#include "tests/fuzz/request_kv.h"

struct sl_table_spec fuzz_request_spec(uint32_t table_id)
{
    static const enum sl_consistency_mode MODES[FUZZ_REQUEST_TABLES] = {
        SL_CONSISTENCY_ASP, SL_CONSISTENCY_BSP, SL_CONSISTENCY_SSP, SL_CONSISTENCY_ASP,
        SL_CONSISTENCY_ASP, SL_CONSISTENCY_ASP, SL_CONSISTENCY_ASP};
    sl_assert(table_id < FUZZ_REQUEST_TABLES);
    const enum sl_consistency_mode mode = MODES[table_id];
    const bool is_dense = table_id == 2 || table_id == 3;
    struct sl_table_spec spec = {
        .kind = table_id >= FUZZ_REQUEST_KV ? SL_TABLE_KV
                : is_dense                  ? SL_TABLE_DENSE
                                            : SL_TABLE_SPARSE,
        .dim = table_id >= FUZZ_REQUEST_KV ? fuzz_request_kv_width(table_id, FUZZ_REQUEST_KV)
               : is_dense                  ? 0
                                           : 3 + table_id,
        .length = is_dense ? 5000 : 0,
        .optimizer = sl_optimizer_defaults(table_id == 3 ? SL_OPTIMIZER_ADAM : SL_OPTIMIZER_SUM),
        .consistency = {.mode = mode,
                        .staleness = mode == SL_CONSISTENCY_SSP ? 1 : 0,
                        .worker_count = mode == SL_CONSISTENCY_ASP ? 0 : 2},
        .reject_nonfinite = table_id == 3,
        .values = table_id == FUZZ_REQUEST_KV + 2 ? SL_PRECISION_F16
                  : table_id == 1                 ? SL_PRECISION_INT8
                                                  : SL_PRECISION_F32,
    };
    (void)snprintf(spec.name, sizeof spec.name, "t%u", table_id);
    return spec;
}

void fuzz_request_open_tables(struct sl_shard *shard)
{
    for (uint32_t id = 0; id < FUZZ_REQUEST_TABLES; id++) {
        const struct sl_table_spec spec = fuzz_request_spec(id);
        struct sl_reason reason;
        sl_assert(sl_shard_table_open(shard, id, &spec, &reason) == 0);
    }
}

/* The first key at or after `key` that is the shard's. */
static uint64_t key_of(uint32_t shard, uint32_t shard_count, uint64_t key)
{
    while (sl_partition_owner(key, shard_count) != shard) {
        key++;
    }
    return key;
}

static void write_keys(struct sl_bytes_writer *writer, uint32_t shard, uint32_t shard_count,
                       uint32_t count, struct sl_bytes *input)
{
    for (uint32_t i = 0; i < count; i++) {
        uint64_t key = key_of(shard, shard_count, sl_bytes_u8(input));
        sl_bytes_put(writer, &key, sizeof key);
    }
}

void fuzz_request_encode(struct sl_request_section *section, uint32_t pushed, uint32_t returned)
{
    const bool pushes = sl_request_pushes(section->op) && section->op < SL_REQUEST_ASSIGN;
    const bool returns = section->op != SL_REQUEST_FIND && sl_request_result_bytes(section, 4) > 0;
    const bool is_row = section->op <= SL_REQUEST_PUSH_PULL;
    returned = returned == SL_PRECISION_INT8 && !is_row ? SL_PRECISION_F16 : returned;
    section->flags |= (uint8_t)((pushes ? pushed : 0) << SL_REQUEST_PUSHED_SHIFT |
                                (returns ? returned : 0) << SL_REQUEST_RETURNED_SHIFT);
}

void fuzz_request_write_values(struct sl_bytes_writer *writer,
                               const struct sl_request_section *section, uint32_t dim)
{
    const uint64_t bytes = sl_request_values_bytes(section, dim);
    uint8_t *values = sl_bytes_reserve(writer, sl_bytes_pad8(bytes));
    for (uint64_t i = 0; values != NULL && i < sl_bytes_pad8(bytes); i++) {
        values[i] = (uint8_t)(i < bytes ? i * 37 + section->key_count : 0);
    }
}

static void write_floats(struct sl_bytes_writer *writer, uint64_t count)
{
    for (uint64_t i = 0; i < sl_bytes_pad8(4 * count) / 4; i++) {
        float value = i < count ? (float)(i % 3) : 0;
        sl_bytes_put(writer, &value, sizeof value);
    }
}

/* One section that fits its table, up to a range that may be another shard's. */
static void write_section(struct sl_bytes_writer *writer, uint32_t shard, uint32_t shard_count,
                          struct sl_bytes *input)
{
    uint8_t what = sl_bytes_u8(input);
    if (what >= 192) {
        fuzz_request_kv_write(writer, shard, shard_count, (uint8_t)(SL_REQUEST_KV_PUSH + what % 4),
                              FUZZ_REQUEST_KV, input);
        return;
    }
    uint8_t op = what >= 191   ? SL_REQUEST_EVICT
                 : what >= 190 ? SL_REQUEST_SCAN
                 : what >= 188 ? SL_REQUEST_FIND
                 : what >= 184 ? SL_REQUEST_ERASE
                               : (uint8_t)(1 + what % 8);
    uint8_t count = sl_bytes_u8(input);
    struct sl_request_section section = {.op = op};
    if ((op == SL_REQUEST_PUSH || op == SL_REQUEST_DENSE_PUSH) && (what & 32) != 0) {
        section.op = op == SL_REQUEST_PUSH ? SL_REQUEST_ASSIGN : SL_REQUEST_DENSE_ASSIGN;
    }
    bool dense = op >= SL_REQUEST_DENSE_PULL && op <= SL_REQUEST_DENSE_PUSH_PULL;
    if (op != SL_REQUEST_TICK) {
        section.table_id = (uint16_t)((dense ? 2 : 0) + count % 2);
    }
    if (dense) {
        section.start = 1024ULL * (sl_bytes_u8(input) % 5);
        section.count = 1 + count * 4ULL;
    } else if (op == SL_REQUEST_SCAN) {
        section.start = sl_bytes_u8(input) % 8U;
        section.count = count % 8U;
        section.bag_count = 3U + section.table_id; /* sometimes of the other table */
        section.command = count % 3U;
    } else if (op == SL_REQUEST_EVICT) {
        section.command = count;
    } else if (op != SL_REQUEST_TICK) {
        section.key_count = count % 32U;
        section.bag_count = op == SL_REQUEST_PULL_POOLED ? 2 : 0;
    }
    if (what < 184 && (what & 64) != 0) {
        fuzz_request_encode(&section, what >> 3 & 3, count >> 5 & 3);
    }
    sl_bytes_put(writer, &section, sizeof section);
    write_keys(writer, shard, shard_count, section.key_count, input);
    if (op == SL_REQUEST_SCAN) {
        const struct sl_request_scan scan = {
            .copy = count / 128U, .end = sl_bytes_u8(input), .since = count % 4U};
        sl_bytes_put(writer, &scan, sizeof scan);
    }
    if (op == SL_REQUEST_PULL_POOLED) {
        uint32_t ends[2] = {section.key_count / 2, section.key_count};
        sl_bytes_put(writer, ends, sizeof ends);
    } else if (sl_request_pushed(&section) != SL_PRECISION_F32) {
        fuzz_request_write_values(writer, &section, dense ? 0 : 3U + section.table_id);
    } else if (op == SL_REQUEST_PUSH || op == SL_REQUEST_PUSH_PULL) {
        write_floats(writer, (uint64_t)section.key_count * (3U + section.table_id));
    } else if (op == SL_REQUEST_DENSE_PUSH || op == SL_REQUEST_DENSE_PUSH_PULL) {
        write_floats(writer, section.count);
    }
}

void fuzz_request_make(struct sl_bytes_writer *writer, uint32_t shard, uint32_t shard_count,
                       uint8_t shape, struct sl_bytes *input)
{
    const struct sl_request_prefix prefix = {
        .section_count = 1 + shape % 4U,
        .clock = shape == 255 ? SL_REQUEST_CLOCK_FINISHED : shape / 32U,
    };
    sl_bytes_put(writer, &prefix, sizeof prefix);
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        write_section(writer, shard, shard_count, input);
    }
}
