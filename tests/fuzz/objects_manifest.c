/* Manifests of objects: any bytes are an error with a reason, or a layout whose tensors lie apart,
 * aligned and inside the image, and which is encoded again to the same bytes. If the first byte is
 * odd, digests are appended, so that inputs need not know how many their image has. */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/catalogue/manifest.h"
#include "tests/fuzz/input.h"

#define DIGEST_BYTES_MAX 1024

static void check(const struct sl_objects_manifest *manifest, const uint8_t *bytes, size_t count)
{
    uint64_t end = 0;
    uint32_t group = 0;
    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        const struct sl_objects_tensor *tensor = &manifest->tensors[i];
        sl_assert(tensor->offset % SL_OBJECTS_TENSOR_ALIGNMENT == 0);
        sl_assert(tensor->offset >= end);
        sl_assert(tensor->offset - end < SL_OBJECTS_TENSOR_ALIGNMENT);
        sl_assert(tensor->bytes <= manifest->image_bytes - tensor->offset);
        sl_assert(strlen(sl_objects_manifest_text(manifest, tensor->name)) > 0);
        end = tensor->offset + tensor->bytes;
        group += group < manifest->group_count && manifest->groups[group].first == i;
    }
    sl_assert(end == manifest->image_bytes);
    sl_assert(end <= SL_LIMIT_OBJECTS_IMAGE_BYTES);
    sl_assert(group == manifest->group_count);
    sl_assert(manifest->encoded_bytes == count);
    uint8_t *again = malloc(count);
    sl_assert(again != NULL);
    (void)sl_objects_manifest_encode(manifest, again);
    sl_assert(memcmp(again, bytes, count) == 0);
    free(again);
}

static bool decodes(const uint8_t *bytes, size_t count)
{
    struct sl_objects_manifest manifest;
    struct sl_reason reason = {""};
    sl_objects_manifest_init(&manifest);
    const int err = sl_objects_manifest_decode(&manifest, bytes, count, &reason);
    if (err == 0) {
        check(&manifest, bytes, count);
    } else {
        sl_assert(err == SL_ERR_CORRUPT);
        sl_assert(reason.text[0] != '\0');
    }
    sl_objects_manifest_fini(&manifest);
    return err == 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    if (byte_count == 0) {
        return 0;
    }
    const size_t count = byte_count - 1;
    uint8_t *longer = calloc(count + DIGEST_BYTES_MAX, 1);
    sl_assert(longer != NULL);
    memcpy(longer, bytes + 1, count);
    const size_t most = bytes[0] % 2 == 0 ? 0 : DIGEST_BYTES_MAX;
    for (size_t more = 0; more <= most && !decodes(longer, count + more); more += 16) {
    }
    free(longer);
    return 0;
}
