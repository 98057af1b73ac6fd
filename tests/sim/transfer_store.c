#include "tests/sim/transfer_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/record.h"
#include "reactor/timer.h"
#include "tests/sim/random.h"
#include "tests/support/memory_store.h"

#define CALM_US   1000
#define OUTAGE_NS (500 * SL_CLOCK_NS_PER_MS) /* until what has failed is tried again */

struct ask {
    struct sl_list_link link;
    struct sl_sim_transfer_handle *handle;
    struct sl_metastore_request *request; /* the engine's; NULL: answered, or forgotten */
    struct sl_metastore_request copy;     /* with its own `was`, changes and values */
    uint64_t there_ns;
    bool is_done, is_unanswered;
    struct sl_timer timer; /* of the answer, or of the timeout */
};

static void free_if_over(struct ask *ask)
{
    if (ask->is_done && ask->request == NULL) {
        sl_list_remove(&ask->link);
        sl_metastore_answer_fini(&ask->copy.answer);
        for (size_t i = 0; i < ask->copy.change_count; i++) {
            free(ask->copy.changes[i].value);
        }
        free(ask->copy.changes);
        free((void *)(uintptr_t)ask->copy.was);
        free(ask);
    }
}

static void *copy_of(const void *from, size_t bytes)
{
    void *copy = malloc(bytes + 1);
    sl_assert(copy != NULL);
    if (bytes > 0) {
        memcpy(copy, from, bytes);
    }
    return copy;
}

/* Appends a copy of the request, which is executed at that time. */
static struct ask *add_ask(struct sl_sim_transfer_handle *handle,
                           const struct sl_metastore_request *request, uint64_t there_ns)
{
    struct ask *ask = copy_of(&(struct ask){.handle = handle, .there_ns = there_ns}, sizeof *ask);
    ask->copy = *request;
    ask->copy.was = request->was == NULL ? NULL : copy_of(request->was, request->was_bytes);
    ask->copy.changes = copy_of(request->changes, request->change_count * sizeof *request->changes);
    for (size_t i = 0; i < request->change_count; i++) {
        struct sl_metastore_change *change = &ask->copy.changes[i];
        change->value = copy_of(change->value, change->value_bytes);
    }
    sl_list_append(&handle->store->asks, &ask->link);
    return ask;
}

static uint64_t delay_ns(struct sl_sim_transfer_store *store)
{
    const struct sl_sim_transfer_plan *plan = store->plan;
    const bool is_late =
        !store->is_calm && sl_sim_chance(&store->random, plan->store_late_permille);
    const uint32_t us = store->is_calm ? CALM_US
                        : is_late      ? plan->store_late_us
                                       : plan->store_delay_us;
    return SL_CLOCK_NS_PER_US * sl_sim_between(&store->random, 1, us);
}

static void on_answer(struct sl_timer *timer, uint64_t now_ns)
{
    struct ask *ask = SL_CONTAINER_OF(timer, struct ask, timer);
    struct sl_metastore_request *request = ask->request;
    ask->request = NULL;
    if (ask->is_done && !ask->is_unanswered) {
        request->answer = ask->copy.answer;
        ask->copy.answer = (struct sl_metastore_answer){0};
    } else {
        sl_metastore_answer_fail(&request->answer, SL_ERR_DEADLINE, "no answer in time");
    }
    free_if_over(ask);
    request->done(request->ctx, request);
}

enum fate {
    ANSWERED,
    UNANSWERED, /* executed in time */
    LATE,
    TWICE, /* executed and answered in time; and again, late: as by a server that was asked first */
    FATES
};

static void on_ask(struct sl_metastore *base, struct sl_metastore_request *request)
{
    struct sl_sim_transfer_handle *handle = (struct sl_sim_transfer_handle *)base;
    struct sl_sim_transfer_store *store = handle->store;
    const uint64_t now_ns = sl_sim_network_now(store->network);
    const bool is_stuck = !store->is_calm && store->stuck_permille > 0 &&
                          sl_sim_chance(&store->random, store->stuck_permille);
    const uint64_t late_ns =
        is_stuck ? sl_sim_between(&store->random, 1, store->stuck_ns_max) : SL_CLOCK_NEVER;
    const enum fate fate = is_stuck ? sl_sim_below(&store->random, FATES) : ANSWERED;
    const uint64_t there_ns = now_ns + delay_ns(store);
    handle->there_ns = there_ns > handle->there_ns ? there_ns : handle->there_ns + 1;
    const uint64_t back_ns = handle->there_ns + delay_ns(store);
    handle->back_ns = back_ns > handle->back_ns ? back_ns : handle->back_ns + 1;
    struct ask *ask = add_ask(handle, request, fate == LATE ? now_ns + late_ns : handle->there_ns);
    ask->request = request;
    ask->timer.run = on_answer;
    if (fate == TWICE) {
        (void)add_ask(handle, request, now_ns + late_ns);
    }
    ask->is_unanswered = fate == LATE || fate == UNANSWERED;
    const uint64_t wait_ns = ask->is_unanswered ? SL_CLOCK_NEVER : handle->back_ns - now_ns;
    sl_reactor_arm(handle->reactor, &ask->timer,
                   wait_ns < request->timeout_ns ? wait_ns : request->timeout_ns);
}

static const struct sl_metastore_ops ops = {.ask = on_ask};

static void on_done(void *ctx, struct sl_metastore_request *copy)
{
    ((struct ask *)ctx)->is_done = true;
}

static void carry_out(struct sl_sim_transfer_store *store, struct ask *ask)
{
    const bool is_out = store->outages > 0 || ask->handle->is_cut;
    if (is_out && sl_sim_chance(&store->random, 500)) {
        sl_metastore_answer_fail(&ask->copy.answer, SL_ERR_IO, "it cannot be reached");
        ask->is_done = true;
    } else if (is_out) {
        ask->there_ns += OUTAGE_NS; /* it is sent again */
        return;
    } else {
        memory_store_pass(store->memory, ask->there_ns);
        ask->copy.done = on_done;
        ask->copy.ctx = ask;
        sl_metastore_request(store->inner, &ask->copy);
        (void)memory_store_answer(store->memory);
    }
    free_if_over(ask);
}

static struct ask *first_due(const struct sl_sim_transfer_store *store)
{
    struct ask *first = NULL;
    SL_LIST_FOREACH (link, &store->asks) {
        struct ask *ask = SL_CONTAINER_OF(link, struct ask, link);
        if (!ask->is_done && ask->there_ns <= sl_sim_network_now(store->network) &&
            (first == NULL || ask->there_ns < first->there_ns)) {
            first = ask;
        }
    }
    return first;
}

void sl_sim_transfer_store_advance(struct sl_sim_transfer_store *store)
{
    struct ask *ask;
    while ((ask = first_due(store)) != NULL) {
        carry_out(store, ask);
    }
    memory_store_pass(store->memory, sl_sim_network_now(store->network));
}

struct sl_metastore *sl_sim_transfer_store_open(struct sl_sim_transfer_store *store, uint32_t host,
                                                struct sl_reactor *reactor)
{
    struct sl_sim_transfer_handle *handle = &store->handles[host];
    handle->reactor = reactor;
    return &handle->base;
}

/* err: of the answer to its requests; 0: they get none. */
static void end_requests(struct sl_sim_transfer_store *store, uint32_t host, int err)
{
    SL_LIST_EACH (struct ask, ask, link, &store->asks) {
        struct sl_metastore_request *request = ask->request;
        if (ask->handle == &store->handles[host] && request != NULL) {
            sl_reactor_disarm(ask->handle->reactor, &ask->timer);
            ask->request = NULL;
            free_if_over(ask);
            if (err != 0) {
                sl_metastore_answer_fail(&request->answer, err, "the process ends");
                request->done(request->ctx, request);
            }
        }
    }
}

void sl_sim_transfer_store_forget(struct sl_sim_transfer_store *store, uint32_t host)
{
    end_requests(store, host, 0);
}

void sl_sim_transfer_store_cancel(struct sl_sim_transfer_store *store, uint32_t host)
{
    end_requests(store, host, SL_ERR_CANCELLED);
}

static void make_key(const char *name, char key[SL_METASTORE_KEY_BYTES])
{
    (void)snprintf(key, SL_METASTORE_KEY_BYTES, SL_TRANSFER_RECORD_KEY_PREFIX "%s", name);
}

uint64_t sl_sim_transfer_store_incarnation(const struct sl_sim_transfer_store *store,
                                           const char *name)
{
    char key[SL_METASTORE_KEY_BYTES];
    struct sl_transfer_record record;
    make_key(name, key);
    const struct sl_metastore_item *item = memory_store_look(store->memory, key);
    return item != NULL && sl_transfer_record_decode((const char *)item->value, item->value_bytes,
                                                     name, &record, NULL) == 0
               ? record.incarnation
               : 0;
}

uint32_t sl_sim_transfer_store_count(const struct sl_sim_transfer_store *store)
{
    return memory_store_count(store->memory, SL_TRANSFER_RECORD_KEY_PREFIX);
}

void sl_sim_transfer_store_init(struct sl_sim_transfer_store *store,
                                const struct sl_sim_transfer_plan *plan,
                                struct sl_sim_network *network)
{
    *store = (struct sl_sim_transfer_store){
        .plan = plan, .network = network, .random = sl_hash_key(plan->seed ^ 0x7f2d)};
    sl_list_init(&store->asks);
    store->memory = memory_store_create();
    store->inner = memory_store_handle(store->memory);
    for (uint32_t i = 0; i < SL_SIM_TRANSFER_STORE_HANDLES_MAX; i++) {
        store->handles[i] = (struct sl_sim_transfer_handle){.base.ops = &ops, .store = store};
    }
}

void sl_sim_transfer_store_fini(struct sl_sim_transfer_store *store)
{
    SL_LIST_FOREACH (link, &store->asks) {
        struct ask *ask = SL_CONTAINER_OF(link, struct ask, link);
        sl_assert(ask->request == NULL);
        ask->is_done = true;
        free_if_over(ask);
    }
    memory_store_destroy(store->memory);
}
