/* Reports of members: the coordinator passes them on within limits of length and rate. */

#include "net/session/report.h"
#include "tests/unit/ps/coordinator/fixture.h"

#define MS          (SECOND / 1000)
#define REPORTS_MAX 2000 /* accepted in a second */

struct inbox {
    struct sl_coordinator *coordinator;
    struct sl_coordinator_report_cells cells;
    uint32_t count; /* reports that came through */
    uint32_t last_task, last_bytes;
    enum sl_message_role last_role;
    uint32_t room;    /* it takes so many more */
    uint32_t answers; /* messages that the coordinator sent */
};

static bool on_report(void *ctx, const struct sl_message_hello *member,
                      const struct sl_message_report *report)
{
    struct inbox *inbox = ctx;
    if (inbox->room == 0) {
        return false;
    }
    inbox->room--;
    inbox->count++;
    inbox->last_role = member->role;
    inbox->last_task = member->task_index;
    inbox->last_bytes = report->byte_count;
    return true;
}

static void on_answer(void *ctx, sl_coordinator_peer peer, const struct sl_message *message)
{
    ((struct inbox *)ctx)->answers++;
}

static void set_up(struct inbox *inbox)
{
    *inbox = (struct inbox){.room = UINT32_MAX};
    const struct sl_coordinator_options options = {
        .ps_count = 1,
        .send = on_answer,
        .report = on_report,
        .report_cells = &inbox->cells,
        .http = "127.0.0.1:9480",
        .ctx = inbox,
    };
    assert_int_equal(sl_coordinator_create(&options, &inbox->coordinator), 0);
}

static void tear_down(struct inbox *inbox)
{
    sl_coordinator_destroy(&inbox->coordinator);
}

#define REPORT_CASE(name) SL_CASE_USING(name, struct inbox, fixture, set_up, tear_down)

static void join(struct inbox *inbox, sl_coordinator_peer peer, enum sl_message_role role,
                 uint32_t task)
{
    struct sl_reason reason;
    const struct sl_message_hello said = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL, .role = role, .task_index = task, .client_id = peer};
    assert_int_equal(sl_coordinator_hello(inbox->coordinator, peer, &said, 1, &reason), 0);
}

static void report(struct inbox *inbox, sl_coordinator_peer peer, uint32_t bytes, uint64_t now_ns)
{
    static uint8_t content[SL_REPORT_BYTES_MAX + 1];
    const struct sl_message message = {.kind = SL_MESSAGE_REPORT,
                                       .report = {.bytes = content, .byte_count = bytes}};
    sl_coordinator_message(inbox->coordinator, peer, &message, now_ns);
}

REPORT_CASE(coordinator_welcome__asks_for_reports_and_names_the_http_server)
{
    struct sl_message_welcome welcome = {0};
    sl_coordinator_welcome(fixture->coordinator, &welcome);
    assert_true(welcome.wants_reports);
    assert_string_equal(welcome.http, "127.0.0.1:9480");
    assert_int_equal(welcome.lease_ms, 10000);
}

REPORT_CASE(coordinator_report__passes_one_on_with_its_member)
{
    join(fixture, 7, SL_MESSAGE_ROLE_WORKER, 3);
    report(fixture, 7, 100, SECOND);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(fixture->last_role, SL_MESSAGE_ROLE_WORKER);
    assert_int_equal(fixture->last_task, 3);
    assert_int_equal(fixture->last_bytes, 100);
    assert_int_equal(fixture->answers, 0);
    report(fixture, 8, 100, SECOND); /* no member */
    assert_int_equal(fixture->count, 1);
}

REPORT_CASE(coordinator_report__drops_what_is_longer_than_the_member_may_send)
{
    join(fixture, 1, SL_MESSAGE_ROLE_PS, 0);
    join(fixture, 2, SL_MESSAGE_ROLE_WORKER, 0);
    report(fixture, 1, SL_REPORT_BYTES_MAX + 1, SECOND);
    report(fixture, 2, SL_REPORT_BASE_BYTES + 1, SECOND);
    assert_int_equal(fixture->count, 0);
    assert_int_equal(sl_cell_get(&fixture->cells.too_long), 2);
    report(fixture, 1, SL_REPORT_BYTES_MAX, SECOND);
    report(fixture, 2, SL_REPORT_BASE_BYTES, SECOND);
    assert_int_equal(fixture->count, 2);
    assert_int_equal(sl_cell_get(&fixture->cells.received), 4);
    assert_int_equal(fixture->answers, 0);
}

REPORT_CASE(coordinator_report__takes_two_of_a_member_in_half_a_second)
{
    join(fixture, 1, SL_MESSAGE_ROLE_PS, 0);
    for (uint32_t i = 0; i < 100; i++) {
        report(fixture, 1, 10, SECOND + i * 10 * MS); /* of one second */
    }
    assert_int_equal(fixture->count, 4);
    assert_int_equal(sl_cell_get(&fixture->cells.too_frequent), 96);
}

REPORT_CASE(coordinator_report__bounds_the_rate_of_all_members)
{
    for (uint32_t i = 0; i < REPORTS_MAX + 5; i++) {
        join(fixture, 1 + i, SL_MESSAGE_ROLE_WORKER, i);
    }
    for (uint32_t i = 0; i < REPORTS_MAX + 5; i++) {
        report(fixture, 1 + i, 10, SECOND + i);
    }
    assert_int_equal(fixture->count, REPORTS_MAX);
    assert_int_equal(sl_cell_get(&fixture->cells.too_frequent), 5);
    report(fixture, 1 + REPORTS_MAX, 10, 2 * SECOND);
    assert_int_equal(fixture->count, REPORTS_MAX + 1);
}

REPORT_CASE(coordinator_report__counts_those_for_which_there_is_no_room)
{
    join(fixture, 1, SL_MESSAGE_ROLE_PS, 0);
    fixture->room = 1;
    report(fixture, 1, 10, SECOND);
    report(fixture, 1, 10, 2 * SECOND);
    assert_int_equal(fixture->count, 1);
    assert_int_equal(sl_cell_get(&fixture->cells.no_room), 1);
}

CASE(coordinator_report__is_ignored_without_a_reader)
{
    struct sl_message_welcome welcome = {0};
    sl_coordinator_welcome(f->coordinator, &welcome);
    assert_false(welcome.wants_reports);
    assert_string_equal(welcome.http, "");
    assert_int_equal(hello(f, 7, SL_MESSAGE_ROLE_WORKER, 0), 0);
    say(f, 7, (struct sl_message){.kind = SL_MESSAGE_REPORT});
    expect_nothing(f);
}
