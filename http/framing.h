/* Framing says where the body of a request ends. Pure. Any thread. */
#ifndef SL_HTTP_FRAMING_H
#define SL_HTTP_FRAMING_H

#include <stdbool.h>

struct sl_http_framing {
    const char *length;
    bool has_two_lengths, is_chunked;
};

/* Takes a header of the request, which stays in place; the struct is zero at first. */
void sl_http_framing_take(struct sl_http_framing *framing, const char *name, const char *value);

/* After all headers: whether the request has one length, or comes in chunks, but not both, and not
 * two lengths. Else a proxy may see another end of the body, and the rest would be a request that
 * it did not check (RFC 9112, 6.3): the reply is 400, and the connection ends. */
bool sl_http_framing_is_clear(const struct sl_http_framing *framing);

#endif
