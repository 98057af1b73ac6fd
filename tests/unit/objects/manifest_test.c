#include "objects/catalogue/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/support/unit.h"

#define TENSORS     40
#define IMAGE_BYTES (10U << 20)
#define BLOCK       SL_OBJECTS_BLOCK_BYTES

static uint64_t seed;
static struct sl_reason reason;

/* A slow reference. An image is filled byte by byte, its manifest written as docs/protocol.md has
 * it, and read by a parser that compares each name with all others. */

struct reference {
    char names[TENSORS + 1][300];
    uint64_t offsets[TENSORS + 1], bytes[TENSORS + 1];
    uint32_t tensor_count, group_count;
    uint64_t image_bytes;
    uint8_t image[IMAGE_BYTES];
    uint8_t encoded[64 << 10];
    size_t encoded_bytes;
};

static struct reference reference, parsed;
static uint8_t *data[TENSORS]; /* of the tensors, each its own allocation */

static void write_bytes(const void *from, size_t bytes)
{
    assert_true(reference.encoded_bytes + bytes <= sizeof reference.encoded);
    memcpy(reference.encoded + reference.encoded_bytes, from, bytes);
    reference.encoded_bytes += bytes;
}

static void write_number(uint64_t number, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        const uint8_t byte = (uint8_t)(number >> (8 * i));
        write_bytes(&byte, 1);
    }
}

static uint32_t type_bits(uint32_t type)
{
    return type <= 2 || (type >= 13 && type <= 17)             ? 8
           : type == 3 || type == 4 || type == 9 || type == 10 ? 16
           : type == 5 || type == 6 || type == 11              ? 32
           : type == 19                                        ? 4
           : type >= 20                                        ? 6
                                                               : 64;
}

/* Adds a random tensor to the manifest and to the reference, which computes all on its own. */
static void add_tensor(struct sl_objects_manifest *manifest, uint32_t index)
{
    const uint32_t type = (uint32_t)(sl_hash_random(&seed) % 22);
    const bool is_fraction = type_bits(type) < 8; /* the first dimension makes it whole bytes */
    const uint32_t rank =
        (uint32_t)(sl_hash_random(&seed) %
                   (is_fraction ? SL_OBJECTS_RANK_MAX : SL_OBJECTS_RANK_MAX + 1)) +
        (is_fraction ? 1 : 0);
    uint64_t shape[SL_OBJECTS_RANK_MAX], bytes = is_fraction ? 1 : type_bits(type) / 8;
    char name[32];
    snprintf(name, sizeof name, "layer %u/w", index);
    write_number(type, 1);
    write_bytes(name, strlen(name) + 1);
    write_number(rank, 1);
    for (uint32_t i = 0; i < rank; i++) {
        const uint64_t most = bytes < 1000 ? 70 : bytes < 30000 ? 8 : 1;
        shape[i] = sl_hash_random(&seed) % 40 == 0 ? 0 : 1 + sl_hash_random(&seed) % most;
        if (is_fraction && i == 0) {
            bytes = shape[i] * type_bits(type);
            shape[i] *= 8;
        } else {
            bytes *= shape[i];
        }
        write_number(shape[i], 8);
    }
    while (reference.image_bytes % 64 != 0) {
        reference.image[reference.image_bytes++] = 0;
    }
    assert_true(reference.image_bytes + bytes <= IMAGE_BYTES);
    data[index] = malloc(bytes + 1);
    assert_non_null(data[index]);
    reference.offsets[index] = reference.image_bytes;
    for (uint64_t i = 0; i < bytes; i++) {
        data[index][i] = (uint8_t)sl_hash_random(&seed);
        reference.image[reference.image_bytes++] = data[index][i];
    }
    assert_int_equal(sl_objects_manifest_add_tensor(manifest, name, type, rank, shape, &reason), 0);
    assert_true(manifest->tensors[index].offset == reference.offsets[index]);
    assert_true(manifest->tensors[index].bytes == bytes);
}

/* Hashes the blocks from where the tensors are, and compares with those of the image. */
static void hash_blocks(struct sl_objects_manifest *manifest)
{
    struct sl_objects_place places[TENSORS];
    static uint8_t scratch[BLOCK];
    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        const struct sl_objects_tensor *tensor = &manifest->tensors[i];
        places[i] = (struct sl_objects_place){tensor->offset, tensor->bytes, data[i]};
    }
    for (uint32_t block = 0; block < manifest->block_count; block++) {
        const uint64_t from = (uint64_t)block * BLOCK;
        const uint32_t bytes = sl_objects_manifest_block_bytes(manifest, block);
        assert_true(bytes ==
                    (reference.image_bytes - from < BLOCK ? reference.image_bytes - from : BLOCK));
        const void *read =
            sl_objects_place_read(places, manifest->tensor_count, from, bytes, scratch);
        assert_memory_equal(read, reference.image + from, bytes);
        sl_objects_manifest_hash(manifest, block, read);
        const XXH128_hash_t hash = XXH3_128bits(reference.image + from, bytes);
        write_number(hash.low64, 8);
        write_number(hash.high64, 8);
    }
}

/* Makes a random manifest, and the reference of it. */
static void make(struct sl_objects_manifest *manifest, uint32_t tensors)
{
    uint32_t groups = 0;
    reference.image_bytes = 0;
    reference.encoded_bytes = 0;
    sl_objects_manifest_init(manifest);
    write_bytes("SLOBJMF1", 8);
    write_number(0, 4);
    for (uint32_t i = 0; i < tensors; i++) {
        if (sl_hash_random(&seed) % 4 == 0) {
            char name[32];
            snprintf(name, sizeof name, "group %u", groups++);
            assert_int_equal(sl_objects_manifest_add_group(manifest, name, &reason), 0);
            assert_int_equal(manifest->groups[groups - 1].first, i);
            write_number(255, 1);
            write_bytes(name, strlen(name) + 1);
        }
        add_tensor(manifest, i);
    }
    reference.encoded[8] = (uint8_t)(tensors + groups);
    assert_int_equal(sl_objects_manifest_seal(manifest, &reason), 0);
    assert_int_equal(manifest->block_count, (reference.image_bytes + BLOCK - 1) / BLOCK);
    assert_int_equal(manifest->group_count, groups);
    hash_blocks(manifest);
}

static void discard(struct sl_objects_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->tensor_count; i++) {
        free(data[i]);
    }
    sl_objects_manifest_fini(manifest);
}

SL_CASE(manifest_encode__is_that_of_a_slow_reference)
{
    struct sl_objects_manifest manifest, again;
    static uint8_t bytes[64 << 10];
    seed = 7;
    for (uint32_t round = 0; round < 60; round++) {
        make(&manifest, 1 + round % TENSORS);
        assert_int_equal(manifest.encoded_bytes, reference.encoded_bytes);
        const struct sl_hash_128 digest = sl_objects_manifest_encode(&manifest, bytes);
        assert_memory_equal(bytes, reference.encoded, reference.encoded_bytes);
        const XXH128_hash_t hash = XXH3_128bits(bytes, reference.encoded_bytes);
        assert_true(digest.low == hash.low64);
        assert_true(digest.high == hash.high64);

        sl_objects_manifest_init(&again);
        assert_int_equal(
            sl_objects_manifest_decode(&again, bytes, reference.encoded_bytes, &reason), 0);
        assert_true(again.image_bytes == reference.image_bytes);
        assert_int_equal(again.tensor_count, manifest.tensor_count);
        assert_int_equal(again.group_count, manifest.group_count);
        for (uint32_t block = 0; block < again.block_count; block++) {
            uint8_t *from = reference.image + (size_t)block * BLOCK;
            assert_true(sl_objects_manifest_verify(&again, block, from));
            from[sl_objects_manifest_block_bytes(&again, block) - 1] ^= 1;
            assert_false(sl_objects_manifest_verify(&again, block, from));
        }
        memset(bytes, 0, reference.encoded_bytes);
        sl_objects_manifest_encode(&again, bytes);
        assert_memory_equal(bytes, reference.encoded, reference.encoded_bytes);
        sl_objects_manifest_fini(&again);
        discard(&manifest);
    }
}

/* Whether the bytes are a manifest, as the reference's own parser judges. */
static bool is_manifest(const uint8_t *at, size_t left)
{
    const uint8_t *end = at + left;
    uint32_t entries;
    bool group_waits = false;
    parsed.tensor_count = parsed.group_count = 0;
    if (left < 12 || memcmp(at, "SLOBJMF1", 8) != 0) {
        return false;
    }
    memcpy(&entries, (at += 12) - 4, 4);
    unsigned __int128 image = 0;
    for (uint32_t i = 0; i < entries; i++) {
        if (at == end) {
            return false;
        }
        const uint8_t tag = *at++;
        const char *name = (const char *)at;
        for (; at < end && *at != 0; at++) {
            if (*at < 32 || *at == 127) {
                return false;
            }
        }
        const size_t length = (size_t)(at - (const uint8_t *)name);
        if (at++ == end || length == 0 || length > 255) {
            return false;
        }
        if (tag == 255) {
            if (group_waits) {
                return false;
            }
            group_waits = true;
            parsed.group_count++;
            continue;
        }
        if (tag > 21 || at == end || *at > 8 || (size_t)(end - at - 1) < (size_t)*at * 8) {
            return false;
        }
        const uint8_t rank = *at++;
        unsigned __int128 count = 1;
        for (uint32_t r = 0; r < rank; r++, at += 8) {
            uint64_t dim;
            memcpy(&dim, at, 8);
            count *= dim;
            if (count > UINT64_MAX) {
                return false;
            }
        }
        const unsigned __int128 bits = count * type_bits(tag), bytes = bits / 8;
        if (bits > UINT64_MAX || bits % 8 != 0) {
            return false;
        }
        for (uint32_t t = 0; t < parsed.tensor_count; t++) {
            if (strcmp(parsed.names[t], name) == 0) {
                return false;
            }
        }
        group_waits = false;
        image = (image + 63) & ~(unsigned __int128)63;
        assert_true(parsed.tensor_count <= TENSORS);
        memcpy(parsed.names[parsed.tensor_count], name, length + 1);
        parsed.offsets[parsed.tensor_count] = (uint64_t)image;
        parsed.bytes[parsed.tensor_count++] = (uint64_t)bytes;
        image += bytes;
        if (image > 256ULL << 30) {
            return false;
        }
    }
    return !group_waits && parsed.tensor_count > 0 &&
           (size_t)(end - at) == (size_t)((image + BLOCK - 1) / BLOCK * 16);
}

static bool check_decode(const uint8_t *bytes, size_t byte_count)
{
    struct sl_objects_manifest manifest;
    uint8_t *exact = malloc(byte_count + 1);
    assert_non_null(exact);
    memcpy(exact, bytes, byte_count);
    sl_objects_manifest_init(&manifest);
    reason.text[0] = '\0';
    const int err = sl_objects_manifest_decode(&manifest, exact, byte_count, &reason);
    const bool is_right = is_manifest(bytes, byte_count);
    assert_int_equal(err, is_right ? 0 : SL_ERR_CORRUPT);
    assert_true(is_right || reason.text[0] != '\0');
    free(exact);
    if (is_right) {
        assert_int_equal(manifest.tensor_count, parsed.tensor_count);
        assert_int_equal(manifest.group_count, parsed.group_count);
        for (uint32_t i = 0; i < parsed.tensor_count; i++) {
            const struct sl_objects_tensor *tensor = &manifest.tensors[i];
            assert_true(tensor->offset == parsed.offsets[i]);
            assert_true(tensor->bytes == parsed.bytes[i]);
            assert_string_equal(sl_objects_manifest_text(&manifest, tensor->name), parsed.names[i]);
        }
    }
    sl_objects_manifest_fini(&manifest);
    return is_right;
}

SL_CASE(manifest_decode__judges_damage_as_a_slow_reference)
{
    struct sl_objects_manifest manifest;
    static uint8_t bytes[64 << 10];
    uint32_t right = 0, wrong = 0;
    seed = 11;
    for (uint32_t round = 0; round < 20; round++) {
        make(&manifest, 1 + round % 5);
        discard(&manifest);
        const size_t count = reference.encoded_bytes;
        for (uint32_t i = 0; i < 400; i++) {
            memcpy(bytes, reference.encoded, count);
            const uint64_t random = sl_hash_random(&seed);
            const uint32_t changes = 1 + (uint32_t)(random % 2);
            for (uint32_t k = 0; k < changes; k++) {
                const uint64_t change = sl_hash_random(&seed);
                bytes[change % count] = change >> 62 == 0   ? (uint8_t)(change >> 32)
                                        : change >> 62 == 1 ? bytes[change % count] ^ 1
                                        : change >> 62 == 2 ? 0
                                                            : 255;
            }
            (*(check_decode(bytes, count) ? &right : &wrong))++;
        }
        for (size_t i = 0; i < count; i++) {
            assert_false(check_decode(reference.encoded, i));
        }
    }
    assert_true(right > 100);
    assert_true(wrong > 100);
}

/* One tensor, or two, by hand. */
struct entry {
    const char *name;
    uint32_t type, rank;
    uint64_t shape[SL_OBJECTS_RANK_MAX + 1];
};

static int add(struct sl_objects_manifest *manifest, struct entry entry)
{
    reason.text[0] = '\0';
    return sl_objects_manifest_add_tensor(manifest, entry.name, entry.type, entry.rank, entry.shape,
                                          &reason);
}

SL_CASE(manifest_add_tensor__names_what_is_wrong)
{
    static const struct {
        struct entry entry;
        int err;
    } WRONG[] = {
        {{"big", SL_OBJECT_U8, 1, {(256ULL << 30) + 1}}, SL_ERR_TOO_LARGE},
        {{"wide", SL_OBJECT_F32, 2, {1ULL << 32, 1ULL << 32}}, SL_ERR_TOO_LARGE},
        {{"void", SL_OBJECT_F64, 3, {1ULL << 32, 1ULL << 32, 0}}, SL_ERR_TOO_LARGE},
        {{"deep", SL_OBJECT_F32, 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}}, SL_ERR_INVALID},
        {{"odd", 22, 0, {0}}, SL_ERR_INVALID},
        {{"half", SL_OBJECT_F4, 1, {3}}, SL_ERR_TOO_LARGE},
        {{"", SL_OBJECT_U8, 0, {0}}, SL_ERR_INVALID},
        {{"a\nb", SL_OBJECT_U8, 0, {0}}, SL_ERR_INVALID},
        {{NULL, SL_OBJECT_U8, 0, {0}}, SL_ERR_INVALID},
        {{"first", SL_OBJECT_U8, 0, {0}}, SL_ERR_EXISTS},
    };
    struct sl_objects_manifest manifest;
    sl_objects_manifest_init(&manifest);
    assert_int_equal(add(&manifest, (struct entry){"first", SL_OBJECT_U8, 1, {3}}), 0);
    for (size_t i = 0; i < sizeof WRONG / sizeof WRONG[0]; i++) {
        const struct sl_objects_manifest before = manifest;
        assert_int_equal(add(&manifest, WRONG[i].entry), WRONG[i].err);
        const char *name = WRONG[i].entry.name;
        assert_non_null(strstr(reason.text,
                               name == NULL || name[0] < ' ' || name[1] == '\n' ? "tensor" : name));
        assert_int_equal(manifest.tensor_count, 1);
        assert_true(manifest.image_bytes == 3);
        assert_true(manifest.encoded_bytes == before.encoded_bytes);
        assert_int_equal(manifest.text_bytes, before.text_bytes);
    }
    /* The largest image, to the byte; and not one more. */
    assert_int_equal(add(&manifest, (struct entry){"rest", SL_OBJECT_U8, 1, {(256ULL << 30) - 64}}),
                     0);
    assert_true(manifest.image_bytes == SL_LIMIT_OBJECTS_IMAGE_BYTES);
    assert_int_equal(add(&manifest, (struct entry){"more", SL_OBJECT_U8, 0, {0}}),
                     SL_ERR_TOO_LARGE);
    sl_objects_manifest_fini(&manifest);
}

SL_CASE(manifest_add_group__needs_tensors)
{
    struct sl_objects_manifest manifest;
    sl_objects_manifest_init(&manifest);
    assert_int_equal(sl_objects_manifest_seal(&manifest, &reason), SL_ERR_INVALID);
    assert_int_equal(sl_objects_manifest_add_group(&manifest, "one", &reason), 0);
    assert_int_equal(sl_objects_manifest_add_group(&manifest, "two", &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "two"));
    assert_int_equal(add(&manifest, (struct entry){"w", SL_OBJECT_F32, 1, {2}}), 0);
    assert_int_equal(sl_objects_manifest_add_group(&manifest, "two", &reason), 0);
    assert_int_equal(sl_objects_manifest_seal(&manifest, &reason), SL_ERR_INVALID);
    assert_int_equal(add(&manifest, (struct entry){"v", SL_OBJECT_F32, 0, {0}}), 0);
    assert_int_equal(sl_objects_manifest_seal(&manifest, &reason), 0);
    assert_int_equal(manifest.group_count, 2);
    assert_int_equal(manifest.groups[1].first, 1);
    assert_true(manifest.image_bytes == 68);
    sl_objects_manifest_fini(&manifest);
}

SL_CASE(manifest_add__has_a_largest_number_of_each)
{
    struct sl_objects_manifest manifest;
    char name[16];
    sl_objects_manifest_init(&manifest);
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_TENSORS; i++) {
        snprintf(name, sizeof name, "%u", i);
        if (i < SL_LIMIT_OBJECTS_GROUPS) {
            assert_int_equal(sl_objects_manifest_add_group(&manifest, name, &reason), 0);
        }
        assert_int_equal(add(&manifest, (struct entry){name, SL_OBJECT_BOOL, 0, {0}}), 0);
    }
    assert_int_equal(sl_objects_manifest_add_group(&manifest, "g", &reason), SL_ERR_TOO_LARGE);
    assert_int_equal(add(&manifest, (struct entry){"t", SL_OBJECT_U8, 0, {0}}), SL_ERR_TOO_LARGE);
    assert_int_equal(sl_objects_manifest_seal(&manifest, &reason), 0);
    assert_true(manifest.image_bytes == (SL_LIMIT_OBJECTS_TENSORS - 1) * 64ULL + 1);
    sl_objects_manifest_fini(&manifest);
}

SL_CASE(manifest_decode__an_image_of_no_bytes)
{
    struct sl_objects_manifest manifest, again;
    uint8_t bytes[64];
    sl_objects_manifest_init(&manifest);
    assert_int_equal(add(&manifest, (struct entry){"bytes", SL_OBJECT_U8, 1, {0}}), 0);
    assert_int_equal(sl_objects_manifest_seal(&manifest, &reason), 0);
    assert_int_equal(manifest.block_count, 0);
    assert_true(manifest.encoded_bytes <= sizeof bytes);
    sl_objects_manifest_encode(&manifest, bytes);
    sl_objects_manifest_init(&again);
    assert_int_equal(sl_objects_manifest_decode(&again, bytes, manifest.encoded_bytes, &reason), 0);
    assert_int_equal(again.tensor_count, 1);
    assert_true(again.image_bytes == 0);
    sl_objects_manifest_fini(&again);
    sl_objects_manifest_fini(&manifest);
}

/* A short manifest that claims the largest image is refused before its digests are allocated. */
SL_CASE(manifest_decode__a_large_claim_costs_nothing)
{
    static const uint8_t bytes[] = "SLOBJMF1\1\0\0\0\1w\0\1\0\0\0\0\100\0\0";
    struct sl_objects_manifest manifest;
    sl_objects_manifest_init(&manifest);
    assert_int_equal(sl_objects_manifest_decode(&manifest, bytes, sizeof bytes, &reason),
                     SL_ERR_CORRUPT);
    assert_true(manifest.image_bytes == 1ULL << 38);
    assert_null(manifest.digests);
    assert_non_null(strstr(reason.text, "digests"));
    sl_objects_manifest_fini(&manifest);
}

SL_CASE(manifest_decode__names_the_tensor)
{
    static const uint8_t doubled[] = "SLOBJMF1\2\0\0\0\1wq\0\0\1wq\0\0";
    struct sl_objects_manifest manifest;
    sl_objects_manifest_init(&manifest);
    assert_int_equal(sl_objects_manifest_decode(&manifest, doubled, sizeof doubled - 1, &reason),
                     SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "wq"));
    sl_objects_manifest_fini(&manifest);
}

SL_CASE(place_read__collects_what_is_apart)
{
    uint8_t a[] = {1, 2, 3}, b[] = {4}, c[] = {5, 6}, to[8];
    const struct sl_objects_place places[] = {{0, 3, a}, {3, 1, b}, {6, 2, c}};
    static const uint8_t image[] = {1, 2, 3, 4, 0, 0, 5, 6, 0, 0, 0};
    for (uint32_t from = 0; from <= 10; from++) {
        const uint32_t found = sl_objects_place_find(places, 3, from);
        assert_int_equal(found, from < 3 ? 0 : from < 4 ? 1 : from < 8 ? 2 : 3);
        for (uint32_t bytes = 0; from + bytes <= sizeof image && bytes <= sizeof to; bytes++) {
            memset(to, 9, sizeof to);
            const uint8_t *read = sl_objects_place_read(places, 3, from, bytes, to);
            assert_memory_equal(read, image + from, bytes);
        }
    }
    assert_ptr_equal(sl_objects_place_read(places, 3, 1, 2, to), &a[1]);
    assert_ptr_equal(sl_objects_place_read(places, 3, 1, 3, to), to);
}
