/* The flags by which a process of the cluster is told how to trust its peers; starling-ps,
 * starling-worker and starling-launch have the same ones. Before start. */
#ifndef SL_CONFIG_SECURITY_H
#define SL_CONFIG_SECURITY_H

#include <stdbool.h>
#include <stddef.h>

#include "config/cli.h"
#include "core/endpoint.h"
#include "core/err.h"
#include "core/secret.h"

#define SL_SECURITY_SECRET_VARIABLE "STARLING_SECRET_FILE"

/* What the flags said; NULL where they said nothing. */
struct sl_security_flags {
    const char *secret_file;
    const char *tls_cert, *tls_key, *tls_ca, *tls_name;
};

/* Rows of a program's table of options (config/cli.h); `flags` is a struct sl_security_flags. */
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
    struct sl_secret secret; /* byte_count 0: the cluster has none */
    bool tls;                /* certificate, key, authority: paths, as the flags' strings live */
    const char *certificate, *key, *authority;
    const char *peer_name; /* NULL: the host */
};

/* That the TLS files are all given, or none; looks at no file. On error, reason says which flag is
 * missing. Errors: INVALID. */
int sl_security_check_flags(const struct sl_security_flags *flags, char *reason,
                            size_t reason_bytes);

/* The same; then that the TLS files can be read, and the secret from the flag's file, else from the
 * one that the variable names (getenv's SL_SECURITY_SECRET_VARIABLE; NULL: not set; empty is an
 * error). On error, reason says which flag or file, and what is accepted. Errors: INVALID,
 * NOT_FOUND (a TLS file), and those of sl_secret_read. */
int sl_security_resolve(const struct sl_security_flags *flags, const char *variable,
                        struct sl_security *out, char *reason, size_t reason_bytes);

/* Whether only processes of this machine reach the endpoint: 127.0.0.0/8, ::1 or localhost. */
bool sl_security_is_loopback(const struct sl_endpoint *endpoint);

/* Without a secret nobody but this machine's processes shall reach a ps, unless the user says so
 * (insecure). what: "control" or "data", for the reason. Errors: INVALID. */
int sl_security_check_exposure(const struct sl_security *security, bool insecure, const char *what,
                               const struct sl_endpoint *endpoint, char *reason,
                               size_t reason_bytes);

#endif
