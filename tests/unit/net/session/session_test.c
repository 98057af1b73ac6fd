#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/net/session/session_fixture.h"

SESSION_CASE(session_open__greets_and_is_welcomed, SL_MESSAGE_PURPOSE_DATA)
{
    assert_null(sl_session_conn(fixture->session));
    session_fixture_greet(fixture);
    assert_int_equal(fixture->last.hello.protocol_version, SL_FRAME_PROTOCOL_VERSION);
    assert_int_equal(fixture->last.hello.task_index, 7);
    assert_int_equal(fixture->last.hello.shard, 1);
    assert_non_null(strstr(fixture->last.hello.software, "starling"));
    assert_int_equal(fixture->welcome.shard, 3);
    assert_int_equal(fixture->welcome.credit_bytes, 1000);
}

SESSION_CASE(session_open__tries_again_when_closed_before_the_welcome, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    sl_transport_disconnect(fixture->accepted);
    fixture->received_count = 0;
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
    session_fixture_until(fixture, session_fixture_has_received);
    assert_int_equal(fixture->accepted_count, 2);
    session_fixture_send_welcome(fixture, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(fixture, session_fixture_is_welcomed);
}

SESSION_CASE(session_open__ends_at_the_start_deadline, SL_MESSAGE_PURPOSE_CONTROL)
{
    uint64_t before_ns = fixture->pair.now_ns;
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_true(fixture->pair.now_ns - before_ns >= START_TIMEOUT_NS);
    assert_int_equal(fixture->closed_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture->closed_reason, "ps/1 shard 1"));
    assert_non_null(strstr(fixture->closed_reason, "tcp://127.0.0.1:4000"));
    assert_non_null(strstr(fixture->closed_reason, "refused"));
}

SESSION_CASE(session_open__ends_when_no_welcome_comes, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture->closed_reason, "was not welcomed by ps/1 shard 1"));
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
}

SESSION_CASE(session_open__says_why_it_was_refused, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    session_fixture_send_error(fixture, 0, SL_ERR_EXISTS, "worker/7 is there already");
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_EXISTS);
    assert_non_null(strstr(fixture->closed_reason, "worker/7 is there already"));
    for (int i = 0; i < 3000; i++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture->accepted_count, 1);
    assert_int_equal(fixture->closed_count, 1);
}

SESSION_CASE(session_open__names_both_versions, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    session_fixture_send_welcome(fixture, 9);
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_VERSION);
    assert_non_null(strstr(fixture->closed_reason, "version 9 as test 1"));
    assert_non_null(strstr(fixture->closed_reason, "version 3"));
}

/* A frame header of another version, as the next version of a ps would send it. */
SESSION_CASE(session_open__names_the_version_of_another_frame, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_listen_now(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    static uint8_t header[SL_FRAME_HEADER_BYTES] = {0, 0, 0, 0, 'L', 'S', 12, 200};
    struct sl_transport_frame frame = {.head = header, .head_bytes = sizeof header};
    while (sl_transport_send_burst(fixture->accepted, &frame, 1) == 0) {
    }
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->closed_err, SL_ERR_VERSION);
    assert_non_null(strstr(fixture->closed_reason, "version 12, this program version 3"));
}

SL_CASE(session_open__ends_on_frames_out_of_place)
{
    static const struct {
        struct sl_frame frame;
        const char *payload;
    } cases[] = {
        {{.type = SL_FRAME_CREDIT}, NULL},
        {{.type = SL_FRAME_REQUEST, .request_id = 1}, NULL},
        {{.type = SL_FRAME_CONTROL, .payload_bytes = 3}, "abc"},
        {{.type = SL_FRAME_CONTROL}, NULL},
        {{.type = SL_FRAME_CONTROL, .payload_bytes = 2}, "\x72"}, /* Goodbye */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct session_fixture fixture;
        session_fixture_setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
        session_fixture_listen_now(&fixture);
        session_fixture_until(&fixture, session_fixture_has_received);
        session_fixture_send_frame(&fixture, cases[i].frame, cases[i].payload);
        session_fixture_until(&fixture, session_fixture_is_closed);
        assert_int_equal(fixture.closed_err, SL_ERR_PROTOCOL);
        session_fixture_teardown(&fixture);
    }
}

SL_CASE(session_request__is_answered)
{
    struct session_fixture fixture;
    session_fixture_setup(&fixture, SL_MESSAGE_PURPOSE_DATA);
    session_fixture_greet(&fixture);
    session_fixture_ask(&fixture);
    session_fixture_until(&fixture, session_fixture_has_received);
    assert_int_equal(fixture.last.kind, SL_MESSAGE_TABLE_OPEN);
    /* Neither is an answer to it. */
    struct sl_message waiting = {.kind = SL_MESSAGE_WAITING,
                                 .id = fixture.last.id,
                                 .waiting = {.missing = {"ps/1", "worker/3"}, .missing_count = 2}};
    session_fixture_send_message(&fixture, &waiting);
    struct sl_message opened = {
        .kind = SL_MESSAGE_TABLE_OPENED, .id = fixture.last.id + 5, .table_id = 1};
    session_fixture_send_message(&fixture, &opened);
    opened.id = fixture.last.id;
    opened.table_id = 42;
    session_fixture_send_message(&fixture, &opened);
    session_fixture_until(&fixture, session_fixture_is_answered);
    assert_int_equal(fixture.answer_err, SL_OK);
    assert_int_equal(fixture.answer_table_id, 42);
    session_fixture_teardown(&fixture);
    assert_int_equal(fixture.answer_count, 1);
}

SESSION_CASE(session_request__refuses_an_answer_of_another_kind, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_greet(fixture);
    session_fixture_ask(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    session_fixture_send_message(
        fixture, &(struct sl_message){.kind = SL_MESSAGE_BARRIER_DONE, .id = fixture->last.id});
    session_fixture_until(fixture, session_fixture_is_answered);
    assert_int_equal(fixture->answer_err, SL_ERR_PROTOCOL);
}

SESSION_CASE(session_request__has_a_deadline, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_greet(fixture);
    session_fixture_ask(fixture);
    session_fixture_until(fixture, session_fixture_is_answered);
    assert_int_equal(fixture->answer_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture->answer_reason, "ps/1 shard 1"));
    /* The answer that comes too late hurts nobody. */
    session_fixture_send_message(
        fixture, &(struct sl_message){.kind = SL_MESSAGE_TABLE_OPENED, .id = fixture->last.id});
    for (int i = 0; i < 100; i++) {
        sl_stepped_pair_turn(&fixture->pair, SL_CLOCK_NS_PER_MS);
    }
    assert_int_equal(fixture->answer_count, 1);
    assert_int_equal(fixture->closed_count, 0);
}

SESSION_CASE(session_request__deadline_names_whom_the_peer_waits_for, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_greet(fixture);
    session_fixture_ask(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    struct sl_message message = {.kind = SL_MESSAGE_WAITING, .id = fixture->last.id};
    message.waiting.missing_count = 2;
    memcpy(message.waiting.missing[0], "ps/1", sizeof "ps/1");
    memcpy(message.waiting.missing[1], "worker/3", sizeof "worker/3");
    session_fixture_send_message(fixture, &message);
    session_fixture_until(fixture, session_fixture_is_answered);
    assert_int_equal(fixture->answer_err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture->answer_reason, "ps/1, worker/3"));
}

SESSION_CASE(session_request__is_answered_when_the_connection_ends, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_greet(fixture);
    session_fixture_ask(fixture);
    session_fixture_ask(fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    sl_transport_disconnect(fixture->accepted);
    session_fixture_until(fixture, session_fixture_is_closed);
    assert_int_equal(fixture->answer_count, 2);
    assert_int_equal(fixture->answer_err, SL_ERR_CLOSED);
    assert_int_equal(fixture->closed_err, SL_ERR_CLOSED);
    assert_null(sl_session_conn(fixture->session));
}

SL_CASE(session_close__may_be_called_from_every_event)
{
    for (int when = 0; when < 4; when++) {
        struct session_fixture fixture;
        session_fixture_setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
        if (when == 0) {
            fixture.close_when_told = true;
            session_fixture_greet(&fixture);
        } else if (when == 1) {
            fixture.close_when_told = true;
            session_fixture_until(&fixture, session_fixture_is_closed);
        } else {
            session_fixture_greet(&fixture);
            session_fixture_ask(&fixture);
            session_fixture_ask(&fixture);
            session_fixture_until(&fixture, session_fixture_has_received);
            fixture.close_when_told = true;
            if (when == 2) {
                session_fixture_until(&fixture, session_fixture_is_answered); /* the deadline */
            } else {
                sl_transport_disconnect(fixture.accepted);
                session_fixture_until(&fixture, session_fixture_is_answered);
            }
            assert_int_equal(fixture.answer_count, 2);
            assert_int_equal(fixture.closed_count, 0);
        }
        assert_null(fixture.session);
        session_fixture_teardown(&fixture);
    }
}

SESSION_CASE(session_close__says_goodbye, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_greet(fixture);
    session_fixture_ask(fixture);
    sl_session_close(&fixture->session);
    assert_null(fixture->session);
    assert_int_equal(fixture->answer_err, SL_ERR_CANCELLED);
    session_fixture_until(fixture, session_fixture_is_acceptor_closed);
    assert_int_equal(fixture->last.kind, SL_MESSAGE_GOODBYE);
    assert_int_equal(fixture->closed_count, 0);
}

SL_CASE(session_close__works_at_any_moment)
{
    for (int turns = 0; turns < 40; turns++) {
        struct session_fixture fixture;
        session_fixture_setup(&fixture, SL_MESSAGE_PURPOSE_CONTROL);
        session_fixture_listen_now(&fixture);
        for (int i = 0; i < turns; i++) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
        sl_session_close(&fixture.session);
        if (turns % 2 == 0) {
            sl_stepped_pair_turn(&fixture.pair, SL_CLOCK_NS_PER_MS);
        }
        session_fixture_teardown(&fixture);
        assert_int_equal(fixture.closed_count, 0);
    }
}

SESSION_CASE(session_received__takes_long_control_messages, SL_MESSAGE_PURPOSE_CONTROL)
{
    session_fixture_greet(fixture);
    struct sl_message request = {.kind = SL_MESSAGE_STATS_GET};
    sl_session_request(fixture->session, &request, SL_CLOCK_NS_PER_S, session_fixture_answer,
                       fixture);
    session_fixture_until(fixture, session_fixture_has_received);
    struct sl_message stats = {.kind = SL_MESSAGE_STATS, .id = fixture->last.id};
    stats.stats.table_count = 1000;
    stats.stats.tables = calloc(1000, sizeof *stats.stats.tables);
    for (int i = 0; i < 1000; i++) {
        snprintf(stats.stats.tables[i].name, SL_TABLE_NAME_BYTES, "a table with a name of %d", i);
    }
    assert_true(sl_message_encoded_bytes(&stats) > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    session_fixture_send_message(fixture, &stats);
    sl_message_fini(&stats);
    session_fixture_until(fixture, session_fixture_is_answered);
    assert_int_equal(fixture->answer_err, SL_OK);
}
