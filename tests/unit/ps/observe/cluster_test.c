/* The job as the coordinator shows it, from reports and the coordinator's view. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "net/session/report.h"
#include "ps/observe/cluster.h"
#include "tests/support/unit.h"

#define SECOND SL_CLOCK_NS_PER_S
#define START  (100 * SECOND)
#define UNIX_S 1800000000

/* Two servers with two shards each, a backup of each shard on the other server, and a worker. */
struct fixture {
    struct sl_cluster *cluster;
    struct sl_coordinator_view *view;
    uint64_t now_ns;
    struct sl_report servers[2];
    struct sl_report_shard shards[2][4]; /* own, then backups */
    struct sl_report_table tables[2][2];
    struct sl_report worker;
    const char *title;
    bool is_store_away;
    json_t *json; /* shown last; NULL: nothing yet */
};

/* Puts the shard, and the one after it, there. */
static void place(struct fixture *f, uint32_t shard, uint32_t primary, uint32_t backup,
                  bool in_sync)
{
    for (uint32_t i = shard; i < shard + 2; i++) {
        f->view->shards[i] = (struct sl_coordinator_view_shard){.primary = primary,
                                                                .backup = backup,
                                                                .in_sync = in_sync,
                                                                .moves_to = SL_COORDINATOR_NO_TASK};
    }
}

static void set_up_server(struct fixture *f, uint32_t task)
{
    struct sl_report *report = &f->servers[task];
    *report = (struct sl_report){
        .uptime_ms = 5000,
        .http = "127.0.0.1:9480",
        .memory = 1000,
        .memory_limit = 5000,
        .ordinary_pages = 300,
        .shards = f->shards[task],
        .shard_count = 4,
        .tables = f->tables[task],
        .table_count = 2,
        .slow_threshold_us = 10000,
    };
    for (uint32_t i = 0; i < 4; i++) {
        const uint32_t shard = (2 * task + i) % 4;
        f->shards[task][i] =
            (struct sl_report_shard){.shard = shard, .is_backup = i >= 2, .rows = 10 + shard};
    }
    f->tables[task][0] = (struct sl_report_table){.name = "emb", .rows = 20, .memory = 300};
    f->tables[task][1] = (struct sl_report_table){.name = "<script>\"'", .rows = 1};
    f->view->servers[task].shard_count = 2;
    f->view->servers[task].member.state = SL_COORDINATOR_VIEW_RUNNING;
    f->view->servers[task].is_part = true;
    place(f, 2 * task, task, 1 - task, true);
}

static void set_up(struct fixture *f)
{
    *f = (struct fixture){.now_ns = START, .view = calloc(1, sizeof *f->view)};
    assert_non_null(f->view);
    assert_int_equal(sl_cluster_create(&f->cluster), 0);
    f->view->is_here = true;
    f->view->stage = SL_COORDINATOR_RUNNING;
    f->view->ps_count = 2;
    f->view->replicas = 1;
    f->view->shard_count = 4;
    f->view->worker_end = 2;
    f->view->workers[1].state = SL_COORDINATOR_VIEW_RUNNING;
    set_up_server(f, 0);
    set_up_server(f, 1);
    f->worker = (struct sl_report){.uptime_ms = 1000, .has_client = true};
}

static void tear_down(struct fixture *f)
{
    json_decref(f->json);
    sl_cluster_destroy(&f->cluster);
    free(f->view);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, set_up, tear_down)

static int take(struct fixture *f, enum sl_message_role role, uint32_t task,
                const struct sl_report *report)
{
    const struct sl_cluster_sender sender = {.role = role, .task_index = task};
    uint8_t *encoded = NULL;
    uint32_t bytes = 0;
    assert_int_equal(sl_report_encode(report, &encoded, &bytes), 0);
    const int err = sl_cluster_take(f->cluster, &sender, encoded, bytes, f->now_ns);
    free(encoded);
    return err;
}

static void take_server(struct fixture *f, uint32_t task)
{
    assert_int_equal(take(f, SL_MESSAGE_ROLE_PS, task, &f->servers[task]), 0);
}

static void tick(struct fixture *f)
{
    sl_cluster_tick(f->cluster, f->view, f->now_ns,
                    UNIX_S + (f->now_ns - START) / SL_CLOCK_NS_PER_S);
}

/* A second in which every shard answers 100 requests with 1,000 keys and 5,000 bytes. */
static void pass_second(struct fixture *f)
{
    f->now_ns += SECOND;
    for (uint32_t task = 0; task < 2; task++) {
        f->servers[task].uptime_ms += 1000;
        for (uint32_t i = 0; i < 4; i++) {
            f->shards[task][i].requests += 100;
            f->shards[task][i].keys += 1000;
            f->shards[task][i].bytes += 5000;
            f->shards[task][i].busy_us += 250000;
        }
        f->tables[task][0].pulled_keys += 600;
        f->tables[task][0].pushed_keys += 400;
        f->tables[task][0].evicted_keys += 50;
    }
    f->worker.uptime_ms += 1000;
    f->worker.client.steps += 7;
}

/* Takes what EXPECT looks at. */
static void show(struct fixture *f, json_t *json)
{
    assert_non_null(json);
    json_decref(f->json);
    f->json = json;
}

static void describe(struct fixture *f)
{
    const struct sl_cluster_host host = {.coordinator = "ps/0",
                                         .title = f->title,
                                         .is_store_away = f->is_store_away,
                                         .view_age_ns = SECOND / 2,
                                         .unix_s = UNIX_S + 0.5};
    show(f, sl_cluster_describe(f->cluster, f->view, &host, f->now_ns));
}

/* The value at a path such as "servers 0 shards 1 busy", as compact JSON. */
static const char *at(const json_t *json, const char *path)
{
    static char text[512];
    char copy[256];
    (void)snprintf(copy, sizeof copy, "%s", path);
    char *rest = NULL;
    for (const char *word = strtok_r(copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        json = json_is_array(json) ? json_array_get(json, strtoul(word, NULL, 10))
                                   : json_object_get(json, word);
    }
    if (json == NULL) {
        return "(nothing)";
    }
    const size_t bytes = json_dumpb(json, text, sizeof text - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    text[bytes < sizeof text ? bytes : 0] = '\0';
    return text;
}

#define EXPECT(path, value) assert_string_equal(at(fixture->json, (path)), (value))

CASE(cluster_describe__shows_rates_from_the_second_report_on)
{
    take_server(fixture, 0);
    take_server(fixture, 1);
    tick(fixture);
    describe(fixture);
    EXPECT("totals requests_s", "null");
    EXPECT("totals memory", "2000");
    EXPECT("servers 0 shards 1 requests_s", "null");
    pass_second(fixture);
    take_server(fixture, 0);
    take_server(fixture, 1);
    tick(fixture);
    describe(fixture);
    EXPECT("age_s", "0.5");
    EXPECT("job", "\"running\"");
    EXPECT("coordinator", "\"ps/0\"");
    EXPECT("totals requests_s", "400.0"); /* not the backups' */
    EXPECT("totals keys_s", "4000");
    EXPECT("totals bytes_s", "20000");
    EXPECT("servers 1 name", "\"ps/1\"");
    EXPECT("servers 1 state", "\"serving\"");
    EXPECT("servers 1 http", "\"127.0.0.1:9480\"");
    EXPECT("servers 1 memory_limit", "5000");
    EXPECT("servers 1 ordinary_pages", "300");
    EXPECT("servers 1 shards 0 shard", "2");
    EXPECT("servers 1 shards 0 serving", "\"ps/1\"");
    EXPECT("servers 1 shards 0 backup", "\"ps/0\"");
    EXPECT("servers 1 shards 0 in_sync", "true");
    EXPECT("servers 1 shards 0 requests_s", "100.0");
    EXPECT("servers 1 shards 0 busy", "0.25");
    EXPECT("servers 1 shards 0 rows", "12");
    EXPECT("servers 1 shards 0 p99_us", "null");
    EXPECT("tables 0", "{\"name\":\"emb\",\"rows\":40,\"memory\":600,\"pulled_keys_s\":1200,"
                       "\"pushed_keys_s\":800.0,\"evicted_keys_s\":100.0,"
                       "\"waiting_keys\":0}");
    EXPECT("checkpoint enabled", "false");
    EXPECT("checkpoint last", "null");
}

CASE(cluster_take__begins_anew_with_a_restarted_member)
{
    take_server(fixture, 0);
    pass_second(fixture);
    take_server(fixture, 0);
    fixture->now_ns += SECOND;
    fixture->servers[0].uptime_ms = 200;
    fixture->shards[0][0].requests = 3;
    take_server(fixture, 0);
    tick(fixture);
    describe(fixture);
    EXPECT("servers 0 shards 0 requests_s", "null");
    EXPECT("totals requests_s", "null");
    pass_second(fixture);
    take_server(fixture, 0);
    describe(fixture);
    EXPECT("servers 0 shards 0 requests_s", "100.0");
}

CASE(cluster_describe__shows_a_promoted_backup)
{
    take_server(fixture, 1);
    pass_second(fixture);
    fixture->shards[1][2].is_backup = fixture->shards[1][3].is_backup = false;
    take_server(fixture, 1);
    pass_second(fixture);
    take_server(fixture, 1);
    fixture->view->servers[0].member = (struct sl_coordinator_view_member){
        .state = SL_COORDINATOR_VIEW_EXPIRED, .last_seen_ns = fixture->now_ns - 12 * SECOND};
    place(fixture, 0, 1, SL_COORDINATOR_NO_TASK, false);
    tick(fixture);
    describe(fixture);
    EXPECT("servers 0 state", "\"expired\"");
    EXPECT("servers 0 age_s", "12.0");
    EXPECT("servers 0 shards", "[]");
    EXPECT("servers 0 backups", "2");
    EXPECT("servers 1 primaries", "4");
    EXPECT("servers 1 shards 0 serving", "\"ps/1\"");
    EXPECT("servers 1 shards 0 backup", "null");
    EXPECT("servers 1 shards 0 in_sync", "false");
    EXPECT("servers 1 shards 0 requests_s", "100.0");
    EXPECT("servers 1 shards 2 backup", "\"ps/0\"");
    EXPECT("totals requests_s", "400.0");
}

/* Servers that were drained are not there, and a shard that moves says where to. */
CASE(cluster_describe__shows_a_move)
{
    fixture->view->replicas = 0;
    fixture->view->ps_count = 4;
    fixture->view->servers[1].drains = true;
    fixture->view->servers[3].is_part = true;
    fixture->view->servers[3].member.state = SL_COORDINATOR_VIEW_RUNNING;
    place(fixture, 0, 0, SL_COORDINATOR_NO_TASK, false);
    place(fixture, 2, 1, SL_COORDINATOR_NO_TASK, false);
    fixture->view->shards[2].backup = fixture->view->shards[2].moves_to = 3;
    describe(fixture);
    EXPECT("servers 1 state", "\"draining\"");
    EXPECT("servers 1 primaries", "2");
    EXPECT("servers 1 shards 0 moves_to", "\"ps/3\"");
    EXPECT("servers 1 shards 0 in_sync", "false");
    EXPECT("servers 1 shards 1 moves_to", "null");
    EXPECT("servers 1 shards 1 in_sync", "null");
    EXPECT("servers 2 name", "\"ps/3\"");
    EXPECT("servers 2 backups", "1");
    EXPECT("trouble", "[]");
}

CASE(cluster_describe__does_not_take_old_reports_for_new)
{
    take_server(fixture, 0);
    pass_second(fixture);
    take_server(fixture, 0);
    fixture->now_ns += SL_CLUSTER_FRESH_NS + SECOND;
    fixture->view->servers[0].member.state = SL_COORDINATOR_VIEW_DISCONNECTED;
    tick(fixture);
    describe(fixture);
    EXPECT("servers 0 state", "\"disconnected\"");
    EXPECT("servers 0 age_s", "6.0");
    EXPECT("servers 0 shards 0 requests_s", "null");
    EXPECT("servers 0 shards 0 serving", "null");
    EXPECT("totals memory", "null");
    EXPECT("tables", "[]");
}

CASE(cluster_describe__shows_the_lag_of_workers)
{
    fixture->view->worker_end = 4;
    fixture->view->workers[2].state = SL_COORDINATOR_VIEW_RUNNING;
    fixture->view->workers[3].state = SL_COORDINATOR_VIEW_LEFT;
    fixture->worker.client.clock = 90;
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_WORKER, 1, &fixture->worker), 0);
    pass_second(fixture);
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_WORKER, 1, &fixture->worker), 0);
    fixture->worker.client.clock = 100;
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_WORKER, 2, &fixture->worker), 0);
    fixture->worker.client.clock = 200;
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_WORKER, 3, &fixture->worker), 0);
    describe(fixture);
    EXPECT("workers 0 name", "\"worker/1\""); /* worker/0 has never come */
    EXPECT("workers 0 state", "\"running\"");
    EXPECT("workers 0 clock", "90");
    EXPECT("workers 0 lag", "10");
    EXPECT("workers 0 steps_s", "7.0");
    EXPECT("workers 0 http", "null");
    EXPECT("workers 1 lag", "0");
    EXPECT("workers 2 state", "\"left\"");
    EXPECT("workers 2 lag", "null");
}

/* A report of a worker that trains, and a second of time before it. */
static void train(struct fixture *f, uint32_t task, float epoch, uint64_t samples)
{
    f->view->worker_end = task + 1 > f->view->worker_end ? task + 1 : f->view->worker_end;
    f->view->workers[task].state = SL_COORDINATOR_VIEW_RUNNING;
    f->worker.client.has_training = true;
    f->worker.client.training.epoch = epoch;
    f->worker.client.training.samples = samples;
    assert_int_equal(take(f, SL_MESSAGE_ROLE_WORKER, task, &f->worker), 0);
}

CASE(cluster_describe__sums_up_the_training)
{
    describe(fixture);
    EXPECT("training", "null");
    fixture->worker.client.training =
        (struct sl_training){.epochs = 10, .loss = 0.5F, .learning_rate = 0.001F};
    train(fixture, 0, 2, 1000);
    fixture->worker.client.training.loss = 0.25F;
    train(fixture, 1, 3, 1000);
    pass_second(fixture);
    train(fixture, 0, 2.5F, 1400);
    fixture->worker.client.training.metric = 0.75F;
    snprintf(fixture->worker.client.training.metric_name, 20, "test AUC");
    train(fixture, 1, 3.25F, 1200);
    tick(fixture);
    describe(fixture);
    /* The slowest worker has done half an epoch in a second, the other one a quarter. */
    EXPECT("training", "{\"epoch\":2.5,\"epochs\":10.0,\"samples\":2600,\"samples_s\":600.0,"
                       "\"eta_s\":27.0,\"loss\":0.25,\"learning_rate\":0.001,"
                       "\"metric\":{\"name\":\"test AUC\",\"value\":0.75}}");
    EXPECT("totals samples_s", "600.0");
    EXPECT("totals loss", "0.25");
    /* The figures of the end, which the workers report when they leave, stay. */
    train(fixture, 0, 10, 3000);
    train(fixture, 1, 9.5F, 3000);
    fixture->view->workers[0].state = fixture->view->workers[1].state = SL_COORDINATOR_VIEW_LEFT;
    tick(fixture);
    fixture->now_ns += 60 * SECOND;
    tick(fixture);
    describe(fixture);
    EXPECT("training epoch", "9.5");
    EXPECT("training samples", "6000");
    EXPECT("training samples_s", "null");
    EXPECT("training eta_s", "null");
    EXPECT("totals loss", "null");
}

CASE(cluster_describe__names_what_is_not_as_it_should_be)
{
    fixture->view->has_tables = true;
    describe(fixture);
    EXPECT("trouble", "[]");
    EXPECT("title", "null");
    EXPECT("mode", "\"asp\"");
    EXPECT("waits", "false"); /* no worker holds up others */
    EXPECT("uptime_s", "null");
    fixture->title = "fm";
    fixture->is_store_away = true;
    fixture->view->consistency =
        (struct sl_consistency_spec){.mode = SL_CONSISTENCY_SSP, .staleness = 3};
    place(fixture, 0, 0, 1, false);
    fixture->view->servers[1].member.state = SL_COORDINATOR_VIEW_EXPIRED;
    place(fixture, 2, 0, SL_COORDINATOR_NO_TASK, false);
    fixture->view->workers[1].state = SL_COORDINATOR_VIEW_DISCONNECTED;
    take_server(fixture, 0);
    fixture->now_ns += SECOND;
    describe(fixture);
    EXPECT("title", "\"fm\"");
    EXPECT("mode", "\"ssp:3\"");
    EXPECT("waits", "true");
    EXPECT("uptime_s", "6.0");
    EXPECT("trouble", "[\"the cluster store is out of reach\",\"ps/1 is expired\","
                      "\"shards 0 to 1 are not in sync with the backup\","
                      "\"shards 2 to 3 are without a backup\",\"worker/1 is disconnected\"]");
    fixture->view->servers[0].member.state = SL_COORDINATOR_VIEW_DISCONNECTED;
    describe(fixture);
    EXPECT("trouble 3", "\"shards 0 to 3 are not served\"");
    for (uint32_t task = 0; task < 40; task++) {
        fixture->view->workers[task].state = SL_COORDINATOR_VIEW_EXPIRED;
    }
    fixture->view->worker_end = 40;
    describe(fixture);
    EXPECT("trouble 16", "\"28 more\"");
}

CASE(cluster_end__keeps_the_state_of_the_job)
{
    take_server(fixture, 0);
    take_server(fixture, 1);
    pass_second(fixture);
    take_server(fixture, 0);
    take_server(fixture, 1);
    tick(fixture);
    sl_cluster_end(fixture->cluster, fixture->now_ns);
    for (uint32_t task = 0; task < 2; task++) {
        fixture->view->servers[task].member.state = SL_COORDINATOR_VIEW_LEFT;
    }
    fixture->view->missing.missing_count = 1;
    fixture->now_ns += 1000 * SECOND;
    tick(fixture);
    sl_cluster_end(fixture->cluster, fixture->now_ns); /* as of the first call */
    describe(fixture);
    EXPECT("job", "\"over\"");
    EXPECT("trouble", "[]");
    EXPECT("missing", "[]");
    EXPECT("totals requests_s", "400.0");
    EXPECT("uptime_s", "6.0");
    EXPECT("servers 1 shards 0 serving", "\"ps/1\"");
    EXPECT("servers 1 shards 0 requests_s", "100.0");
    EXPECT("tables 0 rows", "40");
    /* A report that was under way then counts. */
    fixture->tables[1][0].rows += 7;
    take_server(fixture, 1);
    tick(fixture);
    describe(fixture);
    EXPECT("tables 0 rows", "47");
}

CASE(cluster_take__refuses_hostile_reports)
{
    const struct sl_cluster_sender server = {.role = SL_MESSAGE_ROLE_PS};
    const uint8_t junk[] = {0xff, 0xff, 0xff};
    assert_int_equal(sl_cluster_take(fixture->cluster, &server, junk, 3, START), SL_ERR_PROTOCOL);
    fixture->tables[0][1].name[0] = '\n';
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_PS, 0, &fixture->servers[0]), SL_ERR_PROTOCOL);
    fixture->tables[0][1].name[0] = '<';
    take_server(fixture, 0);
    tick(fixture);
    describe(fixture);
    EXPECT("tables 1 name", "\"<script>\\\"'\"");
}

CASE(cluster_describe_slow__keeps_the_newest_of_all_servers)
{
    for (uint32_t i = 0; i < SL_CLUSTER_SLOW_MAX; i++) {
        struct sl_report *report = &fixture->servers[i % 2];
        report->slow_count = 2;
        report->slow[0] = (struct sl_report_slow){.time_ms = 1000 * i, .client = "worker/3"};
        report->slow[1] = (struct sl_report_slow){.time_ms = 1000 * i + 500,
                                                  .client = "worker/4",
                                                  .shard = 3,
                                                  .table = 1,
                                                  .op = SL_REQUEST_KIND_PUSH_PULL,
                                                  .keys = 9,
                                                  .total_us = 20000,
                                                  .phases_us = {1, 2, 3, 4, 5, 6}};
        take_server(fixture, i % 2);
    }
    show(fixture, sl_cluster_describe_slow(fixture->cluster));
    EXPECT("threshold_us", "10000");
    assert_int_equal(json_array_size(json_object_get(fixture->json, "requests")),
                     SL_CLUSTER_SLOW_MAX);
    EXPECT("requests 0",
           "{\"time\":127.5,\"server\":\"ps/1\",\"shard\":3,\"client\":\"worker/4\","
           "\"table\":\"<script>\\\"'\",\"op\":\"push_pull\",\"keys\":9,\"total_us\":20000,"
           "\"phases\":{\"iteration_us\":1,\"clock_us\":2,\"memory_us\":3,\"backup_us\":4,"
           "\"work_us\":5,\"send_us\":6}}");
    EXPECT("requests 127 time", "64.0");
}

CASE(cluster_describe_hot__shares_are_of_the_whole_job)
{
    for (uint32_t task = 0; task < 2; task++) {
        fixture->tables[task][0].sampled_keys = 100;
        fixture->servers[task].hot_count = 2;
        fixture->servers[task].hot[0] =
            (struct sl_report_hot_key){.shard = 2 * task, .key = UINT64_MAX - task, .count = 40};
        fixture->servers[task].hot[1] = (struct sl_report_hot_key){.key = 7, .count = 20 * task};
        take_server(fixture, task);
    }
    tick(fixture);
    show(fixture, sl_cluster_describe_hot(fixture->cluster, fixture->now_ns));
    EXPECT("tables 0 table", "\"emb\"");
    EXPECT("tables 0 sampled", "200");
    EXPECT("tables 0 keys 0 share", "0.20000000000000001");
    EXPECT("tables 0 keys 2", "{\"key\":\"7\",\"share\":0.10000000000000001,\"shard\":0}");
    EXPECT("tables 1", "(nothing)"); /* no samples */
}

CASE(cluster_describe_hot__shows_no_key_of_a_flat_distribution)
{
    fixture->tables[0][0].sampled_keys = 1000;
    fixture->tables[0][0].rows = 20;
    fixture->servers[0].hot_count = 3;
    fixture->servers[0].hot[0] = (struct sl_report_hot_key){.key = 1, .count = 100};
    fixture->servers[0].hot[1] = (struct sl_report_hot_key){.key = 2, .count = 99};
    take_server(fixture, 0);
    tick(fixture);
    show(fixture, sl_cluster_describe_hot(fixture->cluster, fixture->now_ns));
    EXPECT("tables 0 keys 0 key", "\"1\""); /* twice as often as the others */
    EXPECT("tables 0 keys 1", "(nothing)");
    fixture->tables[0][0].rows = 1000000;
    fixture->servers[0].hot[2] = (struct sl_report_hot_key){.key = 3, .count = 9};
    take_server(fixture, 0);
    tick(fixture);
    show(fixture, sl_cluster_describe_hot(fixture->cluster, fixture->now_ns));
    EXPECT("tables 0 keys 1 key", "\"2\"");
    EXPECT("tables 0 keys 2", "(nothing)"); /* less than a hundredth of all */
}

CASE(cluster_describe_slow__groups_requests_alike)
{
    static const struct {
        const char *client;
        enum sl_request_kind op;
        uint32_t table, clock_us, work_us;
    } requests[] = {
        {"worker/1", SL_REQUEST_KIND_PULL, 0, 9000, 100},
        {"worker/2", SL_REQUEST_KIND_PULL, 0, 30000, 100}, /* the longest */
        {"worker/1", SL_REQUEST_KIND_PULL, 0, 100, 20000}, /* of another cause */
        {"worker/1", SL_REQUEST_KIND_PULL, 1, 9000, 100},  /* another table */
        {"worker/1", SL_REQUEST_KIND_PUSH, 0, 9000, 100},  /* another operation */
        {"worker/1", SL_REQUEST_KIND_PULL, 0, 9000, 100},
    };
    for (uint32_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct sl_report_slow *slow = &fixture->servers[0].slow[0];
        fixture->servers[0].slow_count = 1;
        *slow = (struct sl_report_slow){.time_ms = 1000 * (i + 1),
                                        .op = requests[i].op,
                                        .table = requests[i].table,
                                        .total_us = requests[i].clock_us + requests[i].work_us};
        snprintf(slow->client, sizeof slow->client, "%s", requests[i].client);
        slow->phases_us[SL_REQUEST_PHASE_CLOCK] = requests[i].clock_us;
        slow->phases_us[SL_REQUEST_PHASE_WORK] = requests[i].work_us;
        take_server(fixture, 0);
    }
    show(fixture, sl_cluster_describe_slow(fixture->cluster));
    assert_int_equal(json_array_size(json_object_get(fixture->json, "requests")), 6);
    assert_int_equal(json_array_size(json_object_get(fixture->json, "groups")), 4);
    EXPECT("groups 0 count", "3");
    EXPECT("groups 0 time", "6.0"); /* the newest */
    EXPECT("groups 0 total_us", "30100");
    EXPECT("groups 0 phases clock_us", "30000");
    EXPECT("groups 0 client", "\"several\"");
    EXPECT("groups 1 op", "\"push\"");
    EXPECT("groups 1 client", "\"worker/1\"");
    EXPECT("groups 2 table", "\"<script>\\\"'\"");
    EXPECT("groups 3 phases work_us", "20000");
}

CASE(cluster_describe_targets__names_the_http_servers)
{
    take_server(fixture, 1);
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_WORKER, 1, &fixture->worker), 0); /* no HTTP */
    show(fixture, sl_cluster_describe_targets(fixture->cluster, fixture->now_ns));
    EXPECT("0", "{\"targets\":[\"127.0.0.1:9480\"],\"labels\":{\"role\":\"ps\",\"task\":\"1\"}}");
    assert_int_equal(json_array_size(fixture->json), 1);
    fixture->now_ns += SL_CLUSTER_FRESH_NS + 1;
    show(fixture, sl_cluster_describe_targets(fixture->cluster, fixture->now_ns));
    assert_int_equal(json_array_size(fixture->json), 0);
}

CASE(cluster_describe_history__has_the_job_and_each_shard_and_table)
{
    static const char *const of[] = {"job", "shard:3", "table:emb"};
    static const char *const keys[] = {"[null,4000.0,4000.0]", "[null,1000.0,1000.0]",
                                       "[0.0,2000.0,2000.0]"};
    json_t *json = NULL;
    for (int i = 0; i < 3; i++) {
        take_server(fixture, 0);
        take_server(fixture, 1);
        tick(fixture);
        pass_second(fixture);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sl_cluster_describe_history(fixture->cluster, of[i], 0, &json), 0);
        show(fixture, json);
        EXPECT("series keys_s", keys[i]);
        EXPECT("end", "1800000002");
    }
    static const char *const bad[] = {
        "",         "jobs",     "shard:4", "shard:-1",
        "shard:1x", "table:no", "shard:",  "shard:99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(sl_cluster_describe_history(fixture->cluster, bad[i], 0, &json),
                         SL_ERR_NOT_FOUND);
    }
}

/* A server that names other tables every second neither fills the memory nor hides the others. */
CASE(cluster_tick__bounds_the_tables_that_it_remembers)
{
    static struct sl_report_table tables[SL_LIMIT_TABLES];
    fixture->servers[1].tables = tables;
    fixture->servers[1].table_count = SL_LIMIT_TABLES;
    for (uint32_t round = 0; round < 5; round++) {
        take_server(fixture, 0);
        for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
            (void)snprintf(tables[i].name, sizeof tables[i].name, "t%u-%u", round, i);
        }
        take_server(fixture, 1);
        tick(fixture);
        pass_second(fixture);
        fixture->servers[1].tables = tables;
    }
    describe(fixture);
    EXPECT("tables 0 name", "\"emb\"");
}

CASE(cluster_take__bounds_the_memory_of_reports)
{
    static struct sl_report_table tables[SL_LIMIT_TABLES];
    fixture->servers[1].tables = tables;
    fixture->servers[1].table_count = SL_LIMIT_TABLES;
    for (uint32_t i = 0; i < SL_LIMIT_TABLES; i++) {
        (void)snprintf(tables[i].name, sizeof tables[i].name, "t%u", i);
    }
    int err = 0;
    uint32_t task = 0;
    while (task < SL_LIMIT_PS && err == 0) {
        err = take(fixture, SL_MESSAGE_ROLE_PS, task++, &fixture->servers[1]);
    }
    assert_int_equal(err, SL_ERR_TOO_LARGE);
    assert_true(task > 300); /* 64 MiB of 110 KiB each */
    assert_int_equal(take(fixture, SL_MESSAGE_ROLE_PS, 0, &fixture->servers[0]), 0);
}
