/* The server mode: versions are objects, which the trainer publishes from its node. The first
 * worker of each host is its agent, too, which gets every version; workers map what it has. They
 * poll for the newest, or are notified. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <starling_objects.h>

#include "bench/now.h"
#include "bench/staleness.h"
#include "objects/node/node.h"

#define NAME       "parameters"
#define TIMEOUT_MS 60000
/* Versions: a fetch that takes longer than so many pushes is cancelled. Of large ones fewer, so
 * that soon all memory of the pool was in use before. */
#define KEPT       8
#define KEPT_LARGE 3
#define LARGE      (64U << 20)

struct server {
    struct sl_objects *node; /* the trainer's; an agent; NULL */

    /* Worker. */
    struct sl_objects *reader;
    struct sl_subscription *subscription;
    struct sl_view *view; /* NULL: none yet */
    uint64_t due_ns;
};

static int fail(int err, const char *what)
{
    sl_log_error("%s: %s", what, sl_objects_last_error());
    return err;
}

/* agent: its name, or NULL. */
static int open_node(struct sl_bench_staleness *run, const char *catalogue, const char *agent)
{
    struct server *server = run->state;
    const struct sl_transfer_options engine = {.name = run->is_distributed ? NULL : "127.0.0.1:0",
                                               .endpoints =
                                                   run->options.tcp ? "tcp://127.0.0.1:0" : NULL,
                                               .insecure = run->is_distributed || run->options.tcp};
    const uint32_t kept = run->bytes >= LARGE ? KEPT_LARGE : KEPT;
    const struct sl_objects_setup setup = {.agent = agent, .keep_versions = kept};
    const struct sl_objects_options options = {
        .struct_size = sizeof options,
        .engine_options = &engine,
        .catalogue = catalogue,
        .agent = "off",
        .rate_bytes = agent == NULL ? run->options.rate : 0,
        .pool_bytes =
            2ULL * kept * (run->bytes + 2 * SL_OBJECTS_BLOCK_BYTES)}; /* a rest, and the manifest */
    const int err = sl_objects_create_with(&options, &setup, &server->node);
    return err == 0 ? 0 : fail(err, "node");
}

static int open_trainer(struct sl_bench_staleness *run)
{
    struct server *server = calloc(1, sizeof *server);
    run->state = server;
    const int err = server != NULL ? open_node(run, NULL, NULL) : SL_ERR_NO_MEMORY;
    if (err == 0) {
        (void)snprintf(run->place.text, sizeof run->place.text, "%s",
                       sl_objects_address(server->node));
    }
    return err;
}

static void close_trainer(struct sl_bench_staleness *run)
{
    struct server *server = run->state;
    if (server != NULL) {
        sl_objects_destroy(&server->node);
    }
    free(server);
}

static int push(struct sl_bench_staleness *run, uint64_t version)
{
    struct server *server = run->state;
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = NAME,
                                               .version = version,
                                               .delta = run->options.delta};
    const struct sl_object_tensor weights = {.name = "weights",
                                             .type = SL_OBJECT_BF16,
                                             .rank = 1,
                                             .shape = {run->bytes / 2},
                                             .data =
                                                 run->memories[version % SL_BENCH_STALENESS_KEPT],
                                             .bytes = run->bytes};
    struct sl_publication *publication = NULL;
    int err = sl_publish_begin(server->node, &options, TIMEOUT_MS, &publication);
    err = err != 0 ? err : sl_publish_tensor(publication, &weights);
    err = err != 0 ? err : sl_publish_commit(publication, TIMEOUT_MS, &version);
    err = err != 0 ? fail(err, "push") : 0;
    sl_publish_end(&publication);
    return err;
}

static int open_worker(struct sl_bench_staleness *run)
{
    struct server *server = calloc(1, sizeof *server);
    static char agent[32];
    const char *port = strrchr(run->place.text, ':');
    (void)snprintf(agent, sizeof agent, "staleness-%s", port != NULL ? port + 1 : "");
    const struct sl_objects_options options = {.struct_size = sizeof options, .agent = agent};
    const struct sl_subscribe_options follow = {.struct_size = sizeof follow, .follow = true};
    run->state = server;
    if (server == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    int err = run->is_first_of_host ? open_node(run, run->place.text, agent) : 0;
    if (err == 0) {
        err = sl_objects_create(&options, &server->reader);
        err = err != 0 ? err
                       : sl_subscription_open(server->reader, NAME, &follow, TIMEOUT_MS,
                                              &server->subscription);
        err = err != 0 ? fail(err, "subscription") : 0;
    }
    return err;
}

/* Waits for a newer version, or looks for one at the next time of pulls. Errors: DEADLINE. */
static int look(const struct sl_bench_staleness *run, struct server *server, uint64_t above)
{
    uint64_t version;
    if (run->options.subscribe) {
        return sl_subscription_wait(server->subscription, above, TIMEOUT_MS, &version);
    }
    sl_bench_staleness_sleep(run, &server->due_ns);
    return sl_subscription_newest(server->subscription) > above ? 0 : SL_ERR_DEADLINE;
}

static int pull(struct sl_bench_staleness *run, uint64_t above, uint64_t *version,
                const uint8_t **memory)
{
    struct server *server = run->state;
    struct sl_object_tensor tensor;
    struct sl_view *view = NULL;
    int err = SL_ERR_DEADLINE;
    /* It may be retired in the meantime. */
    while (err == SL_ERR_DEADLINE || err == SL_ERR_CANCELLED || err == SL_ERR_NOT_FOUND) {
        err = look(run, server, above);
        err = err != 0 ? err : sl_view_open(server->subscription, NULL, TIMEOUT_MS, &view);
    }
    err = err != 0 ? err : sl_view_tensor(view, "weights", &tensor, NULL);
    if (err != 0) {
        return fail(err, "pull");
    }
    sl_view_close(&server->view);
    server->view = view;
    *version = sl_view_version(server->view);
    *memory = tensor.data;
    return 0;
}

const struct sl_bench_staleness_mode sl_bench_staleness_server = {
    .name = "server",
    .open_trainer = open_trainer,
    .push = push,
    .close_trainer = close_trainer,
    .open_worker = open_worker,
    .pull = pull,
};
