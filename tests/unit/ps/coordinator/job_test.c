/* The course of a job with a scheduler, and the tasks that it hands out. */

#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

#define PS     SL_MESSAGE_ROLE_PS
#define WORKER SL_MESSAGE_ROLE_WORKER

CASE(coordinator_hello__any_task_is_the_lowest_that_is_free)
{
    assert_int_equal(hello(f, 1, WORKER, 1), 0);
    assert_int_equal(hello_any(f, 2, WORKER, 2), 0);
    assert_int_equal(hello_any(f, 3, WORKER, 3), 2);
    assert_int_equal(hello_any(f, 4, PS, 4), 0);
    assert_int_equal(hello_any(f, 5, PS, 5), 1);
    assert_int_equal(hello_any(f, 6, WORKER, 6), SL_ERR_AGAIN);
    assert_non_null(strstr(f->reason.text, "3 worker"));
    assert_int_equal(hello_any(f, 7, PS, 7), SL_ERR_AGAIN);
    assert_int_equal(hello_any(f, 8, SL_MESSAGE_ROLE_CLIENT, 8), 0);
}

CASE(coordinator_hello__any_task_stays_over_connections)
{
    assert_int_equal(hello_any(f, 1, WORKER, 71), 0);
    assert_int_equal(hello_any(f, 2, WORKER, 72), 1);
    disconnect(f, 1);
    assert_int_equal(hello_any(f, 3, WORKER, 73), 2);
    assert_int_equal(hello_any(f, 4, WORKER, 71), 0);
    /* On a second connection, before the first is known to be gone. */
    assert_int_equal(hello_any(f, 5, WORKER, 72), 1);
    expect(f, "2 closed");
}

CASE(coordinator_hello__any_task_is_the_one_it_had_before_it_was_lost)
{
    cluster_start(f);
    assert_int_equal(hello_any(f, 1, WORKER, 71), 0);
    assert_int_equal(hello_any(f, 2, WORKER, 72), 1);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 0}); /* ps/1 and the workers are lost */
    f->sent_count = 0;
    assert_int_equal(hello_any(f, 3, WORKER, 72), 1);
    assert_int_equal(hello_any(f, 4, WORKER, 79), 0);
    assert_int_equal(hello_any(f, 5, PS, 12), 1);
}

CASE(coordinator_hello__any_task_takes_the_place_of_one_that_is_away)
{
    cluster_start(f);
    workers_join(f);
    assert_int_equal(hello_any(f, 4, WORKER, 74), SL_ERR_AGAIN);
    disconnect(f, 3);
    assert_int_equal(hello_any(f, 4, WORKER, 74), 2);
    expect_part(f, "lost worker/2 of 3: another process has its task now");
    f->sent_count = 0;
}

CASE(coordinator_hello__any_task_may_join_beyond_the_workers)
{
    workers_join(f);
    struct sl_message_hello message = {
        .purpose = SL_MESSAGE_PURPOSE_CONTROL,
        .role = WORKER,
        .any_task = true,
        .join_running = true,
        .client_id = 9,
    };
    assert_int_equal(sl_coordinator_hello(f->coordinator, 9, &message, 0, &f->reason), 0);
    assert_int_equal(sl_coordinator_task_index(f->coordinator, 9), 3);
}

/* 2 ps (peers 11 and 12) and 2 workers (1 and 2), begun; what was sent is forgotten. */
static void begin(struct fixture *f)
{
    fixture_follow(f, 2, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(hello_any(f, 11 + i, PS, 11 + i), (int)i);
        struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                     .id = 1,
                                     .reg = {.shard_count = 2, .data_endpoint = "tcp://h:1"}};
        say(f, 11 + i, message);
        assert_int_equal(hello_any(f, 1 + i, WORKER, 1 + i), (int)i);
        expect_nothing(f);
        register_worker(f, 1 + i, 1);
    }
    expect(f, "stage 1 err ok: 2 servers with 4 shards, 2 workers");
    for (uint32_t i = 0; i < 4; i++) {
        expect_part(f, "cluster of 2 workers: ps/0 tcp://h:1 x2 ps/1 tcp://h:1 x2");
    }
}

CASE(coordinator_job__who_waits_is_told_which_workers_are_missing)
{
    fixture_follow(f, 2, 3);
    assert_int_equal(hello_any(f, 1, WORKER, 1), 0);
    register_worker(f, 1, 5);
    pass(f, 3 * SECOND, (sl_coordinator_peer[]){1, 0});
    expect(f, "1#5 waiting for ps/0 ps/1 worker/1 worker/2");
    /* One that has said hello, and no more, is no less missing. */
    assert_int_equal(hello(f, 2, WORKER, 2), 0);
    pass(f, 3 * SECOND, (sl_coordinator_peer[]){1, 2, 0});
    expect(f, "1#5 waiting for ps/0 ps/1 worker/1 worker/2");
}

CASE(coordinator_job__gives_up_when_not_all_come)
{
    fixture_follow(f, 1, 2);
    assert_int_equal(hello_any(f, 1, WORKER, 1), 0);
    register_worker(f, 1, 5);
    pass(f, 59 * SECOND, (sl_coordinator_peer[]){1, 0});
    f->sent_count = 0;
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){1, 0});
    expect(f, "1#5 waiting for ps/0 worker/1");
    expect(f, "stage 3 err deadline: still waiting after 60 s for ps/0, worker/1");
    expect(f,
           "1#5 error refused: the job has not begun: still waiting after 60 s for ps/0, worker/1");
    expect_nothing(f);
    assert_int_equal(hello_any(f, 9, WORKER, 9), SL_ERR_REFUSED);
    assert_non_null(strstr(f->reason.text, "s for ps/0, worker/1"));
}

CASE(coordinator_job__one_that_leaves_before_it_begins_is_missing)
{
    fixture_follow(f, 1, 1);
    assert_int_equal(hello_any(f, 1, WORKER, 1), 0);
    register_worker(f, 1, 5);
    goodbye(f, 1);
    assert_int_equal(hello_any(f, 11, PS, 11), 0);
    register_ps(f, 11, 1, 2);
    f->sent_count = 0; /* it expects another number of workers than one */
    say(f, 11,
        (struct sl_message){.kind = SL_MESSAGE_REGISTER,
                            .id = 2,
                            .reg = {.shard_count = 1, .data_endpoint = "tcp://h:1"}});
    expect_nothing(f);
    /* Its place is free. */
    assert_int_equal(hello_any(f, 2, WORKER, 2), 0);
    register_worker(f, 2, 6);
    expect_part(f, "stage 1 err ok");
    f->sent_count = 0;
}

CASE(coordinator_job__ends_when_all_workers_have_left)
{
    begin(f);
    goodbye(f, 1);
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){2, 11, 12, 0});
    expect_nothing(f);
    /* The place of one that has finished is not given away. */
    assert_int_equal(hello_any(f, 9, WORKER, 9), SL_ERR_AGAIN);
    goodbye(f, 2);
    expect(f, "stage 2 err ok: all 2 workers have left");
    expect_part(f, "#0 ended: all 2 workers have left");
    expect_part(f, "#0 ended: all 2 workers have left");
    expect_nothing(f);
    assert_int_equal(hello_any(f, 9, WORKER, 9), SL_ERR_REFUSED);
    assert_non_null(strstr(f->reason.text, "has ended"));
    goodbye(f, 11);
    expect_nothing(f);
    goodbye(f, 12);
    expect(f, "stage 3 err ok: all 2 workers have left");
    pass(f, 20 * SECOND, (sl_coordinator_peer[]){0});
}

CASE(coordinator_job__a_ps_that_was_away_is_told_when_it_is_back)
{
    begin(f);
    disconnect(f, 12);
    goodbye(f, 1);
    goodbye(f, 2);
    expect_part(f, "stage 2");
    expect_part(f, "11#0 ended");
    expect_nothing(f);
    goodbye(f, 11);
    expect_nothing(f);
    assert_int_equal(hello_as(f, 13, PS, 1, 12), 0);
    say(f, 13,
        (struct sl_message){.kind = SL_MESSAGE_REGISTER,
                            .id = 2,
                            .reg = {.shard_count = 2, .data_endpoint = "tcp://h:1"}});
    expect_part(f, "13#0 ended");
    goodbye(f, 13);
    expect_part(f, "stage 3 err ok");
}

CASE(coordinator_job__a_ps_that_does_not_end_is_not_waited_for)
{
    begin(f);
    goodbye(f, 1);
    goodbye(f, 2);
    goodbye(f, 11);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){12, 0});
    expect_part(f, "stage 3 err ok");
}

CASE(coordinator_job__names_who_is_lost_for_good)
{
    begin(f);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){1, 11, 12, 0});
    expect(f, "2 closed");
    for (uint32_t i = 0; i < 3; i++) {
        expect_part(f, "lost worker/1");
    }
    expect_nothing(f); /* somebody may still come in its place */
    goodbye(f, 1);
    expect(f, "stage 2 err closed: worker/1 expired, and no process is left");
    expect_part(f, "ended: worker/1 expired");
    f->sent_count = 0;
}

CASE(coordinator_job__goes_on_with_another_in_the_place_of_the_lost)
{
    begin(f);
    disconnect(f, 2);
    goodbye(f, 1);
    pass(f, 5 * SECOND, (sl_coordinator_peer[]){11, 12, 0});
    expect_nothing(f);
    assert_int_equal(hello_any(f, 3, WORKER, 3), 1);
    expect_part(f, "lost worker/1 of 2: another process");
    expect_part(f, "lost worker/1 of 2: another process");
    register_worker(f, 3, 1);
    expect_part(f, "3#1 cluster");
    goodbye(f, 3);
    expect(f, "stage 2 err ok: all 2 workers have left");
    f->sent_count = 0;
}

static struct sl_message register_2_shards(void)
{
    return (struct sl_message){.kind = SL_MESSAGE_REGISTER,
                               .id = 2,
                               .reg = {.shard_count = 2, .data_endpoint = "tcp://h:1"}};
}

/* A ps that has come learns it at once, too; but not that the job has ended, for this may be one
 * that goes on without its scheduler. */
CASE(coordinator_job__tells_a_ps_that_it_gives_up)
{
    fixture_follow(f, 1, 1);
    assert_int_equal(hello_any(f, 11, PS, 11), 0);
    say(f, 11, register_2_shards());
    pass(f, 59 * SECOND, (sl_coordinator_peer[]){11, 0});
    f->sent_count = 0;
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){11, 0});
    expect(f, "11#2 waiting for worker/0");
    expect(f, "stage 3 err deadline: still waiting after 60 s for worker/0");
    expect(f, "11#2 error deadline: the job has not begun: still waiting after 60 s for worker/0");
    expect_nothing(f);
    say(f, 11, register_2_shards());
    expect_part(f, "11#2 error deadline");
}

/* Those who gave up earlier are not blamed for those who never came. */
CASE(coordinator_job__names_apart_who_came_and_left)
{
    fixture_follow(f, 2, 3);
    assert_int_equal(hello_any(f, 1, WORKER, 1), 0);
    register_worker(f, 1, 5);
    assert_int_equal(hello_any(f, 11, PS, 11), 0);
    say(f, 11, register_2_shards());
    assert_int_equal(hello_any(f, 2, WORKER, 2), 1);
    register_worker(f, 2, 6);
    pass(f, 59 * SECOND, (sl_coordinator_peer[]){1, 2, 11, 0});
    goodbye(f, 1);
    goodbye(f, 11);
    disconnect(f, 2);
    f->sent_count = 0;
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){0});
    expect(f, "stage 3 err deadline: still waiting after 60 s for ps/1, worker/2; came and left: "
              "ps/0, worker/0, worker/1");
}

CASE(coordinator_job__names_who_left_where_all_had_come)
{
    fixture_follow(f, 1, 2);
    assert_int_equal(hello_any(f, 1, WORKER, 1), 0);
    assert_int_equal(hello_any(f, 2, WORKER, 2), 1);
    register_worker(f, 1, 5);
    register_worker(f, 2, 5);
    goodbye(f, 2);
    assert_int_equal(hello_any(f, 11, PS, 11), 0);
    say(f, 11, register_2_shards());
    pass(f, 61 * SECOND, (sl_coordinator_peer[]){1, 11, 0});
    while (f->sent_count > 0 && strncmp(f->sent[0], "stage", 5) != 0) {
        expect_part(f, "waiting for worker/1");
    }
    expect(f, "stage 3 err deadline: still waiting after 60 s for worker/1, which came and left");
    f->sent_count = 0;
}

/* ps/1, peer 12, is lost; what was sent of it is forgotten. */
static void lose_ps(struct fixture *f)
{
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){1, 2, 11, 0});
    expect(f, "12 closed");
    f->sent_count = 0;
}

CASE(coordinator_job__names_a_ps_that_is_lost_for_good)
{
    begin(f);
    lose_ps(f);
    goodbye(f, 1);
    goodbye(f, 2);
    expect(f,
           "stage 2 err closed: all 2 workers have left; ps/1 expired, and no process replaced it");
    expect_part(f, "11#0 ended: all 2 workers have left; ps/1 expired");
    goodbye(f, 11);
    expect_part(f, "stage 3 err ok");
}

CASE(coordinator_job__names_a_ps_that_left_before_its_end)
{
    begin(f);
    goodbye(f, 12);
    goodbye(f, 1);
    goodbye(f, 2);
    expect(f,
           "stage 2 err closed: all 2 workers have left; ps/1 expired, and no process replaced it");
    f->sent_count = 0;
}

CASE(coordinator_job__a_ps_that_was_replaced_is_fine)
{
    begin(f);
    lose_ps(f);
    assert_int_equal(hello_any(f, 13, PS, 13), 1);
    say(f, 13, register_2_shards());
    f->sent_count = 0;
    goodbye(f, 1);
    goodbye(f, 2);
    expect(f, "stage 2 err ok: all 2 workers have left");
    f->sent_count = 0;
    goodbye(f, 11);
    goodbye(f, 13);
    expect_part(f, "stage 3 err ok");
}

CASE(coordinator_job__a_ps_that_was_away_and_does_not_come_back_is_lost)
{
    begin(f);
    disconnect(f, 12);
    goodbye(f, 1);
    goodbye(f, 2);
    goodbye(f, 11);
    expect(f, "stage 2 err ok: all 2 workers have left");
    expect_part(f, "11#0 ended");
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){0});
    expect(f,
           "stage 3 err closed: all 2 workers have left; ps/1 expired, and no process replaced it");
}

CASE(coordinator_end_job__tells_every_ps_and_names_who_had_not_left)
{
    begin(f);
    goodbye(f, 1);
    sl_coordinator_end_job(f->coordinator, "SIGTERM", f->now_ns);
    expect(f, "stage 2 err closed: SIGTERM came before worker/1 had left");
    expect_part(f, "#0 ended: SIGTERM came before worker/1 had left");
    expect_part(f, "#0 ended: SIGTERM came before worker/1 had left");
    expect_nothing(f);
    sl_coordinator_end_job(f->coordinator, "SIGTERM", f->now_ns);
    goodbye(f, 2);
    goodbye(f, 11);
    expect_nothing(f);
    goodbye(f, 12);
    expect_part(f, "stage 3 err ok");
}

CASE(coordinator_end_job__refuses_who_waits_for_the_beginning)
{
    fixture_follow(f, 1, 2);
    assert_int_equal(hello_any(f, 11, PS, 11), 0);
    say(f, 11, register_2_shards());
    assert_int_equal(hello_any(f, 1, WORKER, 1), 0);
    register_worker(f, 1, 5);
    assert_int_equal(hello_any(f, 2, WORKER, 2), 1);
    expect_nothing(f);
    sl_coordinator_end_job(f->coordinator, "SIGINT", f->now_ns);
    expect(f, "stage 2 err closed: SIGINT came before it had begun");
    expect_part(f, "11#0 ended: SIGINT came before it had begun");
    expect_part(f, "1#5 error");
    expect_nothing(f);
    register_worker(f, 2, 6); /* now all would be there */
    expect_part(f, "2#6 error");
    pass(f, SECOND, (sl_coordinator_peer[]){1, 2, 11, 0});
    expect_nothing(f);
    goodbye(f, 11);
    expect_part(f, "stage 3 err ok");
}

CASE(coordinator_end_job__is_over_at_once_where_nobody_has_come)
{
    fixture_follow(f, 1, 2);
    sl_coordinator_end_job(f->coordinator, "SIGTERM", f->now_ns);
    expect_part(f, "stage 2 err ok");
    expect_part(f, "stage 3 err ok");
}
