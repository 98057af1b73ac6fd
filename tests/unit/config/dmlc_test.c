#include <stdlib.h>
#include <string.h>

#include "config/cluster.h"
#include "config/dmlc.h"
#include "tests/support/unit.h"
#include "tests/unit/config/parsed.h"

static const char *const VARIABLES[] = {
    "DMLC_ROLE",
    "DMLC_NUM_WORKER",
    "DMLC_NUM_SERVER",
    "DMLC_PS_ROOT_URI",
    "DMLC_PS_ROOT_PORT",
    "DMLC_INTERFACE",
    "DMLC_NODE_HOST",
    "DMLC_PORT",
    "DMLC_ENABLE_RDMA",
    "DMLC_RANK",
    "DMLC_WORKER_ID",
    "DMLC_GROUP_SIZE",
    "PS_VERBOSE",
    "PS_HEARTBEAT_INTERVAL",
    "PS_HEARTBEAT_TIMEOUT",
    "DMLC_PS_VAN_TYPE",
    "DMLC_ENABLE_UCX",
    "DMLC_NUM_PORTS",
    "PS_DROP_MSG",
    "BYTEPS_ORDERED_HOSTS",
};

static void unset_all(void)
{
    for (size_t i = 0; i < sizeof VARIABLES / sizeof VARIABLES[0]; i++) {
        unsetenv(VARIABLES[i]);
    }
}

static void set(const char *name, const char *value)
{
    assert_int_equal(setenv(name, value, 1), 0);
}

/* A job of 2 servers and 4 workers. */
static void set_job(const char *role)
{
    set("DMLC_ROLE", role);
    set("DMLC_NUM_WORKER", "4");
    set("DMLC_NUM_SERVER", "2");
    set("DMLC_PS_ROOT_URI", "10.0.0.2");
    set("DMLC_PS_ROOT_PORT", "8123");
}

/* Writes *out on success only. */
static int read_dmlc(struct sl_dmlc *out, struct sl_reason *reason)
{
    static struct parsed parsed;
    int err = parse_settings(SL_PROGRAM_PS, NO_ARGUMENTS, &parsed);
    sl_reason_set(reason, "%s", parsed.reason.text);
    if (err == 0) {
        err = sl_dmlc_resolve(&parsed.settings.dmlc, NULL, reason);
    }
    if (err == 0) {
        *out = parsed.settings.dmlc;
    }
    return err;
}

static struct sl_dmlc read_all(void)
{
    struct sl_dmlc dmlc;
    struct sl_reason reason = {0};
    if (read_dmlc(&dmlc, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
    return dmlc;
}

static void refuse_with(const char *const *words)
{
    struct sl_dmlc dmlc;
    struct sl_reason reason = {0};
    assert_int_equal(read_dmlc(&dmlc, &reason), SL_ERR_INVALID);
    expect_words(reason.text, words);
}

#define CASE(name) SL_CASE_WITH(name, unset_all(), unset_all())

CASE(dmlc_read__takes_what_is_said)
{
    set_job("server");
    set("DMLC_INTERFACE", "eth5");
    set("DMLC_NODE_HOST", "[::1]");
    set("DMLC_PORT", "9000");
    set("DMLC_RANK", "1");
    set("DMLC_GROUP_SIZE", "8");
    set("PS_VERBOSE", "2");
    set("PS_HEARTBEAT_INTERVAL", "3");
    set("PS_HEARTBEAT_TIMEOUT", "30");
    struct sl_dmlc dmlc = read_all();
    assert_true(dmlc.in_use);
    assert_int_equal(dmlc.role, SL_DMLC_SERVER);
    assert_int_equal(dmlc.worker_count, 4);
    assert_int_equal(dmlc.server_count, 2);
    assert_string_equal(dmlc.root.host, "10.0.0.2");
    assert_int_equal(dmlc.root.port, 8123);
    assert_int_equal(dmlc.root.scheme, SL_ENDPOINT_TCP);
    assert_string_equal(dmlc.interface, "eth5");
    assert_string_equal(dmlc.node_host, "::1");
    assert_int_equal(dmlc.port, 9000);
    assert_null(dmlc.rdma);
    assert_int_equal(dmlc.rank, 1);
    assert_string_equal(dmlc.rank_variable, "DMLC_RANK");
    assert_int_equal(dmlc.group_size, 8);
    assert_int_equal(dmlc.trace, 2);
    assert_int_equal(dmlc.heartbeat_interval_s, 3);
    assert_int_equal(dmlc.heartbeat_timeout_s, 30);
    set("DMLC_PS_ROOT_URI", "fe80::1");
    assert_string_equal(read_all().root.host, "fe80::1");
    set("DMLC_ENABLE_RDMA", "0");
    assert_null(read_all().rdma);
}

CASE(dmlc_read__rdma_has_three_names)
{
    static const char *const names[] = {"1", "ibverbs", "rdma"};
    set_job("server");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        set("DMLC_ENABLE_RDMA", names[i]);
        assert_string_equal(read_all().rdma, names[i]);
    }
}

CASE(dmlc_read__the_van_may_be_in_the_other_variable)
{
    set_job("server");
    set("DMLC_PS_VAN_TYPE", "ibverbs");
    struct sl_dmlc dmlc = read_all();
    assert_string_equal(dmlc.rdma, "ibverbs");
    assert_string_equal(dmlc.unheeded, "");
    set("DMLC_PS_VAN_TYPE", "zmq");
    dmlc = read_all();
    assert_null(dmlc.rdma);
    assert_string_equal(dmlc.unheeded, "");
}

CASE(dmlc_read__lists_what_has_no_effect)
{
    set_job("server");
    set("DMLC_ENABLE_RDMA", "multivan");
    set("DMLC_NUM_PORTS", "1");
    set("DMLC_ENABLE_UCX", "1");
    set("PS_DROP_MSG", "10");
    set("BYTEPS_ORDERED_HOSTS", "a,b");
    struct sl_dmlc dmlc = read_all();
    assert_null(dmlc.rdma);
    expect_words(dmlc.unheeded, WORDS("DMLC_ENABLE_RDMA=multivan (", "DMLC_ENABLE_UCX=1 (",
                                      "PS_DROP_MSG=10 (", "BYTEPS_ORDERED_HOSTS=a,b ("));
    assert_null(strstr(dmlc.unheeded, "DMLC_NUM_PORTS"));
}

CASE(dmlc_read__a_joint_process_is_a_server_and_a_worker)
{
    set_job("joint");
    struct sl_dmlc dmlc = read_all();
    assert_int_equal(dmlc.role, SL_DMLC_JOINT);
    const struct sl_cluster_flags flags = {.task_index = -1};
    struct sl_cluster cluster;
    struct sl_reason reason;
    assert_int_equal(sl_cluster_resolve(SL_CLUSTER_PS, &flags, NULL, &dmlc, &cluster, &reason), 0);
    assert_int_equal(cluster.role, SL_CLUSTER_PS);
    sl_cluster_fini(&cluster);
    assert_int_equal(sl_cluster_resolve(SL_CLUSTER_WORKER, &flags, NULL, &dmlc, &cluster, &reason),
                     0);
    assert_int_equal(cluster.role, SL_CLUSTER_WORKER);
    sl_cluster_fini(&cluster);
}

CASE(dmlc_read__an_interface_of_auto_is_none)
{
    set_job("server");
    set("DMLC_INTERFACE", "auto");
    assert_string_equal(read_all().interface, "");
}

CASE(dmlc_read__a_worker_may_have_byteps_id)
{
    set_job("worker");
    set("DMLC_WORKER_ID", "3");
    assert_int_equal(read_all().rank, 3);
    assert_string_equal(read_all().rank_variable, "DMLC_WORKER_ID");
    set("DMLC_RANK", "2");
    refuse_with(WORDS("DMLC_RANK is 2", "DMLC_WORKER_ID is 3"));
    set("DMLC_ROLE", "server");
    assert_int_equal(read_all().rank, 2);
}

CASE(dmlc_read__bad_values_name_what_is_accepted)
{
    static const struct {
        const char *name, *value, *accepted;
    } cases[] = {
        {"DMLC_ROLE", "Worker", "scheduler, server, worker or joint"},
        {"DMLC_NUM_WORKER", "0", "from 1 to 16384"},
        {"DMLC_NUM_WORKER", "four", "from 1 to 16384"},
        {"DMLC_NUM_SERVER", "1025", "from 1 to 1024"},
        {"DMLC_PS_ROOT_URI", "tcp://a:1", "name or the address of a host"},
        {"DMLC_PS_ROOT_URI", "a b", "name or the address of a host"},
        {"DMLC_PS_ROOT_PORT", "0", "from 1 to 65535"},
        {"DMLC_PS_ROOT_PORT", "65536", "from 1 to 65535"},
        {"DMLC_INTERFACE", "an-interface-too-long", "network interface"},
        {"DMLC_NODE_HOST", "a/b", "name or the address of a host"},
        {"DMLC_PORT", "-1", "from 0 to 65535"},
        {"DMLC_ENABLE_RDMA", "true", "0 or zmq: TCP; 1, ibverbs or rdma"},
        {"DMLC_PS_VAN_TYPE", "carrier", "0 or zmq: TCP; 1, ibverbs or rdma"},
        {"DMLC_RANK", "-1", "from 0 to 16383"},
        {"DMLC_WORKER_ID", "x", "from 0 to 16383"},
        {"DMLC_GROUP_SIZE", "0", "from 1 to 256"},
        {"DMLC_GROUP_SIZE", "8", "accepts 1 for a worker"},
        {"PS_VERBOSE", "3", "from 0 to 2"},
        {"PS_HEARTBEAT_INTERVAL", "1s", "from 0 to 3600"},
        {"PS_HEARTBEAT_TIMEOUT", "86400", "from 0 to 3600"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unset_all();
        set_job("worker");
        set(cases[i].name, cases[i].value);
        refuse_with(WORDS(cases[i].name, cases[i].value, cases[i].accepted));
    }
}

CASE(dmlc_read__heartbeats_come_more_than_once_a_timeout)
{
    set("PS_HEARTBEAT_TIMEOUT", "5");
    set("PS_HEARTBEAT_INTERVAL", "5");
    refuse_with(WORDS("PS_HEARTBEAT_INTERVAL=5", "PS_HEARTBEAT_TIMEOUT", "is 5"));
    set("PS_HEARTBEAT_TIMEOUT", "0");
    assert_int_equal(read_all().heartbeat_interval_s, 5);
}

static struct sl_cluster resolve(enum sl_cluster_role role, struct sl_cluster_flags flags)
{
    struct sl_dmlc dmlc = read_all();
    struct sl_cluster cluster;
    struct sl_reason reason = {0};
    if (sl_cluster_resolve(role, &flags, NULL, &dmlc, &cluster, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
    return cluster;
}

static void refuse_cluster(enum sl_cluster_role role, struct sl_cluster_flags flags,
                           const char *tf_config, const char *const *words)
{
    struct sl_dmlc dmlc = read_all();
    struct sl_cluster cluster;
    struct sl_reason reason = {0};
    assert_int_equal(sl_cluster_resolve(role, &flags, tf_config, &dmlc, &cluster, &reason),
                     SL_ERR_INVALID);
    expect_words(reason.text, words);
}

CASE(cluster_resolve__dmlc_and_flags_that_agree)
{
    set_job("scheduler");
    set("DMLC_ROLE", "");
    struct sl_cluster cluster = resolve(
        SL_CLUSTER_PS, (struct sl_cluster_flags){
                           .task_index = -1, .job_name = "scheduler", .worker_hosts = "a,b,c,d"});
    assert_int_equal(cluster.role, SL_CLUSTER_SCHEDULER);
    cluster = resolve(SL_CLUSTER_WORKER, (struct sl_cluster_flags){.task_index = 2});
    assert_int_equal(cluster.task_index, 2);
    set("DMLC_RANK", "7");
    cluster = resolve(SL_CLUSTER_WORKER, (struct sl_cluster_flags){.task_index = -1, .joins = 1});
    assert_int_equal(cluster.task_index, 7);
}

#define NOTHING ((struct sl_cluster_flags){.task_index = -1})

CASE(cluster_resolve__dmlc_contradictions_name_both)
{
    set_job("server");
    refuse_cluster(SL_CLUSTER_PS,
                   (struct sl_cluster_flags){.task_index = -1, .ps_hosts = "h:1,h:2"}, NULL,
                   WORDS("--ps-hosts", "h:1", "DMLC_PS_ROOT_URI", "10.0.0.2:8123"));
    refuse_cluster(SL_CLUSTER_PS,
                   (struct sl_cluster_flags){.task_index = -1, .worker_hosts = "a,b"}, NULL,
                   WORDS("--worker-hosts names 2", "DMLC_NUM_WORKER is 4"));
    refuse_cluster(SL_CLUSTER_PS,
                   (struct sl_cluster_flags){.task_index = -1, .job_name = "scheduler"}, NULL,
                   WORDS("--job-name is scheduler", "DMLC_ROLE is server"));
    refuse_cluster(SL_CLUSTER_PS, NOTHING, "{\"cluster\":{\"ps\":[\"p:1\"],\"worker\":[\"w\"]}}",
                   WORDS("TF_CONFIG", "p:1", "DMLC_PS_ROOT_URI"));
    set("DMLC_RANK", "1");
    refuse_cluster(SL_CLUSTER_PS, (struct sl_cluster_flags){.task_index = 0}, NULL,
                   WORDS("--task-index is 0", "DMLC_RANK is 1"));
    set("DMLC_RANK", "2");
    refuse_cluster(SL_CLUSTER_PS, NOTHING, NULL, WORDS("DMLC_RANK=2", "0 to 1"));
    refuse_cluster(SL_CLUSTER_WORKER, NOTHING, NULL,
                   WORDS("DMLC_ROLE=server", "starling-worker", "starling-ps"));
    set("DMLC_ROLE", "worker");
    refuse_cluster(SL_CLUSTER_PS, NOTHING, NULL,
                   WORDS("DMLC_ROLE=worker", "scheduler, server or joint", "starling-worker"));
    set("DMLC_ROLE", "");
    refuse_cluster(SL_CLUSTER_PS, NOTHING, NULL, WORDS("DMLC_ROLE is not set", "--job-name"));
    unset_all();
    refuse_cluster(SL_CLUSTER_PS,
                   (struct sl_cluster_flags){.task_index = -1, .job_name = "scheduler"}, NULL,
                   WORDS("--job-name=scheduler", "DMLC_PS_ROOT_URI"));
}

static void find(struct sl_dmlc dmlc, const char *expected)
{
    char host[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_reason reason = {0};
    if (sl_dmlc_find_host(&dmlc, host, &reason) != 0) {
        fail_msg("not found: %s", reason.text);
    }
    assert_string_equal(host, expected);
}

SL_CASE(dmlc_find_host__in_order)
{
    struct sl_dmlc dmlc = {.root = {.host = "127.0.0.2", .port = 1}};
    find(dmlc, "127.0.0.1");
    memcpy(dmlc.interface, "lo", sizeof "lo");
    memcpy(dmlc.root.host, "10.0.0.2", sizeof "10.0.0.2");
    find(dmlc, "127.0.0.1");
    memcpy(dmlc.node_host, "here", sizeof "here");
    find(dmlc, "here");
}

SL_CASE(dmlc_find_host__names_the_interfaces)
{
    const struct sl_dmlc dmlc = {.interface = "nosuch0"};
    char host[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_reason reason = {0};
    assert_int_equal(sl_dmlc_find_host(&dmlc, host, &reason), SL_ERR_INVALID);
    expect_words(reason.text, WORDS("DMLC_INTERFACE=nosuch0", "accepts", "lo"));
}
