#include "objects/node/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "core/assert.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "net/store/address.h"
#include "net/transfer/setup.h"
#include "objects/node/call.h"
#include "objects/node/delta.h"
#include "objects/node/directory.h"
#include "objects/node/error.h"
#include "objects/node/fetch.h"
#include "objects/node/follow.h"
#include "objects/node/host.h"
#include "objects/node/store.h"
#include "objects/node/withdraw.h"
#include "reactor/offload.h"

#define POOL_BYTES (1ULL << 30)
#define DESTROY_MS 10000 /* to unregister all memory, and for a thread to end */
#define END_NS     SL_CLOCK_NS_PER_S
#define LEAVE_NS   (10 * SL_CLOCK_NS_PER_MS)
#define POLL_NS    (2 * SL_CLOCK_NS_PER_MS)

/* Messages */

/* A new version, or other parents for one that is fetched. */
static void take_news(struct sl_objects *node, const char *address,
                      const struct sl_objects_message *news)
{
    struct sl_objects_message taken = {
        .kind = SL_OBJECTS_NEWS, .is_answer = true, .request = news->request};
    sl_objects_link_send(node->link, address, &taken, NULL, NULL);
    if (news->commit.record_count == 0) {
        return;
    }
    const struct sl_objects_record *record = &news->commit.record;
    const struct sl_objects_copy *copy =
        sl_objects_copy_find(node, record->name, record->version, news->part);
    if (copy != NULL && copy->fetch != NULL) {
        sl_objects_fetch_news(copy->fetch, news);
    }
    sl_objects_follow_news(node, news);
}

static void retire(struct sl_objects *node, const struct sl_objects_message *message)
{
    sl_objects_store_retire(node, message);
    SL_LIST_FOREACH (link, &node->copies) {
        struct sl_objects_copy *copy = SL_CONTAINER_OF(link, struct sl_objects_copy, link);
        if (sl_objects_copy_is_of(copy, message->name, message->version) &&
            copy->part == message->part && sl_hash_128_equal(copy->info.digest, message->digest)) {
            if (copy->pooled == NULL && !copy->is_withdrawn) {
                sl_log_warn("objects: %s@%" PRIu64 " was removed; its %" PRIu64
                            " bytes stay in memory of this process until it withdraws the "
                            "version, or ends",
                            copy->name, copy->version, copy->info.bytes);
            }
            sl_objects_withdraw(node, copy, "it was removed");
        }
    }
    sl_objects_delta_withdraw(node, message->name, message->version);
    if (message->part == 0) {
        sl_objects_follow_removed(node, message->name, message->version);
    }
}

static void node_arrived(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct sl_objects *node = ctx;
    const struct sl_objects_copy *copy;
    switch (message->kind) {
    case SL_OBJECTS_NEWS:
        if (!message->is_answer) {
            take_news(node, address, message);
        } else if (node->host != NULL) {
            sl_objects_host_receive(node->host, address, message);
        }
        break;
    case SL_OBJECTS_RETIRE:
        retire(node, message);
        break;
    case SL_OBJECTS_WANT:
        sl_objects_store_load(node, message);
        sl_objects_serve_want(node, address, message);
        break;
    case SL_OBJECTS_DONE:
        sl_objects_serve_done(node, message);
        break;
    case SL_OBJECTS_HAVE:
    case SL_OBJECTS_GONE:
        copy = sl_objects_copy_find(node, message->name, message->version, message->part);
        if (copy != NULL && copy->fetch != NULL) {
            (message->kind == SL_OBJECTS_HAVE ? sl_objects_fetch_have
                                              : sl_objects_fetch_gone)(copy->fetch, message);
        }
        break;
    case SL_OBJECTS_TABLES:
        sl_objects_tables_receive(node, address, message);
        break;
    case SL_OBJECTS_STORE:
        sl_objects_store_receive(node, address, message);
        break;
    case SL_OBJECTS_PUT:
        if (message->commit.publisher == 0) {
            sl_objects_store_receive(node, address, message);
            break;
        }
        /* fallthrough */
    default:
        if (node->host != NULL) {
            sl_objects_host_receive(node->host, address, message);
        } else {
            sl_objects_link_refuse(node->link, address, message, SL_ERR_NOT_FOUND,
                                   "this node hosts no catalogue");
        }
        break;
    }
}

/* Start */

static int check_label(const char *option, const char *label, uint32_t label_bytes)
{
    return label == NULL || sl_objects_text_is_valid(label, label_bytes)
               ? 0
               : sl_objects_fail(SL_ERR_INVALID, "%s has at most %u bytes", option,
                                 label_bytes - 1);
}

static int check_options(const struct sl_objects_options *options)
{
    int err = sl_objects_check_size(options->struct_size, sizeof *options);
    err = err != 0 ? err : check_label("location", options->location, SL_OBJECTS_LOCATION_BYTES);
    err = err != 0 ? err : check_label("host", options->host, SL_OBJECTS_LOCATION_BYTES);
    err = err != 0 ? err : check_label("agent", options->agent, SL_OBJECTS_LOCAL_NAME_BYTES);
    if (err != 0) {
        return err;
    }
    if (options->catalogue != NULL &&
        (options->catalogue[0] == '\0' ||
         !sl_objects_text_is_valid(options->catalogue, SL_OBJECTS_ADDRESS_BYTES))) {
        return sl_objects_fail(SL_ERR_INVALID, "catalogue is no \"host:port\"");
    }
    return 0;
}

static int start_engine(struct sl_objects *node, const struct sl_objects_options *options)
{
    struct sl_transfer_options own = options->engine_options != NULL
                                         ? *options->engine_options
                                         : (struct sl_transfer_options){0};
    const bool is_handshake = own.metadata == NULL || strcasecmp(own.metadata, "P2PHANDSHAKE") == 0;
    struct sl_endpoint catalogue;
    struct sl_reason reason;
    node->transfer = options->engine;
    if (node->transfer != NULL) {
        return 0;
    }
    const bool is_address = options->catalogue != NULL &&
                            sl_endpoint_parse(options->catalogue, &catalogue, &reason) == 0;
    if (options->catalogue != NULL && !is_address && is_handshake) { /* the name is the address */
        return sl_objects_fail(SL_ERR_INVALID, "catalogue: %s", reason.text);
    }
    if (own.name == NULL && is_address && sl_endpoint_is_loopback(&catalogue)) {
        own.name = "127.0.0.1:0"; /* where all other processes are */
    }
    node->owns_transfer = true;
    const struct sl_transfer_setup setup = {.clock = node->setup.clock};
    const int err = sl_transfer_create_with(&own, &setup, &node->transfer);
    return err == 0 ? 0 : sl_objects_fail(err, "%s", sl_transfer_last_error());
}

static void start_agent(struct sl_objects *node, struct sl_objects_call *call)
{
    const struct sl_objects_setup *setup = &node->setup;
    for (uint32_t i = 0; i < setup->follow_count; i++) {
        sl_objects_follow_always(node, setup->follow[i], false);
    }
    for (uint32_t i = 0; i < setup->keep_count; i++) {
        sl_objects_follow_always(node, setup->keep[i], true);
    }
    const int err = setup->no_sockets ? 0 : sl_objects_local_open(node, setup->agent);
    sl_objects_answer(call, err, "agent %s cannot start: %s", setup->agent,
                      err == SL_ERR_IN_USE ? "another process is this agent" : sl_err_name(err));
}

static void node_start_here(struct sl_objects *node, struct sl_objects_call *call)
{
    const bool is_host = strcmp(node->membership.catalogue, sl_transfer_name(node->transfer)) == 0;
    const bool is_elected = node->membership.catalogue[0] == '\0';
    int err = sl_offload_create(node->reactor, "objects-digest", &node->digests.offload);
    if (err == 0) { /* fetches wait for it */
        sl_offload_set_priority(node->digests.offload, SL_OFFLOAD_PRIORITY_NORMAL);
        err = sl_objects_link_create(node->transfer, node->id, node_arrived, node, &node->link);
    }
    if (err == 0 && (is_host || is_elected)) {
        err = sl_objects_host_create(
            node, is_elected ? sl_transfer_async_metadata(node->transfer) : NULL, &node->host);
    }
    err = err != 0 ? err : sl_objects_store_start(node);
    if (err == 0) {
        sl_objects_membership_start(node, sl_objects_follow_again);
    }
    if (err == 0 && node->setup.agent != NULL) {
        start_agent(node, call);
        return;
    }
    sl_objects_answer(call, err, "cannot start: %s", sl_err_name(err));
}

static int open_ports(struct sl_objects *node)
{
    node->reactor = sl_transfer_async_reactor(node->transfer);
    const int err =
        sl_port_set_create(&node->reactor, 1, NULL, sizeof(struct sl_port), &node->ports);
    return err == 0 ? 0 : sl_objects_fail(err, "cannot start: %s", sl_err_name(err));
}

/* End */

struct leave_call {
    struct sl_objects_call call;
    struct sl_timer timer;
    uint64_t since_ns;
};

static void link_ended(void *ctx)
{
    sl_objects_answer(ctx, 0, "left");
}

/* Waits for fetches, the catalogue, and a moment for the last messages. */
static void node_look_for_end(struct sl_timer *timer, uint64_t now_ns)
{
    struct leave_call *leave = SL_CONTAINER_OF(timer, struct leave_call, timer);
    struct sl_objects *node = leave->call.node;
    bool is_busy = node->membership.is_asking || now_ns - leave->since_ns < LEAVE_NS ||
                   !sl_objects_store_is_over(node);
    SL_LIST_FOREACH (link, &node->copies) {
        is_busy |= SL_CONTAINER_OF(link, struct sl_objects_copy, link)->fetch != NULL;
    }
    if (is_busy || (node->host != NULL && !sl_objects_host_leave(node->host))) {
        sl_reactor_arm(node->reactor, timer, POLL_NS);
        return;
    }
    SL_LIST_FOREACH (link, &node->copies) {
        sl_objects_serve_forget(node, SL_CONTAINER_OF(link, struct sl_objects_copy, link));
    }
    sl_objects_serve_fini(node);
    if (node->host != NULL) {
        sl_objects_host_stop(node->host);
    }
    sl_objects_link_destroy(&node->link, link_ended, &leave->call);
}

static void node_leave_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct leave_call *leave = SL_CONTAINER_OF(call, struct leave_call, call);
    if (node->link == NULL) {
        sl_objects_answer(call, 0, "left");
        return;
    }
    sl_objects_store_stop(node);
    SL_LIST_FOREACH (link, &node->copies) {
        sl_objects_withdraw(node, SL_CONTAINER_OF(link, struct sl_objects_copy, link),
                            "this node ends");
    }
    sl_objects_local_close(node);
    sl_objects_follow_stop(node);
    sl_objects_membership_stop(node);
    (void)(node->host != NULL && sl_objects_host_leave(node->host));
    leave->since_ns = sl_reactor_now_ns(node->reactor);
    sl_reactor_arm(node->reactor, &leave->timer, 0);
}

/* Ends the threads beside the reactor, whose jobs are done, or hang. */
static void node_end_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_reactor_excuse_turn(node->reactor);
    (void)sl_offload_destroy(&node->tables.offload, END_NS);
    (void)sl_offload_destroy(&node->digests.offload, END_NS);
    if (node->host != NULL) {
        sl_objects_host_destroy(&node->host);
    }
    sl_objects_store_fini(node);
    sl_objects_answer(call, 0, "ended");
}

static void free_copies(struct sl_objects *node)
{
    struct sl_list_link *link;
    int err = 0; /* after which the others stay: one may have the memory of all parts */
    while (err == 0 && (link = sl_list_pop(&node->copies)) != NULL) {
        err = sl_objects_copy_discard(node, SL_CONTAINER_OF(link, struct sl_objects_copy, link),
                                      DESTROY_MS);
    }
}

static void node_free(struct sl_objects *node)
{
    struct leave_call leave = {.call = {.run = node_leave_here},
                               .timer = {.run = node_look_for_end}};
    if (node->ports != NULL) {
        sl_objects_tables_close(node);
        (void)sl_objects_call(node, &leave.call);
        struct sl_objects_call end = {.run = node_end_here};
        (void)sl_objects_call(node, &end);
    }
    void *pool = node->pool.base;
    if (pool != NULL) {
        sl_objects_pool_fini(&node->pool); /* frees the copies in it */
    }
    free_copies(node);
    if (pool != NULL) {
        (void)sl_transfer_memory_free(node->transfer, &pool, DESTROY_MS);
    }
    if (node->ports != NULL) {
        sl_port_set_destroy(&node->ports, NULL);
    }
    if (node->owns_transfer && node->transfer != NULL) {
        sl_transfer_destroy(&node->transfer);
    }
    sl_objects_follow_fini(node);
    free(node->requests.items);
    free(node->digests.scratch);
    free(node);
}

/* Public */

static int start(struct sl_objects *node, const struct sl_objects_options *options)
{
    struct sl_objects_call call = {.run = node_start_here};
    int err = start_engine(node, options);
    if (err != 0) {
        return err;
    }
    if (strlen(sl_transfer_name(node->transfer)) >= SL_OBJECTS_ADDRESS_BYTES) {
        return sl_objects_fail(SL_ERR_INVALID, "the engine's name has more than %d bytes",
                               SL_OBJECTS_ADDRESS_BYTES - 1);
    }
    const struct sl_metastore_address *store = sl_transfer_async_metadata(node->transfer);
    struct sl_objects_membership *membership = &node->membership;
    if (options->catalogue == NULL && store->kind == SL_METASTORE_ADDRESS_ETCD) {
        (void)snprintf(membership->identity, sizeof membership->identity, "etcd://%.100s%.80s",
                       store->etcd.servers[0], store->etcd.prefix);
    } else {
        (void)snprintf(membership->catalogue, sizeof membership->catalogue, "%s",
                       options->catalogue != NULL ? options->catalogue
                                                  : sl_transfer_name(node->transfer));
        memcpy(membership->identity, membership->catalogue, sizeof membership->catalogue);
    }
    err = open_ports(node);
    err = err != 0 ? err : sl_objects_store_open(node);
    if (err == 0 && node->setup.agent != NULL) { /* no page faults later, in fetches */
        (void)madvise(node->pool.base, node->pool_bytes, MADV_POPULATE_WRITE);
    }
    return err != 0 ? err : sl_objects_call(node, &call);
}

/* A named agent has the catalogue, and all that views need. */
static bool only_reads(const struct sl_objects_options *options)
{
    return options->agent != NULL && strcmp(options->agent, SL_OBJECTS_LOCAL_OFF) != 0 &&
           options->catalogue == NULL && options->engine == NULL && options->engine_options == NULL;
}

int sl_objects_create_with(const struct sl_objects_options *options,
                           const struct sl_objects_setup *setup, struct sl_objects **out)
{
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    int err = check_options(options);
    if (err != 0) {
        return err;
    }
    struct sl_objects *node = calloc(1, sizeof *node);
    uint8_t *scratch = malloc(2 * SL_OBJECTS_BLOCK_BYTES);
    if (node == NULL || scratch == NULL) {
        free(node);
        free(scratch);
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    node->digests.scratch = scratch;
    node->digests.deltas = &sl_objects_delta_functions;
    node->pool_bytes = options->pool_bytes != 0 ? options->pool_bytes : POOL_BYTES;
    node->rate_bytes = options->rate_bytes;
    (void)snprintf(node->names.location, sizeof node->names.location, "%s",
                   options->location != NULL ? options->location : "");
    (void)snprintf(node->names.agent, sizeof node->names.agent, "%s",
                   options->agent != NULL ? options->agent : "");
    if (setup != NULL) {
        node->setup = *setup;
    }
    if (options->host != NULL) {
        (void)snprintf(node->names.host, sizeof node->names.host, "%s", options->host);
        node->setup.host = node->names.host;
    }
    node->id = node->setup.random != NULL ? node->setup.random(node->setup.ctx) : 0;
    while (node->id == 0) {
        (void)!getrandom(&node->id, sizeof node->id, 0);
    }
    sl_list_init(&node->copies);
    sl_list_init(&node->membership.asks);
    sl_list_init(&node->stored);
    sl_objects_serve_init(node);
    err = only_reads(options) ? 0 : start(node, options);
    if (err != 0) {
        sl_objects_destroy(&node);
        return err;
    }
    *out = node;
    return sl_objects_succeed();
}

int sl_objects_create(const struct sl_objects_options *options, struct sl_objects **out)
{
    sl_assert(options != NULL);
    struct sl_objects_options own;
    if (options->struct_size != sizeof own || options->catalogue != NULL ||
        options->agent != NULL) {
        return sl_objects_create_with(options, NULL, out);
    }
    own = *options;
    own.catalogue = getenv("STARLING_OBJECTS_CATALOGUE");
    own.agent = getenv("STARLING_OBJECTS_AGENT");
    return sl_objects_create_with(&own, NULL, out);
}

void sl_objects_destroy(struct sl_objects **objects)
{
    sl_assert(objects != NULL);
    struct sl_objects *gone = *objects;
    *objects = NULL;
    if (gone != NULL) {
        const struct sl_reason saved = sl_objects_error_save();
        node_free(gone);
        sl_objects_error_restore(&saved);
    }
}

const char *sl_objects_address(const struct sl_objects *objects)
{
    sl_assert(objects != NULL);
    return objects->transfer != NULL ? sl_transfer_name(objects->transfer) : "";
}
