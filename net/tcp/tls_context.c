#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/cell.h"
#include "core/log.h"
#include "net/tcp/tls.h"

#define CIPHERS      "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define WARN_DAYS    7 /* before our certificate expires */
#define REASON_BYTES 200

static struct sl_cell reloads; /* how often files were replaced, in all contexts */

struct sl_tcp_tls_context {
    SSL_CTX *ctx;
    uint64_t reloads; /* that `ctx` has */
    char *certificate, *key, *authority;
    char peer_name[SL_LIMIT_ENDPOINT_BYTES]; /* "": the host connected to */
};

/* Files */

static int complain(const char *what, const char *file, const char *reason)
{
    sl_log_error("tls: %s %s: %s", what, file, reason);
    return SL_ERR_INVALID;
}

static int complain_with(const char *what, const char *file, const char *prefix)
{
    char reason[REASON_BYTES];
    unsigned long code = ERR_peek_last_error();
    const char *text = code != 0 ? ERR_reason_error_string(code) : NULL;
    snprintf(reason, sizeof reason, "%s%s%s%s", prefix, text != NULL ? " (" : "",
             text != NULL ? text : "", text != NULL ? ")" : "");
    return complain(what, file, reason);
}

/* Opens the file first, so that the system's error can be logged. A pipe would block, and can be
 * read only once. */
static int tls_context_open_file(const char *what, const char *file, FILE **out)
{
    if (file == NULL || file[0] == '\0') {
        sl_log_error("tls: no %s: a certificate, its key and an authority are needed", what);
        return SL_ERR_INVALID;
    }
    struct stat status;
    if (stat(file, &status) == 0 && !S_ISREG(status.st_mode)) {
        return complain(what, file, "not a regular file");
    }
    FILE *opened = fopen(file, "re");
    if (opened == NULL) {
        return complain(what, file, strerror(errno));
    }
    *out = opened;
    return 0;
}

static int tls_context_check_file(const char *what, const char *file)
{
    FILE *opened;
    int err = tls_context_open_file(what, file, &opened);
    if (err == 0) {
        fclose(opened);
    }
    return err;
}

static void warn_of_end(const char *file, const X509 *certificate)
{
    int days = 0, seconds = 0;
    if (ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate)) != 1) {
        return;
    }
    if (days < 0 || seconds < 0) {
        sl_log_warn("tls: certificate %s has expired: peers will refuse it", file);
    } else if (days < WARN_DAYS) {
        sl_log_warn("tls: certificate %s expires in %d days", file, days);
    }
}

static int load_certificate(SSL_CTX *ctx, const char *file)
{
    int err = tls_context_check_file("certificate", file);
    if (err != 0) {
        return err;
    }
    if (SSL_CTX_use_certificate_chain_file(ctx, file) != 1) {
        return complain_with("certificate", file, "no good certificate in PEM");
    }
    warn_of_end(file, SSL_CTX_get0_certificate(ctx));
    return 0;
}

/* Fails for an encrypted key: there is no user to ask for the passphrase. */
static int no_passphrase(char *to, int bytes, int writes, void *ctx)
{
    return -1;
}

static int use_key(SSL_CTX *ctx, const char *file, FILE *opened)
{
    struct stat status;
    if (fstat(fileno(opened), &status) != 0 || (status.st_mode & S_IRWXO) != 0) {
        return complain("key", file, "every user of this machine may read it: chmod o= it");
    }
    EVP_PKEY *key = PEM_read_PrivateKey(opened, NULL, no_passphrase, NULL);
    if (key == NULL) {
        return complain_with("key", file, "no private key in PEM without a passphrase");
    }
    int used = SSL_CTX_use_PrivateKey(ctx, key);
    EVP_PKEY_free(key);
    return used == 1 ? 0 : complain_with("key", file, "not the key of the certificate");
}

static int load_key(SSL_CTX *ctx, const char *file)
{
    FILE *opened;
    int err = tls_context_open_file("key", file, &opened);
    if (err == 0) {
        err = use_key(ctx, file, opened);
        fclose(opened);
    }
    return err;
}

static int load_authority(SSL_CTX *ctx, const char *file)
{
    int err = tls_context_check_file("authority", file);
    if (err == 0 && SSL_CTX_load_verify_file(ctx, file) != 1) {
        err = complain_with("authority", file, "no good certificate in PEM");
    }
    return err;
}

/* Context */

static void set_rules(SSL_CTX *ctx)
{
    SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
    SSL_CTX_set_ciphersuites(ctx, CIPHERS);
    SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_num_tickets(ctx, 0);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_early_data(ctx, 0);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
}

static int load(const struct sl_transport_tls *files, SSL_CTX **out)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (ctx == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    set_rules(ctx);
    ERR_clear_error();
    int err = load_certificate(ctx, files->certificate);
    err = err == 0 ? load_key(ctx, files->key) : err;
    err = err == 0 ? load_authority(ctx, files->authority) : err;
    ERR_clear_error();
    if (err != 0) {
        SSL_CTX_free(ctx);
        return err;
    }
    *out = ctx;
    return 0;
}

int sl_tcp_tls_context_open(const struct sl_transport_tls *files, struct sl_tcp_tls_context **out)
{
    struct sl_tcp_tls_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    context->reloads = sl_cell_get(&reloads);
    int err = load(files, &context->ctx);
    if (err == 0) {
        context->certificate = strdup(files->certificate);
        context->key = strdup(files->key);
        context->authority = strdup(files->authority);
        err = context->certificate != NULL && context->key != NULL && context->authority != NULL
                  ? 0
                  : SL_ERR_NO_MEMORY;
    }
    if (err != 0) {
        sl_tcp_tls_context_close(&context);
        return err;
    }
    if (files->peer_name != NULL) {
        snprintf(context->peer_name, sizeof context->peer_name, "%s", files->peer_name);
    }
    *out = context;
    return 0;
}

void sl_tcp_tls_context_close(struct sl_tcp_tls_context **context)
{
    if (*context != NULL) {
        SSL_CTX_free((*context)->ctx); /* channels keep a reference */
        free((*context)->certificate);
        free((*context)->key);
        free((*context)->authority);
        free(*context);
        *context = NULL;
    }
}

int sl_tcp_tls_reload(const char *certificate, const char *key, const char *authority)
{
    SSL_CTX *ctx;
    const int err = load(
        &(struct sl_transport_tls){.certificate = certificate, .key = key, .authority = authority},
        &ctx);
    if (err == 0) {
        SSL_CTX_free(ctx);
        sl_cell_add(&reloads, 1);
    }
    return err;
}

/* Reads the files again after a reload, which has found them good; keeps the old ones otherwise. */
static void tls_context_refresh(struct sl_tcp_tls_context *context)
{
    SSL_CTX *ctx;
    const uint64_t newest = sl_cell_get(&reloads);
    const struct sl_transport_tls files = {
        .certificate = context->certificate, .key = context->key, .authority = context->authority};
    if (newest != context->reloads && load(&files, &ctx) == 0) {
        SSL_CTX_free(context->ctx);
        context->ctx = ctx;
    }
    context->reloads = newest;
}

static bool is_address(const char *name)
{
    struct in6_addr address;
    return inet_pton(AF_INET, name, &address) == 1 || inet_pton(AF_INET6, name, &address) == 1;
}

/* Sets the name that the certificate must have, without an IPv6 zone (fe80::1%eth0), which is
 * local. */
static bool demand(SSL *ssl, const char *host, char name[SL_LIMIT_ENDPOINT_BYTES])
{
    X509_VERIFY_PARAM *param = SSL_get0_param(ssl);
    snprintf(name, SL_LIMIT_ENDPOINT_BYTES, "%.*s", (int)strcspn(host, "%"), host);
    if (is_address(name)) {
        return X509_VERIFY_PARAM_set1_ip_asc(param, name) == 1;
    }
    X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS |
                                               X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
    return X509_VERIFY_PARAM_set1_host(param, name, 0) == 1 &&
           SSL_set_tlsext_host_name(ssl, name) == 1;
}

SSL *sl_tcp_tls_context_new(struct sl_tcp_tls_context *context, const char *host,
                            char name[SL_LIMIT_ENDPOINT_BYTES])
{
    tls_context_refresh(context);
    SSL *ssl = SSL_new(context->ctx);
    name[0] = '\0';
    if (ssl == NULL) {
        return NULL;
    }
    if (host == NULL) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_set_connect_state(ssl);
    if (!demand(ssl, context->peer_name[0] != '\0' ? context->peer_name : host, name)) {
        SSL_free(ssl);
        return NULL;
    }
    return ssl;
}
