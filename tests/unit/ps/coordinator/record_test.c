/* One coordinator after the other: what the second knows by the records of the first. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/fixture.h"

#define PS     SL_MESSAGE_ROLE_PS
#define WORKER SL_MESSAGE_ROLE_WORKER
#define CLIENT SL_MESSAGE_ROLE_CLIENT

static void workers_register(struct fixture *f)
{
    for (sl_coordinator_peer peer = 1; peer <= 3; peer++) {
        register_worker(f, peer, 1);
    }
    f->sent_count = 0;
}

/* A running job; then the coordinator dies. The ps come back as peers 21 and 22. */
static void job_goes_on(struct fixture *f)
{
    f->sent_count = 0;
    fixture_take_over(f);
    expect_nothing(f);
    assert_int_equal(hello_as(f, 21, PS, 0, 11), 0);
    assert_int_equal(hello_as(f, 22, PS, 1, 12), 0);
    register_ps(f, 21, 7, 2);
    register_ps(f, 22, 7, 2);
}

static void job_start(struct fixture *f)
{
    for (uint32_t ps = 0; ps < 2; ps++) {
        join_ps(f, 11 + ps, ps, 11 + ps, 1, 2);
    }
    workers_join(f);
    workers_register(f);
}

CASE_WITH_RECORDS(record__tables_keep_their_ids)
{
    job_start(f);
    say(f, 1, table_message("a", 4, 5));
    say(f, 1, table_message("b", 8, 6));
    expect(f, "1#5 opened 0");
    expect(f, "1#6 opened 1");
    job_goes_on(f);
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 31, WORKER, 0, 1), 0);
    say(f, 31, table_message("b", 8, 7));
    say(f, 31, table_message("c", 8, 8));
    say(f, 31, table_message("a", 5, 9));
    expect(f, "31#7 opened 1");
    expect(f, "31#8 opened 2");
    expect_part(f, "31#9 error exists: ");
}

/* The cluster is told again, as it was; nobody has to come to it anew before. */
CASE_WITH_RECORDS(record__the_cluster_is_known)
{
    job_start(f);
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 22, PS, 1, 12), 0);
    join_worker(f, 31, 0, 1, 9);
    expect_part(f, "31#9 cluster of 3 workers: ps/0 tcp://host11:1 x");
    assert_int_equal(hello(f, 44, WORKER, 7), SL_ERR_INVALID); /* the count is known */
}

CASE_WITH_RECORDS(record__the_values_of_a_ps_stay_lost)
{
    job_start(f);
    say(f, 1, table_message("a", 4, 5));
    goodbye(f, 12);
    join_ps(f, 42, 1, 99, 1, 2);
    f->sent_count = 0;
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 22, PS, 1, 99), 0);
    join_worker(f, 31, 0, 1, 9);
    expect_part(f, "31#9 cluster of 3 workers without the values of ps/1:");
}

CASE_WITH_RECORDS(record__who_does_not_come_back_is_lost)
{
    job_start(f);
    job_goes_on(f);
    assert_int_equal(hello_as(f, 31, WORKER, 0, 1), 0);
    assert_int_equal(hello_as(f, 32, WORKER, 1, 2), 0);
    f->sent_count = 0;
    const sl_coordinator_peer alive[] = {21, 22, 31, 32, 0};
    pass(f, SECOND, alive);
    f->sent_count = 0; /* that the ps have moved */
    pass(f, 18 * SECOND, alive);
    expect_nothing(f); /* two leases from the taking over on, to find it */
    pass(f, 2 * SECOND, alive);
    for (int i = 0; i < 4; i++) { /* in the order of members */
        expect_part(f, "#0 lost worker/2 of 3: no heartbeat for 10 s");
    }
}

CASE_WITH_RECORDS(record__who_has_left_is_not_missed)
{
    job_start(f);
    goodbye(f, 3);
    f->sent_count = 0;
    job_goes_on(f);
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 31, WORKER, 0, 1), 0);
    assert_int_equal(hello_as(f, 32, WORKER, 1, 2), 0);
    say(f, 31, barrier_message("end", 0, 9));
    expect_nothing(f);
    say(f, 32, barrier_message("end", 0, 9));
    expect(f, "31#9 done");
    expect(f, "32#9 done");
}

/* A loss that the coordinator before may have told to nobody is told to every ps. */
CASE_WITH_RECORDS(record__losses_are_told_again)
{
    job_start(f);
    disconnect(f, 3);
    const sl_coordinator_peer alive[] = {11, 12, 1, 2, 0};
    pass(f, 11 * SECOND, alive);
    f->sent_count = 0;
    fixture_take_over(f);
    join_ps(f, 21, 0, 11, 7, 2);
    expect_part(f, "21#7 cluster");
    expect(f, "21#0 lost worker/2 of 3: no heartbeat for 10 s");
}

/* One that has been told that a barrier is done, and one whose answer was lost with the
 * coordinator. */
CASE_WITH_RECORDS(record__barriers_that_were_done)
{
    job_start(f);
    assert_int_equal(hello_as(f, 40, CLIENT, 0, 400), 0);
    for (sl_coordinator_peer peer = 1; peer <= 3; peer++) {
        say(f, peer, barrier_message("b", 4, 50));
    }
    say(f, 40, barrier_message("b", 4, 51));
    f->sent_count = 0;
    job_goes_on(f);
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 31, WORKER, 0, 1), 0);
    assert_int_equal(hello_as(f, 41, CLIENT, 0, 400), 0);
    say(f, 31, barrier_message("b", 4, 50));
    say(f, 41, barrier_message("b", 4, 51));
    expect(f, "31#50 done");
    expect(f, "41#51 done");
    say(f, 31, barrier_message("b", 4, 52)); /* another one */
    say(f, 41, barrier_message("b", 4, 50));
    expect_nothing(f);
    for (uint64_t i = 0; i < SL_COORDINATOR_DONE_BARRIERS; i++) { /* they are kept so long */
        say(f, 31, barrier_message("c", 1, 60 + i));
    }
    f->sent_count = 0;
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 23, PS, 0, 11), 0);
    assert_int_equal(hello_as(f, 33, WORKER, 0, 1), 0);
    say(f, 33, barrier_message("b", 4, 50));
    expect_nothing(f);
    say(f, 33, barrier_message("c", 1, 60));
    expect(f, "33#60 done");
}

CASE_WITH_RECORDS(record__the_course_of_a_job_goes_on)
{
    fixture_follow(f, 2, 3);
    job_start(f);
    goodbye(f, 1);
    goodbye(f, 2);
    job_goes_on(f);
    f->sent_count = 0;
    assert_int_equal(hello_as(f, 33, WORKER, 2, 3), 0);
    goodbye(f, 33);
    expect(f, "stage 2 err ok: all 3 workers have left");
    expect(f, "21#0 ended: all 3 workers have left");
    expect(f, "22#0 ended: all 3 workers have left");
    f->sent_count = 0;
    fixture_take_over(f); /* those who were told may not know it */
    join_ps(f, 51, 0, 11, 7, 2);
    expect_part(f, "51#7 cluster");
    expect(f, "51#0 ended: all 3 workers have left");
}

CASE_WITH_RECORDS(record__nobody_is_let_in_before_a_known_ps)
{
    job_start(f);
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 31, WORKER, 0, 1), SL_ERR_AGAIN);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), SL_ERR_AGAIN);
    assert_int_equal(hello_as(f, 22, PS, 1, 12), 0);
    assert_int_equal(hello_as(f, 31, WORKER, 0, 1), 0);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), 0);
    f->sent_count = 0;
}

/* All its ps are gone: the job was another, or is lost. */
CASE_WITH_RECORDS(record__of_a_job_that_is_no_more)
{
    job_start(f);
    say(f, 1, table_message("a", 4, 5));
    f->sent_count = 0;
    fixture_take_over(f);
    const sl_coordinator_peer nobody[] = {0};
    pass(f, 9 * SECOND, nobody);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), SL_ERR_AGAIN);
    pass(f, 2 * SECOND, nobody);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), 0);
    assert_int_equal(hello_as(f, 52, PS, 1, 501), 0);
    register_ps(f, 51, 7, 1); /* fewer shards than before */
    register_ps(f, 52, 7, 1);
    assert_int_equal(hello_as(f, 61, WORKER, 0, 600), 0);
    f->sent_count = 0;
    say(f, 61, table_message("b", 8, 5));
    expect(f, "61#5 opened 0");
    fixture_take_over(f); /* what was forgotten is in no record */
    assert_int_equal(hello_as(f, 51, PS, 0, 500), 0);
    assert_int_equal(hello_as(f, 61, WORKER, 0, 600), 0);
    say(f, 61, table_message("a", 5, 6));
    expect(f, "61#6 opened 1");
}

/* With no worker that could suffer, not so long. */
CASE_WITH_RECORDS(record__of_a_job_that_has_no_worker)
{
    job_start(f);
    for (sl_coordinator_peer peer = 1; peer <= 3; peer++) {
        goodbye(f, peer);
    }
    f->sent_count = 0;
    fixture_take_over(f);
    const sl_coordinator_peer nobody[] = {0};
    pass(f, 2 * SECOND, nobody);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), SL_ERR_AGAIN);
    pass(f, 2 * SECOND, nobody);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), 0);
}

CASE_WITH_RECORDS(record__none_begins_anew_at_once)
{
    fixture_take_over(f);
    assert_int_equal(hello_as(f, 51, PS, 0, 500), 0);
}

static int read_text(struct fixture *f, enum sl_coordinator_record kind, uint32_t index,
                     const char *text)
{
    return sl_coordinator_record_read(f->coordinator, kind, index, (const uint8_t *)text,
                                      strlen(text), &f->reason);
}

CASE_WITH_RECORDS(record__malformed)
{
    static const struct {
        enum sl_coordinator_record kind;
        uint32_t index;
        const char *text;
    } CASES[] = {
        {SL_COORDINATOR_RECORD_JOB, 0, ""},
        {SL_COORDINATOR_RECORD_JOB, 0, "[]"},
        {SL_COORDINATOR_RECORD_JOB, 1, "{}"},
        {SL_COORDINATOR_RECORD_JOB, 0, "{}"},
        {SL_COORDINATOR_RECORD_PS, 2, "{}"},
        {SL_COORDINATOR_RECORD_PS, 0,
         "{\"shards\":5000,\"client\":\"1\",\"data\":\"tcp://"
         "a:1\",\"fast\":\"\",\"host\":\"\",\"restore\":\"0\",\"serving\":false,"
         "\"restarted\":false,\"gone\":false}"},
        {SL_COORDINATOR_RECORD_PS, 0,
         "{\"shards\":1,\"client\":\"x\",\"data\":\"tcp://"
         "a:1\",\"fast\":\"\",\"host\":\"\",\"restore\":\"0\",\"serving\":false,"
         "\"restarted\":false,\"gone\":false}"},
        {SL_COORDINATOR_RECORD_PS, 0,
         "{\"shards\":1,\"client\":\"1\",\"data\":\"nowhere\",\"fast\":\"\",\"host\":\"\","
         "\"restore\":\"0\",\"serving\":false,"
         "\"restarted\":false,\"gone\":false}"},
        {SL_COORDINATOR_RECORD_PS, 0,
         "{\"shards\":1,\"client\":\"1\",\"data\":\"tcp://"
         "a:1\",\"fast\":\"\",\"host\":\"\\n\",\"restore\":\"0\",\"serving\":false,"
         "\"restarted\":false,\"gone\":false}"},
        {SL_COORDINATOR_RECORD_PS, 0,
         "{\"shards\":1,\"client\":\"1\",\"data\":\"tcp://"
         "a:1\",\"fast\":\"\",\"host\":\"\",\"restore\":\"0\",\"serving\":false,"
         "\"restarted\":false,\"gone\":false,\"member\":7}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{\"placements\":[\"0 1 0 2 0 0 0\"]}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{\"placements\":[\"1 0 0 2 0 0 0\"]}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{\"placements\":[\"1 1 0 2 0 1 0\"]}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{\"placements\":[\"1 1 401 2 0 1 0\"]}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{\"placements\":[\"1 1 1 2 0 1 0\"]}"},
        {SL_COORDINATOR_RECORD_SHARDS, 0, "{\"placements\":[\"1 1 0 2 0 0 0 0\"]}"},
        {SL_COORDINATOR_RECORD_SHARDS, SL_LIMIT_SHARDS / SL_COORDINATOR_RECORD_SHARDS_EACH,
         "{\"placements\":[\"1 1 0 2 0 0 0\"]}"},
        {SL_COORDINATOR_RECORD_WORKER, 0, "{\"end\":\"gone\",\"client\":\"1\",\"departed\":true}"},
        {SL_COORDINATOR_RECORD_WORKER, 0, "{\"end\":\"left\",\"client\":\"1\",\"departed\":1}"},
        {SL_COORDINATOR_RECORD_WORKER, SL_LIMIT_WORKERS,
         "{\"end\":\"left\",\"client\":\"1\",\"departed\":true}"},
        {SL_COORDINATOR_RECORD_DONE, 0, "{\"number\":\"10\",\"told\":\"1\"}"},
        {SL_COORDINATOR_RECORD_DONE, 0, "{\"number\":\"10\",\"told\":\"1:\"}"},
        {SL_COORDINATOR_RECORD_DONE, 0, "{\"number\":\"10\",\"told\":\":1\"}"},
        {SL_COORDINATOR_RECORD_DONE, 0, "{\"number\":\"10\",\"told\":\"1:2,3:4\"}"},
        {SL_COORDINATOR_RECORD_DONE, 0, "{\"number\":\"1\",\"told\":\"1:2\"}"},
        {SL_COORDINATOR_RECORD_TABLE, 0, "\x01\x02\x03"},
        {SL_COORDINATOR_RECORD_TABLE, 0, ""},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        int err = read_text(f, CASES[i].kind, CASES[i].index, CASES[i].text);
        if (err != SL_ERR_CORRUPT) {
            print_error("case %zu: %d\n", i, err);
        }
        assert_int_equal(err, SL_ERR_CORRUPT);
        assert_string_not_equal(f->reason.text, "");
    }
    assert_int_equal(read_text(f, SL_COORDINATOR_RECORD_DONE, 0,
                               "{\"number\":\"10\",\"told\":\"1:2 3:4\",\"more\":1}"),
                     0);
}

CASE_WITH_RECORDS(record__of_another_cluster)
{
    assert_int_equal(
        read_text(f, SL_COORDINATOR_RECORD_JOB, 0,
                  "{\"ps\":3,\"workers\":0,\"workers_from\":\"a\",\"cluster_version\":1,\"values_"
                  "lost\":0,\"formed\":"
                  "true,\"restore\":\"0\",\"checkpoint\":\"0\",\"whole\":\"0\",\"latest\":\"0\","
                  "\"abandoned\":\"0\",\"stage\":"
                  "\"gathering\",\"never_began\":false,\"end_err\":0,\"end_why\":\"\"}"),
        SL_ERR_INVALID);
    assert_string_equal(f->reason.text, "it is of a job with 3 servers and 0 workers");
}

CASE_WITH_RECORDS(record__of_a_checkpoint_above_the_limit)
{
    static const char *const numbers[][2] = {{"e8d4a51000", "0"}, {"0", "ffffffffffffffff"}};
    char text[512];
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(
            text, sizeof text,
            "{\"ps\":2,\"workers\":0,\"workers_from\":\"a\",\"cluster_version\":1,\"formed\":"
            "true,\"restore\":\"%s\",\"checkpoint\":\"%s\",\"whole\":\"0\",\"latest\":\"0\","
            "\"abandoned\":\"0\",\"stage\":"
            "\"gathering\",\"never_began\":false,\"end_err\":0,\"end_why\":\"\"}",
            numbers[i][0], numbers[i][1]);
        assert_int_equal(read_text(f, SL_COORDINATOR_RECORD_JOB, 0, text), SL_ERR_INVALID);
        assert_non_null(strstr(f->reason.text, "the last is 999999999999"));
    }
    assert_int_equal(
        read_text(f, SL_COORDINATOR_RECORD_PS, 0,
                  "{\"shards\":1,\"client\":\"1\",\"data\":\"tcp://a:1\",\"fast\":\"\","
                  "\"host\":\"\",\"restore\":\"e8d4a51000\",\"serving\":false,"
                  "\"restarted\":false,\"gone\":false}"),
        SL_ERR_INVALID);
    assert_string_equal(f->reason.text,
                        "it names checkpoint 1000000000000: the last is 999999999999");
}

/* Of a version that knew one place for all shards of a server: ps/1 has been promoted, ps/0 is its
 * backup for one half, and was deposed. */
CASE_WITH_RECORDS(record__places_of_an_older_version)
{
    static const char *const servers[] = {
        "{\"shards\":2,\"client\":\"b\",\"data\":\"tcp://a:1\",\"fast\":\"\",\"host\":\"\","
        "\"restore\":\"0\",\"serving\":false,\"restarted\":true,\"gone\":false,\"replicas\":1,"
        "\"epoch\":\"1a\",\"primary\":1,\"backup\":0,\"in_step\":true,\"deposed\":\"c\","
        "\"member\":\"b\",\"registered\":true}",
        "{\"shards\":2,\"client\":\"d\",\"data\":\"tcp://b:1\",\"fast\":\"\",\"host\":\"\","
        "\"restore\":\"0\",\"serving\":false,\"restarted\":false,\"gone\":false,\"replicas\":1,"
        "\"epoch\":\"3\",\"primary\":1,\"backup\":1024,\"in_step\":false,\"deposed\":\"0\","
        "\"member\":\"d\",\"registered\":true}"};
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(read_text(f, SL_COORDINATOR_RECORD_PS, i, servers[i]), 0);
    }
    assert_int_equal(
        read_text(
            f, SL_COORDINATOR_RECORD_JOB, 0,
            "{\"ps\":2,\"workers\":3,\"workers_from\":\"a\",\"cluster_version\":9,\"values_"
            "lost\":0,\"formed\":true,\"restore\":\"0\",\"checkpoint\":\"0\",\"whole\":\"0\","
            "\"latest\":\"0\",\"abandoned\":\"0\",\"stage\":\"gathering\",\"never_began\":false,"
            "\"end_err\":0,\"end_why\":\"\"}"),
        0);
    sl_coordinator_record_end(f->coordinator, f->now_ns);
    assert_true(f->records[SL_COORDINATOR_RECORD_SHARDS][0].changed); /* in the new form */
    assert_int_equal(hello_as(f, 22, PS, 1, 0xd), 0);
    assert_int_equal(hello_as(f, 1, WORKER, 0, 1), 0);
    f->sent_count = 0;
    register_worker(f, 1, 5);
    expect_part(f, "22#0 cluster"); /* which has heard nothing of this coordinator yet */
    expect_part(f, "1#5 cluster of 3 workers: ps/0 tcp://a:1 x2 ps/1 tcp://b:1 x2 pairs 0:e26 1>0! "
                   "1:e26 1>0! 2:e3 1>- 3:e3 1>-");
}

/* Every byte of every record, changed to anything: an error or not, and nothing that hurts. */
CASE_WITH_RECORDS(record__any_bytes)
{
    job_start(f);
    say(f, 1, table_message("a", 4, 5));
    say(f, 1, barrier_message("c", 1, 60));
    disconnect(f, 3);
    const sl_coordinator_peer alive[] = {11, 12, 1, 2, 0};
    pass(f, 11 * SECOND, alive);
    f->sent_count = 0;
    fixture_take_over(f);
    struct fixture_record records[SL_COORDINATOR_RECORD_ALL][FIXTURE_RECORDS];
    memcpy(records, f->records, sizeof records);
    memset(f->records, 0, sizeof f->records);
    static const char BYTES[] = {0, '"', '{', '}', '9', '-', ':', ' ', (char)0xff, 'a'};
    for (uint32_t k = 0; k < SL_COORDINATOR_RECORD_ALL; k++) {
        for (uint32_t i = 0; i < FIXTURE_RECORDS; i++) {
            for (size_t at = 0; at < records[k][i].value_bytes; at++) {
                uint8_t *value = records[k][i].value;
                const uint8_t was = value[at];
                fixture_remake(f, 2, 3);
                for (size_t b = 0; b < sizeof BYTES; b++) {
                    value[at] = (uint8_t)BYTES[b];
                    (void)sl_coordinator_record_read(f->coordinator, (enum sl_coordinator_record)k,
                                                     i, value, records[k][i].value_bytes,
                                                     &f->reason);
                }
                value[at] = was;
                sl_coordinator_record_end(f->coordinator, f->now_ns);
            }
            free(records[k][i].value);
        }
    }
}
