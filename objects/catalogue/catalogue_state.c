#include "objects/catalogue/catalogue_state.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "objects/catalogue/manifest.h"

#define UNUSED_MS 60000 /* after which a name without versions and followers makes room */
#define SWEEP_MS  1000  /* at least, between two searches for such names */

/* Sorted lists */

static int catalogue_state_compare(struct sl_catalogue_key a, struct sl_catalogue_key b)
{
    const int order = a.name == NULL ? 0 : strcmp(a.name, b.name);
    return order != 0 ? order : (a.number > b.number) - (a.number < b.number);
}

uint32_t sl_catalogue_position(const struct sl_catalogue_sorted *sorted,
                               struct sl_catalogue_key key)
{
    uint32_t first = 0;
    SL_ARRAY_BISECT(first, sorted->count, i, catalogue_state_compare(*sorted->items[i], key) < 0);
    return first;
}

void *sl_catalogue_find(const struct sl_catalogue_sorted *sorted, const char *name, uint64_t number)
{
    const struct sl_catalogue_key key = {name, number};
    const uint32_t at = sl_catalogue_position(sorted, key);
    return at < sorted->count && catalogue_state_compare(*sorted->items[at], key) == 0
               ? sorted->items[at]
               : NULL;
}

static void catalogue_state_erase(struct sl_catalogue_sorted *sorted,
                                  const struct sl_catalogue_key *item)
{
    struct sl_catalogue_key **at = &sorted->items[sl_catalogue_position(sorted, *item)];
    memmove(at, at + 1, (size_t)(&sorted->items[--sorted->count] - at) * sizeof *at);
}

static int catalogue_state_no_memory(struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "the catalogue has no memory left");
}

static int check_limit(uint32_t count, uint32_t limit, const char *what, struct sl_reason *reason)
{
    return count < limit
               ? 0
               : sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                                "the catalogue has %u %s already, which is the limit", count, what);
}

/* Allocates an item of a sorted list; `limit`: of the items. The key's name must outlive the call.
 * *out: the pointer to the item. */
static int catalogue_state_add(struct sl_catalogue_sorted *sorted, struct sl_catalogue_key key,
                               size_t bytes, uint32_t limit, const char *what, void *out,
                               struct sl_reason *reason)
{
    const int err = check_limit(sorted->count, limit, what, reason);
    if (err != 0) {
        return err;
    }
    struct sl_catalogue_key *item = calloc(1, bytes);
    if (item == NULL || !sl_array_make_room(&sorted->items, &sorted->capacity, sorted->count,
                                            sizeof *sorted->items)) {
        free(item);
        return catalogue_state_no_memory(reason);
    }
    struct sl_catalogue_key **at = &sorted->items[sl_catalogue_position(sorted, key)];
    memmove(at + 1, at, (size_t)(&sorted->items[sorted->count++] - at) * sizeof *at);
    *at = item;
    *item = key;
    memcpy(out, &item, sizeof item);
    return 0;
}

/* Objects and versions */

static void remove_object(struct sl_objects_catalogue *catalogue,
                          struct sl_catalogue_object *object)
{
    catalogue_state_erase(&catalogue->objects, &object->key);
    free(object->versions.items);
    free(object->publishers);
    free(object);
}

/* Forgets names without versions and followers. */
static void sweep(struct sl_objects_catalogue *catalogue)
{
    catalogue->swept_ms = catalogue->now_ms;
    for (uint32_t i = catalogue->objects.count; i-- > 0;) {
        struct sl_catalogue_object *object = sl_catalogue_item(&catalogue->objects, i);
        if (object->versions.count == 0 && sl_list_empty(&object->follows) &&
            catalogue->now_ms - object->touched_ms >= UNUSED_MS) {
            remove_object(catalogue, object);
        }
    }
}

int sl_catalogue_object_add(struct sl_objects_catalogue *catalogue, const char *name,
                            struct sl_catalogue_object **out, struct sl_reason *reason)
{
    struct sl_catalogue_object *object = sl_catalogue_find(&catalogue->objects, name, 0);
    if (object == NULL) {
        if (catalogue->objects.count == SL_LIMIT_OBJECTS_NAMES &&
            catalogue->now_ms - catalogue->swept_ms >= SWEEP_MS) {
            sweep(catalogue);
        }
        const size_t name_bytes = strlen(name) + 1;
        const int err = catalogue_state_add(
            &catalogue->objects, (struct sl_catalogue_key){.name = name},
            sizeof *object + name_bytes, SL_LIMIT_OBJECTS_NAMES, "names", &object, reason);
        if (err != 0) {
            return err;
        }
        memcpy(object->name, name, name_bytes);
        object->key.name = object->name;
        sl_list_init(&object->follows);
    }
    object->touched_ms = catalogue->now_ms;
    *out = object;
    return 0;
}

/* A commit may add a version to those that are committed if it removes the oldest of them. */
static uint32_t versions_max(const struct sl_catalogue_object *object,
                             const struct sl_objects_record *record, uint32_t keep_versions)
{
    uint32_t max = SL_LIMIT_OBJECTS_VERSIONS, kept = 0;
    uint64_t oldest = UINT64_MAX;
    for (uint32_t i = object->versions.count; record->time_ms == 0 && i-- > 0;) {
        const struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, i);
        const bool is_kept = version->time_ms != 0 && version->origin != SL_ORIGIN_CALLER;
        max += version->time_ms == 0;
        kept += is_kept;
        oldest = is_kept ? version->key.number : oldest;
    }
    return max + (record->origin != SL_ORIGIN_CALLER && record->version > oldest &&
                  kept >= keep_versions);
}

int sl_catalogue_version_add(struct sl_objects_catalogue *catalogue,
                             struct sl_catalogue_object *object,
                             const struct sl_objects_record *record, uint32_t part_count,
                             struct sl_catalogue_version **out, struct sl_reason *reason)
{
    const uint64_t number = record->version;
    struct sl_catalogue_version *version = sl_catalogue_find(&object->versions, NULL, number);
    if (version == NULL) {
        const size_t note_bytes = strlen(record->note) + 1;
        int err = check_limit(catalogue->part_count, SL_LIMIT_OBJECTS_PARTS - part_count + 1,
                              "parts of versions", reason);
        err = err != 0 ? err
                       : catalogue_state_add(
                             &object->versions, (struct sl_catalogue_key){.number = number},
                             sizeof *version + part_count * sizeof version->parts[0] + note_bytes,
                             versions_max(object, record, catalogue->options.keep_versions),
                             "versions of the name", &version, reason);
        if (err != 0) {
            return err;
        }
        version->object = object;
        version->part_count = part_count;
        memcpy(sl_catalogue_version_note(version), record->note, note_bytes);
        for (uint32_t p = 0; p < part_count; p++) {
            version->parts[p].version = version;
            sl_list_init(&version->parts[p].holders);
            sl_list_init(&version->parts[p].fetchers);
        }
        catalogue->part_count += part_count;
        object->last = object->last > number ? object->last : number;
    }
    version->epoch = record->epoch;
    version->origin = record->origin;
    *out = version;
    return 0;
}

static void count_load(const struct sl_catalogue_copy *copy, uint32_t change)
{
    for (uint32_t s = 0; s < SL_OBJECTS_STRIPES && !copy->is_local; s++) {
        struct sl_catalogue_copy *parent =
            sl_catalogue_find(&copy->part->copies, NULL, copy->parents[s]);
        if (parent != NULL) {
            parent->load += change;
        }
    }
}

void sl_catalogue_copy_set_parents(struct sl_catalogue_copy *copy, uint64_t first, uint64_t second,
                                   bool is_local)
{
    count_load(copy, UINT32_MAX);
    copy->parents[0] = first;
    copy->parents[1] = second;
    copy->is_local = is_local;
    count_load(copy, 1);
}

/* Nobody is planned to fetch from the copy any more: one that its node adds later may fetch from
 * those that did. They have other sources. */
static void forget_children(const struct sl_catalogue_copy *copy)
{
    SL_LIST_EACH (struct sl_catalogue_copy, child, by_part, &copy->part->fetchers) {
        const uint64_t first = child->parents[0] == copy->key.number ? 0 : child->parents[0];
        const uint64_t second = child->parents[1] == copy->key.number ? 0 : child->parents[1];
        if (first != child->parents[0] || second != child->parents[1]) {
            sl_catalogue_copy_set_parents(child, first, second, child->is_local);
        }
    }
}

static void free_copy(struct sl_objects_catalogue *catalogue, struct sl_catalogue_copy *copy)
{
    sl_catalogue_copy_set_parents(copy, 0, 0, false);
    copy->part->holder_count -= copy->is_complete;
    if (copy->node->told == copy) {
        copy->node->told = NULL;
    }
    sl_list_remove(&copy->by_part);
    sl_list_remove(&copy->by_node);
    sl_list_remove(&copy->news);
    catalogue_state_erase(&copy->part->copies, &copy->key);
    catalogue->copy_count--;
    copy->node->copy_count--;
    free(copy);
}

void sl_catalogue_send_retire(const struct sl_objects_catalogue *catalogue,
                              const struct sl_catalogue_node *node, const char *name,
                              uint64_t number, uint32_t part, struct sl_hash_128 digest)
{
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_RETIRE, .name = name, .version = number, .part = part, .digest = digest};
    sl_catalogue_send(catalogue, node->address, &message);
}

void sl_catalogue_send_removed(const struct sl_objects_catalogue *catalogue,
                               const struct sl_catalogue_follow *follow)
{
    sl_catalogue_send_retire(catalogue, follow->node, follow->object->name, follow->version, 0,
                             (struct sl_hash_128){0});
}

void sl_catalogue_version_remove(struct sl_objects_catalogue *catalogue,
                                 struct sl_catalogue_version *version, bool retire)
{
    struct sl_catalogue_object *object = version->object;
    if (version->time_ms != 0 && catalogue->options.changed != NULL) {
        catalogue->options.changed(catalogue->options.ctx, object->name, version->key.number, NULL);
    }
    if (retire) {
        (void)sl_objects_tombstones_add(&catalogue->removed,
                                        sl_objects_tombstone_of(object->name, version->key.number,
                                                                SL_OBJECTS_TOMBSTONE_WHOLE,
                                                                (struct sl_hash_128){0}));
    }
    for (uint32_t p = 0; p < version->part_count; p++) {
        struct sl_catalogue_part *part = &version->parts[p];
        if (retire) {
            (void)sl_objects_tombstones_add(
                &catalogue->removed,
                sl_objects_tombstone_of(object->name, version->key.number, p, part->info.digest));
        }
        while (part->copies.count > 0) {
            struct sl_catalogue_copy *copy = sl_catalogue_item(&part->copies, 0);
            if (retire) {
                sl_catalogue_send_retire(catalogue, copy->node, object->name, version->key.number,
                                         p, part->info.digest);
            }
            free_copy(catalogue, copy);
        }
        sl_list_remove(&part->replan);
        free(part->copies.items);
    }
    sl_list_remove(&version->by_touch);
    catalogue->part_count -= version->part_count;
    object->touched_ms = catalogue->now_ms;
    catalogue_state_erase(&object->versions, &version->key);
    free(version);
}

/* The first committed version from index `at` on, in steps of 1, or of -1 modulo 2^32. */
static struct sl_catalogue_version *
catalogue_state_committed(const struct sl_catalogue_object *object, uint32_t at, uint32_t step)
{
    for (; at < object->versions.count; at += step) {
        struct sl_catalogue_version *version = sl_catalogue_item(&object->versions, at);
        if (version->time_ms != 0) {
            return version;
        }
    }
    return NULL;
}

struct sl_catalogue_version *sl_catalogue_newest(const struct sl_catalogue_object *object)
{
    return catalogue_state_committed(object, object->versions.count - 1, UINT32_MAX);
}

struct sl_catalogue_version *sl_catalogue_oldest(const struct sl_catalogue_object *object)
{
    return catalogue_state_committed(object, 0, 1);
}

/* Copies */

int sl_catalogue_copy_add(struct sl_objects_catalogue *catalogue, struct sl_catalogue_part *part,
                          struct sl_catalogue_node *node, struct sl_catalogue_copy **out,
                          struct sl_reason *reason)
{
    struct sl_catalogue_copy *copy = sl_catalogue_find(&part->copies, NULL, node->key.number);
    if (copy == NULL) {
        int err = check_limit(catalogue->copy_count, SL_LIMIT_OBJECTS_COPIES, "copies", reason);
        err = err != 0
                  ? err
                  : catalogue_state_add(&part->copies, node->key, sizeof *copy,
                                        SL_LIMIT_OBJECTS_NODES, "copies of a part", &copy, reason);
        if (err != 0) {
            return err;
        }
        catalogue->copy_count++;
        node->copy_count++;
        copy->node = node;
        copy->part = part;
        copy->turn = part->copies.count;
        sl_list_append(&part->fetchers, &copy->by_part);
        if (part->version->time_ms != 0) {
            sl_list_remove(&part->version->by_touch); /* of a version that was loaded */
        }
    } else if (copy->node != node) { /* the node had ended, and has attached again */
        sl_list_remove(&copy->news);
        copy->node->copy_count--;
        node->copy_count++;
        copy->node = node;
    }
    sl_list_append(&node->copies, &copy->by_node);
    copy->heard = node->alives;
    copy->heard_ms = catalogue->now_ms;
    *out = copy;
    return 0;
}

void sl_catalogue_copy_set_blocks(struct sl_catalogue_copy *copy, uint32_t blocks)
{
    struct sl_catalogue_part *part = copy->part;
    const uint64_t all = sl_objects_block_count(part->info.manifest_bytes) +
                         sl_objects_block_count(part->info.bytes);
    const bool is_complete = blocks >= all;
    copy->blocks = is_complete ? (uint32_t)all : blocks;
    if (is_complete != copy->is_complete) {
        copy->is_complete = is_complete;
        copy->stage = SL_CATALOGUE_PASSIVE;
        sl_catalogue_copy_set_parents(copy, 0, 0, false);
        if (!is_complete) {
            forget_children(copy);
        }
        part->holder_count += is_complete ? 1 : UINT32_MAX;
        sl_list_append(is_complete ? &part->holders : &part->fetchers, &copy->by_part);
        sl_list_remove(&copy->news);
    }
}

void sl_catalogue_copy_remove(struct sl_objects_catalogue *catalogue,
                              struct sl_catalogue_copy *copy)
{
    struct sl_catalogue_version *version = copy->part->version;
    forget_children(copy);
    free_copy(catalogue, copy);
    uint32_t left = 0;
    for (uint32_t p = 0; p < version->part_count; p++) {
        left += version->parts[p].copies.count;
    }
    if (left == 0) {
        sl_catalogue_version_remove(catalogue, version, false);
    }
}

/* Nodes and followers */

int sl_catalogue_node_add(struct sl_objects_catalogue *catalogue, const char *address,
                          const struct sl_objects_message *attach, struct sl_catalogue_node **out,
                          struct sl_reason *reason)
{
    struct sl_catalogue_node *node;
    const size_t address_bytes = strlen(address) + 1;
    const int err = catalogue_state_add(
        &catalogue->nodes, (struct sl_catalogue_key){.number = attach->node},
        sizeof *node + address_bytes, SL_LIMIT_OBJECTS_NODES, "nodes", &node, reason);
    if (err != 0) {
        return err;
    }
    if (attach->attach.spread_ms > catalogue->spread_ms) {
        catalogue->spread_ms = attach->attach.spread_ms;
    }
    node->host = attach->attach.host;
    memcpy(node->address, address, address_bytes);
    memcpy(node->location, attach->attach.location,
           strnlen(attach->attach.location, sizeof node->location - 1));
    sl_list_init(&node->copies);
    sl_list_init(&node->follows);
    sl_list_init(&node->news);
    *out = node;
    return 0;
}

uint32_t sl_catalogue_node_remove(struct sl_objects_catalogue *catalogue,
                                  struct sl_catalogue_node *node, uint32_t copies_max)
{
    uint32_t removed = 0;
    if (node->expires_ms != 0) {
        node->expires_ms = 0;
        sl_list_prepend(&catalogue->by_expiry, &node->by_expiry);
        catalogue_state_erase(&catalogue->nodes, &node->key);
        catalogue->awaited_count -= node->is_awaited;
    }
    SL_LIST_EACH (struct sl_catalogue_follow, follow, by_node, &node->follows) {
        sl_catalogue_follow_remove(follow);
    }
    for (; removed < copies_max && !sl_list_empty(&node->copies); removed++) {
        sl_catalogue_copy_remove(catalogue,
                                 SL_LIST_FIRST(struct sl_catalogue_copy, by_node, &node->copies));
    }
    if (sl_list_empty(&node->copies)) {
        sl_list_remove(&node->by_expiry);
        free(node);
    }
    return removed;
}

struct sl_catalogue_follow *sl_catalogue_follow_find(const struct sl_catalogue_object *object,
                                                     const struct sl_catalogue_node *node)
{
    SL_LIST_EACH (struct sl_catalogue_follow, follow, by_node, &node->follows) {
        if (follow->object == object) {
            return follow;
        }
    }
    return NULL;
}

int sl_catalogue_follow_add(struct sl_catalogue_object *object, struct sl_catalogue_node *node,
                            struct sl_catalogue_follow **out, struct sl_reason *reason)
{
    *out = sl_catalogue_follow_find(object, node);
    if (*out != NULL) {
        return 0;
    }
    const int err = check_limit(node->follow_count, SL_LIMIT_OBJECTS_FOLLOWS,
                                "names that the node follows", reason);
    struct sl_catalogue_follow *follow = err != 0 ? NULL : calloc(1, sizeof *follow);
    if (follow == NULL) {
        return err != 0 ? err : catalogue_state_no_memory(reason);
    }
    follow->node = node;
    follow->object = object;
    node->follow_count++;
    sl_list_append(&node->follows, &follow->by_node);
    sl_list_append(&object->follows, &follow->by_object);
    *out = follow;
    return 0;
}

void sl_catalogue_follow_remove(struct sl_catalogue_follow *follow)
{
    follow->node->follow_count--;
    sl_list_remove(&follow->by_node);
    sl_list_remove(&follow->by_object);
    free(follow);
}

/* Lists */

struct sl_objects_entry sl_catalogue_entry_of(const struct sl_catalogue_version *version)
{
    struct sl_objects_entry entry = {
        .name = version->object->name,
        .note = sl_catalogue_version_note(version),
        .version = version->key.number,
        .time_ms = version->time_ms,
        .holders = UINT32_MAX,
        .part_count = version->part_count,
        .origin = version->origin,
    };
    for (uint32_t p = 0; p < version->part_count; p++) {
        const struct sl_catalogue_part *part = &version->parts[p];
        entry.bytes += part->info.bytes;
        entry.holders = part->holder_count < entry.holders ? part->holder_count : entry.holders;
    }
    return entry;
}

void sl_catalogue_list_followers(const struct sl_objects_catalogue *catalogue,
                                 const struct sl_catalogue_object *object, uint64_t after,
                                 struct sl_objects_message *out)
{
    const struct sl_catalogue_version *newest = sl_catalogue_newest(object);
    for (uint32_t i = 0;
         i < catalogue->nodes.count && out->followers.count < SL_OBJECTS_FOLLOWERS_MAX; i++) {
        const struct sl_catalogue_node *node = sl_catalogue_item(&catalogue->nodes, i);
        const struct sl_catalogue_follow *follow =
            node->key.number > after ? sl_catalogue_follow_find(object, node) : NULL;
        if (follow != NULL) {
            const uint64_t in_use = follow->in_use;
            const uint64_t last = in_use != 0 && newest != NULL ? newest->key.number : 0;
            out->followers.nodes[out->followers.count++] = (struct sl_objects_follower){
                .node = node->key.number,
                .address = node->address,
                .location = node->location,
                .host = node->host,
                .version = in_use,
                .behind = last > in_use ? last - in_use : 0,
                .age_ms = catalogue->now_ms + catalogue->options.lease_ms - node->expires_ms,
            };
        }
    }
}

void sl_catalogue_clear(struct sl_objects_catalogue *catalogue)
{
    SL_LIST_EACH (struct sl_catalogue_node, node, by_expiry, &catalogue->by_expiry) {
        (void)sl_catalogue_node_remove(catalogue, node, UINT32_MAX);
    }
    while (catalogue->objects.count > 0) { /* versions without copies are not committed yet */
        struct sl_catalogue_object *object =
            sl_catalogue_item(&catalogue->objects, catalogue->objects.count - 1);
        while (object->versions.count > 0) {
            sl_catalogue_version_remove(catalogue, sl_catalogue_item(&object->versions, 0), false);
        }
        remove_object(catalogue, object);
    }
    free(catalogue->nodes.items);
    free(catalogue->objects.items);
    free(catalogue->plan.sources);
    free(catalogue->plan.batch);
    free(catalogue->plan.first_on_host);
    sl_key_index_fini(&catalogue->plan.hosts);
}
