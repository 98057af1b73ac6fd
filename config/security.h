/* Flags for secret and TLS, shared by all programs. Before start. */
#ifndef SL_CONFIG_SECURITY_H
#define SL_CONFIG_SECURITY_H

#include <stdbool.h>

#include "config/cli.h"
#include "core/endpoint.h"
#include "core/reason.h"
#include "core/secret.h"

/* Values of the flags; NULL: not given. */
struct sl_security_flags {
    const char *secret_file;
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
};

/* The rows of these flags in a table of options, for programs without a cluster's settings. flags:
 * struct sl_security_flags *; is_insecure: bool *. */
#define SL_SECURITY_OPTIONS(flags, is_insecure)                                                    \
    SL_CLI_OPTION(STRING, &(flags)->secret_file, .name = "secret-file",                            \
                  .variable = "STARLING_SECRET_FILE", .refuses_empty = true, .metavar = "FILE",    \
                  .help = "The shared secret, 16 to 1024 bytes, readable by its owner only."),     \
        SL_CLI_OPTION(BOOL, is_insecure, .name = "insecure",                                       \
                      .help = "Listen beyond loopback without a secret."),                         \
        SL_CLI_OPTION(STRING, &(flags)->tls_cert, .name = "tls-cert", .metavar = "FILE",           \
                      .help = "Certificate, PEM. Needs --tls-key and --tls-ca."),                  \
        SL_CLI_OPTION(STRING, &(flags)->tls_key, .name = "tls-key", .metavar = "FILE",             \
                      .help = "Its key, PEM."),                                                    \
        SL_CLI_OPTION(STRING, &(flags)->tls_ca, .name = "tls-ca", .metavar = "FILE",               \
                      .help = "Authority of the peers, PEM."),                                     \
        SL_CLI_OPTION(STRING, &(flags)->tls_name, .name = "tls-name", .metavar = "NAME",           \
                      .help = "Name in the peers' certificates.")

struct sl_security {
    struct sl_secret secret; /* byte_count 0: no secret */
    bool tls;                /* the paths below are set; they are the flags' strings */
    const char *certificate, *key, *authority;
    const char *peer_name; /* NULL: the host */
};

/* Checks that all TLS files are given, or none; does not open them. reason: the missing flag.
 * Errors: INVALID. */
int sl_security_check_flags(const struct sl_security_flags *flags, struct sl_reason *reason);

/* Like check_flags; also checks that the TLS files are readable, and reads the secret. reason: the
 * flag or file and what is accepted. Errors: INVALID, NOT_FOUND (a TLS file), those of
 * sl_secret_read. */
int sl_security_resolve(const struct sl_security_flags *flags, struct sl_security *out,
                        struct sl_reason *reason);

/* The options of an engine with this secret and TLS; they point into *security. */
struct sl_transfer_options;
void sl_security_engine(const struct sl_security *security, struct sl_transfer_options *out);

/* Refuses an endpoint that other machines can reach, unless there is a secret, or the user allows
 * it (is_allowed). what: "control" or "data", for the reason. Errors: INVALID. */
int sl_security_check_exposure(bool is_allowed, const char *what,
                               const struct sl_endpoint *endpoint, struct sl_reason *reason);

#endif
