/* Parts of an HTTP server: the token that callers show, and PEM files. Any thread. */
#ifndef SL_NET_HTTP_HTTP_H
#define SL_NET_HTTP_HTTP_H

#include "core/reason.h"
#include "core/secret.h"

/* Longest PEM file, with its NUL. */
#define SL_HTTP_PEM_BYTES_MAX (64U << 10)

enum sl_http_caller {
    SL_HTTP_CALLER_KNOWN,
    SL_HTTP_CALLER_NO_TOKEN,
    SL_HTTP_CALLER_WRONG_TOKEN,
};

/* Compares a request's Authorization header with the token, in a time that does not depend on where
 * they differ. authorization: NULL: none. A token of 0 bytes: every caller is known. */
enum sl_http_caller sl_http_check_token(const struct sl_secret *token, const char *authorization);

/* Reads a PEM file into *out, allocated; sl_http_erase_pem frees it. Errors: IO (also: empty, or
 * too long). */
int sl_http_read_pem(const char *path, char **out, struct sl_reason *reason);
void sl_http_erase_pem(char **pem);

#endif
