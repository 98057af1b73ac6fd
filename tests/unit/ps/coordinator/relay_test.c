/* Messages of members to each other. */

#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

/* The client beside the scheduler or a server. */
static void join_beside(struct fixture *f, sl_coordinator_peer peer, uint32_t beside)
{
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_CLIENT,
                                           .client_id = peer,
                                           .beside = beside};
    assert_int_equal(sl_coordinator_hello(f->coordinator, peer, &hello, f->now_ns, &f->reason), 0);
}

static struct sl_message relay(uint32_t group, uint32_t rank, const char *body, uint64_t id)
{
    return (struct sl_message){.kind = SL_MESSAGE_RELAY,
                               .id = id,
                               .relay = {.group = group,
                                         .rank = rank,
                                         .head = 7,
                                         .timeout_ms = 8000,
                                         .body = (uint8_t *)(uintptr_t)body,
                                         .body_bytes = (uint32_t)strlen(body)}};
}

static struct sl_message answer(uint64_t token, int err)
{
    static uint8_t body[] = "yes";
    return (struct sl_message){
        .kind = SL_MESSAGE_RELAY_ANSWER,
        .relay = {.token = token, .head = 8, .err = err, .body = body, .body_bytes = 3}};
}

static void ask_cluster(struct fixture *f, sl_coordinator_peer peer)
{
    say(f, peer, (struct sl_message){.kind = SL_MESSAGE_REGISTER, .id = 1});
}

/* Workers as peers 1 to 3, servers as 11 and 12, the clients beside the first server and the
 * scheduler as 21 and 30; worker 0 and the clients have registered. */
static void all_join(struct fixture *f)
{
    cluster_start(f);
    workers_join(f);
    join_beside(f, 21, SL_MESSAGE_BESIDE_PS);
    join_beside(f, 30, SL_MESSAGE_BESIDE_SCHEDULER);
    ask_cluster(f, 1);
    ask_cluster(f, 21);
    ask_cluster(f, 30);
    expect_count(f, 3);
}

CASE(coordinator_relay__delivers_a_message_and_its_answer)
{
    all_join(f);
    say(f, 1, relay(SL_MESSAGE_GROUP_PS, 0, "go", 5));
    expect(f, "21#0 message 1 of 4/0: 7 \"go\"");
    say(f, 21, relay(SL_MESSAGE_GROUP_SCHEDULER, 0, "", 5));
    expect(f, "30#0 message 2 of 2/0: 7 \"\"");
    say(f, 30, relay(SL_MESSAGE_GROUP_WORKER, 0, "stop", 5));
    expect(f, "1#0 message 3 of 1/0: 7 \"stop\"");
    say(f, 21, answer(1, 0));
    expect(f, "1#5 answer 8 \"yes\"");
    say(f, 21, answer(1, 0)); /* a second time */
    say(f, 21, answer(2, 0)); /* of another's message */
    expect_nothing(f);
    say(f, 30, answer(2, SL_ERR_NO_MEMORY));
    expect_part(f, "21#5 error no memory: message: the client of the scheduler has not taken it");
    say(f, 1, answer(3, 0));
    expect(f, "30#5 answer 8 \"yes\"");
}

CASE(coordinator_relay__refuses_what_cannot_arrive)
{
    all_join(f);
    join_beside(f, 41, 0);
    say(f, 41, relay(SL_MESSAGE_GROUP_PS, 0, "go", 1));
    expect_part(f, "41#1 error invalid: message: client 0000000000000029 is no worker");
    say(f, 11, relay(SL_MESSAGE_GROUP_PS, 0, "go", 1));
    expect_part(f, "11#1 error invalid: message: ps/0 is no worker");
    say(f, 1, relay(SL_MESSAGE_GROUP_PS, 2, "go", 1));
    expect(f, "1#1 error invalid: message: the job has no ps/2");
    say(f, 1, relay(SL_MESSAGE_GROUP_SCHEDULER, 1, "go", 1));
    expect(f, "1#1 error invalid: message: the job has no scheduler/1");
    goodbye(f, 3);
    say(f, 1, relay(SL_MESSAGE_GROUP_WORKER, 2, "go", 1));
    expect(f, "1#1 error closed: message: worker/2 has left");
}

CASE(coordinator_relay__waits_for_the_receiver_in_order)
{
    all_join(f);
    say(f, 1, relay(SL_MESSAGE_GROUP_PS, 1, "a", 1)); /* it has no client yet */
    say(f, 1, relay(SL_MESSAGE_GROUP_PS, 1, "b", 2));
    join_beside(f, 22, SL_MESSAGE_BESIDE_PS + 1);
    expect_nothing(f);
    ask_cluster(f, 22);
    expect_part(f, "22#1 cluster");
    expect(f, "22#0 message 1 of 4/0: 7 \"a\"");
    expect(f, "22#0 message 2 of 4/0: 7 \"b\"");
    say(f, 22, answer(2, 0));
    expect(f, "1#2 answer 8 \"yes\"");
    /* A message that was delivered fails with the connection, one that was not waits for the next.
     */
    disconnect(f, 22);
    expect(f, "1#1 error closed: message: the client of ps/1 lost its connection, and may have "
              "handled the message");
    say(f, 1, relay(SL_MESSAGE_GROUP_PS, 1, "c", 3));
    join_beside(f, 22, SL_MESSAGE_BESIDE_PS + 1);
    ask_cluster(f, 22);
    expect_part(f, "22#1 cluster");
    expect(f, "22#0 message 3 of 4/0: 7 \"c\"");
    say(f, 22, answer(1, 0)); /* too late */
    expect_nothing(f);
    goodbye(f, 22);
    expect_part(f, "1#3 error closed: message: the client of ps/1 lost its connection");
}

CASE(coordinator_relay__fails_when_the_receiver_ends_or_the_timeout_has_passed)
{
    static const sl_coordinator_peer without_server[] = {1, 11, 21, 30, 0};
    all_join(f);
    say(f, 1, relay(SL_MESSAGE_GROUP_PS, 1, "a", 1));
    struct sl_message patient = relay(SL_MESSAGE_GROUP_PS, 1, "b", 2);
    patient.relay.timeout_ms = 60000;
    say(f, 1, patient);
    say(f, 21, relay(SL_MESSAGE_GROUP_PS, 1, "c", 1));
    disconnect(f, 21); /* its own message is dropped */
    tick_at(f, 3 * SECOND);
    expect(f, "1#1 waiting for ps/1");
    expect(f, "1#2 waiting for ps/1");
    tick_at(f, 7 * SECOND);
    expect_part(f, "1#1 error deadline: message: still waiting after 8000 ms for ps/1");
    expect(f, "1#2 waiting for ps/1");
    pass(f, 12 * SECOND, without_server);
    expect_among(f, "1#2 error closed: message: ps/1 expired: no heartbeat for 10 s");
}

CASE(coordinator_relay__bounds_what_a_member_has)
{
    all_join(f);
    for (uint32_t i = 0; i < SL_COORDINATOR_RELAYS_SENT; i++) {
        say(f, 1, relay(SL_MESSAGE_GROUP_SCHEDULER, 0, "m", 1 + i));
        if (i < SL_COORDINATOR_RELAYS_RECEIVED) {
            expect_part(f, "30#0 message");
        }
    }
    expect_nothing(f);
    say(f, 1, relay(SL_MESSAGE_GROUP_SCHEDULER, 0, "m", 9999));
    expect_part(f, "1#9999 error no memory: message: 1024 messages of worker/0");
    say(f, 30, answer(1, 0));
    expect(f, "1#1 answer 8 \"yes\"");
    expect_part(f, "30#0 message 65 of");
    disconnect(f, 1);
    ask_cluster(f, 2);
    expect_count(f, 1);
    static char body[SL_MESSAGE_RELAY_BYTES];
    memset(body, 'x', sizeof body - 1);
    for (uint32_t i = 0; i < SL_COORDINATOR_RELAYS_SENT_BYTES / sizeof body; i++) {
        say(f, 2, relay(SL_MESSAGE_GROUP_PS, 1, body, 1 + i));
    }
    expect_nothing(f);
    say(f, 2, relay(SL_MESSAGE_GROUP_PS, 1, body, 9999));
    expect_part(f, "2#9999 error no memory: message: no memory, or 4194240 bytes");
}
