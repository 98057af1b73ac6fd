#include "config/security.h"

#include <starling_transfer.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "config/secret.h"

static bool has_tls(const struct sl_security_flags *flags)
{
    return flags->tls_cert != NULL || flags->tls_key != NULL || flags->tls_ca != NULL;
}

int sl_security_check_flags(const struct sl_security_flags *flags, struct sl_reason *reason)
{
    const char *missing = flags->tls_cert == NULL  ? "--tls-cert"
                          : flags->tls_key == NULL ? "--tls-key"
                          : flags->tls_ca == NULL  ? "--tls-ca"
                                                   : NULL;
    if (has_tls(flags) && missing != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s is missing: --tls-cert, --tls-key and --tls-ca go together",
                              missing);
    }
    if (!has_tls(flags) && flags->tls_name != NULL) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "--tls-name %.120s: has no effect without --tls-cert, --tls-key and --tls-ca",
            flags->tls_name);
    }
    return 0;
}

static int check_readable(const char *flag, const char *path, struct sl_reason *reason)
{
    if (access(path, R_OK) == 0) {
        return 0;
    }
    return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "%s=%.200s: %s", flag, path, strerror(errno));
}

/* The TLS library checks the contents of the files. */
static int resolve_tls(const struct sl_security_flags *flags, struct sl_security *out,
                       struct sl_reason *reason)
{
    int err = sl_security_check_flags(flags, reason);
    if (err != 0 || !has_tls(flags)) {
        return err;
    }
    err = check_readable("--tls-cert", flags->tls_cert, reason);
    err = err != 0 ? err : check_readable("--tls-key", flags->tls_key, reason);
    err = err != 0 ? err : check_readable("--tls-ca", flags->tls_ca, reason);
    out->tls = true;
    out->certificate = flags->tls_cert;
    out->key = flags->tls_key;
    out->authority = flags->tls_ca;
    out->peer_name = flags->tls_name;
    return err;
}

int sl_security_resolve(const struct sl_security_flags *flags, struct sl_security *out,
                        struct sl_reason *reason)
{
    struct sl_security security = {0};
    int err = resolve_tls(flags, &security, reason);
    if (err == 0 && flags->secret_file != NULL) {
        err = sl_secret_read(flags->secret_file, &security.secret, reason);
    }
    if (err == 0 && flags->operator_secret_file != NULL) {
        err = sl_secret_read(flags->operator_secret_file, &security.operator_secret, reason);
    }
    if (err == 0) {
        *out = security;
    }
    explicit_bzero(&security, sizeof security);
    return err;
}

void sl_security_engine(const struct sl_security *security, struct sl_transfer_options *out)
{
    *out = (struct sl_transfer_options){
        .secret = security->secret.byte_count > 0 ? security->secret.bytes : NULL,
        .secret_bytes = security->secret.byte_count,
        .tls_certificate = security->certificate,
        .tls_key = security->key,
        .tls_authority = security->authority,
        .tls_peer_name = security->peer_name,
    };
}

int sl_security_check_exposure(bool is_allowed, const char *what,
                               const struct sl_endpoint *endpoint, struct sl_reason *reason)
{
    if (is_allowed || sl_endpoint_is_loopback(endpoint)) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(endpoint, text, sizeof text);
    return sl_reason_fail(reason, SL_ERR_INVALID,
                          "%s endpoint %s is open to the network, and the cluster has no secret: "
                          "give --secret-file, or --insecure when the network is trusted",
                          what, text);
}
