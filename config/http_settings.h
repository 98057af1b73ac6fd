/* Settings of HTTP for operators: its address and the token that callers show. Before start. */
#ifndef SL_CONFIG_HTTP_SETTINGS_H
#define SL_CONFIG_HTTP_SETTINGS_H

#include <stdbool.h>

#include "config/cli.h"
#include "core/endpoint.h"
#include "core/reason.h"
#include "core/secret.h"

#define SL_HTTP_SETTINGS_DEFAULT "127.0.0.1:0"
#define SL_HTTP_SETTINGS_ALONE   "127.0.0.1:9480" /* of a server that no source describes */
#define SL_HTTP_SETTINGS_ACCEPTS "HOST:PORT (port 0: any free one), or off"

/* As given. Strings point into argv or the environment. */
struct sl_http_settings_flags {
    const char *address, *token_file; /* token_file: NULL: none */
};

struct sl_http_settings {
    bool is_on;
    struct sl_endpoint endpoint;
    char source[SL_CLI_SOURCE_BYTES +
                SL_LIMIT_ENDPOINT_BYTES]; /* for errors, such as "--http=10.0.0.1:80" */
    bool is_default;                      /* the address */
    struct sl_secret token;               /* byte_count 0: none */
};

/* Whether the text is an address or off; writes it to *target, a const char *. */
bool sl_http_settings_parse(const char *text, void *target);

/* Resolves the flags. An address beyond loopback needs a token, unless *is_insecure; NULL: the
 * program has no such flag. reason: the option, its source, what is accepted. Errors: INVALID,
 * those of the token file. */
int sl_http_settings_resolve(const struct sl_http_settings_flags *flags,
                             const struct sl_cli_given *given, const bool *is_insecure,
                             struct sl_http_settings *out, struct sl_reason *reason);

#endif
