#include "tests/unit/ps/checkpoint/fixture.h"

#include "core/hash.h"

static const struct sl_checkpoint_shard_range all_shards;

struct sl_reason fixture_reason;

/* One that packs well, one that does not, an empty one. */
struct sl_snapshot_block fixture_block(uint64_t number, uint32_t shard, uint32_t index)
{
    static const uint32_t bytes[FIXTURE_BLOCKS] = {40, 96, 48, 0};
    static const uint8_t kinds[FIXTURE_BLOCKS] = {SL_SNAPSHOT_TABLE, SL_SNAPSHOT_ROWS,
                                                  SL_SNAPSHOT_ROWS, SL_SNAPSHOT_END};
    uint64_t random = number * 1000 + shard * 100 + index;
    struct sl_snapshot_block block = {
        .kind = kinds[index],
        .table_id = index == 3 ? 0 : 7,
        .count = index + 1,
        .bytes = bytes[index],
        .capacity = bytes[index],
        .payload = malloc(bytes[index] + 8),
    };
    for (uint32_t i = 0; i < block.bytes; i++) {
        block.payload[i] = (uint8_t)(index == 1 ? number + i / 24 : sl_hash_random(&random));
    }
    return block;
}

int fixture_write_shard(const struct sl_disk *disk, const char *directory, uint64_t number,
                        uint64_t base, uint32_t shard, struct sl_checkpoint_entry *entry)
{
    const struct sl_checkpoint_writer_options options = {
        .disk = disk,
        .directory = directory,
        .number = number,
        .base = base,
        .time_s = 1769860800,
        .shard = shard,
        .shard_count = FIXTURE_SHARDS,
        .compression_level = 1,
    };
    struct sl_checkpoint_writer *writer;
    int err = sl_checkpoint_writer_create(&options, &writer, REASON);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < FIXTURE_BLOCKS; i++) {
        struct sl_snapshot_block block = fixture_block(number, shard, i);
        err = sl_checkpoint_writer_write(writer, &block, REASON);
        free(block.payload);
    }
    if (err != 0) {
        sl_checkpoint_writer_discard(&writer);
        return err;
    }
    return sl_checkpoint_writer_finish(&writer, entry, REASON);
}

int fixture_write(const struct sl_disk *disk, const char *directory, uint64_t number, uint64_t base)
{
    struct sl_checkpoint_manifest manifest;
    assert_int_equal(sl_checkpoint_manifest_init(FIXTURE_SHARDS, &manifest), 0);
    manifest.number = number;
    manifest.base = base;
    manifest.time_s = 1769860800;
    int err = 0;
    for (uint32_t shard = 0; err == 0 && shard < FIXTURE_SHARDS; shard++) {
        err = fixture_write_shard(disk, directory, number, base, shard, &manifest.files[shard]);
    }
    if (err == 0) {
        err = sl_checkpoint_directory_publish(disk, directory, &manifest, all_shards, 3, REASON);
    }
    sl_checkpoint_manifest_fini(&manifest);
    return err;
}

static void check_shard(const struct sl_disk *disk, const char *directory,
                        const struct sl_checkpoint_manifest *manifest, uint32_t shard)
{
    struct sl_checkpoint_reader *reader;
    const struct sl_snapshot_block *block;
    assert_int_equal(sl_checkpoint_reader_open(disk, directory, manifest, shard,
                                               SL_CHECKPOINT_ALL_KINDS, &reader, REASON),
                     0);
    for (uint32_t i = 0; i < FIXTURE_BLOCKS; i++) {
        struct sl_snapshot_block wanted = fixture_block(manifest->number, shard, i);
        assert_int_equal(sl_checkpoint_reader_next(reader, &block, REASON), 0);
        assert_non_null(block);
        assert_int_equal(block->kind, wanted.kind);
        assert_int_equal(block->table_id, wanted.table_id);
        assert_int_equal(block->count, wanted.count);
        assert_int_equal(block->bytes, wanted.bytes);
        assert_memory_equal(block->payload, wanted.payload, wanted.bytes);
        free(wanted.payload);
    }
    assert_int_equal(sl_checkpoint_reader_next(reader, &block, REASON), 0);
    assert_null(block);
    sl_checkpoint_reader_close(&reader);
    assert_null(reader);
}

void fixture_check(const struct sl_disk *disk, const char *directory, uint64_t number)
{
    struct sl_checkpoint_manifest manifest;
    assert_int_equal(sl_checkpoint_directory_manifest(disk, directory, number, &manifest, REASON),
                     0);
    assert_int_equal(manifest.shard_count, FIXTURE_SHARDS);
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        check_shard(disk, directory, &manifest, shard);
        assert_int_equal(manifest.files[shard].rows, 2 + 3);
    }
    sl_checkpoint_manifest_fini(&manifest);
}

static void keep_finding(void *ctx, const char *path, const char *why)
{
    struct fixture_findings *findings = ctx;
    assert_true(findings->count < 16);
    (void)snprintf(findings->paths[findings->count], sizeof findings->paths[0], "%s", path);
    (void)snprintf(findings->whys[findings->count], sizeof findings->whys[0], "%s", why);
    findings->count++;
}

void fixture_findings_init(struct fixture_findings *findings)
{
    findings->count = 0;
    findings->report = (struct sl_checkpoint_report){.find = keep_finding, .ctx = findings};
}

int fixture_verify(const struct sl_disk *disk, const char *directory, uint64_t number,
                   struct fixture_findings *findings)
{
    fixture_findings_init(findings);
    return sl_checkpoint_directory_verify(disk, directory, number, all_shards, &findings->report,
                                          REASON);
}

struct memory_disk *fixture_disk(void)
{
    struct memory_disk *disk = malloc(sizeof *disk);
    assert_non_null(disk);
    memory_disk_init(disk);
    return disk;
}

void fixture_teardown(struct memory_disk *disk)
{
    assert_int_equal(disk->open_files, 0);
    memory_disk_fini(disk);
}

void fixture_disk_free(struct memory_disk *disk)
{
    fixture_teardown(disk);
    free(disk);
}
