/* The coordinator: the course of checkpoints, and who asks for them. */

#include <stdio.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/checkpoints.h"

/* ps/0 is peer 11 and has shards 0 and 1; ps/1 is peer 12 and has 2 and 3. */
static const sl_coordinator_peer both_ps[] = {11, 12, 0};
static const sl_coordinator_peer everyone[] = {11, 12, 21, 0};

CASE(checkpoint__is_complete_when_every_ps_has_its_files_and_its_manifest)
{
    start_with(f, 0, 0);
    client_joins(f, 21);
    f->now_ns = 7 * SECOND;
    ask(f, 21, 5, 0);
    expect_of_both(f, "checkpoint 1 on 0");
    f->now_ns = 8 * SECOND;
    part(f, 12, 1);
    expect_nothing(f);
    part(f, 12, 1); /* again, since its connection broke in between */
    expect_nothing(f);
    done(f, 12, 1); /* of what nobody has asked for yet */
    part(f, 11, 1);
    expect_of_both(f, "complete 1 on 0 at 7000: 0 f1-0 1 f1-1 2 f1-2 3 f1-3");
    done(f, 11, 1);
    done(f, 11, 1);
    expect_nothing(f);
    assert_int_equal(f->completed_count, 0);
    done(f, 12, 1);
    assert_int_equal(f->completed_count, 2);
    expect(f, "21#5 made 1");
    expect_nothing(f);
    done(f, 12, 1);
    part(f, 12, 1);
}

CASE(checkpoint__has_a_worker_where_one_of_its_ps_knew_one)
{
    start_with(f, 0, 0);
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    f->sent_count = 0;
    f->knows_worker = true;
    part(f, 12, 1);
    f->knows_worker = false;
    part(f, 11, 1);
    expect_of_both(f, "complete 1 on 0 at 0: 0 f1-0 1 f1-1 2 f1-2 3 f1-3, a worker");
    make_it(f, 1);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    f->sent_count = 0;
    part(f, 12, 2);
    part(f, 11, 2);
    expect_of_both(f, "complete 2 on 0 at 0: 0 f2-0 1 f2-1 2 f2-2 3 f2-3");
}

/* Another process in place of ps/1. */
static void come_instead(struct fixture *f, uint64_t incarnation, uint64_t restore, uint64_t newest)
{
    goodbye(f, 12);
    assert_int_equal(hello_as(f, 12, SL_MESSAGE_ROLE_PS, 1, incarnation), 0);
    register_restoring(f, 12, 1, restore, newest, false);
}

/* So that nothing is removed for one that some ps has not. */
CASE(checkpoint__says_which_one_every_ps_has)
{
    start_with(f, 0, 1);
    f->shows_whole = true;
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    expect_of_both(f, "checkpoint 1 on 0, 0 whole");
    make_it(f, 1);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    expect_of_both(f, "checkpoint 2 on 1, 1 whole");
    part(f, 11, 2);
    part(f, 12, 2);
    done(f, 11, 2);
    part_fails(f, 12, 2, SL_ERR_IO, "the manifest");
    f->sent_count = 0;
    ask(f, 21, 3, 0);
    expect_of_both(f, "checkpoint 3 on 0, 1 whole");
    make_it(f, 3);
    /* Who comes in place of another, and not from the newest, may not have it. */
    come_instead(f, 99, 1, 3);
    f->sent_count = 0;
    ask(f, 21, 4, 0);
    expect_of_both(f, "checkpoint 4 on 0, 0 whole");
    make_it(f, 4);
    come_instead(f, 98, 4, 4);
    f->sent_count = 0;
    ask(f, 21, 5, 0);
    expect_of_both(f, "checkpoint 5 on 0, 4 whole");
}

CASE(checkpoint__comes_every_interval_where_there_is_one)
{
    start_with(f, 20 * SECOND, 0);
    pass(f, 19 * SECOND, both_ps);
    expect_nothing(f);
    pass(f, SECOND, both_ps);
    expect_of_both(f, "checkpoint 1 on 0");
    pass(f, 30 * SECOND, both_ps); /* one at a time, however long it takes */
    expect_nothing(f);
    make_it(f, 1);
    expect_of_both(f, "checkpoint 2 on 0"); /* it is due since long */
    make_it(f, 2);
    pass(f, 19 * SECOND, both_ps);
    expect_nothing(f);
    pass(f, SECOND, both_ps);
    expect_of_both(f, "checkpoint 3 on 0");
}

CASE(checkpoint__none_comes_where_nobody_wants_one)
{
    start_with(f, 0, 3);
    pass(f, 1000 * SECOND, both_ps);
}

CASE(checkpoint__adds_to_the_last_so_many_times_and_then_is_full)
{
    static const uint64_t bases[] = {0, 1, 2, 0, 4, 5, 0};
    start_with(f, 0, 2);
    client_joins(f, 21);
    for (uint64_t number = 1; number <= 7; number++) {
        char text[64];
        (void)snprintf(text, sizeof text, "checkpoint %u on %u", (unsigned)number,
                       (unsigned)bases[number - 1]);
        ask(f, 21, number, 0);
        expect_of_both(f, text);
        make_it(f, number);
        expect_part(f, "made");
        expect_nothing(f);
    }
}

CASE(checkpoint__that_fails_is_given_up_and_the_next_is_full)
{
    start_with(f, 0, 5);
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    f->sent_count = 0;
    make_it(f, 1);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    expect_of_both(f, "checkpoint 2 on 1");
    part(f, 11, 2);
    part_fails(f, 12, 2, SL_ERR_IO, "No space left on device");
    expect(f, "21#2 error i/o: checkpoint 2 is aborted: ps/1: No space left on device");
    part(f, 12, 2); /* too late */
    expect_nothing(f);
    ask(f, 21, 3, 0);
    expect_of_both(f, "checkpoint 3 on 0");
    part(f, 11, 3);
    part(f, 12, 3);
    f->sent_count = 0;
    done(f, 12, 3);
    part_fails(f, 11, 3, SL_ERR_NO_MEMORY, ""); /* the manifest */
    expect(f, "21#3 error no memory: checkpoint 3 is aborted: ps/0: no memory");
    ask(f, 21, 4, 0);
    expect_of_both(f, "checkpoint 4 on 0");
    make_it(f, 4);
    expect(f, "21#4 made 4");
    ask(f, 21, 5, 0);
    expect_of_both(f, "checkpoint 5 on 4");
}

CASE(checkpoint__is_given_up_when_a_ps_names_other_files_than_its_own)
{
    static const struct {
        uint32_t first, count;
    } odd[] = {{0, 2}, {1, 2}, {2, 1}, {2, 3}, {3, 2}};
    start_with(f, 0, 0);
    client_joins(f, 21);
    for (uint64_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        ask(f, 21, i + 1, 0);
        f->sent_count = 0;
        part_of(f, 12, i + 1, odd[i].first, odd[i].count);
        expect_part(f, "error protocol");
        expect_nothing(f);
    }
}

CASE(checkpoint__that_takes_too_long_is_given_up)
{
    start_with(f, 0, 0);
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    expect_of_both(f, "checkpoint 1 on 0");
    part(f, 11, 1);
    for (uint32_t i = 0; i < 600 / 3; i++) { /* the files are large, and their disk is slow */
        pass(f, 3 * SECOND, everyone);
        expect(f, "21#1 waiting for ps/1");
    }
    expect_nothing(f);
    part(f, 12, 1);
    f->sent_count = 0;
    done(f, 11, 1);
    pass(f, 59 * SECOND, everyone);
    for (uint32_t i = 0; i < 59 / 3; i++) {
        expect(f, "21#1 waiting for ps/1");
    }
    expect_nothing(f);
    pass(f, SECOND, everyone);
    expect(f, "21#1 error deadline: checkpoint 1 is aborted: still waiting after 60 s for ps/1");
    ask(f, 21, 2, 0);
    expect_of_both(f, "checkpoint 2 on 0");
}

CASE(ask__waits_for_a_ps_that_is_missing_and_is_told_so)
{
    start_with(f, 0, 0);
    client_joins(f, 21);
    goodbye(f, 12);
    ask(f, 21, 1, 0);
    ask(f, 21, 2, 4000);
    expect_nothing(f);
    static const sl_coordinator_peer alive[] = {11, 21, 0};
    pass(f, 3 * SECOND, alive);
    expect(f, "21#2 waiting for ps/1");
    expect(f, "21#1 waiting for ps/1");
    expect_nothing(f);
    pass(f, SECOND, alive);
    expect(f, "21#2 error deadline: the checkpoint: still waiting after 4000 ms for ps/1");
    expect_nothing(f);
    join_ps(f, 32, 1, 99, 1, 2);
    expect_part(f, "32#1 cluster");
    expect(f, "11#0 checkpoint 1 on 0");
    expect(f, "32#0 checkpoint 1 on 0");
}

CASE(ask__before_the_cluster_is_there_is_answered_when_it_is)
{
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    expect_nothing(f);
    for (uint32_t ps = 0; ps < 2; ps++) {
        join_ps(f, 11 + ps, ps, 11 + ps, 1, 2);
    }
    expect_part(f, "11#1 cluster");
    expect_part(f, "12#1 cluster");
    expect_of_both(f, "checkpoint 1 on 0");
    make_it(f, 1);
    expect(f, "21#1 made 1");
}

CASE(ask__of_too_many_is_refused)
{
    start_with(f, 0, 0);
    client_joins(f, 21);
    for (uint64_t id = 1; id <= SL_COORDINATOR_CHECKPOINT_REQUESTS; id++) {
        ask(f, 21, id, 0);
    }
    f->sent_count = 0;
    ask(f, 21, SL_COORDINATOR_CHECKPOINT_REQUESTS + 1, 0);
    expect_part(f, "error again");
    expect_nothing(f);
    goodbye(f, 21);
    client_joins(f, 22);
    ask(f, 22, 1, 0);
}

CASE(checkpoint__is_given_up_when_a_ps_is_lost_or_leaves)
{
    static const sl_coordinator_peer alive[] = {11, 21, 0};
    start_with(f, 0, 0);
    client_joins(f, 21);
    ask(f, 21, 1, 0);
    expect_of_both(f, "checkpoint 1 on 0");
    part(f, 12, 1); /* also one whose part is there, for it is to write the manifest */
    pass(f, 10 * SECOND, alive);
    expect(f, "21#1 waiting for ps/0");
    expect(f, "21#1 waiting for ps/0");
    expect(f, "21#1 waiting for ps/0");
    expect(f, "12 closed");
    expect(f, "21#1 error closed: checkpoint 1 is aborted: ps/1 expired");
    f->sent_count = 0;
    join_ps(f, 12, 1, 99, 1, 2);
    f->sent_count = 0;
    ask(f, 21, 2, 0);
    expect_of_both(f, "checkpoint 2 on 0");
    part(f, 11, 2);
    part(f, 12, 2);
    f->sent_count = 0;
    goodbye(f, 11);
    expect(f, "21#2 error closed: checkpoint 2 is aborted: ps/0 has left");
}

CASE(checkpoint__a_ps_that_was_away_is_told_again_what_it_owes)
{
    start_with(f, 0, 5);
    client_joins(f, 21);
    disconnect(f, 12);
    ask(f, 21, 1, 0);
    expect(f, "11#0 checkpoint 1 on 0");
    expect_nothing(f);
    join_ps(f, 32, 1, 12, 1, 2);
    expect_part(f, "32#1 cluster");
    expect(f, "32#0 checkpoint 1 on 0");
    part_of(f, 32, 1, 2, 2);
    disconnect(f, 32);
    join_ps(f, 32, 1, 12, 2, 2);
    expect_part(f, "32#2 cluster"); /* its part has arrived */
    expect_nothing(f);
    disconnect(f, 32);
    part(f, 11, 1);
    expect_part(f, "11#0 complete 1 on 0");
    join_ps(f, 32, 1, 12, 3, 2);
    expect_part(f, "32#3 cluster");
    expect(f, "32#0 complete 1 on 0 at 0: 0 f1-0 1 f1-1 2 f1-2 3 f1-3");
    done(f, 11, 1);
    done(f, 32, 1);
    expect(f, "21#1 made 1");
    /* It is the process that it was: the next adds to it. */
    ask(f, 21, 2, 0);
    expect(f, "11#0 checkpoint 2 on 1");
    f->sent_count = 0;
}
