/* Where the shards are, and their backups: epochs. */

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/checkpoints.h"

#define PS_COUNT 3

/* A ps with backups, at tcp://host<peer>:1, which says how one pair gets on; epoch 0: none. */
static void register_as(struct fixture *f, sl_coordinator_peer peer,
                        struct sl_message_replica_report pair, uint32_t shards, bool serving)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .id = 1,
        .reg = {.shard_count = shards,
                .replicas = 1,
                .serving = serving,
                .replica_reports = &pair,
                .replica_report_count = pair.epoch == 0 ? 0 : 1},
    };
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    say(f, peer, message);
}

static void register_with(struct fixture *f, sl_coordinator_peer peer,
                          struct sl_message_replica_report pair, uint32_t shards)
{
    register_as(f, peer, pair, shards, false);
}

static void report(struct fixture *f, sl_coordinator_peer peer, uint32_t task, uint64_t epoch,
                   bool in_sync)
{
    const struct sl_message_replica_report pair = {
        .shard = task, .epoch = epoch, .in_sync = in_sync};
    f->sent_count = 0;
    register_with(f, peer, pair, 1);
}

static void join(struct fixture *f, sl_coordinator_peer peer, uint32_t task)
{
    assert_int_equal(hello(f, peer, SL_MESSAGE_ROLE_PS, task), 0);
    register_with(f, peer, (struct sl_message_replica_report){.epoch = 0}, 1);
}

/* ps 0 to 2 are peers 11 to 13; a worker is peer 1. */
static void begin(struct fixture *f)
{
    fixture_remake(f, PS_COUNT, 1);
    for (uint32_t task = 0; task < PS_COUNT; task++) {
        join(f, 11 + task, task);
    }
    join_worker(f, 1, 0, 1, 1);
}

/* Compares the pairs of the last cluster message: "0:e1 0>1" is epoch 1 of ps 0, which is its own
 * primary, and whose backup is on ps 1; "!" means in sync. */
static void expect_pairs(struct fixture *f, const char *wanted)
{
    assert_true(f->sent_count > 0);
    const char *pairs = NULL;
    for (uint32_t i = 0; i < f->sent_count; i++) {
        const char *found = strstr(f->sent[i], " pairs ");
        pairs = found == NULL ? pairs : found;
    }
    assert_non_null(pairs);
    assert_string_equal(pairs + strlen(" pairs "), wanted);
    f->sent_count = 0;
}

static void in_sync(struct fixture *f)
{
    for (uint32_t task = 0; task < PS_COUNT; task++) {
        report(f, 11 + task, task, 1, true);
    }
    expect_pairs(f, "0:e1 0>1! 1:e1 1>2! 2:e1 2>0!");
}

CASE(coordinator_placement__begins_with_the_next_ps_as_backup)
{
    begin(f);
    expect_pairs(f, "0:e1 0>1 1:e1 1>2 2:e1 2>0");
    in_sync(f);
}

CASE(coordinator_placement__the_backup_takes_over)
{
    begin(f);
    in_sync(f);
    disconnect(f, 12);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    /* What it had backups of has none. A ps and a worker are told, unasked. */
    expect_pairs(f, "0:e2 0>- 1:e2 2>- 2:e1 2>0!");
    /* Another process in its place gets backups, and no shards. */
    join(f, 22, 1);
    expect_pairs(f, "0:e3 0>1 1:e3 2>1 2:e1 2>0!");
    report(f, 13, 1, 3, true);
    expect_pairs(f, "0:e3 0>1 1:e3 2>1! 2:e1 2>0!");
    /* And takes over in its turn. */
    disconnect(f, 13);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 22, 1, 0});
    expect_pairs(f, "0:e3 0>1 1:e4 1>- 2:e2 0>-");
}

/* The statistics have the number of shards without a backup that is in sync. */
CASE(coordinator_placement__counts_the_shards_without_a_backup)
{
    begin(f);
    f->sent_count = 0;
    say(f, 1, (struct sl_message){.kind = SL_MESSAGE_STATS_GET, .id = 2});
    expect(f, "1#2 stats of 0 tables, 3 shards alone");
    in_sync(f);
    say(f, 1, (struct sl_message){.kind = SL_MESSAGE_STATS_GET, .id = 3});
    expect(f, "1#3 stats of 0 tables");
    disconnect(f, 12);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    f->sent_count = 0;
    say(f, 1, (struct sl_message){.kind = SL_MESSAGE_STATS_GET, .id = 4});
    expect(f, "1#4 stats of 0 tables, 2 shards alone");
}

/* Each server that serves shards has a part in a checkpoint: their files, and no others. */
CASE(coordinator_placement__who_serves_writes_the_checkpoint)
{
    begin(f);
    in_sync(f);
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    f->sent_count = 0;
    ask(f, 1, 5, 0);
    expect(f, "11#0 checkpoint 1 on 0");
    expect(f, "13#0 checkpoint 1 on 0");
    part_of(f, 11, 1, 0, 1);
    part_of(f, 13, 1, 2, 1); /* its own only */
    expect(f, "1#5 error protocol: checkpoint 1 is aborted: ps/2 has written other files than "
              "those of the shards that it serves");
    ask(f, 1, 6, 0);
    expect(f, "11#0 checkpoint 2 on 0");
    expect(f, "13#0 checkpoint 2 on 0");
    part_of(f, 13, 2, 1, 2);
    part_of(f, 11, 2, 0, 1);
    expect(f, "11#0 complete 2 on 0 at 11000: 0 f2-0 1 f2-1 2 f2-2");
    expect(f, "13#0 complete 2 on 0 at 11000: 0 f2-0 1 f2-1 2 f2-2");
    done(f, 11, 2);
    done(f, 13, 2);
    expect(f, "1#6 made 2");
}

/* Registers with a checkpoint in its folder. */
static void join_restoring(struct fixture *f, sl_coordinator_peer peer, uint32_t task,
                           uint64_t restore)
{
    assert_int_equal(hello(f, peer, SL_MESSAGE_ROLE_PS, task), 0);
    struct sl_message message = {.kind = SL_MESSAGE_REGISTER,
                                 .id = 1,
                                 .reg = {.shard_count = 1,
                                         .replicas = 1,
                                         .restore = restore,
                                         .checkpoint_newest = restore,
                                         .complete = {.items = {restore}, .count = 1}}};
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   (unsigned)peer);
    say(f, peer, message);
}

/* Its shards live on elsewhere: it begins with nothing, and gets their backups. Where nobody has
 * them, it begins from the checkpoint. */
CASE(coordinator_placement__who_comes_back_restores_what_nobody_has)
{
    fixture_remake(f, PS_COUNT, 1);
    for (uint32_t task = 0; task < PS_COUNT; task++) {
        join_restoring(f, 11 + task, task, 5);
    }
    expect_part(f, "from 5");
    f->sent_count = 0;
    in_sync(f);
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 0});
    f->sent_count = 0;
    join_restoring(f, 22, 1, 5);
    assert_true(f->sent_count > 0);
    for (uint32_t i = 0; i < f->sent_count; i++) {
        assert_true(strncmp(f->sent[i], "22#1 ", 5) != 0 || strstr(f->sent[i], " from ") == NULL);
    }
    disconnect(f, 22);
    disconnect(f, 13);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 0});
    f->sent_count = 0;
    join_restoring(f, 33, 2, 5);
    bool is_told = false;
    for (uint32_t i = 0; i < f->sent_count; i++) {
        is_told = is_told || strstr(f->sent[i], "33#1 cluster of 1 workers from 5") != NULL;
    }
    assert_true(is_told);
    f->sent_count = 0;
}

CASE(coordinator_placement__one_that_was_deposed_is_refused)
{
    begin(f);
    in_sync(f);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 32, SL_MESSAGE_ROLE_PS, 1, 12), 0);
    register_with(f, 32, (struct sl_message_replica_report){.epoch = 0}, 1);
    expect_part(f, "its backup serves its shards now: restart it");
}

/* Replaced long ago, and still as it was then: its shards are not those that were served since. */
CASE(coordinator_placement__one_that_was_replaced_is_refused)
{
    begin(f);
    in_sync(f);
    disconnect(f, 12);
    join(f, 22, 1);
    report(f, 13, 1, 3, true);
    disconnect(f, 13); /* another is deposed since */
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 22, 1, 0});
    disconnect(f, 22);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 1, 0});
    assert_int_equal(hello_as(f, 32, SL_MESSAGE_ROLE_PS, 1, 12), 0);
    f->sent_count = 0;
    register_as(f, 32, (struct sl_message_replica_report){.shard = 1, .epoch = 1, .in_sync = true},
                1, true);
    expect_part(f, "another process has its task now: restart it");
}

/* Nobody is told that another serves what it does not have. */
CASE(coordinator_placement__one_out_of_step_does_not_take_over)
{
    begin(f);
    report(f, 11, 0, 1, true);
    disconnect(f, 12);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    /* The job waits for ps/1; ps/0 does not. */
    expect_pairs(f, "0:e2 0>- 1:e2 1>2 2:e1 2>0");
    join(f, 22, 1);
    expect_pairs(f, "0:e3 0>1 1:e3 1>2 2:e1 2>0");
}

static bool is_told(struct fixture *f, const char *whom)
{
    bool told = false;
    for (uint32_t i = 0; i < f->sent_count; i++) {
        told = told || (strncmp(f->sent[i], whom, strlen(whom)) == 0 &&
                        strstr(f->sent[i], " pairs ") != NULL);
    }
    return told;
}

/* Two are lost, one of them with what only it had: whom the rest concerns is told; who begins now
 * waits for all. */
CASE(coordinator_placement__the_others_are_told_while_one_is_missing)
{
    begin(f);
    report(f, 11, 0, 1, true);
    report(f, 13, 2, 1, true);
    disconnect(f, 12);
    disconnect(f, 13);
    f->sent_count = 0;
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 1, 0});
    assert_true(is_told(f, "11#0"));
    assert_true(is_told(f, "1#0"));
    expect_pairs(f, "0:e2 0>- 1:e3 1>- 2:e2 0>-");
    assert_int_equal(hello(f, 2, SL_MESSAGE_ROLE_CLIENT, 0), 0);
    f->sent_count = 0;
    register_worker(f, 2, 7);
    assert_false(is_told(f, "2#7"));
    /* It gets the backups of what ps/0 serves. */
    join(f, 22, 2);
    assert_true(is_told(f, "22#1"));
    expect_pairs(f, "0:e2 0>- 1:e4 1>2 2:e3 0>2");
    join(f, 33, 1);
    assert_true(is_told(f, "2#7"));
    expect_pairs(f, "0:e3 0>1 1:e5 1>2 2:e3 0>2");
}

CASE(coordinator_placement__a_report_of_failure_begins_an_epoch)
{
    begin(f);
    in_sync(f);
    report(f, 12, 1, 1, false);
    expect_pairs(f, "0:e1 0>1! 1:e2 1>2 2:e1 2>0!");
    report(f, 12, 1, 1, true); /* of an epoch that is over */
    expect_pairs(f, "0:e1 0>1! 1:e2 1>2 2:e1 2>0!");
    report(f, 13, 1, 2, true); /* not the primary */
    expect_pairs(f, "0:e1 0>1! 1:e2 1>2 2:e1 2>0!");
    report(f, 12, 1, 2, true);
    expect_pairs(f, "0:e1 0>1! 1:e2 1>2! 2:e1 2>0!");
}

/* Such as one without the memory: not an epoch after the other. */
CASE(coordinator_placement__a_backup_that_keeps_failing_is_tried_after_pauses)
{
    const sl_coordinator_peer alive[] = {11, 12, 13, 1, 0};
    begin(f);
    report(f, 12, 1, 1, false);
    expect_pairs(f, "0:e1 0>1 1:e2 1>2 2:e1 2>0");
    for (uint32_t pause_s = 1; pause_s <= 4; pause_s *= 2) {
        const uint64_t epoch = 2 + (uint64_t)__builtin_ctz(pause_s);
        char pairs[64];
        (void)snprintf(pairs, sizeof pairs, "0:e1 0>1 1:e%llu 1>2 2:e1 2>0",
                       (unsigned long long)epoch);
        report(f, 12, 1, epoch, false);
        report(f, 12, 1, epoch, false);
        expect_pairs(f, pairs);
        pass(f, (pause_s * SECOND) - (SECOND / 2), alive);
        assert_int_equal(f->sent_count, 0);
        pass(f, SECOND / 2, alive);
        (void)snprintf(pairs, sizeof pairs, "0:e1 0>1 1:e%llu 1>2 2:e1 2>0",
                       (unsigned long long)(epoch + 1));
        expect_pairs(f, pairs);
    }
    /* A backup that was in sync meanwhile is tried at once. */
    report(f, 12, 1, 5, true);
    report(f, 12, 1, 5, false);
    expect_pairs(f, "0:e1 0>1 1:e6 1>2 2:e1 2>0");
    report(f, 12, 1, 6, false);
    expect_pairs(f, "0:e1 0>1 1:e7 1>2 2:e1 2>0");
}

/* The new primary may have missed who was lost while nobody told its shards. */
CASE(coordinator_placement__who_takes_over_is_told_of_losses)
{
    begin(f);
    in_sync(f);
    disconnect(f, 12);
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){11, 13, 0});
    disconnect(f, 1);
    f->sent_count = 0;
    pass(f, 7 * SECOND, (sl_coordinator_peer[]){11, 13, 0});
    assert_int_equal(hello_as(f, 2, SL_MESSAGE_ROLE_WORKER, 0, 2), 0);
    f->sent_count = 0;
    pass(f, 2 * SECOND, (sl_coordinator_peer[]){11, 13, 2, 0});
    uint32_t told = 0;
    for (uint32_t i = 0; i < f->sent_count; i++) {
        told += strstr(f->sent[i], "13#0 lost worker/0 of 1") != NULL ? 1 : 0;
    }
    assert_int_equal(told, 1);
    f->sent_count = 0;
}

/* Another coordinator, which knows nothing: ps/0 to ps/2 come back to it. */
static void forget_all(struct fixture *f)
{
    fixture_remake(f, PS_COUNT, 1);
    join_worker(f, 1, 0, 1, 1);
}

/* As it was: with its own shards, and the guests. */
static void come_back(struct fixture *f, uint32_t task, struct sl_message_replica_report own,
                      struct sl_message_replica_report guest)
{
    struct sl_message_replica_report reports[] = {own, guest};
    struct sl_message message = {
        .kind = SL_MESSAGE_REGISTER,
        .id = 1,
        .reg = {.shard_count = 1,
                .replicas = 1,
                .serving = true,
                .replica_reports = reports,
                .replica_report_count = 2},
    };
    reports[0].shard = task;
    reports[1].shard = (task + PS_COUNT - 1) % PS_COUNT;
    (void)snprintf(message.reg.data_endpoint, sizeof message.reg.data_endpoint, "tcp://host%u:1",
                   11 + task);
    assert_int_equal(hello(f, 11 + task, SL_MESSAGE_ROLE_PS, task), 0);
    f->sent_count = 0;
    say(f, 11 + task, message);
}

static struct sl_message_replica_report primary(uint64_t epoch, bool in_sync)
{
    return (struct sl_message_replica_report){
        .epoch = epoch, .role = SL_MESSAGE_REPLICA_PRIMARY, .in_sync = in_sync};
}

static struct sl_message_replica_report backup(uint64_t epoch, bool in_sync)
{
    return (struct sl_message_replica_report){
        .epoch = epoch, .role = SL_MESSAGE_REPLICA_BACKUP, .in_sync = in_sync};
}

static struct sl_message_replica_report neither(uint64_t epoch)
{
    return (struct sl_message_replica_report){.epoch = epoch, .role = SL_MESSAGE_REPLICA_NEITHER};
}

CASE(coordinator_placement__one_that_begins_anew_is_told_who_is_in_sync)
{
    forget_all(f);
    come_back(f, 0, primary(1, true), backup(1, true));
    come_back(f, 1, primary(4, true), backup(1, true));
    come_back(f, 2, primary(1, true), backup(4, false)); /* it was not told yet */
    expect_pairs(f, "0:e1 0>1! 1:e4 1>2! 2:e1 2>0!");
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    expect_pairs(f, "0:e2 0>- 1:e5 2>- 2:e1 2>0!");
}

/* Its replies wait for the word of a coordinator: of this one now. */
CASE(coordinator_placement__one_that_begins_anew_is_told_who_is_out_of_step)
{
    forget_all(f);
    come_back(f, 0, primary(1, true), backup(1, true));
    come_back(f, 1, primary(1, false), backup(1, true));
    come_back(f, 2, primary(1, true), backup(1, true));
    expect_pairs(f, "0:e1 0>1! 1:e2 1>2 2:e1 2>0!");
}

/* It may be yet: nothing is begun. */
CASE(coordinator_placement__one_that_begins_anew_waits_for_a_backup)
{
    struct sl_message_replica_report undecided = primary(3, false);
    undecided.is_undecided = true;
    forget_all(f);
    come_back(f, 0, primary(1, true), backup(1, true));
    come_back(f, 1, undecided, backup(1, true));
    come_back(f, 2, primary(1, true), backup(3, false));
    expect_pairs(f, "0:e1 0>1! 1:e3 1>2 2:e1 2>0!");
    report(f, 12, 1, 3, true);
    expect_pairs(f, "0:e1 0>1! 1:e3 1>2! 2:e1 2>0!");
}

/* A backup that has come since has nothing, whatever its primary knows. */
CASE(coordinator_placement__one_that_begins_anew_does_not_trust_a_new_backup)
{
    forget_all(f);
    come_back(f, 0, primary(1, true), backup(1, false));
    come_back(f, 1, primary(1, true), backup(1, true));
    join(f, 13, 2);
    expect_pairs(f, "0:e1 0>1! 1:e2 1>2 2:e2 2>0");
}

/* Lost together with the coordinator: the backup has all that it acknowledged. */
CASE(coordinator_placement__one_that_begins_anew_lets_a_backup_take_over)
{
    forget_all(f);
    join_restoring(f, 12, 1, 5);
    come_back(f, 0, primary(1, true), backup(1, true));
    come_back(f, 2, primary(1, true), backup(1, true));
    bool is_told = false;
    for (uint32_t i = 0; i < f->sent_count; i++) {
        const bool is_mine = strncmp(f->sent[i], "12#1 ", 5) == 0;
        assert_true(!is_mine || strstr(f->sent[i], " from ") == NULL); /* it restores nothing */
        is_told = is_told || is_mine;
    }
    assert_true(is_told);
    expect_pairs(f, "0:e2 0>1 1:e2 2>1 2:e1 2>0!");
}

/* Epochs ascend, whichever server is primary. A server with a newer epoch than the primary's knows
 * of an epoch that has ended. */
CASE(coordinator_placement__one_that_begins_anew_goes_on_with_epochs)
{
    forget_all(f);
    come_back(f, 0, neither(4), primary(6, true));
    come_back(f, 1, primary(2, true), primary(4, false));
    come_back(f, 2, backup(6, true), backup(3, false));
    expect_pairs(f, "0:e5 1>0 1:e4 1>2 2:e6 0>2!");
}

/* One that was a primary longer ago than its backup is one. */
CASE(coordinator_placement__one_that_begins_anew_does_not_trust_an_old_primary)
{
    forget_all(f);
    come_back(f, 0, primary(1, true), backup(1, true));
    come_back(f, 1, primary(1, true), backup(1, true));
    come_back(f, 2, primary(1, true), backup(3, true));
    expect_pairs(f, "0:e1 0>1! 1:e4 2>1 2:e1 2>0!");
}

/* Nobody has them: a new process begins, so that it can restore them; and what cannot be counted is
 * not believed. */
CASE(coordinator_placement__one_that_begins_anew_knows_what_is_lost)
{
    forget_all(f);
    come_back(f, 0, neither(7), primary(1, true));
    come_back(f, 2, backup(1, true), backup(UINT64_MAX, true));
    join(f, 12, 1);
    expect_pairs(f, "0:e8 1>0 1:e1 1>2 2:e1 0>2!");
}

/* The records know of a take-over, and of no worker: the ps have a lease to be heard. */
CASE_WITH_RECORDS(coordinator_placement__a_job_with_a_take_over_is_not_forgotten_in_haste)
{
    begin(f);
    in_sync(f);
    disconnect(f, 12);
    pass(f, 11 * SECOND, (sl_coordinator_peer[]){11, 13, 1, 0});
    goodbye(f, 1);
    fixture_take_over(f);
    pass(f, 9 * SECOND, (sl_coordinator_peer[]){0});
    assert_int_equal(hello(f, 22, SL_MESSAGE_ROLE_PS, 1), SL_ERR_AGAIN);
    f->sent_count = 0;
    assert_int_equal(hello(f, 11, SL_MESSAGE_ROLE_PS, 0), 0);
    register_as(f, 11, (struct sl_message_replica_report){.epoch = 0}, 1, true);
    expect_pairs(f, "0:e2 0>- 1:e2 2>- 2:e1 2>0!");
}

CASE(coordinator_placement__what_cannot_be_is_refused)
{
    fixture_remake(f, 2, 3); /* as register_ps has it */
    join(f, 11, 0);
    assert_int_equal(hello(f, 12, SL_MESSAGE_ROLE_PS, 1), 0);
    f->sent_count = 0;
    register_with(f, 12, (struct sl_message_replica_report){.epoch = 0}, 2);
    expect_part(f, "with --replicas all servers need the same number of shards");
    register_ps(f, 12, 1, 1);
    expect_part(f, "it has other --replicas than the others");
    fixture_remake(f, 1, 1);
    assert_int_equal(hello(f, 11, SL_MESSAGE_ROLE_PS, 0), 0);
    f->sent_count = 0;
    register_with(f, 11, (struct sl_message_replica_report){.epoch = 0}, 1);
    expect_part(f, "--replicas needs another server to have them");
}
