/* The secret, from the client's side: what a session proves, and whom it believes. */

#include <stdio.h>
#include <string.h>

#include "net/session/auth.h"
#include "tests/support/unit.h"
#include "tests/unit/net/session/session_fixture.h"

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

#define AUTH_CASE(name, its)                                                                       \
    SL_CASE_USING(name, struct session_fixture, fixture, setup, session_fixture_teardown, its)

static struct sl_message challenge_of(uint8_t nonce_byte)
{
    struct sl_message message = {.kind = SL_MESSAGE_CHALLENGE};
    memset(message.challenge.nonce, nonce_byte, SL_MESSAGE_NONCE_BYTES);
    return message;
}

/* The proof of a side that has this secret, for the last hello and challenge_of(nonce_byte). */
static struct sl_message proof_by(const struct session_fixture *fixture,
                                  const struct sl_secret *its, enum sl_auth_side side,
                                  uint8_t nonce_byte)
{
    struct sl_message message = {.kind = SL_MESSAGE_PROOF};
    const struct sl_message challenge = challenge_of(nonce_byte);
    assert_int_equal(sl_auth_prove(its, side, &fixture->heard[0].hello, challenge.challenge.nonce,
                                   message.proof.proof),
                     SL_OK);
    return message;
}

/* Sends challenge_of(0x5a), and checks the proof of the session. */
static void challenge(struct session_fixture *fixture)
{
    struct sl_message_hello hello = fixture->heard[0].hello;
    assert_true(hello.has_nonce);
    const struct sl_message message = challenge_of(0x5a);
    fixture->received_count = 0;
    fixture->welcomed = false;
    session_fixture_send_message(fixture, &message);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_PROOF);
    assert_true(sl_auth_check(&secret, SL_AUTH_CLIENT, &hello, message.challenge.nonce,
                              fixture->last.proof.proof));
    fixture->received_count = 0;
    fixture->heard[0].hello = hello; /* for proof_by */
}

static void prove_both(struct session_fixture *fixture)
{
    challenge(fixture);
    const struct sl_message proof = proof_by(fixture, &secret, SL_AUTH_SERVER, 0x5a);
    session_fixture_send_message(fixture, &proof);
}

static void authenticate(struct session_fixture *fixture)
{
    prove_both(fixture);
    session_fixture_send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(fixture, session_fixture_is_welcomed);
}

/* The end, at once and for good: the peer is trusted. */
static void assert_ends(struct session_fixture *fixture, const char *reason)
{
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_REFUSED);
    assert_non_null(strstr(fixture->closed_reason, "ps/1 shard 1 ("));
    assert_non_null(strstr(fixture->closed_reason, reason));
    session_fixture_pass(fixture, 3000);
    assert_int_equal(fixture->accepted_count, 1);
    assert_int_equal(fixture->welcomed_count, 0);
    session_fixture_teardown(fixture);
}

/* The connection breaks, the session goes on: up to the next hello. */
static void assert_retries(struct session_fixture *fixture, const char *last_error)
{
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
    session_fixture_pass(fixture, 10);
    assert_non_null(strstr(sl_session_last_error(fixture->session), last_error));
    assert_int_equal(fixture->closed_count, 0);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_HELLO);
    assert_non_null(strstr(sl_session_last_error(fixture->session), last_error));
}

/* Then a peer that has the secret answers at the same place. */
static void assert_is_a_last_error(struct session_fixture *fixture, const char *last_error)
{
    assert_retries(fixture, last_error);
    authenticate(fixture);
    assert_string_equal(sl_session_last_error(fixture->session), "");
    session_fixture_teardown(fixture);
}

SL_CASE(session_auth__has_a_nonce_of_its_own_on_each_connection)
{
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
SL_CASE(session_auth__refuses_a_proof_that_is_replayed)
{
    struct session_fixture fixture;
    setup(&fixture, &secret);
    challenge(&fixture);
    const struct sl_message proof = proof_by(&fixture, &secret, SL_AUTH_SERVER, 0x5a);
    sl_transport_disconnect(fixture.accepted);
    session_fixture_until(&fixture, session_fixture_is_acceptor_closed);
    fixture.received_count = 0;
    session_fixture_until(&fixture, session_fixture_has_received);
    challenge(&fixture);
    session_fixture_send_message(&fixture, &proof);
    assert_is_a_last_error(&fixture, "did not prove that it has the secret");
}

static void assert_proof_is_a_last_error(const struct sl_secret *its, enum sl_auth_side side,
                                         uint8_t nonce_byte)
{
    struct session_fixture fixture;
    setup(&fixture, &secret);
    challenge(&fixture);
    const struct sl_message proof = proof_by(&fixture, its, side, nonce_byte);
    session_fixture_send_message(&fixture, &proof);
    assert_is_a_last_error(&fixture, "did not prove that it has the secret");
}

SL_CASE(session_auth__refuses_a_peer_with_another_secret)
{
    assert_proof_is_a_last_error(&other_secret, SL_AUTH_SERVER, 0x5a);
}

/* The session's own proof, sent back to it. */
SL_CASE(session_auth__refuses_its_own_kind_of_proof)
{
    assert_proof_is_a_last_error(&secret, SL_AUTH_CLIENT, 0x5a);
}

SL_CASE(session_auth__refuses_a_proof_for_another_challenge)
{
    assert_proof_is_a_last_error(&secret, SL_AUTH_SERVER, 0x5b);
}

SL_CASE(session_auth__refuses_a_proof_before_the_challenge)
{
    struct session_fixture fixture;
    setup(&fixture, &secret);
    const struct sl_message proof = proof_by(&fixture, &secret, SL_AUTH_SERVER, 0);
    session_fixture_send_message(&fixture, &proof);
    assert_is_a_last_error(&fixture, "its proof answers no challenge");
}

/* A challenge alone proves nothing. */
SL_CASE(session_auth__refuses_a_welcome_without_a_proof)
{
    struct session_fixture fixture;
    setup(&fixture, &secret);
    challenge(&fixture);
    session_fixture_send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
    assert_is_a_last_error(&fixture, "did not prove that it has the secret");
}

/* Also when an earlier connection of the session was proved. */
AUTH_CASE(session_auth__asks_for_a_proof_on_each_connection, &secret)
{
    authenticate(fixture);
    session_fixture_lose(fixture);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_has_received);
    session_fixture_send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    assert_retries(fixture, "did not prove that it has the secret: it asks for none");
    assert_int_equal(fixture->welcomed_count, 1);
    authenticate(fixture);
    assert_int_equal(fixture->welcomed_count, 2);
}

SL_CASE(session_auth__without_a_secret_says_how_to_give_one)
{
    struct session_fixture fixture;
    setup(&fixture, NULL);
    assert_false(fixture.heard[0].hello.has_nonce);
    const struct sl_message message = challenge_of(0x5a);
    session_fixture_send_message(&fixture, &message);
    assert_ends(&fixture, "this cluster asks for a secret: --secret-file");
}

SL_CASE(session_auth__an_empty_secret_is_none)
{
    static const struct sl_secret none;
    struct session_fixture fixture;
    setup(&fixture, &none);
    assert_false(fixture.heard[0].hello.has_nonce);
    session_fixture_send_welcome(&fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(&fixture, session_fixture_is_welcomed);
    session_fixture_teardown(&fixture);
}

/* One hello is proved once: before the peer's proof another challenge is an obstacle. */
SL_CASE(session_auth__answers_one_challenge)
{
    struct session_fixture fixture;
    setup(&fixture, &secret);
    challenge(&fixture);
    const struct sl_message other = challenge_of(0x5b);
    session_fixture_send_message(&fixture, &other);
    assert_is_a_last_error(&fixture, "it sent two challenges");
}

AUTH_CASE(session_auth__ends_on_a_challenge_after_the_proof, &secret)
{
    prove_both(fixture);
    const struct sl_message other = challenge_of(0x5a);
    session_fixture_send_message(fixture, &other);
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_PROTOCOL);
}

/* What a stranger who listens at the peer's address may send instead of the handshake. */
static void send_last_error(struct session_fixture *fixture, uint32_t which)
{
    static const int errors[] = {SL_ERR_REFUSED, SL_ERR_VERSION,   SL_ERR_PROTOCOL,
                                 SL_ERR_EXISTS,  SL_ERR_INVALID,   SL_ERR_UNSUPPORTED,
                                 SL_ERR_AGAIN,   SL_ERR_NO_MEMORY, SL_ERR_CANCELLED};
    const uint32_t error_count = sizeof errors / sizeof errors[0];
    static uint8_t header[SL_FRAME_HEADER_BYTES] = {0, 0, 0, 0, 'L', 'S', 12, 200};
    static const struct sl_message messages[] = {
        {.kind = SL_MESSAGE_GOODBYE}, {.kind = SL_MESSAGE_WAITING}, {.kind = SL_MESSAGE_PROOF}};
    struct sl_transport_frame frame = {.head = header, .head_bytes = sizeof header};
    if (which < error_count) {
        session_fixture_send_error(fixture, 0, errors[which], "go away");
        return;
    }
    switch (which - error_count) {
    case 0:
        session_fixture_send_welcome(fixture, 9);
        break;
    case 1:
        session_fixture_send_frame(fixture, (struct sl_frame){.type = SL_FRAME_CREDIT}, NULL);
        break;
    case 2:
        session_fixture_send_frame(
            fixture, (struct sl_frame){.type = SL_FRAME_CONTROL, .payload_bytes = 3}, "abc");
        break;
    case 3:
        while (sl_transport_send_burst(fixture->accepted, &frame, 1) == 0) {
        }
        break;
    default:
        session_fixture_send_message(fixture, &messages[which - error_count - 4]);
    }
}
#define OBSTACLES 16

SL_CASE(session_auth__nothing_before_the_proof_ends_a_first_start)
{
    for (uint32_t which = 0; which < OBSTACLES; which++) {
        struct session_fixture fixture;
        setup(&fixture, &secret);
        send_last_error(&fixture, which);
        assert_is_a_last_error(&fixture, "");
    }
}

/* Without end, as when nobody is there; a proof on an earlier connection says nothing of this one.
 */
AUTH_CASE(session_auth__nothing_before_the_proof_ends_a_welcomed_session, &secret)
{
    authenticate(fixture);
    session_fixture_lose(fixture);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_has_received);
    for (uint32_t i = 0; i < 4 * OBSTACLES; i++) {
        send_last_error(fixture, i % OBSTACLES);
        assert_retries(fixture, "");
    }
    authenticate(fixture);
    assert_int_equal(fixture->lost_count, 1);
}

SL_CASE(session_auth__a_refusal_after_the_proof_is_final)
{
    struct session_fixture fixture;
    setup(&fixture, &secret);
    prove_both(&fixture);
    session_fixture_send_error(&fixture, 0, SL_ERR_REFUSED, "the job has ended");
    assert_ends(&fixture, "the job has ended");
}

AUTH_CASE(session_auth__the_start_deadline_names_the_last_last_error, &secret)
{
    session_fixture_send_error(fixture, 0, SL_ERR_REFUSED, "this cluster needs a secret");
    assert_retries(fixture, "this cluster needs a secret");
    session_fixture_until(fixture, session_fixture_is_closed); /* the peer says nothing more */
    assert_int_equal(fixture->closed_err, SL_ERR_REFUSED);
    assert_non_null(strstr(fixture->closed_reason, "was not welcomed by ps/1 shard 1 at tcp://"));
    assert_non_null(strstr(fixture->closed_reason, "this cluster needs a secret"));
}

static void redirect(struct session_fixture *fixture)
{
    struct sl_message message = {.kind = SL_MESSAGE_ERROR, .error = {.err = SL_ERR_AGAIN}};
    snprintf(message.error.coordinator, sizeof message.error.coordinator, "tcp://127.0.0.1:4001");
    session_fixture_send_message(fixture, &message);
}

AUTH_CASE(session_auth__follows_a_redirect_after_the_proof_only, &secret)
{
    const struct sl_endpoint other = {.scheme = SL_ENDPOINT_TCP, .port = 4001, .host = "127.0.0.1"};
    session_fixture_listen_at(fixture, fixture->pair.b.transport, &other);
    redirect(fixture);
    assert_retries(fixture, "it refuses this process");
    assert_int_equal(sl_session_endpoint(fixture->session)->port, 4000);
    prove_both(fixture);
    redirect(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(sl_session_endpoint(fixture->session)->port, 4001);
    authenticate(fixture);
}
