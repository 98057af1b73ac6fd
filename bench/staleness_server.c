/* The server mode: versions are objects, which the trainer publishes from its node, and workers
 * get; polling for the newest, or notified. */
#include <stdio.h>
#include <stdlib.h>

#include <starling_objects.h>

#include "bench/now.h"
#include "bench/staleness.h"

#define NAME       "parameters"
#define TIMEOUT_MS 60000

struct server {
    struct sl_objects *node;
    struct sl_subscription *subscription;
    uint64_t due_ns, version; /* version: in `memory` */
    uint8_t *memory;
};

static int fail(int err, const char *what)
{
    sl_log_error("%s: %s", what, sl_objects_last_error());
    return err;
}

static int open_node(struct sl_bench_staleness *run, const char *catalogue)
{
    struct server *server = calloc(1, sizeof *server);
    const struct sl_transfer_options engine = {.name = run->is_distributed ? NULL : "127.0.0.1:0",
                                               .insecure = run->is_distributed};
    const struct sl_objects_options options = {
        .struct_size = sizeof options,
        .engine_options = &engine,
        .catalogue = catalogue,
        .pool_bytes = (SL_BENCH_STALENESS_KEPT + 1) *
                      (run->bytes + 2 * SL_OBJECTS_BLOCK_BYTES)}; /* a rest, and the manifest */
    run->state = server;
    const int err = server != NULL ? sl_objects_create(&options, &server->node) : SL_ERR_NO_MEMORY;
    return err == 0 ? 0 : fail(err, "node");
}

static int open_trainer(struct sl_bench_staleness *run)
{
    const int err = open_node(run, NULL);
    if (err == 0) {
        const struct server *server = run->state;
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
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .version = version};
    const struct sl_object_extent extent = {
        .base = (void *)(uintptr_t)run->memories[version % SL_BENCH_STALENESS_KEPT],
        .bytes = run->bytes};
    struct sl_publication *publication = NULL;
    int err = sl_publish_begin(server->node, &options, TIMEOUT_MS, &publication);
    err = err != 0 ? err : sl_publish_bytes(publication, &extent, 1);
    err = err != 0 ? err : sl_publish_commit(publication, TIMEOUT_MS, &version);
    err = err != 0 ? fail(err, "push") : 0;
    sl_publish_end(&publication);
    return err;
}

static int open_worker(struct sl_bench_staleness *run)
{
    int err = open_node(run, run->place.text);
    struct server *server = run->state;
    if (err == 0) {
        server->memory = malloc(run->bytes);
        err = server->memory == NULL ? SL_ERR_NO_MEMORY : 0;
    }
    err = err != 0
              ? err
              : sl_subscription_open(server->node, NAME, NULL, TIMEOUT_MS, &server->subscription);
    return err == 0 ? 0 : fail(err, "subscription");
}

/* Waits for a newer version, or looks for one at the next time of pulls. Errors: DEADLINE. */
static int look(const struct sl_bench_staleness *run, struct server *server, uint64_t above,
                uint64_t *version)
{
    if (run->options.subscribe) {
        return sl_subscription_wait(server->subscription, above, TIMEOUT_MS, version);
    }
    sl_bench_staleness_sleep(run, &server->due_ns);
    *version = sl_subscription_newest(server->subscription);
    return *version > above ? 0 : SL_ERR_DEADLINE;
}

static int pull(struct sl_bench_staleness *run, uint64_t above, uint64_t *version,
                const uint8_t **memory)
{
    struct server *server = run->state;
    const struct sl_object_extent extent = {.base = server->memory, .bytes = run->bytes};
    for (;;) {
        struct sl_get *get = NULL;
        int err = look(run, server, above, version);
        if (err == 0 && server->version != 0) {
            err = sl_object_withdraw(server->node, NAME, server->version, TIMEOUT_MS);
            err = err == SL_ERR_NOT_FOUND ? 0 : err;
        }
        if (err == 0) {
            server->version = *version;
            err = sl_get_start(server->node, NAME, *version, &extent, 1, TIMEOUT_MS, &get);
        }
        err = err != 0 ? err : sl_get_wait(get);
        sl_get_close(&get);
        if (err == 0) {
            *memory = server->memory;
            return 0;
        }
        /* It has been retired in the meantime. */
        if (err != SL_ERR_DEADLINE && err != SL_ERR_NOT_FOUND && err != SL_ERR_CANCELLED) {
            return fail(err, "pull");
        }
    }
}

const struct sl_bench_staleness_mode sl_bench_staleness_server = {
    .name = "server",
    .open_trainer = open_trainer,
    .push = push,
    .close_trainer = close_trainer,
    .open_worker = open_worker,
    .pull = pull,
};
