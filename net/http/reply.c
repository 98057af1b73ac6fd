#include "net/http/reply.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "core/assert.h"

/* As zlib.h says: the largest window, and a gzip header. */
#define GZIP_WINDOW_BITS (MAX_WBITS + 16)
#define MEMORY_LEVEL     8

static void free_body(struct sl_reply *reply)
{
    if (!reply->is_static) {
        free((void *)(uintptr_t)reply->body);
    }
    reply->body = NULL;
    reply->bytes = 0;
}

static void set_body(struct sl_reply *reply, const void *body, size_t bytes, bool is_static)
{
    free_body(reply);
    reply->body = body;
    reply->bytes = bytes;
    reply->is_static = is_static;
}

void sl_reply_take(struct sl_reply *reply, char *body, size_t bytes)
{
    static const char failure[] = "{\"error\":\"no memory\"}";
    if (body != NULL) {
        set_body(reply, body, bytes, false);
        return;
    }
    reply->status = 500;
    reply->type = "application/json";
    set_body(reply, failure, sizeof failure - 1, true);
}

void sl_reply_static(struct sl_reply *reply, const void *body, size_t bytes, const char *encoding)
{
    set_body(reply, body, bytes, true);
    reply->encoding = encoding;
}

void sl_reply_json(struct sl_reply *reply, struct json_t *object)
{
    char *body = object != NULL ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(object);
    sl_reply_take(reply, body, body != NULL ? strlen(body) : 0);
}

static void add_header(struct sl_reply *reply, const char *name, const char *value)
{
    sl_assert(reply->header_count < SL_REPLY_HEADERS_MAX);
    reply->headers[reply->header_count].name = name;
    reply->headers[reply->header_count++].value = value;
}

void sl_reply_header(struct sl_reply *reply, const char *name, const char *value)
{
    if (value != NULL) {
        add_header(reply, name, value);
    }
}

static void set_text(struct sl_reply *reply, const char *name, const char *format,
                     va_list arguments)
{
    sl_assert(reply->text == NULL);
    if (vasprintf(&reply->text, format, arguments) >= 0) {
        add_header(reply, name, NULL);
    } else {
        reply->text = NULL;
    }
}

void sl_reply_header_format(struct sl_reply *reply, const char *name, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(reply, name, format, arguments);
    va_end(arguments);
}

void sl_reply_redirect(struct sl_reply *reply, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    set_text(reply, "Location", format, arguments);
    va_end(arguments);
    sl_reply_error(reply, 307, "it is at %.1024s", reply->text != NULL ? reply->text : "");
}

void sl_reply_verror(struct sl_reply *reply, uint32_t status, const char *format, va_list arguments)
{
    struct sl_reason error;
    sl_reason_vset(&error, format, arguments);
    json_t *text = json_string(error.text);
    if (text == NULL) { /* not UTF-8: a name of the caller */
        sl_reason_make_printable(error.text, strlen(error.text));
        text = json_string(error.text);
    }
    reply->status = status;
    reply->type = "application/json";
    reply->encoding = NULL;
    sl_reply_json(reply, json_pack("{s:o}", "error", text));
}

void sl_reply_error(struct sl_reply *reply, uint32_t status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    sl_reply_verror(reply, status, format, arguments);
    va_end(arguments);
}

void sl_reply_compress(struct sl_reply *reply, const char *coding, size_t least_bytes)
{
    z_stream stream = {.next_in = (void *)(uintptr_t)reply->body, .avail_in = (uInt)reply->bytes};
    const int window_bits = strcmp(coding, "gzip") == 0 ? GZIP_WINDOW_BITS : MAX_WBITS;
    if (reply->encoding != NULL || reply->bytes < least_bytes || reply->bytes > UINT32_MAX / 2 ||
        deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, window_bits, MEMORY_LEVEL,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
        return;
    }
    stream.avail_out = (uInt)reply->bytes; /* a longer result is of no use */
    char *packed = malloc(reply->bytes);
    stream.next_out = (void *)packed;
    if (packed != NULL && deflate(&stream, Z_FINISH) == Z_STREAM_END) {
        set_body(reply, packed, stream.total_out, false);
        reply->encoding = coding;
    } else {
        free(packed);
    }
    (void)deflateEnd(&stream);
}

void sl_reply_decompress(struct sl_reply *reply)
{
    z_stream stream = {.next_in = (void *)(uintptr_t)reply->body, .avail_in = (uInt)reply->bytes};
    uint32_t bytes = 0;
    if (reply->encoding == NULL || reply->bytes < sizeof bytes) {
        return;
    }
    reply->encoding = NULL;
    memcpy(&bytes, (const char *)reply->body + reply->bytes - sizeof bytes, sizeof bytes);
    char *plain = malloc(bytes); /* the last four bytes are the length: RFC 1952 */
    stream.next_out = (void *)plain;
    stream.avail_out = bytes;
    bool is_done = plain != NULL && inflateInit2(&stream, GZIP_WINDOW_BITS) == Z_OK;
    if (is_done) {
        is_done = inflate(&stream, Z_FINISH) == Z_STREAM_END;
        (void)inflateEnd(&stream);
    }
    if (!is_done) {
        free(plain);
        plain = NULL;
    }
    sl_reply_take(reply, plain, bytes);
}

bool sl_reply_accepts(const char *header, const char *coding)
{
    const size_t length = strlen(coding);
    bool accepts = false;
    for (const char *at = header != NULL ? header : ""; *at != '\0';) {
        at += strspn(at, ", \t");
        const size_t item = strcspn(at, ","), name = strcspn(at, ",; \t");
        const char *quality = strstr(at, "q=");
        const bool is_accepted =
            quality == NULL || quality >= at + item || strtod(quality + 2, NULL) > 0;
        if (name == length && strncasecmp(at, coding, length) == 0) {
            return is_accepted;
        }
        accepts |= name == 1 && *at == '*' && is_accepted;
        at += item;
    }
    return accepts;
}

void sl_reply_fini(struct sl_reply *reply)
{
    free_body(reply);
    free(reply->text);
    reply->text = NULL;
}
