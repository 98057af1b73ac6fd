/* Options of the gateway's HTTP. Before start. */
#ifndef SL_SERVE_HTTP_SETTINGS_H
#define SL_SERVE_HTTP_SETTINGS_H

#include "config/http_settings.h"
#include "net/http/server.h"

/* As given. */
struct sl_serve_http_flags {
    struct sl_http_settings_flags http;
    const char *certificate, *key; /* files */
};

#define SL_SERVE_HTTP_OPTIONS(flags)                                                               \
    SL_CLI_OPTION(STRING, &(flags)->http.address, .name = "http", .metavar = "HOST:PORT",          \
                  .preset = "127.0.0.1:8080", .help = "Address for HTTP. Port 0: any free port."), \
        SL_CLI_OPTION(STRING, &(flags)->http.token_file, .name = "http-token-file",                \
                      .metavar = "FILE",                                                           \
                      .help = "Token, 16 to 1024 bytes, that HTTP callers show (Authorization: "   \
                              "Bearer). Needed beyond loopback, unless --insecure is given."),     \
        SL_CLI_OPTION(STRING, &(flags)->certificate, .name = "http-tls-cert", .metavar = "FILE",   \
                      .help = "Certificate for HTTPS, PEM. Needs --http-tls-key."),                \
        SL_CLI_OPTION(STRING, &(flags)->key, .name = "http-tls-key", .metavar = "FILE",            \
                      .help = "Its key, PEM.")

struct sl_serve_http_settings {
    struct sl_http_settings http;
    struct sl_http_listen listen; /* points into http, and to the flags' strings */
};

/* Checks the flags, and reads the token. Errors: INVALID (also: beyond loopback without a token,
 * and not is_insecure), those of the token file. */
int sl_serve_http_settings_resolve(const struct sl_serve_http_flags *flags, bool is_insecure,
                                   struct sl_serve_http_settings *out, struct sl_reason *reason);

/* Erases the token. */
void sl_serve_http_settings_fini(struct sl_serve_http_settings *settings);

#endif
