#include "objects/catalogue/catalogue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/backoff.h"
#include "core/log.h"
#include "objects/catalogue/catalogue_plan.h"
#include "objects/catalogue/catalogue_versions.h"

#define LEASE_MS       10000
#define KEEP_VERSIONS  3
#define NUMBER_MAX     SL_CATALOGUE_NUMBER_MAX
/* ALIVEs without a report, besides a lease: they may be read in one go, by a process that stood. */
#define REPORTS_MISSED 2
#define AWAITED_MS     300000 /* for the first reports of nodes, at most */
/* Followers that are sent the image of a PUT. More of them fetch it, as that of any version. */
#define IMAGES_MAX     16

int sl_objects_catalogue_create(const struct sl_objects_catalogue_options *options, uint64_t now_ms,
                                struct sl_objects_catalogue **out)
{
    sl_assert(options->term > 0);
    sl_assert(options->replicas < SL_OBJECTS_KEEPERS_MAX);
    struct sl_objects_catalogue *catalogue = calloc(1, sizeof *catalogue);
    if (catalogue == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    catalogue->options = *options;
    struct sl_objects_catalogue_options *own = &catalogue->options;
    own->lease_ms = own->lease_ms == 0 ? LEASE_MS : own->lease_ms;
    own->keep_versions = own->keep_versions == 0 ? KEEP_VERSIONS : own->keep_versions;
    catalogue->epoch = own->term;
    catalogue->created_ms = catalogue->ticked_ms = now_ms;
    sl_list_init(&catalogue->by_expiry);
    sl_list_init(&catalogue->by_touch);
    sl_list_init(&catalogue->replans);
    *out = catalogue;
    return 0;
}

void sl_objects_catalogue_set_numbers(struct sl_objects_catalogue *catalogue, uint64_t above,
                                      bool forgets)
{
    struct sl_objects_catalogue_options *options = &catalogue->options;
    options->numbers_above = forgets ? options->unix_ms(options->ctx) : above;
    options->forgets = forgets;
    catalogue->promised = above;
}

void sl_objects_catalogue_destroy(struct sl_objects_catalogue **catalogue)
{
    if (*catalogue != NULL) {
        (*catalogue)->options.changed = NULL;
        sl_catalogue_clear(*catalogue);
        free(*catalogue);
        *catalogue = NULL;
    }
}

/* Requests. A handler fills in the answer, or returns an error with a reason. */

struct request {
    struct sl_objects_catalogue *catalogue;
    struct sl_catalogue_node *node; /* the sender */
    const struct sl_objects_message *message;
    struct sl_objects_message *out;
    struct sl_reason *reason;
};

typedef int handler_fn(const struct request *request);

#define REFUSE(err, ...) sl_reason_fail(request->reason, (err), __VA_ARGS__)

static bool is_settling(const struct sl_objects_catalogue *catalogue)
{
    const uint32_t settle_ms = catalogue->options.settle_ms;
    const uint64_t age_ms = catalogue->now_ms - catalogue->created_ms;
    return age_ms < (catalogue->is_restart ? settle_ms + catalogue->spread_ms : settle_ms / 10) ||
           (catalogue->awaited_count > 0 && age_ms < AWAITED_MS);
}

static int refuse_settling(const struct request *request)
{
    return REFUSE(SL_ERR_AGAIN, "the catalogue has just started and collects what nodes hold");
}

static struct sl_catalogue_object *find_object(const struct request *request)
{
    return sl_catalogue_find(&request->catalogue->objects, request->message->name, 0);
}

/* A committed version; 0: the newest. */
static struct sl_catalogue_version *find_version(const struct sl_catalogue_object *object,
                                                 uint64_t number)
{
    if (object == NULL || number == 0) {
        return object == NULL ? NULL : sl_catalogue_newest(object);
    }
    struct sl_catalogue_version *version = sl_catalogue_find(&object->versions, NULL, number);
    return version != NULL && version->time_ms != 0 ? version : NULL;
}

static int refuse_missing(const struct request *request)
{
    const struct sl_catalogue_object *object = find_object(request);
    const struct sl_catalogue_version *newest = find_version(object, 0);
    if (is_settling(request->catalogue)) {
        return refuse_settling(request);
    }
    if (newest == NULL) {
        return REFUSE(SL_ERR_NOT_FOUND, "%s has no versions", request->message->name);
    }
    request->out->find.oldest = sl_catalogue_oldest(object)->key.number;
    request->out->find.newest = newest->key.number;
    return REFUSE(SL_ERR_NOT_FOUND,
                  "%s has no version %" PRIu64 "; the oldest is %" PRIu64 ", the newest %" PRIu64,
                  object->name, request->message->version, request->out->find.oldest,
                  request->out->find.newest);
}

/* Forgets the copies that the node does not report: it has given them up, and its DROP was lost, or
 * overtaken. Followers that wait for NEWS do not know of theirs. The first ones were reported
 * longest ago. */
static void forget_silent(struct sl_objects_catalogue *catalogue,
                          const struct sl_catalogue_node *node)
{
    /* Two rounds in which the node reports all of them. */
    const uint32_t missed = REPORTS_MISSED + 2 * (node->copy_count / SL_OBJECTS_REPORTS_AN_ALIVE);
    SL_LIST_EACH (struct sl_catalogue_copy, copy, by_node, &node->copies) {
        if (node->alives - copy->heard <= missed ||
            catalogue->now_ms - copy->heard_ms < catalogue->options.lease_ms) {
            return;
        }
        if (!sl_list_linked(&copy->news)) {
            sl_catalogue_copy_remove(catalogue, copy);
        }
    }
}

static int alive(const struct request *request)
{
    struct sl_objects_catalogue *catalogue = request->catalogue;
    struct sl_catalogue_node *node = request->node;
    const uint32_t lease_ms = catalogue->options.lease_ms;
    const uint64_t term = request->message->term;
    node->roles = request->message->attach.roles;
    const bool reports = (node->roles & SL_OBJECTS_ROLE_REPORTS) != 0;
    const bool is_awaited = reports && (node->is_awaited || is_settling(catalogue));
    catalogue->awaited_count += (uint32_t)is_awaited - (uint32_t)node->is_awaited;
    node->is_awaited = is_awaited;
    catalogue->is_restart |=
        request->message->kind == SL_OBJECTS_ATTACH && term != 0 && term != catalogue->options.term;
    if (node->told_request != 0 && catalogue->now_ms - node->told_ms >= lease_ms / 2) {
        /* The NEWS, or its answer, is lost: send it again. */
        if (node->told != NULL) {
            sl_list_prepend(&node->news, &node->told->news);
        }
        sl_catalogue_news_taken(catalogue, node, node->told_request);
    }
    if (request->message->kind == SL_OBJECTS_ALIVE &&
        catalogue->now_ms - node->alive_ms >= lease_ms / 4) {
        node->alive_ms = catalogue->now_ms;
        node->alives++;
        forget_silent(catalogue, node);
    }
    request->out->attach.lease_ms = lease_ms;
    const uint32_t spread_ms = sl_backoff_spread_ms(catalogue->nodes.count, lease_ms / 2);
    const uint32_t before_ms = is_settling(catalogue) ? catalogue->spread_ms : 0; /* all return */
    request->out->attach.spread_ms = spread_ms > before_ms ? spread_ms : before_ms;
    return 0;
}

/* Its copies are gone, and its names are free. */
static int catalogue_detach(const struct request *request)
{
    (void)sl_catalogue_node_remove(request->catalogue, request->node, SL_CATALOGUE_REMOVALS_MAX);
    return 0;
}

/* Publishers */

/* The other node, if any, that publishes what the sender wants to publish: the same part, or any
 * part of a version with another number of parts. */
static uint64_t other_publisher(const struct sl_catalogue_object *object,
                                const struct request *request, uint64_t sender)
{
    const struct sl_objects_message *message = request->message;
    for (uint32_t p = 0; p < object->publisher_count; p++) {
        const uint64_t publisher = object->publishers[p];
        if (publisher != 0 && publisher != sender &&
            (p == message->part || message->part_count != object->publisher_count)) {
            return publisher;
        }
    }
    return 0;
}

static const char *catalogue_address_of(const struct sl_objects_catalogue *catalogue, uint64_t id)
{
    const struct sl_catalogue_node *node = sl_catalogue_find(&catalogue->nodes, NULL, id);
    return node == NULL ? "another node" : node->address;
}

static uint32_t count_nodes(const struct sl_objects_catalogue *catalogue, uint32_t role)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < catalogue->nodes.count; i++) {
        const struct sl_catalogue_node *node = sl_catalogue_item(&catalogue->nodes, i);
        count += (node->roles & role) != 0;
    }
    return count;
}

/* Fills in the keepers of the part, its first one first. */
static void choose_keepers(const struct request *request)
{
    const struct sl_catalogue_sorted *nodes = &request->catalogue->nodes;
    struct sl_objects_message *out = request->out;
    uint32_t index = 0;
    out->keepers.total = count_nodes(request->catalogue, SL_OBJECTS_ROLE_KEEPER);
    const uint32_t total = out->keepers.total, replicas = request->catalogue->options.replicas;
    out->keepers.count = total > replicas ? replicas + 1 : total;
    for (uint32_t i = 0; i < nodes->count; i++) {
        const struct sl_catalogue_node *node = sl_catalogue_item(nodes, i);
        if ((node->roles & SL_OBJECTS_ROLE_KEEPER) != 0) {
            const uint32_t turn = (index++ + total - request->message->part % total) % total;
            if (turn < out->keepers.count) {
                out->keepers.peers[turn] =
                    (struct sl_objects_peer){.node = node->key.number, .address = node->address};
            }
        }
    }
}

/* Fills in the agent of the sender's host, unless the sender is one. */
static void choose_agent(const struct request *request)
{
    const struct sl_catalogue_sorted *nodes = &request->catalogue->nodes;
    struct sl_objects_message *out = request->out;
    const struct sl_catalogue_node *sender = request->node;
    if (sender->host == 0 || (sender->roles & SL_OBJECTS_ROLE_AGENT) != 0) {
        return;
    }
    for (uint32_t i = 0; i < nodes->count && out->keepers.count == 0; i++) {
        const struct sl_catalogue_node *node = sl_catalogue_item(nodes, i);
        if (node->host == sender->host && (node->roles & SL_OBJECTS_ROLE_AGENT) != 0) {
            out->keepers.peers[out->keepers.count++] =
                (struct sl_objects_peer){.node = node->key.number, .address = node->address};
        }
    }
}

/* The next number of the name: above all that this catalogue, or an earlier one, has given. */
static uint64_t next_number(const struct request *request, const struct sl_catalogue_object *object)
{
    const struct sl_objects_catalogue *catalogue = request->catalogue;
    const struct sl_objects_catalogue_options *options = &catalogue->options;
    const bool is_stored = request->message->begin.origin == SL_ORIGIN_PS &&
                           count_nodes(catalogue, SL_OBJECTS_ROLE_DISK) > 0;
    const uint64_t above = options->forgets && !is_stored ? 0 : options->numbers_above;
    return (object->last > above ? object->last : above) + 1;
}

/* A number of a version that keepers store outlives this catalogue. */
static void promise(struct sl_objects_catalogue *catalogue, uint64_t number)
{
    if (number > catalogue->promised && catalogue->options.promised != NULL) {
        catalogue->promised = number;
        catalogue->options.promised(catalogue->options.ctx, number);
    }
}

static int catalogue_begin(const struct request *request)
{
    struct sl_objects_catalogue *catalogue = request->catalogue;
    const struct sl_objects_message *message = request->message;
    struct sl_catalogue_object *object;
    if (is_settling(catalogue)) {
        return refuse_settling(request);
    }
    if (message->begin.origin == SL_ORIGIN_PS) {
        choose_keepers(request);
        if (request->out->keepers.count == 0) {
            return REFUSE(SL_ERR_AGAIN, "no keeper is attached");
        }
    } else if (message->begin.origin == SL_ORIGIN_HOST &&
               (message->begin.options & SL_OBJECTS_NO_AGENT) == 0) {
        choose_agent(request);
    }
    if (message->version == 0 && message->part_count > 1) {
        return REFUSE(SL_ERR_INVALID, "a version of several parts needs a number");
    }
    int err = sl_catalogue_object_add(catalogue, message->name, &object, request->reason);
    if (err != 0) {
        return err;
    }
    if ((message->begin.options & SL_OBJECTS_NEW_NAME) != 0 &&
        sl_catalogue_newest(object) != NULL) {
        return REFUSE(SL_ERR_EXISTS, "%s exists", object->name);
    }
    const uint64_t version =
        message->version != 0 ? message->version : next_number(request, object);
    if (version - 1 >= NUMBER_MAX || catalogue->epoch >= NUMBER_MAX) {
        return REFUSE(SL_ERR_TOO_LARGE, "%s: %" PRIu64 " is the last number of a version",
                      object->name, NUMBER_MAX);
    }
    const bool by_keeper = message->begin.origin == SL_ORIGIN_PS &&
                           (message->begin.options & SL_OBJECTS_BY_KEEPER) != 0;
    const uint64_t sender =
        by_keeper ? request->out->keepers.peers[0].node : request->node->key.number;
    const uint64_t other = other_publisher(object, request, sender);
    if ((message->begin.options & SL_OBJECTS_TAKE_OVER) == 0 &&
        sl_catalogue_find(&catalogue->nodes, NULL, other) != NULL) {
        return REFUSE(SL_ERR_EXISTS, "%s publishes %s; a publisher can take over the name",
                      catalogue_address_of(catalogue, other), object->name);
    }
    if (other != 0 || object->publisher_count != message->part_count) {
        err = sl_catalogue_begin_epoch(catalogue, object, catalogue->epoch + 1, message->part_count,
                                       request->reason);
        if (err != 0) {
            return err;
        }
    }
    object->publishers[message->part] = sender;
    request->out->epoch = object->epoch;
    object->last = message->version != 0 ? object->last : version;
    request->out->version = version;
    if (message->begin.origin == SL_ORIGIN_PS) {
        promise(catalogue, version);
    }
    return 0;
}

/* Checks the publisher. A name or an epoch that is new to this catalogue begins with it. */
static int check_publisher(const struct request *request, struct sl_catalogue_object *object)
{
    struct sl_objects_catalogue *catalogue = request->catalogue;
    const struct sl_objects_message *message = request->message;
    const uint64_t epoch = message->commit.record.epoch;
    const uint64_t publisher =
        message->kind == SL_OBJECTS_PUT ? message->commit.publisher : request->node->key.number;
    if (epoch > NUMBER_MAX) {
        return REFUSE(SL_ERR_INVALID, "no catalogue began epoch %" PRIu64, epoch);
    }
    if (epoch > object->epoch || (epoch == object->epoch && object->publisher_count == 0)) {
        const int err = sl_catalogue_begin_epoch(catalogue, object, epoch, message->part_count,
                                                 request->reason);
        if (err != 0) {
            return err;
        }
    }
    const uint64_t other = other_publisher(object, request, publisher);
    if (epoch < object->epoch || other != 0 || message->part_count != object->publisher_count) {
        return REFUSE(SL_ERR_CLOSED, "%s has taken over %s", catalogue_address_of(catalogue, other),
                      object->name);
    }
    object->publishers[message->part] = publisher;
    return 0;
}

/* The holder, or the keepers, of the part have the copies from which all others come. */
static int add_origins(const struct request *request, struct sl_catalogue_part *part)
{
    const struct sl_objects_record *record = &request->message->commit.record;
    const bool has_holder = part->info.holder != 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i < (has_holder ? 1 : record->keeper_count); i++) {
        struct sl_catalogue_node *holder = sl_catalogue_find(
            &request->catalogue->nodes, NULL, has_holder ? part->info.holder : record->keepers[i]);
        struct sl_catalogue_copy *copy;
        if (holder == NULL) {
            continue;
        }
        const int err =
            sl_catalogue_copy_add(request->catalogue, part, holder, &copy, request->reason);
        if (err != 0) {
            return err;
        }
        sl_catalogue_copy_set_blocks(copy, UINT32_MAX);
        found++;
    }
    return found > 0 ? 0
                     : REFUSE(SL_ERR_CLOSED, "the holder of part %u is gone: publish it again",
                              request->message->part);
}

static bool catalogue_is_same(const struct sl_objects_part *a, const struct sl_objects_part *b)
{
    return sl_hash_128_equal(a->digest, b->digest) && a->bytes == b->bytes;
}

static int commit_part(const struct request *request, struct sl_catalogue_version *version)
{
    const struct sl_objects_record *record = &request->message->commit.record;
    struct sl_catalogue_part *part = &version->parts[request->message->part];
    if (part->copies.count > 0 && !catalogue_is_same(&part->info, &record->parts[0])) {
        sl_catalogue_version_remove(request->catalogue, version, false);
        return REFUSE(SL_ERR_AGAIN, "part %u was committed with other bytes, which go",
                      request->message->part);
    }
    part->info = record->parts[0];
    version->touched_ms = request->catalogue->now_ms;
    sl_list_append(&request->catalogue->by_touch, &version->by_touch);
    const int err = add_origins(request, part);
    uint32_t there = 0;
    for (uint32_t p = 0; p < version->part_count; p++) {
        there += version->parts[p].holder_count > 0;
    }
    return err != 0 || there == version->part_count
               ? err
               : REFUSE(SL_ERR_AGAIN, "%u of %u parts are there", there, version->part_count);
}

static int catalogue_commit(const struct request *request)
{
    struct sl_objects_catalogue *catalogue = request->catalogue;
    const struct sl_objects_message *message = request->message;
    const struct sl_objects_record *record = &message->commit.record;
    struct sl_catalogue_object *object;
    if (is_settling(catalogue)) {
        return refuse_settling(request);
    }
    int err = sl_catalogue_object_add(catalogue, record->name, &object, request->reason);
    if (err != 0) {
        return err;
    }
    struct sl_catalogue_version *version = find_version(object, record->version);
    if (version != NULL && version->part_count == message->part_count &&
        catalogue_is_same(&version->parts[message->part].info, &record->parts[0])) {
        sl_catalogue_record_fill(version, request->out);
        return 0;
    }
    err = check_publisher(request, object);
    if (err == 0 && version != NULL) {
        err = REFUSE(SL_ERR_EXISTS, "%s@%" PRIu64 " exists with other bytes", object->name,
                     record->version);
    }
    err = err != 0 ? err
                   : sl_catalogue_version_add(catalogue, object, record, message->part_count,
                                              &version, request->reason);
    err = err != 0 ? err : commit_part(request, version);
    if (err != 0) {
        return err;
    }
    catalogue->put = message->commit.image.manifest != NULL ? message : NULL;
    catalogue->put_left = IMAGES_MAX;
    sl_catalogue_publish(catalogue, version, catalogue->options.unix_ms(catalogue->options.ctx));
    catalogue->put = NULL;
    sl_catalogue_retire_old(catalogue, version);
    sl_catalogue_record_fill(version, request->out);
    return 0;
}

/* Fetchers and followers */

/* Fills in from which nodes the sender fetches. */
static int catalogue_fetch(const struct request *request, struct sl_catalogue_part *part)
{
    struct sl_catalogue_copy *copy;
    const int err =
        sl_catalogue_copy_add(request->catalogue, part, request->node, &copy, request->reason);
    if (err != 0) {
        return err;
    }
    if (!copy->is_complete && copy->stage == SL_CATALOGUE_PASSIVE) {
        sl_catalogue_plan_join(request->catalogue, copy);
    }
    sl_list_remove(&copy->news);
    sl_catalogue_news_fill(request->catalogue, copy, request->message->find.bad,
                           request->message->find.bad_count, request->out);
    return 0;
}

static int catalogue_find(const struct request *request)
{
    const struct sl_objects_message *message = request->message;
    struct sl_catalogue_version *version = find_version(find_object(request), message->version);
    if (version == NULL) {
        return refuse_missing(request);
    }
    return message->part < version->part_count
               ? catalogue_fetch(request, &version->parts[message->part])
               : REFUSE(SL_ERR_INVALID, "the version has %u parts", version->part_count);
}

static int catalogue_follow(const struct request *request)
{
    struct sl_catalogue_object *object;
    struct sl_catalogue_follow *made;
    int err = sl_catalogue_object_add(request->catalogue, request->message->name, &object,
                                      request->reason);
    err = err != 0 ? err : sl_catalogue_follow_add(object, request->node, &made, request->reason);
    if (err != 0) {
        return err;
    }
    struct sl_catalogue_version *version = sl_catalogue_newest(object);
    made->version = request->message->version;
    if (made->version > object->last && made->version < NUMBER_MAX) { /* of an earlier catalogue */
        object->last = made->version;
    }
    if (made->version != 0 && made->version <= object->removed &&
        find_version(object, made->version) == NULL) {
        sl_catalogue_send_removed(request->catalogue, made); /* it was removed meanwhile */
    }
    if (version == NULL && made->version == 0 && is_settling(request->catalogue)) {
        return refuse_settling(request); /* a node may yet report one; meanwhile NEWS are sent */
    }
    if (version == NULL || version->key.number <= made->version) {
        return 0;
    }
    made->version = version->key.number;
    return catalogue_fetch(request, &version->parts[0]);
}

static int catalogue_use(const struct request *request)
{
    struct sl_catalogue_follow *made =
        sl_catalogue_follow_find(find_object(request), request->node);
    if (made != NULL) {
        made->in_use = request->message->version;
    }
    return 0;
}

/* Copies */

static struct sl_catalogue_part *find_part(struct sl_catalogue_version *version, uint32_t part)
{
    return version != NULL && part < version->part_count ? &version->parts[part] : NULL;
}

static int catalogue_hold(const struct request *request)
{
    struct sl_objects_catalogue *catalogue = request->catalogue;
    const struct sl_objects_message *message = request->message;
    struct sl_catalogue_version *version = find_version(find_object(request), message->version);
    struct sl_catalogue_version *restored = NULL;
    struct sl_catalogue_part *part = find_part(version, message->part);
    struct sl_catalogue_copy *copy;
    const struct sl_objects_part *held = &message->commit.record.parts[message->part];
    const bool is_known =
        part != NULL && (message->commit.record_count == 0 || catalogue_is_same(&part->info, held));
    /* A node that has this version here has sent the HOLD of another one earlier. */
    const bool is_late =
        part != NULL && sl_catalogue_find(&part->copies, NULL, request->node->key.number) != NULL;
    if (!is_known && !is_late) {
        restored = sl_catalogue_take_unknown(catalogue, request->node, message, version);
        part = find_part(restored, message->part);
    }
    const bool has_copy = (is_known || restored != NULL) &&
                          sl_catalogue_copy_add(catalogue, part, request->node, &copy, NULL) == 0;
    if (has_copy) {
        sl_catalogue_copy_set_blocks(copy, message->commit.blocks);
    }
    if (has_copy && restored != NULL) {
        sl_catalogue_publish(catalogue, restored, message->commit.record.time_ms);
    } else if (restored != NULL) {
        sl_catalogue_version_remove(catalogue, restored, false);
    }
    return 0;
}

static int catalogue_drop(const struct request *request)
{
    const struct sl_objects_message *message = request->message;
    const struct sl_catalogue_object *object = find_object(request);
    if (message->version == 0) {
        struct sl_catalogue_follow *made = sl_catalogue_follow_find(object, request->node);
        if (made != NULL) {
            sl_catalogue_follow_remove(made);
        }
        return 0;
    }
    struct sl_catalogue_version *version =
        object != NULL ? sl_catalogue_find(&object->versions, NULL, message->version) : NULL;
    struct sl_catalogue_part *part = find_part(version, message->part);
    struct sl_catalogue_copy *copy =
        part != NULL ? sl_catalogue_find(&part->copies, NULL, request->node->key.number) : NULL;
    if (copy != NULL) {
        sl_catalogue_copy_remove(request->catalogue, copy);
    }
    return 0;
}

/* Lists */

/* Entries behind the name and version of the message, as many as fit. */
static int catalogue_list(const struct request *request)
{
    const struct sl_objects_message *message = request->message;
    const struct sl_catalogue_sorted *objects = &request->catalogue->objects;
    const char *first = message->name[0] != '\0' ? message->name : message->list.prefix;
    if (is_settling(request->catalogue)) {
        return refuse_settling(request);
    }
    for (uint32_t i = sl_catalogue_position(objects, (struct sl_catalogue_key){.name = first});
         i < objects->count; i++) {
        const struct sl_catalogue_object *object = sl_catalogue_item(objects, i);
        const bool is_first = strcmp(object->name, message->name) == 0;
        if (strncmp(object->name, message->list.prefix, strlen(message->list.prefix)) != 0) {
            return 0;
        }
        for (uint32_t v = 0; v < object->versions.count; v++) {
            const struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, v);
            if (version->time_ms == 0 || (is_first && version->key.number <= message->version)) {
                continue;
            }
            if (request->out->list.entry_count == SL_OBJECTS_ENTRIES_MAX) {
                request->out->list.more = 1;
                return 0;
            }
            request->out->list.entries[request->out->list.entry_count++] =
                sl_catalogue_entry_of(version);
        }
    }
    return 0;
}

static int followers(const struct request *request)
{
    const struct sl_catalogue_object *object = find_object(request);
    if (object == NULL || is_settling(request->catalogue)) {
        return refuse_missing(request);
    }
    sl_catalogue_list_followers(request->catalogue, object, request->message->followers.after,
                                request->out);
    return 0;
}

/* Removes a version, or all of them. Followers of the newest are sent RETIRE too: they ask FOLLOW
 * for the one that is the newest now. */
static int remove_versions(const struct request *request)
{
    struct sl_catalogue_object *object = find_object(request);
    const uint64_t number = request->message->version;
    struct sl_catalogue_version *version = find_version(object, number);
    if (version == NULL) {
        return refuse_missing(request);
    }
    do {
        const uint64_t removed = version->key.number;
        object->removed = object->removed > removed ? object->removed : removed;
        sl_catalogue_version_remove(request->catalogue, version, true);
        version = number == 0 ? sl_catalogue_newest(object) : NULL;
    } while (version != NULL);
    SL_LIST_EACH (const struct sl_catalogue_follow, made, by_object, &object->follows) {
        if (made->version != 0 && made->version <= object->removed &&
            find_version(object, made->version) == NULL) {
            sl_catalogue_send_removed(request->catalogue, made);
        }
    }
    return 0;
}

/* Reports of the sender, one after the other. */
static int batch(const struct request *request)
{
    struct sl_objects_message left = *request->message, item;
    struct request each = *request;
    int err;
    each.message = &item;
    while ((err = sl_objects_message_unbatch(&left, &item, request->reason)) == 0) {
        if (item.is_answer || (item.kind != SL_OBJECTS_HOLD && item.kind != SL_OBJECTS_USE)) {
            return REFUSE(SL_ERR_PROTOCOL, "a batch has HOLD and USE only");
        }
        (void)(item.kind == SL_OBJECTS_HOLD ? catalogue_hold : catalogue_use)(&each);
    }
    return err == SL_ERR_NOT_FOUND ? 0 : err;
}

/* Messages */

static handler_fn *const HANDLERS[SL_OBJECTS_KINDS] = {
    [SL_OBJECTS_ATTACH] = alive,
    [SL_OBJECTS_ALIVE] = alive,
    [SL_OBJECTS_BEGIN] = catalogue_begin,
    [SL_OBJECTS_COMMIT] = catalogue_commit,
    [SL_OBJECTS_FOLLOW] = catalogue_follow,
    [SL_OBJECTS_FIND] = catalogue_find,
    [SL_OBJECTS_HOLD] = catalogue_hold,
    [SL_OBJECTS_DROP] = catalogue_drop,
    [SL_OBJECTS_LIST] = catalogue_list,
    [SL_OBJECTS_REMOVE] = remove_versions,
    [SL_OBJECTS_DETACH] = catalogue_detach,
    [SL_OBJECTS_USE] = catalogue_use,
    [SL_OBJECTS_FOLLOWERS] = followers,
    [SL_OBJECTS_BATCH] = batch,
    [SL_OBJECTS_PUT] = catalogue_commit,
};

/* Finds, or with ATTACH adds, the sender. Its lease begins again. */
static int find_sender(struct request *request, const char *address)
{
    struct sl_objects_catalogue *catalogue = request->catalogue;
    const uint64_t id = request->message->node;
    struct sl_catalogue_node *node = sl_catalogue_find(&catalogue->nodes, NULL, id);
    if (node != NULL && strcmp(node->address, address) != 0) {
        return REFUSE(SL_ERR_EXISTS, "node %016" PRIx64 " is at %s", id, node->address);
    }
    if (node == NULL && (request->message->kind != SL_OBJECTS_ATTACH || id == 0)) {
        return REFUSE(SL_ERR_AGAIN, "the catalogue does not know this node");
    }
    const int err = node != NULL ? 0
                                 : sl_catalogue_node_add(catalogue, address, request->message,
                                                         &node, request->reason);
    if (err == 0) {
        node->expires_ms = catalogue->now_ms + catalogue->options.lease_ms;
        sl_list_append(&catalogue->by_expiry, &node->by_expiry);
        request->node = node;
    }
    return err;
}

void sl_objects_catalogue_receive(struct sl_objects_catalogue *catalogue, const char *address,
                                  const struct sl_objects_message *message, uint64_t now_ms)
{
    struct sl_objects_message out = {.kind = message->kind, .request = message->request};
    struct sl_reason reason;
    struct request request = {
        .catalogue = catalogue, .message = message, .out = &out, .reason = &reason};
    catalogue->now_ms = now_ms;
    int err = find_sender(&request, address);
    if (message->is_answer) {
        if (err == 0 && message->kind == SL_OBJECTS_NEWS) {
            sl_catalogue_news_taken(catalogue, request.node, message->request);
        }
        return;
    }
    handler_fn *handler = message->kind < SL_OBJECTS_KINDS ? HANDLERS[message->kind] : NULL;
    if (err == 0) {
        err = handler != NULL
                  ? handler(&request)
                  : sl_reason_fail(&reason, SL_ERR_UNSUPPORTED, "not a request to the catalogue");
    }
    if (message->request != 0) {
        out.is_answer = true;
        out.err = err;
        out.text = err != 0 ? reason.text : NULL;
        sl_catalogue_send(catalogue, address, &out);
    }
}

/* Time */

static void expire(struct sl_objects_catalogue *catalogue)
{
    uint32_t left = SL_CATALOGUE_REMOVALS_MAX; /* messages go before the rest */
    SL_LIST_EACH (struct sl_catalogue_node, node, by_expiry, &catalogue->by_expiry) {
        if (node->expires_ms != 0) {
            if (catalogue->now_ms < node->expires_ms ||
                catalogue->now_ms < catalogue->expire_from_ms) {
                return;
            }
            sl_log_warn("objects: node %s expired: no message for %u ms; its copies are gone",
                        node->address, catalogue->options.lease_ms);
        }
        left -= sl_catalogue_node_remove(catalogue, node, left);
    }
}

void sl_objects_catalogue_tick(struct sl_objects_catalogue *catalogue, uint64_t now_ms)
{
    const uint32_t lease_ms = catalogue->options.lease_ms;
    if (now_ms - catalogue->ticked_ms > lease_ms / 4) {
        catalogue->expire_from_ms = now_ms + lease_ms / 2;
    }
    catalogue->ticked_ms = catalogue->now_ms = now_ms;
    expire(catalogue);
    SL_LIST_EACH (struct sl_catalogue_version, version, by_touch, &catalogue->by_touch) {
        if (now_ms - version->touched_ms < lease_ms) {
            break; /* later ones were touched later */
        }
        sl_catalogue_version_remove(catalogue, version, false);
    }
    SL_LIST_EACH (struct sl_catalogue_part, part, replan, &catalogue->replans) {
        if (now_ms - part->planned_ms >= SL_CATALOGUE_PLAN_MS) {
            sl_catalogue_plan_part(catalogue, part);
        }
    }
}

uint64_t sl_objects_catalogue_next_ms(const struct sl_objects_catalogue *catalogue)
{
    const struct sl_list_link *link = sl_list_first(&catalogue->by_expiry);
    if (link == NULL && sl_list_empty(&catalogue->by_touch)) {
        return UINT64_MAX;
    }
    if (link != NULL &&
        SL_CONTAINER_OF(link, struct sl_catalogue_node, by_expiry)->expires_ms == 0) {
        return catalogue->ticked_ms + 1;
    }
    return catalogue->ticked_ms + (sl_list_empty(&catalogue->replans)
                                       ? catalogue->options.lease_ms / 10
                                       : SL_CATALOGUE_PLAN_MS);
}
