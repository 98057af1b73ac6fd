#include "objects/node/store.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "objects/node/cache.h"
#include "objects/node/directory.h"
#include "objects/node/error.h"
#include "objects/node/fetch.h"
#include "objects/node/node.h"
#include "objects/node/withdraw.h"

#define CHECK_NS  SL_CLOCK_NS_PER_S        /* whether a part was committed */
#define UNSEEN_NS (10 * SL_CLOCK_NS_PER_S) /* after the publisher's end: its lease */
#define LOAD_NS   (60 * SL_CLOCK_NS_PER_S)
#define PUT_MS    1000 /* at the catalogue */

enum stage {
    FILLING,    /* fetched from the publisher */
    WRITING,    /* to the directory */
    STORED,     /* waits for the commit */
    COMMITTING, /* the record is being written; or again, after it could not be written */
    KEPT
};

/* A STORE, a commit or a load. Without a directory it also keeps the part in the pool. */
struct operation {
    struct stored *stored;
    bool has_failed;                 /* to write the record, and the log says so */
    struct sl_objects_cache_use use; /* its copy NULL: the part may leave the pool */

    /* The STORE or PUT that is not answered yet; request 0: none. */
    char address[SL_OBJECTS_ADDRESS_BYTES];
    uint32_t request, kind;

    /* Until the commit. */
    uint64_t deadline_ns;                 /* of the publisher; then of its commit */
    struct sl_objects_peer_use publisher; /* so that its end is known */
    struct sl_timer check;
    struct sl_objects_ask find;
    uint64_t publisher_id;
    struct sl_objects_request put; /* to the catalogue */
};

struct stored {
    struct sl_objects_stored part;
    struct sl_objects *node;
    enum stage stage;
    bool has_job;                /* of the directory: then freed when that is over */
    struct operation *operation; /* NULL: none is in progress; never before the commit */
};

static struct stored *of(struct sl_objects_stored *part)
{
    return part != NULL ? SL_CONTAINER_OF(part, struct stored, part) : NULL;
}

/* Returns false if there is no memory. */
static bool begin_operation(struct stored *stored)
{
    if (stored->operation == NULL) {
        stored->operation = calloc(1, sizeof *stored->operation);
    }
    if (stored->operation != NULL) {
        stored->operation->stored = stored;
    }
    return stored->operation != NULL;
}

/* Frees the operation of a kept part, if nothing is in progress. */
static void end_operation(struct stored *stored)
{
    if (stored->stage == KEPT && !stored->has_job && stored->operation->request == 0 &&
        stored->operation->use.copy == NULL) {
        free(stored->operation);
        stored->operation = NULL;
    }
}

/* NULL: no memory. */
static struct stored *node_store_add(struct sl_objects *node,
                                     const struct sl_objects_record *record, uint32_t part)
{
    struct stored *stored = calloc(1, sizeof *stored);
    if (stored != NULL && !sl_objects_stored_add(node, &stored->part, record, part)) {
        free(stored);
        return NULL;
    }
    if (stored != NULL) {
        stored->node = node;
    }
    return stored;
}

/* The catalogue knows the commit, or the part is dropped. */
static void stop_check(struct stored *stored)
{
    if (stored->operation != NULL) {
        sl_objects_ask_cancel(&stored->operation->find);
        sl_objects_link_cancel(stored->node->link, &stored->operation->put);
        sl_reactor_disarm(stored->node->reactor, &stored->operation->check);
        sl_objects_link_peer_put(stored->node->link, &stored->operation->publisher);
    }
}

static void unuse(struct stored *stored)
{
    if (stored->operation != NULL && stored->operation->use.copy != NULL) {
        sl_objects_cache_put(stored->node, &stored->operation->use);
    }
}

static void node_store_answer(struct stored *stored, int err, const char *reason)
{
    struct operation *operation = stored->operation;
    if (operation != NULL && operation->request != 0) {
        struct sl_objects_message message = {.kind = operation->kind,
                                             .is_answer = true,
                                             .request = operation->request,
                                             .err = err,
                                             .text = reason};
        sl_objects_link_send(stored->node->link, operation->address, &message, NULL, NULL);
        operation->request = 0;
    }
}

static void free_stored(struct stored *stored)
{
    unuse(stored);
    sl_objects_stored_remove(stored->node, &stored->part);
    free(stored->operation);
    free(stored);
}

/* The part is not kept any more. */
static void node_store_drop(struct stored *stored, int err, const char *reason)
{
    struct sl_objects_copy *copy = stored->operation != NULL ? stored->operation->use.copy : NULL;
    node_store_answer(stored, err, reason);
    stop_check(stored);
    if (copy != NULL && copy->is_uncommitted) {
        sl_objects_withdraw(stored->node, copy, reason);
    }
    stored->part.is_dropped = true;
    if (stored->node->directory != NULL && stored->stage > FILLING) {
        sl_objects_directory_remove(stored->node->directory, &stored->part.key);
    }
    if (!stored->has_job) {
        free_stored(stored);
    }
}

/* Fetch and write */

static void check_commit(struct sl_timer *timer, uint64_t now_ns);
static void node_store_put(struct stored *stored);

static void set_stored(struct stored *stored)
{
    stored->stage = STORED;
    if (stored->operation->request != 0 && stored->operation->kind == SL_OBJECTS_PUT) {
        node_store_put(stored);
    } else {
        node_store_answer(stored, 0, NULL);
    }
    stored->operation->check.run = check_commit;
    sl_reactor_arm(stored->node->reactor, &stored->operation->check, CHECK_NS);
}

static void node_store_written(void *ctx, int err, const char *reason)
{
    struct stored *stored = ctx;
    stored->has_job = false;
    if (stored->part.is_dropped) {
        free_stored(stored);
        return;
    }
    stored->part.has_file = err == 0;
    if (stored->stage == KEPT) { /* it was damaged */
        node_store_answer(stored, err, reason);
        unuse(stored);
        end_operation(stored);
    } else if (err == 0) {
        set_stored(stored);
    } else {
        stored->stage = err == SL_ERR_EXISTS ? FILLING : stored->stage; /* they are not its files */
        node_store_drop(stored, err, reason);
    }
}

static void filled(struct sl_objects_cache_use *use, int err, const char *reason)
{
    struct stored *stored = SL_CONTAINER_OF(use, struct operation, use)->stored;
    struct sl_objects_directory *directory = stored->node->directory;
    struct sl_objects_message hold;
    if (err != 0 && stored->stage == FILLING) {
        node_store_drop(stored, err, reason);
    } else if (stored->part.has_file) { /* it was read from there */
        unuse(stored);
        end_operation(stored);
    } else if (err != 0) {
        sl_log_error("objects: %s@%" PRIu64 " part %u is damaged, and not replaced: %s",
                     stored->part.key.name, stored->part.key.version, stored->part.key.part,
                     reason);
        node_store_answer(stored, err, reason);
        unuse(stored);
        end_operation(stored);
    } else if (directory == NULL) {
        set_stored(stored);
    } else {
        const bool is_new = stored->stage == FILLING;
        stored->stage = is_new ? WRITING : stored->stage;
        stored->has_job = true;
        sl_objects_stored_read(&stored->part, &hold);
        if (sl_objects_directory_write(directory, use->copy, is_new ? &hold.commit.record : NULL,
                                       node_store_written, stored) != 0) {
            node_store_written(stored, SL_ERR_NO_MEMORY, "out of memory");
        }
    }
}

/* Commit */

static void node_store_commit(struct stored *stored);

static void commit_again(struct sl_timer *timer, uint64_t now_ns)
{
    node_store_commit(SL_CONTAINER_OF(timer, struct operation, check)->stored);
}

/* The file or, without a directory, the use keeps the part. */
static void keep(struct stored *stored)
{
    struct sl_objects_copy *copy = stored->operation->use.copy;
    struct sl_objects_message hold;
    stored->part.is_kept = true;
    if (copy != NULL) { /* else the pool does not have it */
        sl_objects_stored_read(&stored->part, &hold);
        sl_objects_copy_set_record(copy, &hold.commit.record);
        copy->is_uncommitted = false;
        copy->pooled->keep = false; /* of a publication */
        sl_objects_report(stored->node, copy);
    }
    if (stored->part.has_file) {
        unuse(stored);
    }
}

static void node_store_committed(void *ctx, int err, const char *reason)
{
    struct stored *stored = ctx;
    struct operation *operation = stored->operation;
    stored->has_job = false;
    if (stored->part.is_dropped) {
        free_stored(stored);
        return;
    }
    stop_check(stored);
    keep(stored);
    if (err != 0 && !operation->has_failed) {
        sl_log_error(
            "objects: the commit of %s@%" PRIu64 " part %u is not recorded: %s; the record "
            "is written again each second",
            stored->part.key.name, stored->part.key.version, stored->part.key.part, reason);
    } else if (err == 0 && operation->has_failed) {
        sl_log_warn("objects: the commit of %s@%" PRIu64 " part %u is recorded now",
                    stored->part.key.name, stored->part.key.version, stored->part.key.part);
    }
    operation->has_failed = err != 0;
    stored->stage = err == 0 ? KEPT : COMMITTING;
    node_store_answer(stored, err, reason);
    if (err == 0) {
        sl_objects_report_stored(stored->node, &stored->part);
        end_operation(stored);
    } else {
        operation->check.run = commit_again;
        sl_reactor_arm(stored->node->reactor, &operation->check, CHECK_NS);
    }
}

/* Writes the record, which is that of the commit. */
static void node_store_commit(struct stored *stored)
{
    struct sl_objects_message hold;
    stored->stage = COMMITTING;
    stored->has_job = stored->node->directory != NULL;
    sl_objects_stored_read(&stored->part, &hold);
    if (!stored->has_job) {
        node_store_committed(stored, 0, "");
    } else if (sl_objects_directory_commit(stored->node->directory, &hold.commit.record, hold.part,
                                           node_store_committed, stored) != 0) {
        node_store_committed(stored, SL_ERR_NO_MEMORY, "out of memory");
    }
}

static void node_store_put_answered(struct sl_objects_request *request,
                                    const struct sl_objects_message *answer, int err,
                                    const char *reason)
{
    struct stored *stored = SL_CONTAINER_OF(request, struct operation, put)->stored;
    if (stored->stage != STORED) {
        return;
    }
    if (err == 0 && answer->commit.record_count == 1 &&
        sl_objects_stored_set_record(&stored->part, &answer->commit.record, 0)) {
        node_store_commit(stored);
    } else if (stored->operation->kind == SL_OBJECTS_PUT) {
        node_store_answer(stored, err != 0 ? err : SL_ERR_AGAIN, reason);
    }
}

/* Commits the part for its publisher. */
static void node_store_put(struct stored *stored)
{
    struct operation *operation = stored->operation;
    struct sl_objects *node = stored->node;
    const struct sl_objects_copy *copy = operation->use.copy;
    struct sl_objects_message put;
    sl_objects_stored_read(&stored->part, &put);
    put.kind = SL_OBJECTS_PUT;
    put.commit.publisher = operation->publisher_id;
    put.part_count = 1;
    put.timeout_ms = PUT_MS;
    put.term = node->membership.term;
    put.commit.record.keeper_count = 1;
    put.commit.record.keepers[0] = node->id;
    if (copy != NULL && copy->place_count == 2 && node->rate_bytes == 0) {
        put.commit.image.manifest = copy->places[0].base;
        put.commit.image.bytes = copy->places[1].base;
    }
    if (node->membership.is_attached) {
        operation->put.answered = node_store_put_answered;
        sl_objects_link_request(node->link, &operation->put, node->membership.catalogue, &put,
                                PUT_MS);
    } else {
        node_store_answer(stored, SL_ERR_AGAIN, "the agent has no catalogue");
    }
}

static void publisher_ended(struct sl_objects_peer_use *use, const char *reason)
{
    struct operation *operation = SL_CONTAINER_OF(use, struct operation, publisher);
    const uint64_t now_ns = sl_reactor_now_ns(operation->stored->node->reactor);
    operation->deadline_ns = now_ns < operation->deadline_ns ? now_ns : operation->deadline_ns;
}

static void node_store_found(struct sl_objects_ask *ask, const struct sl_objects_message *news,
                             int err, const char *reason)
{
    struct operation *operation = SL_CONTAINER_OF(ask, struct operation, find);
    struct stored *stored = operation->stored;
    const uint64_t now_ns = sl_reactor_now_ns(stored->node->reactor);
    const uint32_t part = stored->part.key.part;
    if (stored->stage != STORED) {
        return;
    }
    const bool is_known = err == 0 && news->commit.record_count == 1;
    const struct sl_objects_record *record = is_known ? &news->commit.record : NULL;
    if (is_known && part < record->part_count &&
        sl_objects_stored_is_of(&stored->part, record->parts[part].digest) &&
        sl_objects_stored_set_record(&stored->part, record, part)) {
        node_store_commit(stored);
    } else if ((is_known || err == SL_ERR_NOT_FOUND) &&
               now_ns > operation->deadline_ns + UNSEEN_NS) {
        sl_log_warn("objects: %s@%" PRIu64 " part %u was never acknowledged: its publisher ended "
                    "before the commit; removed",
                    stored->part.key.name, stored->part.key.version, part);
        node_store_drop(stored, SL_ERR_CLOSED, "it was not committed");
    } else {
        sl_reactor_arm(stored->node->reactor, &operation->check, CHECK_NS);
    }
}

/* Usually the publisher says so before. */
static void check_commit(struct sl_timer *timer, uint64_t now_ns)
{
    struct operation *operation = SL_CONTAINER_OF(timer, struct operation, check);
    const struct sl_objects_pool_key key = operation->stored->part.key;
    operation->find.message = (struct sl_objects_message){
        .kind = SL_OBJECTS_FIND, .name = key.name, .version = key.version, .part = key.part};
    operation->find.answered = node_store_found;
    sl_objects_ask(operation->stored->node, &operation->find, now_ns + CHECK_NS);
}

/* STORE */

/* Fetches the part from its publisher, at first from it alone. */
static int node_store_fetch(struct stored *stored, const struct sl_objects_message *message)
{
    struct operation *operation = stored->operation;
    const struct sl_objects_peer publisher = {.node = message->node, .address = operation->address};
    struct sl_objects_message news;
    sl_objects_stored_read(&stored->part, &news);
    news.kind = SL_OBJECTS_NEWS;
    news.news.parent_count = SL_OBJECTS_STRIPES;
    news.news.parents[0] = news.news.parents[1] = publisher;
    news.commit.image = message->commit.image;
    if (operation->use.copy != NULL && operation->use.copy->fetch != NULL) {
        sl_objects_fetch_news(operation->use.copy->fetch, &news);
        return 0;
    }
    operation->use.ended = filled;
    return sl_objects_cache_get(stored->node, &operation->use, &news, news.part,
                                operation->deadline_ns);
}

static void begin(struct stored *stored, const struct sl_objects_message *message)
{
    struct sl_objects *node = stored->node;
    struct operation *operation = stored->operation;
    operation->publisher.ended = publisher_ended;
    sl_objects_link_peer_get(node->link, &operation->publisher, operation->address,
                             message->timeout_ms);
    const int err = node_store_fetch(stored, message);
    if (err != 0) {
        char reason[SL_REASON_BYTES];
        (void)snprintf(reason, sizeof reason,
                       "its pool of %" PRIu64 " bytes has no room for %" PRIu64 " more",
                       node->pool_bytes, message->commit.record.parts[0].bytes);
        node_store_drop(
            stored, err,
            err == SL_ERR_EXISTS ? "the keeper has the part in memory of its application" : reason);
    } else if (message->kind == SL_OBJECTS_PUT && operation->use.copy->fetch != NULL) {
        /* Its publisher serves nothing before it sends STORE. */
        node_store_drop(stored, SL_ERR_AGAIN,
                        "the image is not that of the record, or the pool is full");
    } else {
        operation->use.copy->is_uncommitted = true;
    }
}

static void store_again(struct stored *stored, const struct sl_objects_message *message)
{
    const bool is_commit = message->commit.record.time_ms != 0;
    if (stored->stage == KEPT && !stored->part.has_file && stored->node->directory != NULL) {
        const int err =
            stored->has_job ? 0 : node_store_fetch(stored, message); /* its data is damaged */
        if (err != 0) {
            node_store_answer(stored, err, "its data is damaged, and cannot be fetched");
            end_operation(stored);
        }
    } else if (stored->stage == KEPT || (stored->stage == STORED && !is_commit)) {
        node_store_answer(stored, 0, NULL);
        end_operation(stored);
    } else if (stored->stage == STORED) {
        if (sl_objects_stored_set_record(&stored->part, &message->commit.record, message->part)) {
            node_store_commit(stored);
        } else {
            node_store_answer(stored, SL_ERR_NO_MEMORY, "out of memory");
        }
    } else if (stored->stage == COMMITTING && !stored->has_job) { /* its record was not written */
        sl_reactor_disarm(stored->node->reactor, &stored->operation->check);
        node_store_commit(stored);
    } /* else it is answered at the end of the stage */
}

void sl_objects_store_receive(struct sl_objects *node, const char *address,
                              const struct sl_objects_message *message)
{
    const struct sl_objects_record *record = &message->commit.record;
    const bool is_commit = record->time_ms != 0;
    struct stored *stored =
        of(sl_objects_stored_find(node, record->name, record->version, message->part));
    int err = 0;
    const char *reason = "this keeper does not have the part";
    if (node->is_leaving) {
        err = SL_ERR_CLOSED;
        reason = "this keeper ends";
    } else if (!node->setup.is_keeper && node->setup.agent == NULL) {
        err = SL_ERR_UNSUPPORTED;
        reason = "this node is not a keeper";
    } else if (is_commit && (stored == NULL || message->part >= record->part_count)) {
        err = SL_ERR_NOT_FOUND;
    } else if (message->kind == SL_OBJECTS_PUT &&
               (is_commit || message->commit.image.manifest == NULL || stored != NULL)) {
        err = SL_ERR_AGAIN;
        reason = "the image did not come with it, or came before";
    } else if (stored != NULL &&
               !sl_objects_stored_is_of(&stored->part,
                                        record->parts[is_commit ? message->part : 0].digest)) {
        err = stored->stage < COMMITTING ? SL_ERR_AGAIN : SL_ERR_EXISTS;
        reason = "the version is stored with other bytes";
        if (err == SL_ERR_AGAIN) {
            node_store_drop(stored, SL_ERR_CLOSED, "another publisher stores the version");
        }
    }
    if (err != 0) {
        sl_objects_link_refuse(node->link, address, message, err, reason);
        return;
    }
    const bool is_new = stored == NULL;
    if (is_new) {
        struct sl_objects_record all = *record; /* only this part of the version is known here */
        all.part_count = message->part_count;
        all.parts[message->part] = record->parts[0];
        stored = node_store_add(node, &all, message->part);
    }
    if (stored == NULL || !begin_operation(stored)) {
        sl_objects_link_refuse(node->link, address, message, SL_ERR_NO_MEMORY, "out of memory");
        if (is_new && stored != NULL) {
            free_stored(stored);
        }
        return;
    }
    struct operation *operation = stored->operation;
    operation->request = message->request;
    operation->kind = message->kind;
    operation->publisher_id = message->node;
    (void)snprintf(operation->address, sizeof operation->address, "%s", address);
    operation->deadline_ns =
        sl_reactor_now_ns(node->reactor) + message->timeout_ms * SL_CLOCK_NS_PER_MS;
    if (is_new) {
        begin(stored, message);
    } else {
        store_again(stored, message);
    }
}

void sl_objects_store_retire(struct sl_objects *node, const struct sl_objects_message *message)
{
    struct stored *stored =
        of(sl_objects_stored_find(node, message->name, message->version, message->part));
    if (stored != NULL && stored->stage >= STORED &&
        sl_objects_stored_is_of(&stored->part, message->digest)) {
        node_store_drop(stored, SL_ERR_CLOSED, "it was removed");
    }
}

bool sl_objects_store_withdraw(struct sl_objects *node, const char *name, uint64_t version)
{
    bool was_kept = false;
    for (uint32_t part = 0; part < SL_OBJECTS_PARTS_MAX; part++) {
        struct stored *stored = of(sl_objects_stored_find(node, name, version, part));
        if (stored != NULL && stored->stage >= COMMITTING) {
            node_store_drop(stored, SL_ERR_CLOSED, "it was withdrawn");
            sl_objects_report_none(node, name, version, part);
            was_kept = true;
        }
    }
    return was_kept;
}

void sl_objects_store_abandon(struct sl_objects *node, const struct sl_objects_copy *copy)
{
    struct stored *stored = of(sl_objects_stored_find(node, copy->name, copy->version, copy->part));
    if (stored != NULL && stored->stage < COMMITTING && stored->operation->use.copy == copy) {
        node_store_drop(stored, SL_ERR_CLOSED, "its publication has ended");
    }
}

/* Files */

void sl_objects_store_load(struct sl_objects *node, const struct sl_objects_message *want)
{
    struct stored *stored =
        of(sl_objects_stored_in_file(node, want->name, want->version, want->part));
    const struct sl_objects_copy *copy =
        sl_objects_copy_find(node, want->name, want->version, want->part);
    if (stored == NULL || (stored->operation != NULL && stored->operation->use.copy != NULL) ||
        (copy != NULL && copy->verified.count == sl_objects_copy_block_count(copy))) {
        return;
    }
    if (begin_operation(stored)) {
        struct sl_objects_message news;
        sl_objects_stored_read(&stored->part, &news);
        stored->operation->use.ended = filled;
        (void)sl_objects_cache_get(node, &stored->operation->use, &news, news.part,
                                   sl_reactor_now_ns(node->reactor) + LOAD_NS);
        end_operation(stored);
    }
}

/* Start and end */

static void add_found(void *ctx, const struct sl_objects_message *hold)
{
    struct stored *stored = node_store_add(ctx, &hold->commit.record, hold->part);
    if (stored != NULL) {
        stored->part.is_kept = hold->commit.record.time_ms != 0;
        stored->part.has_file = true;
        stored->stage = stored->part.is_kept ? KEPT : STORED;
    }
}

int sl_objects_store_open(struct sl_objects *node)
{
    const struct sl_objects_setup *setup = &node->setup;
    struct sl_reason reason;
    if (!setup->is_keeper && setup->agent == NULL) {
        return 0;
    }
    int err = sl_objects_copy_open_pool(node);
    if (err == 0 && setup->directory != NULL) {
        err = sl_objects_directory_open(setup->disk, setup->directory, add_found, node,
                                        &node->directory, &reason);
        err = err != 0 ? sl_objects_fail(err, "%s", reason.text) : 0;
    }
    return err;
}

int sl_objects_store_start(struct sl_objects *node)
{
    int err =
        node->directory != NULL ? sl_objects_directory_start(node->directory, node->reactor) : 0;
    SL_LIST_EACH (struct stored, stored, part.link, &node->stored) {
        if (err == 0 && stored->stage == STORED) { /* its publisher may be about to commit it */
            err = begin_operation(stored) ? 0 : SL_ERR_NO_MEMORY;
            if (err == 0) {
                stored->operation->deadline_ns = sl_reactor_now_ns(node->reactor);
                set_stored(stored);
            }
        }
    }
    return err;
}

void sl_objects_store_stop(struct sl_objects *node)
{
    node->is_leaving = true;
    SL_LIST_EACH (struct stored, stored, part.link, &node->stored) {
        if (stored->part.is_dropped) {
            continue;
        }
        if (stored->stage < STORED || (stored->stage == STORED && node->directory == NULL)) {
            node_store_drop(stored, SL_ERR_CLOSED, "the keeper ends");
            continue;
        }
        if (stored->operation != NULL && stored->operation->has_failed) {
            sl_log_error("objects: the commit of %s@%" PRIu64 " part %u is still not recorded: the "
                         "next start asks the catalogue whether it was committed",
                         stored->part.key.name, stored->part.key.version, stored->part.key.part);
        }
        stop_check(stored);
        stored->part.is_dropped = true;
        if (!stored->has_job) {
            free_stored(stored);
        }
    }
    if (node->directory != NULL) {
        sl_objects_directory_stop(node->directory);
    }
}

bool sl_objects_store_is_over(const struct sl_objects *node)
{
    return sl_list_empty(&node->stored) &&
           (node->directory == NULL || !sl_objects_directory_is_busy(node->directory));
}

void sl_objects_store_fini(struct sl_objects *node)
{
    SL_LIST_EACH (struct stored, stored, part.link,
                  &node->stored) { /* of a node that did not start */
        free_stored(stored);
    }
    sl_objects_stored_fini(node);
    sl_objects_directory_close(&node->directory);
}
