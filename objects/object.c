/* The public functions about versions: withdraw, remove, wait_held, list. Threads of the
 * application. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/call.h"
#include "objects/error.h"
#include "objects/node.h"
#include "objects/withdraw.h"

#define HELD_NS (20 * SL_CLOCK_NS_PER_MS) /* between two questions of wait_held */

int sl_object_withdraw(struct sl_objects *objects, const char *name, uint64_t version,
                       uint32_t timeout_ms)
{
    sl_assert(objects != NULL);
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    err = err != 0 ? err : sl_objects_withdraw_version(objects, name, version, timeout_ms);
    return err != 0 ? err : sl_objects_succeed();
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
    struct sl_object_list *list; /* NULL: out of memory */
    uint64_t capacity;
    bool has_more;
};

static void take_entry(struct listing *listing, const struct sl_objects_entry *from)
{
    struct sl_object_list *list = listing->list;
    if (list->count == listing->capacity) {
        const uint64_t capacity = 2 * listing->capacity;
        list = realloc(list, sizeof *list + capacity * sizeof list->entries[0]);
        if (list == NULL) {
            free(listing->list);
            listing->list = NULL;
            return;
        }
        listing->list = list;
        listing->capacity = capacity;
    }
    struct sl_object_entry *to = &list->entries[list->count++];
    *to = (struct sl_object_entry){.version = from->version,
                                   .bytes = from->bytes,
                                   .time_ms = from->time_ms,
                                   .holders = from->holders,
                                   .part_count = from->part_count,
                                   .origin = (enum sl_object_origin)from->origin};
    (void)snprintf(to->name, sizeof to->name, "%s", from->name);
    (void)snprintf(to->note, sizeof to->note, "%s", from->note);
}

static void take_page(void *ctx, const struct sl_objects_message *answer)
{
    struct listing *listing = ctx;
    for (uint32_t i = 0; listing->list != NULL && i < answer->entry_count; i++) {
        take_entry(listing, &answer->entries[i]);
    }
    listing->has_more = answer->more != 0 && answer->entry_count > 0;
}

/* Versions that follow (name, version), page after page. */
static int list(struct sl_objects *objects, const char *prefix, const char *name, uint64_t version,
                uint32_t timeout_ms, struct sl_object_list **out)
{
    const uint64_t deadline_ns = sl_objects_deadline_ns(objects, timeout_ms);
    struct listing listing = {.capacity = SL_OBJECTS_ENTRIES_MAX, .has_more = true};
    listing.list =
        calloc(1, sizeof *listing.list + listing.capacity * sizeof listing.list->entries[0]);
    int err = 0;
    while (err == 0 && listing.list != NULL && listing.has_more) {
        char after[SL_OBJECTS_NAME_BYTES];
        const uint64_t count = listing.list->count;
        const struct sl_object_entry *last = count > 0 ? &listing.list->entries[count - 1] : NULL;
        (void)snprintf(after, sizeof after, "%s", last != NULL ? last->name : name);
        struct sl_objects_message message = {.kind = SL_OBJECTS_LIST,
                                             .prefix = prefix,
                                             .name = after,
                                             .version = last != NULL ? last->version : version};
        err = sl_objects_ask_and_wait(objects, &message, sl_objects_ms_left(objects, deadline_ns),
                                      take_page, &listing);
    }
    if (err == 0 && listing.list == NULL) {
        err = sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    if (err != 0) {
        free(listing.list);
        return err;
    }
    *out = listing.list;
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
    free(*list);
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
