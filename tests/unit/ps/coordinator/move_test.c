/* Shards move, and servers join and are drained, while the job runs: what the servers are told at
 * each state of a move. ps/0 is peer 11 and has shards 0 and 1 at the start, ps/1 is peer 12 and
 * has 2 and 3. */

#include <stdio.h>
#include <string.h>

#include "tests/unit/ps/coordinator/checkpoints.h"

#define PS       SL_MESSAGE_ROLE_PS
#define OPERATOR 30 /* peer */
#define WORKER   1  /* peer; it gets every cluster */

static const sl_coordinator_peer servers[] = {11, 12, OPERATOR, WORKER, 0};
static const sl_coordinator_peer three[] = {11, 12, 13, OPERATOR, WORKER, 0};

/* Registers a process that is peer % 10 of its task; shards 0: it joins. */
static void register_at(struct fixture *f, sl_coordinator_peer peer, uint32_t shards,
                        uint32_t replicas, const char *host,
                        const struct sl_message_replica_report *report)
{
    struct sl_message_replica_report copy = {0};
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .id = 1,
        .reg = {.shard_count = shards,
                .replicas = replicas,
                .serving = report != NULL,
                .replica_reports = &copy,
                .replica_report_count = report != NULL ? 1 : 0},
    };
    copy = report != NULL ? *report : copy;
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    (void)snprintf(message.reg.host, sizeof message.reg.host, "%s", host);
    say(f, peer, message);
}

static int hello_joining(struct fixture *f, sl_coordinator_peer peer, uint32_t task, bool any_task)
{
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = PS,
                                           .task_index = task,
                                           .any_task = any_task,
                                           .join_running = true,
                                           .client_id = peer};
    const int err = sl_coordinator_hello(f->coordinator, peer, &hello, f->now_ns, &f->reason);
    return err != 0 ? err : (int)sl_coordinator_task_index(f->coordinator, peer);
}

static void join(struct fixture *f, sl_coordinator_peer peer, uint32_t task, uint32_t replicas)
{
    assert_int_equal(hello_joining(f, peer, task, false), task);
    register_at(f, peer, 0, replicas, "", NULL);
}

static void operator_joins(struct fixture *f)
{
    const struct sl_message_hello hello = {.purpose = SL_MESSAGE_PURPOSE_CONTROL,
                                           .role = SL_MESSAGE_ROLE_CLIENT,
                                           .client_id = OPERATOR,
                                           .secret = SL_MESSAGE_SECRET_OPERATOR};
    assert_int_equal(sl_coordinator_hello(f->coordinator, OPERATOR, &hello, f->now_ns, &f->reason),
                     0);
}

static void begin(struct fixture *f, uint32_t replicas)
{
    fixture_remake(f, 2, 1);
    for (uint32_t ps = 0; ps < 2; ps++) {
        assert_int_equal(hello(f, 11 + ps, PS, ps), 0);
        register_at(f, 11 + ps, 2, replicas, "", NULL);
    }
    join_worker(f, WORKER, 0, WORKER, 1);
    operator_joins(f);
    f->sent_count = 0;
}

/* The answer comes first, then what follows from the change. */
static void change(struct fixture *f, enum sl_message_placement_verb verb, uint32_t shard,
                   uint32_t task, const char *answer)
{
    say(f, OPERATOR,
        (struct sl_message){.kind = SL_MESSAGE_PLACEMENT_CHANGE,
                            .id = 7,
                            .placement_change = {.verb = verb, .shard = shard, .task = task}});
    for (uint32_t i = 0; i < f->sent_count; i++) {
        if (strncmp(f->sent[i], "30#7 ", 5) == 0) {
            assert_string_equal(f->sent[i] + 5, answer);
            return;
        }
    }
    fail_msg("no answer");
}
#define move(f, shard, task, answer) change(f, SL_MESSAGE_PLACEMENT_MOVE, shard, task, answer)
#define drain(f, task, answer)       change(f, SL_MESSAGE_PLACEMENT_DRAIN, 0, task, answer)
#define balance(f, answer)           change(f, SL_MESSAGE_PLACEMENT_BALANCE, 0, 0, answer)

/* Compares the placements of the last cluster message; as in placement_test.c, and "~" marks a move
 * that has begun. */
static void expect_shards(struct fixture *f, const char *wanted)
{
    const char *shards = NULL;
    for (uint32_t i = 0; i < f->sent_count; i++) {
        const char *found = strstr(f->sent[i], " pairs ");
        shards = found == NULL ? shards : found + strlen(" pairs ");
    }
    assert_non_null(shards);
    assert_string_equal(shards, wanted);
    f->sent_count = 0;
}

static bool is_sent(const struct fixture *f, const char *to, const char *part)
{
    for (uint32_t i = 0; i < f->sent_count; i++) {
        if (strncmp(f->sent[i], to, strlen(to)) == 0 && strstr(f->sent[i], part) != NULL) {
            return true;
        }
    }
    return false;
}

/* The primary of a shard says how its backup gets on. */
static void report(struct fixture *f, sl_coordinator_peer peer, uint32_t shards, uint32_t replicas,
                   uint32_t shard, uint64_t epoch, bool in_sync)
{
    const struct sl_message_replica_report said = {
        .shard = shard, .epoch = epoch, .in_sync = in_sync};
    f->sent_count = 0;
    register_at(f, peer, shards, replicas, "", &said);
}

CASE(move__target_becomes_the_primary_when_it_is_in_sync)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    assert_true(is_sent(f, "11#0", "pairs")); /* both servers are told, and the worker */
    assert_true(is_sent(f, "12#0", "pairs"));
    assert_true(is_sent(f, "1#0", "pairs"));
    expect_shards(f, "0:e2 0>1~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 1, true); /* of an epoch that is over */
    expect_shards(f, "0:e2 0>1~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    pass(f, SECOND, servers);
    expect_nothing(f);
    move(f, 0, 0, "moves 0:1>0"); /* and back */
    expect_shards(f, "0:e4 1>0~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

CASE(move__waits_for_the_one_before)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    f->sent_count = 0;
    move(f, 2, 0, "moves 2:1>0");
    f->sent_count = 0;
    report(f, 12, 2, 0, 2, 1, true); /* has not begun */
    f->sent_count = 0;
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e2 1>0~ 3:e1 1>-");
    report(f, 12, 2, 0, 2, 2, true);
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e3 0>- 3:e1 1>-");
}

/* The files of a checkpoint come from one primary of each shard. */
CASE(move__waits_for_a_checkpoint)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    f->sent_count = 0;
    ask(f, WORKER, 5, 0);
    expect(f, "11#0 checkpoint 1 on 0");
    expect(f, "12#0 checkpoint 1 on 0");
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e2 0>1!~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    part_of(f, 11, 1, 0, 2);
    part_of(f, 12, 1, 2, 2);
    f->sent_count = 0;
    pass(f, SECOND, servers);
    expect_nothing(f);
    done(f, 11, 1);
    done(f, 12, 1);
    expect(f, "1#5 made 1");
    pass(f, SECOND, servers);
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    /* Then the new primary writes the file, and the checkpoint does not build on the one before. */
    ask(f, WORKER, 6, 0);
    expect(f, "11#0 checkpoint 2 on 0");
    expect(f, "12#0 checkpoint 2 on 0");
    part_of(f, 11, 2, 1, 1);
    struct sl_message_checkpoint_file files[] = {
        {"f2-0", .shard = 0}, {"f2-2", .shard = 2}, {"f2-3", .shard = 3}};
    say(f, 12,
        (struct sl_message){.kind = SL_MESSAGE_CHECKPOINT_PART,
                            .checkpoint_part = {.number = 2, .files = files, .file_count = 3}});
    expect_part(f, "11#0 complete 2 on 0");
    expect_part(f, "0 f2-0 1 f2-1 2 f2-2 3 f2-3");
}

CASE(move__is_aborted_if_the_target_expires)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    disconnect(f, 12);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, OPERATOR, WORKER, 0});
    expect_shards(f, "0:e3 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 2, true); /* too late */
    assert_int_equal(hello_as(f, 22, PS, 1, 22), 0);
    f->sent_count = 0;
    register_at(f, 22, 2, 0, "", NULL);
    expect_shards(f, "0:e3 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

CASE(move__is_aborted_if_the_primary_expires_before_the_target_is_in_sync)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    disconnect(f, 11);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){12, OPERATOR, WORKER, 0});
    expect_shards(f, "0:e3 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-"); /* the job waits for ps/0 */
    /* Its process comes back, with all that it had. */
    assert_int_equal(hello_as(f, 21, PS, 0, 11), 0);
    report(f, 21, 2, 0, 0, 2, true);
    expect_shards(f, "0:e3 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

/* Without a backup, and with one of the shards that moves only. */
CASE(move__is_completed_if_the_primary_expires_when_the_target_is_in_sync)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    ask(f, WORKER, 5, 0);
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e2 0>1!~ 1:e1 0>- 2:e1 1>- 3:e1 1>-"); /* the checkpoint is written */
    disconnect(f, 11);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){12, OPERATOR, WORKER, 0});
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    /* The process of ps/0 has shard 1 yet. */
    assert_int_equal(hello_as(f, 21, PS, 0, 11), 0);
    report(f, 21, 2, 0, 0, 2, true);
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

CASE(move__is_aborted_if_the_target_fails_three_times)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    report(f, 11, 2, 0, 0, 2, false);
    expect_shards(f, "0:e3 0>1~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 3, false);
    f->sent_count = 0;
    pass(f, 2 * SECOND, servers);
    expect_shards(f, "0:e4 0>1~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 4, false);
    expect_shards(f, "0:e5 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    pass(f, 20 * SECOND, servers);
    expect_nothing(f);
}

/* With backups: one that was in sync is given up for the move, and is there again after it. */
CASE(move__keeps_a_backup_on_a_third_server)
{
    begin(f, 1);
    join(f, 13, 2, 1); /* gets one shard: 2, 2 and 0 */
    report(f, 11, 2, 1, 0, 1, true);
    expect_shards(f, "0:e2 0>2~ 1:e1 0>1 2:e1 1>0 3:e1 1>0");
    report(f, 11, 2, 1, 0, 2, true);
    expect_shards(f, "0:e3 2>1 1:e1 0>1 2:e1 1>0 3:e1 1>0");
    report(f, 13, 0, 1, 0, 3, true);
    f->sent_count = 0;
    move(f, 0, 1, "moves 0:2>1"); /* to its backup: at once, and ps/2 is the backup */
    expect_shards(f, "0:e4 1>2 1:e1 0>1 2:e1 1>0 3:e1 1>0");
    /* An abort brings the former backup back. */
    report(f, 12, 2, 1, 0, 4, true);
    f->sent_count = 0;
    move(f, 0, 0, "moves 0:1>0");
    expect_shards(f, "0:e5 1>0~ 1:e1 0>1 2:e1 1>0 3:e1 1>0");
    disconnect(f, 11);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){12, 13, OPERATOR, WORKER, 0});
    expect_shards(f, "0:e6 1>2 1:e2 0>1 2:e2 1>- 3:e2 1>-");
}

CASE(join__new_server_gets_its_share)
{
    begin(f, 0);
    assert_int_equal(hello(f, 13, PS, 2), SL_ERR_INVALID); /* without join_running */
    assert_int_equal(hello_joining(f, 13, 0, true), 2);
    register_at(f, 13, 0, 0, "", NULL);
    assert_true(is_sent(f, "13#1", "ps/2 tcp://host13:1 x0 pairs "));
    expect_shards(f, "0:e2 0>2~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e3 2>- 1:e1 0>- 2:e1 1>- 3:e1 1>-"); /* 1, 2 and 1: done */
    pass(f, SECOND, three);
    expect_nothing(f);
    /* The job waits for it from now on, and another process takes its place. */
    disconnect(f, 13);
    pass(f, 11 * SECOND, servers);
    f->sent_count = 0;
    assert_int_equal(hello(f, 3, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    register_worker(f, 3, 4);
    pass(f, 4 * SECOND, servers);
    expect(f, "3#4 waiting for ps/2");
    assert_int_equal(hello_joining(f, 23, 0, true), 2);
    register_at(f, 23, 0, 0, "", NULL);
    assert_true(is_sent(f, "3#4", "ps/2 tcp://host23:1 x0 pairs 0:e3 2>-"));
    f->sent_count = 0;
}

/* Two servers that join before the job begins get their shares when it does. */
CASE(join__waits_for_the_beginning)
{
    fixture_remake(f, 1, 1);
    join(f, 13, 2, 0);
    expect_nothing(f);
    assert_int_equal(hello(f, 11, PS, 0), 0);
    register_at(f, 11, 2, 0, "", NULL);
    assert_true(is_sent(f, "13#1", "cluster of 1 workers: ps/0"));
    pass(f, SECOND, (sl_coordinator_peer[]){11, 13, 0});
    expect_shards(f, "0:e2 0>2~ 1:e1 0>-");
}

CASE(join__what_cannot_be_is_refused)
{
    begin(f, 0);
    assert_int_equal(hello_joining(f, 13, 2, false), 2);
    register_at(f, 13, 2, 0, "", NULL);
    expect_part(f, "a server that joins a running job brings no shards");
    register_at(f, 13, 0, 1, "", NULL);
    expect_part(f, "it has other --replicas than the others");
    register_at(f, 12, 0, 0, "", NULL);
    expect_part(f, "a server of the job's start has shards of its own");
}

CASE(drain__moves_all_shards_and_ends_the_process)
{
    begin(f, 0);
    drain(f, 1, "moves 2:1>0 3:1>0");
    expect_shards(f, "0:e1 0>- 1:e1 0>- 2:e2 1>0~ 3:e1 1>-");
    report(f, 12, 2, 0, 2, 2, true);
    expect_shards(f, "0:e1 0>- 1:e1 0>- 2:e3 0>- 3:e2 1>0~");
    report(f, 12, 2, 0, 3, 2, true);
    assert_true(is_sent(f, "12#1", "3:e3 0>-")); /* it can tell clients where its shards are */
    f->sent_count = 0;
    pass(f, SECOND / 2, servers);
    assert_true(is_sent(f, "12#0", "ended: ps/1 was drained: other servers have its shards"));
    assert_false(is_sent(f, "12#0", "cluster"));
    assert_true(is_sent(f, "1#0", ": ps/0 tcp://host11:1 x2 pairs"));
    expect_shards(f, "0:e1 0>- 1:e1 0>- 2:e3 0>- 3:e3 0>-");
    /* A process that missed this is told again; another one has to join. */
    disconnect(f, 12);
    assert_int_equal(hello_as(f, 22, PS, 1, 12), 0);
    report(f, 22, 2, 0, 3, 2, true);
    expect(f, "22#0 ended: ps/1 was drained: other servers have its shards");
    goodbye(f, 22);
    expect_nothing(f);
    pass(f, 20 * SECOND, (sl_coordinator_peer[]){11, OPERATOR, WORKER, 0});
    expect_nothing(f); /* nobody waits for it */
    assert_int_equal(hello(f, 32, PS, 1), 0);
    register_at(f, 32, 2, 0, "", NULL);
    expect_part(f, "it was drained, and other servers have its shards: start it with --join");
    goodbye(f, 32);
    assert_int_equal(hello_joining(f, 42, 0, true), 1); /* the lowest free one */
    register_at(f, 42, 0, 0, "", NULL);
    expect_shards(f, "0:e2 0>1~ 1:e1 0>- 2:e3 0>- 3:e3 0>-");
}

/* A checkpoint, and the end of the job, ask the servers that are left only. */
CASE(drain__drained_server_has_no_part_in_a_checkpoint)
{
    begin(f, 0);
    drain(f, 1, "moves 2:1>0 3:1>0");
    report(f, 12, 2, 0, 2, 2, true);
    report(f, 12, 2, 0, 3, 2, true);
    pass(f, SECOND / 2, servers);
    f->sent_count = 0;
    ask(f, WORKER, 5, 0);
    expect(f, "11#0 checkpoint 1 on 0");
    part_of(f, 11, 1, 0, 4);
    expect_part(f, "11#0 complete 1 on 0");
    done(f, 11, 1);
    expect(f, "1#5 made 1");
}

/* With backups: they leave the server too, one after the other, before it ends. */
CASE(drain__backups_leave_too)
{
    begin(f, 1);
    join(f, 13, 2, 1);
    report(f, 11, 2, 1, 0, 2, true);
    report(f, 13, 0, 1, 0, 3, true);
    report(f, 11, 2, 1, 1, 1, true);
    report(f, 12, 2, 1, 2, 1, true);
    report(f, 12, 2, 1, 3, 1, true);
    expect_shards(f, "0:e3 2>1! 1:e1 0>1! 2:e1 1>0! 3:e1 1>0!");
    /* Shard 2 to its backup, at once; then shard 3 to the emptiest. */
    drain(f, 1, "moves 2:1>0 3:1>2");
    expect_shards(f, "0:e4 2>0 1:e1 0>1! 2:e2 0>2 3:e2 1>2~");
    report(f, 13, 0, 1, 0, 4, true);
    report(f, 11, 2, 1, 2, 2, true);
    report(f, 12, 2, 1, 3, 2, true);
    expect_shards(f, "0:e4 2>0! 1:e1 0>1! 2:e2 0>2! 3:e3 2>0");
    report(f, 13, 0, 1, 3, 3, true);
    pass(f, SECOND / 2, three);
    assert_true(is_sent(f, "12#0", "ended: ps/1 was drained"));
    expect_shards(f, "0:e4 2>0! 1:e2 0>2 2:e2 0>2! 3:e3 2>0!");
}

CASE(drain__server_may_ask_for_its_own)
{
    begin(f, 0);
    struct sl_message message = {
        .kind = SL_MESSAGE_PLACEMENT_CHANGE,
        .id = 7,
        .placement_change = {.verb = SL_MESSAGE_PLACEMENT_DRAIN, .task = 1},
    };
    say(f, 11, message);
    expect_part(f, "11#7 error refused: this needs the operator's secret");
    say(f, 12, message);
    assert_true(is_sent(f, "12#7", "moves 2:1>0 3:1>0"));
    expect_shards(f, "0:e1 0>- 1:e1 0>- 2:e2 1>0~ 3:e1 1>-");
}

/* ps/0 and ps/1 share a host: no shard has both copies there, where another is. */
CASE(move__backup_is_on_another_host)
{
    fixture_remake(f, 3, 1);
    for (uint32_t ps = 0; ps < 3; ps++) {
        assert_int_equal(hello(f, 11 + ps, PS, ps), 0);
        register_at(f, 11 + ps, 1, 1, ps < 2 ? "a" : "b", NULL);
    }
    join_worker(f, WORKER, 0, WORKER, 1);
    operator_joins(f);
    const struct sl_message_replica_report in_sync = {.shard = 0, .epoch = 1, .in_sync = true};
    register_at(f, 11, 1, 1, "a", &in_sync);
    f->sent_count = 0;
    move(f, 0, 1, "moves 0:0>1");
    expect_shards(f, "0:e2 1>2 1:e1 1>2 2:e1 2>0");
    drain(f, 1, "moves 0:1>0 1:1>0"); /* ps/2 would have as many, but is the backups' host */
    f->sent_count = 0;
}

CASE(drain__what_cannot_be_is_refused)
{
    begin(f, 0);
    drain(f, 0,
          "error refused: ps/0 cannot be drained: it hosts the coordinator, which could go on "
          "elsewhere only with a cluster store (--cluster-store)");
    f->sent_count = 0;
    drain(f, 7, "error not found: there is no ps/7");
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, OPERATOR, WORKER, 0});
    f->sent_count = 0;
    drain(f, 1,
          "error refused: ps/1 cannot be drained: it is not there, and no other server has its "
          "shards; it has to be restarted first");
    f->sent_count = 0;
    begin(f, 1);
    drain(f, 1,
          "error refused: ps/1 cannot be drained: with --replicas two servers must stay; another "
          "has to join first");
    f->sent_count = 0;
    f->remembers = true;
    begin(f, 0);
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, OPERATOR, WORKER, 0});
    f->sent_count = 0;
    drain(f, 0,
          "error refused: ps/0 cannot be drained: no other server is there to get its shards; "
          "another has to join first");
    f->sent_count = 0;
}

CASE(move__what_cannot_be_is_refused)
{
    begin(f, 0);
    say(f, WORKER,
        (struct sl_message){.kind = SL_MESSAGE_PLACEMENT_CHANGE,
                            .id = 7,
                            .placement_change = {.shard = 0, .task = 1}});
    expect_part(f, "1#7 error refused: this needs the operator's secret");
    move(f, 4, 1, "error not found: there is no shard 4: the job has 4");
    f->sent_count = 0;
    move(f, 0, 0, "error exists: shard 0 is at ps/0 already");
    f->sent_count = 0;
    move(f, 0, 5, "error not found: shard 0 cannot move from ps/0 to ps/5: ps/5 is not there");
    f->sent_count = 0;
    move(f, 0, 1, "moves 0:0>1");
    f->sent_count = 0;
    move(f, 0, 1, "error exists: shard 0 moves from ps/0 to ps/1 already");
    f->sent_count = 0;
    f->remembers = true;
    begin(f, 0);
    drain(f, 1, "moves 2:1>0 3:1>0");
    f->sent_count = 0;
    move(f, 0, 1, "error refused: shard 0 cannot move from ps/0 to ps/1, which is being drained");
    f->sent_count = 0;
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, OPERATOR, WORKER, 0});
    f->sent_count = 0;
    move(f, 3, 0, "error not found: shard 3 cannot move from ps/1 to ps/0: ps/1 is not there");
    f->sent_count = 0;
    fixture_remake(f, 2, 1);
    operator_joins(f);
    move(f, 0, 1, "error again: shards can move when the job has begun: it waits for servers");
    f->sent_count = 0;
}

CASE(balance__evens_out_and_ends)
{
    begin(f, 0);
    balance(f, "moves");
    expect_count(f, 1);
    move(f, 0, 1, "moves 0:0>1");
    report(f, 11, 2, 0, 0, 2, true);
    f->sent_count = 0;
    say(f, OPERATOR,
        (struct sl_message){
            .kind = SL_MESSAGE_PLACEMENT_CHANGE,
            .id = 8,
            .placement_change = {.verb = SL_MESSAGE_PLACEMENT_BALANCE, .dry_run = true}});
    expect(f, "30#8 moves 0:1>0");
    expect_nothing(f);
    balance(f, "moves 0:1>0");
    expect_shards(f, "0:e4 1>0~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 12, 2, 0, 0, 4, true);
    expect_shards(f, "0:e5 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

/* Otherwise it would choose the same move again. */
CASE(balance__ends_when_the_target_refuses_the_shard)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    report(f, 11, 2, 0, 0, 2, true);
    balance(f, "moves 0:1>0");
    const struct sl_message_replica_report refused = {
        .shard = 0, .epoch = 4, .role = SL_MESSAGE_REPLICA_NEITHER};
    f->sent_count = 0;
    register_at(f, 11, 2, 0, "", &refused);
    expect_shards(f, "0:e5 1>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    pass(f, 60 * SECOND, servers);
    expect_nothing(f);
    balance(f, "moves 0:1>0"); /* until the operator asks again */
    expect_shards(f, "0:e6 1>0~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

/* Another coordinator has the records: the servers come back to it, without reports. */
static void take_over(struct fixture *f)
{
    fixture_take_over(f);
    for (uint32_t ps = 0; ps < 2; ps++) {
        assert_int_equal(hello_as(f, 11 + ps, PS, ps, 11 + ps), 0);
    }
    assert_int_equal(hello_as(f, WORKER, SL_MESSAGE_ROLE_WORKER, 0, WORKER), 0);
    operator_joins(f);
    f->sent_count = 0;
    register_worker(f, WORKER, 9);
}

CASE_WITH_RECORDS(move__goes_on_with_the_next_coordinator)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    f->sent_count = 0;
    move(f, 2, 0, "moves 2:1>0"); /* waits */
    take_over(f);
    report(f, 11, 2, 0, 0, 2, false);
    expect_shards(f, "0:e3 0>1~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    report(f, 11, 2, 0, 0, 3, true);
    expect_shards(f, "0:e4 1>- 1:e1 0>- 2:e2 1>0~ 3:e1 1>-");
    take_over(f);
    assert_true(is_sent(f, "1#9", "pairs 0:e4 1>- 1:e1 0>- 2:e2 1>0~ 3:e1 1>-"));
    f->sent_count = 0;
}

/* A target of the records may have died with the coordinator: it has to come back first. */
CASE_WITH_RECORDS(move__is_committed_when_the_target_has_come_back)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    ask(f, WORKER, 5, 0);
    report(f, 11, 2, 0, 0, 2, true);
    f->sent_count = 0;
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 11, PS, 0, 11), 0);
    register_at(f, 11, 2, 0, "", NULL);
    assert_true(is_sent(f, "11#1", "pairs 0:e2 0>1!~"));
    f->sent_count = 0;
    pass(f, SECOND, (sl_coordinator_peer[]){11, 0});
    expect_nothing(f);
    assert_int_equal(hello(f, 22, PS, 1), 0); /* another process */
    expect_shards(f, "0:e3 0>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

/* In sync, but not committed: the next coordinator commits. */
CASE_WITH_RECORDS(move__is_committed_by_the_next_coordinator)
{
    begin(f, 0);
    move(f, 0, 1, "moves 0:0>1");
    ask(f, WORKER, 5, 0);
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e2 0>1!~ 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    take_over(f);
    expect_shards(f, "0:e3 1>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
}

CASE_WITH_RECORDS(drain__goes_on_with_the_next_coordinator)
{
    begin(f, 0);
    drain(f, 1, "moves 2:1>0 3:1>0");
    report(f, 12, 2, 0, 2, 2, true);
    take_over(f);
    report(f, 12, 2, 0, 3, 2, true);
    pass(f, SECOND / 2, servers);
    assert_true(is_sent(f, "12#0", "ended: ps/1 was drained"));
    expect_shards(f, "0:e1 0>- 1:e1 0>- 2:e3 0>- 3:e3 0>-");
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 11, PS, 0, 11), 0);
    register_at(f, 11, 2, 0, "", NULL);
    assert_true(is_sent(f, "11#1", ": ps/0 tcp://host11:1 x2 pairs 0:e1")); /* and no ps/1 */
    f->sent_count = 0;
}

CASE_WITH_RECORDS(join__goes_on_with_the_next_coordinator)
{
    begin(f, 0);
    join(f, 13, 2, 0);
    report(f, 11, 2, 0, 0, 2, true);
    expect_shards(f, "0:e3 2>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    take_over(f);
    assert_int_equal(hello_as(f, 13, PS, 2, 13), 0); /* it is known */
    f->sent_count = 0;
    register_at(f, 13, 0, 0, "", NULL);
    expect_shards(f, "0:e3 2>- 1:e1 0>- 2:e1 1>- 3:e1 1>-");
    pass(f, SECOND, three);
    expect_nothing(f);
}

/* Without records: the places are as the servers say, one that joined among them. */
static void come_back(struct fixture *f, uint32_t task, uint32_t shards, uint32_t own_plus_1)
{
    struct sl_message_replica_report reports[4];
    for (uint32_t i = 0; i < 4; i++) {
        const bool is_own = i + 1 == own_plus_1 || (task < 2 && i == 2 * task + 1);
        reports[i] = (struct sl_message_replica_report){
            .shard = i,
            .epoch = i == 1 || i == 3 ? 1 : 3,
            .role = is_own ? SL_MESSAGE_REPLICA_PRIMARY : SL_MESSAGE_REPLICA_NEITHER};
    }
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                 .id = 1,
                                 .reg = {.shard_count = shards,
                                         .serving = true,
                                         .replica_reports = reports,
                                         .replica_report_count = 4}};
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   11 + task);
    say(f, 11 + task, message);
}

CASE(join__is_waited_for_by_a_coordinator_without_records)
{
    fixture_remake(f, 2, 1);
    assert_int_equal(hello(f, 11, PS, 0), 0);
    assert_int_equal(hello(f, 12, PS, 1), 0);
    come_back(f, 0, 2, 0); /* shard 0 has moved away */
    come_back(f, 1, 2, 1); /* here; and shard 2 has moved away */
    pass(f, 2 * SECOND, three);
    expect_nothing(f);
    assert_int_equal(hello_joining(f, 13, 2, false), 2);
    come_back(f, 2, 0, 3); /* here */
    expect_shards(f, "0:e4 1>- 1:e1 0>- 2:e4 2>- 3:e1 1>-");
    pass(f, 2 * SECOND, three);
    expect_nothing(f);
}

CASE(join__is_not_waited_for_longer_than_a_lease)
{
    fixture_remake(f, 2, 1);
    assert_int_equal(hello(f, 11, PS, 0), 0);
    assert_int_equal(hello(f, 12, PS, 1), 0);
    come_back(f, 0, 2, 0);
    come_back(f, 1, 2, 1);
    pass(f, 9 * SECOND, three);
    expect(f, "11#1 waiting for a server that has joined");
    assert_false(is_sent(f, "1", "cluster"));
    pass(f, 2 * SECOND, three);
    expect_shards(f, "0:e4 1>- 1:e1 0>- 2:e4 1>- 3:e1 1>-");
}
