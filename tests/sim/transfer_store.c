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
    struct sl_metastore_request copy;
    struct sl_metastore_change change;
    uint64_t there_ns;
    bool is_done;
    struct sl_timer timer; /* of the answer, or of the timeout */
};

static void free_if_over(struct ask *ask)
{
    if (ask->is_done && ask->request == NULL) {
        sl_list_remove(&ask->link);
        sl_metastore_answer_fini(&ask->copy.answer);
        free(ask->change.value);
        free(ask);
    }
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
    if (ask->is_done) {
        request->answer = ask->copy.answer;
        ask->copy.answer = (struct sl_metastore_answer){0};
    } else {
        sl_metastore_answer_fail(&request->answer, SL_ERR_DEADLINE, "no answer in time");
    }
    free_if_over(ask);
    request->done(request->ctx, request);
}

static void on_ask(struct sl_metastore *base, struct sl_metastore_request *request)
{
    struct sl_sim_transfer_handle *handle = (struct sl_sim_transfer_handle *)base;
    struct sl_sim_transfer_store *store = handle->store;
    const uint64_t now_ns = sl_sim_network_now(store->network);
    struct ask *ask = calloc(1, sizeof *ask);
    sl_assert(ask != NULL);
    *ask = (struct ask){
        .handle = handle, .request = request, .copy = *request, .timer = {.run = on_answer}};
    if (request->change_count > 0) {
        sl_assert(request->change_count == 1 && request->was == NULL);
        ask->change = request->changes[0];
        ask->change.value = malloc(ask->change.value_bytes + 1);
        sl_assert(ask->change.value != NULL);
        memcpy(ask->change.value, request->changes[0].value, ask->change.value_bytes);
        ask->copy.changes = &ask->change;
    }
    const uint64_t there_ns = now_ns + delay_ns(store);
    handle->there_ns = there_ns > handle->there_ns ? there_ns : handle->there_ns + 1;
    const uint64_t back_ns = handle->there_ns + delay_ns(store);
    handle->back_ns = back_ns > handle->back_ns ? back_ns : handle->back_ns + 1;
    ask->there_ns = handle->there_ns;
    sl_list_append(&store->asks, &ask->link);
    const uint64_t wait_ns = handle->back_ns - now_ns;
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
    if (store->outages > 0 && sl_sim_chance(&store->random, 500)) {
        sl_metastore_answer_fail(&ask->copy.answer, SL_ERR_IO, "it cannot be reached");
        ask->is_done = true;
    } else if (store->outages > 0) {
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

void sl_sim_transfer_store_forget(struct sl_sim_transfer_store *store, uint32_t host)
{
    SL_LIST_FOREACH (link, &store->asks) {
        struct ask *ask = SL_CONTAINER_OF(link, struct ask, link);
        if (ask->handle == &store->handles[host] && ask->request != NULL) {
            sl_reactor_disarm(ask->handle->reactor, &ask->timer);
            ask->request = NULL;
            free_if_over(ask);
        }
    }
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
    for (uint32_t i = 0; i < SL_SIM_TRANSFER_PROCESSES_MAX; i++) {
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
