/* The server's control messages: hellos, tables, goodbyes. */

#include <string.h>
#include <time.h>

#include "fixture.h"
#include "tests/support/unit.h"

static struct shard_request request;

static void setup(struct server_fixture *fixture, bool with_coordinator, bool number_late)
{
    fixture->number_late = number_late;
    server_fixture_start(fixture, with_coordinator);
}

/* A pull without keys, which belongs to every shard. */
static uint64_t send_pull(struct peer *peer, uint32_t clock)
{
    shard_request_begin(&request, clock);
    shard_request_pull(&request, 0, NULL, 0);
    return peer_send_request(peer, &request, LONG_US);
}

static struct sl_message_hello data_hello(uint32_t shard)
{
    return (struct sl_message_hello){
        .purpose = SL_MESSAGE_PURPOSE_DATA,
        .role = SL_MESSAGE_ROLE_CLIENT,
        .client_id = 12345,
        .shard = shard,
    };
}

#define CASE(name) SERVER_CASE(name, setup, true, false)

/* Until then no shard can be attached; the connection stays. */
SERVER_CASE(server_attach__needs_the_shards_number, setup, true, true)
{
    struct peer *peer = peer_connect(fixture);
    const struct sl_message_hello hello = data_hello(1);
    const struct sl_message attach = {.kind = SL_MESSAGE_ATTACH, .id = 79};
    struct sl_message answer = peer_hello(peer, &hello);
    assert_int_equal(answer.kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer.error.err, SL_ERR_AGAIN);
    server_fixture_number(fixture);
    peer_send_message(peer, &attach);
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.kind, SL_MESSAGE_WELCOME);
    assert_int_equal(answer.welcome.shard, 1);
    peer_close(&peer);
}

/* The answer is an Error with this code and this text in it, and the connection ends. */
static void expect_refusal(struct peer **peer, const struct sl_message *answer, int err,
                           const char *text)
{
    assert_int_equal(answer->kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer->error.err, err);
    assert_non_null(strstr(answer->error.text, text));
    peer_expect_end_and_close(peer);
}

SERVER_CASE(server_hello__for_control_is_refused_without_the_coordinator, setup, false, false)
{
    struct peer *peer = peer_connect(fixture);
    struct sl_message_hello hello = data_hello(0);
    hello.purpose = SL_MESSAGE_PURPOSE_CONTROL;
    struct sl_message answer = peer_hello(peer, &hello);
    expect_refusal(&peer, &answer, SL_ERR_REFUSED, "ps/0 does");
}

/* A frame header of a version that there is not; what follows it does not matter. */
static void send_other_version(struct peer *peer)
{
    uint8_t head[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&(struct sl_frame){.type = SL_FRAME_CONTROL}, head);
    head[offsetof(struct sl_frame, version)] = SL_FRAME_PROTOCOL_VERSION + 1;
    peer_send_bytes(peer, head, sizeof head);
}

CASE(server_version__of_a_member_that_changes_ends_its_membership)
{
    struct sl_message_hello hello = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL, .role = SL_MESSAGE_ROLE_WORKER, .task_index = 3};
    for (int round = 0; round < 2; round++) {
        struct peer *peer = peer_connect(fixture);
        struct sl_message answer = peer_hello(peer, &hello);
        assert_int_equal(answer.kind, SL_MESSAGE_WELCOME);
        struct sl_message barrier = {
            .kind = SL_MESSAGE_BARRIER, .id = 3, .barrier = {.name = "b", .count = 2}};
        peer_send_message(peer, &barrier);
        send_other_version(peer);
        do { /* whom the barrier waits for comes every second */
            peer_receive_message(peer, &answer);
        } while (answer.kind == SL_MESSAGE_WAITING);
        assert_int_equal(answer.kind, SL_MESSAGE_ERROR);
        assert_int_equal(answer.error.err, SL_ERR_VERSION);
        peer_expect_end_and_close(&peer);
    }
}

CASE(server_hello__must_come_first)
{
    struct peer *peer = peer_connect(fixture);
    send_pull(peer, 0);
    peer_expect_end_and_close(&peer);
    peer = peer_connect(fixture);
    struct sl_message goodbye = {.kind = SL_MESSAGE_GOODBYE};
    peer_send_message(peer, &goodbye);
    peer_expect_end_and_close(&peer);
    peer = peer_connect(fixture);
    struct sl_frame frame = {.type = SL_FRAME_CONTROL, .payload_bytes = 8};
    peer_send_frame(peer, frame, "rubbish!");
    peer_expect_end_and_close(&peer);
    peer = peer_connect(fixture);
    static const char http[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    peer_send_bytes(peer, http, sizeof http - 1);
    peer_expect_end_and_close(&peer);
}

CASE(server_table_open__of_a_bad_specification_is_answered)
{
    struct peer *peer = peer_join(fixture, NOBODY, 0);
    struct sl_message message = {
        .kind = SL_MESSAGE_TABLE_OPEN,
        .id = 6,
        .table_open.spec = {.name = "t0",
                            .kind = SL_TABLE_SPARSE,
                            .dim = SL_LIMIT_DIM + 1,
                            .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM)},
    };
    peer_send_message(peer, &message);
    struct sl_message answer;
    peer_receive_message(peer, &answer);
    assert_int_equal(answer.kind, SL_MESSAGE_ERROR);
    assert_int_equal(answer.id, 6);
    assert_int_equal(answer.error.err, SL_ERR_INVALID);
    assert_non_null(strstr(answer.error.text, "dim"));
    peer_open_table(peer, 0, SL_CONSISTENCY_ASP);
    peer_close(&peer);
}

static void post_drained(void *ctx)
{
    struct server_fixture *fixture = ctx;
    sem_post(&fixture->drained);
}

static void drain(struct server_fixture *fixture, uint32_t index)
{
    sl_server_drain(fixture->servers[index], 240 * SL_CLOCK_NS_PER_S, post_drained, fixture);
}

CASE(server_drain__answers_says_goodbye_and_closes)
{
    struct peer *peer = peer_join_table(fixture, 0, SL_CONSISTENCY_BSP);
    uint64_t parked = send_pull(peer, 1);
    uint64_t passed = send_pull(peer, 0);
    assert_int_equal(peer_receive_reply(peer, passed), 0);
    server_fixture_run_on(fixture, 0, drain);
    assert_int_equal(peer_receive_reply(peer, parked), SL_ERR_CANCELLED);
    struct sl_message message;
    peer_receive_message(peer, &message);
    assert_int_equal(message.kind, SL_MESSAGE_GOODBYE);
    assert_false(peer_receive(peer));
    peer_close(&peer);
    struct timespec end;
    (void)clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 120;
    assert_int_equal(sem_timedwait(&fixture->drained, &end), 0);
}

CASE(server_drain__refuses_newcomers)
{
    struct peer *peer = peer_connect(fixture);
    struct peer *member = peer_join(fixture, NOBODY, 0);
    server_fixture_run_on(fixture, 0, drain);
    struct sl_message message;
    peer_receive_message(member, &message);
    assert_int_equal(message.kind, SL_MESSAGE_GOODBYE);
    peer_expect_end(member);
    peer_expect_end(peer);
    peer_close(&member);
    peer_close(&peer);
    peer = peer_connect(fixture);
    peer_expect_end_and_close(&peer);
}
