#include "objects/reader/mapping.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "objects/node/board.h"
#include "tests/support/unit.h"

#define BLOCK SL_OBJECTS_BLOCK_BYTES
#define SLOTS 8

/* A pool, and the table of a version of one part: an image of 2 blocks and 70 bytes in slots 3, 4
 * and 1, its manifest in slot 6. */
struct fixture {
    int pool_fd, table_fd;
    uint8_t *pool;
    struct sl_objects_table *table;
    size_t table_bytes;
    struct sl_objects_manifest manifest;
    struct sl_objects_mapping mapping;
    struct sl_reason reason;
};

static void *create(size_t bytes, int *fd)
{
    *fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(*fd >= 0);
    assert_int_equal(ftruncate(*fd, (off_t)bytes), 0);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    assert_true(memory != MAP_FAILED);
    return memory;
}

static void set_up(struct fixture *f)
{
    const uint64_t shape[] = {2 * BLOCK + 6}, last[] = {70 - 64};
    memset(f, 0, sizeof *f);
    f->pool = create(SLOTS * BLOCK, &f->pool_fd);
    f->table_bytes = sizeof *f->table + 4 * sizeof(uint32_t);
    f->table = create(f->table_bytes, &f->table_fd);
    sl_objects_manifest_init(&f->manifest);
    assert_int_equal(
        sl_objects_manifest_add_tensor(&f->manifest, "a", SL_OBJECT_U8, 1, shape, &f->reason), 0);
    assert_int_equal(
        sl_objects_manifest_add_tensor(&f->manifest, "b", SL_OBJECT_U8, 1, last, &f->reason), 0);
    assert_int_equal(sl_objects_manifest_seal(&f->manifest, &f->reason), 0);
    (void)sl_objects_manifest_encode(&f->manifest, f->pool + 6 * BLOCK);
    memset(f->pool + 3 * BLOCK, 'x', BLOCK);
    memset(f->pool + 4 * BLOCK, 'y', BLOCK);
    memset(f->pool + 1 * BLOCK, 'z', 70);
    f->table->part_count = 1;
    f->table->slot_count = 4;
    f->table->slots[0] = 6;
    f->table->slots[1] = 3;
    f->table->slots[2] = 4;
    f->table->slots[3] = 1;
    f->table->parts[0] = (struct sl_objects_table_part){.image_bytes = f->manifest.image_bytes,
                                                        .manifest_bytes = f->manifest.encoded_bytes,
                                                        .slot_count = 4};
}

static void tear_down(struct fixture *f)
{
    sl_objects_mapping_close(&f->mapping);
    sl_objects_manifest_fini(&f->manifest);
    (void)munmap(f->pool, SLOTS * BLOCK);
    (void)munmap(f->table, f->table_bytes);
    (void)close(f->pool_fd);
    (void)close(f->table_fd);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

static int open_it(struct fixture *f)
{
    return sl_objects_mapping_open(&f->mapping, f->table_fd, f->pool_fd, false, &f->reason);
}

CASE(mapping_open__shows_the_image_in_one_range)
{
    struct sl_object_tensor tensor;
    assert_int_equal(open_it(fixture), 0);
    const struct sl_objects_mapping_image *image = &fixture->mapping.images[0];
    assert_int_equal(fixture->mapping.image_count, 1);
    assert_int_equal(image->bytes, 2 * BLOCK + 70);
    sl_objects_manifest_describe(image->manifest, image->places, image->place_count,
                                 image->image_at, 0, &tensor);
    const uint8_t *a = tensor.data;
    assert_int_equal(a[0], 'x');
    assert_int_equal(a[BLOCK - 1], 'x');
    assert_int_equal(a[BLOCK], 'y');
    assert_int_equal(a[2 * BLOCK - 1], 'y');
    assert_int_equal(a[2 * BLOCK + 5], 'z');
    assert_int_equal(sl_objects_manifest_find(image->manifest, "b"), 1);
    assert_int_equal(sl_objects_manifest_find(image->manifest, "c"), 2);
    sl_objects_manifest_describe(image->manifest, image->places, image->place_count,
                                 image->image_at, 1, &tensor);
    assert_ptr_equal(tensor.data, a + 2 * BLOCK + 64);
}

CASE(mapping_verified__grows_with_the_table)
{
    assert_int_equal(open_it(fixture), 0);
    assert_int_equal(sl_objects_mapping_verified(&fixture->mapping), 0);
    sl_objects_table_set_verified(&fixture->table->parts[0], BLOCK);
    assert_int_equal(sl_objects_mapping_verified(&fixture->mapping), BLOCK);
}

static void expect_refused(struct fixture *f)
{
    assert_int_equal(open_it(f), SL_ERR_CORRUPT);
    assert_true(f->reason.text[0] != '\0');
    assert_int_equal(f->mapping.image_count, 0);
}

CASE(mapping_open__refuses_a_table_that_does_not_fit)
{
    struct sl_objects_table_part *part = &fixture->table->parts[0];
    const struct sl_objects_table_part good = *part;
    part->slot_count = 3;
    expect_refused(fixture);
    part->slot_count = 5;
    expect_refused(fixture);
    *part = good;
    part->first_slot = 1;
    expect_refused(fixture);
    part->first_slot = UINT32_MAX;
    expect_refused(fixture);
    *part = good;
    part->image_bytes = UINT64_MAX;
    expect_refused(fixture);
    part->image_bytes = good.image_bytes - 1; /* not that of the manifest */
    expect_refused(fixture);
    *part = good;
    part->manifest_bytes = 0;
    expect_refused(fixture);
    part->manifest_bytes = good.manifest_bytes - 1;
    expect_refused(fixture);
    part->manifest_bytes = UINT64_MAX;
    expect_refused(fixture);
    *part = good;
    part->slot_count = 0; /* only of the own node */
    expect_refused(fixture);
    *part = good;
    fixture->table->slots[3] = SLOTS;
    expect_refused(fixture);
    fixture->table->slots[3] = 1;
    fixture->table->part_count = 0;
    expect_refused(fixture);
    fixture->table->part_count = SL_OBJECTS_PARTS_MAX + 1;
    expect_refused(fixture);
    fixture->table->part_count = 2; /* all zero */
    expect_refused(fixture);
    fixture->table->part_count = 1;
    assert_int_equal(ftruncate(fixture->table_fd, sizeof *fixture->table - 1), 0);
    expect_refused(fixture);
}
