#include "config/dmlc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/env.h"
#include "core/assert.h"

#define SECONDS_MAX 3600

static const char *const role_names[] = {
    [SL_DMLC_SCHEDULER] = "scheduler",
    [SL_DMLC_SERVER] = "server",
    [SL_DMLC_WORKER] = "worker",
};

struct reader {
    char *reason;
    size_t reason_bytes;
};

static int refuse(const struct reader *reader, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(const struct reader *reader, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(reader->reason, reader->reason_bytes, format, arguments);
    va_end(arguments);
    return SL_ERR_INVALID;
}

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Leaves *out unchanged if the variable is not set. */
static int read_number(const struct reader *reader, const char *name, uint32_t least, uint32_t most,
                       uint32_t *out)
{
    const char *value = value_of(name);
    if (value == NULL || sl_env_parse_u32(value, least, most, out)) {
        return 0;
    }
    return refuse(reader, "%s=%.80s: accepts a number from %u to %u", name, value, least, most);
}

static int read_role(const struct reader *reader, enum sl_dmlc_role *out)
{
    const char *value = value_of("DMLC_ROLE");
    *out = SL_DMLC_ROLE_UNSET;
    if (value == NULL) {
        return 0;
    }
    for (int role = SL_DMLC_SCHEDULER; role <= SL_DMLC_WORKER; role++) {
        if (strcmp(value, role_names[role]) == 0) {
            *out = (enum sl_dmlc_role)role;
            return 0;
        }
    }
    return refuse(reader, "DMLC_ROLE=%.80s: accepts scheduler, server or worker", value);
}

/* Accepts a name or an address; brackets around IPv6 are optional. */
static int read_host(const struct reader *reader, const char *name,
                     char out[SL_LIMIT_ENDPOINT_BYTES])
{
    const char *value = value_of(name);
    if (value == NULL) {
        return 0;
    }
    char text[SL_LIMIT_ENDPOINT_BYTES * 2];
    const bool is_bare_v6 = value[0] != '[' && strchr(value, ':') != NULL;
    (void)snprintf(text, sizeof text, is_bare_v6 ? "tcp://[%s]:0" : "tcp://%s:0", value);
    struct sl_endpoint endpoint;
    if (sl_endpoint_parse(text, &endpoint, NULL, 0) != 0) {
        return refuse(reader, "%s=%.80s: accepts the name or the address of a host, without a port",
                      name, value);
    }
    memcpy(out, endpoint.host, sizeof endpoint.host);
    return 0;
}

static int read_interface(const struct reader *reader, char out[IFNAMSIZ])
{
    const char *value = value_of("DMLC_INTERFACE");
    if (value == NULL || strcmp(value, "auto") == 0) {
        return 0;
    }
    if (strlen(value) >= IFNAMSIZ || strchr(value, '/') != NULL) {
        return refuse(reader,
                      "DMLC_INTERFACE=%.80s: accepts the name of a network interface, such "
                      "as eth0",
                      value);
    }
    (void)snprintf(out, IFNAMSIZ, "%s", value);
    return 0;
}

static int read_rdma(const struct reader *reader, const char **out)
{
    static const char *const names[] = {"1", "ibverbs", "rdma"};
    const char *value = value_of("DMLC_ENABLE_RDMA");
    if (value == NULL || strcmp(value, "0") == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(value, names[i]) == 0) {
            *out = names[i];
            return 0;
        }
    }
    return refuse(reader, "DMLC_ENABLE_RDMA=%.80s: accepts 0, 1, ibverbs or rdma", value);
}

/* DMLC_RANK is ps-lite's, for all roles; DMLC_WORKER_ID is BytePS's, for workers. */
static int read_rank(const struct reader *reader, struct sl_dmlc *dmlc)
{
    uint32_t rank = UINT32_MAX;
    uint32_t id = UINT32_MAX;
    int err = read_number(reader, "DMLC_RANK", 0, SL_LIMIT_WORKERS - 1, &rank);
    if (err == 0 && dmlc->role == SL_DMLC_WORKER) {
        err = read_number(reader, "DMLC_WORKER_ID", 0, SL_LIMIT_WORKERS - 1, &id);
    }
    if (err == 0 && rank != UINT32_MAX && id != UINT32_MAX && rank != id) {
        err =
            refuse(reader, "DMLC_RANK is %u, but DMLC_WORKER_ID is %u; they must agree", rank, id);
    }
    dmlc->rank_variable = rank != UINT32_MAX ? "DMLC_RANK"
                          : id != UINT32_MAX ? "DMLC_WORKER_ID"
                                             : NULL;
    dmlc->rank = -1;
    if (dmlc->rank_variable != NULL) {
        dmlc->rank = rank != UINT32_MAX ? rank : id;
    }
    return err;
}

/* 0 means "no heartbeats" in ps-lite, and "unset" here. */
static int read_heartbeats(const struct reader *reader, struct sl_dmlc *dmlc)
{
    int err =
        read_number(reader, "PS_HEARTBEAT_INTERVAL", 0, SECONDS_MAX, &dmlc->heartbeat_interval_s);
    if (err == 0) {
        err =
            read_number(reader, "PS_HEARTBEAT_TIMEOUT", 0, SECONDS_MAX, &dmlc->heartbeat_timeout_s);
    }
    if (err == 0 && dmlc->heartbeat_timeout_s != 0 &&
        dmlc->heartbeat_interval_s >= dmlc->heartbeat_timeout_s) {
        err = refuse(reader,
                     "PS_HEARTBEAT_INTERVAL=%u: accepts less than PS_HEARTBEAT_TIMEOUT, which is "
                     "%u",
                     dmlc->heartbeat_interval_s, dmlc->heartbeat_timeout_s);
    }
    return err;
}

static int check_set(const struct reader *reader, const char *name, bool is_set,
                     const char *accepted)
{
    return is_set
               ? 0
               : refuse(reader, "%s is not set, but %s is: it accepts %s", name,
                        value_of("DMLC_ROLE") != NULL ? "DMLC_ROLE" : "DMLC_PS_ROOT_URI", accepted);
}

/* Reads the size of the job and the endpoint of its scheduler. */
static int read_job(const struct reader *reader, struct sl_dmlc *dmlc)
{
    uint32_t port = 0;
    int err = read_number(reader, "DMLC_NUM_WORKER", 1, SL_LIMIT_WORKERS, &dmlc->worker_count);
    if (err == 0) {
        err = read_number(reader, "DMLC_NUM_SERVER", 1, SL_LIMIT_PS, &dmlc->server_count);
    }
    if (err == 0) {
        err = read_host(reader, "DMLC_PS_ROOT_URI", dmlc->root.host);
    }
    if (err == 0) {
        err = read_number(reader, "DMLC_PS_ROOT_PORT", 1, UINT16_MAX, &port);
        dmlc->root.port = (uint16_t)port;
    }
    if (err != 0 || !dmlc->in_use) {
        return err;
    }
    err = check_set(reader, "DMLC_PS_ROOT_URI", dmlc->root.host[0] != '\0',
                    "the host of the scheduler");
    if (err == 0) {
        err = check_set(reader, "DMLC_PS_ROOT_PORT", port != 0, "the port of the scheduler");
    }
    if (err == 0) {
        err = check_set(reader, "DMLC_NUM_WORKER", dmlc->worker_count != 0, "how many there are");
    }
    if (err == 0) {
        err = check_set(reader, "DMLC_NUM_SERVER", dmlc->server_count != 0, "how many there are");
    }
    return err;
}

/* Reads the variables of this process. */
static int read_self(const struct reader *reader, struct sl_dmlc *dmlc)
{
    uint32_t port = 0;
    int err = read_interface(reader, dmlc->interface);
    if (err == 0) {
        err = read_host(reader, "DMLC_NODE_HOST", dmlc->node_host);
    }
    if (err == 0) {
        err = read_number(reader, "DMLC_PORT", 0, UINT16_MAX, &port);
        dmlc->port = (uint16_t)port;
    }
    if (err == 0) {
        err = read_rdma(reader, &dmlc->rdma);
    }
    if (err == 0) {
        err = read_rank(reader, dmlc);
    }
    if (err == 0) {
        err = read_number(reader, "DMLC_GROUP_SIZE", 1, SL_LIMIT_REACTORS, &dmlc->group_size);
    }
    if (err == 0 && dmlc->role == SL_DMLC_WORKER && dmlc->group_size > 1) {
        err = refuse(reader,
                     "DMLC_GROUP_SIZE=%u: accepts 1 for a worker, which is one process; a "
                     "server has so many shards",
                     dmlc->group_size);
    }
    return err;
}

int sl_dmlc_read(struct sl_dmlc *out, char *reason, size_t reason_bytes)
{
    const struct reader reader = {.reason = reason, .reason_bytes = reason_bytes};
    struct sl_dmlc dmlc = {
        .in_use = value_of("DMLC_ROLE") != NULL || value_of("DMLC_PS_ROOT_URI") != NULL,
    };
    int err = read_role(&reader, &dmlc.role);
    if (err == 0) {
        err = read_job(&reader, &dmlc);
    }
    if (err == 0) {
        err = read_self(&reader, &dmlc);
    }
    if (err == 0) {
        err = read_number(&reader, "PS_VERBOSE", 0, 2, &dmlc.trace);
    }
    if (err == 0) {
        err = read_heartbeats(&reader, &dmlc);
    }
    if (err == 0) {
        *out = dmlc;
    }
    return err;
}

const char *sl_dmlc_role_name(enum sl_dmlc_role role)
{
    sl_assert(role >= SL_DMLC_SCHEDULER);
    sl_assert(role <= SL_DMLC_WORKER);
    return role_names[role];
}
