/* The coordinator: the identity of a job, and servers that are not of it. */

#include <stdio.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

#define PS     SL_MESSAGE_ROLE_PS
#define WORKER SL_MESSAGE_ROLE_WORKER

/* A member of job `job` says hello and registers. A server that knows a job serves. */
static void join(struct fixture *f, sl_coordinator_peer peer, enum sl_message_role role,
                 uint32_t task, struct sl_message_register reg)
{
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER, .id = 1, .reg = reg};
    message.reg.shard_count = role == PS ? 1 : 0;
    message.reg.serving = role == PS && reg.job != 0;
    if (role == PS) {
        (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://h%u:1",
                       (unsigned)peer);
    }
    assert_int_equal(hello(f, peer, role, task), 0);
    say(f, peer, message);
}

#define JOB(number)                                                                                \
    (struct sl_message_register)                                                                   \
    {                                                                                              \
        .job = (number), .has_tables = (number) != 0                                               \
    }
#define UNCLAIMED(number)                                                                          \
    (struct sl_message_register)                                                                   \
    {                                                                                              \
        .unclaimed = (number), .checkpoint_newest = (number)                                       \
    }

static void follow(struct fixture *f, uint64_t identity, uint32_t ps_count, uint32_t worker_count)
{
    f->identity = identity;
    fixture_follow(f, ps_count, worker_count);
}

CASE(identity__goes_to_every_member)
{
    follow(f, 7, 1, 1);
    join(f, 11, PS, 0, JOB(0));
    join(f, 1, WORKER, 0, JOB(0));
    expect_part(f, "stage 1 err ok");
    expect(f, "11#1 cluster of 1 workers of job 7: ps/0 tcp://h11:1 x1");
    expect(f, "1#1 cluster of 1 workers of job 7: ps/0 tcp://h11:1 x1");
}

/* A scheduler was killed with its worker, and another job begins: a server is left over. */
CASE(identity__server_of_an_earlier_job_is_refused)
{
    follow(f, 7, 1, 1);
    join(f, 11, PS, 0, JOB(3));
    join(f, 1, WORKER, 0, JOB(0));
    expect(f, "11#1 error refused: ps/0 has tables and clocks of an earlier job: start it again");
    expect_nothing(f); /* the worker waits for another server */
    disconnect(f, 11);
    join(f, 12, PS, 0, JOB(0));
    expect_part(f, "1#0 lost ps/0 of 11");
    expect_part(f, "stage 1 err ok");
    expect(f, "1#1 cluster of 1 workers of job 7: ps/0 tcp://h12:1 x1");
    f->sent_count = 0;
}

/* The scheduler alone was killed. */
CASE(identity__restarted_scheduler_continues_the_job_of_a_worker)
{
    follow(f, 7, 1, 2);
    join(f, 11, PS, 0, JOB(3));
    join(f, 1, WORKER, 0, JOB(0)); /* a replacement */
    join(f, 2, WORKER, 1, JOB(3));
    expect_part(f, "stage 1 err ok");
    expect(f, "11#1 cluster of 2 workers of job 3: ps/0 tcp://h11:1 x1");
    f->sent_count = 0;
}

/* Without a scheduler the coordinator dies with ps/0; the others continue. */
CASE(identity__restarted_ps_0_continues_the_job_of_the_others)
{
    f->identity = 7;
    fixture_remake(f, 3, 0);
    join(f, 12, PS, 1, JOB(3));
    join(f, 13, PS, 2, JOB(3));
    join(f, 1, WORKER, 0, JOB(9)); /* it has missed an identity */
    join(f, 11, PS, 0, JOB(0));
    for (int i = 0; i < 4; i++) {
        expect_part(f, " of job 3");
    }
}

CASE(identity__serving_server_of_another_job_is_refused_later)
{
    f->identity = 7;
    fixture_remake(f, 2, 0);
    join(f, 11, PS, 0, JOB(0));
    join(f, 12, PS, 1, JOB(0));
    f->sent_count = 0;
    goodbye(f, 12);
    f->sent_count = 0;
    join(f, 13, PS, 1, JOB(3));
    expect_part(f, "13#1 error refused: ps/1 has tables and clocks of an earlier job");
    disconnect(f, 13);
    f->sent_count = 0;
    join(f, 14, PS, 1, JOB(7)); /* its own */
    expect_part(f, "11#0 lost ps/1 of 13");
    expect_part(f, "14#1 cluster of 0 workers of job 7");
    f->sent_count = 0;
}

/* Of an older version: its job is unknown. */
CASE(identity__of_members_that_know_none)
{
    f->identity = 7;
    fixture_remake(f, 1, 0);
    assert_int_equal(hello(f, 11, PS, 0), 0);
    say(f, 11,
        (struct sl_message){
            .kind = SL_MESSAGE_REGISTER,
            .id = 1,
            .reg = {.shard_count = 1, .serving = true, .data_endpoint = "tcp://h:1"}});
    expect_part(f, "11#1 cluster of 0 workers of job 7");
}

CASE_WITH_RECORDS(identity__next_leader_continues_the_job)
{
    f->identity = 7;
    fixture_remake(f, 2, 3);
    join(f, 11, PS, 0, JOB(0));
    join(f, 12, PS, 1, JOB(0));
    f->sent_count = 0;
    f->identity = 8;
    fixture_take_over(f);
    join(f, 11, PS, 0, JOB(7));
    join(f, 12, PS, 1, JOB(7));
    expect_part(f, "of job 7");
    expect_part(f, "of job 7");
}

/* Checkpoints that a new job finds */

CASE(unclaimed__checkpoints_refuse_a_new_job)
{
    f->identity = 7;
    fixture_remake(f, 2, 0);
    join(f, 11, PS, 0, JOB(0));
    join(f, 12, PS, 1, UNCLAIMED(5));
    expect_part(f, "12#1 error in use: ps/1 has checkpoints of an earlier job, the newest is 5: "
                   "--restore newest continues that job, --fresh starts empty");
    expect_nothing(f);
    disconnect(f, 12);
    join(f, 13, PS, 1, JOB(0)); /* started again with --fresh */
    expect_part(f, " of job 7");
    expect_part(f, " of job 7");
}

/* A server was killed, and returns to its job with the flags that it had. */
CASE(unclaimed__checkpoints_of_the_own_job_refuse_nothing)
{
    f->identity = 7;
    fixture_remake(f, 2, 0);
    join(f, 11, PS, 0, JOB(0));
    join(f, 12, PS, 1, JOB(0));
    f->sent_count = 0;
    disconnect(f, 12);
    join(f, 13, PS, 1, UNCLAIMED(5));
    expect_part(f, "11#0 lost ps/1 of 12");
    expect_part(f, "13#1 cluster");
    f->sent_count = 0;
    /* Likewise ps/0, with its coordinator. */
    f->identity = 8;
    fixture_remake(f, 2, 0);
    join(f, 13, PS, 1, JOB(7));
    join(f, 14, PS, 0, UNCLAIMED(5));
    expect_part(f, " of job 7");
    expect_part(f, " of job 7");
}

CASE_WITH_RECORDS(unclaimed__new_job_keeps_the_checkpoints_before_it)
{
    f->identity = 7;
    fixture_remake(f, 2, 0);
    join(f, 11, PS, 0, (struct sl_message_register){.checkpoint_newest = 5});
    join(f, 12, PS, 1, (struct sl_message_register){.checkpoint_newest = 4});
    expect_part(f, "11#1 cluster of 0 workers beside 5 of job 7");
    expect_part(f, "12#1 cluster of 0 workers beside 5 of job 7");
    disconnect(f, 12);
    join(f, 13, PS, 1, UNCLAIMED(9)); /* also in place of another: 6 to 9 are this job's */
    expect_part(f, "11#0 lost ps/1 of 12");
    expect_part(f, "13#1 cluster of 0 workers beside 5 of job 7");
    fixture_take_over(f);
    join(f, 11, PS, 0, JOB(7));
    join(f, 13, PS, 1, JOB(7));
    expect_part(f, " beside 5 of job 7");
    expect_part(f, " beside 5 of job 7");
    /* A job that continues keeps none. */
    fixture_remake(f, 1, 0);
    join(f, 11, PS, 0, (struct sl_message_register){.restore = 5, .checkpoint_newest = 5});
    expect_part(f, "11#1 cluster of 0 workers from 5 not (5, 5] of job 7");
}
