/* Exports of checkpoints that add to others: the newest record of a key counts. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/partition.h"
#include "programs/ckpt/export.h"
#include "programs/safetensors/safetensors.h"
#include "ps/checkpoint/writer.h"
#include "tests/support/unit.h"

#define ROWS    500
#define DIM     3
#define SLOTS   3 /* Adagrad's */
#define LENGTH  2500
#define SHARDS  2
#define SPARSE  4 /* ids */
#define DENSE   9
#define KV      2
#define KV_KEYS 3

static char directory[64];
static char path[128];
static struct sl_reason reason;

/* The checkpoint that wrote a record last: all values follow from it. */
static struct {
    uint64_t rows[ROWS];
    uint64_t blocks[3];
    uint64_t arrays[KV_KEYS];
} last;

/* What the next files do beside: erase each such row first; state no base, as files that hold
 * everything do. */
static struct {
    uint32_t erase_every; /* 0: none */
    bool holds_all;
} files;

static void setup(void)
{
    (void)snprintf(directory, sizeof directory, "/tmp/starling-export-XXXXXX");
    memset(&last, 0, sizeof last);
    memset(&files, 0, sizeof files);
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof path, "%s/x.safetensors", directory);
}

static void teardown(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static struct sl_snapshot_table table_of(uint32_t id)
{
    struct sl_snapshot_table table = {.step = 5};
    table.spec.kind = id == SPARSE ? SL_TABLE_SPARSE : id == DENSE ? SL_TABLE_DENSE : SL_TABLE_KV;
    (void)snprintf(table.spec.name, sizeof table.spec.name, "%s",
                   id == SPARSE  ? "emb"
                   : id == DENSE ? "w"
                                 : "kv");
    table.spec.dim = id == SPARSE ? DIM : id == DENSE ? 0 : 4;
    table.spec.length = id == DENSE ? LENGTH : 0;
    table.spec.optimizer =
        sl_optimizer_defaults(id == KV ? SL_OPTIMIZER_SUM : SL_OPTIMIZER_ADAGRAD);
    return table;
}

static uint64_t key_of(uint32_t row)
{
    return row == 0 ? 0 : row == 1 ? UINT64_MAX : sl_hash_key(row);
}

static float value_of(uint64_t number, uint64_t what, uint32_t column)
{
    return (float)number * 1000.0F + (float)(what % 997) + (float)column / 8.0F;
}

/* One shard's file at work. */
struct file {
    struct sl_checkpoint_writer *writer;
    struct sl_snapshot_block *block;
    uint64_t number;
};

static void put(struct file *file)
{
    if (file->block->count > 0) {
        assert_int_equal(sl_checkpoint_writer_write(file->writer, file->block, &reason), 0);
    }
}

static void put_row(struct file *file, uint32_t row)
{
    float floats[DIM + SLOTS];
    for (uint32_t i = 0; i < DIM + SLOTS; i++) {
        floats[i] = value_of(file->number, row, i);
    }
    const struct sl_snapshot_record record = {
        .key = key_of(row), .last_step = (uint32_t)file->number, .count = row, .floats = floats};
    assert_true(sl_snapshot_put_record(file->block, &record, DIM + SLOTS));
    last.rows[row] = file->number;
}

static void put_block(struct file *file, uint32_t number)
{
    static float floats[2 * SL_PARTITION_BLOCK_ELEMENTS];
    const uint32_t elements = sl_snapshot_dense_elements(LENGTH, number);
    for (uint32_t i = 0; i < 2 * elements; i++) {
        floats[i] = value_of(file->number, number, i);
    }
    const struct sl_snapshot_record record = {.key = number, .floats = floats};
    assert_true(sl_snapshot_put_record(file->block, &record, 2 * elements));
    last.blocks[number] = file->number;
}

static void put_array(struct file *file, uint32_t key)
{
    float values[KV_KEYS];
    for (uint32_t i = 0; i <= key; i++) {
        values[i] = value_of(file->number, key, i);
    }
    /* In two pieces, where it has two values. */
    for (uint32_t first = 0; first <= key; first++) {
        const struct sl_snapshot_kv piece = {.key = key,
                                             .length = key + 1,
                                             .initialized_count = key + 1,
                                             .first = first,
                                             .count = 1,
                                             .values = values + first};
        assert_int_equal(sl_snapshot_put_kv(file->block, &piece, 4), 1);
    }
    last.arrays[key] = file->number;
}

static void put_erased(struct file *file, uint32_t shard)
{
    sl_snapshot_block_begin(file->block, SL_SNAPSHOT_ERASED, SPARSE);
    for (uint32_t row = 0; files.erase_every > 0 && row < ROWS; row += files.erase_every) {
        if (sl_partition_owner(key_of(row), SHARDS) == shard) {
            assert_true(sl_snapshot_put_erased(file->block, key_of(row)));
            last.rows[row] = 0;
        }
    }
    put(file);
}

static void put_tables(struct file *file)
{
    static const uint32_t ids[] = {SPARSE, DENSE, KV};
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_snapshot_table table = table_of(ids[i]);
        sl_snapshot_put_table(file->block, ids[i], &table);
        put(file);
    }
}

/* Rows of which every `every`-th, blocks from `block` on, arrays likewise: those of this shard. */
static void write_shard(uint64_t number, uint64_t base, uint32_t shard, uint32_t every,
                        uint32_t block, struct sl_checkpoint_entry *entry)
{
    const struct sl_checkpoint_writer_options options = {.disk = sl_disk_system(),
                                                         .directory = directory,
                                                         .number = number,
                                                         .base = files.holds_all ? 0 : base,
                                                         .shard = shard,
                                                         .shard_count = SHARDS,
                                                         .compression_level = 1};
    struct file file = {.number = number};
    assert_int_equal(sl_snapshot_block_create(SL_SNAPSHOT_BLOCK_BYTES, &file.block), 0);
    assert_int_equal(sl_checkpoint_writer_create(&options, &file.writer, &reason), 0);
    put_tables(&file);
    put_erased(&file, shard);
    sl_snapshot_block_begin(file.block, SL_SNAPSHOT_ROWS, SPARSE);
    for (uint32_t row = 0; row < ROWS; row++) {
        if (row % every == 0 && sl_partition_owner(key_of(row), SHARDS) == shard) {
            put_row(&file, row);
        }
    }
    put(&file);
    sl_snapshot_block_begin(file.block, SL_SNAPSHOT_DENSE, DENSE);
    for (uint32_t i = block; i < 3; i++) {
        if (i % SHARDS == shard) {
            put_block(&file, i);
        }
    }
    put(&file);
    sl_snapshot_block_begin(file.block, SL_SNAPSHOT_KV, KV);
    for (uint32_t i = block; shard == 0 && i < KV_KEYS; i++) {
        put_array(&file, i);
    }
    put(&file);
    assert_int_equal(sl_checkpoint_writer_finish(&file.writer, entry, &reason), 0);
    sl_snapshot_block_destroy(&file.block);
}

static void write_checkpoint(uint64_t number, uint64_t base, uint32_t every, uint32_t block)
{
    const struct sl_checkpoint_shard_range all = {0};
    struct sl_checkpoint_manifest manifest;
    assert_int_equal(sl_checkpoint_manifest_init(SHARDS, &manifest), 0);
    manifest.number = number;
    manifest.base = base;
    for (uint32_t shard = 0; shard < SHARDS; shard++) {
        write_shard(number, base, shard, every, block, &manifest.files[shard]);
    }
    assert_int_equal(
        sl_checkpoint_directory_publish(sl_disk_system(), directory, &manifest, all, 0, &reason),
        0);
    sl_checkpoint_manifest_fini(&manifest);
}

static int export(uint64_t number)
{
    const struct sl_export_options options = {
        .directory = directory, .number = number, .path = path, .slots = true, .replace = true};
    uint64_t which;
    uint32_t tensors;
    return sl_export_run(&options, &which, &tensors, &reason);
}

/* All of a tensor of the file, malloc'd. */
static void *load(const struct sl_safetensors *file, const char *name, uint64_t count)
{
    const struct sl_tensor *tensor = sl_tensor_find(&file->tensors, name);
    assert_non_null(tensor);
    assert_int_equal(tensor->count, count);
    void *to = malloc(tensor->bytes + 1);
    assert_int_equal(sl_safetensors_read(file, tensor, 0, to, tensor->bytes, &reason), 0);
    return to;
}

static void check_rows(const struct sl_safetensors *file)
{
    uint32_t rows = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        rows += last.rows[row] != 0;
    }
    uint64_t *keys = load(file, "emb.keys", rows);
    float *values = load(file, "emb.values", (uint64_t)rows * DIM);
    float *slots = load(file, "emb.slots", (uint64_t)rows * SLOTS);
    int64_t *steps = load(file, "emb.steps", rows);
    int64_t *counts = load(file, "emb.counts", rows);
    uint32_t found = 0;
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t at = 0; at < rows; at++) {
            if (keys[at] != key_of(row)) {
                continue;
            }
            found++;
            assert_int_equal(steps[at], last.rows[row]);
            assert_int_equal(counts[at], row);
            for (uint32_t i = 0; i < DIM; i++) {
                assert_true(values[at * DIM + i] == value_of(last.rows[row], row, i));
                assert_true(slots[at * SLOTS + i] == value_of(last.rows[row], row, DIM + i));
            }
        }
    }
    assert_int_equal(found, rows);
    free(keys);
    free(values);
    free(slots);
    free(steps);
    free(counts);
}

static void check_dense(const struct sl_safetensors *file)
{
    float *values = load(file, "w", LENGTH);
    float *slots = load(file, "w.slots", LENGTH);
    for (uint32_t i = 0; i < LENGTH; i++) {
        const uint32_t block = i / SL_PARTITION_BLOCK_ELEMENTS;
        const uint32_t elements = sl_snapshot_dense_elements(LENGTH, block);
        const uint32_t at = i % SL_PARTITION_BLOCK_ELEMENTS;
        assert_true(values[i] == value_of(last.blocks[block], block, at));
        assert_true(slots[i] == value_of(last.blocks[block], block, elements + at));
    }
    free(values);
    free(slots);
}

static void check_kv(const struct sl_safetensors *file)
{
    uint64_t *keys = load(file, "kv.keys", KV_KEYS);
    int64_t *lens = load(file, "kv.lens", KV_KEYS);
    float *values = load(file, "kv.values", 1 + 2 + 3);
    const float *next = values;
    for (uint32_t at = 0; at < KV_KEYS; at++) {
        assert_int_equal(lens[at], keys[at] + 1);
        for (uint32_t i = 0; i <= keys[at]; i++) {
            assert_true(*next++ == value_of(last.arrays[keys[at]], keys[at], i));
        }
    }
    free(keys);
    free(lens);
    free(values);
}

static void check_all(void)
{
    struct sl_safetensors file;
    assert_int_equal(sl_safetensors_open(path, &file, &reason), 0);
    check_rows(&file);
    check_dense(&file);
    check_kv(&file);
    sl_safetensors_close(&file);
}

CASE(export__merges_what_adds)
{
    write_checkpoint(1, 0, 1, 0);
    assert_int_equal(export(1), 0);
    check_all();
    write_checkpoint(2, 1, 7, 2);
    write_checkpoint(3, 2, 10, 1);
    assert_int_equal(export(0), 0);
    check_all();
    assert_int_equal(last.rows[7], 2);
    assert_int_equal(last.rows[70], 3);
    assert_int_equal(last.rows[1], 1);
}

/* Rows that come with what adds. */
CASE(export__takes_new_rows)
{
    write_checkpoint(1, 0, 2, 0);
    write_checkpoint(2, 1, 1, 3);
    assert_int_equal(export(2), 0);
    check_all();
}

/* Rows that were erased, of which every other one came again. */
CASE(export__leaves_out_erased_rows)
{
    write_checkpoint(1, 0, 1, 0);
    files.erase_every = 5;
    write_checkpoint(2, 1, 10, 2);
    assert_int_equal(export(2), 0);
    check_all();
    assert_int_equal(last.rows[5], 0);
    assert_int_equal(last.rows[10], 2);
    files.erase_every = 3;
    write_checkpoint(3, 2, ROWS, 2);
    assert_int_equal(export(3), 0);
    check_all();
    assert_int_equal(last.rows[30], 0);
}

/* Files that hold everything, although the checkpoint has a base: what is in that is gone. */
CASE(export__begins_with_files_that_hold_everything)
{
    write_checkpoint(1, 0, 1, 0);
    memset(&last, 0, sizeof last);
    files.holds_all = true;
    write_checkpoint(2, 1, 4, 0);
    files.holds_all = false;
    write_checkpoint(3, 2, 10, 2);
    assert_int_equal(export(3), 0);
    check_all();
    assert_int_equal(last.rows[1], 0);
    assert_int_equal(last.rows[4], 2);
}

CASE(export__names_a_block_that_is_missing)
{
    write_checkpoint(1, 0, 1, 1);
    assert_int_equal(export(1), SL_ERR_CORRUPT);
    assert_non_null(
        strstr(reason.text, "block 0 of the dense table \"w\" is in none of the files"));
    assert_int_not_equal(access(path, F_OK), 0);
}
