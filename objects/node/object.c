/* The public functions about versions: withdraw, remove, wait_held, list. Threads of the
 * application. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"
#include "core/assert.h"
#include "objects/node/call.h"
#include "objects/node/delta.h"
#include "objects/node/error.h"
#include "objects/node/node.h"
#include "objects/node/store.h"
#include "objects/node/withdraw.h"

#define HELD_NS (20 * SL_CLOCK_NS_PER_MS) /* between two questions of wait_held */

struct unkeep_call {
    struct sl_objects_call call;
    const char *name;
    uint64_t version;
    bool was_kept;
};

static void unkeep_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct unkeep_call *unkeep = SL_CONTAINER_OF(call, struct unkeep_call, call);
    unkeep->was_kept = sl_objects_store_withdraw(node, unkeep->name, unkeep->version);
    sl_objects_delta_withdraw(node, unkeep->name, unkeep->version);
    sl_objects_answer(call, 0, "not kept");
}

int sl_object_withdraw(struct sl_objects *objects, const char *name, uint64_t version,
                       uint32_t timeout_ms)
{
    sl_assert(objects != NULL);
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    if (err == 0 && version == 0) { /* NOT_FOUND would say that the memory is free */
        err = sl_objects_fail(SL_ERR_INVALID, "%s: a withdraw needs the number of a version", name);
    }
    struct unkeep_call unkeep = {.call = {.run = unkeep_here}, .name = name, .version = version};
    err = err != 0 ? err : sl_objects_call(objects, &unkeep.call);
    err = err != 0 ? err : sl_objects_withdraw_version(objects, name, version, timeout_ms);
    return err != 0 && !(err == SL_ERR_NOT_FOUND && unkeep.was_kept) ? err : sl_objects_succeed();
}

int sl_object_remove(struct sl_objects *objects, const char *name, uint64_t version,
                     uint32_t timeout_ms)
{
    sl_assert(objects != NULL);
    struct sl_objects_message remove = {
        .kind = SL_OBJECTS_REMOVE, .name = name, .version = version};
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    err = err != 0 ? err : sl_objects_ask_and_wait(objects, &remove, timeout_ms, NULL, NULL);
    return err != 0 ? err : sl_objects_succeed();
}

/* List */

struct listing {
    struct sl_object_entry *entries;
    uint32_t count, capacity;
    bool has_more, has_no_memory;
};

static void object_take_page(void *ctx, const struct sl_objects_message *answer)
{
    struct listing *listing = ctx;
    for (uint32_t i = 0; i < answer->list.entry_count; i++) {
        const struct sl_objects_entry *from = &answer->list.entries[i];
        if (!sl_array_make_room(&listing->entries, &listing->capacity, listing->count,
                                sizeof listing->entries[0])) {
            listing->has_no_memory = true;
            return;
        }
        struct sl_object_entry *to = &listing->entries[listing->count++];
        *to = (struct sl_object_entry){.version = from->version,
                                       .bytes = from->bytes,
                                       .time_ms = from->time_ms,
                                       .holders = from->holders,
                                       .part_count = from->part_count,
                                       .origin = (enum sl_object_origin)from->origin};
        (void)snprintf(to->name, sizeof to->name, "%s", from->name);
        (void)snprintf(to->note, sizeof to->note, "%s", from->note);
    }
    listing->has_more = answer->list.more != 0 && answer->list.entry_count > 0;
}

/* Asks for the versions that follow (name, version), page after page. */
static int ask_for_pages(struct sl_objects *objects, const char *prefix, const char *name,
                         uint64_t version, uint32_t timeout_ms, struct listing *listing)
{
    const uint64_t deadline_ns = sl_objects_deadline_ns(objects, timeout_ms);
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_LIST, .list.prefix = prefix, .name = name, .version = version};
    int err = 0;
    do {
        listing->has_more = false;
        err = sl_objects_ask_and_wait(objects, &message, sl_objects_ms_left(objects, deadline_ns),
                                      object_take_page, listing);
        if (err == 0 && listing->has_no_memory) {
            err = sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
        }
        if (listing->count > 0) {
            message.name = listing->entries[listing->count - 1].name;
            message.version = listing->entries[listing->count - 1].version;
        }
    } while (err == 0 && listing->has_more);
    return err;
}

static int list(struct sl_objects *objects, const char *prefix, const char *name, uint64_t version,
                uint32_t timeout_ms, struct sl_object_list **out)
{
    struct listing listing = {0};
    struct sl_object_list *made = calloc(1, sizeof *made);
    const int err = made != NULL
                        ? ask_for_pages(objects, prefix, name, version, timeout_ms, &listing)
                        : sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    if (err != 0) {
        free(listing.entries);
        free(made);
        return err;
    }
    made->entries = listing.entries;
    const bool has_deltas = prefix != NULL && strchr(prefix, '~') != NULL;
    for (uint32_t i = 0; i < listing.count; i++) {
        if (has_deltas || !sl_objects_delta_is_name(listing.entries[i].name)) {
            made->entries[made->count++] = listing.entries[i];
        }
    }
    *out = made;
    return 0;
}

int sl_object_list(struct sl_objects *objects, const char *prefix, uint32_t timeout_ms,
                   struct sl_object_list **out)
{
    sl_assert(objects != NULL);
    sl_assert(out != NULL);
    int err = sl_objects_check_timeout(timeout_ms);
    if (err == 0 && prefix != NULL && prefix[0] != '\0') {
        err = sl_objects_check_name(prefix);
    }
    err = err != 0 ? err : list(objects, prefix, "", 0, timeout_ms, out);
    return err != 0 ? err : sl_objects_succeed();
}

void sl_object_list_free(struct sl_object_list **list)
{
    sl_assert(list != NULL);
    if (*list != NULL) {
        free((*list)->entries);
        free(*list);
    }
    *list = NULL;
}

/* Nodes that have the version; 0 versions: NOT_FOUND. */
static int count_holders(struct sl_objects *objects, const char *name, uint64_t version,
                         uint32_t timeout_ms, uint32_t *holders)
{
    struct sl_object_list *all;
    int err = list(objects, name, version == 0 ? "" : name, version == 0 ? 0 : version - 1,
                   timeout_ms, &all);
    if (err != 0) {
        return err;
    }
    err = SL_ERR_NOT_FOUND;
    for (uint64_t i = 0; i < all->count; i++) { /* the newest is the last of the name */
        const struct sl_object_entry *entry = &all->entries[i];
        if (strcmp(entry->name, name) == 0 && (version == 0 || entry->version == version)) {
            *holders = entry->holders;
            err = 0;
        }
    }
    sl_object_list_free(&all);
    return err == 0 ? 0 : sl_objects_fail(err, "%s@%" PRIu64 ": not found", name, version);
}

struct sleep_call {
    struct sl_objects_call call;
    struct sl_timer timer;
};

static void awake(struct sl_timer *timer, uint64_t now_ns)
{
    sl_objects_answer(&SL_CONTAINER_OF(timer, struct sleep_call, timer)->call, 0, "awake");
}

static void sleep_here(struct sl_objects *node, struct sl_objects_call *call)
{
    sl_reactor_arm(node->reactor, &SL_CONTAINER_OF(call, struct sleep_call, call)->timer, HELD_NS);
}

int sl_object_wait_held(struct sl_objects *objects, const char *name, uint64_t version,
                        uint32_t holders, uint32_t timeout_ms)
{
    sl_assert(objects != NULL);
    const uint64_t deadline_ns = sl_objects_deadline_ns(objects, timeout_ms);
    uint32_t held = 0;
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    while (err == 0) {
        err =
            count_holders(objects, name, version, sl_objects_ms_left(objects, deadline_ns), &held);
        if (err == 0 && held >= holders) {
            return sl_objects_succeed();
        }
        if (err == 0 && sl_clock_now_ns(sl_reactor_clock(objects->reactor)) >= deadline_ns) {
            err = sl_objects_fail(SL_ERR_DEADLINE, "%s: %u of %u holders have it", name, held,
                                  holders);
        }
        struct sleep_call sleep = {.call = {.run = sleep_here}, .timer = {.run = awake}};
        err = err != 0 ? err : sl_objects_call(objects, &sleep.call);
    }
    return err;
}
