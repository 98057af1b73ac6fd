/* Manifests of checkpoints: any text, with a checksum that is right, and without, gives a manifest
 * within the limits, which is written and read again, or a reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/checkpoint/manifest.h"
#include "tests/fuzz/input.h"

static void check(const struct sl_checkpoint_manifest *manifest)
{
    struct sl_checkpoint_manifest again;
    char name[SL_CHECKPOINT_NAME_BYTES];
    struct sl_reason reason;
    size_t bytes;
    sl_assert(manifest->shard_count >= 1);
    sl_assert(manifest->shard_count <= SL_LIMIT_SHARDS);
    sl_assert(manifest->number > manifest->base);
    for (uint32_t i = 0; i < manifest->shard_count; i++) {
        sl_checkpoint_file_name(i, manifest->shard_count, name);
        sl_assert(strcmp(manifest->files[i].name, name) == 0);
    }
    char *text = sl_checkpoint_manifest_encode(manifest, &bytes);
    sl_assert(text != NULL);
    sl_assert(sl_checkpoint_manifest_decode(text, bytes, &again, &reason) == 0);
    sl_assert(again.id == manifest->id);
    sl_assert(again.time_s == manifest->time_s);
    sl_checkpoint_manifest_fini(&again);
    free(text);
}

static void decode(const char *text, size_t bytes)
{
    struct sl_checkpoint_manifest manifest;
    struct sl_reason reason = {0};
    int err = sl_checkpoint_manifest_decode(text, bytes, &manifest, &reason);
    if (err != 0) {
        sl_assert(reason.text[0] != '\0');
        return;
    }
    check(&manifest);
    sl_checkpoint_manifest_fini(&manifest);
}

/* The digits behind "id": those of the files, wherever they come from: a fuzzer cannot guess them.
 */
static void fix_id(char *text, size_t bytes)
{
    static const char key[] = "\"id\": \"";
    char *at = memmem(text, bytes, key, sizeof key - 1);
    struct sl_checkpoint_manifest manifest;
    char reason[512] = "";
    if (at == NULL || (size_t)(text + bytes - at) < sizeof key + 16) {
        return;
    }
    /* Nothing but the id stands in the way when this is the reason; it is then the only one of
     * 2^64 that is accepted. Tried with one shard of the first numbers. */
    sl_assert(sl_checkpoint_manifest_init(1, &manifest) == 0);
    manifest.number = 5;
    manifest.files[0].bytes = 500;
    manifest.files[0].hash = 255;
    manifest.files[0].rows = 3;
    (void)snprintf(reason, sizeof reason, "%016llx",
                   (unsigned long long)sl_checkpoint_manifest_id(&manifest));
    memcpy(at + sizeof key - 1, reason, 16);
    sl_checkpoint_manifest_fini(&manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    char *text = malloc(byte_count + SL_CHECKPOINT_SEAL_BYTES + 1);
    sl_assert(text != NULL);
    memcpy(text, bytes, byte_count);
    decode(text, byte_count);
    fix_id(text, byte_count);
    sl_checkpoint_manifest_seal(text, byte_count, text + byte_count);
    decode(text, byte_count + SL_CHECKPOINT_SEAL_BYTES - 1);
    free(text);
    return 0;
}
