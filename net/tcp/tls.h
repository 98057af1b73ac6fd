/* A TLS 1.3 channel (RFC 8446, by OpenSSL) encrypts and decrypts the bytes of one connection in
 * memory; its caller does the I/O. A context holds the certificates and key of a transport. A
 * channel migrates with its connection.
 *
 * Both sides present a certificate signed by the authority. The connecting side also requires that
 * the certificate names the host it connects to, or the context's peer_name: an IP address or DNS
 * name among the alternative names (the subject is ignored). No earlier version, renegotiation,
 * resumption or early data.
 *
 * A channel allocates when it is created and during the handshake. Owner reactor; contexts: any
 * thread. */
#ifndef SL_NET_TCP_TLS_H
#define SL_NET_TCP_TLS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/transport.h"

#define SL_TCP_TLS_RECORD_BYTES   (16U << 10)
#define SL_TCP_TLS_RECORDS        8U          /* encrypted at a time */
#define SL_TCP_TLS_OVERHEAD_BYTES 256U        /* of one record, at most */
#define SL_TCP_TLS_SPARE_BYTES    (16U << 10) /* for TLS's own messages: handshake, alerts */
#define SL_TCP_TLS_INPUT_BYTES    (64U << 10)
#define SL_TCP_TLS_OUTPUT_BYTES                                                                    \
    (SL_TCP_TLS_RECORDS * (SL_TCP_TLS_RECORD_BYTES + SL_TCP_TLS_OVERHEAD_BYTES) +                  \
     SL_TCP_TLS_SPARE_BYTES)

/* Records before a key update. AES-GCM allows about 2^24.5 records under one key (RFC 8446,
 * 5.5). */
#define SL_TCP_TLS_KEY_RECORDS (1U << 23)

struct sl_tcp_tls_context;

/* Loads the files. Errors: INVALID, with a log line that names the file and the cause. */
int sl_tcp_tls_context_open(const struct sl_transport_tls *files, struct sl_tcp_tls_context **out);
void sl_tcp_tls_context_close(struct sl_tcp_tls_context **context);

/* Lets the connections that this process begins or accepts from now on use its files as they are
 * now. Connections that exist stay as they are. The arguments: the files of all contexts. One
 * thread of the process; blocks. Errors: as above; then the old contents stay in use. */
int sl_tcp_tls_reload(const char *certificate, const char *key, const char *authority);

struct ssl_st;

enum sl_tcp_tls_state {
    SL_TCP_TLS_SHAKING, /* the handshake is not complete */
    SL_TCP_TLS_SHAKEN,
    SL_TCP_TLS_OPENED, /* data was received */
    SL_TCP_TLS_ENDED   /* the peer has sent close_notify */
};

struct sl_tcp_tls {
    struct ssl_st *ssl;
    enum sl_tcp_tls_state state;
    bool notified;    /* this side has sent close_notify */
    uint32_t records; /* encrypted under the current key */
    uint32_t key_records;
    uint32_t in_at, in_end;             /* of `in`: input that OpenSSL has not read */
    uint32_t out_at, out_end;           /* of `out`: output to send */
    uint32_t sealed;                    /* bytes of frames encrypted in `out` */
    uint32_t plain_at, plain_end;       /* of `plain`: decrypted bytes not read yet */
    uint32_t small_bytes;               /* of `small` */
    char name[SL_LIMIT_ENDPOINT_BYTES]; /* name required in the peer's certificate; "": any */
    char reason[160];                   /* why it failed, completes "closed, since " */
    uint8_t plain[SL_TCP_TLS_RECORD_BYTES];
    uint8_t small[SL_TCP_TLS_RECORD_BYTES]; /* collects the next record */
    uint8_t in[SL_TCP_TLS_INPUT_BYTES];
    uint8_t out[SL_TCP_TLS_OUTPUT_BYTES];
};

/* Creates a channel. `host`: the host to connect to; NULL: the accepting side. Errors:
 * NO_MEMORY. */
int sl_tcp_tls_create(struct sl_tcp_tls_context *context, const char *host,
                      struct sl_tcp_tls **out);

/* The context may already be closed. Nulls *tls. */
void sl_tcp_tls_destroy(struct sl_tcp_tls **tls);

/* Continues the handshake. Errors: AGAIN (needs input), REFUSED (see reason; the remaining output
 * contains the alert for the peer). */
int sl_tcp_tls_shake(struct sl_tcp_tls *tls);

/* Returns the buffer for the next SL_TCP_TLS_INPUT_BYTES of input. Only after an AGAIN, or
 * discard. */
uint8_t *sl_tcp_tls_input(struct sl_tcp_tls *tls);
void sl_tcp_tls_add_input(struct sl_tcp_tls *tls, uint32_t bytes);
void sl_tcp_tls_discard(struct sl_tcp_tls *tls);

/* Decrypts up to `wanted` bytes into `to`. Errors: AGAIN (needs input), CLOSED (close_notify),
 * PROTOCOL (forged or damaged; see reason), REFUSED (the peer rejects our certificate). */
int sl_tcp_tls_read(struct sl_tcp_tls *tls, uint8_t *to, uint32_t wanted, uint32_t *out_bytes);

/* After an AGAIN: whether part of a record has been received. */
bool sl_tcp_tls_has_part(const struct sl_tcp_tls *tls);

/* Returns how many bytes may be written until the next flush; none may be pending now. */
uint32_t sl_tcp_tls_room(const struct sl_tcp_tls *tls);

/* Encrypts; the last bytes may stay pending until sl_tcp_tls_flush. Errors: IO (see reason). */
int sl_tcp_tls_write(struct sl_tcp_tls *tls, const uint8_t *bytes, uint32_t byte_count);
int sl_tcp_tls_flush(struct sl_tcp_tls *tls);

/* Sends close_notify. */
void sl_tcp_tls_notify(struct sl_tcp_tls *tls);

/* Removes `bytes` sent bytes from the output. */
void sl_tcp_tls_take_output(struct sl_tcp_tls *tls, uint32_t bytes);

static inline uint32_t sl_tcp_tls_output_bytes(const struct sl_tcp_tls *tls)
{
    return tls->out_end - tls->out_at;
}

/* For tls.c, from tls_context.c */

/* Creates an SSL; *name becomes the name required of the peer, or "". Returns NULL without
 * memory. */
struct ssl_st *sl_tcp_tls_context_new(struct sl_tcp_tls_context *context, const char *host,
                                      char name[SL_LIMIT_ENDPOINT_BYTES]);

#endif
