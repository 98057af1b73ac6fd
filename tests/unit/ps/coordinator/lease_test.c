/* The coordinator's members: leases, coming back, being lost, being replaced. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

CASE(coordinator_lease__nobody_is_told_of_a_lost_client)
{
    cluster_start(f);
    assert_int_equal(hello(f, 4, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    pass(f, 10 * SECOND, (sl_coordinator_peer[]){11, 12, 0});
    expect(f, "4 closed");
}

CASE(coordinator_lease__only_so_many_clients_are_away)
{
    const uint32_t first = 100, second = 101;
    for (uint32_t i = 0; i <= SL_COORDINATOR_DISCONNECTED_MAX; i++) {
        f->now_ns += SECOND / 1000;
        assert_int_equal(hello(f, first + i, SL_MESSAGE_ROLE_CLIENT, 0), 0);
        if (i < 2) {
            say(f, first + i, barrier_message("alone", 1, 1));
        }
        disconnect(f, first + i);
    }
    expect(f, "100#1 done");
    expect(f, "101#1 done");
    /* The second is known: what it asks again was answered. The first was away longest. */
    assert_int_equal(hello_as(f, 5001, SL_MESSAGE_ROLE_CLIENT, 0, second), 0);
    say(f, 5001, barrier_message("both", 2, 1));
    expect(f, "5001#1 done");
    assert_int_equal(hello_as(f, 5000, SL_MESSAGE_ROLE_CLIENT, 0, first), 0);
    say(f, 5000, barrier_message("both", 2, 1));
}

/* It breaks its connection and comes back, 20 times in a second; the log has lines of both, and
 * not of all. */
CASE(coordinator_lease__a_client_does_not_fill_the_log)
{
    FILE *file = tmpfile();
    const int old = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    sl_log_setup(SL_LOG_INFO, "test");
    for (uint32_t i = 0; i < 20; i++) {
        (void)hello_as(f, 100 + i, SL_MESSAGE_ROLE_CLIENT, 0, 7);
        disconnect(f, 100 + i);
        f->now_ns += SECOND / 40;
    }
    sl_log_setup(SL_LOG_OFF, "test");
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    (void)close(old);
    char line[1024];
    uint32_t count = 0, away = 0, back = 0;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        count++;
        away += strstr(line, " is disconnected") != NULL;
        back += strstr(line, " reconnected") != NULL;
    }
    (void)fclose(file);
    assert_in_range(count, 1, 8);
    assert_true(away > 0 && back > 0);
}

CASE(coordinator_hello__another_process_is_refused_while_the_first_is_heard)
{
    workers_join(f);
    f->now_ns = 4 * SECOND;
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_AGAIN);
    assert_non_null(strstr(f->reason.text, "worker/1"));
    assert_non_null(strstr(f->reason.text, "ends in 6.0 s"));
    f->now_ns = 7 * SECOND;
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_AGAIN);
    assert_non_null(strstr(f->reason.text, "ends in 3.0 s"));
    heartbeat(f, 2);
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_EXISTS);
    assert_non_null(strstr(f->reason.text, "worker/1"));
    assert_non_null(strstr(f->reason.text, "started twice"));
    /* That the first was alive then says nothing to a third. */
    f->now_ns = 8 * SECOND;
    assert_int_equal(hello(f, 10, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_AGAIN);
    f->now_ns = 9 * SECOND;
    heartbeat(f, 2);
    assert_int_equal(hello(f, 10, SL_MESSAGE_ROLE_WORKER, 1), SL_ERR_EXISTS);
    expect_nothing(f);
    pass(f, 10 * SECOND, (sl_coordinator_peer[]){1, 3, 0});
    expect(f, "2 closed");
    f->sent_count = 0;
    assert_int_equal(hello(f, 9, SL_MESSAGE_ROLE_WORKER, 1), 0);
}

CASE(coordinator_tick__a_coordinator_that_was_held_up_blames_nobody)
{
    cluster_start(f);
    workers_join(f);
    const sl_coordinator_peer all[] = {11, 12, 1, 2, 3, 0};
    pass(f, 2 * SECOND, all);
    tick_at(f, f->now_ns + 60 * SECOND); /* before what they sent meanwhile is read */
    expect_nothing(f);
    pass(f, 9 * SECOND / 2, (sl_coordinator_peer[]){11, 12, 1, 2, 0});
    expect_nothing(f);
    pass(f, SECOND / 2, (sl_coordinator_peer[]){11, 12, 1, 2, 0});
    expect(f, "3 closed");
    expect_count(f, 4);
}

/* Half a lease more is no sign of life: who wants the place of one that has died gets it then. */
CASE(coordinator_tick__a_delay_does_not_raise_the_dead)
{
    cluster_start(f);
    workers_join(f);
    const sl_coordinator_peer others[] = {11, 12, 1, 2, 0};
    pass(f, 3 * SECOND, others);
    assert_int_equal(hello_as(f, 4, SL_MESSAGE_ROLE_WORKER, 2, 9), SL_ERR_AGAIN);
    pass(f, 3 * SECOND, others);
    tick_at(f, f->now_ns + 6 * SECOND);
    assert_int_equal(hello_as(f, 4, SL_MESSAGE_ROLE_WORKER, 2, 9), SL_ERR_AGAIN);
    expect_nothing(f);
    pass(f, 5 * SECOND, others);
    expect(f, "3 closed");
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 4, SL_MESSAGE_ROLE_WORKER, 2, 9), 0);
}

/* Held up for less than half a lease, when members had less than that left. */
CASE(coordinator_tick__a_short_delay_blames_nobody_either)
{
    cluster_start(f);
    workers_join(f);
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){11, 12, 1, 2, 3, 0});
    pass(f, 7 * SECOND, (sl_coordinator_peer[]){0});
    tick_at(f, f->now_ns + 7 * SECOND / 2); /* before what they sent meanwhile is read */
    expect_nothing(f);
    pass(f, 9 * SECOND / 2, (sl_coordinator_peer[]){11, 12, 1, 2, 3, 0});
}

/* The clock counts from the machine's start: it may be younger than half a lease. */
CASE(coordinator_tick__a_delay_of_a_young_machine_does_not_raise_the_dead)
{
    tick_at(f, SECOND / 2);
    cluster_start(f);
    workers_join(f);
    disconnect(f, 3);
    tick_at(f, f->now_ns + 3 * SECOND);
    expect_nothing(f);
    pass(f, 8 * SECOND, (sl_coordinator_peer[]){11, 12, 1, 2, 0});
    expect(f, "11#0 lost worker/2 of 3: no heartbeat for 10 s");
    f->sent_count = 0;
}

/* Worker 1 is lost at 20 s; ps/1 does not hear of it. */
static void lose_worker_1(struct fixture *f)
{
    cluster_start(f);
    workers_join(f);
    pass(f, 10 * SECOND - SECOND / 2, (sl_coordinator_peer[]){11, 12, 1, 2, 3, 0});
    disconnect(f, 2);
    pass(f, 8 * SECOND, (sl_coordinator_peer[]){11, 12, 1, 3, 0});
    disconnect(f, 12);
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){11, 1, 3, 0});
    assert_int_equal(f->sent_count, 3); /* ps/0 and two workers */
    f->sent_count = 0;
}

CASE(coordinator_lost__a_ps_that_was_away_is_told_when_it_is_back)
{
    lose_worker_1(f);
    assert_int_equal(hello_as(f, 13, SL_MESSAGE_ROLE_PS, 1, 12), 0);
    expect_nothing(f);
    register_ps(f, 13, 2, 2);
    assert_int_equal(f->sent_count > 0, true);
    while (f->sent_count > 1) {
        expect_part(f, "cluster of 3 workers");
    }
    expect(f, "13#0 lost worker/1 of 2: no heartbeat for 10 s");
    register_ps(f, 13, 3, 2); /* once */
    expect_part(f, "13#3 cluster");
}

CASE(coordinator_lost__a_worker_that_came_back_is_not_reported_late)
{
    lose_worker_1(f);
    assert_int_equal(hello_as(f, 5, SL_MESSAGE_ROLE_WORKER, 1, 2), 0);
    join_ps(f, 12, 1, 12, 2, 2);
    expect_part(f, "12#2 cluster");
}

CASE(coordinator_lost__a_new_ps_learns_who_does_not_count)
{
    lose_worker_1(f);
    goodbye(f, 1);
    pass(f, 60 * SECOND, (sl_coordinator_peer[]){11, 3, 0});
    f->sent_count = 0; /* that ps/1 is lost */
    join_ps(f, 13, 1, 13, 1, 2);
    expect_part(f, "13#1 cluster of 3 workers");
    expect(f, "13#0 lost worker/0 of 1: it has left");
    expect(f, "13#0 lost worker/1 of 2: no heartbeat for 10 s");
}

/* Its connection may break before it has read who does not count. */
CASE(coordinator_lost__a_new_ps_is_told_again_on_its_next_connection)
{
    lose_worker_1(f);
    goodbye(f, 1);
    pass(f, 60 * SECOND, (sl_coordinator_peer[]){11, 3, 0});
    f->sent_count = 0;
    join_ps(f, 13, 1, 77, 1, 2);
    disconnect(f, 13);
    f->sent_count = 0;
    join_ps(f, 14, 1, 77, 1, 2);
    expect_part(f, "14#1 cluster of 3 workers");
    expect(f, "14#0 lost worker/0 of 1: it has left");
    expect(f, "14#0 lost worker/1 of 2: no heartbeat for 10 s");
}

/* A first ps, too: its connection may have broken as the cluster formed. */
CASE(coordinator_lost__every_ps_is_told_again_of_old_losses)
{
    lose_worker_1(f);
    pass(f, 60 * SECOND, (sl_coordinator_peer[]){11, 12, 1, 3, 0});
    disconnect(f, 12);
    f->sent_count = 0;
    join_ps(f, 14, 1, 12, 2, 2);
    expect_part(f, "14#2 cluster of 3 workers");
    expect(f, "14#0 lost worker/1 of 2: no heartbeat for 10 s");
}

/* It may not have reached all shards of that ps, which knows of nobody. */
CASE(coordinator_left__a_restarted_ps_is_told_after_a_lease)
{
    cluster_start(f);
    workers_join(f);
    goodbye(f, 3);
    disconnect(f, 12);
    join_ps(f, 13, 1, 13, 1, 2);
    f->sent_count = 0; /* that ps/1 was lost, the cluster, that worker/2 has left */
    goodbye(f, 2);
    const sl_coordinator_peer others[] = {11, 13, 1, 0};
    pass(f, 19 * SECOND / 2, others);
    expect_nothing(f);
    pass(f, SECOND / 2, others);
    expect(f, "13#0 lost worker/1 of 2: it has left");
    pass(f, 30 * SECOND, others);
}

CASE(coordinator_gone__expected_means_neither_away_nor_lost)
{
    workers_join(f);
    say(f, 1, barrier_message("b", 0, 1));
    sl_coordinator_gone(f->coordinator, 2, true, f->now_ns);
    sl_coordinator_gone(f->coordinator, 3, true, f->now_ns);
    expect_nothing(f);
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){1, 0});
    expect_nothing(f);
    pass(f, 28 * SECOND, (sl_coordinator_peer[]){1, 0});
    while (f->sent_count > 0) {
        expect_part(f, "1#1 waiting for worker/1 worker/2");
    }
}

/* The coordinator's process was started anew; everybody comes with what he has. */
CASE(coordinator_create__a_running_job_finds_a_new_coordinator)
{
    cluster_start(f);
    workers_join(f);
    fixture_remake(f, 2, 3);
    join_worker(f, 21, 0, 1, 9);
    say(f, 21, barrier_message("b", 2, 10));
    join_ps(f, 22, 1, 12, 8, 2);
    expect_nothing(f);
    join_ps(f, 23, 0, 99, 1, 2);
    expect(f, "21#9 cluster of 3 workers: ps/0 tcp://host23:1 x2 ps/1 tcp://host22:1 x2");
    expect_part(f, "22#8 cluster");
    expect_part(f, "23#1 cluster");
    assert_int_equal(hello_as(f, 24, SL_MESSAGE_ROLE_WORKER, 1, 2), 0);
    say(f, 24, barrier_message("b", 2, 10));
    expect(f, "21#10 done");
    expect(f, "24#10 done");
}
