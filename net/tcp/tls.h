/* TLS 1.3 (RFC 8446, by OpenSSL) between memory and memory: what one connection does with bytes
 * that others receive and send. A context holds the files of a transport; a channel belongs to one
 * connection and goes with it to another reactor.
 *
 * Both sides show a certificate that leads to the authority. The side that connects also demands
 * that the certificate names the host that it connects to (an IP address or DNS name among the
 * alternative names; the subject is not looked at), or the context's peer_name instead.
 * No earlier version, no renegotiation, no resumption, no early data.
 *
 * A channel allocates when it is created and while it shakes hands. Owner reactor; a context may be
 * opened and closed by any. */
#ifndef SL_NET_TCP_TLS_H
#define SL_NET_TCP_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport.h"

#define SL_TCP_TLS_RECORD_BYTES   (16U << 10)
#define SL_TCP_TLS_RECORDS        8U          /* sealed at a time */
#define SL_TCP_TLS_OVERHEAD_BYTES 256U        /* a record's, at most */
#define SL_TCP_TLS_SPARE_BYTES    (16U << 10) /* for what TLS says of itself: handshake, alerts */
#define SL_TCP_TLS_INPUT_BYTES    (64U << 10)
#define SL_TCP_TLS_OUTPUT_BYTES                                                                    \
    (SL_TCP_TLS_RECORDS * (SL_TCP_TLS_RECORD_BYTES + SL_TCP_TLS_OVERHEAD_BYTES) +                  \
     SL_TCP_TLS_SPARE_BYTES)

/* AES-GCM is good for about 2^24.5 records under one key (RFC 8446, 5.5): a new one long before. */
#define SL_TCP_TLS_KEY_RECORDS (1U << 23)

struct sl_tcp_tls_context;

/* Reads the files. Errors: INVALID, with a log line that names the file and says what is wrong. */
int sl_tcp_tls_context_open(const struct sl_transport_tls *files, struct sl_tcp_tls_context **out);
void sl_tcp_tls_context_close(struct sl_tcp_tls_context **context);

struct ssl_st;

struct sl_tcp_tls {
    struct ssl_st *ssl;
    bool done;        /* hands are shaken */
    bool opened;      /* something was received */
    bool ended;       /* the peer has said that nothing follows */
    bool notified;    /* so have we */
    uint32_t records; /* sealed under this key */
    uint32_t key_records;
    uint32_t in_at, in_end;             /* of `in`: received, and not read by OpenSSL */
    uint32_t out_at, out_end;           /* of `out`: to be sent */
    uint32_t sealed;                    /* bytes of frames that `out` stands for */
    uint32_t plain_at, plain_end;       /* of `plain`: opened, and not asked for */
    uint32_t small_bytes;               /* of `small` */
    char name[SL_LIMIT_ENDPOINT_BYTES]; /* what the peer's certificate must name; "": anything */
    char reason[160];                   /* why it failed, to follow "closed, since " */
    uint8_t plain[SL_TCP_TLS_RECORD_BYTES];
    uint8_t small[SL_TCP_TLS_RECORD_BYTES]; /* what is to become the next record */
    uint8_t in[SL_TCP_TLS_INPUT_BYTES];
    uint8_t out[SL_TCP_TLS_OUTPUT_BYTES];
};

/* The side that connects names the host; NULL: the side that accepts. Errors: NO_MEMORY. */
int sl_tcp_tls_create(struct sl_tcp_tls_context *context, const char *host,
                      struct sl_tcp_tls **out);

/* Also of one whose context was closed. Nulls *tls. */
void sl_tcp_tls_destroy(struct sl_tcp_tls **tls);

/* Goes on with the handshake. Errors: AGAIN (more input is needed), REFUSED (see reason; what is
 * left to be sent tells the peer). */
int sl_tcp_tls_shake(struct sl_tcp_tls *tls);

/* Where the next SL_TCP_TLS_INPUT_BYTES at most are received to; after an AGAIN, or discard. */
uint8_t *sl_tcp_tls_input(struct sl_tcp_tls *tls);
void sl_tcp_tls_add_input(struct sl_tcp_tls *tls, uint32_t bytes);
void sl_tcp_tls_discard(struct sl_tcp_tls *tls);

/* Opens up to `wanted` bytes into `to`. Errors: AGAIN (more input is needed), CLOSED (the orderly
 * end), PROTOCOL (forged or damaged; see reason), REFUSED (the peer does not accept us). */
int sl_tcp_tls_read(struct sl_tcp_tls *tls, uint8_t *to, uint32_t wanted, uint32_t *out_bytes);

/* After an AGAIN: whether a part of a record is there. */
bool sl_tcp_tls_has_part(const struct sl_tcp_tls *tls);

/* How many bytes may be sealed until the next flush, with nothing waiting for one now. */
uint32_t sl_tcp_tls_room(const struct sl_tcp_tls *tls);

/* Seals; the last bytes may wait for sl_tcp_tls_flush. Errors: IO (see reason). */
int sl_tcp_tls_write(struct sl_tcp_tls *tls, const uint8_t *bytes, uint32_t byte_count);
int sl_tcp_tls_flush(struct sl_tcp_tls *tls);

/* Says that nothing follows. */
void sl_tcp_tls_notify(struct sl_tcp_tls *tls);

/* `bytes` of out at out_at were sent. */
void sl_tcp_tls_take_output(struct sl_tcp_tls *tls, uint32_t bytes);

static inline uint32_t sl_tcp_tls_output_bytes(const struct sl_tcp_tls *tls)
{
    return tls->out_end - tls->out_at;
}

/* ---- For tls.c, from tls_context.c ------------------------------------------------------------
 */

/* A new SSL of the context; sets *name to what its peer must be called, or to "". NULL without
 * memory. */
struct ssl_st *sl_tcp_tls_context_new(struct sl_tcp_tls_context *context, const char *host,
                                      char name[SL_LIMIT_ENDPOINT_BYTES]);

#endif
