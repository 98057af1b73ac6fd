#include "net/http/reply.h"

#include <stdlib.h>
#include <zlib.h>

#include "tests/support/unit.h"

#define LONG_BYTES 100000

/* A body of JSON-like text, or of noise, which no compression makes shorter. */
static struct sl_reply make(size_t bytes, bool is_noise)
{
    struct sl_reply reply = {.status = 200};
    char *body = malloc(bytes);
    assert_non_null(body);
    uint32_t state = 1;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525 + 1013904223;
        body[i] = is_noise ? (char)(state >> 24) : "{\"requests_s\":1,"[i % 16];
    }
    sl_reply_take(&reply, body, bytes);
    return reply;
}

SL_CASE(reply_compress__makes_a_long_body_short)
{
    struct sl_reply reply = make(LONG_BYTES, false);
    sl_reply_compress(&reply, "gzip", SL_REPLY_COMPRESS_BYTES);
    assert_string_equal(reply.encoding, "gzip");
    assert_in_range(reply.bytes, 1, LONG_BYTES / 10);

    char *text = malloc(LONG_BYTES);
    z_stream stream = {.next_in = (void *)(uintptr_t)reply.body,
                       .avail_in = (uInt)reply.bytes,
                       .next_out = (void *)text,
                       .avail_out = LONG_BYTES};
    assert_int_equal(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK);
    assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
    inflateEnd(&stream);
    assert_int_equal(stream.total_out, LONG_BYTES);
    assert_memory_equal(text + LONG_BYTES - 16, "{\"requests_s\":1,", 16);
    free(text);
    sl_reply_fini(&reply);
}

SL_CASE(reply_compress__leaves_short_bodies_and_noise)
{
    struct sl_reply replies[] = {make(100, false), make(LONG_BYTES, true)};
    for (size_t i = 0; i < 2; i++) {
        const size_t bytes = replies[i].bytes;
        sl_reply_compress(&replies[i], "gzip", SL_REPLY_COMPRESS_BYTES);
        assert_null(replies[i].encoding);
        assert_int_equal(replies[i].bytes, bytes);
        sl_reply_fini(&replies[i]);
    }
}

SL_CASE(reply_compress__leaves_what_is_compressed)
{
    static char file[LONG_BYTES];
    struct sl_reply reply = {.status = 200};
    sl_reply_static(&reply, file, sizeof file, "gzip");
    sl_reply_compress(&reply, "gzip", SL_REPLY_COMPRESS_BYTES);
    assert_ptr_equal(reply.body, file);
    sl_reply_fini(&reply);
}

SL_CASE(reply_decompress__gives_the_body_of_before)
{
    struct sl_reply reply = make(LONG_BYTES, false), plain = make(LONG_BYTES, false);
    sl_reply_compress(&reply, "gzip", SL_REPLY_COMPRESS_BYTES);
    assert_non_null(reply.encoding);
    sl_reply_decompress(&reply);
    assert_null(reply.encoding);
    assert_int_equal(reply.bytes, LONG_BYTES);
    assert_memory_equal(reply.body, plain.body, LONG_BYTES);
    sl_reply_decompress(&reply); /* is plain */
    assert_int_equal(reply.bytes, LONG_BYTES);
    sl_reply_fini(&reply);
    sl_reply_fini(&plain);
}

SL_CASE(reply_accepts__reads_the_header)
{
    static const char *const accepted[] = {
        "gzip", "GZIP", "br, gzip", "gzip;q=0.5", "deflate,gzip ; q=1", "*", "br;q=0, *;q=0.1"};
    static const char *const refused[] = {"",      "identity", "gzip;q=0", "gzip; q=0.000, *",
                                          "*;q=0", "gzipped",  "x-gzip",   "br"};
    for (size_t i = 0; i < sizeof accepted / sizeof accepted[0]; i++) {
        assert_true(sl_reply_accepts(accepted[i], "gzip"));
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        assert_false(sl_reply_accepts(refused[i], "gzip"));
    }
    assert_false(sl_reply_accepts(NULL, "gzip"));
}

SL_CASE(reply_error__escapes_and_replaces)
{
    struct sl_reply reply = {0};
    sl_reply_error(&reply, 400, "a \"quote\"\n<script>");
    assert_int_equal(reply.status, 400);
    assert_string_equal(reply.body, "{\"error\":\"a \\\"quote\\\"\\\\x0a<script>\"}");
    sl_reply_error(&reply, 404, "no \xff UTF-8");
    assert_string_equal(reply.body, "{\"error\":\"no ? UTF-8\"}");
    sl_reply_fini(&reply);
}

SL_CASE(reply_compress__deflate_and_short_bodies)
{
    struct sl_reply reply = make(600, false);
    char text[600];
    uLongf bytes = sizeof text;
    sl_reply_compress(&reply, "deflate", 1);
    assert_string_equal(reply.encoding, "deflate");
    assert_int_equal(uncompress((void *)text, &bytes, reply.body, reply.bytes), Z_OK);
    assert_int_equal(bytes, sizeof text);
    assert_memory_equal(text, "{\"requests_s\":1,", 16);
    sl_reply_fini(&reply);
    assert_true(sl_reply_accepts("gzip;q=0, Deflate", "deflate"));
    assert_false(sl_reply_accepts("gzip", "deflate"));
}
