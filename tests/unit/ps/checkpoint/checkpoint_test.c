/* Files and folders of checkpoints while all is well, and their choice. */
#include "ps/checkpoint/format.h"
#include "ps/checkpoint/select.h"
#include "tests/unit/ps/checkpoint/fixture.h"

#include "core/hash.h"

static const struct sl_checkpoint_shard_range all_shards;

static void write_whole(struct memory_disk *disk, uint64_t number, uint64_t base)
{
    assert_int_equal(fixture_write(&disk->disk, "/c", number, base), 0);
}

/* The file of one shard. */
static int write_part(struct memory_disk *disk, uint64_t number, uint64_t base, uint32_t shard)
{
    struct sl_checkpoint_entry entry;
    return fixture_write_shard(&disk->disk, "/c", number, base, shard, &entry);
}

/* The number, or an error. */
static int64_t newest(struct memory_disk *disk)
{
    uint64_t number = 0;
    const int err = sl_checkpoint_newest(&disk->disk, "/c", all_shards, &number, REASON);
    return err == 0 ? (int64_t)number : err;
}

/* What is selected with these options (0: none), or an error. */
static int64_t choose(struct memory_disk *disk, const struct sl_checkpoint_select_options *options)
{
    struct sl_checkpoint_list list;
    uint64_t number;
    assert_int_equal(sl_checkpoint_directory_list(&disk->disk, "/c", &list, REASON), 0);
    const int err = sl_checkpoint_select(&disk->disk, "/c", options, &list, &number, REASON);
    sl_checkpoint_list_fini(&list);
    return err == 0 ? (int64_t)number : err;
}

static int64_t newest_whole(struct memory_disk *disk)
{
    return choose(disk, &(struct sl_checkpoint_select_options){.fallback = true});
}

/* A file of a checkpoint: "000005/manifest.json". */
static struct memory_disk_node *find(struct memory_disk *disk, const char *path)
{
    char text[MEMORY_DISK_PATH];
    (void)snprintf(text, sizeof text, "/c/checkpoint-%s", path);
    return memory_disk_find(disk, text);
}

static void damage_manifest(struct memory_disk *disk, unsigned number)
{
    char path[64];
    (void)snprintf(path, sizeof path, "%06u/manifest.json", number);
    find(disk, path)->bytes[5] ^= 1;
}

/* How many are removed. */
static uint32_t prune_by(struct memory_disk *disk,
                         const struct sl_checkpoint_prune_options *options)
{
    uint32_t removed;
    assert_int_equal(sl_checkpoint_directory_prune(&disk->disk, "/c", options, &removed, REASON),
                     0);
    return removed;
}

static uint32_t prune(struct memory_disk *disk, uint32_t keep)
{
    return prune_by(disk, &(struct sl_checkpoint_prune_options){.keep = keep});
}

static uint32_t prune_to(struct memory_disk *disk, uint64_t newest_number, uint64_t below)
{
    return prune_by(
        disk, &(struct sl_checkpoint_prune_options){
                  .keep = 1, .newest = newest_number, .above = newest_number, .below = below});
}

static void check_numbers(struct memory_disk *disk, const uint64_t *numbers, uint32_t count)
{
    struct sl_checkpoint_list list;
    assert_int_equal(sl_checkpoint_directory_list(&disk->disk, "/c", &list, REASON), 0);
    assert_int_equal(list.count, count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(list.items[i].number, numbers[i]);
    }
    sl_checkpoint_list_fini(&list);
}

#define CHECK_NUMBERS(disk, ...)                                                                   \
    check_numbers(disk, (const uint64_t[]){__VA_ARGS__},                                           \
                  sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

CASE(writer__what_is_written_is_read)
{
    write_whole(disk, 1, 0);
    fixture_check(&disk->disk, "/c", 1);
    assert_non_null(find(disk, "000001/shard-0001-of-0002.slc"));
    assert_null(find(disk, "000001/shard-0001-of-0002.slc.part"));
}

/* The longest blocks, packed and not, at several levels. */
CASE(writer__long_blocks_at_every_level)
{
    static const uint32_t levels[] = {0, 1, 3, SL_CHECKPOINT_LEVEL_MAX};
    uint8_t *bytes = malloc(SL_SNAPSHOT_BLOCK_BYTES + 1);
    uint64_t random = 1;
    for (uint32_t i = 0; i <= SL_SNAPSHOT_BLOCK_BYTES; i++) {
        bytes[i] = i < SL_SNAPSHOT_BLOCK_BYTES / 2 ? 0 : (uint8_t)sl_hash_random(&random);
    }
    struct sl_snapshot_block block = {
        .kind = SL_SNAPSHOT_DENSE, .count = 1, .bytes = SL_SNAPSHOT_BLOCK_BYTES, .payload = bytes};
    for (uint32_t i = 0; i < 4; i++) {
        struct sl_checkpoint_writer *writer;
        struct sl_checkpoint_reader *reader;
        struct sl_checkpoint_manifest manifest;
        const struct sl_snapshot_block *read;
        const struct sl_checkpoint_writer_options options = {.disk = &disk->disk,
                                                             .directory = "/c",
                                                             .number = i + 1,
                                                             .shard_count = 1,
                                                             .compression_level = levels[i]};
        assert_int_equal(sl_checkpoint_manifest_init(1, &manifest), 0);
        manifest.number = i + 1;
        assert_int_equal(sl_checkpoint_writer_create(&options, &writer, REASON), 0);
        block.bytes = SL_SNAPSHOT_BLOCK_BYTES;
        assert_int_equal(sl_checkpoint_writer_write(writer, &block, REASON), 0);
        block.bytes = SL_SNAPSHOT_BLOCK_BYTES + 1;
        assert_int_equal(sl_checkpoint_writer_write(writer, &block, REASON), SL_ERR_TOO_LARGE);
        assert_int_equal(sl_checkpoint_writer_finish(&writer, manifest.files, REASON), 0);
        assert_true(levels[i] == 0 || manifest.files[0].bytes < SL_SNAPSHOT_BLOCK_BYTES * 3 / 4);
        assert_int_equal(manifest.files[0].rows, 0);
        assert_int_equal(sl_checkpoint_reader_open(&disk->disk, "/c", &manifest, 0,
                                                   1U << SL_SNAPSHOT_DENSE, &reader, REASON),
                         0);
        assert_int_equal(sl_checkpoint_reader_next(reader, &read, REASON), 0);
        assert_int_equal(read->bytes, SL_SNAPSHOT_BLOCK_BYTES);
        assert_memory_equal(read->payload, bytes, SL_SNAPSHOT_BLOCK_BYTES);
        sl_checkpoint_reader_close(&reader);
        sl_checkpoint_manifest_fini(&manifest);
    }
    free(bytes);
}

/* The bytes of other kinds are passed over; the end is checked all the same. */
CASE(reader__gives_the_kinds_that_are_asked_for)
{
    struct sl_checkpoint_manifest manifest;
    struct sl_checkpoint_reader *reader;
    const struct sl_snapshot_block *block;
    write_whole(disk, 1, 0);
    assert_int_equal(sl_checkpoint_directory_manifest(&disk->disk, "/c", 1, &manifest, REASON), 0);
    assert_int_equal(sl_checkpoint_reader_open(&disk->disk, "/c", &manifest, 1,
                                               1U << SL_SNAPSHOT_TABLE | 1U << SL_SNAPSHOT_END,
                                               &reader, REASON),
                     0);
    assert_int_equal(sl_checkpoint_reader_next(reader, &block, REASON), 0);
    assert_int_equal(block->kind, SL_SNAPSHOT_TABLE);
    assert_int_equal(sl_checkpoint_reader_next(reader, &block, REASON), 0);
    assert_int_equal(block->kind, SL_SNAPSHOT_END);
    assert_int_equal(sl_checkpoint_reader_next(reader, &block, REASON), 0);
    assert_null(block);
    sl_checkpoint_reader_close(&reader);
    sl_checkpoint_manifest_fini(&manifest);
}

/* Files whose shard did not know what changed since the base hold everything: a restore of that
 * shard begins with the last of them. */
CASE(reader__first_file_of_a_chain)
{
    struct sl_checkpoint_chain chain;
    struct sl_checkpoint_manifest manifest;
    uint32_t item;
    write_whole(disk, 1, 0);
    write_whole(disk, 2, 1);
    assert_int_equal(sl_checkpoint_manifest_init(2, &manifest), 0);
    manifest.number = 3;
    manifest.base = 2;
    for (uint32_t shard = 0; shard < 2; shard++) {
        assert_int_equal(fixture_write_shard(&disk->disk, "/c", 3, shard == 1 ? 0 : 2, shard,
                                             &manifest.files[shard]),
                         0);
    }
    assert_int_equal(
        sl_checkpoint_directory_publish(&disk->disk, "/c", &manifest, all_shards, 0, REASON), 0);
    sl_checkpoint_manifest_fini(&manifest);
    write_whole(disk, 4, 3);
    assert_int_equal(
        sl_checkpoint_directory_chain(&disk->disk, "/c", 4, all_shards, NULL, &chain, REASON), 0);
    assert_int_equal(sl_checkpoint_reader_first(&disk->disk, "/c", &chain, 0, &item, REASON), 0);
    assert_int_equal(item, 0);
    assert_int_equal(sl_checkpoint_reader_first(&disk->disk, "/c", &chain, 1, &item, REASON), 0);
    assert_int_equal(item, 2);
    sl_checkpoint_chain_fini(&chain);
}

static int decode_version(uint8_t version)
{
    struct sl_format_header header = {.number = 3, .base = 2, .shard = 1, .shard_count = 2};
    uint8_t bytes[SL_FORMAT_HEADER_BYTES];
    const char *why;
    sl_format_encode_header(&header, bytes);
    assert_int_equal(bytes[8], SL_FORMAT_VERSION);
    bytes[8] = version;
    const uint64_t hash = sl_format_hash_bytes(bytes, sizeof bytes - sizeof hash, 0);
    memcpy(bytes + sizeof bytes - sizeof hash, &hash, sizeof hash);
    return sl_format_decode_header(bytes, &header, &why);
}

CASE(format__versions_that_are_read)
{
    assert_int_equal(decode_version(0), SL_ERR_VERSION);
    assert_int_equal(decode_version(1), 0);
    assert_int_equal(decode_version(2), 0);
    assert_int_equal(decode_version(3), SL_ERR_VERSION);
}

CASE(writer__leaves_what_is_complete_degraded)
{
    struct sl_checkpoint_entry entry;
    write_whole(disk, 1, 0);
    assert_int_equal(write_part(disk, 1, 0, 0), SL_ERR_EXISTS);
    assert_string_equal(fixture_reason.text, "/c/checkpoint-000001 has a manifest already");
    assert_int_equal(fixture_write_shard(&disk->disk, "/nowhere", 1, 0, 0, &entry),
                     SL_ERR_NOT_FOUND);
}

CASE(publish__wants_the_files_and_the_base)
{
    struct sl_checkpoint_manifest manifest;
    const struct sl_checkpoint_shard_range first = {.first = 0, .count = 1};
    const struct sl_checkpoint_shard_range second = {.first = 1, .count = 1};
    uint64_t number;
    assert_int_equal(fixture_write(&disk->disk, "/c", 2, 1), SL_ERR_NOT_FOUND);
    assert_int_equal(sl_checkpoint_manifest_init(2, &manifest), 0);
    manifest.number = 3;
    assert_int_equal(fixture_write_shard(&disk->disk, "/c", 3, 0, 0, &manifest.files[0]), 0);
    assert_int_equal(
        sl_checkpoint_directory_publish(&disk->disk, "/c", &manifest, all_shards, 0, REASON),
        SL_ERR_NOT_FOUND);
    assert_non_null(strstr(fixture_reason.text, "shard-0001-of-0002.slc"));
    assert_int_equal(newest(disk), SL_ERR_NOT_FOUND);
    assert_string_equal(fixture_reason.text, "there is no complete checkpoint in /c");
    /* The other shard's file is in another directory. */
    manifest.files[1].bytes = 77;
    assert_int_equal(
        sl_checkpoint_directory_publish(&disk->disk, "/c", &manifest, second, 0, REASON),
        SL_ERR_NOT_FOUND);
    assert_int_equal(
        sl_checkpoint_directory_publish(&disk->disk, "/c", &manifest, first, 0, REASON), 0);
    assert_int_equal(newest(disk), SL_ERR_CORRUPT);
    assert_int_equal(sl_checkpoint_newest(&disk->disk, "/c", first, &number, REASON), 0);
    assert_int_equal(number, 3);
    sl_checkpoint_manifest_fini(&manifest);
}

CASE(select__passes_over_what_is_damaged_when_it_may)
{
    struct fixture_findings findings;
    struct sl_checkpoint_select_options options = {.fallback = true, .up_to = 2};
    fixture_findings_init(&findings);
    options.report = &findings.report;
    assert_int_equal(newest(disk), SL_ERR_NOT_FOUND);
    write_whole(disk, 1, 0);
    write_whole(disk, 2, 0);
    write_whole(disk, 3, 2);
    assert_int_equal(write_part(disk, 4, 0, 0), 0);
    assert_int_equal(newest(disk), 3);
    assert_int_equal(choose(disk, &options), 2);
    /* The base of 3 lacks a byte, so that 3 does too. */
    memory_disk_find(disk, "/c/checkpoint-000002/shard-0000-of-0002.slc")->count--;
    options.up_to = 0;
    assert_int_equal(newest(disk), SL_ERR_CORRUPT);
    assert_non_null(
        strstr(fixture_reason.text, "/c/checkpoint-000002/shard-0000-of-0002.slc: it has "));
    assert_int_equal(choose(disk, &options), 1);
    assert_int_equal(findings.count, 2); /* of 3 and of 2 */
    damage_manifest(disk, 1);
    assert_int_equal(newest_whole(disk), SL_ERR_CORRUPT);
}

/* A base of the same number that was written later is another one. */
CASE(chain__knows_its_base)
{
    struct memory_disk *other = fixture_disk();
    struct sl_checkpoint_chain chain;
    write_whole(disk, 1, 0);
    write_whole(disk, 2, 1);
    write_whole(disk, 3, 2);
    assert_int_equal(
        sl_checkpoint_directory_chain(&disk->disk, "/c", 3, all_shards, NULL, &chain, REASON), 0);
    assert_int_equal(chain.count, 3);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(chain.items[i].number, i + 1);
    }
    sl_checkpoint_chain_fini(&chain);
    assert_int_equal(
        sl_checkpoint_directory_chain(&disk->disk, "/c", 9, all_shards, NULL, &chain, REASON),
        SL_ERR_NOT_FOUND);
    /* 2 again, but full this time. */
    assert_int_equal(fixture_write(&other->disk, "/c", 2, 0), 0);
    static const char *const names[] = {"/c/checkpoint-000002/shard-0000-of-0002.slc",
                                        "/c/checkpoint-000002/shard-0001-of-0002.slc",
                                        "/c/checkpoint-000002/manifest.json"};
    for (uint32_t i = 0; i < 3; i++) {
        struct memory_disk_node *node = memory_disk_find(other, names[i]);
        memory_disk_put(disk, names[i], node->bytes, node->count);
    }
    fixture_check(&disk->disk, "/c", 2);
    assert_int_equal(
        sl_checkpoint_directory_chain(&disk->disk, "/c", 3, all_shards, NULL, &chain, REASON),
        SL_ERR_CORRUPT);
    assert_string_equal(fixture_reason.text, "/c/checkpoint-000002, the base of checkpoint 3, is "
                                             "another one of the same number");
    fixture_disk_free(other);
}

CASE(writer__refuses_numbers_above_the_limit)
{
    const uint64_t last = SL_LIMIT_CHECKPOINT_NUMBER;
    assert_int_equal(write_part(disk, last + 1, 0, 0), SL_ERR_TOO_LARGE);
    assert_string_equal(fixture_reason.text,
                        "checkpoint 1000000000000: numbers end at 999999999999");
    check_numbers(disk, NULL, 0);
    assert_int_equal(write_part(disk, last, 0, 0), 0);
    check_numbers(disk, &last, 1);
}

/* The list without strays: its greatest number, and how many strays there were. */
static uint32_t drop_strays(struct memory_disk *disk, uint64_t *greatest, uint64_t *first)
{
    struct sl_checkpoint_list list;
    assert_int_equal(sl_checkpoint_directory_list(&disk->disk, "/c", &list, REASON), 0);
    const uint32_t count = sl_checkpoint_list_drop_strays(&list, first);
    *greatest = list.count == 0 ? 0 : list.items[list.count - 1].number;
    sl_checkpoint_list_fini(&list);
    return count;
}

CASE(list__strays_are_far_above_the_last_manifest)
{
    uint64_t greatest;
    uint64_t first = 0;
    assert_int_equal(drop_strays(disk, &greatest, &first), 0);
    assert_int_equal(greatest, 0);
    static const uint64_t unfinished[] = {3, 1000000000, 1000000001, SL_LIMIT_CHECKPOINT_NUMBER};
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(write_part(disk, unfinished[i], 0, 0), 0);
    }
    assert_int_equal(drop_strays(disk, &greatest, &first), 2);
    assert_int_equal(greatest, 1000000000);
    assert_int_equal(first, 1000000001);
    write_whole(disk, 2, 0);
    assert_int_equal(drop_strays(disk, &greatest, &first), 1);
    assert_int_equal(greatest, 1000000001);
    assert_int_equal(first, SL_LIMIT_CHECKPOINT_NUMBER);
    /* Nor does a manifest that nobody wrote make it a checkpoint. */
    memory_disk_put(disk, "/c/checkpoint-999999999999/manifest.json", "{}", 2);
    assert_int_equal(drop_strays(disk, &greatest, &first), 1);
    assert_int_equal(greatest, 1000000001);
    /* What has a manifest is none, and neither is what lies below it. */
    write_whole(disk, SL_LIMIT_CHECKPOINT_NUMBER - 1, 0);
    assert_int_equal(drop_strays(disk, &greatest, &first), 0);
    assert_int_equal(greatest, SL_LIMIT_CHECKPOINT_NUMBER);
}

CASE(prune__keeps_what_is_needed)
{
    write_whole(disk, 1, 0);
    write_whole(disk, 2, 1);
    assert_int_equal(write_part(disk, 3, 0, 1), 0);
    write_whole(disk, 4, 0);
    write_whole(disk, 5, 4);
    write_whole(disk, 6, 5);
    assert_int_equal(write_part(disk, 7, 6, 0), 0);
    memory_disk_put(disk, "/c/checkpoint-000001/notes.txt", "mine", 4);
    /* 6 stands on 5 and 4; 2 on 1; 3 is a leftover; 7 may be being written. */
    assert_int_equal(prune(disk, 4), 0);
    CHECK_NUMBERS(disk, 1, 2, 4, 5, 6, 7);
    assert_int_equal(prune(disk, 3), 2);
    CHECK_NUMBERS(disk, 1, 4, 5, 6, 7);
    assert_non_null(find(disk, "000001/notes.txt"));
    assert_null(find(disk, "000001/shard-0000-of-0002.slc"));
    assert_int_equal(prune(disk, 1), 0);
    CHECK_NUMBERS(disk, 1, 4, 5, 6, 7);
}

/* 3, 4 and 5 were never complete in the cluster, 6 is being written. */
static void write_six(struct memory_disk *disk)
{
    for (uint64_t number = 1; number <= 6; number++) {
        if (number == 4) {
            assert_int_equal(write_part(disk, 4, 0, 0), 0);
        } else {
            write_whole(disk, number, number == 3 ? 2 : 0);
        }
    }
    damage_manifest(disk, 5);
}

CASE(prune__counts_what_the_cluster_has)
{
    write_six(disk);
    assert_int_equal(prune_to(disk, 2, 6), 2);
    CHECK_NUMBERS(disk, 2, 5, 6);
}

static void keep(struct memory_disk *disk, uint64_t to)
{
    assert_int_equal(sl_checkpoint_directory_keep(&disk->disk, "/c", to, REASON), 0);
}

CASE(keep__checkpoints_of_an_earlier_job_are_neither_counted_nor_removed)
{
    uint32_t count;
    for (uint64_t number = 1; number <= 5; number++) {
        write_whole(disk, number, number == 2 ? 1 : 0);
    }
    assert_int_equal(write_part(disk, 6, 0, 0), 0); /* aborted */
    assert_int_equal(sl_checkpoint_directory_abandon(&disk->disk, "/c", 4, 5, &count, REASON), 0);
    damage_manifest(disk, 3);
    keep(disk, 0);
    assert_null(find(disk, "000005/kept"));
    keep(disk, 6);
    keep(disk, 6);                          /* another server, or again */
    assert_null(find(disk, "000006/kept")); /* it never existed */
    for (uint64_t number = 7; number <= 10; number++) {
        assert_int_equal(
            sl_checkpoint_directory_remove_incomplete(&disk->disk, "/c", number, 0, REASON), 0);
        write_whole(disk, number, 0);
        (void)prune_by(disk,
                       &(struct sl_checkpoint_prune_options){
                           .keep = 2, .newest = number, .above = number, .below = number + 1});
    }
    fixture_check(&disk->disk, "/c", 1);
    fixture_check(&disk->disk, "/c", 2);
    fixture_check(&disk->disk, "/c", 4);
    fixture_check(&disk->disk, "/c", 9);
    fixture_check(&disk->disk, "/c", 10);
    assert_non_null(find(disk, "000003/shard-0000-of-0002.slc"));
    assert_non_null(find(disk, "000005/manifest.json.abandoned"));
    assert_non_null(find(disk, "000005/shard-0000-of-0002.slc"));
    assert_null(find(disk, "000006"));
    assert_null(find(disk, "000008"));
    /* A kept one that a job continues from is restored, counted and kept. */
    assert_int_equal(prune_by(disk,
                              &(struct sl_checkpoint_prune_options){
                                  .keep = 1, .newest = 4, .above = 10, .below = 11}),
                     0);
    fixture_check(&disk->disk, "/c", 4);
}

CASE(prune__without_the_newest_of_the_cluster)
{
    write_six(disk);
    assert_int_equal(prune_to(disk, 7, 8), 3); /* which is not here: 6 is kept */
    CHECK_NUMBERS(disk, 5, 6);
}

static void clear(struct memory_disk *disk, uint64_t below, uint32_t folders)
{
    assert_int_equal(
        sl_checkpoint_directory_remove_incomplete(&disk->disk, "/c", below, folders, REASON), 0);
}

/* An older job's 1 and 2, of which 2 is damaged; 3 to 7 were given up; 8 is being written. */
CASE(clear__takes_the_files_of_what_was_given_up)
{
    write_whole(disk, 1, 0);
    write_whole(disk, 2, 0);
    damage_manifest(disk, 2);
    for (uint64_t i = 3; i <= 8; i++) {
        assert_int_equal(write_part(disk, i, 0, 0), 0);
    }
    memory_disk_put(disk, "/c/checkpoint-000003/notes.txt", "mine", 4);
    memory_disk_put(disk, "/c/checkpoint-000006/manifest.json.abandoned", "{}", 2);
    memory_disk_put(disk, "/c/checkpoint-000007/manifest.json.part1", "{", 1);
    for (uint32_t round = 0; round < 2; round++) { /* another ps does so too */
        clear(disk, 8, 3);
        CHECK_NUMBERS(disk, 1, 2, 3, 5, 6, 7, 8);
    }
    assert_non_null(find(disk, "000002/shard-0000-of-0002.slc"));
    assert_non_null(find(disk, "000003/notes.txt"));
    assert_null(find(disk, "000003/shard-0000-of-0002.slc"));
    assert_null(find(disk, "000005/shard-0000-of-0002.slc"));
    assert_non_null(find(disk, "000006/shard-0000-of-0002.slc"));
    assert_null(find(disk, "000007/manifest.json.part1"));
    assert_non_null(find(disk, "000008/shard-0000-of-0002.slc"));
    assert_int_equal(disk->change_count, 0); /* no crash brings anything back */
    assert_int_equal(newest_whole(disk), 1);
}

static const struct sl_disk_ops *memory_ops;

/* Meanwhile another ps, which is late, writes the manifest. */
static int remove_late(void *ctx, const char *path, char *why)
{
    if (strstr(path, ".slc") != NULL) {
        memory_disk_put(ctx, "/c/checkpoint-000001/manifest.json", "{}", 2);
    }
    return memory_ops->remove(ctx, path, why);
}

CASE(clear__takes_a_manifest_that_comes_late)
{
    assert_int_equal(write_part(disk, 1, 0, 0), 0);
    memory_ops = disk->disk.ops;
    static struct sl_disk_ops ops; /* until the disk is gone */
    ops = *memory_ops;
    ops.remove = remove_late;
    disk->disk.ops = &ops;
    clear(disk, 2, 1);
    CHECK_NUMBERS(disk, 1);
    assert_null(find(disk, "000001/manifest.json"));
}

CASE(abandon__renames_the_checkpoints_between)
{
    uint32_t count;
    for (uint64_t i = 1; i <= 6; i++) {
        write_whole(disk, i, i == 4 ? 3 : 0);
    }
    damage_manifest(disk, 5);
    for (uint32_t round = 0; round < 2; round++) { /* another ps does so too */
        assert_int_equal(sl_checkpoint_directory_abandon(&disk->disk, "/c", 2, 5, &count, REASON),
                         0);
        assert_int_equal(count, round == 0 ? 2 : 0);
    }
    CHECK_NUMBERS(disk, 1, 2, 3, 4, 5, 6); /* none is used twice */
    assert_null(find(disk, "000003/manifest.json"));
    assert_non_null(find(disk, "000003/manifest.json.abandoned"));
    assert_non_null(find(disk, "000005/manifest.json"));
    memory_disk_restart(disk, 1);
    assert_null(find(disk, "000004/manifest.json"));
    const struct sl_checkpoint_prune_options spare = {
        .keep = 1, .newest = 2, .above = 5, .below = 7};
    assert_int_equal(sl_checkpoint_directory_prune(&disk->disk, "/c", &spare, &count, REASON), 0);
    CHECK_NUMBERS(disk, 2, 3, 4, 5);
    write_whole(disk, 6, 0);
    (void)prune_to(disk, 6, 7);
    CHECK_NUMBERS(disk, 5, 6);
    assert_int_equal(newest(disk), 6);
}

/* What is damaged neither counts as one that is kept nor goes. */
CASE(prune__never_trusts_what_is_damaged)
{
    for (uint64_t i = 1; i <= 4; i++) {
        write_whole(disk, i, 0);
    }
    memory_disk_find(disk, "/c/checkpoint-000004/shard-0001-of-0002.slc")->count--;
    damage_manifest(disk, 3);
    assert_int_equal(prune(disk, 1), 1);
    CHECK_NUMBERS(disk, 2, 3, 4);
    assert_int_equal(newest_whole(disk), 2);
}

/* Folders and files of other names are nobody's checkpoint. */
CASE(list__knows_names)
{
    static const char *const others[] = {"/c/checkpoint-1",
                                         "/c/checkpoint-0000001",
                                         "/c/checkpoint-000000",
                                         "/c/checkpoint-",
                                         "/c/checkpoint-00000x",
                                         "/c/checkpoint--00001",
                                         "/c/checkpoint-+00001",
                                         "/c/other",
                                         "/c/checkpoint-9999999999999"};
    char why[SL_DISK_WHY_BYTES];
    for (uint32_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(disk->disk.ops->make_subdir(disk, others[i], why), 0);
    }
    memory_disk_put(disk, "/c/checkpoint-000005", "", 0);
    check_numbers(disk, NULL, 0);
    assert_int_equal(disk->disk.ops->make_subdir(disk, "/c/checkpoint-999999999999", why), 0);
    assert_int_equal(disk->disk.ops->make_subdir(disk, "/c/checkpoint-000007", why), 0);
    CHECK_NUMBERS(disk, 7, 999999999999ULL);
}
