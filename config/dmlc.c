#include "config/dmlc.h"

#include <stdio.h>
#include <string.h>

#include "config/cli.h"
#include "core/assert.h"
#include "core/format.h"

static const char *const role_names[] = {
    [SL_DMLC_SCHEDULER] = "scheduler",
    [SL_DMLC_SERVER] = "server",
    [SL_DMLC_WORKER] = "worker",
    [SL_DMLC_JOINT] = "joint",
};

bool sl_dmlc_parse_role(const char *text, void *target)
{
    for (int role = SL_DMLC_SCHEDULER; role <= SL_DMLC_JOINT; role++) {
        if (strcmp(text, role_names[role]) == 0) {
            *(enum sl_dmlc_role *)target = (enum sl_dmlc_role)role;
            return true;
        }
    }
    return false;
}

/* Accepts a name or an address; brackets around IPv6 are optional. */
bool sl_dmlc_parse_host(const char *text, void *target)
{
    char uri[SL_LIMIT_ENDPOINT_BYTES * 2];
    const bool is_bare_v6 = text[0] != '[' && strchr(text, ':') != NULL;
    (void)snprintf(uri, sizeof uri, is_bare_v6 ? "tcp://[%s]:0" : "tcp://%s:0", text);
    struct sl_endpoint endpoint;
    if (sl_endpoint_parse(uri, &endpoint, NULL) != 0) {
        return false;
    }
    memcpy(target, endpoint.host, sizeof endpoint.host);
    return true;
}

bool sl_dmlc_parse_interface(const char *text, void *target)
{
    if (strlen(text) >= IFNAMSIZ || strchr(text, '/') != NULL) {
        return false;
    }
    (void)snprintf(target, IFNAMSIZ, "%s", strcmp(text, "auto") == 0 ? "" : text);
    return true;
}

static bool is_among(const char *text, const char *const *names)
{
    while (*names != NULL && strcmp(text, *names) != 0) {
        names++;
    }
    return *names != NULL;
}

/* Transports of ps-lite ("vans"). */
static const char *const rdma_vans[] = {"1", "ibverbs", "rdma", NULL};
static const char *const tcp_vans[] = {"0", "zmq", "p3", NULL};
static const char *const other_vans[] = {"multivan", "ucx", "fabric", NULL}; /* TCP here */

bool sl_dmlc_parse_rdma(const char *text, void *target)
{
    const bool is_on = is_among(text, rdma_vans);
    *(const char **)target = is_on ? text : NULL;
    return is_on || is_among(text, tcp_vans) || is_among(text, other_vans);
}

/* Lists the variables that ask for what is not done here. Those that ask for what is always done
 * (PS_RESEND, DMLC_LOCAL, BYTEPS_ENABLE_IPC), or that tune another implementation, are not read. */
static void list_unheeded(struct sl_dmlc *dmlc, const char *const *variables)
{
    static const struct {
        const char *name;
        const char *unless[4]; /* values that ask for nothing */
        const char *why;
    } others[] = {
        {"DMLC_ENABLE_RDMA", {"0", "zmq", "p3"}, "the transport is TCP, or shared memory"},
        {"DMLC_PS_VAN_TYPE", {"0", "zmq", "p3"}, "the transport is TCP, or shared memory"},
        {"DMLC_ENABLE_UCX", {"0"}, "there is no UCX here"},
        {"DMLC_NUM_PORTS", {"0", "1"}, "a server has one port"},
        {"PS_DROP_MSG", {"0"}, "no message is dropped"},
        {"BYTEPS_ENABLE_MIXED_MODE", {"0"}, "every server has as many keys"},
        {"BYTEPS_ORDERED_HOSTS", {""}, "ranks are in order of arrival, or as DMLC_RANK says"},
    };
    dmlc->unheeded[0] = '\0';
    for (size_t i = 0; dmlc->in_use && i < sizeof others / sizeof others[0]; i++) {
        const char *text = sl_cli_variable(variables, others[i].name);
        const bool is_van = i < 2;
        if (text != NULL && text[0] != '\0' && !is_among(text, others[i].unless) &&
            !(is_van && is_among(text, rdma_vans))) {
            (void)sl_format_add(dmlc->unheeded, sizeof dmlc->unheeded, "; ", "%s=%.40s (%s)",
                                others[i].name, text, others[i].why);
        }
    }
}

/* DMLC_RANK is ps-lite's, for all roles; DMLC_WORKER_ID is BytePS's, for workers. */
static int check_rank(struct sl_dmlc *dmlc, struct sl_reason *reason)
{
    const int64_t id = dmlc->role == SL_DMLC_WORKER ? dmlc->worker_id : -1;
    if (dmlc->rank >= 0 && id >= 0 && dmlc->rank != id) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "DMLC_RANK is %d, but DMLC_WORKER_ID is %d; they must agree",
                              (int)dmlc->rank, (int)id);
    }
    dmlc->rank_variable = dmlc->rank >= 0 ? "DMLC_RANK" : id >= 0 ? "DMLC_WORKER_ID" : NULL;
    dmlc->rank = dmlc->rank >= 0 ? dmlc->rank : id;
    return 0;
}

/* The size of the job and the endpoint of its scheduler go together. */
static int check_job(const struct sl_dmlc *dmlc, struct sl_reason *reason)
{
    const struct {
        const char *name;
        bool is_set;
        const char *accepted;
    } needed[] = {
        {"DMLC_PS_ROOT_URI", dmlc->root.host[0] != '\0', "the host of the scheduler"},
        {"DMLC_PS_ROOT_PORT", dmlc->root_port != 0, "the port of the scheduler"},
        {"DMLC_NUM_WORKER", dmlc->worker_count != 0, "the number of workers"},
        {"DMLC_NUM_SERVER", dmlc->server_count != 0, "the number of servers"},
    };
    for (size_t i = 0; dmlc->in_use && i < sizeof needed / sizeof needed[0]; i++) {
        if (!needed[i].is_set) {
            return sl_reason_fail(
                reason, SL_ERR_INVALID, "%s is not set, but %s is: it accepts %s", needed[i].name,
                dmlc->role != SL_DMLC_ROLE_UNSET ? "DMLC_ROLE" : "DMLC_PS_ROOT_URI",
                needed[i].accepted);
        }
    }
    return 0;
}

int sl_dmlc_resolve(struct sl_dmlc *dmlc, const char *const *variables, struct sl_reason *reason)
{
    dmlc->in_use = dmlc->role != SL_DMLC_ROLE_UNSET || dmlc->root.host[0] != '\0';
    dmlc->root.port = (uint16_t)dmlc->root_port;
    list_unheeded(dmlc, variables);
    int err = check_job(dmlc, reason);
    err = err != 0 ? err : check_rank(dmlc, reason);
    if (err == 0 && dmlc->role == SL_DMLC_WORKER && dmlc->group_size > 1) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "DMLC_GROUP_SIZE=%u: accepts 1 for a worker, which is one process; a "
                             "server has so many shards",
                             dmlc->group_size);
    }
    /* 0 means "no heartbeats" in ps-lite, and "unset" here. */
    if (err == 0 && dmlc->heartbeat_timeout_s != 0 &&
        dmlc->heartbeat_interval_s >= dmlc->heartbeat_timeout_s) {
        err = sl_reason_fail(
            reason, SL_ERR_INVALID,
            "PS_HEARTBEAT_INTERVAL=%u: accepts less than PS_HEARTBEAT_TIMEOUT, which is %u",
            dmlc->heartbeat_interval_s, dmlc->heartbeat_timeout_s);
    }
    return err;
}

const char *sl_dmlc_role_name(enum sl_dmlc_role role)
{
    sl_assert(role >= SL_DMLC_SCHEDULER);
    sl_assert(role <= SL_DMLC_JOINT);
    return role_names[role];
}
