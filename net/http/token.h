/* The token that callers of an HTTP server show. Any thread. */
#ifndef SL_NET_HTTP_TOKEN_H
#define SL_NET_HTTP_TOKEN_H

#include "core/secret.h"

enum sl_http_caller {
    SL_HTTP_CALLER_KNOWN,
    SL_HTTP_CALLER_NO_TOKEN,
    SL_HTTP_CALLER_WRONG_TOKEN,
};

/* Compares a request's Authorization header with the token, in a time that does not depend on where
 * they differ. authorization: NULL: none. A token of 0 bytes: every caller is known. */
enum sl_http_caller sl_http_check_token(const struct sl_secret *token, const char *authorization);

#endif
