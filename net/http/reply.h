/* Reply has the status, headers and body of an answer to a request. The server's thread. */
#ifndef SL_NET_HTTP_REPLY_H
#define SL_NET_HTTP_REPLY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/http/query.h"

#define SL_REPLY_HEADERS_MAX    8
/* Shorter bodies fit into a few packets without compression. */
#define SL_REPLY_COMPRESS_BYTES 8192

struct json_t; /* of jansson */

/* Zeroed at first. */
struct sl_reply {
    uint32_t status;      /* 0: there is no reply yet */
    const char *type;     /* static */
    const char *encoding; /* static, such as "gzip"; NULL: none */
    const char *etag;     /* static, with quotation marks: the caller may keep the body; or NULL */
    const void *body;
    size_t bytes;
    bool is_static; /* the body; else the reply owns it, and it was allocated with malloc */
    uint32_t header_count;
    struct {
        const char *name, *value; /* static; value NULL: `text` */
    } headers[SL_REPLY_HEADERS_MAX];
    char *text; /* owned; NULL: none */
};

/* Reads something for a request. ctx: of the route. Must not block. The query has accepted
 * parameters only; their values are for the function to check. At first the status is 200, and the
 * type that of the route. An empty body with status 200 is a failure: 500. */
typedef void sl_reply_read_fn(void *ctx, const struct sl_query *query, struct sl_reply *reply);

/* Adds a header: at most SL_REPLY_HEADERS_MAX. value: static; NULL: adds none. */
void sl_reply_header(struct sl_reply *reply, const char *name, const char *value);

/* Adds a header with this value: at most one such header. Without memory it is missing. */
void sl_reply_header_format(struct sl_reply *reply, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Takes a body that was allocated with malloc; NULL: no memory, 500. */
void sl_reply_take(struct sl_reply *reply, char *body, size_t bytes);

/* A body that is not freed. encoding: NULL, or "gzip". */
void sl_reply_static(struct sl_reply *reply, const void *body, size_t bytes, const char *encoding);

/* Writes the object as the body and drops the reference; NULL: no memory, 500. */
void sl_reply_json(struct sl_reply *reply, struct json_t *object);

/* {"error": text} with a status. Bytes that are not UTF-8 become "?". */
void sl_reply_error(struct sl_reply *reply, uint32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sl_reply_verror(struct sl_reply *reply, uint32_t status, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

/* 307 to an URL. */
void sl_reply_redirect(struct sl_reply *reply, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Compresses a body of least_bytes or more with "gzip" or "deflate" (static), unless that fails, or
 * does not make it shorter: the state of a large job shrinks to a tenth. Only for a caller that
 * accepts the coding. */
void sl_reply_compress(struct sl_reply *reply, const char *coding, size_t least_bytes);

/* For a caller that does not: a compressed body becomes plain; without memory 500. */
void sl_reply_decompress(struct sl_reply *reply);

/* Whether the header Accept-Encoding, NULL: none, accepts the coding (RFC 9110, 12.5.3). */
bool sl_reply_accepts(const char *header, const char *coding);

/* Frees the body, unless it is static or was taken (NULL), and the text. */
void sl_reply_fini(struct sl_reply *reply);

#endif
