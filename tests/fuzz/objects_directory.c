/* Files of a keeper: any bytes as record and data are ignored, or a part of this place, whose data
 * is read, decoded as a manifest and verified. Input: bytes of the record, u16; record; data. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "objects/node/directory.h"
#include "reactor/reactor.h"
#include "tests/fuzz/input.h"
#include "tests/support/memory_disk.h"

#define READ_MAX 65536

static struct memory_disk disk;
static struct sl_objects_part part;
static bool has_found, is_read;

static void found(void *ctx, const struct sl_objects_message *hold)
{
    sl_assert(strcmp(hold->name, "m") == 0 && strcmp(hold->commit.record.name, "m") == 0);
    sl_assert(hold->version == 1 && hold->commit.record.version == 1);
    sl_assert(hold->part == 0 && hold->commit.record.part_count > 0);
    sl_assert(!has_found);
    part = hold->commit.record.parts[0];
    has_found = true;
}

static void done(void *ctx, int err, const char *reason)
{
    sl_assert(err == 0 || reason[0] != '\0');
    *(int *)ctx = err;
    is_read = true;
}

static void check_manifest(const uint8_t *bytes, size_t count)
{
    struct sl_objects_manifest manifest;
    struct sl_reason reason = {""};
    sl_objects_manifest_init(&manifest);
    if (sl_objects_manifest_decode(&manifest, bytes, count, &reason) == 0) {
        sl_assert(manifest.encoded_bytes == count);
        if (manifest.block_count > 0 &&
            sl_objects_manifest_block_bytes(&manifest, 0) <= READ_MAX - count) {
            (void)sl_objects_manifest_verify(&manifest, 0, bytes + count);
        }
    }
    sl_objects_manifest_fini(&manifest);
}

static void check(struct sl_objects_directory *directory)
{
    const struct sl_objects_pool_key key = {"m", 1, 0};
    const struct sl_reactor_options options = {.core = -1, .name = "fuzz", .stepped = true};
    struct sl_reactor *reactor;
    int err = SL_ERR_CANCELLED;
    uint8_t *bytes = calloc(1, READ_MAX);
    sl_assert(bytes != NULL);
    sl_assert(sl_reactor_create(&options, &reactor) == 0);
    sl_assert(sl_reactor_connect(&reactor, 1) == 0);
    (void)sl_reactor_turn(reactor, sl_reactor_now_ns(reactor));
    sl_assert(sl_objects_directory_start(directory, reactor) == 0);
    const struct sl_transfer_request request = {
        .local = bytes, .bytes = part.manifest_bytes < READ_MAX ? part.manifest_bytes : READ_MAX};
    sl_assert(sl_objects_directory_read(directory, &key, &request, 1, done, &err) == 0);
    for (is_read = false; !is_read;) {
        (void)sl_reactor_turn(reactor, sl_reactor_now_ns(reactor) + SL_CLOCK_NS_PER_MS);
    }
    if (err == 0) {
        check_manifest(bytes, request.bytes);
    }
    sl_objects_directory_close(&directory);
    sl_reactor_destroy(&reactor);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_objects_directory *directory;
    struct sl_reason reason = {""};
    if (byte_count < 2) {
        return 0;
    }
    sl_log_setup(SL_LOG_OFF, "fuzz");
    const size_t rest = byte_count - 2, length = bytes[0] + 256U * bytes[1];
    const size_t record = length < rest ? length : rest;
    memory_disk_init(&disk);
    has_found = false;
    sl_assert(disk.disk.ops->make_subdir(disk.disk.ctx, "/c/m", reason.text) == 0);
    memory_disk_put(&disk, "/c/m/1.0.record", bytes + 2, record);
    memory_disk_put(&disk, "/c/m/1.0.data", bytes + 2 + record, rest - record);
    sl_assert(sl_objects_directory_open(&disk.disk, "/c", found, NULL, &directory, &reason) == 0);
    if (has_found) {
        check(directory);
    } else {
        sl_objects_directory_close(&directory);
    }
    memory_disk_fini(&disk);
    return 0;
}
