/* The coordinator: the numbers of checkpoints, what a job begins from, and the last one. */

#include <stdio.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/checkpoints.h"

#define PS     SL_MESSAGE_ROLE_PS
#define WORKER SL_MESSAGE_ROLE_WORKER

static const sl_coordinator_peer both_ps[] = {11, 12, 0};
static const sl_coordinator_peer everyone[] = {11, 12, 21, 0};

/* The connections 11 and 12. */
static void two_ps(struct fixture *f)
{
    assert_int_equal(hello(f, 11, PS, 0), 0);
    assert_int_equal(hello(f, 12, PS, 1), 0);
}

CASE(checkpoint__numbers_go_on_above_the_greatest_that_anyone_knows)
{
    fixture_remake(f, 2, 3);
    client_joins(f, 21);
    two_ps(f);
    register_restoring(f, 11, 1, 4, 9, false);
    register_restoring(f, 12, 1, 4, 6, false);
    f->sent_count = 0;
    ask(f, 21, 1, 0);
    expect_of_both(f, "checkpoint 10 on 0");
    part_fails(f, 11, 10, SL_ERR_IO, "x");
    expect_part(f, "checkpoint 10 is aborted");
    ask(f, 21, 2, 0);
    expect_of_both(f, "checkpoint 11 on 0"); /* a number is used once */
    make_it(f, 11);
    f->sent_count = 0;
    /* One that comes later may know a greater one. */
    goodbye(f, 12);
    assert_int_equal(hello_as(f, 12, PS, 1, 99), 0);
    register_restoring(f, 12, 1, 0, 40, false);
    f->sent_count = 0;
    ask(f, 21, 3, 0);
    expect_of_both(f, "checkpoint 41 on 0");
}

CASE(checkpoint__ends_where_numbers_do)
{
    fixture_remake(f, 2, 3);
    client_joins(f, 21);
    two_ps(f);
    register_restoring(f, 11, 1, 0, SL_LIMIT_CHECKPOINT_NUMBER - 1, false);
    register_restoring(f, 12, 1, 0, 6, false);
    f->sent_count = 0;
    ask(f, 21, 1, 0);
    f->sent_count = 0;
    part(f, 11, SL_LIMIT_CHECKPOINT_NUMBER);
    part(f, 12, SL_LIMIT_CHECKPOINT_NUMBER);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    done(f, 11, SL_LIMIT_CHECKPOINT_NUMBER);
    done(f, 12, SL_LIMIT_CHECKPOINT_NUMBER);
    expect_part(f, "21#1 made");
    expect_part(f, "21#2 error too large: number 999999999999 is taken, and numbers end there");
}

CASE(register__refuses_checkpoints_above_the_limit)
{
    two_ps(f);
    register_restoring(f, 11, 1, 0, SL_LIMIT_CHECKPOINT_NUMBER + 1, false);
    expect_part(f, "11#1 error invalid");
    register_restoring(f, 12, 1, UINT64_MAX, 0, false);
    expect_part(f, "a checkpoint's number is above the limit of 999999999999");
}

CASE(register__all_begin_from_the_newest_that_all_have)
{
    two_ps(f);
    join_worker(f, 1, 0, 1, 1);
    register_having(f, 11, 1, 7, "7 6 5 3", "");
    register_having(f, 12, 1, 8, "8 5 3 2", "");
    expect_part(f, "11#1 cluster of 3 workers from 5 not (5, 20]:");
    expect_part(f, "12#1 cluster of 3 workers from 5 not (5, 20]:");
    expect_part(f, "1#1 cluster of 3 workers from 5:");
    expect_nothing(f);
    /* The same process again, which serves by now. */
    disconnect(f, 11);
    assert_int_equal(hello_as(f, 31, PS, 0, 11), 0);
    register_restoring(f, 31, 2, 7, 7, true);
    expect_part(f, "from 5 not (5, 20]:");
    f->sent_count = 0;
}

/* Whatever it was told to begin from, and however much it has of what might have been. */
CASE(register__who_comes_later_begins_from_the_newest_of_the_job)
{
    fixture_remake(f, 2, 3);
    two_ps(f);
    register_having(f, 11, 1, 5, "8 7 5 3", "");
    register_having(f, 12, 1, 5, "8 7 5 3", "");
    f->sent_count = 0;
    goodbye(f, 12);
    assert_int_equal(hello_as(f, 32, PS, 1, 99), 0);
    register_having(f, 32, 1, 8, "8 7 5 3", "");
    expect_part(f, "32#1 cluster of 3 workers from 5 not (5, 20]:");
    f->sent_count = 0;
    goodbye(f, 32);
    client_joins(f, 21);
    assert_int_equal(hello(f, 12, PS, 1), 0);
    register_having(f, 12, 1, 3, "8 7 5 3", "");
    expect_part(f, "from 5 not (5, 20]:");
    f->sent_count = 0;
    ask(f, 21, 1, 0);
    expect_of_both(f, "checkpoint 21 on 0");
    make_it(f, 21);
    f->sent_count = 0;
    goodbye(f, 12);
    assert_int_equal(hello_as(f, 33, PS, 1, 97), 0);
    register_having(f, 33, 1, 5, "22 21 8 7 5 3", "");
    expect_part(f, "33#1 cluster of 3 workers from 21 not (5, 20]:");
    f->sent_count = 0;
    goodbye(f, 33);
    assert_int_equal(hello_as(f, 34, PS, 1, 96), 0);
    register_restoring(f, 34, 1, 0, 0, false);
    expect_part(f, "34#1 cluster of 3 workers not (5, 20]:");
}

CASE(register__either_all_begin_from_a_checkpoint_or_none_does)
{
    two_ps(f);
    register_restoring(f, 11, 1, 7, 7, false);
    register_restoring(f, 12, 1, 0, 9, false);
    expect(f, "12#1 error invalid: ps/0 has checkpoint 7 to restore, ps/1 has none: all servers "
              "must have it");
    expect_nothing(f);
    goodbye(f, 11);
    assert_int_equal(hello_as(f, 31, PS, 0, 99), 0);
    register_restoring(f, 12, 2, 0, 9, false);
    expect_nothing(f);
    register_restoring(f, 31, 1, 6, 6, false);
    expect(f, "31#1 error invalid: ps/0 has checkpoint 6 to restore, ps/1 has none: all servers "
              "must have it");
    register_restoring(f, 31, 2, 0, 6, false);
    expect_part(f, "12#2 cluster of 3 workers beside 9: ");
    expect_part(f, "31#2 cluster of 3 workers beside 9: ");
}

CASE(register__none_begins_from_one_above_its_own)
{
    two_ps(f);
    register_having(f, 11, 1, 5, "7 6 5 3", ""); /* --restore 5 */
    register_having(f, 12, 1, 7, "7 6 5 3", "");
    expect_part(f, "11#1 cluster of 3 workers from 5 not (5, 20]:");
    expect_part(f, "12#1 cluster of 3 workers from 5 not (5, 20]:");
}

CASE(register__what_no_two_have_is_not_gone_below)
{
    two_ps(f);
    register_having(f, 11, 1, 7, "7 4", "");
    register_having(f, 12, 1, 6, "6 5", "7"); /* 7 was never complete, but 4 was */
    expect(f, "12#1 error invalid: ps/1 has checkpoint 6 to restore, the newest of ps/0 is 7: "
              "all servers must have it");
}

CASE(register__what_was_never_complete_is_not_waited_for)
{
    two_ps(f);
    register_having(f, 11, 1, 2, "2 1", "");
    register_having(f, 12, 1, 0, "", "2 1");
    expect_part(f, "11#1 cluster of 3 workers not (0, 20]: ");
    expect_part(f, "12#1 cluster of 3 workers not (0, 20]: ");
    /* The other way round. */
    fixture_remake(f, 2, 3);
    two_ps(f);
    register_having(f, 12, 1, 0, "", "1");
    register_having(f, 11, 1, 1, "1", "");
    expect_part(f, "11#1 cluster of 3 workers not (0, 20]: ");
    expect_part(f, "12#1 cluster of 3 workers not (0, 20]: ");
    /* Below it is one that was: of that the other should have more than nothing. */
    fixture_remake(f, 2, 3);
    two_ps(f);
    register_having(f, 11, 1, 2, "2 1", "");
    register_having(f, 12, 1, 0, "", "2");
    expect(f, "12#1 error invalid: ps/0 has checkpoint 1 to restore, ps/1 has none: all servers "
              "must have it");
}

CASE(register__where_one_serves_already_none_begins_from_above_its_newest)
{
    two_ps(f);
    /* ps/0 died, and with it the coordinator. */
    register_restoring(f, 12, 1, 6, 9, true);
    register_having(f, 11, 1, 8, "8 7 5 4", "");
    expect_part(f, "11#1 cluster of 3 workers from 5:");
    expect_part(f, "12#1 cluster of 3 workers: ");
    expect_nothing(f);
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    expect_of_both(f, "checkpoint 21 on 0");
}

/* 2 ps and a worker under a scheduler; the worker has left. */
static void follow_to_the_end(struct fixture *f)
{
    f->checkpoint_interval_ns = 5 * SECOND;
    fixture_follow(f, 2, 1);
    two_ps(f);
    assert_int_equal(hello(f, 1, WORKER, 0), 0);
    both_register(f, false, false);
    register_worker(f, 1, 1);
    f->sent_count = 0;
    client_joins(f, 21);
    goodbye(f, 1);
    expect_part(f, "stage 2 err ok");
    expect_of_both(f, "ended: its worker has left");
}

CASE(end__waits_for_the_checkpoint_that_the_ps_ask_for)
{
    follow_to_the_end(f);
    ask(f, 21, 1, 0);
    expect(f, "21#1 error closed: no checkpoint any more: the job has ended");
    ask(f, 11, 7, 0);
    expect_nothing(f); /* the other ends too */
    ask(f, 12, 8, 0);
    expect_of_both(f, "checkpoint 1 on 0");
    pass(f, 30 * SECOND, everyone); /* more than a lease, and than an interval */
    f->sent_count = 0;
    make_it(f, 1);
    expect(f, "12#8 made 1");
    expect(f, "11#7 made 1");
    expect_nothing(f);
    goodbye(f, 11);
    goodbye(f, 12);
    expect_part(f, "stage 3 err ok");
}

CASE(end__the_last_one_begins_after_the_end)
{
    f->checkpoint_interval_ns = 5 * SECOND;
    fixture_follow(f, 2, 1);
    two_ps(f);
    assert_int_equal(hello(f, 1, WORKER, 0), 0);
    both_register(f, false, false);
    register_worker(f, 1, 1);
    f->sent_count = 0;
    static const sl_coordinator_peer all[] = {1, 11, 12, 0};
    pass(f, 5 * SECOND, all);
    expect_of_both(f, "checkpoint 1 on 0");
    goodbye(f, 1);
    f->sent_count = 0;
    ask(f, 11, 7, 0); /* what its worker pushed last may not be in the one that is being made */
    ask(f, 12, 8, 0);
    make_it(f, 1);
    expect_of_both(f, "checkpoint 2 on 0");
    make_it(f, 2);
    expect(f, "12#8 made 2");
    expect(f, "11#7 made 2");
}

CASE(end__of_one_ps_waits_for_the_others_a_second)
{
    start_with(f, 0, 0);
    ask(f, 12, 7, 0);
    pass(f, SECOND / 2, both_ps);
    expect_nothing(f);
    pass(f, SECOND / 2, both_ps);
    expect_of_both(f, "checkpoint 1 on 0");
    ask(f, 11, 8, 0); /* it ends as well: the same will do */
    make_it(f, 1);
    expect(f, "11#8 made 1");
    expect(f, "12#7 made 1");
    expect_nothing(f);
    ask(f, 12, 8, 0);
    client_joins(f, 21);
    ask(f, 21, 1, 0); /* who does not end does not wait for who does */
    expect_of_both(f, "checkpoint 2 on 0");
    make_it(f, 2);
    f->sent_count = 0;
    ask(f, 12, 9, 0);
    goodbye(f, 11); /* without: a full cluster may never come again */
    expect(f, "12#9 error closed: ps/0 is missing");
    ask(f, 12, 10, 0);
    expect(f, "12#10 error closed: ps/0 is missing");
}

CASE(end__does_not_wait_when_it_fails)
{
    follow_to_the_end(f);
    ask(f, 11, 7, 0);
    pass(f, SECOND, everyone);
    expect_of_both(f, "checkpoint 1 on 0");
    goodbye(f, 12); /* without */
    expect(f, "11#7 error closed: checkpoint 1 is aborted: ps/1 has left");
    goodbye(f, 11);
    expect_part(f, "stage 3 err ok");
}

CASE(end__no_checkpoint_begins_by_itself)
{
    follow_to_the_end(f);
    pass(f, 9 * SECOND, everyone);
    expect_nothing(f);
    pass(f, SECOND, everyone);
    expect_part(f, "stage 3"); /* the ps do not end, though the job has */
    pass(f, 20 * SECOND, everyone);
}

static void open_table(struct fixture *f, sl_coordinator_peer peer, uint64_t id, bool keep_id)
{
    struct sl_message message = table_message("t", 8, id);
    message.table_open.keep_id = keep_id;
    say(f, peer, message);
}

/* The connections 11, 12, 1 and 21: two ps, worker/0 and a client. */
static void job_begins(struct fixture *f)
{
    fixture_remake(f, 2, 3);
    client_joins(f, 21);
    two_ps(f);
    both_register(f, false, false);
    join_worker(f, 1, 0, 1, 1);
    f->sent_count = 0;
}

/* ps/1 is another process from now on, at connection 32. */
static void ps_1_returns(struct fixture *f, uint64_t restore)
{
    goodbye(f, 12);
    assert_int_equal(hello_as(f, 32, PS, 1, 99), 0);
    f->sent_count = 0;
    register_restoring(f, 32, 1, restore, restore, false);
}

static void expect_no_checkpoint(struct fixture *f, const char *ps)
{
    char text[96];
    (void)snprintf(text, sizeof text, "21#9 error corrupt: %s was restarted without", ps);
    f->sent_count = 0;
    ask(f, 21, 9, 0);
    expect_part(f, text);
}

CASE(values__are_lost_when_a_ps_returns_with_nothing)
{
    job_begins(f);
    open_table(f, 1, 2, false);
    f->sent_count = 0;
    ps_1_returns(f, 0);
    expect_part(f, "1#0 cluster of 3 workers without the values of ps/1:");
    expect_no_checkpoint(f, "ps/1");
}

CASE(values__are_whole_where_there_are_none_or_a_checkpoint_has_them)
{
    job_begins(f);
    ps_1_returns(f, 0); /* before there is a table */
    expect_part(f, "1#0 cluster of 3 workers:");
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    expect_part(f, "checkpoint 1 on 0");
    f->sent_count = 0;

    job_begins(f);
    open_table(f, 1, 2, false);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    make_it(f, 1);
    ps_1_returns(f, 1);
    expect_part(f, "1#0 cluster of 3 workers:");
    f->sent_count = 0;
}

/* A client may open a table before all ps are there. */
CASE(values__of_a_table_that_is_older_than_the_cluster_are_whole)
{
    fixture_remake(f, 2, 3);
    client_joins(f, 21);
    open_table(f, 21, 1, false);
    f->sent_count = 0;
    two_ps(f);
    both_register(f, false, false);
    assert_int_equal(hello(f, 1, WORKER, 0), 0);
    f->sent_count = 0;
    register_worker(f, 1, 2);
    expect_part(f, "1#2 cluster of 3 workers:");
    f->sent_count = 0;
}

/* A coordinator that was started again knows the tables from those who use them. */
CASE(values__are_lost_with_the_ps_of_the_coordinator)
{
    for (int keeps_first = 0; keeps_first < 2; keeps_first++) {
        fixture_remake(f, 2, 3);
        client_joins(f, 21);
        assert_int_equal(hello(f, 1, WORKER, 0), 0);
        if (keeps_first == 1) {
            open_table(f, 1, 1, true);
        }
        two_ps(f);
        both_register(f, false, true);
        if (keeps_first == 0) {
            open_table(f, 1, 1, true);
        }
        f->sent_count = 0;
        register_worker(f, 1, 2);
        expect_part(f, "1#2 cluster of 3 workers without the values of ps/0:");
        expect_no_checkpoint(f, "ps/0");
    }
}

/* Nobody who used the tables is left: the other ps has them. */
CASE(values__are_lost_beside_a_ps_that_has_tables)
{
    for (int has_tables = 0; has_tables < 2; has_tables++) {
        fixture_remake(f, 2, 3);
        client_joins(f, 21);
        two_ps(f);
        register_restoring(f, 11, 1, 0, 0, false);
        struct sl_message message = {
            .kind = SL_MESSAGE_REGISTER,
            .id = 1,
            .reg = {.shard_count = 2, .serving = true, .has_tables = has_tables == 1}};
        (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://h:1");
        say(f, 12, message);
        assert_int_equal(hello(f, 1, WORKER, 0), 0);
        f->sent_count = 0;
        register_worker(f, 1, 2);
        expect_part(f, has_tables == 1 ? "1#2 cluster of 3 workers without the values of ps/0:"
                                       : "1#2 cluster of 3 workers:");
        f->sent_count = 0;
    }
}

/* A checkpoint that has begun meanwhile lacks them too. */
CASE(values__that_are_lost_end_the_checkpoint_that_is_made)
{
    fixture_remake(f, 2, 3);
    client_joins(f, 21);
    assert_int_equal(hello(f, 1, WORKER, 0), 0);
    two_ps(f);
    both_register(f, false, true);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    expect_of_both(f, "checkpoint 1 on 0");
    part(f, 11, 1);
    f->sent_count = 0;
    open_table(f, 1, 1, true);
    expect_part(f, "21#2 error corrupt: checkpoint 1 is aborted: ps/0 was restarted without");
    f->sent_count = 0;
    part(f, 12, 1); /* too late */
}

CASE(values__outlive_a_scheduler)
{
    fixture_remake(f, 2, 3);
    assert_int_equal(hello(f, 1, WORKER, 0), 0);
    open_table(f, 1, 1, true);
    f->sent_count = 0;
    two_ps(f);
    both_register(f, true, true);
    f->sent_count = 0;
    register_worker(f, 1, 2);
    expect_part(f, "1#2 cluster of 3 workers:");
    f->sent_count = 0;
}
