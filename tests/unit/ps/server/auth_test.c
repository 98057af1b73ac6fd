/* A server whose cluster has a secret. */

#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "net/session/auth.h"
#include "stepped.h"
#include "tests/support/unit.h"

static const struct sl_secret secret = {.byte_count = 20, .bytes = "a secret of 20 bytes"};
static const struct sl_secret operators = {.byte_count = 20, .bytes = "an operator's secret"};
static struct shard_request request;

static void setup(struct server_fixture *fixture)
{
    fixture->options.secret = &secret;
    fixture->options.operator_secret = &operators;
    server_fixture_start(fixture, true);
}

static struct sl_message_hello hello_of(enum sl_message_purpose purpose, uint32_t shard)
{
    struct sl_message_hello hello = {
        .protocol_version = SL_FRAME_PROTOCOL_VERSION,
        .purpose = purpose,
        .role = SL_MESSAGE_ROLE_CLIENT,
        .client_id = 77 + shard,
        .shard = shard,
        .has_nonce = true,
    };
    assert_int_equal(sl_auth_nonce(hello.nonce), 0);
    return hello;
}

static struct sl_message be_challenged(struct peer *peer, const struct sl_message_hello *hello)
{
    struct sl_message answer = peer_hello(peer, hello);
    assert_int_equal(answer.kind, SL_MESSAGE_CHALLENGE);
    return answer;
}

static void expect_refusal(struct peer **peer, const struct sl_message *answer, const char *text)
{
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, SL_ERR_REFUSED);
    assert_non_null(strstr(answer->error.text, text));
    peer_expect_end_and_close(peer);
}

#define CASE(name) SERVER_CASE(name, setup)

/* The proof of a server is not accepted from a client. */
CASE(server_auth__refuses_a_servers_proof)
{
    struct peer *peer = peer_connect(fixture);
    struct sl_message_hello hello = hello_of(SL_MESSAGE_PURPOSE_DATA, 0);
    struct sl_message challenge = be_challenged(peer, &hello);
    struct sl_message message = {.kind = SL_MESSAGE_PROOF, .id = 77};
    assert_int_equal(sl_auth_prove(&secret, SL_AUTH_SERVER, &hello, challenge.challenge.nonce,
                                   message.proof.proof),
                     0);
    peer_send_message(peer, &message);
    peer_receive_message(peer, &message);
    expect_refusal(&peer, &message, "this cluster needs a secret");
}

static struct sl_message prove(struct peer *peer, const struct sl_message_hello *hello,
                               const struct sl_secret *with)
{
    struct sl_message challenge = be_challenged(peer, hello);
    struct sl_message message = {.kind = SL_MESSAGE_PROOF, .id = 77};
    assert_int_equal(
        sl_auth_prove(with, SL_AUTH_CLIENT, hello, challenge.challenge.nonce, message.proof.proof),
        0);
    peer_send_message(peer, &message);
    peer_receive_message(peer, &message);
    return message;
}

CASE(server_auth__an_operator_proves_the_operators_secret)
{
    for (uint32_t is_operator = 0; is_operator < 2; is_operator++) {
        struct sl_message_hello hello = hello_of(SL_MESSAGE_PURPOSE_DATA, 0);
        hello.secret = is_operator ? SL_MESSAGE_SECRET_OPERATOR : SL_MESSAGE_SECRET_CLUSTER;
        struct peer *peer = peer_connect(fixture);
        struct sl_message answer = prove(peer, &hello, is_operator ? &secret : &operators);
        expect_refusal(&peer, &answer, "this cluster needs a secret");
        peer = peer_connect(fixture);
        answer = prove(peer, &hello, is_operator ? &operators : &secret);
        assert_int_equal(answer.kind, SL_MESSAGE_PROOF);
        peer_receive_message(peer, &answer);
        assert_int_equal(answer.kind, SL_MESSAGE_WELCOME);
        peer_close(&peer);
    }
}

CASE(server_auth__takes_nothing_before_the_proof)
{
    for (int what = 0; what < 4; what++) {
        struct peer *peer = peer_connect(fixture);
        struct sl_message_hello hello = hello_of(SL_MESSAGE_PURPOSE_DATA, 1);
        (void)be_challenged(peer, &hello);
        const struct sl_message messages[] = {
            {.kind = SL_MESSAGE_STATS_GET, .id = 3},
            {.kind = SL_MESSAGE_GOODBYE},
            {.kind = SL_MESSAGE_HELLO, .id = 3, .hello = hello},
        };
        if (what < 3) {
            peer_send_message(peer, &messages[what]);
        } else {
            shard_request_begin(&request, 0);
            (void)peer_send_request(peer, &request, 1000000);
        }
        assert_false(peer_receive(peer)); /* not one answer */
        peer_close(&peer);
    }
}

CASE(server_auth__is_not_there_without_a_secret)
{
    server_fixture_stop(fixture);
    *fixture = (struct server_fixture){0};
    server_fixture_start(fixture, false);
    struct peer *peer = peer_connect(fixture);
    struct sl_message_hello hello = hello_of(SL_MESSAGE_PURPOSE_DATA, 1);
    assert_int_equal(peer_hello(peer, &hello).kind, SL_MESSAGE_WELCOME);
    peer_close(&peer);
    hello.secret = SL_MESSAGE_SECRET_OPERATOR;
    peer = peer_connect(fixture);
    const struct sl_message answer = peer_hello(peer, &hello);
    expect_refusal(&peer, &answer, "this cluster has no operator's secret");
}

/* The timer of the hello goes on until the proof. */
SL_CASE(server_auth__waits_for_a_proof_in_vain)
{
    struct stepped *world = calloc(1, sizeof *world);
    struct stepped_peer *peer = calloc(1, sizeof *peer);
    assert_non_null(world);
    assert_non_null(peer);
    world->options.secret = &secret;
    stepped_start(world, 3);
    peer->world = world;
    peer->hello = hello_of(SL_MESSAGE_PURPOSE_DATA, 0);
    assert_int_equal(stepped_again(peer)->kind, SL_MESSAGE_CHALLENGE);
    stepped_pass(world, 9 * SL_CLOCK_NS_PER_S);
    assert_non_null(peer->link);
    stepped_pass(world, 2 * SL_CLOCK_NS_PER_S);
    assert_null(peer->link);
    stepped_stop(world);
    free(peer);
    free(world);
}
