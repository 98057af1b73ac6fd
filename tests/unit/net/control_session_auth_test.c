/* The secret, from the client's side: what a session proves, and whom it believes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/auth.h"
#include "tests/unit/net/session_fixture.h"

static const struct sl_secret secret = {.byte_count = 26, .bytes = "the secret of this cluster"};
static const struct sl_secret other_secret = {.byte_count = 26,
                                              .bytes = "the secret of that cluster"};

static void setup(struct session_fixture *fixture, const struct sl_secret *its)
{
    session_fixture_setup_as(fixture, SL_MESSAGE_PURPOSE_CONTROL, true, its);
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_HELLO);
}

/* A challenge to the hello that was heard last, by a server that has this secret. */
static struct sl_message challenge_by(const struct session_fixture *fixture,
                                      const struct sl_secret *its)
{
    struct sl_message message = {.kind = SL_MESSAGE_CHALLENGE};
    memset(message.challenge.nonce, 0x5a, SL_MESSAGE_NONCE_BYTES);
    struct sl_message_hello hello = fixture->heard[0].hello;
    hello.has_nonce = true; /* a server would refuse one without; what does the client say? */
    assert_int_equal(sl_auth_prove(its, SL_AUTH_SERVER, &hello, message.challenge.nonce,
                                   message.challenge.proof),
                     SL_OK);
    return message;
}

/* Challenges, checks the proof, welcomes. */
static void authenticate(struct session_fixture *fixture)
{
    struct sl_message_hello hello = fixture->heard[0].hello;
    assert_true(hello.has_nonce);
    struct sl_message challenge = challenge_by(fixture, &secret);
    fixture->received_count = 0;
    fixture->welcomed = false;
    session_fixture_send_message(fixture, &challenge);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_PROOF);
    assert_true(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, challenge.challenge.nonce,
                              fixture->last.proof.proof));
    fixture->received_count = 0;
    session_fixture_send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(fixture, session_fixture_is_welcomed);
}

static void assert_refuses(struct session_fixture *fixture, const char *reason)
{
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_REFUSED);
    assert_non_null(strstr(fixture->closed_reason, "ps/1 shard 1 ("));
    assert_non_null(strstr(fixture->closed_reason, reason));
    session_fixture_pass(fixture, 3000);
    assert_int_equal(fixture->accepted_count, 1); /* for good */
    assert_int_equal(fixture->welcomed_count, 0);
    session_fixture_teardown(fixture);
}

static void session_auth__proves_the_secret_to_a_peer_that_has_it(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    authenticate(&fixture);
    assert_int_equal(fixture.closed_count, 0);
    session_fixture_teardown(&fixture);
}

static void session_auth__has_a_nonce_of_its_own_on_each_connection(void **state)
{
    (void)state;
    struct session_fixture fixture;
    uint8_t nonces[4][SL_MESSAGE_NONCE_BYTES];
    setup(&fixture, &secret);
    for (size_t i = 0; i < 4; i++) {
        memcpy(nonces[i], fixture.heard[0].hello.nonce, SL_MESSAGE_NONCE_BYTES);
        for (size_t j = 0; j < i; j++) {
            assert_memory_not_equal(nonces[i], nonces[j], SL_MESSAGE_NONCE_BYTES);
        }
        authenticate(&fixture);
        session_fixture_lose(&fixture);
        fixture.received_count = 0;
        session_fixture_until(&fixture, session_fixture_has_received);
    }
    session_fixture_teardown(&fixture);
}

/* A proof that was good on the last connection is good for nothing on the next. */
static void session_auth__refuses_a_challenge_that_is_replayed(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    struct sl_message challenge = challenge_by(&fixture, &secret);
    sl_transport_disconnect(fixture.accepted);
    session_fixture_until(&fixture, session_fixture_is_acceptor_closed);
    fixture.received_count = 0;
    session_fixture_until(&fixture, session_fixture_has_received);
    session_fixture_send_message(&fixture, &challenge);
    fixture.accepted_count = 1;
    assert_refuses(&fixture, "did not prove that it has the secret");
}

static void session_auth__refuses_a_peer_with_another_secret(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    struct sl_message challenge = challenge_by(&fixture, &other_secret);
    session_fixture_send_message(&fixture, &challenge);
    assert_refuses(&fixture, "did not prove that it has the secret");
}

/* What the client itself would prove, sent back to it. */
static void session_auth__refuses_its_own_kind_of_proof(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    struct sl_message challenge = challenge_by(&fixture, &secret);
    assert_int_equal(sl_auth_prove(&secret, SL_AUTH_CLIENT, &fixture.heard[0].hello,
                                   challenge.challenge.nonce, challenge.challenge.proof),
                     SL_OK);
    session_fixture_send_message(&fixture, &challenge);
    assert_refuses(&fixture, "did not prove that it has the secret");
}

static void session_auth__refuses_a_welcome_without_a_challenge(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    session_fixture_send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
    assert_refuses(&fixture, "did not prove that it has the secret");
}

/* Also when an earlier connection of the session was proved. */
static void session_auth__asks_for_a_proof_on_each_connection(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    authenticate(&fixture);
    session_fixture_lose(&fixture);
    fixture.received_count = 0;
    session_fixture_until(&fixture, session_fixture_has_received);
    session_fixture_send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(&fixture, session_fixture_is_closed);
    assert_int_equal(fixture.closed_err, SL_ERR_REFUSED);
    assert_int_equal(fixture.welcomed_count, 1);
    session_fixture_teardown(&fixture);
}

static void session_auth__without_a_secret_says_how_to_give_one(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, NULL);
    assert_false(fixture.heard[0].hello.has_nonce);
    struct sl_message challenge = challenge_by(&fixture, &secret);
    session_fixture_send_message(&fixture, &challenge);
    assert_refuses(&fixture, "this cluster asks for a secret: --secret-file");
}

static void session_auth__an_empty_secret_is_none(void **state)
{
    (void)state;
    static const struct sl_secret none;
    struct session_fixture fixture;
    setup(&fixture, &none);
    assert_false(fixture.heard[0].hello.has_nonce);
    session_fixture_send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(&fixture, session_fixture_is_welcomed);
    session_fixture_teardown(&fixture);
}

static void session_auth__passes_the_peers_refusal_on(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, NULL);
    session_fixture_send_error(&fixture, 0, SL_ERR_REFUSED,
                               "this cluster needs a secret: the hello has no nonce");
    assert_refuses(&fixture, "this cluster needs a secret: the hello has no nonce");
}

static void session_auth__ends_on_a_second_challenge(void **state)
{
    (void)state;
    struct session_fixture fixture;
    setup(&fixture, &secret);
    struct sl_message challenge = challenge_by(&fixture, &secret);
    session_fixture_send_message(&fixture, &challenge);
    session_fixture_send_message(&fixture, &challenge);
    session_fixture_until(&fixture, session_fixture_is_closed);
    assert_int_equal(fixture.closed_err, SL_ERR_PROTOCOL);
    session_fixture_teardown(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(session_auth__proves_the_secret_to_a_peer_that_has_it),
        cmocka_unit_test(session_auth__has_a_nonce_of_its_own_on_each_connection),
        cmocka_unit_test(session_auth__refuses_a_challenge_that_is_replayed),
        cmocka_unit_test(session_auth__refuses_a_peer_with_another_secret),
        cmocka_unit_test(session_auth__refuses_its_own_kind_of_proof),
        cmocka_unit_test(session_auth__refuses_a_welcome_without_a_challenge),
        cmocka_unit_test(session_auth__asks_for_a_proof_on_each_connection),
        cmocka_unit_test(session_auth__without_a_secret_says_how_to_give_one),
        cmocka_unit_test(session_auth__an_empty_secret_is_none),
        cmocka_unit_test(session_auth__passes_the_peers_refusal_on),
        cmocka_unit_test(session_auth__ends_on_a_second_challenge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
