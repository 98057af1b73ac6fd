#include <string.h>

#include "core/crc32c.h"
#include "core/hash.h"
#include "tests/support/unit.h"

SL_CASE(hash_bytes__depends_on_every_byte_and_on_the_seed)
{
    char name[300];
    memset(name, 'x', sizeof name);
    for (size_t bytes = 1; bytes <= sizeof name; bytes += 13) {
        const uint64_t before = sl_hash_bytes(name, bytes, 0);
        assert_true(before == sl_hash_bytes(name, bytes, 0));
        assert_true(before != sl_hash_bytes(name, bytes, 1));
        name[bytes - 1] = 'y';
        assert_true(before != sl_hash_bytes(name, bytes, 0));
        name[bytes - 1] = 'x';
    }
    /* XXH3 of the empty string with seed 0, so that files written today are read tomorrow. */
    assert_true(sl_hash_bytes("", 0, 0) == 0x2d06800538d394c2ULL);
}

SL_CASE(hash_bytes_128__is_xxh3)
{
    /* XXH3_128bits of the empty string, as the authors of xxHash have it. */
    const struct sl_hash_128 empty = {0x6001c324468d497fULL, 0x99aa06d3014798d8ULL};
    const struct sl_hash_128 hash = sl_hash_bytes_128("", 0);
    assert_true(sl_hash_128_equal(hash, empty));
    assert_false(sl_hash_128_equal(sl_hash_bytes_128("a", 1), empty));
    assert_false(sl_hash_128_equal((struct sl_hash_128){1, 2}, (struct sl_hash_128){1, 3}));
    assert_false(sl_hash_128_equal((struct sl_hash_128){0, 2}, (struct sl_hash_128){1, 2}));
}

SL_CASE(hash_crc32c__gives_the_vectors_of_rfc_3720)
{
    uint8_t zeros[32], ones[32], rising[32], falling[32];
    memset(zeros, 0, sizeof zeros);
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        rising[i] = i;
        falling[i] = (uint8_t)(31 - i);
    }
    assert_int_equal(sl_hash_crc32c(0, zeros, 32), 0x8a9136aa);
    assert_int_equal(sl_hash_crc32c(0, ones, 32), 0x62a8ab43);
    assert_int_equal(sl_hash_crc32c(0, rising, 32), 0x46dd794e);
    assert_int_equal(sl_hash_crc32c(0, falling, 32), 0x113fdb5c);
    assert_int_equal(sl_hash_crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(sl_hash_crc32c(0, zeros, 0), 0);
}

SL_CASE(hash_crc32c__both_forms_agree)
{
    if (!sl_crc32c_hardware_present()) {
        skip();
    }
    uint8_t data[257];
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof data; i++) {
        data[i] = (uint8_t)sl_hash_random(&seed);
    }
    for (size_t start = 0; start < 9; start++) {
        for (size_t bytes = 0; start + bytes <= sizeof data; bytes++) {
            const uint32_t crc = (uint32_t)sl_hash_random(&seed);
            assert_int_equal(sl_crc32c_table(crc, data + start, bytes),
                             sl_crc32c_hardware(crc, data + start, bytes));
        }
    }
}

SL_CASE(hash_crc32c__continues_where_it_stopped)
{
    const char text[] = "parameters are pulled and pushed";
    const uint32_t whole = sl_hash_crc32c(0, text, sizeof text);
    for (size_t cut = 0; cut <= sizeof text; cut++) {
        const uint32_t first = sl_hash_crc32c(0, text, cut);
        assert_int_equal(sl_hash_crc32c(first, text + cut, sizeof text - cut), whole);
    }
}

SL_CASE(hash_random__gives_the_published_sequence)
{
    /* SplitMix64 from state 1234567, as its authors' reference implementation prints it. */
    uint64_t seed = 1234567;
    assert_true(sl_hash_random(&seed) == 6457827717110365317ULL);
    assert_true(sl_hash_random(&seed) == 3203168211198807973ULL);
}
