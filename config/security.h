/* Flags for secret and TLS, shared by starling-ps, starling-worker and starling-launch. Before
 * start. */
#ifndef SL_CONFIG_SECURITY_H
#define SL_CONFIG_SECURITY_H

#include <stdbool.h>
#include <stddef.h>

#include "config/cli.h"
#include "core/endpoint.h"
#include "core/err.h"
#include "core/secret.h"

#define SL_SECURITY_SECRET_VARIABLE "STARLING_SECRET_FILE"

/* Values of the flags; NULL: not given. */
struct sl_security_flags {
    const char *secret_file;
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
};

/* Rows of a table of options (config/cli.h); `flags` is a struct sl_security_flags. */
#define SL_SECURITY_OPTIONS(flags)                                                                 \
    {.kind = SL_CLI_SECTION, .name = "Security"},                                                  \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "secret-file",                                                                    \
         .target = &(flags).secret_file,                                                           \
         .metavar = "FILE",                                                                        \
         .help = "File with the cluster's secret, 16 to 1024 bytes, readable by its "              \
                 "owner only; the same for all processes. Default: the file that "                 \
                 "STARLING_SECRET_FILE names."},                                                   \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "tls-cert",                                                                       \
         .target = &(flags).tls_cert,                                                              \
         .metavar = "FILE",                                                                        \
         .help = "Encrypt every connection with TLS: this process's certificate in PEM, "          \
                 "with its chain. Needs --tls-key and --tls-ca."},                                 \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "tls-key",                                                                        \
         .target = &(flags).tls_key,                                                               \
         .metavar = "FILE",                                                                        \
         .help = "The certificate's private key in PEM."},                                         \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "tls-ca",                                                                         \
         .target = &(flags).tls_ca,                                                                \
         .metavar = "FILE",                                                                        \
         .help = "Certificates in PEM of the authorities that signed the certificates of "         \
                 "all processes."},                                                                \
    {                                                                                              \
        .kind = SL_CLI_STRING, .name = "tls-name", .target = &(flags).tls_name, .metavar = "NAME", \
        .help = "Name that the certificate of every server must have. Default: the host "          \
                "that the process connects to."                                                    \
    }

struct sl_security {
    struct sl_secret secret; /* byte_count 0: no secret */
    bool tls;                /* the paths below are set; they are the flags' strings */
    const char *certificate, *key, *authority;
    const char *peer_name; /* NULL: the host */
};

/* Checks that all TLS files are given, or none; does not open them. reason: the missing flag.
 * Errors: INVALID. */
int sl_security_check_flags(const struct sl_security_flags *flags, char *reason,
                            size_t reason_bytes);

/* Like check_flags; also checks that the TLS files are readable, and reads the secret from the
 * flag's file, else from the file `variable` (value of SL_SECURITY_SECRET_VARIABLE; NULL: unset;
 * empty is an error). reason: the flag or file and what is accepted. Errors: INVALID, NOT_FOUND (a
 * TLS file), those of sl_secret_read. */
int sl_security_resolve(const struct sl_security_flags *flags, const char *variable,
                        struct sl_security *out, char *reason, size_t reason_bytes);

/* Returns true for 127.0.0.0/8, ::1 and localhost: only this machine reaches the endpoint. */
bool sl_security_is_loopback(const struct sl_endpoint *endpoint);

/* Without a secret, refuses an endpoint that other machines can reach, unless the user allows it
 * (insecure). what: "control" or "data", for the reason. Errors: INVALID. */
int sl_security_check_exposure(const struct sl_security *security, bool insecure, const char *what,
                               const struct sl_endpoint *endpoint, char *reason,
                               size_t reason_bytes);

#endif
