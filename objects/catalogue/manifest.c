#include "objects/catalogue/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "objects/catalogue/message.h"

/* Encoded: the magic number; the number of entries, u32; the entries; the digests. An entry: a tag,
 * u8, that is GROUP or the type of a tensor; the name with its NUL; of a tensor the rank, u8, and
 * the shape, u64 each. */
#define MAGIC        0x31464d4a424f4c53ULL /* "SLOBJMF1" */
#define HEADER_BYTES 12
#define GROUP        255

static uint32_t type_bits(uint32_t type)
{
    static const uint8_t BITS[] = {
        [SL_OBJECT_BOOL] = 8,        [SL_OBJECT_U8] = 8,      [SL_OBJECT_I8] = 8,
        [SL_OBJECT_U16] = 16,        [SL_OBJECT_I16] = 16,    [SL_OBJECT_U32] = 32,
        [SL_OBJECT_I32] = 32,        [SL_OBJECT_U64] = 64,    [SL_OBJECT_I64] = 64,
        [SL_OBJECT_F16] = 16,        [SL_OBJECT_BF16] = 16,   [SL_OBJECT_F32] = 32,
        [SL_OBJECT_F64] = 64,        [SL_OBJECT_F8_E4M3] = 8, [SL_OBJECT_F8_E5M2] = 8,
        [SL_OBJECT_F8_E8M0] = 8,     [SL_OBJECT_C64] = 64,    [SL_OBJECT_F8_E4M3FNUZ] = 8,
        [SL_OBJECT_F8_E5M2FNUZ] = 8, [SL_OBJECT_F4] = 4,      [SL_OBJECT_F6_E2M3] = 6,
        [SL_OBJECT_F6_E3M2] = 6,
    };
    return type < sizeof BITS ? BITS[type] : 0;
}

uint32_t sl_objects_type_bytes(uint32_t type)
{
    const uint32_t bits = type_bits(type);
    return bits % 8 == 0 ? bits / 8 : 0;
}

bool sl_objects_tensor_bytes(uint32_t type, uint32_t rank, const uint64_t *shape, uint64_t *out)
{
    uint64_t count = 1, bits;
    bool fits = type_bits(type) != 0 && rank <= SL_OBJECTS_RANK_MAX;
    for (uint32_t i = 0; fits && i < rank; i++) {
        fits = !__builtin_mul_overflow(count, shape[i], &count);
    }
    fits =
        fits && !__builtin_mul_overflow(count, (uint64_t)type_bits(type), &bits) && bits % 8 == 0;
    if (fits) {
        *out = bits / 8;
    }
    return fits;
}

void sl_objects_manifest_init(struct sl_objects_manifest *manifest)
{
    *manifest = (struct sl_objects_manifest){.encoded_bytes = HEADER_BYTES};
}

void sl_objects_manifest_fini(struct sl_objects_manifest *manifest)
{
    free(manifest->tensors);
    free(manifest->groups);
    free(manifest->digests);
    free(manifest->texts);
    sl_key_index_fini(&manifest->names);
    sl_objects_manifest_init(manifest);
}

/* The last group has no tensor yet. */
static bool group_is_empty(const struct sl_objects_manifest *manifest)
{
    return manifest->group_count > 0 &&
           manifest->groups[manifest->group_count - 1].first == manifest->tensor_count;
}

/* An array of the manifest that an entry is appended to. */
struct entries {
    const char *what;
    void *items;
    uint32_t *capacity, count, count_max;
    size_t item_bytes;
};

/* Makes room for an entry, and copies its name behind the texts. It counts once text_bytes includes
 * it: see catalogue_manifest_take_name. */
static int catalogue_manifest_prepare(struct sl_objects_manifest *manifest,
                                      const struct entries *to, const char *name,
                                      struct sl_reason *reason)
{
    sl_assert(manifest->digests == NULL);
    if (name == NULL || name[0] == '\0' ||
        !sl_objects_text_is_valid(name, SL_OBJECTS_TENSOR_NAME_BYTES)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the name of a %s has 1 to %d bytes, without control characters",
                              to->what, SL_OBJECTS_TENSOR_NAME_BYTES - 1);
    }
    if (to->count == to->count_max) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s %s is one more than %u", to->what, name,
                              to->count_max);
    }
    const uint32_t text_last = manifest->text_bytes + (uint32_t)strlen(name);
    if (!sl_array_make_room(to->items, to->capacity, to->count, to->item_bytes) ||
        !sl_array_make_room(&manifest->texts, &manifest->text_capacity, text_last, 1)) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for %s %s", to->what, name);
    }
    memcpy(manifest->texts + manifest->text_bytes, name, strlen(name) + 1);
    return 0;
}

static uint32_t catalogue_manifest_take_name(struct sl_objects_manifest *manifest)
{
    const uint32_t at = manifest->text_bytes;
    const uint32_t bytes = (uint32_t)strlen(manifest->texts + at) + 1;
    manifest->text_bytes += bytes;
    manifest->encoded_bytes += bytes;
    return at;
}

int sl_objects_manifest_add_group(struct sl_objects_manifest *manifest, const char *name,
                                  struct sl_reason *reason)
{
    const struct entries to = {"group",
                               &manifest->groups,
                               &manifest->group_capacity,
                               manifest->group_count,
                               SL_LIMIT_OBJECTS_GROUPS,
                               sizeof *manifest->groups};
    const int err = catalogue_manifest_prepare(manifest, &to, name, reason);
    if (err != 0) {
        return err;
    }
    if (group_is_empty(manifest)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "group %s follows a group without tensors",
                              name);
    }
    manifest->groups[manifest->group_count++] = (struct sl_objects_group){
        .name = catalogue_manifest_take_name(manifest), .first = manifest->tensor_count};
    manifest->encoded_bytes += 1;
    return 0;
}

/* Sets type, rank, shape, and the place of a tensor that follows the present ones. */
static int place_tensor(const struct sl_objects_manifest *manifest, const char *name, uint32_t type,
                        uint32_t rank, const uint64_t *shape, struct sl_objects_tensor *out,
                        struct sl_reason *reason)
{
    if (type_bits(type) == 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "tensor %s: there is no type %u", name, type);
    }
    if (rank > SL_OBJECTS_RANK_MAX) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "tensor %s: rank %u is above %d", name, rank,
                              SL_OBJECTS_RANK_MAX);
    }
    *out = (struct sl_objects_tensor){.type = type, .rank = rank};
    out->offset = (manifest->image_bytes + SL_OBJECTS_TENSOR_ALIGNMENT - 1) /
                  SL_OBJECTS_TENSOR_ALIGNMENT * SL_OBJECTS_TENSOR_ALIGNMENT;
    for (uint32_t i = 0; i < rank; i++) {
        out->shape[i] = shape[i];
    }
    const bool is_whole = sl_objects_tensor_bytes(type, rank, shape, &out->bytes);
    if (!is_whole || out->bytes > SL_LIMIT_OBJECTS_IMAGE_BYTES - out->offset) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "tensor %s: with it the image has more than %llu bytes, or its bits "
                              "are no whole bytes",
                              name, SL_LIMIT_OBJECTS_IMAGE_BYTES);
    }
    return 0;
}

int sl_objects_manifest_add_tensor(struct sl_objects_manifest *manifest, const char *name,
                                   uint32_t type, uint32_t rank, const uint64_t *shape,
                                   struct sl_reason *reason)
{
    const struct entries to = {"tensor",
                               &manifest->tensors,
                               &manifest->tensor_capacity,
                               manifest->tensor_count,
                               SL_LIMIT_OBJECTS_TENSORS,
                               sizeof *manifest->tensors};
    struct sl_objects_tensor tensor;
    uint64_t number;
    int err = catalogue_manifest_prepare(manifest, &to, name, reason);
    if (err == 0) {
        err = place_tensor(manifest, name, type, rank, shape, &tensor, reason);
    }
    if (err != 0) {
        return err;
    }
    if (sl_key_index_add(&manifest->names, sl_hash_bytes(name, strlen(name), 0), &number) != 0) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for tensor %s", name);
    }
    /* Other names with the same hash are refused, too: in one of 10^9 manifests of 65,536 names. */
    if (number != manifest->tensor_count) {
        return sl_reason_fail(reason, SL_ERR_EXISTS, "there are two tensors %s", name);
    }
    tensor.name = catalogue_manifest_take_name(manifest);
    manifest->tensors[manifest->tensor_count++] = tensor;
    manifest->encoded_bytes += 2 + sizeof *shape * rank;
    manifest->image_bytes = tensor.offset + tensor.bytes;
    return 0;
}

int sl_objects_manifest_seal(struct sl_objects_manifest *manifest, struct sl_reason *reason)
{
    sl_assert(manifest->digests == NULL);
    if (manifest->tensor_count == 0 || group_is_empty(manifest)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s has no tensor",
                              manifest->group_count > 0 ? "the last group" : "the image");
    }
    const uint32_t count = (uint32_t)sl_objects_block_count(manifest->image_bytes);
    manifest->digests = calloc(count + 1, sizeof *manifest->digests);
    if (manifest->digests == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for %u digests", count);
    }
    manifest->block_count = count;
    manifest->encoded_bytes += sizeof *manifest->digests * count;
    return 0;
}

uint32_t sl_objects_manifest_block_bytes(const struct sl_objects_manifest *manifest, uint32_t block)
{
    sl_assert(block < manifest->block_count);
    const uint64_t left = manifest->image_bytes - (uint64_t)block * SL_OBJECTS_BLOCK_BYTES;
    return left < SL_OBJECTS_BLOCK_BYTES ? (uint32_t)left : SL_OBJECTS_BLOCK_BYTES;
}

void sl_objects_manifest_hash(struct sl_objects_manifest *manifest, uint32_t block,
                              const void *bytes)
{
    manifest->digests[block] =
        sl_hash_bytes_128(bytes, sl_objects_manifest_block_bytes(manifest, block));
}

bool sl_objects_manifest_verify(const struct sl_objects_manifest *manifest, uint32_t block,
                                const void *bytes)
{
    return sl_hash_128_equal(
        manifest->digests[block],
        sl_hash_bytes_128(bytes, sl_objects_manifest_block_bytes(manifest, block)));
}

struct sl_hash_128 sl_objects_manifest_encode(const struct sl_objects_manifest *manifest, void *to)
{
    struct sl_bytes_writer writer = sl_bytes_writer_over(to, manifest->encoded_bytes);
    sl_bytes_put_u64(&writer, MAGIC);
    sl_bytes_put_u32(&writer, manifest->tensor_count + manifest->group_count);
    for (uint32_t i = 0, group = 0; i < manifest->tensor_count; i++) {
        const struct sl_objects_tensor *tensor = &manifest->tensors[i];
        const char *name = sl_objects_manifest_text(manifest, tensor->name);
        if (group < manifest->group_count && manifest->groups[group].first == i) {
            const char *text = sl_objects_manifest_text(manifest, manifest->groups[group++].name);
            sl_bytes_put_u8(&writer, GROUP);
            sl_bytes_put(&writer, text, strlen(text) + 1);
        }
        sl_bytes_put_u8(&writer, (uint8_t)tensor->type);
        sl_bytes_put(&writer, name, strlen(name) + 1);
        sl_bytes_put_u8(&writer, (uint8_t)tensor->rank);
        sl_bytes_put(&writer, tensor->shape, sizeof tensor->shape[0] * tensor->rank);
    }
    sl_bytes_put(&writer, manifest->digests, sizeof *manifest->digests * manifest->block_count);
    sl_assert(!writer.bad);
    sl_assert(writer.left == 0);
    return sl_hash_bytes_128(to, manifest->encoded_bytes);
}

static int decode_entry(struct sl_objects_manifest *manifest, struct sl_bytes *cursor,
                        struct sl_reason *reason)
{
    uint64_t shape[UINT8_MAX];
    const uint8_t tag = sl_bytes_u8(cursor);
    const char *name = sl_bytes_text(cursor, SL_OBJECTS_TENSOR_NAME_BYTES);
    const uint8_t rank = tag == GROUP ? 0 : sl_bytes_u8(cursor);
    sl_bytes_copy(cursor, shape, sizeof shape[0] * rank);
    if (cursor->bad) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "ends within an entry");
    }
    return tag == GROUP ? sl_objects_manifest_add_group(manifest, name, reason)
                        : sl_objects_manifest_add_tensor(manifest, name, tag, rank, shape, reason);
}

int sl_objects_manifest_decode(struct sl_objects_manifest *manifest, const void *bytes,
                               size_t byte_count, struct sl_reason *reason)
{
    struct sl_bytes cursor = sl_bytes_over(bytes, byte_count);
    if (sl_bytes_u64(&cursor) != MAGIC) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "this is no manifest");
    }
    int err = 0;
    for (uint32_t left = sl_bytes_u32(&cursor); left > 0 && err == 0; left--) {
        err = decode_entry(manifest, &cursor, reason);
    }
    const uint64_t digest_bytes =
        sl_objects_block_count(manifest->image_bytes) * sizeof *manifest->digests;
    if (err == 0 && cursor.left != digest_bytes) {
        err =
            sl_reason_fail(reason, SL_ERR_CORRUPT, "%zu bytes of digests, but the image needs %llu",
                           cursor.left, (unsigned long long)digest_bytes);
    }
    if (err == 0) {
        err = sl_objects_manifest_seal(manifest, reason);
    }
    if (err == 0) {
        sl_bytes_copy(&cursor, manifest->digests, digest_bytes);
    }
    return err == 0 || err == SL_ERR_NO_MEMORY ? err : SL_ERR_CORRUPT;
}

uint32_t sl_objects_place_find(const struct sl_objects_place *places, uint32_t count,
                               uint64_t offset)
{
    uint32_t first = 0;
    SL_ARRAY_BISECT(first, count, i, places[i].offset + places[i].bytes <= offset);
    return first;
}

const void *sl_objects_place_read(const struct sl_objects_place *places, uint32_t count,
                                  uint64_t offset, uint32_t bytes, void *to)
{
    const uint64_t end = offset + bytes;
    uint32_t i = sl_objects_place_find(places, count, offset);
    if (i < count && places[i].offset <= offset && places[i].offset + places[i].bytes >= end) {
        return places[i].base + (offset - places[i].offset);
    }
    memset(to, 0, bytes);
    for (; i < count && places[i].offset < end; i++) {
        const uint64_t from = places[i].offset > offset ? places[i].offset : offset;
        const uint64_t place_end = places[i].offset + places[i].bytes;
        memcpy((uint8_t *)to + (from - offset), places[i].base + (from - places[i].offset),
               (place_end < end ? place_end : end) - from);
    }
    return to;
}

void sl_objects_manifest_describe(const struct sl_objects_manifest *manifest,
                                  const struct sl_objects_place *places, uint32_t place_count,
                                  uint64_t image_at, uint32_t index, struct sl_object_tensor *out)
{
    const struct sl_objects_tensor *tensor = &manifest->tensors[index];
    const uint64_t offset = image_at + tensor->offset;
    const uint32_t i = sl_objects_place_find(places, place_count, offset);
    const bool is_in_one = i < place_count && tensor->bytes > 0 &&
                           offset + tensor->bytes <= places[i].offset + places[i].bytes;
    *out = (struct sl_object_tensor){
        .name = sl_objects_manifest_text(manifest, tensor->name),
        .type = tensor->type,
        .rank = tensor->rank,
        .data = is_in_one ? places[i].base + (offset - places[i].offset) : NULL,
        .bytes = tensor->bytes};
    for (uint32_t d = 0; d < tensor->rank; d++) {
        out->shape[d] = tensor->shape[d];
    }
}

uint32_t sl_objects_manifest_find(const struct sl_objects_manifest *manifest, const char *name)
{
    uint64_t number;
    const bool is_there =
        sl_key_index_find(&manifest->names, sl_hash_bytes(name, strlen(name), 0), &number) &&
        strcmp(sl_objects_manifest_text(manifest, manifest->tensors[number].name), name) == 0;
    return is_there ? (uint32_t)number : manifest->tensor_count;
}
