#include "net/http/inflate.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "core/err.h"
#include "tests/support/unit.h"

struct sink {
    char *bytes;
    size_t count, room, largest; /* largest: of a piece */
};

static bool put(void *ctx, const void *piece, size_t bytes)
{
    struct sink *sink = ctx;
    sink->largest = bytes > sink->largest ? bytes : sink->largest;
    if (bytes > sink->room - sink->count) {
        return false;
    }
    memcpy(sink->bytes + sink->count, piece, bytes);
    sink->count += bytes;
    return true;
}

/* Of the coding "deflate". */
static uLongf pack(const char *text, size_t count, uint8_t *to, size_t room)
{
    uLongf bytes = room;
    assert_int_equal(compress2(to, &bytes, (const uint8_t *)text, count, 9), Z_OK);
    return bytes;
}

SL_CASE(inflate_take__takes_pieces_of_any_length)
{
    static char text[50000], got[50000];
    uint8_t packed[60000];
    for (size_t i = 0; i < sizeof text; i++) {
        text[i] = (char)(i * i >> 7);
    }
    const size_t count = pack(text, sizeof text, packed, sizeof packed);
    for (size_t piece = 1; piece <= count; piece = piece * 3 + 1) {
        struct sink sink = {.bytes = got, .room = sizeof got};
        struct sl_inflate *decoder;
        assert_int_equal(sl_inflate_create("DEFLATE", &decoder), 0);
        for (size_t at = 0; at < count; at += piece) {
            assert_false(sl_inflate_is_complete(decoder));
            assert_int_equal(sl_inflate_take(decoder, packed + at,
                                             count - at < piece ? count - at : piece, put, &sink),
                             0);
        }
        assert_true(sl_inflate_is_complete(decoder));
        assert_int_equal(sink.count, sizeof text);
        assert_memory_equal(got, text, sizeof text);
        assert_in_range(sink.largest, 1, SL_INFLATE_BYTES);
        assert_int_equal(sl_inflate_take(decoder, "", 0, put, &sink), 0);
        assert_int_equal(sl_inflate_take(decoder, "x", 1, put, &sink), SL_ERR_INVALID);
        sl_inflate_destroy(&decoder);
        assert_null(decoder);
    }
}

SL_CASE(inflate_take__ends_where_its_receiver_does)
{
    const size_t count = 10 << 20;
    char *text = calloc(1, count), got[40000];
    uint8_t packed[20000];
    struct sink sink = {.bytes = got, .room = sizeof got};
    struct sl_inflate *decoder;
    const size_t bytes = pack(text, count, packed, sizeof packed);
    assert_int_equal(sl_inflate_create("deflate", &decoder), 0);
    assert_int_equal(sl_inflate_take(decoder, packed, bytes, put, &sink), SL_ERR_CANCELLED);
    assert_in_range(sink.count, 1, sizeof got);
    sl_inflate_destroy(&decoder);
    free(text);
}

SL_CASE(inflate_create__names_of_codings)
{
    struct sl_inflate *decoder = NULL;
    static const char *const refused[] = {"br", "", "gzip2", "gzip, gzip", "identity"};
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_int_equal(sl_inflate_create(refused[i], &decoder), SL_ERR_UNSUPPORTED);
        assert_null(decoder);
    }
    assert_int_equal(sl_inflate_create("GZip", &decoder), 0);
    struct sink sink = {0};
    assert_int_equal(sl_inflate_take(decoder, "no gzip", 7, put, &sink), SL_ERR_INVALID);
    sl_inflate_destroy(&decoder);
    sl_inflate_destroy(&decoder);
}
