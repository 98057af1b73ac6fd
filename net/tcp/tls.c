#include "net/tcp/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

/* Reads of at least this size decrypt directly into the caller's memory; smaller ones copy from a
 * decrypted record. */
#define DIRECT_BYTES (SL_TCP_TLS_RECORD_BYTES / 2)

/* OpenSSL I/O */

static int bio_read(BIO *bio, char *to, int wanted)
{
    struct sl_tcp_tls *tls = BIO_get_data(bio);
    uint32_t there = tls->in_end - tls->in_at;
    BIO_clear_retry_flags(bio);
    if (there == 0 || wanted <= 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    uint32_t bytes = there < (uint32_t)wanted ? there : (uint32_t)wanted;
    memcpy(to, tls->in + tls->in_at, bytes);
    tls->in_at += bytes;
    return (int)bytes;
}

/* Full only if the peer triggers more TLS messages than it reads. */
static int bio_write(BIO *bio, const char *from, int count)
{
    struct sl_tcp_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (count <= 0 || (uint32_t)count > SL_TCP_TLS_OUTPUT_BYTES - tls->out_end) {
        BIO_set_retry_write(bio);
        return -1;
    }
    memcpy(tls->out + tls->out_end, from, (size_t)count);
    tls->out_end += (uint32_t)count;
    return count;
}

static long bio_control(BIO *bio, int command, long number, void *pointer)
{
    return command == BIO_CTRL_FLUSH;
}

/* One per process, never freed: a channel may outlive its context. */
static BIO_METHOD *method;
static CRYPTO_ONCE method_once = CRYPTO_ONCE_STATIC_INIT;

static void make_method(void)
{
    method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "starling");
    if (method != NULL) {
        BIO_meth_set_read(method, bio_read);
        BIO_meth_set_write(method, bio_write);
        BIO_meth_set_ctrl(method, bio_control);
    }
}

static bool attach(struct sl_tcp_tls *tls)
{
    if (CRYPTO_THREAD_run_once(&method_once, make_method) != 1 || method == NULL) {
        return false;
    }
    BIO *bio = BIO_new(method);
    if (bio == NULL) {
        return false;
    }
    BIO_set_data(bio, tls);
    BIO_set_init(bio, 1);
    SSL_set_bio(tls->ssl, bio, bio); /* one reference, since both are the same */
    return true;
}

/* Lifetime */

/* The buffers are not cleared, so that unused memory is never touched. */
int sl_tcp_tls_create(struct sl_tcp_tls_context *context, const char *host, struct sl_tcp_tls **out)
{
    struct sl_tcp_tls *tls = malloc(sizeof *tls);
    if (tls == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    memset(tls, 0, offsetof(struct sl_tcp_tls, plain));
    tls->key_records = SL_TCP_TLS_KEY_RECORDS;
    tls->ssl = sl_tcp_tls_context_new(context, host, tls->name);
    if (tls->ssl == NULL || !attach(tls)) {
        sl_tcp_tls_destroy(&tls);
        return SL_ERR_NO_MEMORY;
    }
    *out = tls;
    return 0;
}

void sl_tcp_tls_destroy(struct sl_tcp_tls **tls)
{
    if (*tls != NULL) {
        SSL_free((*tls)->ssl);
        free(*tls);
        *tls = NULL;
    }
}

/* Reasons */

static const char *certificate_reason(long verdict)
{
    switch (verdict) {
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return "it is signed by an unknown authority";
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "it has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "it is not valid yet";
    default:
        return X509_verify_cert_error_string(verdict);
    }
}

static const char *failure_reason(int reason)
{
    switch (reason) {
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return "it showed no certificate";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_HTTPS_PROXY_REQUEST:
        return "it speaks no TLS";
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
        return "there is no common version: TLS 1.3 is needed";
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
        return "it wants a certificate from us";
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA:
        return "it does not know the authority that has signed our certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED:
        return "it says that our certificate has expired";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
        return "it does not accept our certificate";
    default:
        return NULL;
    }
}

static void tls_explain(struct sl_tcp_tls *tls)
{
    unsigned long code = ERR_peek_error();
    long verdict = SSL_get_verify_result(tls->ssl);
    const char *reason = failure_reason(ERR_GET_REASON(code));
    if (ERR_GET_REASON(code) != SSL_R_CERTIFICATE_VERIFY_FAILED) {
        const char *text = reason != NULL ? reason : ERR_reason_error_string(code);
        snprintf(tls->reason, sizeof tls->reason, "%s", text != NULL ? text : "TLS failed");
    } else if (verdict == X509_V_ERR_HOSTNAME_MISMATCH ||
               verdict == X509_V_ERR_IP_ADDRESS_MISMATCH) {
        snprintf(tls->reason, sizeof tls->reason, "its certificate does not name %.80s", tls->name);
    } else {
        snprintf(tls->reason, sizeof tls->reason, "its certificate is not accepted: %s",
                 certificate_reason(verdict));
    }
    ERR_clear_error();
}

/* Handshake and input */

int sl_tcp_tls_shake(struct sl_tcp_tls *tls)
{
    sl_assert(tls->state == SL_TCP_TLS_SHAKING);
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1) {
        tls->state = SL_TCP_TLS_SHAKEN;
        return 0;
    }
    if (SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ) {
        return SL_ERR_AGAIN;
    }
    tls_explain(tls);
    return SL_ERR_REFUSED;
}

uint8_t *sl_tcp_tls_input(struct sl_tcp_tls *tls)
{
    sl_assert(tls->in_at == tls->in_end);
    return tls->in;
}

void sl_tcp_tls_add_input(struct sl_tcp_tls *tls, uint32_t bytes)
{
    sl_assert(tls->in_at == tls->in_end);
    sl_assert(bytes <= SL_TCP_TLS_INPUT_BYTES);
    tls->in_at = 0;
    tls->in_end = bytes;
}

void sl_tcp_tls_discard(struct sl_tcp_tls *tls)
{
    tls->in_at = tls->in_end = 0;
}

static int open_record(struct sl_tcp_tls *tls, uint8_t *to, uint32_t wanted, uint32_t *out_bytes)
{
    size_t bytes = 0;
    ERR_clear_error();
    int result = SSL_read_ex(tls->ssl, to, wanted, &bytes);
    if (result == 1) {
        *out_bytes = (uint32_t)bytes;
        tls->state = SL_TCP_TLS_OPENED;
        return 0;
    }
    /* The client completes the handshake before the server verifies the client's certificate. */
    bool alert = ERR_GET_REASON(ERR_peek_error()) > SSL_AD_REASON_OFFSET;
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return SL_ERR_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        tls->state = SL_TCP_TLS_ENDED;
        return SL_ERR_CLOSED;
    default:
        tls_explain(tls);
        return alert && tls->state == SL_TCP_TLS_SHAKEN ? SL_ERR_REFUSED : SL_ERR_PROTOCOL;
    }
}

int sl_tcp_tls_read(struct sl_tcp_tls *tls, uint8_t *to, uint32_t wanted, uint32_t *out_bytes)
{
    if (tls->plain_at == tls->plain_end && wanted >= DIRECT_BYTES) {
        return open_record(tls, to, wanted, out_bytes);
    }
    if (tls->plain_at == tls->plain_end) {
        uint32_t opened;
        int err = open_record(tls, tls->plain, sizeof tls->plain, &opened);
        if (err != 0) {
            return err;
        }
        tls->plain_at = 0;
        tls->plain_end = opened;
    }
    uint32_t there = tls->plain_end - tls->plain_at;
    uint32_t bytes = there < wanted ? there : wanted;
    memcpy(to, tls->plain + tls->plain_at, bytes);
    tls->plain_at += bytes;
    *out_bytes = bytes;
    return 0;
}

/* SSL_has_pending ignores a record of which only the header was received. */
bool sl_tcp_tls_has_part(const struct sl_tcp_tls *tls)
{
    return SSL_has_pending(tls->ssl) == 1 || strcmp(SSL_rstate_string(tls->ssl), "RB") == 0;
}

/* Output */

static int fail_write(struct sl_tcp_tls *tls)
{
    tls_explain(tls);
    return SL_ERR_IO;
}

static int tls_seal(struct sl_tcp_tls *tls, const uint8_t *bytes, uint32_t byte_count)
{
    size_t written = 0;
    ERR_clear_error();
    if (tls->records >= tls->key_records) {
        if (SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
            return fail_write(tls);
        }
        tls->records = 0;
    }
    if (SSL_write_ex(tls->ssl, bytes, byte_count, &written) != 1) {
        return fail_write(tls);
    }
    sl_assert(written == byte_count);
    tls->records++;
    tls->sealed += byte_count;
    return 0;
}

uint32_t sl_tcp_tls_room(const struct sl_tcp_tls *tls)
{
    uint32_t used = tls->out_end + SL_TCP_TLS_SPARE_BYTES;
    uint32_t record = SL_TCP_TLS_RECORD_BYTES + SL_TCP_TLS_OVERHEAD_BYTES;
    uint32_t records =
        used < SL_TCP_TLS_OUTPUT_BYTES ? (SL_TCP_TLS_OUTPUT_BYTES - used) / record : 0;
    sl_assert(tls->small_bytes == 0);
    return records * SL_TCP_TLS_RECORD_BYTES;
}

int sl_tcp_tls_flush(struct sl_tcp_tls *tls)
{
    uint32_t bytes = tls->small_bytes;
    tls->small_bytes = 0;
    return bytes > 0 ? tls_seal(tls, tls->small, bytes) : 0;
}

/* Full records are encrypted in place; shorter data is collected, so that small frames share a
 * record. */
int sl_tcp_tls_write(struct sl_tcp_tls *tls, const uint8_t *bytes, uint32_t byte_count)
{
    while (byte_count > 0) {
        uint32_t count = SL_TCP_TLS_RECORD_BYTES - tls->small_bytes;
        int err = 0;
        count = count < byte_count ? count : byte_count;
        if (count == SL_TCP_TLS_RECORD_BYTES) {
            err = tls_seal(tls, bytes, count);
        } else {
            memcpy(tls->small + tls->small_bytes, bytes, count);
            tls->small_bytes += count;
            if (tls->small_bytes == SL_TCP_TLS_RECORD_BYTES) {
                err = sl_tcp_tls_flush(tls);
            }
        }
        if (err != 0) {
            return err;
        }
        bytes += count;
        byte_count -= count;
    }
    return 0;
}

void sl_tcp_tls_notify(struct sl_tcp_tls *tls)
{
    tls->notified = true;
    ERR_clear_error();
    (void)SSL_shutdown(tls->ssl); /* the peer's close_notify is still to come: no error */
    ERR_clear_error();
}

void sl_tcp_tls_take_output(struct sl_tcp_tls *tls, uint32_t bytes)
{
    sl_assert(bytes <= sl_tcp_tls_output_bytes(tls));
    tls->out_at += bytes;
    if (tls->out_at == tls->out_end) {
        tls->out_at = tls->out_end = 0;
    }
}
