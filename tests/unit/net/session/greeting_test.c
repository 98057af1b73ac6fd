#include <string.h>

#include "net/session/auth.h"
#include "net/session/greeting.h"
#include "net/wire/frame.h"
#include "tests/support/unit.h"

static const struct sl_secret SECRET = {.byte_count = 20, .bytes = "a secret of 20 bytes"};
static const struct sl_secret OTHER = {.byte_count = 20, .bytes = "A secret of 20 bytes"};

static struct sl_message hello_message(void)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_HELLO,
        .id = 7,
        .hello = {.protocol_version = SL_FRAME_PROTOCOL_VERSION, .client_id = 9, .has_nonce = true},
    };
    assert_int_equal(sl_auth_nonce(message.hello.nonce), 0);
    return message;
}

static struct sl_message challenge(struct sl_greeting *greeting)
{
    const char *why;
    struct sl_message message;
    const struct sl_message hello = hello_message();
    assert_int_equal(sl_greeting_hello(greeting, &hello), 0);
    assert_int_equal(sl_greeting_authenticate(greeting, &SECRET, NULL, &message, &why), 0);
    assert_int_equal(message.kind, SL_MESSAGE_CHALLENGE);
    assert_int_equal(message.id, 7);
    return message;
}

static struct sl_message proof_by(const struct sl_greeting *greeting,
                                  const struct sl_message *challenge,
                                  const struct sl_secret *secret, enum sl_auth_side side)
{
    struct sl_message message = {.kind = SL_MESSAGE_PROOF};
    assert_int_equal(sl_auth_prove(secret, side, &greeting->hello, challenge->challenge.nonce,
                                   message.proof.proof),
                     0);
    return message;
}

SL_CASE(greeting_hello__must_be_the_first_message)
{
    struct sl_greeting greeting = {0};
    const struct sl_message goodbye = {.kind = SL_MESSAGE_GOODBYE};
    assert_int_equal(sl_greeting_hello(&greeting, &goodbye), SL_ERR_PROTOCOL);
    const struct sl_message hello = hello_message();
    assert_int_equal(sl_greeting_hello(&greeting, &hello), 0);
    assert_int_equal(greeting.hello.client_id, 9);
}

SL_CASE(greeting_hello__refuses_another_version)
{
    struct sl_greeting greeting = {0};
    struct sl_message hello = hello_message();
    char text[SL_MESSAGE_TEXT_BYTES];
    hello.hello.protocol_version = 99;
    assert_int_equal(sl_greeting_hello(&greeting, &hello), SL_ERR_VERSION);
    sl_greeting_version_text(&greeting, "ps/3", "a client", 99, text);
    assert_non_null(strstr(text, "ps/3 (starling"));
    assert_non_null(strstr(text, "(a client) version 99"));
    memcpy(greeting.hello.software, "starling 9", sizeof "starling 9");
    sl_greeting_version_text(&greeting, "ps/3", "a client", 99, text);
    assert_non_null(strstr(text, "(starling 9) version 99"));
}

SL_CASE(greeting_authenticate__refuses_a_hello_without_a_nonce)
{
    struct sl_greeting greeting = {0};
    struct sl_message hello = hello_message(), message;
    const char *why = "";
    hello.hello.has_nonce = false;
    assert_int_equal(sl_greeting_hello(&greeting, &hello), 0);
    assert_int_equal(sl_greeting_authenticate(&greeting, &SECRET, NULL, &message, &why),
                     SL_ERR_REFUSED);
    assert_non_null(strstr(why, "needs a secret"));
}

SL_CASE(greeting_authenticate__admits_without_a_secret)
{
    static const struct sl_secret none;
    struct sl_greeting greeting = {0};
    const char *why;
    struct sl_message message;
    assert_int_equal(sl_greeting_authenticate(&greeting, &none, NULL, &message, &why), 0);
    assert_int_equal(message.kind, 0);
    assert_int_equal(sl_greeting_authenticate(&greeting, NULL, NULL, &message, &why), 0);
    assert_int_equal(message.kind, 0);
}

SL_CASE(greeting_authenticate__is_mutual)
{
    struct sl_greeting greeting = {0};
    const char *why;
    struct sl_message own;
    const struct sl_message challenged = challenge(&greeting);
    const struct sl_message proof = proof_by(&greeting, &challenged, &SECRET, SL_AUTH_CLIENT);
    assert_int_equal(sl_greeting_authenticate(&greeting, &SECRET, &proof, &own, &why), 0);
    assert_int_equal(own.kind, SL_MESSAGE_PROOF);
    assert_int_equal(own.id, 7);
    assert_true(sl_auth_check(&SECRET, SL_AUTH_SERVER, &greeting.hello, challenged.challenge.nonce,
                              own.proof.proof));
}

SL_CASE(greeting_authenticate__refuses_what_proves_nothing)
{
    struct sl_greeting greeting = {0};
    const char *why;
    struct sl_message own;
    const struct sl_message challenged = challenge(&greeting);
    struct sl_message proof = proof_by(&greeting, &challenged, &OTHER, SL_AUTH_CLIENT);
    assert_int_equal(sl_greeting_authenticate(&greeting, &SECRET, &proof, &own, &why),
                     SL_ERR_REFUSED);
    proof = proof_by(&greeting, &challenged, &SECRET, SL_AUTH_SERVER); /* reflected */
    assert_int_equal(sl_greeting_authenticate(&greeting, &SECRET, &proof, &own, &why),
                     SL_ERR_REFUSED);
    proof = proof_by(&greeting, &challenged, &SECRET, SL_AUTH_CLIENT);
    const struct sl_message later = challenge(&greeting);
    assert_memory_not_equal(later.challenge.nonce, challenged.challenge.nonce,
                            SL_MESSAGE_NONCE_BYTES);
    assert_int_equal(sl_greeting_authenticate(&greeting, &SECRET, &proof, &own, &why),
                     SL_ERR_REFUSED);
    const struct sl_message hello = hello_message();
    assert_int_equal(sl_greeting_authenticate(&greeting, &SECRET, &hello, &own, &why),
                     SL_ERR_PROTOCOL);
}

SL_CASE(greeting_welcome__answers_the_hello)
{
    const struct sl_greeting greeting = {.hello_id = 5};
    const struct sl_message welcome = sl_greeting_welcome(&greeting);
    assert_int_equal(welcome.kind, SL_MESSAGE_WELCOME);
    assert_int_equal(welcome.id, 5);
    assert_int_equal(welcome.welcome.protocol_version, SL_FRAME_PROTOCOL_VERSION);
    assert_non_null(strstr(welcome.welcome.software, "starling "));
}
