/* Files of a keeper, on a disk in memory that crashes, fills up and is damaged. */
#include "objects/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "reactor/reactor.h"
#include "tests/support/memory_disk.h"
#include "tests/support/unit.h"

#define IMAGE 300000 /* two blocks */
#define PARTS 4

/* A part of an object, with a manifest of some bytes and an image in two places. */
struct part {
    struct sl_objects_copy copy;
    struct sl_objects_record record;
    struct sl_objects_place places[3];
    uint8_t manifest[100], image[IMAGE];
};

static struct {
    struct memory_disk disk;
    struct sl_reactor *reactor;
    struct sl_objects_directory *directory;
    uint32_t found_count;
    struct {
        char name[SL_OBJECTS_NAME_BYTES];
        uint64_t version, time_ms, bytes;
        uint32_t part;
    } found[PARTS];
    int err;
    bool is_done;
    char reason[SL_REASON_BYTES];
} * world;

static void on_found(void *ctx, const struct sl_objects_message *hold)
{
    assert_in_range(world->found_count, 0, PARTS - 1);
    (void)snprintf(world->found[world->found_count].name, SL_OBJECTS_NAME_BYTES, "%s", hold->name);
    world->found[world->found_count].version = hold->version;
    world->found[world->found_count].part = hold->part;
    world->found[world->found_count].time_ms = hold->record.time_ms;
    world->found[world->found_count++].bytes = hold->record.parts[hold->part].bytes;
}

static void open_directory(void)
{
    struct sl_reason reason = {""};
    world->found_count = 0;
    if (sl_objects_directory_open(&world->disk.disk, "/c/objects", on_found, NULL,
                                  &world->directory, &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    assert_int_equal(sl_objects_directory_start(world->directory, world->reactor), 0);
}

static int setup(void **state)
{
    struct sl_reactor_options options = {.core = -1, .name = "test", .stepped = true, .seed = 7};
    sl_log_setup(SL_LOG_OFF, "directory");
    world = calloc(1, sizeof *world);
    assert_non_null(world);
    memory_disk_init(&world->disk);
    assert_int_equal(sl_reactor_create(&options, &world->reactor), 0);
    assert_int_equal(sl_reactor_connect(&world->reactor, 1), 0);
    (void)sl_reactor_turn(world->reactor, sl_reactor_now_ns(world->reactor));
    open_directory();
    return 0;
}

static void settle(void)
{
    while (sl_objects_directory_is_busy(world->directory)) {
        (void)sl_reactor_turn(world->reactor,
                              sl_reactor_now_ns(world->reactor) + SL_CLOCK_NS_PER_MS);
    }
}

static int teardown(void **state)
{
    settle();
    sl_objects_directory_close(&world->directory);
    sl_reactor_destroy(&world->reactor);
    memory_disk_fini(&world->disk);
    free(world);
    return 0;
}

#define CASE(name) SL_CASE_WITH(name, setup, teardown)

static void on_done(void *ctx, int err, const char *reason)
{
    world->err = err;
    world->is_done = true;
    (void)snprintf(world->reason, sizeof world->reason, "%s", reason);
}

static int result(void)
{
    settle();
    assert_true(world->is_done);
    world->is_done = false;
    return world->err;
}

static void fill(struct part *part, const char *name, uint64_t version, uint32_t number)
{
    memset(part, 0, sizeof *part);
    for (size_t i = 0; i < IMAGE; i++) {
        part->image[i] = (uint8_t)(i * 7 + version);
    }
    memset(part->manifest, (int)version, sizeof part->manifest);
    part->copy.version = version;
    part->copy.part = number;
    (void)snprintf(part->copy.name, sizeof part->copy.name, "%s", name);
    part->copy.info = (struct sl_objects_part){.bytes = IMAGE, .manifest_bytes = 100};
    part->places[0] = (struct sl_objects_place){.bytes = 100, .base = part->manifest};
    part->places[1] = (struct sl_objects_place){
        .offset = SL_OBJECTS_BLOCK_BYTES, .bytes = 1000, .base = part->image};
    part->places[2] = (struct sl_objects_place){
        .offset = SL_OBJECTS_BLOCK_BYTES + 1024, .bytes = IMAGE - 1024, .base = part->image + 1024};
    part->copy.places = part->places;
    part->copy.place_count = 3;
    part->record = (struct sl_objects_record){.name = part->copy.name,
                                              .note = "a note",
                                              .version = version,
                                              .epoch = 5,
                                              .time_ms = 77,
                                              .origin = SL_ORIGIN_PS,
                                              .part_count = number + 1};
    for (uint32_t i = 0; i <= number; i++) {
        part->record.parts[i] = part->copy.info;
    }
}

static int write_part(const struct part *part)
{
    assert_int_equal(sl_objects_directory_write(world->directory, &part->copy, on_done, NULL), 0);
    return result();
}

static int commit_part(const struct part *part)
{
    assert_int_equal(sl_objects_directory_commit(world->directory, &part->record, part->copy.part,
                                                 on_done, NULL),
                     0);
    return result();
}

static int store(const struct part *part)
{
    const int err = write_part(part);
    return err != 0 ? err : commit_part(part);
}

/* Reads the whole image but for the bytes between the places, and the manifest. */
static int read_part(const struct part *part)
{
    static uint8_t manifest[100], image[IMAGE];
    const struct sl_objects_pool_key key = {part->copy.name, part->copy.version, part->copy.part};
    const struct sl_transfer_request requests[] = {
        {.local = image, .remote = SL_OBJECTS_BLOCK_BYTES, .bytes = IMAGE},
        {.local = manifest, .remote = 0, .bytes = 100}};
    assert_int_equal(sl_objects_directory_read(world->directory, &key, requests, 2, on_done, NULL),
                     0);
    const int err = result();
    if (err == 0) {
        assert_memory_equal(manifest, part->manifest, 100);
        assert_memory_equal(image, part->image, 1000);
        assert_memory_equal(image + 1024, part->image + 1024, IMAGE - 1024);
        for (uint32_t i = 1000; i < 1024; i++) {
            assert_int_equal(image[i], 0);
        }
    }
    return err;
}

static void restart(uint64_t seed)
{
    settle();
    sl_objects_directory_close(&world->directory);
    memory_disk_restart(&world->disk, seed);
    open_directory();
}

static struct part one, two;

CASE(directory__finds_what_was_committed)
{
    fill(&one, "llama", 3, 0);
    fill(&two, "llama", 20, 2);
    assert_int_equal(store(&one), 0);
    assert_int_equal(store(&two), 0);
    restart(1);
    assert_int_equal(world->found_count, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct part *part = world->found[i].version == 3 ? &one : &two;
        assert_string_equal(world->found[i].name, "llama");
        assert_int_equal(world->found[i].version, part->copy.version);
        assert_int_equal(world->found[i].part, part->copy.part);
        assert_int_equal(world->found[i].time_ms, 77);
        assert_int_equal(world->found[i].bytes, IMAGE);
    }
    assert_int_equal(read_part(&one), 0);
    assert_int_equal(read_part(&two), 0);
}

CASE(directory__removes_data_without_a_record)
{
    fill(&one, "llama", 1, 0);
    fill(&two, "llama", 10, 0);
    assert_int_equal(write_part(&one), 0);
    assert_int_equal(store(&two), 0);
    restart(1);
    assert_int_equal(world->found_count, 1);
    assert_int_equal(world->found[0].version, 10);
    assert_null(memory_disk_find(&world->disk, "/c/objects/llama/1.0.data"));
    assert_int_equal(read_part(&two), 0);
}

CASE(directory__removes_a_version)
{
    fill(&one, "llama", 1, 0);
    const struct sl_objects_pool_key key = {"llama", 1, 0};
    assert_int_equal(store(&one), 0);
    sl_objects_directory_remove(world->directory, &key);
    sl_objects_directory_remove(world->directory, &key); /* again: it is not there any more */
    settle();
    assert_null(memory_disk_find(&world->disk, "/c/objects/llama"));
    assert_int_equal(read_part(&one), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(world->reason, "/c/objects/llama/1.0.data"));
}

CASE(directory__has_all_or_nothing_of_a_part_after_a_crash)
{
    for (uint64_t stop = 0;; stop++) {
        fill(&one, "llama", stop + 1, 0);
        fill(&two, "llama", stop + 1, 1);
        assert_int_equal(store(&two), 0); /* is not harmed */
        world->disk.stop_at = world->disk.operations + stop;
        const int err = store(&one);
        restart(stop);
        bool has_one = false, has_two = false;
        for (uint32_t i = 0; i < world->found_count; i++) {
            has_one |= world->found[i].part == 0;
            has_two |= world->found[i].part == 1;
        }
        assert_true(has_two);
        assert_int_equal(read_part(&two), 0);
        assert_true(has_one || err != 0);
        assert_true(!has_one || read_part(&one) == 0);
        for (uint32_t part = 0; part < 2; part++) {
            const struct sl_objects_pool_key key = {"llama", stop + 1, part};
            sl_objects_directory_remove(world->directory, &key);
        }
        settle();
        if (err == 0) {
            return;
        }
    }
}

CASE(directory__has_names_that_cannot_leave_it)
{
    static const char *const names[PARTS] = {"..", "../../etc/passwd", "a%2Fb", ".hidden"};
    static const char *const folders[PARTS] = {"%2E.", "%2E.%2F..%2Fetc%2Fpasswd", "a%252Fb",
                                               "%2Ehidden"};
    for (uint32_t i = 0; i < PARTS; i++) {
        char path[128];
        fill(&one, names[i], 1, 0);
        assert_int_equal(store(&one), 0);
        (void)snprintf(path, sizeof path, "/c/objects/%s/1.0.data", folders[i]);
        assert_non_null(memory_disk_find(&world->disk, path));
    }
    restart(1);
    assert_int_equal(world->found_count, PARTS);
    for (uint32_t i = 0; i < PARTS; i++) {
        fill(&one, world->found[i].name, 1, 0);
        assert_int_equal(read_part(&one), 0);
    }
}

CASE(directory__refuses_a_name_that_is_too_long_for_a_path)
{
    char name[SL_OBJECTS_NAME_BYTES];
    memset(name, '/', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    fill(&one, name, 1, 0);
    assert_int_equal(write_part(&one), SL_ERR_TOO_LARGE);
}

CASE(directory__is_full_for_one_part_only)
{
    fill(&one, "large", 1, 0);
    fill(&two, "small", 1, 0);
    world->disk.bytes_left = 200000;
    assert_int_equal(write_part(&one), SL_ERR_IO);
    assert_non_null(strstr(world->reason, "/c/objects/large/1.0.data"));
    assert_null(memory_disk_find(&world->disk, "/c/objects/large/1.0.data"));
    world->disk.bytes_left = 200000; /* of the file that is gone */
    two.copy.place_count = 1;
    assert_int_equal(store(&two), 0);
    world->disk.bytes_left = UINT64_MAX;
    restart(1);
    assert_int_equal(world->found_count, 1);
    assert_string_equal(world->found[0].name, "small");
}

CASE(directory__reports_data_that_is_cut_short)
{
    fill(&one, "llama", 1, 0);
    assert_int_equal(store(&one), 0);
    memory_disk_put(&world->disk, "/c/objects/llama/1.0.data", one.image, 290000);
    restart(1);
    assert_int_equal(read_part(&one), SL_ERR_CORRUPT);
    assert_non_null(strstr(world->reason, "1.0.data ends at byte 290000"));
}

CASE(directory__ignores_records_of_other_places_and_damaged_ones)
{
    fill(&one, "llama", 1, 0);
    assert_int_equal(store(&one), 0);
    const struct memory_disk_node *node =
        memory_disk_find(&world->disk, "/c/objects/llama/1.0.record");
    uint8_t record[SL_OBJECTS_MESSAGE_BYTES];
    const size_t count = node->count;
    memcpy(record, node->bytes, count);
    memory_disk_put(&world->disk, "/c/objects/llama/2.0.record", record, count);
    memory_disk_put(&world->disk, "/c/objects/llama/1.1.record", record, count);
    memory_disk_put(&world->disk, "/c/objects/llama/x.record", record, count);
    memory_disk_put(&world->disk, "/c/objects/llama/3.0.record", record, count - 1);
    memory_disk_put(&world->disk, "/c/objects/llama/3.0.data", record, count);
    memory_disk_put(&world->disk, "/c/objects/readme", record, count);
    memory_disk_put(&world->disk, "/c/objects/llama/readme", record, count);
    restart(1);
    assert_int_equal(world->found_count, 1);
    assert_int_equal(world->found[0].version, 1);
    assert_non_null(memory_disk_find(&world->disk, "/c/objects/llama/3.0.data"));
    for (size_t i = 0; i < count; i++) { /* any one byte */
        record[i] ^= 0x55;
        memory_disk_put(&world->disk, "/c/objects/llama/1.0.record", record, count);
        restart(i);
        assert_in_range(world->found_count, 0, 1);
        record[i] ^= 0x55;
    }
}
