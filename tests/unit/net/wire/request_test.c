#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/limits.h"
#include "net/wire/frame.h"
#include "net/wire/request.h"
#include "tests/support/unit.h"

#define PAYLOAD_BYTES_MAX 16384

/* A request as a client would build it, in a heap block of exactly its size, so that a sanitizer
 * sees every byte read beyond it. */
struct request {
    uint8_t *bytes;
    size_t length;
    uint32_t section_count;
    struct sl_request_section sections[8];
    uint32_t dims[8];
};

static bool has_keys(uint8_t op)
{
    return (op >= SL_REQUEST_PULL && op <= SL_REQUEST_PUSH_PULL) || op == SL_REQUEST_ASSIGN ||
           op == SL_REQUEST_ERASE || op == SL_REQUEST_FIND;
}

static bool has_range(uint8_t op)
{
    return (op >= SL_REQUEST_DENSE_PULL && op <= SL_REQUEST_DENSE_PUSH_PULL) ||
           op == SL_REQUEST_DENSE_ASSIGN;
}

static bool is_kv(uint8_t op)
{
    return op >= SL_REQUEST_KV_PUSH && op <= SL_REQUEST_KV_LENGTHS;
}

/* Precisions beside f32 that the operation may push, and return: bits by enum sl_precision. */
static const struct {
    uint8_t pushed, returned;
} precisions[32] = {
    [SL_REQUEST_PULL] = {0, 0xe},       [SL_REQUEST_PULL_POOLED] = {0, 0xe},
    [SL_REQUEST_PUSH] = {0xe, 0},       [SL_REQUEST_PUSH_PULL] = {0xe, 0xe},
    [SL_REQUEST_DENSE_PULL] = {0, 0x6}, [SL_REQUEST_DENSE_PUSH] = {0xe, 0},
    [SL_REQUEST_KV_PULL] = {0, 0x6},    [SL_REQUEST_DENSE_PUSH_PULL] = {0xe, 0x6},
    [SL_REQUEST_KV_PUSH] = {0xe, 0},    [SL_REQUEST_KV_PUSH_PULL] = {0xe, 0x6},
};

static uint8_t flags_of(uint32_t pushed, uint32_t returned)
{
    return (uint8_t)(pushed << SL_REQUEST_PUSHED_SHIFT | returned << SL_REQUEST_RETURNED_SHIFT);
}

/* Whole arrays, with lens or of equal lengths, or a piece of one. */
static void draw_arrays(uint64_t *seed, struct sl_request_section *section)
{
    section->command = (uint32_t)sl_hash_random(seed);
    switch (sl_hash_random(seed) % 3) {
    case 0:
        section->flags = SL_REQUEST_FLAG_LENS;
        section->count = section->key_count + sl_hash_random(seed) % 50;
        break;
    case 1:
        section->count = section->key_count * (1 + sl_hash_random(seed) % 9);
        section->flags = section->op == SL_REQUEST_KV_PULL && sl_hash_random(seed) % 2 == 0
                             ? SL_REQUEST_FLAG_LENGTHS
                             : 0;
        break;
    default:
        section->key_count = 1;
        section->count = 1 + sl_hash_random(seed) % 50;
        section->start = sl_hash_random(seed) % 1000;
        section->bag_count =
            (uint32_t)(section->start + section->count + sl_hash_random(seed) % 1000);
    }
}

static struct sl_request_section random_section(uint64_t *seed, uint32_t *dim)
{
    struct sl_request_section section = {.op = (uint8_t)(1 + sl_hash_random(seed) % 18)};
    *dim = 0;
    if (section.op != SL_REQUEST_TICK) {
        section.table_id = (uint16_t)(sl_hash_random(seed) % SL_LIMIT_TABLES);
    }
    if (has_keys(section.op)) {
        *dim = (uint32_t)(1 + sl_hash_random(seed) % 5);
        section.key_count = (uint32_t)(sl_hash_random(seed) % 20);
    }
    if (section.op == SL_REQUEST_PULL_POOLED) {
        section.bag_count =
            (uint32_t)(section.key_count != 0) + (uint32_t)(sl_hash_random(seed) % 9);
    }
    if (is_kv(section.op)) {
        *dim = sl_hash_random(seed) % 2 == 0 ? 1 : 4;
        section.key_count = (uint32_t)(1 + sl_hash_random(seed) % 20);
    }
    if (is_kv(section.op) && section.op != SL_REQUEST_KV_LENGTHS) {
        draw_arrays(seed, &section);
    }
    if (sl_request_takes_rate(section.op) && sl_hash_random(seed) % 2 == 0) {
        section.command = sl_rate_to_bits(0.25F);
    }
    if (section.op == SL_REQUEST_SCAN) {
        *dim = 1;
        section.start = sl_hash_random(seed);
        section.command = (uint32_t)sl_hash_random(seed);
        section.bag_count = (uint32_t)sl_hash_random(seed);
        section.count = sl_hash_random(seed) % (SL_REQUEST_SCAN_ROWS_MAX + 1);
    }
    if (section.op == SL_REQUEST_EVICT) {
        *dim = 1;
        section.bag_count = (uint32_t)sl_hash_random(seed);
        section.command = (uint32_t)(sl_hash_random(seed) % (SL_REQUEST_EVICT_STEPS_MAX + 1ULL));
        section.start = sl_hash_random(seed) % 0x7f800000; /* below infinity */
    }
    if (has_range(section.op)) {
        section.start = sl_hash_random(seed) % (SL_LIMIT_DENSE_ELEMENTS - 50);
        section.count = 1 + sl_hash_random(seed) % 50;
    }
    const uint32_t pushed = sl_hash_random(seed) % 4, returned = sl_hash_random(seed) % 4;
    if ((!is_kv(section.op) || *dim == 4) && (section.flags & SL_REQUEST_FLAG_LENGTHS) == 0) {
        section.flags |= flags_of(precisions[section.op].pushed >> pushed & 1 ? pushed : 0,
                                  precisions[section.op].returned >> returned & 1 ? returned : 0);
    }
    return section;
}

static void put_padded(struct sl_bytes_writer *writer, const void *from, size_t bytes)
{
    sl_bytes_put(writer, from, bytes);
    sl_bytes_put(writer, "\0\0\0\0\0\0\0", sl_bytes_pad8(bytes) - bytes);
}

static void put_body(struct sl_bytes_writer *writer, const struct sl_request_section *section,
                     uint32_t dim, uint64_t *seed)
{
    for (uint32_t i = 0; i < section->key_count; i++) {
        uint64_t key = sl_hash_random(seed);
        sl_bytes_put(writer, &key, sizeof key);
    }
    if (section->op == SL_REQUEST_SCAN) {
        const struct sl_request_scan scan = {.end = sl_hash_random(seed)};
        sl_bytes_put(writer, &scan, sizeof scan);
    }
    if (section->op == SL_REQUEST_PULL_POOLED) {
        uint32_t ends[32] = {0};
        for (uint32_t i = 0; i < section->bag_count; i++) {
            uint32_t before = i == 0 ? 0 : ends[i - 1];
            ends[i] = before + (uint32_t)(sl_hash_random(seed) % (section->key_count - before + 1));
        }
        if (section->bag_count != 0) {
            ends[section->bag_count - 1] = section->key_count;
        }
        put_padded(writer, ends, section->bag_count * sizeof ends[0]);
    }
    if ((section->flags & SL_REQUEST_FLAG_LENS) != 0) {
        uint32_t lens[20];
        for (uint32_t i = 0; i < section->key_count; i++) {
            lens[i] = 1;
        }
        lens[sl_hash_random(seed) % section->key_count] +=
            (uint32_t)(section->count - section->key_count);
        put_padded(writer, lens, section->key_count * sizeof lens[0]);
    }
    uint8_t values[1280];
    const uint64_t bytes = sl_request_values_bytes(section, dim);
    assert_true(bytes <= sizeof values);
    for (size_t i = 0; i < bytes; i++) {
        values[i] = (uint8_t)sl_hash_random(seed);
    }
    put_padded(writer, values, bytes);
}

static struct request random_request(uint64_t *seed)
{
    static uint8_t scratch[PAYLOAD_BYTES_MAX];
    struct request request = {.section_count = (uint32_t)(1 + sl_hash_random(seed) % 8)};
    struct sl_request_prefix prefix = {request.section_count, (uint32_t)sl_hash_random(seed)};
    struct sl_bytes_writer writer = sl_bytes_writer_over(scratch, sizeof scratch);
    sl_bytes_put(&writer, &prefix, sizeof prefix);
    for (uint32_t i = 0; i < request.section_count; i++) {
        request.sections[i] = random_section(seed, &request.dims[i]);
        sl_bytes_put(&writer, &request.sections[i], sizeof request.sections[i]);
        size_t left = writer.left;
        put_body(&writer, &request.sections[i], request.dims[i], seed);
        assert_int_equal(left - writer.left,
                         sl_request_body_bytes(&request.sections[i], request.dims[i]));
    }
    assert_false(writer.bad);
    request.length = sizeof scratch - writer.left;
    request.bytes = malloc(request.length);
    memcpy(request.bytes, scratch, request.length);
    return request;
}

/* Takes the whole request apart as a shard does; how many bytes were left over, or the error. */
static int64_t walk(const uint8_t *bytes, size_t length, const struct request *as)
{
    struct sl_bytes cursor = sl_bytes_over(bytes, length);
    struct sl_request_prefix prefix;
    int err = sl_request_read_prefix(&cursor, &prefix);
    if (err != SL_OK) {
        return err;
    }
    for (uint32_t i = 0; i < prefix.section_count; i++) {
        struct sl_request_section section;
        struct sl_request_view view;
        err = sl_request_read_section(&cursor, &section);
        if (err == SL_OK) {
            err = sl_request_read_body(&cursor, &section, as->dims[i % 8], &view);
        }
        if (err != SL_OK) {
            return err;
        }
    }
    return (int64_t)cursor.left;
}

SL_CASE(request_read_body__takes_random_requests_apart)
{
    uint64_t seed = 3;
    for (int round = 0; round < 2000; round++) {
        struct request request = random_request(&seed);
        struct sl_bytes cursor = sl_bytes_over(request.bytes, request.length);
        struct sl_request_prefix prefix;
        assert_int_equal(sl_request_read_prefix(&cursor, &prefix), SL_OK);
        assert_int_equal(prefix.section_count, request.section_count);
        for (uint32_t i = 0; i < prefix.section_count; i++) {
            struct sl_request_section section;
            struct sl_request_view view;
            assert_int_equal(sl_request_read_section(&cursor, &section), SL_OK);
            assert_memory_equal(&section, &request.sections[i], sizeof section);
            assert_int_equal(sl_request_read_body(&cursor, &section, request.dims[i], &view),
                             SL_OK);
            assert_int_equal(view.keys != NULL, has_keys(section.op) || is_kv(section.op));
            assert_int_equal(view.lens != NULL, section.flags & SL_REQUEST_FLAG_LENS);
            const bool is_encoded = sl_request_pushed(&section) != SL_PRECISION_F32;
            const bool pushes = sl_request_pushes(section.op);
            assert_int_equal(view.values != NULL, pushes && !is_encoded && is_kv(section.op));
            assert_int_equal(view.gradients != NULL, pushes && !is_encoded && !is_kv(section.op));
            assert_int_equal(view.encoded != NULL, is_encoded);
            assert_int_equal(view.bag_ends != NULL, section.op == SL_REQUEST_PULL_POOLED);
            assert_int_equal((uintptr_t)view.keys % 8, 0);
            assert_int_equal((uintptr_t)view.gradients % 8, 0);
            assert_int_equal((uintptr_t)view.values % 8, 0);
            assert_int_equal((uintptr_t)view.encoded % 8, 0);
        }
        assert_int_equal(cursor.left, 0);
        free(request.bytes);
    }
}

/* It knows just the requests that the other functions know as a pull alone, of f32. */
static void expect_pull(const uint8_t *bytes, size_t length, const struct request *as)
{
    struct sl_request_prefix prefix;
    struct sl_request_section section;
    struct sl_request_pull pull;
    bool is_pull = walk(bytes, length, as) == 0;
    if (is_pull) {
        memcpy(&prefix, bytes, sizeof prefix);
        memcpy(&section, bytes + sizeof prefix, sizeof section);
        is_pull = prefix.section_count == 1 && section.op == SL_REQUEST_PULL && section.flags == 0;
    }
    assert_int_equal(sl_request_read_pull(bytes, length, &pull), is_pull);
    if (is_pull) {
        assert_int_equal(pull.clock, prefix.clock);
        assert_int_equal(pull.table_id, section.table_id);
        assert_int_equal(pull.key_count, section.key_count);
        assert_ptr_equal(pull.keys, bytes + sizeof prefix + sizeof section);
    }
}

SL_CASE(request_read_pull__knows_what_the_others_know)
{
    uint64_t seed = 6;
    uint32_t pull_count = 0;
    for (int round = 0; round < 3000; round++) {
        struct request request = random_request(&seed);
        expect_pull(request.bytes, request.length, &request);
        bool is_pull = request.section_count == 1 && request.sections[0].op == SL_REQUEST_PULL &&
                       request.sections[0].flags == 0;
        for (size_t at = 0; at < request.length && is_pull; at++) {
            pull_count++;
            uint8_t was = request.bytes[at];
            request.bytes[at] ^= (uint8_t)(1 + sl_hash_random(&seed) % 255);
            expect_pull(request.bytes, request.length, &request);
            request.bytes[at] = was;
            uint8_t *cut = malloc(at == 0 ? 1 : at);
            memcpy(cut, request.bytes, at);
            expect_pull(cut, at, &request);
            free(cut);
        }
        free(request.bytes);
    }
    assert_true(pull_count > 0);
}

SL_CASE(request_read_body__survives_every_changed_byte)
{
    uint64_t seed = 5;
    for (int round = 0; round < 30; round++) {
        struct request request = random_request(&seed);
        for (size_t at = 0; at < request.length; at++) {
            uint8_t was = request.bytes[at];
            request.bytes[at] ^= (uint8_t)(1 + sl_hash_random(&seed) % 255);
            int64_t result = walk(request.bytes, request.length, &request);
            assert_true(result >= 0 || result == SL_ERR_PROTOCOL);
            request.bytes[at] = was;
        }
        free(request.bytes);
    }
}

static int read_one(struct sl_request_section section)
{
    struct sl_bytes cursor = sl_bytes_over(&section, sizeof section);
    return sl_request_read_section(&cursor, &section);
}

SL_CASE(request_read_section__wants_unused_fields_zero)
{
    assert_int_equal(read_one((struct sl_request_section){.op = 0}), SL_ERR_PROTOCOL);
    assert_int_equal(read_one((struct sl_request_section){.op = 100}), SL_ERR_PROTOCOL);
    assert_int_equal(read_one((struct sl_request_section){.op = 255}), SL_ERR_PROTOCOL);
    for (uint8_t op = SL_REQUEST_PULL; op <= SL_REQUEST_FIND; op++) {
        struct sl_request_section good = {.op = op, .count = has_range(op) ? 1 : 0};
        if (is_kv(op)) {
            continue;
        }
        assert_int_equal(read_one(good), SL_OK);
        struct sl_request_section bad = good;
        bad.flags = 1;
        assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
        bad = good;
        const bool has_rate = sl_request_takes_rate(op);
        assert_int_equal(has_rate, sl_request_pushes(op) && op < SL_REQUEST_ASSIGN);
        bad.command = 1; /* the least f32 above 0 */
        assert_int_equal(read_one(bad), has_rate ? SL_OK : SL_ERR_PROTOCOL);
        static const uint32_t rates[] = {0x80000000, 0xbf800000, 0x7f800000, 0x7fc00000,
                                         0xff800000};
        for (uint32_t i = 0; i < sizeof rates / sizeof *rates; i++) {
            bad.command = rates[i]; /* -0, -1, infinite, not a number */
            assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
        }
        bad = good;
        bad.table_id = SL_LIMIT_TABLES;
        assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
        bad = good;
        bad.key_count = 1;
        assert_int_equal(read_one(bad), has_keys(op) ? SL_OK : SL_ERR_PROTOCOL);
        bad = good;
        bad.bag_count = 1;
        assert_int_equal(read_one(bad), op == SL_REQUEST_PULL_POOLED ? SL_OK : SL_ERR_PROTOCOL);
        bad = good;
        bad.start = 1;
        assert_int_equal(read_one(bad), has_range(op) ? SL_OK : SL_ERR_PROTOCOL);
    }
    assert_int_equal(read_one((struct sl_request_section){.op = SL_REQUEST_TICK, .table_id = 1}),
                     SL_ERR_PROTOCOL);
}

SL_CASE(request_read_section__knows_the_precisions_of_each_operation)
{
    for (uint8_t op = SL_REQUEST_PULL; op <= SL_REQUEST_EVICT; op++) {
        const bool arrays = is_kv(op) && op != SL_REQUEST_KV_LENGTHS;
        for (uint32_t flags = 0; flags <= UINT8_MAX; flags++) {
            const uint32_t pushed = flags >> 2 & 3, returned = flags >> 4 & 3;
            const struct sl_request_section section = {.op = op,
                                                       .flags = (uint8_t)flags,
                                                       .key_count = is_kv(op),
                                                       .count = has_range(op) || arrays};
            const bool pulls = op == SL_REQUEST_KV_PULL;
            const bool lengths = (flags & SL_REQUEST_FLAG_LENGTHS) != 0;
            const bool is_valid = (flags & (pulls ? 0x80U : 0xc2U)) == 0 &&
                                  ((flags & 1) == 0 || arrays) &&
                                  (!lengths || ((flags & 1) == 0 && returned == 0)) &&
                                  ((1 | precisions[op].pushed) >> pushed & 1) != 0 &&
                                  ((1 | precisions[op].returned) >> returned & 1) != 0;
            assert_int_equal(read_one(section), is_valid ? SL_OK : SL_ERR_PROTOCOL);
        }
    }
}

SL_CASE(request_body_bytes__counts_what_travels)
{
    static const struct {
        struct sl_request_section section;
        uint32_t dim;
        uint64_t values[4], result[4]; /* bytes, by precision */
    } cases[] = {
        {{.op = SL_REQUEST_PUSH_PULL, .key_count = 3}, 5, {60, 30, 30, 27}, {60, 30, 30, 27}},
        {{.op = SL_REQUEST_PULL_POOLED, .bag_count = 3}, 5, {0}, {60, 30, 30, 27}},
        {{.op = SL_REQUEST_DENSE_PUSH_PULL, .count = 256},
         0,
         {1024, 512, 512, 260},
         {1024, 512, 512}},
        {{.op = SL_REQUEST_DENSE_PUSH_PULL, .count = 257},
         0,
         {1028, 514, 514, 265},
         {1028, 514, 514}},
        {{.op = SL_REQUEST_KV_PUSH_PULL, .key_count = 1, .count = 513},
         4,
         {2052, 1026, 1026, 525},
         {2052, 1026, 1026}},
        {{.op = SL_REQUEST_KV_PUSH_PULL, .key_count = 1, .count = 5}, 2, {10}, {10}},
        {{.op = SL_REQUEST_KV_PUSH_PULL, .key_count = 1, .count = 5}, 1, {5}, {5}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t precision = 0; precision < SL_PRECISION_COUNT; precision++) {
            struct sl_request_section section = cases[i].section;
            if (cases[i].values[precision] > 0) {
                section.flags = flags_of(precision, 0);
                assert_int_equal(sl_request_values_bytes(&section, cases[i].dim),
                                 cases[i].values[precision]);
                assert_int_equal(sl_request_body_bytes(&section, cases[i].dim),
                                 section.key_count * sizeof(uint64_t) +
                                     sl_bytes_pad8(cases[i].values[precision]));
            }
            if (cases[i].result[precision] > 0) {
                section.flags = flags_of(0, precision);
                assert_int_equal(sl_request_result_bytes(&section, cases[i].dim),
                                 cases[i].result[precision]);
                assert_int_equal(sl_request_reply_bytes(&section, cases[i].dim),
                                 sl_bytes_pad8(cases[i].result[precision]));
            }
        }
    }
}

SL_CASE(request_read_body__takes_precisions_of_f32_arrays_only)
{
    for (uint32_t dim = 1; dim <= 4; dim *= 2) {
        for (uint32_t flags = 0; flags < 3; flags++) {
            _Alignas(8) uint8_t body[64] = {0};
            const struct sl_request_section section = {.op = SL_REQUEST_KV_PUSH_PULL,
                                                       .flags = flags_of(flags & 1, flags >> 1),
                                                       .key_count = 1,
                                                       .count = 4};
            struct sl_bytes cursor = sl_bytes_over(body, sl_request_body_bytes(&section, dim));
            struct sl_request_view view;
            assert_int_equal(sl_request_read_body(&cursor, &section, dim, &view),
                             dim == 4 || flags == 0 ? SL_OK : SL_ERR_PROTOCOL);
        }
    }
}

SL_CASE(request_read_section__bounds_the_thresholds_of_an_eviction)
{
    const struct sl_request_section good = {.op = SL_REQUEST_EVICT,
                                            .bag_count = UINT32_MAX,
                                            .command = SL_REQUEST_EVICT_STEPS_MAX,
                                            .start = 0x7f7fffff /* FLT_MAX */};
    struct sl_request_section bad = good;
    assert_int_equal(read_one(good), SL_OK);
    assert_int_equal(sl_request_reply_bytes(&good, 4), 8);
    bad.command++;
    assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
    static const uint64_t norms[] = {0x80000001, 0xbf800000, 0x7f800000, 0x7fc00000, 1ULL << 32};
    for (uint32_t i = 0; i < sizeof norms / sizeof *norms; i++) {
        bad = good;
        bad.start = norms[i]; /* below 0, infinite, not a number, more than 32 bits */
        assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
    }
    bad = good;
    bad.count = 1;
    assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
    bad = good;
    bad.key_count = 1;
    assert_int_equal(read_one(bad), SL_ERR_PROTOCOL);
}

/* A body in two places is read as the same body in one, but for its padding. */
SL_CASE(request_read_body_apart__reads_the_same)
{
    uint64_t seed = 8;
    uint32_t pushes = 0;
    for (int round = 0; round < 3000; round++) {
        struct request request = random_request(&seed);
        const struct sl_request_section *section = &request.sections[0];
        const uint32_t dim = request.dims[0];
        struct sl_request_view whole;
        struct sl_request_view apart;
        struct sl_bytes cursor = sl_bytes_over(request.bytes, request.length);
        (void)sl_bytes_take(&cursor, sizeof(struct sl_request_prefix) + sizeof *section);
        struct sl_bytes structure = sl_bytes_over(cursor.next, sl_request_structure_bytes(section));
        struct sl_bytes values = sl_bytes_over(
            cursor.next + structure.left, sl_bytes_pad8(sl_request_values_bytes(section, dim)));
        assert_int_equal(structure.left + values.left, sl_request_body_bytes(section, dim));
        assert_int_equal(sl_request_read_body(&cursor, section, dim, &whole), SL_OK);
        const bool has_values = sl_request_pushes(section->op);
        assert_int_equal(sl_request_read_body_out_of_line(&structure, values, section, dim, &apart),
                         has_values ? SL_OK : SL_ERR_PROTOCOL);
        if (has_values) {
            pushes++;
            assert_int_equal(structure.left, 0);
            assert_ptr_equal(apart.keys, whole.keys);
            assert_ptr_equal(apart.lens, whole.lens);
            assert_ptr_equal(apart.values, whole.values);
            assert_ptr_equal(apart.gradients, whole.gradients);
            assert_ptr_equal(apart.encoded, whole.encoded);
        }
        free(request.bytes);
    }
    assert_true(pushes > 100);
}

SL_CASE(request_read_section__keeps_dense_ranges_within_the_longest_array)
{
    struct sl_request_section section = {.op = SL_REQUEST_DENSE_PULL};
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL); /* empty */
    section.count = SL_LIMIT_DENSE_ELEMENTS;
    assert_int_equal(read_one(section), SL_OK);
    section.start = 1;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section.count = UINT64_MAX; /* start + count wraps round to 0 */
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
    section.start = UINT64_MAX;
    section.count = 1;
    assert_int_equal(read_one(section), SL_ERR_PROTOCOL);
}

static int read_bags(uint32_t key_count, const uint32_t *ends, uint32_t bag_count)
{
    uint64_t words[16] = {0};
    assert_true(key_count + bag_count / 2 + 1 <= 16);
    if (bag_count != 0) {
        memcpy(words + key_count, ends, bag_count * sizeof *ends);
    }
    struct sl_request_section section = {
        .op = SL_REQUEST_PULL_POOLED, .key_count = key_count, .bag_count = bag_count};
    struct sl_bytes cursor = sl_bytes_over(words, sl_request_body_bytes(&section, 1));
    struct sl_request_view view;
    return sl_request_read_body(&cursor, &section, 1, &view);
}

SL_CASE(request_read_body__wants_bags_that_ascend_to_the_last_key)
{
    assert_int_equal(read_bags(4, (uint32_t[]){0, 0, 3, 4}, 4), SL_OK);
    assert_int_equal(read_bags(4, (uint32_t[]){1, 4, 4}, 3), SL_OK);
    assert_int_equal(read_bags(4, (uint32_t[]){2, 1, 4}, 3), SL_ERR_PROTOCOL);
    assert_int_equal(read_bags(4, (uint32_t[]){1, 3}, 2), SL_ERR_PROTOCOL);
    assert_int_equal(read_bags(4, (uint32_t[]){1, 5}, 2), SL_ERR_PROTOCOL);
    assert_int_equal(read_bags(4, (uint32_t[]){5, 4}, 2), SL_ERR_PROTOCOL);
    assert_int_equal(read_bags(4, NULL, 0), SL_ERR_PROTOCOL);
    assert_int_equal(read_bags(0, NULL, 0), SL_OK);
    assert_int_equal(read_bags(0, (uint32_t[]){0, 0}, 2), SL_OK);
}

SL_CASE(request_read_body__bounds_bags_that_are_narrowed)
{
    static uint64_t words[SL_REQUEST_NARROW_BAG_KEYS_MAX + 3];
    for (uint32_t round = 0; round < 4; round++) {
        const uint32_t ends[] = {1, SL_REQUEST_NARROW_BAG_KEYS_MAX + 1 + round / 2};
        const struct sl_request_section section = {.op = SL_REQUEST_PULL_POOLED,
                                                   .flags = flags_of(0, round % 2),
                                                   .key_count = ends[1],
                                                   .bag_count = 2};
        struct sl_bytes cursor = sl_bytes_over(words, sl_request_body_bytes(&section, 1));
        struct sl_request_view view;
        memcpy(words + ends[1], ends, sizeof ends);
        assert_int_equal(sl_request_read_body(&cursor, &section, 1, &view),
                         round < 3 ? SL_OK : SL_ERR_PROTOCOL);
    }
}

SL_CASE(request_read_body__wants_zeros_as_padding)
{
    uint64_t word = 0;
    struct sl_request_section section = {.op = SL_REQUEST_DENSE_PUSH, .count = 1};
    struct sl_request_view view;
    struct sl_bytes cursor = sl_bytes_over(&word, sizeof word);
    assert_int_equal(sl_request_read_body(&cursor, &section, 0, &view), SL_OK);
    word = 1ULL << 63;
    cursor = sl_bytes_over(&word, sizeof word);
    assert_int_equal(sl_request_read_body(&cursor, &section, 0, &view), SL_ERR_PROTOCOL);
}

SL_CASE(request_read_body__wants_the_right_kind_of_table)
{
    uint64_t words[2] = {0};
    struct sl_request_view view;
    struct sl_bytes cursor = sl_bytes_over(words, sizeof words);
    struct sl_request_section sparse = {.op = SL_REQUEST_PULL, .key_count = 1};
    assert_int_equal(sl_request_read_body(&cursor, &sparse, 0, &view), SL_ERR_PROTOCOL);
    struct sl_request_section dense = {.op = SL_REQUEST_DENSE_PULL, .count = 1};
    cursor = sl_bytes_over(words, sizeof words);
    assert_int_equal(sl_request_read_body(&cursor, &dense, 4, &view), SL_ERR_PROTOCOL);
}

SL_CASE(request_read_prefix__bounds_the_sections)
{
    static const struct {
        uint32_t section_count;
        int err;
    } cases[] = {
        {0, SL_ERR_PROTOCOL},
        {1, SL_OK},
        {SL_LIMIT_REQUEST_SECTIONS, SL_OK},
        {SL_LIMIT_REQUEST_SECTIONS + 1, SL_ERR_PROTOCOL},
        {UINT32_MAX, SL_ERR_PROTOCOL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_request_prefix prefix = {.section_count = cases[i].section_count, .clock = 3};
        struct sl_bytes cursor = sl_bytes_over(&prefix, sizeof prefix);
        struct sl_request_prefix out;
        assert_int_equal(sl_request_read_prefix(&cursor, &out), cases[i].err);
    }
}

SL_CASE(request_reply_bytes__cannot_overflow)
{
    struct sl_request_section section = {
        .op = SL_REQUEST_PUSH_PULL, .key_count = UINT32_MAX, .bag_count = UINT32_MAX};
    const uint64_t rows = 4ULL * UINT32_MAX * SL_LIMIT_DIM;
    assert_true(sl_request_reply_bytes(&section, SL_LIMIT_DIM) == rows);
    assert_true(sl_request_body_bytes(&section, SL_LIMIT_DIM) == rows + 8ULL * UINT32_MAX);
    section.op = SL_REQUEST_PULL_POOLED;
    assert_true(sl_request_reply_bytes(&section, SL_LIMIT_DIM) == rows);
    section =
        (struct sl_request_section){.op = SL_REQUEST_DENSE_PULL, .count = SL_LIMIT_DENSE_ELEMENTS};
    assert_true(sl_request_reply_bytes(&section, 0) == 4 * SL_LIMIT_DENSE_ELEMENTS);
    assert_true(sl_request_body_bytes(&section, 0) == 0);
}

SL_CASE(request_credit_bytes__is_the_greater_and_a_header)
{
    assert_int_equal(sl_request_credit_bytes(100, 7), 132);
    assert_int_equal(sl_request_credit_bytes(7, 100), 132);
}
