/* Files of a keeper, on a disk in memory that crashes, fills up and is damaged. */
#include "objects/node/directory.h"

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
    char log[4 * SL_REASON_BYTES]; /* lines since it was emptied */
} * world;

static void on_log(void *ctx, enum sl_log_level level, const char *text)
{
    const size_t used = strlen(world->log);
    (void)snprintf(world->log + used, sizeof world->log - used, "%s\n", text);
}

static void on_found(void *ctx, const struct sl_objects_message *hold)
{
    assert_in_range(world->found_count, 0, PARTS - 1);
    (void)snprintf(world->found[world->found_count].name, SL_OBJECTS_NAME_BYTES, "%s", hold->name);
    world->found[world->found_count].version = hold->version;
    world->found[world->found_count].part = hold->part;
    world->found[world->found_count].time_ms = hold->commit.record.time_ms;
    world->found[world->found_count++].bytes = hold->commit.record.parts[hold->part].bytes;
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

static void setup(void)
{
    struct sl_reactor_options options = {.core = -1, .name = "test", .stepped = true, .seed = 7};
    world = calloc(1, sizeof *world);
    assert_non_null(world);
    sl_log_redirect(SL_LOG_INFO, on_log, NULL);
    memory_disk_init(&world->disk);
    assert_int_equal(sl_reactor_create(&options, &world->reactor), 0);
    assert_int_equal(sl_reactor_connect(&world->reactor, 1), 0);
    (void)sl_reactor_turn(world->reactor, sl_reactor_now_ns(world->reactor));
    open_directory();
}

/* Removals on a disk that has stopped go on until the directory stops. */
static void settle(void)
{
    for (uint32_t i = 0;
         sl_objects_directory_is_busy(world->directory) && (i < 20 || !world->disk.stopped); i++) {
        (void)sl_reactor_turn(world->reactor,
                              sl_reactor_now_ns(world->reactor) + SL_CLOCK_NS_PER_MS);
    }
}

static void end_directory(void)
{
    sl_objects_directory_stop(world->directory);
    while (sl_objects_directory_is_busy(world->directory)) {
        (void)sl_reactor_turn(world->reactor,
                              sl_reactor_now_ns(world->reactor) + SL_CLOCK_NS_PER_MS);
    }
    sl_objects_directory_close(&world->directory);
}

static void teardown(void)
{
    end_directory();
    sl_reactor_destroy(&world->reactor);
    memory_disk_fini(&world->disk);
    free(world);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

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

/* Before the commit. */
static int write_part(const struct part *part)
{
    struct sl_objects_record before = part->record;
    before.time_ms = 0;
    assert_int_equal(
        sl_objects_directory_write(world->directory, &part->copy, &before, on_done, NULL), 0);
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

static void remove_part(const struct part *part)
{
    const struct sl_objects_pool_key key = {part->copy.name, part->copy.version, part->copy.part};
    sl_objects_directory_remove(world->directory, &key);
    settle();
}

static void restart(uint64_t seed)
{
    end_directory();
    memory_disk_restart(&world->disk, seed);
    open_directory();
}

static struct part one, two;

CASE(directory__finds_what_was_committed)
{
    for (uint64_t seed = 0; seed < 16; seed++) { /* each crash keeps other names */
        fill(&one, "llama", 3, 0);
        fill(&two, "llama", 20, 2);
        assert_int_equal(store(&one), 0);
        assert_int_equal(store(&two), 0);
        restart(seed);
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
        assert_string_equal(world->log, "");
        remove_part(&one);
        remove_part(&two);
    }
}

CASE(directory__that_was_made_is_there_after_a_crash)
{
    for (uint64_t seed = 0; seed < 16; seed++) {
        end_directory();
        memory_disk_fini(&world->disk);
        memory_disk_init(&world->disk);
        open_directory();
        memory_disk_restart(&world->disk, seed);
        assert_non_null(memory_disk_find(&world->disk, "/c/objects"));
    }
}

CASE(directory__finds_a_part_that_may_have_been_committed)
{
    fill(&one, "llama", 1, 2);
    assert_int_equal(write_part(&one), 0);
    restart(1);
    assert_int_equal(world->found_count, 1);
    assert_int_equal(world->found[0].part, 2);
    assert_int_equal(world->found[0].time_ms, 0);
    assert_int_equal(world->found[0].bytes, IMAGE);
    assert_int_equal(read_part(&one), 0);
    assert_int_equal(commit_part(&one), 0); /* the catalogue says so */
    restart(2);
    assert_int_equal(world->found[0].time_ms, 77);
    assert_string_equal(world->log, "");
}

CASE(directory__keeps_and_names_what_it_does_not_know)
{
    fill(&one, "llama", 1, 0);
    assert_int_equal(store(&one), 0);
    memory_disk_put(&world->disk, "/c/objects/llama/2.0.data", one.image, 100);
    memory_disk_put(&world->disk, "/c/objects/llama/3.0.record", "a later format", 14);
    memory_disk_put(&world->disk, "/c/objects/llama/3.0.data", one.image, 100);
    memory_disk_put(&world->disk, "/c/objects/llama/notes.data~", one.image, 100);
    memory_disk_put(&world->disk, "/c/objects/readme", one.image, 100);
    restart(1);
    assert_int_equal(world->found_count, 1);
    assert_non_null(strstr(world->log, "4 files of 2 names are not of this version of the program, "
                                       "and stay: llama 3, . 1"));
    assert_null(strstr(world->log, "are removed"));
    assert_non_null(memory_disk_find(&world->disk, "/c/objects/llama/2.0.data"));
    assert_non_null(memory_disk_find(&world->disk, "/c/objects/llama/3.0.data"));
    assert_non_null(memory_disk_find(&world->disk, "/c/objects/llama/notes.data~"));
    fill(&two, "llama", 3, 0); /* its number is taken */
    assert_int_equal(store(&two), SL_ERR_EXISTS);
    assert_non_null(strstr(world->reason, "/c/objects/llama/3.0.record is there already"));
    fill(&two, "llama", 2, 0);
    assert_int_equal(store(&two), SL_ERR_EXISTS);
}

CASE(directory__names_what_a_start_removes)
{
    fill(&one, "llama", 1, 0);
    assert_int_equal(store(&one), 0);
    memory_disk_put(&world->disk, "/c/objects/llama/2.0.data~", one.image, 100);
    memory_disk_put(&world->disk, "/c/objects/llama/3.0.data", one.image, 100);
    memory_disk_put(&world->disk, "/c/objects/llama/3.0.removed", one.image, 100);
    memory_disk_put(&world->disk, "/c/objects/llama/record~", one.image, 100);
    restart(1);
    assert_int_equal(world->found_count, 1);
    assert_non_null(strstr(world->log, "4 files of 1 name are removed: "));
    assert_non_null(strstr(world->log, ": llama 4\n"));
    assert_null(memory_disk_find(&world->disk, "/c/objects/llama/2.0.data~"));
    assert_null(memory_disk_find(&world->disk, "/c/objects/llama/3.0.data"));
    assert_null(memory_disk_find(&world->disk, "/c/objects/llama/3.0.removed"));
    assert_null(memory_disk_find(&world->disk, "/c/objects/llama/record~"));
    assert_int_equal(read_part(&one), 0);
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

/* The time of the commit in the record that was found; NEVER: none was. */
#define NEVER UINT64_MAX

static uint64_t found_time(uint32_t part)
{
    for (uint32_t i = 0; i < world->found_count; i++) {
        if (world->found[i].part == part) {
            return world->found[i].time_ms;
        }
    }
    return NEVER;
}

/* The machine stops at each operation of a write, of its commit and of its removal, and keeps any
 * of the names that were not synced. */
CASE(directory__has_what_was_answered_after_a_crash_at_any_operation)
{
    bool is_over = false;
    for (uint64_t stop = 0; !is_over; stop++) {
        for (uint64_t seed = 0; seed < 8; seed++) {
            fill(&one, "llama", stop + 1, 0);
            fill(&two, "llama", stop + 1, 1);
            assert_int_equal(store(&two), 0); /* is not harmed */
            world->disk.stop_at = world->disk.operations + stop;
            const int written = write_part(&one);
            const int committed = written != 0 ? written : commit_part(&one);
            const bool is_stopped = world->disk.stopped;
            if (committed == 0) {
                remove_part(&one);
            }
            is_over = committed == 0 && !world->disk.stopped;
            world->log[0] = '\0';
            restart(stop * 8 + seed);
            assert_int_equal(found_time(1), 77);
            assert_int_equal(read_part(&two), 0);
            const uint64_t time_ms = found_time(0);
            assert_true(time_ms == NEVER || read_part(&one) == 0);
            assert_true(written != 0 || committed == 0 || is_stopped);
            if (written == 0 && committed != 0) { /* a record, of before or after the commit */
                assert_int_not_equal(time_ms, NEVER);
            }
            if (is_over) {
                assert_int_equal(time_ms, NEVER);
            }
            assert_null(strstr(world->log, "stay"));
            remove_part(&one);
            remove_part(&two);
            assert_null(memory_disk_find(&world->disk, "/c/objects/llama"));
        }
    }
}

/* After each failed write its caller removes what is left. */
CASE(directory__leaves_nothing_of_a_write_that_fails_at_any_operation)
{
    fill(&one, "llama", 1, 0);
    for (uint64_t at = 0;; at++) {
        world->disk.fail_at = world->disk.operations + at;
        const int err = write_part(&one);
        world->disk.fail_at = MEMORY_DISK_NEVER;
        if (err == 0) {
            assert_true(at > 12);
            return;
        }
        assert_non_null(strstr(world->reason, "/c/objects"));
        remove_part(&one);
        assert_null(memory_disk_find(&world->disk, "/c/objects/llama"));
    }
}

/* The record of before the commit stays until the other one is written. */
CASE(directory__can_write_a_record_again_that_failed_at_any_operation)
{
    int err = SL_ERR_IO;
    fill(&one, "llama", 1, 0);
    assert_int_equal(write_part(&one), 0);
    for (uint64_t at = 0; err != 0; at++) {
        world->disk.fail_at = world->disk.operations + at;
        err = commit_part(&one);
        world->disk.fail_at = MEMORY_DISK_NEVER;
        restart(at);
        assert_int_equal(world->found_count, 1);
        assert_true(err != 0 || found_time(0) == 77);
        assert_int_equal(read_part(&one), 0);
    }
}

CASE(directory__repeats_a_removal_that_fails_at_any_operation)
{
    fill(&one, "llama", 1, 0);
    for (uint64_t at = 0;; at++) {
        assert_int_equal(store(&one), 0);
        world->log[0] = '\0';
        world->disk.fail_at = world->disk.operations + at;
        remove_part(&one); /* settles when it is repeated */
        const bool has_failed = world->log[0] != '\0';
        world->disk.fail_at = MEMORY_DISK_NEVER;
        assert_null(memory_disk_find(&world->disk, "/c/objects/llama/1.0.record"));
        assert_null(memory_disk_find(&world->disk, "/c/objects/llama/1.0.data"));
        assert_null(memory_disk_find(&world->disk, "/c/objects/llama/1.0.removed"));
        if (!has_failed) {
            assert_true(at >= 4);
            return;
        }
        assert_non_null(strstr(world->log, "tried again each second"));
        assert_non_null(strstr(world->log, "/c/objects/llama/1.0.data is removed now"));
    }
}

CASE(directory__gives_up_a_removal_at_its_end_and_says_so)
{
    const struct sl_objects_pool_key key = {"llama", 1, 0};
    fill(&one, "llama", 1, 0);
    assert_int_equal(store(&one), 0);
    world->disk.stop_at = world->disk.operations; /* each operation fails */
    sl_objects_directory_remove(world->directory, &key);
    settle();
    assert_true(sl_objects_directory_is_busy(world->directory));
    restart(1);
    assert_non_null(strstr(world->log, "remove it again"));
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
    assert_non_null(strstr(world->reason, "/c/objects/large/1.0.data~"));
    assert_null(memory_disk_find(&world->disk, "/c/objects/large"));
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
