/* A ps as a member: what it says and hears about checkpoints. */

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/agent/fixture.h"

#define CASE(name) SL_CASE_USING(name, struct fixture, f, fixture_setup, fixture_teardown)

static void tell(struct fixture *f, uint64_t number, uint64_t base)
{
    send_message(f, &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT,
                                         .checkpoint = {.number = number, .base = base}});
}

static void tell_complete(struct fixture *f, uint64_t number)
{
    struct sl_message_checkpoint_file files[300] = {0};
    for (uint32_t i = 0; i < 300; i++) {
        (void)snprintf(files[i].name, sizeof files[i].name, "shard-%u-of-300.slc", i);
        files[i].shard = i;
        files[i].bytes = 1000 + i;
    }
    send_message(f, &(struct sl_message){
                        .kind = SL_MESSAGE_CHECKPOINT_PUBLISH,
                        .checkpoint_publish = {
                            .number = number, .base = 4, .files = files, .file_count = 300}});
}

static void give_part(struct fixture *f, uint64_t number)
{
    struct sl_message_checkpoint_file files[] = {
        {.name = "shard-3", .shard = 3, .bytes = 10, .hash = 11, .rows = 12},
        {.name = "shard-4", .shard = 4, .bytes = 20, .hash = 21, .rows = 22},
    };
    sl_agent_checkpoint_part(f->member, number, files, 2, number == 5);
}

/* Up to where it is told the cluster again. */
static void come_back(struct fixture *f)
{
    disconnect(f);
    greet(f);
    send_cluster(f, f->register_id, 3);
}

CASE(member_checkpoint__goes_from_its_beginning_to_the_manifest)
{
    join(f);
    tell(f, 5, 4);
    until(f, &f->begun_count, 1);
    assert_int_equal(f->begun.number, 5);
    assert_int_equal(f->begun.base, 4);
    give_part(f, 5);
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.number, 5);
    assert_int_equal(f->part.err, 0);
    assert_int_equal(f->part.file_count, 2);
    assert_true(f->part.has_worker);
    assert_string_equal(f->part_files[1].name, "shard-4");
    assert_int_equal(f->part_files[1].shard, 4);
    assert_int_equal(f->part_files[1].bytes, 20);
    assert_int_equal(f->part_files[1].hash, 21);
    assert_int_equal(f->part_files[1].rows, 22);
    tell_complete(f, 5);
    until(f, &f->complete_count, 1);
    assert_int_equal(f->complete.number, 5);
    assert_int_equal(f->complete.base, 4);
    assert_int_equal(f->complete.file_count, 300);
    assert_string_equal(f->complete_files[299].name, "shard-299-of-300.slc");
    sl_agent_checkpoint_done(f->member, 5);
    until(f, &f->done_count, 1);
    assert_int_equal(f->done_number, 5);
    pass(f, 2 * LEASE_MS);
    assert_int_equal(f->completed, 0);
    send_message(f,
                 &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_DONE, .checkpoint_number = 5});
    until(f, &f->completed, 5);
    assert_int_equal(f->part_count, 1);
    assert_int_equal(f->done_count, 1);
}

CASE(member_checkpoint__is_begun_and_completed_once_however_often_it_is_told)
{
    join(f);
    tell(f, 5, 0);
    tell(f, 5, 0);
    until(f, &f->begun_count, 1);
    pass(f, 100);
    assert_int_equal(f->begun_count, 1);
    give_part(f, 5);
    until(f, &f->part_count, 1);
    tell(f, 5, 0);
    until(f, &f->part_count, 2);
    assert_int_equal(f->part.file_count, 2);
    tell_complete(f, 5);
    until(f, &f->complete_count, 1);
    tell_complete(f, 5);
    pass(f, 100);
    sl_agent_checkpoint_done(f->member, 5);
    until(f, &f->done_count, 1);
    tell_complete(f, 5);
    until(f, &f->done_count, 2);
    assert_int_equal(f->begun_count, 1);
    assert_int_equal(f->complete_count, 1);
    assert_int_equal(f->part_count, 2);
}

CASE(member_checkpoint__what_is_said_without_a_connection_goes_on_the_next)
{
    join(f);
    tell(f, 5, 0);
    until(f, &f->begun_count, 1);
    disconnect(f);
    pass(f, 10); /* it knows, and is not welcomed again yet */
    give_part(f, 5);
    greet(f);
    send_cluster(f, f->register_id, 3);
    until(f, &f->part_count, 1);
    /* Another, whose words may have been lost on the way, says them when it is told again. */
    tell_complete(f, 5);
    until(f, &f->complete_count, 1);
    sl_agent_checkpoint_done(f->member, 5);
    until(f, &f->done_count, 1);
    come_back(f);
    tell_complete(f, 5);
    until(f, &f->done_count, 2);
    assert_int_equal(f->complete_count, 1);
    assert_int_equal(f->failed_count, 0);
}

CASE(member_checkpoint__says_what_went_wrong)
{
    join(f);
    tell(f, 5, 0);
    until(f, &f->begun_count, 1);
    sl_agent_checkpoint_fail(f->member, 5, SL_ERR_IO, "No space left on device");
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.number, 5);
    assert_int_equal(f->part.err, SL_ERR_IO);
    assert_int_equal(f->part.file_count, 0);
    assert_string_equal(f->part.text, "No space left on device");
    tell_complete(f, 5); /* which cannot be, and completes nothing */
    until(f, &f->part_count, 2);
    assert_int_equal(f->part.err, SL_ERR_IO);
    assert_int_equal(f->complete_count, 0);
}

CASE(member_checkpoint__the_next_begins_in_its_middle)
{
    join(f);
    tell(f, 5, 0);
    until(f, &f->begun_count, 1);
    tell(f, 7, 0);
    until(f, &f->begun_count, 2);
    assert_int_equal(f->begun.number, 7);
    give_part(f, 5); /* nobody wants it any more */
    sl_agent_checkpoint_fail(f->member, 5, SL_ERR_IO, "nor this");
    sl_agent_checkpoint_done(f->member, 5);
    pass(f, LEASE_MS);
    assert_int_equal(f->part_count, 0);
    assert_int_equal(f->done_count, 0);
    give_part(f, 7);
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.number, 7);
}

CASE(member_checkpoint__refuses_what_has_no_place_in_their_course)
{
    join(f);
    tell_complete(f, 5);
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.number, 5);
    assert_int_equal(f->part.err, SL_ERR_NOT_FOUND);
    tell(f, 6, 0);
    until(f, &f->begun_count, 1);
    tell(f, 5, 0);
    until(f, &f->part_count, 2);
    assert_int_equal(f->part.number, 5);
    assert_int_equal(f->part.err, SL_ERR_EXISTS);
    tell_complete(f, 6); /* without its files */
    until(f, &f->part_count, 3);
    assert_int_equal(f->part.err, SL_ERR_NOT_FOUND);
    assert_int_equal(f->complete_count, 0);
    assert_int_equal(f->begun_count, 1);
}

CASE(member_checkpoint__cannot_be_made_without_a_directory)
{
    sl_agent_close(&f->member);
    f->has_no_directory = true;
    open_member(f);
    join(f);
    tell(f, 1, 0);
    until(f, &f->part_count, 1);
    assert_int_equal(f->part.err, SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(f->part.text, "directory"));
}

CASE(member_register__says_what_it_can_restore_and_learns_what_it_shall)
{
    sl_agent_close(&f->member);
    f->restore = 9;
    f->checkpoint_newest = 11;
    f->cluster_restore = 8;
    open_member(f);
    join(f);
    assert_int_equal(f->reg.restore, 9);
    assert_int_equal(f->reg.checkpoint_newest, 11);
    assert_false(f->reg.serving);
    assert_int_equal(sl_agent_restore(f->member), 8);
    tell(f, 14, 0);
    until(f, &f->begun_count, 1);
    /* It has begun: another coordinator shall not have it begin anew. */
    f->cluster_restore = 0;
    come_back(f);
    assert_int_equal(f->reg.restore, 8); /* what it has, not what it could begin from */
    assert_int_equal(f->reg.checkpoint_newest, 14);
    assert_true(f->reg.serving);
    pass(f, 100);
    assert_int_equal(sl_agent_restore(f->member), 8);
}

struct answer {
    uint32_t count;
    int err;
    uint64_t number;
    uint32_t table_id;
};

static void on_answer(void *ctx, const struct sl_message *message, int err, const char *reason)
{
    assert_non_null(reason);
    struct answer *answer = ctx;
    answer->count++;
    answer->err = err;
    if (err == 0 && message->kind == SL_MESSAGE_CHECKPOINT_DONE) {
        answer->number = message->checkpoint_number;
    } else if (err == 0) {
        answer->table_id = message->table_id;
    }
}

CASE(member_checkpoint_ask__is_answered_or_cancelled)
{
    struct answer answer = {0};
    join(f);
    sl_agent_checkpoint_ask(f->member, 2 * SL_CLOCK_NS_PER_S, on_answer, &answer);
    until(f, &f->request_count, 1);
    assert_int_equal(f->request.kind, SL_MESSAGE_CHECKPOINT_ASK);
    assert_int_equal(f->request.timeout_ms, 2000);
    send_message(f, &(struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_DONE,
                                         .id = f->request.id,
                                         .checkpoint_number = 6});
    until(f, &answer.count, 1);
    assert_int_equal(answer.err, 0);
    assert_int_equal(answer.number, 6);
    sl_agent_checkpoint_ask(f->member, 2 * SL_CLOCK_NS_PER_S, on_answer, &answer);
    until(f, &f->request_count, 2);
    /* On another connection, what is left. */
    disconnect(f);
    greet(f);
    send_cluster(f, f->register_id, 3);
    until(f, &f->request_count, 3);
    assert_true(f->request.timeout_ms > 0 && f->request.timeout_ms < 2000);
    sl_agent_leave(f->member);
    assert_int_equal(answer.count, 2);
    assert_int_equal(answer.err, SL_ERR_CANCELLED);
}

CASE(member_table_keep__makes_a_table_known_under_its_id)
{
    struct answer answer = {0};
    join(f);
    const struct sl_table_spec spec = {.name = "emb", .kind = SL_TABLE_SPARSE, .dim = 8};
    sl_agent_table_keep(f->member, 7, &spec, SL_CLOCK_NS_PER_S, on_answer, &answer);
    until(f, &f->request_count, 1);
    assert_int_equal(f->request.kind, SL_MESSAGE_TABLE_OPEN);
    assert_string_equal(f->request.table_open.spec.name, "emb");
    assert_int_equal(f->request.table_open.spec.dim, 8);
    assert_int_equal(f->request.table_open.table_id, 7);
    assert_true(f->request.table_open.keep_id);
    send_message(f, &(struct sl_message){
                        .kind = SL_MESSAGE_TABLE_OPENED, .id = f->request.id, .table_id = 7});
    until(f, &answer.count, 1);
    assert_int_equal(answer.err, 0);
    assert_int_equal(answer.table_id, 7);
}
