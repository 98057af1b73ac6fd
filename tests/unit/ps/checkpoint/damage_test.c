/* Every STRIDE-th bit and length of the files of a checkpoint. */
#include "tests/unit/ps/checkpoint/fixture.h"

#define FOLDER "/c/checkpoint-000001/"

static const char *const files[] = {FOLDER "shard-0000-of-0002.slc",
                                    FOLDER "shard-0001-of-0002.slc", FOLDER "manifest.json"};

/* The one finding names the file. */
static void check_told(struct memory_disk *disk, const char *path)
{
    struct fixture_findings findings;
    int err = fixture_verify(&disk->disk, "/c", 2, &findings);
    assert_true(err == SL_ERR_CORRUPT || err == SL_ERR_VERSION);
    assert_int_equal(findings.count, 1);
    assert_string_equal(findings.paths[0], path);
    assert_non_null(strstr(findings.whys[0], path));
    assert_string_equal(findings.whys[0], fixture_reason.text);
}

/* Checkpoint 2 adds to checkpoint 1, whose files are damaged. */
static void setup(struct memory_disk *disk)
{
    memory_disk_init(disk);
    assert_int_equal(fixture_write(&disk->disk, "/c", 1, 0), 0);
    assert_int_equal(fixture_write(&disk->disk, "/c", 2, 1), 0);
}

#define DAMAGE_CASE(name) SL_CASE_USING(name, struct memory_disk, disk, setup, fixture_teardown)

DAMAGE_CASE(verify__names_every_flipped_bit)
{
    for (uint32_t file = 0; file < 3; file++) {
        struct memory_disk_node *node = memory_disk_find(disk, files[file]);
        assert_true(node->count > 200);
        for (size_t bit = 0; bit < node->count * 8; bit += STRIDE) {
            node->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
            check_told(disk, files[file]);
            node->bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
        }
    }
    struct fixture_findings findings;
    assert_int_equal(fixture_verify(&disk->disk, "/c", 2, &findings), 0);
}

DAMAGE_CASE(verify__names_every_truncated_file)
{
    for (uint32_t file = 0; file < 3; file++) {
        struct memory_disk_node *node = memory_disk_find(disk, files[file]);
        const size_t whole = node->count;
        for (size_t bytes = 0; bytes < whole; bytes += STRIDE) {
            node->count = bytes;
            check_told(disk, files[file]);
        }
        node->count = whole + 1; /* and one that is too long */
        node->bytes[whole] = 0;
        check_told(disk, files[file]);
        node->count = whole;
    }
}

DAMAGE_CASE(verify__names_all_that_is_missing)
{
    struct fixture_findings findings;
    char why[SL_DISK_WHY_BYTES];
    assert_int_equal(disk->disk.ops->remove(disk, files[0], why), 0);
    check_told(disk, files[0]);
    assert_non_null(strstr(fixture_reason.text, "No such file or directory"));
    memory_disk_find(disk, files[1])->bytes[100] ^= 1;
    assert_int_equal(fixture_verify(&disk->disk, "/c", 2, &findings), SL_ERR_CORRUPT);
    assert_int_equal(findings.count, 2);
    assert_string_equal(findings.paths[0], files[0]);
    assert_string_equal(findings.paths[1], files[1]);
    assert_int_equal(disk->disk.ops->remove(disk, files[2], why), 0);
    assert_int_equal(fixture_verify(&disk->disk, "/c", 2, &findings), SL_ERR_CORRUPT);
    assert_int_equal(findings.count, 1);
    assert_string_equal(findings.whys[0], "/c/checkpoint-000001, the base of checkpoint 2, is "
                                          "not there");
}

/* Whole files, in each other's places. */
DAMAGE_CASE(verify__names_a_file_that_is_anothers)
{
    struct memory_disk_node *first = memory_disk_find(disk, files[0]);
    struct memory_disk_node *second = memory_disk_find(disk, files[1]);
    struct memory_disk_node swapped = *first;
    struct fixture_findings findings;
    *first = *second;
    *second = swapped;
    assert_int_equal(fixture_verify(&disk->disk, "/c", 1, &findings), SL_ERR_CORRUPT);
    assert_int_equal(findings.count, 2);
    *second = *first;
    *first = swapped;
    /* The same shard's of another checkpoint. */
    struct memory_disk_node *later =
        memory_disk_find(disk, "/c/checkpoint-000002/shard-0000-of-0002.slc");
    swapped = *first;
    *first = *later;
    assert_int_equal(fixture_verify(&disk->disk, "/c", 1, &findings), SL_ERR_CORRUPT);
    assert_int_equal(findings.count, 1);
    *first = swapped;
    assert_int_equal(fixture_verify(&disk->disk, "/c", 2, &findings), 0);
}
