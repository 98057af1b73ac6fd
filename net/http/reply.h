/* Reply has the status, headers and body that a reader function fills in. The observer's thread. */
#ifndef SL_NET_HTTP_REPLY_H
#define SL_NET_HTTP_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/http/query.h"

#define SL_REPLY_LOCATION_BYTES (512 + SL_QUERY_BYTES_MAX)

struct json_t; /* of jansson */

struct sl_reply {
    uint32_t status;      /* 200 at first */
    const char *type;     /* static; at first that of the route */
    const char *encoding; /* static, such as "gzip"; NULL: none */
    const char *etag;     /* static, with quotation marks: the caller may keep the body; or NULL */
    const void *body;
    size_t bytes;
    bool is_static; /* the body; else the reply owns it, and it was allocated with malloc */
    const char *header, *value;             /* one more; value: in `location` or static; or NULL */
    char location[SL_REPLY_LOCATION_BYTES]; /* of a redirect */
};

/* Reads something for a request. ctx: of the route. Must not block. The query has accepted
 * parameters only; their values are for the function to check. An empty body with status 200 is a
 * failure: 500. */
typedef void sl_reply_read_fn(void *ctx, const struct sl_query *query, struct sl_reply *reply);

/* Takes a body that was allocated with malloc; NULL: no memory, 500. */
void sl_reply_take(struct sl_reply *reply, char *body, size_t bytes);

/* A body that is not freed. encoding: NULL, or "gzip". */
void sl_reply_static(struct sl_reply *reply, const void *body, size_t bytes, const char *encoding);

/* Writes the object as the body and drops the reference; NULL: no memory, 500. */
void sl_reply_json(struct sl_reply *reply, struct json_t *object);

/* {"error": text} with a status. */
void sl_reply_error(struct sl_reply *reply, uint32_t status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* 307 to an URL. */
void sl_reply_redirect(struct sl_reply *reply, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Compresses a long body with gzip, unless that fails: the state of a large job shrinks to a tenth.
 * Only for a caller that accepts gzip. */
void sl_reply_compress(struct sl_reply *reply);

/* For a caller that does not: a compressed body becomes plain; without memory 500. */
void sl_reply_decompress(struct sl_reply *reply);

/* Whether the header Accept-Encoding, NULL: none, accepts gzip (RFC 9110, 12.5.3). */
bool sl_reply_accepts_gzip(const char *header);

/* Frees the body, unless it is static or was taken (NULL). */
void sl_reply_fini(struct sl_reply *reply);

#endif
