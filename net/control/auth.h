/* Mutual authentication by a shared secret, in the handshake of every connection: each side proves
 * to the other that it has the secret, without showing it (docs/security.md).
 *
 *     client -> Hello       with a nonce
 *     server -> Challenge   with a nonce of its own
 *     client -> Proof
 *     server -> Proof, then Welcome or another Error; or Error REFUSED
 *
 * The client proves first: the server sends a stranger nothing that depends on the secret, so that
 * a stranger cannot test guesses at the secret without a server.
 *
 * A proof is HMAC-SHA-256 (RFC 2104, by OpenSSL), keyed with the secret, of a label that names the
 * side, both nonces, and what the hello claims, so that none can be reflected, replayed, or moved
 * to another hello. Pure but for the nonces, which come from OpenSSL's generator. Any thread. */
#ifndef SL_NET_CONTROL_AUTH_H
#define SL_NET_CONTROL_AUTH_H

#include <stdbool.h>

#include "core/secret.h"
#include "net/control/message.h"

enum sl_auth_side { SL_AUTH_CLIENT, SL_AUTH_SERVER };

/* Fresh random bytes. Errors: IO. */
int sl_auth_nonce(uint8_t nonce[SL_MESSAGE_NONCE_BYTES]);

/* The proof of `side`. The hello has its nonce (asserted), the secret is not empty (asserted).
 * Errors: NO_MEMORY. */
int sl_auth_prove(const struct sl_secret *secret, enum sl_auth_side side,
                  const struct sl_message_hello *hello,
                  const uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES],
                  uint8_t proof[SL_MESSAGE_PROOF_BYTES]);

/* Whether `proof` is the proof of `side`; in a time that does not depend on where it is wrong. */
bool sl_auth_check(const struct sl_secret *secret, enum sl_auth_side side,
                   const struct sl_message_hello *hello,
                   const uint8_t server_nonce[SL_MESSAGE_NONCE_BYTES],
                   const uint8_t proof[SL_MESSAGE_PROOF_BYTES]);

#endif
