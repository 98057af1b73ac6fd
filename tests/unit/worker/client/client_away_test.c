/* What a client does when its connection breaks and comes back: to a shard that remembers it, to
 * one that has forgotten it, or not at all. */
#include <stdio.h>

#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/worker/client/client_peer.h"
#include "worker/client/control.h"
#include "worker/client/encode.h"

#define KEYS 50
static uint64_t keys[KEYS];
static float ones[KEYS];

/* Each step has rows of its own: several are outstanding at a time. */
#define STEPS 40
static float rows[STEPS][KEYS];

static struct sl_step *begin(struct peer_world *world, uint32_t clock)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, clock, &step), 0);
    return step;
}

static struct sl_step *submit(struct sl_step *step)
{
    assert_int_equal(sl_step_submit(step, 500), 0);
    return step;
}

static struct sl_step *push(struct peer_world *world)
{
    struct sl_step *step = begin(world, 0);
    assert_int_equal(sl_step_push(step, world->table, keys, KEYS, ones), 0);
    return submit(step);
}

static struct sl_step *pull(struct peer_world *world, uint32_t i)
{
    struct sl_step *step = begin(world, 0);
    assert_int_equal(sl_step_pull(step, world->table, keys, KEYS, rows[i]), 0);
    return submit(step);
}

static struct sl_step *tick(struct peer_world *world, uint32_t clock)
{
    struct sl_step *step = begin(world, clock);
    assert_int_equal(sl_step_tick(step), 0);
    return submit(step);
}

static const struct sl_shard_conn *link_of(const struct peer_world *world)
{
    return &world->client->conns[0];
}

/* Turns until the shard has heard so much. */
static void hear(struct peer_world *world, uint32_t count)
{
    for (int turns = 0; world->heard_count < count && turns < 400; turns++) {
        peer_turn(world);
    }
    assert_int_equal(world->heard_count, count);
}

static void wait_for(struct peer_world *world, enum sl_shard_conn_state state)
{
    for (int turns = 0; link_of(world)->state != state && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
    }
    assert_int_equal(link_of(world)->state, state);
}

static void start(struct peer_world *world, int32_t task_index)
{
    peer_start_with_table(world, task_index);
    world->heard_count = 0;
}

/* Pushes and pulls that were not answered are sent again under their ids, in their order; those
 * that were never sent, and new ones, come behind. */
PEER_CASE(link__sends_again_what_was_not_answered)
{
    world->welcome.credit_requests = 8;
    start(world, -1);
    world->manner = PEER_SILENT;
    struct sl_step *steps[STEPS];
    for (uint32_t i = 0; i < 10; i++) {
        steps[i] = i % 2 == 0 ? push(world) : pull(world, i);
    }
    hear(world, 8);
    world->welcome.resumed = true;
    world->manner = PEER_CORRECT;
    peer_hang_up(world);
    steps[10] = pull(world, 10);
    for (uint32_t i = 0; i < 11; i++) {
        peer_expect(world, steps[i], 0, "");
    }
    assert_int_equal(world->heard_count, 8 + 11);
    for (uint32_t i = 0; i < 11; i++) {
        const struct peer_heard *again = &world->heard[8 + i];
        assert_int_equal(again->connection, 2);
        assert_int_equal(again->kind, 0);
        assert_int_equal(again->id, i + 1);
        assert_int_equal(again->op, i % 2 == 0 && i < 10 ? SL_REQUEST_PUSH : SL_REQUEST_PULL);
    }
}

/* Given up at its deadline: never sent again. */
PEER_CASE(link__does_not_send_again_what_was_given_up)
{
    start(world, -1);
    world->manner = PEER_SILENT;
    struct sl_step *first = push(world);
    hear(world, 1);
    peer_expect(world, first, SL_ERR_DEADLINE, "deadline of 500 ms passed");
    struct sl_step *second = push(world);
    hear(world, 2);
    world->is_deaf = true;
    peer_hang_up(world);
    struct sl_step *third = pull(world, 0);
    peer_expect(world, second, SL_ERR_DEADLINE, "passed: not connected: it closes the connection");
    peer_expect(world, third, SL_ERR_DEADLINE, "ps/0 shard 0 (tcp://127.0.0.1:");
    world->is_deaf = false;
    world->welcome.resumed = true;
    world->manner = PEER_CORRECT;
    wait_for(world, SL_SHARD_CONN_OPEN);
    peer_expect(world, push(world), 0, "");
    assert_int_equal(world->heard_count, 3);
    assert_int_equal(world->heard[2].id, 3);
}

/* It breaks again while it is being told what it forgot; the second time it says that it remembers,
 * which is of the connection in between. */
PEER_CASE(link__goes_on_restoring_after_one_more_break)
{
    start(world, -1);
    world->open_err = SL_ERR_AGAIN;
    peer_hang_up(world);
    hear(world, 1);
    struct sl_step *step = push(world);
    world->welcome.resumed = true;
    hear(world, 2);
    world->open_err = 0;
    peer_expect(world, step, 0, "");
    assert_int_equal(world->heard[0].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[1].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[1].connection, 3);
    assert_int_equal(world->heard[world->heard_count - 1].op, SL_REQUEST_PUSH);
}

PEER_CASE(link__ends_when_a_table_cannot_be_restored)
{
    start(world, -1);
    world->open_err = SL_ERR_EXISTS;
    peer_hang_up(world);
    peer_expect(world, push(world), SL_ERR_CLOSED, "cannot be opened again: not this table");
    peer_expect(world, pull(world, 0), SL_ERR_CLOSED, "cannot be opened again: not this table");
    assert_int_equal(link_of(world)->state, SL_SHARD_CONN_CLOSED);
}

PEER_CASE(link__ends_when_the_shard_is_of_another_cluster_now)
{
    start(world, -1);
    world->welcome.shard_count = 2;
    peer_hang_up(world);
    peer_expect(world, push(world), SL_ERR_CLOSED, "another shard, of another cluster");
}

/* What is queued is longer than what the shard takes from now on. */
PEER_CASE(link__fails_what_is_too_long_for_a_later_welcome)
{
    enum { MANY = 20000 };
    static uint64_t many[MANY];
    static float values[MANY];
    start(world, -1);
    world->welcome.payload_bytes_max = SL_ENCODE_PAYLOAD_BYTES_MIN;
    world->welcome.resumed = true;
    peer_hang_up(world);
    struct sl_step *steps[2], *small = pull(world, 0);
    for (uint32_t i = 0; i < 2; i++) {
        steps[i] = begin(world, 0);
        assert_int_equal(sl_step_pull(steps[i], world->table, many, MANY, values), 0);
    }
    submit(steps[0]);
    peer_expect(world, steps[0], SL_ERR_TOO_LARGE, "takes shorter messages only");
    peer_expect(world, small, 0, "");
    submit(steps[1]);
    peer_expect(world, steps[1], SL_ERR_TOO_LARGE, "takes shorter messages only");
}

/* A deadline in the middle of a transfer from the caller's memory costs the connection, no more. */
PEER_CASE(step__gives_memory_back_at_the_price_of_a_connection)
{
    start(world, -1);
    enum { LENGTH = 1 << 20 };
    static float gradients[LENGTH];
    struct sl_table dense = {.client = world->client, .id = PEER_TABLE};
    dense.spec = (struct sl_table_spec){.name = "d", .kind = SL_TABLE_DENSE, .length = LENGTH};
    struct sl_step *step = begin(world, 0);
    assert_int_equal(sl_step_dense_push(step, &dense, 0, LENGTH, gradients), 0);
    assert_int_equal(sl_step_submit(step, 2), 0);
    uint64_t before_ns = world->now_ns;
    sl_reactor_turn(world->reactors[1], world->now_ns); /* the transport takes it */
    while (!sl_step_done(step) && world->now_ns < before_ns + 2 * SL_CLOCK_NS_PER_S) {
        world->now_ns += SL_CLOCK_NS_PER_MS; /* and the ps stands still */
        sl_reactor_turn(world->reactors[1], world->now_ns);
    }
    bool done = sl_step_done(step);
    peer_expect(world, step, SL_ERR_DEADLINE, "deadline of 2 ms passed");
    assert_true(done);
    world->welcome.resumed = true;
    peer_expect(world, push(world), 0, "");
}

PEER_CASE(start__joins_where_the_shard_stands)
{
    world->welcome.counts = false;
    world->welcome.clock = 4;
    world->joined = 6; /* the others went on meanwhile */
    assert_int_equal(peer_start_client(world, 0), 0);
    assert_int_equal(sl_client_clock(world->client), 6);
    assert_int_equal(world->heard_count, 2);
    assert_int_equal(world->heard[0].clock, 4);
    assert_int_equal(world->heard[1].clock, 6);
}

/* A shard without tables lets everybody count, and knows no better when the tables come. */
PEER_CASE(start__of_one_on_top_of_the_jobs_joins_whatever_the_shard_says)
{
    world->client_joins = true;
    assert_int_equal(peer_start_client(world, 5), 0);
    assert_int_equal(sl_client_clock(world->client), 0);
    assert_int_equal(world->heard_count, 1);
    assert_int_equal(world->heard[0].kind, SL_MESSAGE_JOIN);
    world->welcome.incarnation++;
    peer_hang_up(world);
    wait_for(world, SL_SHARD_CONN_OPEN);
    assert_int_equal(world->heard_count, 2);
    assert_int_equal(world->heard[1].kind, SL_MESSAGE_JOIN);
}

PEER_CASE(start__joins_nothing_in_the_place_of_one_that_had_finished)
{
    world->welcome.counts = false;
    world->welcome.clock = UINT32_MAX;
    assert_int_equal(peer_start_client(world, 0), 0);
    assert_int_equal(sl_client_clock(world->client), UINT32_MAX);
    assert_int_equal(world->heard_count, 0);
    world->welcome.clock = 0;
    world->welcome.incarnation++;
    peer_hang_up(world);
    wait_for(world, SL_SHARD_CONN_OPEN);
    assert_int_equal(world->heard_count, 0);
}

/* A shard that began anew is told the worker's own clock before it gets any request. */
PEER_CASE(link__joins_again_with_its_own_clock)
{
    start(world, 0);
    for (uint32_t clock = 0; clock < 3; clock++) {
        peer_expect(world, tick(world, clock), 0, "");
    }
    world->heard_count = 0;
    world->welcome.incarnation++;
    peer_hang_up(world);
    peer_expect(world, tick(world, 3), 0, "");
    assert_int_equal(world->heard_count, 3);
    assert_int_equal(world->heard[0].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[1].kind, SL_MESSAGE_JOIN);
    assert_int_equal(world->heard[1].clock, 3);
    assert_int_equal(world->heard[2].op, SL_REQUEST_TICK);
}

/* The first call that the new tables answer finds the loss known, whatever the coordinator reports.
 */
PEER_CASE(link__of_a_shard_that_restarted_empty_has_lost_its_values)
{
    start(world, 0);
    assert_int_equal(sl_client_values_lost(world->client), -1);
    world->welcome.incarnation++;
    world->welcome.resumed = true;
    world->welcome.restored = true; /* from a checkpoint */
    peer_hang_up(world);
    peer_expect(world, tick(world, 0), 0, "");
    world->welcome.resumed = false;
    world->welcome.incarnation++; /* from one that does not know this client */
    peer_hang_up(world);
    peer_expect(world, tick(world, 1), 0, "");
    assert_int_equal(sl_client_values_lost(world->client), -1);
    world->welcome.restored = false;
    world->welcome.incarnation++;
    peer_hang_up(world);
    peer_expect(world, tick(world, 2), 0, "");
    assert_int_equal(sl_client_values_lost(world->client), 0);
}

/* A tick that nobody waited for any more counts all the same. */
PEER_CASE(link__counts_ticks_that_were_given_up)
{
    start(world, 0);
    world->manner = PEER_SILENT;
    peer_expect(world, tick(world, 0), SL_ERR_DEADLINE, "");
    world->welcome.resumed = true;
    world->welcome.clock = 1;
    world->manner = PEER_CORRECT;
    peer_hang_up(world);
    wait_for(world, SL_SHARD_CONN_OPEN);
    assert_int_equal(link_of(world)->clock.value, 1);
}

PEER_CASE(link__ends_when_the_others_went_on)
{
    start(world, 0);
    world->welcome.counts = false;
    world->joined = 9;
    peer_hang_up(world);
    peer_expect(world, push(world), SL_ERR_CLOSED, "the others continued without this worker");
    assert_int_equal(link_of(world)->state, SL_SHARD_CONN_CLOSED);
}

/* A worker that has finished must not hold up those of a shard that began anew. */
PEER_CASE(link__tells_a_shard_that_began_anew_that_it_has_finished)
{
    start(world, 0);
    struct sl_step *step = begin(world, 0);
    assert_int_equal(sl_step_finish(step), 0);
    peer_expect(world, submit(step), 0, "");
    world->heard_count = 0;
    world->welcome.incarnation++;
    peer_hang_up(world);
    hear(world, 2);
    assert_int_equal(world->heard[0].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[1].op, SL_REQUEST_TICK);
    assert_int_equal(world->heard[1].clock, SL_REQUEST_CLOCK_FINISHED);
    peer_expect(world, pull(world, 0), 0, "");
}

static void hang_up_control(struct peer_world *world)
{
    uint32_t registered = world->registered;
    sl_transport_disconnect(world->control);
    for (int turns = 0; world->registered == registered && turns < 1000; turns++) {
        peer_turn(world);
    }
    peer_turns(world, 50);
    assert_int_equal(world->registered, registered + 1);
}

PEER_CASE(control__registers_again)
{
    start(world, -1);
    hang_up_control(world);
    assert_int_equal(world->kept_tables, 0);
    world->control_welcome.incarnation++;
    hang_up_control(world);
    assert_int_equal(world->kept_tables, 1);
    hang_up_control(world);
    assert_int_equal(world->kept_tables, 1);
}

PEER_CASE(control__beats_several_times_a_lease)
{
    world->control_welcome.lease_ms = 400;
    start(world, -1);
    peer_turns(world, 200);
    uint32_t before = world->heartbeats;
    peer_turns(world, 400);
    assert_in_range(world->heartbeats - before, 3, 5);
    hang_up_control(world);
    before = world->heartbeats;
    peer_turns(world, 400);
    assert_in_range(world->heartbeats - before, 3, 5);
}

/* The ps is somewhere else now; no process listens there, which the error names. */
PEER_CASE(control__moves_links)
{
    start(world, -1);
    struct sl_message_ps ps = {.data_endpoint = "tcp://127.0.0.1:9", .shard_count = 1};
    struct sl_message message = {.kind = SL_MESSAGE_CLUSTER};
    struct sl_message_placement placement = {.epoch = 1};
    message.cluster = (struct sl_message_cluster){
        .ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1};
    peer_tell(world, &message);
    peer_turns(world, 50);
    peer_expect(world, push(world), 0, ""); /* what is connected stays */
    peer_hang_up(world);
    peer_expect(world, push(world), SL_ERR_DEADLINE,
                "ps/0 shard 0 (tcp://127.0.0.1:9): deadline of 500 ms passed: not connected: "
                "refused: no process listens there");
    snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", world->endpoint);
    world->welcome.resumed = true;
    peer_tell(world, &message);
    peer_expect(world, push(world), 0, "");
}

/* Nothing comes of it here but a line in the log. */
PEER_CASE(control__hears_who_is_lost)
{
    start(world, -1);
    struct sl_message message = {.kind = SL_MESSAGE_EXPIRED};
    message.expired = (struct sl_message_expired){
        .role = SL_MESSAGE_ROLE_PS, .task_index = 1, .client_id = 4, .why = "not heard for 10 s"};
    peer_tell(world, &message);
    peer_turns(world, 50);
    peer_expect(world, push(world), 0, "");
}

static void run_call(struct peer_world *world, struct sl_control_op *call)
{
    struct sl_port *port;
    assert_int_equal(sl_port_here(world->client->ports, &port), 0);
    call->io = &world->client->ios[0];
    call->deadline_ns = world->now_ns + 500 * SL_CLOCK_NS_PER_MS;
    sl_control_op_post(call, port);
    for (int turns = 0; !call->done && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        sl_port_drain(port);
    }
    assert_true(call->done);
}

PEER_CASE(control__asks_for_checkpoints)
{
    start(world, -1);
    struct sl_control_op silent = {.run = sl_control_checkpoint};
    run_call(world, &silent);
    assert_int_equal(silent.err, SL_ERR_DEADLINE);
    assert_in_range(world->checkpoint_timeout_ms, 450, 501);
    world->checkpoint_answer =
        (struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_DONE, .checkpoint_number = 77};
    struct sl_control_op good = {.run = sl_control_checkpoint};
    run_call(world, &good);
    assert_int_equal(good.err, 0);
    assert_int_equal(good.number, 77);
    world->checkpoint_answer = (struct sl_message){
        .kind = SL_MESSAGE_ERROR,
        .error = {.err = SL_ERR_IO, .text = "checkpoint 78 is aborted: ps/1: No space left"}};
    struct sl_control_op bad = {.run = sl_control_checkpoint};
    run_call(world, &bad);
    assert_int_equal(bad.err, SL_ERR_IO);
    assert_non_null(strstr(bad.text, "ps/1: No space left"));
    world->checkpoint_answer = (struct sl_message){.kind = SL_MESSAGE_BARRIER_DONE};
    struct sl_control_op odd = {.run = sl_control_checkpoint};
    run_call(world, &odd);
    assert_int_equal(odd.err, SL_ERR_PROTOCOL);
}

PEER_CASE(control__does_not_ask_an_older_coordinator_for_what_that_would_not_know)
{
    start(world, -1);
    struct sl_table_spec page[SL_MESSAGE_TABLES_MAX];
    struct sl_control_op tables = {.run = sl_control_tables, .found = page};
    run_call(world, &tables);
    assert_int_equal(tables.err, SL_ERR_VERSION);
    assert_non_null(strstr(tables.text, "it is older than this client (level 0, not 3)"));
    struct sl_control_op operation = {.run = sl_control_operate, .name = "drops a table"};
    run_call(world, &operation);
    assert_int_equal(operation.err, SL_ERR_VERSION);
    peer_expect(world, push(world), 0, "");
}

/* It knows which of them it has done: they keep their ids. */
PEER_CASE(restored__is_sent_again_what_was_under_way)
{
    start(world, -1);
    world->manner = PEER_SILENT;
    struct sl_step *sent_push = push(world), *sent_pull = pull(world, 0);
    hear(world, 2);
    world->welcome.incarnation++;
    world->welcome.resumed = world->welcome.restored = true;
    world->manner = PEER_CORRECT;
    peer_hang_up(world);
    struct sl_step *new_push = push(world);
    peer_expect(world, sent_push, 0, "");
    peer_expect(world, sent_pull, 0, "");
    peer_expect(world, new_push, 0, "");
    assert_int_equal(world->heard_count, 6);
    assert_int_equal(world->heard[2].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[3].op, SL_REQUEST_PUSH);
    assert_int_equal(world->heard[3].id, world->heard[0].id);
    assert_int_equal(world->heard[4].op, SL_REQUEST_PULL);
    assert_int_equal(world->heard[4].id, world->heard[1].id);
    assert_int_equal(world->heard[5].op, SL_REQUEST_PUSH);
    assert_true(world->heard[5].id > world->heard[4].id);
}

/* Restored from a time before this client came. */
PEER_CASE(restored__without_this_client_fails_its_writes)
{
    start(world, -1);
    world->manner = PEER_SILENT;
    struct sl_step *sent_push = push(world);
    hear(world, 1);
    world->welcome.incarnation++;
    world->welcome.restored = true;
    world->manner = PEER_CORRECT;
    peer_hang_up(world);
    peer_expect(world, sent_push, SL_ERR_CLOSED, "a checkpoint that does not know this client");
    peer_expect(world, push(world), 0, "");
}

/* Its clock is as old as the checkpoint: the worker joins ahead of it, before any request. */
PEER_CASE(restored__is_told_the_workers_own_clock)
{
    start(world, 0);
    for (uint32_t clock = 0; clock < 3; clock++) {
        peer_expect(world, tick(world, clock), 0, "");
    }
    world->heard_count = 0;
    world->welcome.incarnation++;
    world->welcome.resumed = world->welcome.restored = true;
    world->welcome.counts = true;
    world->welcome.clock = 1;
    peer_hang_up(world);
    peer_expect(world, tick(world, 3), 0, "");
    assert_int_equal(world->heard_count, 3);
    assert_int_equal(world->heard[0].kind, SL_MESSAGE_TABLE_OPEN);
    assert_int_equal(world->heard[1].kind, SL_MESSAGE_JOIN);
    assert_int_equal(world->heard[1].clock, 3);
    assert_int_equal(world->heard[2].op, SL_REQUEST_TICK);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
