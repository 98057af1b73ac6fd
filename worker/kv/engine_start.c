/* Starts and stops an engine. */
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "core/reason.h"
#include "core/thread.h"
#include "worker/kv/engine.h"

/* Takes the driving thread's port and opens the lane that wakes it. */
static int take_port(struct sl_engine *engine)
{
    struct sl_client *client = engine->client;
    int err = sl_port_here(client->ports, &engine->driver.port);
    err = err != 0
              ? err
              : sl_relay_inbox_open(&engine->inbox, &client->ios[0], engine->driver.port->driven);
    if (err == 0 && engine->has_thread) {
        err = sl_mailbox_lane_open(sl_reactor_mailbox(engine->driver.port->driven), &engine->lane);
    }
    return err;
}

static int join_cluster(struct sl_engine *engine, const struct sl_client_options *options,
                        uint32_t beside)
{
    const struct sl_client_place place = {.beside = beside, .inbox = &engine->inbox};
    int err = sl_client_create_at(options, &place, &engine->client);
    if (err == 0 && (err = take_port(engine)) != 0) {
        sl_relay_inbox_close(&engine->inbox);
        sl_client_destroy(&engine->client);
        sl_reason_set(sl_reason_last(), "kv: cannot start its thread: %s", sl_err_name(err));
    }
    return err;
}

static void leave_cluster(struct sl_engine *engine)
{
    if (engine->lane != NULL) {
        sl_mailbox_lane_close(&engine->lane);
    }
    sl_relay_inbox_close(&engine->inbox);
    sl_client_destroy(&engine->client);
}

/* The thread */

struct start {
    struct sl_engine *engine;
    const struct sl_client_options *options;
    uint32_t beside;
    struct sl_engine_waiter *waiter;
    int err;
    struct sl_reason reason; /* of err */
    bool over;
};

static void on_started(void *ctx, uint64_t err, uint64_t unused)
{
    struct start *start = ctx;
    start->err = (int)(int64_t)err;
    start->over = true;
}

static bool is_asked_to_end(struct sl_engine *engine)
{
    sl_engine_lock(engine);
    bool ends = engine->stopping && engine->outstanding == 0 && engine->new_jobs == NULL;
    sl_engine_unlock(engine);
    return ends && engine->driver.jobs == NULL;
}

static void *engine_start_run(void *ctx)
{
    struct start *start = ctx;
    struct sl_engine *engine = start->engine;
    int err = join_cluster(engine, start->options, start->beside);
    start->reason = *sl_reason_last();
    int posted = sl_mailbox_post(
        start->waiter->lane,
        (struct sl_mail){.run = on_started, .ctx = start, .a = (uint64_t)(int64_t)err});
    sl_assert(posted == 0);
    if (err != 0) {
        return NULL;
    }
    for (;;) {
        sl_engine_progress(engine);
        if (is_asked_to_end(engine)) {
            break;
        }
        sl_engine_rest(engine);
    }
    leave_cluster(engine);
    return NULL;
}

static int start_thread(struct sl_engine *engine, const struct sl_client_options *options,
                        uint32_t beside)
{
    struct start start = {.engine = engine,
                          .options = options,
                          .beside = beside,
                          .waiter = sl_engine_take_waiter(engine)};
    if (start.waiter == NULL ||
        sl_thread_start(&engine->thread, NULL, engine_start_run, &start) != 0) {
        if (start.waiter != NULL) {
            sl_engine_give_waiter(engine, start.waiter);
        }
        return sl_reason_report(SL_ERR_NO_MEMORY, "kv: no memory for a thread");
    }
    while (!start.over) {
        sl_mailbox_wait(start.waiter->mailbox, SL_PORT_WAIT_NS);
        sl_mailbox_drain(start.waiter->mailbox, 1);
    }
    sl_engine_give_waiter(engine, start.waiter);
    if (start.err != 0) {
        *sl_reason_last() = start.reason;
        pthread_join(engine->thread, NULL);
    }
    return start.err;
}

/* Creation and destruction */

static void free_engine(struct sl_engine *engine)
{
    sl_engine_free_queue(engine);
    sl_relay_inbox_fini(&engine->inbox);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

int sl_engine_create(const struct sl_client_options *options, uint32_t beside, bool caller_drives,
                     struct sl_engine **out)
{
    struct sl_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "kv: no memory for an engine");
    }
    pthread_mutex_init(&engine->lock, NULL);
    sl_relay_inbox_init(&engine->inbox);
    engine->has_thread = !caller_drives;
    int err = caller_drives ? join_cluster(engine, options, beside)
                            : start_thread(engine, options, beside);
    if (err != 0) {
        free_engine(engine);
        return err;
    }
    *out = engine;
    return 0;
}

void sl_engine_destroy(struct sl_engine **engine)
{
    struct sl_engine *closing = *engine;
    *engine = NULL;
    sl_assert(closing->outstanding == 0);
    if (closing->has_thread) {
        sl_engine_lock(closing);
        closing->stopping = true;
        sl_engine_wake(closing);
        sl_engine_unlock(closing);
        pthread_join(closing->thread, NULL);
    } else {
        leave_cluster(closing);
    }
    free_engine(closing);
}
