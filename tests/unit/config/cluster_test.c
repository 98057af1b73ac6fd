#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/cluster.h"
#include "config/dmlc.h"
#include "tests/support/unit.h"

#define NOTHING                                                                                    \
    {                                                                                              \
        .task_index = -1                                                                           \
    }
#define TF_CLUSTER      "\"cluster\":{\"ps\":[\"p:1\",\"p:2\"],\"chief\":[\"c\"],\"worker\":[\"w\"]}"
#define TF(type, index) "{" TF_CLUSTER ",\"task\":{\"type\":\"" type "\",\"index\":" index "}}"

/* What ps-lite's variables say; NULL: nothing. */
static const struct sl_dmlc *dmlc;

/* Every test runs in an empty folder of its own, where a .endpoint_map would be found. */
static char folder[64];

static void enter_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/starling_cluster_XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
}

static void leave_folder(void)
{
    unlink(".endpoint_map");
    unlink("map");
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(rmdir(folder), 0);
}

#define CASE(name) SL_CASE_WITH(name, enter_folder(), leave_folder())

static void write_map(const char *name, const char *text)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static struct sl_cluster resolve(enum sl_cluster_role role, struct sl_cluster_flags flags,
                                 const char *tf_config)
{
    struct sl_cluster cluster;
    struct sl_reason reason = {0};
    if (sl_cluster_resolve(role, &flags, tf_config, dmlc, &cluster, &reason) != 0) {
        fail_msg("refused: %s", reason.text);
    }
    assert_int_equal(cluster.role, role);
    return cluster;
}

/* Expects an error whose reason holds each of the words, up to NULL. */
static void refuse(int err, enum sl_cluster_role role, struct sl_cluster_flags flags,
                   const char *tf_config, const char *const *words)
{
    struct sl_cluster cluster = {.ps_count = 4711};
    struct sl_reason reason = {0};
    assert_int_equal(sl_cluster_resolve(role, &flags, tf_config, dmlc, &cluster, &reason), err);
    for (; *words != NULL; words++) {
        if (strstr(reason.text, *words) == NULL) {
            fail_msg("\"%s\" is not in \"%s\"", *words, reason.text);
        }
    }
    assert_int_equal(cluster.ps_count, 4711);
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

CASE(cluster_resolve__one_that_joins_is_beyond_the_others)
{
    struct sl_cluster_flags flags = {
        .ps_hosts = "a:1", .worker_hosts = "x,y", .task_index = 5, .joins = true};
    struct sl_cluster cluster = resolve(SL_CLUSTER_WORKER, flags, NULL);
    assert_int_equal(cluster.worker_count, 2);
    assert_int_equal(cluster.task_index, 5);
    sl_cluster_fini(&cluster);
    flags.joins = false;
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER, flags, NULL,
           WORDS("--task-index=5", "0 to 1", "--join"));
}

CASE(cluster_resolve__by_tf_config)
{
    struct sl_cluster cluster =
        resolve(SL_CLUSTER_WORKER, (struct sl_cluster_flags)NOTHING, TF("worker", "0"));
    assert_int_equal(cluster.ps_count, 2);
    assert_int_equal(cluster.worker_count, 2);
    assert_string_equal(cluster.worker_count_source, "TF_CONFIG");
    assert_int_equal(cluster.task_index, 1);
    sl_cluster_fini(&cluster);
}

CASE(cluster_resolve__by_the_map_in_the_working_folder)
{
    write_map(".endpoint_map", "a:1=rdma://r:9\nb:2=b:3\n");
    struct sl_cluster cluster =
        resolve(SL_CLUSTER_PS, (struct sl_cluster_flags){.task_index = 1}, NULL);
    assert_int_equal(cluster.ps_count, 2);
    assert_int_equal(cluster.worker_count, 0);
    assert_string_equal(cluster.ps[0].control.host, "a");
    assert_int_equal(cluster.ps[0].data.scheme, SL_ENDPOINT_RDMA);
    assert_int_equal(cluster.ps[1].data.port, 3);
    sl_cluster_fini(&cluster);
}

CASE(cluster_resolve__a_map_has_the_bypass_endpoints)
{
    write_map(".endpoint_map", "a:1=rdma://r:9,r:8\nb:2=b:3\n");
    struct sl_cluster cluster = resolve(
        SL_CLUSTER_PS, (struct sl_cluster_flags){.ps_hosts = "b:2,a:1", .task_index = 1}, NULL);
    assert_false(cluster.ps[0].has_bypass);
    assert_true(cluster.ps[1].has_bypass);
    assert_int_equal(cluster.ps[1].bypass.scheme, SL_ENDPOINT_RDMA);
    assert_int_equal(cluster.ps[1].bypass.port, 9);
    assert_int_equal(cluster.ps[1].data.scheme, SL_ENDPOINT_TCP);
    assert_int_equal(cluster.ps[1].data.port, 8);
    sl_cluster_fini(&cluster);
}

CASE(cluster_resolve__a_named_map_goes_before_the_one_in_the_folder)
{
    write_map(".endpoint_map", "this is no map\n");
    write_map("map", "b:2=b:3\n");
    struct sl_cluster cluster = resolve(
        SL_CLUSTER_PS,
        (struct sl_cluster_flags){.ps_hosts = "a:1,b:2", .endpoint_map = "map", .task_index = 1},
        NULL);
    assert_int_equal(cluster.ps_count, 2);
    assert_int_equal(cluster.ps[0].data.port, 1);
    assert_int_equal(cluster.ps[1].data.port, 3);
    sl_cluster_fini(&cluster);
}

CASE(cluster_resolve__sources_that_agree_are_merged)
{
    struct sl_cluster cluster = resolve(SL_CLUSTER_WORKER,
                                        (struct sl_cluster_flags){.ps_hosts = "P:1,tcp://p:2",
                                                                  .worker_hosts = "other:1,names:2",
                                                                  .job_name = "worker",
                                                                  .task_index = 1},
                                        TF("worker", "0"));
    assert_int_equal(cluster.task_index, 1);
    sl_cluster_fini(&cluster);

    /* Flags say the task, TF_CONFIG the cluster. */
    cluster =
        resolve(SL_CLUSTER_WORKER, (struct sl_cluster_flags){.job_name = "chief", .task_index = -1},
                "{" TF_CLUSTER "}");
    assert_int_equal(cluster.task_index, 0);
    assert_int_equal(cluster.worker_count, 2);
    sl_cluster_fini(&cluster);
}

CASE(cluster_resolve__the_only_task_needs_no_index)
{
    struct sl_cluster cluster =
        resolve(SL_CLUSTER_PS, (struct sl_cluster_flags){.ps_hosts = "a:1", .task_index = -1}, "");
    assert_int_equal(cluster.task_index, 0);
    sl_cluster_fini(&cluster);
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "a:1,b:2", .task_index = -1}, NULL,
           WORDS("task index", "--task-index", "TF_CONFIG"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER,
           (struct sl_cluster_flags){.ps_hosts = "a:1", .worker_hosts = "x,y", .task_index = -1},
           NULL, WORDS("worker", "--task-index"));
}

CASE(cluster_resolve__contradictions_name_both_sources)
{
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "p:1,p:3", .task_index = -1}, TF("ps", "0"),
           WORDS("ps/1", "--ps-hosts", "tcp://p:3", "TF_CONFIG", "tcp://p:2"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "p:2,p:1", .task_index = -1}, TF("ps", "0"),
           WORDS("ps/0", "--ps-hosts", "TF_CONFIG"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "p:1", .task_index = -1}, TF("ps", "0"),
           WORDS("--ps-hosts names 1", "TF_CONFIG names 2"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.worker_hosts = "a,b,c", .task_index = -1}, TF("ps", "0"),
           WORDS("--worker-hosts names 3", "TF_CONFIG names 2"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS, (struct sl_cluster_flags){.task_index = 0}, TF("ps", "1"),
           WORDS("--task-index is 0", "TF_CONFIG", "ps 1"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER, (struct sl_cluster_flags){.task_index = 0},
           TF("worker", "0"), WORDS("--task-index is 0", "TF_CONFIG", "worker 1"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER,
           (struct sl_cluster_flags){.job_name = "chief", .task_index = 1}, NULL,
           WORDS("--task-index=1", "--job-name=chief"));
}

CASE(cluster_resolve__another_role_is_refused)
{
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER,
           (struct sl_cluster_flags){.ps_hosts = "a:1", .job_name = "ps", .task_index = 0}, NULL,
           WORDS("--job-name=ps", "starling-worker", "starling-ps"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "a:1", .job_name = "chief", .task_index = 0}, NULL,
           WORDS("--job-name=chief", "starling-ps", "starling-worker"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "a:1", .job_name = "server", .task_index = 0},
           NULL, WORDS("--job-name=server", "ps or scheduler"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS, (struct sl_cluster_flags)NOTHING, TF("worker", "0"),
           WORDS("TF_CONFIG", "starling-ps", "starling-worker"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER, (struct sl_cluster_flags)NOTHING,
           TF("evaluator", "0"), WORDS("TF_CONFIG", "evaluator", "accepted are ps, worker, chief"));
}

CASE(cluster_resolve__index_outside_is_refused)
{
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "a:1,b:1", .task_index = 2}, NULL,
           WORDS("--task-index=2", "0 to 1"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS,
           (struct sl_cluster_flags){.ps_hosts = "a:1", .task_index = -2}, NULL,
           WORDS("--task-index=-2"));
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER,
           (struct sl_cluster_flags){.ps_hosts = "a:1", .task_index = INT64_MAX}, NULL,
           WORDS("--task-index=9223372036854775807", "16383"));
}

CASE(cluster_resolve__no_cluster_names_every_source)
{
    refuse(SL_ERR_INVALID, SL_CLUSTER_WORKER, (struct sl_cluster_flags)NOTHING, NULL,
           WORDS("--ps-hosts", "TF_CONFIG", "--endpoint-map", ".endpoint_map"));
    write_map(".endpoint_map", "# nothing yet\n");
    refuse(SL_ERR_INVALID, SL_CLUSTER_PS, (struct sl_cluster_flags)NOTHING, NULL,
           WORDS(".endpoint_map has no lines"));
}

CASE(cluster_resolve__a_server_alone_is_on_loopback)
{
    struct sl_cluster cluster = resolve(SL_CLUSTER_PS, (struct sl_cluster_flags)NOTHING, NULL);
    assert_true(cluster.is_default);
    assert_int_equal(cluster.ps_count, 1);
    assert_int_equal(cluster.worker_count, 0);
    assert_string_equal(cluster.ps[0].control.host, "127.0.0.1");
    assert_int_equal(cluster.ps[0].data.port, 3333);
    assert_null(cluster.map_path);
    sl_cluster_fini(&cluster);
    write_map(".endpoint_map", "127.0.0.1:1=tcp://127.0.0.1:2\n");
    cluster = resolve(SL_CLUSTER_PS, (struct sl_cluster_flags)NOTHING, NULL);
    assert_false(cluster.is_default);
    assert_string_equal(cluster.map_path, ".endpoint_map");
    sl_cluster_fini(&cluster);
}
