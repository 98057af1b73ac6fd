#include "net/session/greeting.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/limits.h"
#include "net/session/auth.h"
#include "net/session/message_spec.h"
#include "net/wire/frame.h"

int sl_greeting_hello(struct sl_greeting *greeting, const struct sl_message *message)
{
    if (message->kind != SL_MESSAGE_HELLO) {
        return SL_ERR_PROTOCOL;
    }
    greeting->hello = message->hello;
    greeting->hello_id = message->id;
    return message->hello.protocol_version == SL_FRAME_PROTOCOL_VERSION ? 0 : SL_ERR_VERSION;
}

void sl_greeting_version_text(const struct sl_greeting *greeting, const char *own_name,
                              const char *peer_name, uint32_t version,
                              char text[SL_MESSAGE_TEXT_BYTES])
{
    const char *software = greeting->hello.software;
    (void)snprintf(text, SL_MESSAGE_TEXT_BYTES,
                   "%s (starling %s) speaks protocol version %d, its peer (%s) version %" PRIu32,
                   own_name, STARLING_VERSION, SL_FRAME_PROTOCOL_VERSION,
                   software[0] == '\0' ? peer_name : software, version);
}

static int challenge(struct sl_greeting *greeting, struct sl_message *answer, const char **why)
{
    if (!greeting->hello.has_nonce) {
        *why = "this cluster needs a secret: give the same --secret-file";
        return SL_ERR_REFUSED;
    }
    const int err = sl_auth_nonce(greeting->challenge);
    if (err != 0) {
        *why = "the accepting host has no random bytes";
        return err;
    }
    answer->kind = SL_MESSAGE_CHALLENGE;
    memcpy(answer->challenge.nonce, greeting->challenge, sizeof greeting->challenge);
    return 0;
}

static int prove(const struct sl_greeting *greeting, const struct sl_secret *secret,
                 const struct sl_message *message, struct sl_message *answer, const char **why)
{
    if (message->kind != SL_MESSAGE_PROOF) {
        *why = "it does not answer the challenge";
        return SL_ERR_PROTOCOL;
    }
    if (!sl_auth_check(secret, SL_AUTH_CLIENT, &greeting->hello, greeting->challenge,
                       message->proof.proof)) {
        *why = "this cluster needs a secret: the one that was used is another";
        return SL_ERR_REFUSED;
    }
    answer->kind = SL_MESSAGE_PROOF;
    const int err = sl_auth_prove(secret, SL_AUTH_SERVER, &greeting->hello, greeting->challenge,
                                  answer->proof.proof);
    if (err != 0) {
        *why = "the accepting host has no memory for a proof";
    }
    return err;
}

int sl_greeting_authenticate(struct sl_greeting *greeting, const struct sl_secret *secret,
                             const struct sl_message *message, struct sl_message *answer,
                             const char **why)
{
    *answer = (struct sl_message){.id = greeting->hello_id};
    return !sl_auth_is_required(secret) ? 0
           : message == NULL            ? challenge(greeting, answer, why)
                                        : prove(greeting, secret, message, answer, why);
}

struct sl_message sl_greeting_welcome(const struct sl_greeting *greeting)
{
    return (struct sl_message){
        .kind = SL_MESSAGE_WELCOME,
        .id = greeting->hello_id,
        .welcome = {.protocol_version = SL_FRAME_PROTOCOL_VERSION,
                    .payload_bytes_max = SL_LIMIT_FRAME_PAYLOAD_BYTES,
                    .knows = SL_MESSAGE_SPEC_KNOWS,
                    .software = "starling " STARLING_VERSION},
    };
}
