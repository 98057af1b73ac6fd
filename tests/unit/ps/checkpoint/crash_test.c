/* A crash, or an error, at every operation that writing a checkpoint consists of. */
#include <malloc.h>

#include "ps/checkpoint/select.h"
#include "tests/unit/ps/checkpoint/fixture.h"

#define SEEDS 16 /* every STRIDE-th of them */

static const struct sl_checkpoint_shard_range all_shards;

/* What a ps does with its files: checkpoint `number` over `base`, then what is old goes.
 * *published: it was said to exist. */
static int write_and_prune(struct memory_disk *disk, uint64_t number, uint64_t base,
                           bool *published)
{
    const struct sl_checkpoint_prune_options options = {.keep = 1};
    uint32_t removed;
    *published = false;
    int err = fixture_write(&disk->disk, "/c", number, base);
    if (err == 0) {
        *published = true;
        err = sl_checkpoint_directory_prune(&disk->disk, "/c", &options, &removed, REASON);
    }
    return err;
}

/* Checkpoint 1 is there. It is written once, since that takes longer than all else. */
static struct memory_disk *begin(void)
{
    static struct memory_disk *first;
    if (first == NULL) {
        first = fixture_disk();
        assert_int_equal(fixture_write(&first->disk, "/c", 1, 0), 0);
        memory_disk_restart(first, 0);
        first->operations = 0;
    }
    struct memory_disk *disk = fixture_disk();
    *disk = *first;
    disk->disk.ctx = disk;
    for (uint32_t i = 0; i < disk->node_count; i++) {
        struct memory_disk_node *node = &disk->nodes[i];
        if (node->bytes != NULL) {
            node->bytes = malloc(node->capacity);
            assert_non_null(node->bytes);
            memcpy(node->bytes, first->nodes[i].bytes, node->count);
        }
    }
    return disk;
}

static uint64_t operations_of(uint64_t number, uint64_t base)
{
    bool published;
    struct memory_disk *disk = begin();
    assert_int_equal(write_and_prune(disk, number, base, &published), 0);
    const uint64_t operations = disk->operations;
    fixture_disk_free(disk);
    assert_true(operations > 30);
    return operations;
}

/* The old one or the new one is found, and every byte of it is right; the new one, if it was said
 * to exist. */
static void check_newest(struct memory_disk *disk, uint64_t number, bool published)
{
    uint64_t newest = 0;
    struct fixture_findings findings;
    assert_int_equal(sl_checkpoint_newest(&disk->disk, "/c", (struct sl_checkpoint_shard_range){0},
                                          &newest, REASON),
                     0);
    assert_true(newest == number || (newest == 1 && !published));
    fixture_check(&disk->disk, "/c", newest);
    assert_int_equal(fixture_verify(&disk->disk, "/c", newest, &findings), 0);
    assert_int_equal(findings.count, 0);
}

/* Nothing has a manifest and is damaged. */
static void check_states(struct memory_disk *disk)
{
    struct sl_checkpoint_list list;
    struct sl_checkpoint_chain chain;
    assert_int_equal(sl_checkpoint_directory_list(&disk->disk, "/c", &list, REASON), 0);
    for (uint32_t i = 0; i < list.count; i++) {
        assert_int_not_equal(list.items[i].state, SL_CHECKPOINT_DAMAGED);
        if (list.items[i].state == SL_CHECKPOINT_PUBLISHED) {
            assert_int_equal(sl_checkpoint_directory_chain(&disk->disk, "/c", list.items[i].number,
                                                           all_shards, NULL, &chain, REASON),
                             0);
            sl_checkpoint_chain_fini(&chain);
        }
    }
    sl_checkpoint_list_fini(&list);
}

/* And what comes next is written as if nothing had been. */
static void check_goes_on(struct memory_disk *disk, uint64_t number, uint64_t base)
{
    uint64_t newest = 0;
    bool published;
    int err = write_and_prune(disk, number, base, &published);
    assert_true(err == 0 || err == SL_ERR_EXISTS);
    assert_int_equal(sl_checkpoint_newest(&disk->disk, "/c", (struct sl_checkpoint_shard_range){0},
                                          &newest, REASON),
                     0);
    assert_int_equal(newest, number);
    assert_int_equal(write_and_prune(disk, number + 1, 0, &published), 0);
    struct sl_checkpoint_list list;
    assert_int_equal(sl_checkpoint_directory_list(&disk->disk, "/c", &list, REASON), 0);
    assert_int_equal(list.count, 1);
    assert_int_equal(list.items[0].number, number + 1);
    sl_checkpoint_list_fini(&list);
}

static void crash_everywhere(uint64_t number, uint64_t base)
{
    const uint64_t operations = operations_of(number, base);
    for (uint64_t at = 0; at <= operations; at++) {
        for (uint64_t seed = 0; seed < SEEDS; seed += STRIDE) {
            bool published;
            struct memory_disk *disk = begin();
            disk->stop_at = at;
            int err = write_and_prune(disk, number, base, &published);
            assert_true(at == operations || err != 0);
            memory_disk_restart(disk, seed + at * SEEDS);
            check_newest(disk, number, published);
            check_states(disk);
            if (seed == 0) {
                check_goes_on(disk, number, base);
            }
            fixture_disk_free(disk);
        }
    }
}

/* Freed memory stays with the process: each of thousands of writers touches a new MiB otherwise. */
SL_UNIT_SETUP()
{
    (void)mallopt(M_TOP_PAD, 16 << 20);
}

SL_CASE(crash__full_checkpoint)
{
    crash_everywhere(2, 0);
}

SL_CASE(crash__one_that_adds)
{
    crash_everywhere(2, 1);
}

/* Errors are not crashes: the process goes on, and so does the disk. */
SL_CASE(error__at_every_operation)
{
    const uint64_t operations = operations_of(2, 0);
    for (uint64_t at = 0; at < operations; at++) {
        bool published;
        struct memory_disk *disk = begin();
        disk->fail_at = at;
        (void)write_and_prune(disk, 2, 0, &published);
        assert_int_equal(disk->open_files, 0);
        disk->fail_at = MEMORY_DISK_NEVER;
        check_newest(disk, 2, published);
        check_states(disk);
        check_goes_on(disk, 2, 0);
        fixture_disk_free(disk);
    }
}

/* Of every size: the reason says so, the old checkpoint stays, nothing temporary is left. */
SL_CASE(full_disk__at_every_byte)
{
    uint32_t failed = 0;
    for (uint64_t room = 0;; room += 7 * STRIDE) {
        bool published;
        struct memory_disk *disk = begin();
        disk->bytes_left = room;
        int err = write_and_prune(disk, 2, 0, &published);
        if (err == 0) {
            fixture_disk_free(disk);
            break;
        }
        failed++;
        assert_int_equal(err, SL_ERR_IO);
        assert_non_null(strstr(fixture_reason.text, "cannot write /c/checkpoint-000002/"));
        assert_non_null(strstr(fixture_reason.text, "No space left on device"));
        check_newest(disk, 2, false);
        assert_null(memory_disk_find(disk, "/c/checkpoint-000002/shard-0000-of-0002.slc.part"));
        assert_null(memory_disk_find(disk, "/c/checkpoint-000002/shard-0001-of-0002.slc.part"));
        assert_null(memory_disk_find(disk, "/c/checkpoint-000002/manifest.json.part3"));
        disk->bytes_left = UINT64_MAX;
        check_goes_on(disk, 2, 0);
        fixture_disk_free(disk);
    }
    assert_true(failed > 50 / STRIDE);
}

/* A read that gives less than there is looks like a file that was cut short: an error, whichever
 * read it is. */
SL_CASE(short_read__is_told)
{
    struct memory_disk *disk = begin();
    struct fixture_findings findings;
    assert_int_equal(fixture_verify(&disk->disk, "/c", 1, &findings), 0);
    const uint64_t operations = disk->operations;
    uint32_t told = 0;
    for (uint64_t at = 0; at < operations; at++) {
        disk->operations = 0;
        disk->short_read_at = at;
        int err = fixture_verify(&disk->disk, "/c", 1, &findings);
        assert_true(err == 0 || err == SL_ERR_CORRUPT);
        told += err != 0;
        disk->short_read_at = MEMORY_DISK_NEVER;
        disk->operations = 0;
        disk->fail_at = at;
        err = fixture_verify(&disk->disk, "/c", 1, &findings);
        assert_true(err == 0 || err == SL_ERR_IO); /* a close that fails does no harm */
        disk->fail_at = MEMORY_DISK_NEVER;
    }
    /* The manifest; of each file its header, three payloads, five headers of blocks, an end. */
    assert_true(told >= 1 + 2 * (1 + 3 + 5 + 1) - 2);
    fixture_disk_free(disk);
}
