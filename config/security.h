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
    const char *secret_file, *operator_secret_file;
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
};

struct sl_security {
    struct sl_secret secret; /* byte_count 0: no secret */
    struct sl_secret operator_secret;
    bool tls; /* the paths below are set; they are the flags' strings */
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
