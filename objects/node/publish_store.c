#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/publish.h"
#include "objects/node/store.h"
#include "objects/node/withdraw.h"

#define RETRY_NS (100 * SL_CLOCK_NS_PER_MS)
#define PUT_MS   2000

/* STORE to all keepers of a publication. */
struct store_call {
    struct sl_objects_call call;
    struct sl_publication *publication;
    struct sl_objects_message message;
    bool is_commit;
    uint64_t deadline_ns;
    uint32_t left;
    struct target {
        struct store_call *store;
        struct sl_publication_keeper *keeper;
        struct sl_objects_request request;
        struct sl_timer retry;
        char reason[SL_OBJECTS_TEXT_BYTES];
    } targets[SL_OBJECTS_KEEPERS_MAX];
};

/* The node serves the copy to keepers, and nobody else learns of it. */
static void serve(struct sl_publication *publication)
{
    struct sl_objects_copy *copy = publication->copy;
    if (!publication->is_served) {
        publication->is_served = true;
        copy->is_uncommitted = true;
        copy->uses++; /* the publication's; another is the list's */
        sl_objects_copy_keep(copy);
        sl_objects_serve_add(publication->node, copy);
    }
}

static void end_one(struct store_call *store)
{
    if (--store->left == 0) {
        sl_objects_answer(&store->call, 0, "stored");
    }
}

/* The others are not needed any more. */
static void publish_store_fail(struct store_call *store, const struct target *failed, int err,
                               const char *reason)
{
    struct sl_objects *node = store->publication->node;
    for (uint32_t i = 0; i < store->publication->keeper_count; i++) {
        sl_objects_link_cancel(node->link, &store->targets[i].request);
        sl_reactor_disarm(node->reactor, &store->targets[i].retry);
    }
    sl_objects_answer(&store->call, err, "%s@%" PRIu64 " is %s %s: %s", store->publication->name,
                      store->publication->version,
                      store->is_commit ? "visible, but its commit is not recorded at"
                                       : "not stored at",
                      failed->keeper->address, reason);
}

static void publish_store_answered(struct sl_objects_request *request,
                                   const struct sl_objects_message *answer, int err,
                                   const char *reason)
{
    struct target *target = SL_CONTAINER_OF(request, struct target, request);
    struct store_call *store = target->store;
    struct sl_objects *node = store->publication->node;
    const bool is_passing = /* it may have restarted; without the part: it is stored again */
        answer == NULL || err == SL_ERR_AGAIN || (store->is_commit && err == SL_ERR_NOT_FOUND);
    const uint64_t now_ns = sl_reactor_now_ns(node->reactor);
    if (err == 0) {
        target->keeper->node = answer->node;
        end_one(store);
    } else if (is_passing && now_ns + RETRY_NS < store->deadline_ns) {
        (void)snprintf(target->reason, sizeof target->reason, "%s", reason);
        sl_reactor_arm(node->reactor, &target->retry, RETRY_NS);
    } else {
        publish_store_fail(store, target, is_passing ? SL_ERR_DEADLINE : err, reason);
    }
}

static void retry(struct sl_timer *timer, uint64_t now_ns)
{
    const struct target *target = SL_CONTAINER_OF(timer, struct target, retry);
    publish_store_fail(target->store, target, SL_ERR_AGAIN, target->reason);
}

static void send(struct target *target)
{
    struct store_call *store = target->store;
    struct sl_objects *node = store->publication->node;
    store->message.timeout_ms = sl_objects_ms_left(node, store->deadline_ns);
    sl_objects_link_request(node->link, &target->request, target->keeper->address, &store->message,
                            store->message.timeout_ms);
}

static void store_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct store_call *store = SL_CONTAINER_OF(call, struct store_call, call);
    struct sl_publication *publication = store->publication;
    serve(publication);
    store->left = publication->keeper_count;
    for (uint32_t i = 0; i < publication->keeper_count; i++) {
        struct target *target = &store->targets[i];
        target->store = store;
        target->keeper = &publication->keepers[i];
        target->request.answered = publish_store_answered;
        target->retry.run = retry;
        send(target);
    }
}

int sl_publish_store_send(struct sl_publication *publication,
                          const struct sl_objects_record *record, uint64_t deadline_ns)
{
    struct store_call store = {.call = {.run = store_here},
                               .publication = publication,
                               .message = {.kind = SL_OBJECTS_STORE,
                                           .part = publication->part,
                                           .part_count = publication->part_count,
                                           .commit.record_count = 1,
                                           .commit.record = *record},
                               .is_commit = record->time_ms != 0,
                               .deadline_ns = deadline_ns};
    return sl_objects_call(publication->node, &store.call);
}

/* PUT to the agent. */
struct put_call {
    struct sl_objects_call call;
    struct sl_objects_request request;
    struct sl_objects_message message;
    const char *address;
};

static void put_answered(struct sl_objects_request *request,
                         const struct sl_objects_message *answer, int err, const char *reason)
{
    struct put_call *put = SL_CONTAINER_OF(request, struct put_call, request);
    sl_objects_answer(&put->call, err, "%s", reason);
}

static void put_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct put_call *put = SL_CONTAINER_OF(call, struct put_call, call);
    put->request.answered = put_answered;
    sl_objects_link_request(node->link, &put->request, put->address, &put->message,
                            put->message.timeout_ms);
}

int sl_publish_store_put(struct sl_publication *publication, uint32_t timeout_ms)
{
    const struct sl_objects_manifest *manifest = &publication->manifest;
    struct put_call put = {.call = {.run = put_here},
                           .address = publication->keepers[0].address,
                           .message = {.kind = SL_OBJECTS_PUT,
                                       .part_count = 1,
                                       .timeout_ms = timeout_ms < PUT_MS ? timeout_ms : PUT_MS,
                                       .commit.record_count = 1,
                                       .commit.record = {.name = publication->name,
                                                         .note = publication->note,
                                                         .version = publication->version,
                                                         .epoch = publication->epoch,
                                                         .origin = publication->origin,
                                                         .part_count = 1}}};
    struct sl_objects_part *part = &put.message.commit.record.parts[0];
    part->bytes = manifest->image_bytes;
    part->manifest_bytes = (uint32_t)manifest->encoded_bytes;
    /* The image usually stays where it is. */
    const bool is_one = publication->places[0].bytes == part->bytes;
    uint8_t *room = malloc(part->manifest_bytes + (is_one ? 0 : part->bytes));
    if (room == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    part->digest = sl_objects_manifest_encode(manifest, room);
    put.message.commit.image.manifest = room;
    put.message.commit.image.bytes =
        sl_objects_place_read(publication->places, publication->place_count, 0,
                              (uint32_t)part->bytes, room + part->manifest_bytes);
    const int err = sl_objects_call(publication->node, &put.call);
    free(room);
    return err;
}

static void publish_store_put_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct sl_objects_copy *copy =
        SL_CONTAINER_OF(call, struct store_call, call)->publication->copy;
    if (copy->is_withdrawn) {
        sl_objects_store_abandon(node, copy);
    }
    if (copy->pooled != NULL) {
        sl_objects_pool_unpin(&node->pool, copy->pooled);
    }
    sl_objects_copy_put(copy);
    sl_objects_answer(call, 0, "put");
}

int sl_publish_store_release(struct sl_publication *publication, bool is_over, uint32_t timeout_ms)
{
    struct store_call put = {.call = {.run = publish_store_put_here}, .publication = publication};
    const int err =
        is_over ? sl_objects_withdraw_copy(publication->node, publication->copy, timeout_ms) : 0;
    if (err != 0 && err != SL_ERR_NOT_FOUND) {
        return err;
    }
    (void)sl_objects_call(publication->node, &put.call);
    publication->copy = NULL;
    return 0;
}
