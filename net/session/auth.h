/* Mutual authentication proves that client and server have the same secret, without sending it
 * (docs/security.md). It is part of the handshake of every connection:
 *
 *     client -> Hello       with a nonce
 *     server -> Challenge   with a nonce of its own
 *     client -> Proof
 *     server -> Proof, then Welcome or another Error; or Error REFUSED
 *
 * The client proves first. Before that the server sends nothing that depends on the secret, so an
 * outsider cannot test guesses offline.
 *
 * A proof is an HMAC-SHA-256 (RFC 2104, by OpenSSL), keyed with the secret, of a label that names
 * the side, both nonces, and the claims of the hello. So a proof cannot be reflected, replayed, or
 * used with another hello. Any thread; pure except for the nonces, which OpenSSL generates. */
#ifndef SL_NET_SESSION_AUTH_H
#define SL_NET_SESSION_AUTH_H

#include <stdbool.h>

#include "core/secret.h"
#include "net/session/message.h"

/* Whether peers must prove a secret. NULL, or no bytes: there is none. */
static inline bool sl_auth_is_required(const struct sl_secret *secret)
{
    return secret != NULL && secret->byte_count > 0;
}

enum sl_auth_side { SL_AUTH_CLIENT, SL_AUTH_SERVER };

/* Fills `nonce` with random bytes. Errors: IO. */
int sl_auth_nonce(uint8_t nonce[SL_MESSAGE_NONCE_BYTES]);

/* Computes the proof of `side`. The hello must have a nonce, the secret must not be empty (both
 * asserted). Errors: NO_MEMORY. */
int sl_auth_prove(const struct sl_secret *secret, enum sl_auth_side side,
                  const struct sl_message_hello *hello,
                  const uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES],
                  uint8_t proof[SL_MESSAGE_PROOF_BYTES]);

/* Checks `proof` against the proof of `side`, in constant time. */
bool sl_auth_check(const struct sl_secret *secret, enum sl_auth_side side,
                   const struct sl_message_hello *hello,
                   const uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES],
                   const uint8_t proof[SL_MESSAGE_PROOF_BYTES]);

#endif
