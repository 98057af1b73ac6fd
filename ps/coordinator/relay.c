#include "ps/coordinator/relay.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sl_coordinator_relay {
    struct sl_coordinator_relay *next;
    struct sl_coordinator_waiter waiter; /* the sender's request */
    struct sl_coordinator_node from, to;
    struct sl_coordinator_member *receiver; /* it was delivered to this member; NULL: it waits */
    uint64_t token;
    uint32_t head;
    uint8_t *body; /* while it waits; NULL: none */
    uint32_t body_bytes;
};

/* Removes *at from the list. */
static void relay_remove(struct sl_coordinator *coordinator, struct sl_coordinator_relay **at)
{
    struct sl_coordinator_relays *relays = &coordinator->relays;
    struct sl_coordinator_relay *relay = *at;
    *at = relay->next;
    if (relays->last == relay) {
        relays->last = relays->first;
        while (relays->last != NULL && relays->last->next != NULL) {
            relays->last = relays->last->next;
        }
    }
    relays->count--;
    relay->waiter.member->relay.sent--;
    relay->waiter.member->relay.sent_bytes -= relay->body == NULL ? 0 : relay->body_bytes;
    if (relay->receiver != NULL) {
        relay->receiver->relay.received--;
    } else {
        relays->waiting_count--;
    }
    free(relay->body);
    free(relay);
}

static void relay_fail(struct sl_coordinator *coordinator, struct sl_coordinator_relay **at,
                       const char *why)
{
    const struct sl_coordinator_relay *relay = *at;
    sl_coordinator_refuse(coordinator, relay->waiter.member, relay->waiter.request, SL_ERR_CLOSED,
                          "message: %s%s", why,
                          relay->receiver != NULL ? ", and may have handled the message" : "");
    relay_remove(coordinator, at);
}

/* Delivery */

/* Returns the receiver if it can take a message now, else NULL. */
static struct sl_coordinator_member *relay_receiver(const struct sl_coordinator *coordinator,
                                                    struct sl_coordinator_node node)
{
    struct sl_coordinator_member *member = sl_coordinator_node_find(coordinator, node);
    return member != NULL && member->connected && member->relay.is_open &&
                   member->relay.received < SL_COORDINATOR_RELAYS_RECEIVED
               ? member
               : NULL;
}

static void deliver(struct sl_coordinator *coordinator, struct sl_coordinator_relay *relay,
                    struct sl_coordinator_member *receiver, uint8_t *body)
{
    const struct sl_message message = {.kind = SL_MESSAGE_RELAY,
                                       .relay = {.group = relay->from.group,
                                                 .rank = relay->from.rank,
                                                 .head = relay->head,
                                                 .token = relay->token,
                                                 .body = body,
                                                 .body_bytes = relay->body_bytes}};
    relay->receiver = receiver;
    receiver->relay.received++;
    coordinator->relays.waiting_count--;
    sl_coordinator_send(coordinator, receiver, &message);
}

/* Delivers what waits, for the member or, with NULL, for any, in order of arrival. */
static void relay_resume(struct sl_coordinator *coordinator,
                         const struct sl_coordinator_member *member)
{
    struct sl_coordinator_node node = {0};
    if (coordinator->relays.waiting_count == 0 ||
        (member != NULL && !sl_coordinator_node_of(member, &node))) {
        return;
    }
    for (struct sl_coordinator_relay *relay = coordinator->relays.first; relay != NULL;
         relay = relay->next) {
        if (relay->receiver != NULL ||
            (member != NULL && (relay->to.group != node.group || relay->to.rank != node.rank))) {
            continue;
        }
        struct sl_coordinator_member *receiver = relay_receiver(coordinator, relay->to);
        if (receiver != NULL) {
            deliver(coordinator, relay, receiver, relay->body);
            relay->waiter.member->relay.sent_bytes -= relay->body == NULL ? 0 : relay->body_bytes;
            free(relay->body);
            relay->body = NULL;
        }
    }
}

/* Requests */

/* Refuses a message that cannot arrive. */
static bool relay_check(struct sl_coordinator *coordinator,
                        const struct sl_coordinator_member *sender,
                        const struct sl_message *message)
{
    const struct sl_coordinator_node to = {.group = message->relay.group,
                                           .rank = message->relay.rank};
    struct sl_coordinator_node from;
    char why[SL_MESSAGE_TEXT_BYTES] = "";
    int err = SL_ERR_INVALID;
    if (sl_coordinator_is_ps(sender) || !sl_coordinator_node_of(sender, &from)) {
        (void)snprintf(why, sizeof why,
                       "%s is no worker and no client beside a server or the scheduler",
                       sender->name);
    } else if (!sl_coordinator_node_exists(coordinator, to)) {
        (void)snprintf(why, sizeof why, "the job has no %s/%u", sl_coordinator_node_role(to.group),
                       to.rank);
    } else if (sl_coordinator_node_ended(coordinator, to) != SL_COORDINATOR_END_NONE) {
        err = SL_ERR_CLOSED;
        sl_coordinator_node_why(coordinator, to, sl_coordinator_node_ended(coordinator, to), why);
    } else if (sender->relay.sent >= SL_COORDINATOR_RELAYS_SENT ||
               coordinator->relays.count >= SL_COORDINATOR_RELAYS) {
        err = SL_ERR_NO_MEMORY;
        (void)snprintf(why, sizeof why, "%u messages of %s, and %u of all, have no answer yet",
                       sender->relay.sent, sender->name, coordinator->relays.count);
    }
    if (why[0] != '\0') {
        sl_coordinator_refuse(coordinator, sender, message->id, err, "message: %s", why);
    }
    return why[0] == '\0';
}

/* Keeps the body while the message waits. False: no memory. */
static bool keep_body(struct sl_coordinator_relay *relay, const struct sl_message_relay *asked)
{
    struct sl_coordinator_member *sender = relay->waiter.member;
    if (asked->body_bytes == 0) {
        return true;
    }
    if (sender->relay.sent_bytes + asked->body_bytes > SL_COORDINATOR_RELAYS_SENT_BYTES) {
        return false;
    }
    relay->body = malloc(asked->body_bytes);
    if (relay->body != NULL) {
        memcpy(relay->body, asked->body, asked->body_bytes);
        sender->relay.sent_bytes += asked->body_bytes;
    }
    return relay->body != NULL;
}

static void append(struct sl_coordinator_relays *relays, struct sl_coordinator_relay *relay)
{
    relay->token = ++relays->token_last;
    if (relays->last == NULL) {
        relays->first = relay;
    } else {
        relays->last->next = relay;
    }
    relays->last = relay;
    relays->count++;
    relays->waiting_count++;
    relay->waiter.member->relay.sent++;
}

void sl_coordinator_relay_send(struct sl_coordinator *coordinator,
                               struct sl_coordinator_member *sender,
                               const struct sl_message *message, uint64_t now_ns)
{
    const struct sl_message_relay *asked = &message->relay;
    if (!relay_check(coordinator, sender, message)) {
        return;
    }
    struct sl_coordinator_relay *relay = calloc(1, sizeof *relay);
    struct sl_coordinator_member *receiver = NULL;
    if (relay != NULL) {
        (void)sl_coordinator_node_of(sender, &relay->from);
        relay->to = (struct sl_coordinator_node){.group = asked->group, .rank = asked->rank};
        relay->head = asked->head;
        relay->body_bytes = asked->body_bytes;
        sl_coordinator_waiter_init(&relay->waiter, coordinator, sender, message->id,
                                   asked->timeout_ms, now_ns);
        receiver = relay_receiver(coordinator, relay->to);
    }
    if (relay == NULL || (receiver == NULL && !keep_body(relay, asked))) {
        free(relay);
        sl_coordinator_refuse(coordinator, sender, message->id, SL_ERR_NO_MEMORY,
                              "message: no memory, or %u bytes of messages of %s wait already",
                              sender->relay.sent_bytes, sender->name);
        return;
    }
    append(&coordinator->relays, relay);
    if (receiver != NULL) {
        deliver(coordinator, relay, receiver, asked->body);
    }
}

void sl_coordinator_relay_answer(struct sl_coordinator *coordinator,
                                 struct sl_coordinator_member *receiver,
                                 const struct sl_message_relay *answer)
{
    struct sl_coordinator_relay **at = &coordinator->relays.first;
    while (*at != NULL && ((*at)->token != answer->token || (*at)->receiver != receiver)) {
        at = &(*at)->next;
    }
    if (*at == NULL) {
        return; /* it has timed out, or its sender is gone */
    }
    const struct sl_coordinator_waiter *waiter = &(*at)->waiter;
    if (answer->err != 0) {
        sl_coordinator_refuse(coordinator, waiter->member, waiter->request, answer->err,
                              "message: %s has not taken it: %s", receiver->name,
                              sl_err_name(answer->err));
    } else {
        struct sl_message message = {
            .kind = SL_MESSAGE_RELAY_ANSWER, .id = waiter->request, .relay = *answer};
        message.relay.token = 0;
        sl_coordinator_send(coordinator, waiter->member, &message);
    }
    relay_remove(coordinator, at);
    relay_resume(coordinator, receiver);
}

/* Members come and go */

void sl_coordinator_relay_open(struct sl_coordinator *coordinator,
                               struct sl_coordinator_member *receiver)
{
    receiver->relay.is_open = receiver->connected;
    relay_resume(coordinator, receiver);
}

void sl_coordinator_relay_disconnect(struct sl_coordinator *coordinator,
                                     struct sl_coordinator_member *member)
{
    member->relay.is_open = false;
    char why[SL_MESSAGE_TEXT_BYTES];
    (void)snprintf(why, sizeof why, "%s lost its connection", member->name);
    struct sl_coordinator_relay **at = &coordinator->relays.first;
    while (*at != NULL) {
        if ((*at)->waiter.member == member) {
            relay_remove(coordinator, at);
        } else if ((*at)->receiver == member) {
            relay_fail(coordinator, at, why);
        } else {
            at = &(*at)->next;
        }
    }
    relay_resume(coordinator, NULL);
}

void sl_coordinator_relay_lose(struct sl_coordinator *coordinator, struct sl_coordinator_node node,
                               enum sl_coordinator_end end)
{
    char why[SL_MESSAGE_TEXT_BYTES];
    sl_coordinator_node_why(coordinator, node, end, why);
    struct sl_coordinator_relay **at = &coordinator->relays.first;
    while (*at != NULL) {
        if ((*at)->to.group == node.group && (*at)->to.rank == node.rank) {
            relay_fail(coordinator, at, why);
        } else {
            at = &(*at)->next;
        }
    }
}

void sl_coordinator_relay_tick(struct sl_coordinator *coordinator, uint64_t now_ns)
{
    bool has_room = false;
    struct sl_coordinator_relay **at = &coordinator->relays.first;
    while (*at != NULL) {
        struct sl_coordinator_relay *relay = *at;
        struct sl_message_waiting waiting = {0};
        uint32_t total = 0;
        if (sl_coordinator_waiter_is_due(&relay->waiter, now_ns)) {
            sl_coordinator_list_missing(&waiting, &total, sl_coordinator_node_role(relay->to.group),
                                        relay->to.rank);
        }
        if (total > 0 &&
            sl_coordinator_waiter_tick(&relay->waiter, coordinator, "message", &waiting, now_ns)) {
            relay_remove(coordinator, at);
            has_room = true;
        } else {
            at = &relay->next;
        }
    }
    if (has_room) {
        relay_resume(coordinator, NULL);
    }
}

void sl_coordinator_relay_fini(struct sl_coordinator *coordinator)
{
    while (coordinator->relays.first != NULL) {
        relay_remove(coordinator, &coordinator->relays.first);
    }
}
