#include "objects/node/publish_tables.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/assert.h"
#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/publish.h"
#include "reactor/offload.h"

#define PAUSE_US  20000 /* before the servers are asked again */
#define COMMIT_MS 2000  /* of one try: the node may end meanwhile */

/* Server */

struct job {
    struct sl_offload_job job; /* first */
    struct sl_objects *node;
    char address[SL_OBJECTS_ADDRESS_BYTES]; /* of the asker */
    uint32_t number;                        /* of its request */
    struct sl_objects_tables_request request;
    struct sl_objects_tables_state state;
    int err;
    struct sl_reason reason;
};

static void look_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_objects_answer(call, node->tables.is_closing ? SL_ERR_CLOSED : 0, "this node ends");
}

/* The deadline has passed, or the node ends. */
static bool is_over(struct sl_objects *node, const struct sl_objects_tables_request *request)
{
    struct sl_objects_call look = {.run = look_here};
    return sl_clock_now_ns(sl_reactor_clock(node->reactor)) >= request->deadline_ns ||
           sl_objects_call(node, &look) != 0;
}

static void publish_tables_job_work(struct sl_offload_job *offload_job)
{
    struct job *job = (struct job *)offload_job;
    const struct sl_objects_setup *setup = &job->node->setup;
    sl_reason_set(&job->reason, "it came too late");
    job->err = is_over(job->node, &job->request)
                   ? SL_ERR_DEADLINE
                   : setup->publish_tables(setup->ctx, job->node, &job->request, &job->state,
                                           &job->reason);
}

static void publish_tables_job_done(struct sl_offload_job *offload_job)
{
    struct job *job = (struct job *)offload_job;
    struct sl_objects_tables *tables = &job->node->tables;
    struct sl_objects_message answer = {.kind = SL_OBJECTS_TABLES,
                                        .is_answer = true,
                                        .request = job->number,
                                        .tables = {.iterations = job->state.iterations,
                                                   .shards = job->state.shards,
                                                   .shard_count = job->state.shard_count},
                                        .err = job->job.err != 0 ? job->job.err : job->err,
                                        .text = job->job.err != 0 ? "no thread" : job->reason.text};
    sl_objects_link_send(job->node->link, job->address, &answer, NULL, NULL);
    free(job);
    if (--tables->job_count == 0 && tables->closing != NULL) {
        sl_objects_answer(tables->closing, 0, "closed");
    }
}

void sl_objects_tables_receive(struct sl_objects *node, const char *address,
                               const struct sl_objects_message *message)
{
    struct sl_objects_tables *tables = &node->tables;
    if (node->setup.publish_tables == NULL || tables->is_closing) {
        sl_objects_link_refuse(node->link, address, message, SL_ERR_UNSUPPORTED,
                               "this node is no server of a job");
        return;
    }
    struct job *job = calloc(1, sizeof *job);
    if (job == NULL || (tables->offload == NULL && node->setup.post == NULL &&
                        sl_offload_create(node->reactor, "tables", &tables->offload) != 0)) {
        free(job);
        sl_objects_link_refuse(node->link, address, message, SL_ERR_NO_MEMORY, "out of memory");
        return;
    }
    *job =
        (struct job){.job = {.work = publish_tables_job_work,
                             .done = publish_tables_job_done,
                             .allocates = true},
                     .node = node,
                     .number = message->request,
                     .request = {.version = message->version,
                                 .epoch = message->epoch,
                                 .part = message->part,
                                 .part_count = message->part_count,
                                 .iterations = message->tables.iterations,
                                 .deadline_ns = sl_objects_deadline_ns(node, message->timeout_ms)}};
    (void)snprintf(job->address, sizeof job->address, "%s", address);
    (void)snprintf(job->request.name, sizeof job->request.name, "%s", message->name);
    (void)snprintf(job->request.note, sizeof job->request.note, "%s", message->text);
    (void)snprintf(job->request.tables, sizeof job->request.tables, "%s", message->tables.names);
    tables->job_count++;
    if (node->setup.post != NULL) {
        node->setup.post(node->setup.ctx, &job->job);
    } else {
        sl_offload_post(tables->offload, &job->job);
    }
}

int sl_objects_tables_begin(struct sl_objects *node,
                            const struct sl_objects_tables_request *request,
                            struct sl_publication **out)
{
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = request->name,
                                               .note = request->note,
                                               .origin = SL_ORIGIN_PS,
                                               .part = request->part,
                                               .part_count = request->part_count};
    const int err = sl_publish_create(node, &options, out);
    if (err == 0) {
        struct sl_publication *made = *out;
        made->version = request->version;
        made->epoch = request->epoch;
        made->is_kept_here = true;
        made->keeper_count = 1;
        (void)snprintf(made->keepers[0].address, sizeof made->keepers[0].address, "%s",
                       sl_transfer_name(node->transfer));
    }
    return err;
}

int sl_objects_tables_commit(struct sl_objects *node,
                             const struct sl_objects_tables_request *request,
                             struct sl_publication *publication)
{
    uint64_t version;
    int err;
    do {
        err = sl_publish_commit(publication, COMMIT_MS, &version);
    } while (err == SL_ERR_DEADLINE && !is_over(node, request));
    return err;
}

static void publish_tables_close_here(struct sl_objects *node, struct sl_objects_call *call)
{
    node->tables.is_closing = true;
    if (node->tables.job_count > 0) {
        node->tables.closing = call;
    } else {
        sl_objects_answer(call, 0, "closed");
    }
}

void sl_objects_tables_close(struct sl_objects *node)
{
    struct sl_objects_call close = {.run = publish_tables_close_here};
    (void)sl_objects_call(node, &close);
}

/* Publisher */

struct publish {
    struct sl_objects_call call;
    const char *name, *note, *tables;
    const struct sl_objects_tables_own *own; /* part 0; NULL: none */
    struct sl_publication *own_part;
    uint64_t deadline_ns, version, epoch;
    uint32_t part_count, server_count, left;
    uint32_t iterations, most; /* asked for; the most that a server has */
    uint32_t shards, shard_count;
    struct server {
        struct publish *publish;
        struct sl_objects_request request;
        char address[SL_OBJECTS_ADDRESS_BYTES];
    } servers[SL_OBJECTS_PARTS_MAX];
};

struct begun {
    struct publish *publish;
    uint32_t server, keeper_total;
};

static void publish_tables_take_begun(void *ctx, const struct sl_objects_message *answer)
{
    struct begun *begun = ctx;
    struct publish *publish = begun->publish;
    publish->version = answer->version;
    publish->epoch = answer->epoch;
    begun->keeper_total = answer->keepers.total;
    if (answer->keepers.count > 0) {
        (void)snprintf(publish->servers[begun->server].address,
                       sizeof publish->servers[begun->server].address, "%s",
                       answer->keepers.peers[0].address);
    }
}

static uint32_t part_of(const struct publish *publish, uint32_t server)
{
    return publish->own != NULL ? server + 1 : server;
}

/* Asks for the keeper of a part, which is its publisher from then on. */
static int begin_part(struct sl_objects *objects, struct publish *publish, struct begun *begun,
                      uint32_t options)
{
    struct sl_objects_message begin = {
        .kind = SL_OBJECTS_BEGIN,
        .name = publish->name,
        .version = publish->version,
        .part = publish->part_count > 1 ? part_of(publish, begun->server) : 0,
        .part_count = publish->part_count,
        .begin.origin = SL_ORIGIN_PS,
        .begin.options = options | SL_OBJECTS_TAKE_OVER | SL_OBJECTS_BY_KEEPER};
    return sl_objects_ask_and_wait(objects, &begin,
                                   sl_objects_ms_left(objects, publish->deadline_ns),
                                   publish_tables_take_begun, begun);
}

/* Begins the publisher's own part with its tensors. */
static int begin_own(struct sl_objects *objects, struct publish *publish)
{
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = publish->name,
                                               .note = publish->note,
                                               .version = publish->version,
                                               .origin = SL_ORIGIN_PS,
                                               .part_count = publish->part_count,
                                               .take_over = true};
    sl_publish_end(&publish->own_part); /* of the try before */
    const int err = sl_publish_begin(
        objects, &options, sl_objects_ms_left(objects, publish->deadline_ns), &publish->own_part);
    return err != 0 ? err : publish->own->add(publish->own->ctx, publish->own_part);
}

/* The first answer says how many keepers there are, so how many parts. */
static int begin_parts(struct sl_objects *objects, struct publish *publish, uint32_t options)
{
    struct begun begun = {.publish = publish};
    publish->part_count = 1;
    int err = begin_part(objects, publish, &begun, options);
    const uint32_t total = begun.keeper_total, parts_max = SL_OBJECTS_PARTS_MAX;
    if (err == 0 && part_of(publish, total) > parts_max) {
        return sl_objects_fail(SL_ERR_TOO_LARGE, "%u servers: tables of at most %u are published",
                               total, parts_max - part_of(publish, 0));
    }
    publish->server_count = total;
    publish->part_count = part_of(publish, total);
    err = err != 0 || publish->own == NULL ? err : begin_own(objects, publish);
    for (uint32_t i = 0; err == 0 && publish->part_count > 1 && i < total; i++) {
        begun.server = i;
        err = begin_part(objects, publish, &begun, 0);
        if (err == 0 && begun.keeper_total != total) {
            err = sl_objects_fail(SL_ERR_AGAIN, "a server has come or gone");
        }
    }
    return err;
}

static void publish_tables_answered(struct sl_objects_request *request,
                                    const struct sl_objects_message *answer, int err,
                                    const char *reason)
{
    struct server *server = SL_CONTAINER_OF(request, struct server, request);
    struct publish *publish = server->publish;
    struct sl_objects *node = publish->call.node;
    if (err == 0) {
        publish->most =
            answer->tables.iterations > publish->most ? answer->tables.iterations : publish->most;
        publish->shards += answer->tables.shards;
        publish->shard_count = answer->tables.shard_count > publish->shard_count
                                   ? answer->tables.shard_count
                                   : publish->shard_count; /* 0: a server that has just begun */
    }
    if (err == 0 && --publish->left > 0) {
        return;
    }
    for (uint32_t i = 0; i < publish->server_count; i++) {
        sl_objects_link_cancel(node->link, &publish->servers[i].request);
    }
    sl_objects_answer(&publish->call, err, "the server at %s: %s", server->address, reason);
}

static void ask_servers(struct sl_objects *node, struct sl_objects_call *call)
{
    struct publish *publish = SL_CONTAINER_OF(call, struct publish, call);
    publish->left = publish->server_count;
    publish->shards = publish->shard_count = 0;
    for (uint32_t i = 0; i < publish->server_count; i++) {
        struct server *server = &publish->servers[i];
        const uint32_t timeout_ms = sl_objects_ms_left(node, publish->deadline_ns);
        struct sl_objects_message ask = {.kind = SL_OBJECTS_TABLES,
                                         .name = publish->name,
                                         .text = publish->note,
                                         .tables.names = publish->tables,
                                         .version = publish->version,
                                         .epoch = publish->epoch,
                                         .part = part_of(publish, i),
                                         .part_count = publish->part_count,
                                         .tables.iterations = publish->iterations,
                                         .timeout_ms = timeout_ms};
        server->publish = publish;
        server->request = (struct sl_objects_request){.answered = publish_tables_answered};
        sl_objects_link_request(node->link, &server->request, server->address, &ask, timeout_ms);
    }
}

static void publish_tables_pause(const struct sl_objects *objects)
{
    if (objects->setup.pause != NULL) {
        objects->setup.pause(objects->setup.ctx, PAUSE_US);
    } else {
        (void)usleep(PAUSE_US);
    }
}

/* All servers commit their parts, and this node its own meanwhile: each waits for the others. */
static int commit_parts(struct sl_objects *objects, struct publish *publish)
{
    uint64_t version;
    uint32_t wait_ms =
        COMMIT_MS / 64; /* soon after the servers have refused, nothing is waited for */
    int own_err = 0, err = sl_objects_call_begin(objects, &publish->call);
    if (err != 0) {
        return err;
    }
    do {
        own_err =
            publish->own_part != NULL ? sl_publish_commit(publish->own_part, wait_ms, &version) : 0;
        wait_ms = wait_ms < COMMIT_MS / 2 ? 2 * wait_ms : COMMIT_MS;
    } while (own_err == SL_ERR_DEADLINE && !sl_completion_ended(&publish->call.completion));
    const struct sl_reason saved = sl_objects_error_save();
    err = sl_objects_call_end(objects, &publish->call);
    if (own_err != 0 && own_err != SL_ERR_DEADLINE) {
        sl_objects_error_restore(&saved);
        return own_err;
    }
    return err != 0 || own_err == 0
               ? err
               : sl_publish_commit(publish->own_part,
                                   sl_objects_ms_left(objects, publish->deadline_ns), &version);
}

/* All shards take their snapshots after the same number of iterations: that of the shard which is
 * farthest now, or, if others pass that before they are asked, some more. */
static int publish_at_one_iteration(struct sl_objects *objects, struct publish *publish,
                                    uint32_t options)
{
    const char *tables = publish->tables;
    uint32_t ahead = 0;
    int err = 0;
    do {
        if (err != 0) {
            publish_tables_pause(objects);
        }
        const uint32_t before = publish->most;
        err = begin_parts(objects, publish, options);
        publish->tables = "";
        err = err != 0 ? err : sl_objects_call(objects, &publish->call);
        if (err == 0 && (publish->shards != publish->shard_count || publish->shards == 0)) {
            err = sl_objects_fail(SL_ERR_AGAIN, "the keepers have %u shards, the job has %u",
                                  publish->shards, publish->shard_count);
        }
        const bool is_waiting = publish->most - before < ahead; /* it trains slowly, or has ended */
        ahead = is_waiting ? 0 : ahead;
        const bool is_over = publish->most >= UINT32_MAX - ahead;
        publish->iterations = is_over ? publish->most : publish->most + ahead;
        publish->tables = tables;
        err = err != 0 ? err : commit_parts(objects, publish);
        ahead = 4 * ahead + 1;
    } while (err == SL_ERR_AGAIN && sl_objects_ms_left(objects, publish->deadline_ns) > 1);
    return err;
}

int sl_publish_tables(struct sl_objects *objects, const struct sl_publish_options *options,
                      const char *tables, uint32_t timeout_ms, uint64_t *version)
{
    return sl_objects_tables_publish(objects, options, tables, NULL, timeout_ms, version);
}

int sl_objects_tables_publish(struct sl_objects *objects, const struct sl_publish_options *options,
                              const char *tables, const struct sl_objects_tables_own *own,
                              uint32_t timeout_ms, uint64_t *version)
{
    sl_assert(objects != NULL && options != NULL);
    sl_assert(version != NULL);
    int err = sl_publish_check(options);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    if (err == 0 && (tables == NULL || tables[0] == '\0' ||
                     !sl_objects_text_is_valid(tables, SL_OBJECTS_TABLES_BYTES))) {
        err = sl_objects_fail(SL_ERR_INVALID, "names of tables have 1 to %d characters together",
                              SL_OBJECTS_TABLES_BYTES - 1);
    }
    if (err != 0) {
        return err;
    }
    struct publish *publish = calloc(1, sizeof *publish);
    if (publish == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    *publish = (struct publish){.call = {.run = ask_servers},
                                .name = options->name,
                                .note = options->note,
                                .tables = tables,
                                .own = own,
                                .version = options->version,
                                .deadline_ns = sl_objects_deadline_ns(objects, timeout_ms)};
    err = publish_at_one_iteration(objects, publish, options->new_name ? SL_OBJECTS_NEW_NAME : 0);
    *version = err == 0 ? publish->version : *version;
    sl_publish_end(&publish->own_part);
    free(publish);
    return err == 0 ? sl_objects_succeed() : err;
}
