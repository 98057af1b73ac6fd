#include "objects/follow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/node.h"

static struct sl_objects_follow *find(const struct sl_objects *node, const char *name)
{
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_FOLLOWS; i++) {
        struct sl_objects_follow *follow = node->follows.items[i];
        if (follow != NULL && strcmp(follow->name, name) == 0) {
            return follow;
        }
    }
    return NULL;
}

static void notify(struct sl_objects_follow *follow, int err, const char *reason)
{
    SL_LIST_FOREACH (link, &follow->waits) {
        struct sl_objects_follow_wait *wait =
            SL_CONTAINER_OF(link, struct sl_objects_follow_wait, link);
        wait->changed(wait, err, reason);
    }
}

/* After NEWS the catalogue counts this node as a fetcher of the version. The node fetches only when
 * the application asks for a get. A version that it publishes itself is not declined. */
static void decline(struct sl_objects *node, const struct sl_objects_message *news)
{
    const struct sl_objects_record *record = &news->record;
    if (record->parts[news->part].holder != node->id &&
        sl_objects_copy_find(node, record->name, record->version, news->part) == NULL) {
        sl_objects_report_none(node, record->name, record->version, news->part);
    }
}

void sl_objects_follow_news(struct sl_objects *node, const struct sl_objects_message *news)
{
    const struct sl_objects_record *record = &news->record;
    if (news->record_count == 0) {
        return;
    }
    decline(node, news);
    struct sl_objects_follow *follow = find(node, record->name);
    if (follow != NULL && record->version > sl_objects_board_announced(follow->entry)) {
        const uint64_t now_ns = sl_reactor_now_ns(node->reactor);
        const uint64_t age_ns = news->age_ms * SL_CLOCK_NS_PER_MS;
        sl_objects_board_announce(follow->entry, follow->announced_count++, record->version,
                                  age_ns < now_ns ? now_ns - age_ns : 0);
        notify(follow, 0, "");
    }
}

/* FOLLOW */

static void followed(struct sl_objects_ask *ask, const struct sl_objects_message *answer, int err,
                     const char *reason)
{
    struct sl_objects_follow *follow = SL_CONTAINER_OF(ask, struct sl_objects_follow, ask);
    if (err == 0) {
        follow->is_known = true;
        sl_objects_follow_news(follow->node, answer);
    }
    follow->uses++; /* its users may put it */
    notify(follow, err, reason);
    sl_objects_follow_put(follow);
}

static void send(struct sl_objects_follow *follow)
{
    follow->message = (struct sl_objects_message){.kind = SL_OBJECTS_FOLLOW, .name = follow->name};
    follow->ask.message = &follow->message;
    follow->ask.answered = followed;
    sl_objects_ask(follow->node, &follow->ask, SL_CLOCK_NEVER);
}

void sl_objects_follow_again(struct sl_objects *node)
{
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_FOLLOWS; i++) {
        struct sl_objects_follow *follow = node->follows.items[i];
        if (follow != NULL) {
            sl_objects_ask_cancel(&follow->ask);
            send(follow);
        }
    }
}

/* Uses */

int sl_objects_follow_open_board(struct sl_objects *node)
{
    struct sl_shared *board = &node->follows.board;
    return board->base != NULL
               ? 0
               : sl_shared_create("starling-objects-board", sizeof(struct sl_objects_board),
                                  SL_SHARED_READ, board);
}

static int add(struct sl_objects *node, const char *name, struct sl_objects_follow **out)
{
    struct sl_objects_follows *follows = &node->follows;
    uint32_t index = 0;
    while (index < SL_LIMIT_OBJECTS_FOLLOWS && follows->items[index] != NULL) {
        index++;
    }
    if (index == SL_LIMIT_OBJECTS_FOLLOWS) {
        return SL_ERR_TOO_LARGE;
    }
    struct sl_objects_follow *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->node = node;
    made->index = index;
    made->entry = &((struct sl_objects_board *)(void *)follows->board.base)->entries[index];
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    sl_list_init(&made->waits);
    follows->items[index] = made;
    send(made);
    *out = made;
    return 0;
}

int sl_objects_follow_get(struct sl_objects *node, const char *name, struct sl_objects_follow **out)
{
    int err = sl_objects_follow_open_board(node);
    struct sl_objects_follow *follow = err == 0 ? find(node, name) : NULL;
    if (err == 0 && follow == NULL) {
        err = add(node, name, &follow);
    }
    if (err == 0) {
        follow->uses++;
        *out = follow;
    }
    return err;
}

void sl_objects_follow_put(struct sl_objects_follow *follow)
{
    struct sl_objects *node = follow->node;
    sl_assert(follow->uses > 0);
    if (--follow->uses == 0) {
        sl_assert(sl_list_empty(&follow->waits));
        sl_objects_ask_cancel(&follow->ask);
        sl_objects_report_none(node, follow->name, 0, 0);
        sl_objects_board_clear(follow->entry);
        node->follows.items[follow->index] = NULL;
        free(follow);
    }
}

void sl_objects_follow_fini(struct sl_objects *node)
{
    sl_shared_destroy(&node->follows.board);
}
