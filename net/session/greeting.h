/* Greeting is the accepting end of a handshake: the peer's hello and, if there is a secret, its
 * proof (net/session/auth.h). The connecting end is a session (net/session/session.h). The acceptor
 * of a new connection calls
 *
 *     sl_greeting_hello         with the first message; it may then hand the connection to the
 *                               reactor that the hello is for
 *     sl_greeting_authenticate  and, if that has made a Challenge, again with the next message
 *
 * and admits the peer: it checks the claims of the hello, sets sl_conn.is_welcome, and sends a
 * Welcome (sl_greeting_welcome). If a call fails with PROTOCOL, the acceptor closes the connection
 * without an answer; with another error, it sends an Error and closes. A connection that is not
 * authenticated SL_GREETING_TIMEOUT_NS after it was accepted is closed too. Until then the acceptor
 * keeps little memory for it. Pure, but for the random challenge. One thread at a time. */
#ifndef SL_NET_SESSION_GREETING_H
#define SL_NET_SESSION_GREETING_H

#include "core/clock.h"
#include "core/secret.h"
#include "net/session/message.h"

#define SL_GREETING_TIMEOUT_NS (10 * SL_CLOCK_NS_PER_S)

/* Zeros before the hello. */
struct sl_greeting {
    struct sl_message_hello hello;
    uint64_t hello_id; /* of the answers to the hello */
    uint8_t challenge[SL_MESSAGE_NONCE_BYTES];
};

/* Copies the hello. Errors: PROTOCOL (another message); VERSION (the hello is copied; the Error's
 * text: sl_greeting_version_text). */
int sl_greeting_hello(struct sl_greeting *greeting, const struct sl_message *message);

/* own_name: "ps/3"; peer_name: used if the hello does not name the peer's software; `version`: the
 * peer's. */
void sl_greeting_version_text(const struct sl_greeting *greeting, const char *own_name,
                              const char *peer_name, uint32_t version,
                              char text[SL_MESSAGE_TEXT_BYTES]);

/* Makes the next message to the peer. message: NULL at first, then the peer's answer to a
 * Challenge. The peer is admitted unless *answer is a Challenge: behind this side's Proof or,
 * without a secret, with answer->kind 0, which is not sent. Errors, with *why (static): REFUSED
 * (the peer has no secret, or another), PROTOCOL (the message is no Proof), IO, NO_MEMORY. */
int sl_greeting_authenticate(struct sl_greeting *greeting, const struct sl_secret *secret,
                             const struct sl_message *message, struct sl_message *answer,
                             const char **why);

/* Returns a Welcome with protocol version, software and payload_bytes_max. */
struct sl_message sl_greeting_welcome(const struct sl_greeting *greeting);

#endif
