#include "objects/node/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/node/node.h"

#define PARKED_NS            (200 * SL_CLOCK_NS_PER_MS)
#define PARKED_MAX           64
#define CHILDREN_MAX         1024 /* of a copy */
/* The same of a node with a limited rate. A plan gives it two. If all that miss their own source
 * for a moment came to it, it would be slow for them and its two, until the end. */
#define CHILDREN_LIMITED_MAX 4
#define GROWN_NS             SL_CLOCK_NS_PER_MS
#define GROWN_BLOCKS         64
#define CHILD_NS             (30 * SL_CLOCK_NS_PER_S) /* from its last WANT */
/* Slots of a withdrawn copy wait so long for children to stop reading; a READ of one that is
 * stopped longer gets other bytes, which it refuses. */
#define GONE_NS              (2 * SL_CLOCK_NS_PER_S)

/* A node that reads a copy. */
struct child {
    struct sl_list_link link; /* of copy->children */
    struct sl_objects *node;
    struct sl_objects_copy *copy; /* NULL: gone, and freed when the HAVE on its way is sent */
    uint64_t id;
    char address[SL_OBJECTS_ADDRESS_BYTES];
    uint32_t next; /* of the copy's ranges */
    bool is_sending;
    uint64_t wanted_ns, rate; /* the rate that it knows */
};

struct parked {
    struct sl_list_link link;
    uint64_t since_ns;
    char address[SL_OBJECTS_ADDRESS_BYTES], name[SL_OBJECTS_NAME_BYTES];
    struct sl_objects_message message;
};

/* Children */

/* Bytes per second for each of them; 0: no limit. */
static uint64_t rate_of_child(const struct sl_objects *node)
{
    const uint32_t count = node->serve.child_count;
    return node->rate_bytes / count + (node->rate_bytes % count > 0 ? 1 : 0);
}

/* After a change of their number: children learn the new rate within 1 ms. */
static void divide_rate(struct sl_objects *node)
{
    if (node->rate_bytes > 0 && !sl_timer_armed(&node->serve.grown)) {
        sl_reactor_arm(node->reactor, &node->serve.grown, GROWN_NS);
    }
}

static void child_free(struct child *child)
{
    sl_list_remove(&child->link);
    if (child->copy != NULL) {
        child->copy = NULL;
        child->node->serve.child_count--;
        divide_rate(child->node);
    }
    if (!child->is_sending) {
        free(child);
    }
}

/* Takes the next ranges that the child does not know. */
static void fill_have(struct child *child, struct sl_objects_message *have)
{
    struct sl_objects_copy *copy = child->copy;
    const uint32_t left = copy->verified.range_count - child->next;
    have->kind = SL_OBJECTS_HAVE;
    have->name = copy->name;
    have->version = copy->version;
    have->part = copy->part;
    have->have.rate = child->rate = rate_of_child(child->node);
    have->have.range_count = left < SL_OBJECTS_RANGES_MAX ? left : SL_OBJECTS_RANGES_MAX;
    for (uint32_t i = 0; i < have->have.range_count; i++) {
        have->have.ranges[i] = copy->verified.ranges[child->next++];
    }
    const uint32_t bytes = copy->info.manifest_bytes;
    if (have->is_answer && have->have.range_count > 0 && bytes <= sizeof have->have.manifest) {
        have->have.manifest_words = (bytes + 7) / 8;
        memcpy(have->have.manifest, copy->places[0].base, bytes); /* it is in one place */
    }
    copy->verified.sent = child->next > copy->verified.sent ? child->next : copy->verified.sent;
}

static void serve_send_more(struct child *child);

/* A copy in the pool is pinned while children read it; the end of that may free it. */
static void serve_pin(struct sl_objects *node, struct sl_objects_copy *copy)
{
    const bool is_read = !sl_list_empty(&copy->children.list);
    if (copy->pooled != NULL && is_read != copy->children.pins) {
        copy->children.pins = is_read;
        (is_read ? sl_objects_pool_pin : sl_objects_pool_unpin)(&node->pool, copy->pooled);
    }
}

static void have_sent(void *ctx, int err, const char *reason)
{
    struct child *child = ctx;
    struct sl_objects *node = child->node;
    struct sl_objects_copy *copy = child->copy;
    child->is_sending = false;
    if (copy == NULL || err != 0) { /* it sends WANT again, if it is alive */
        child_free(child);
        if (copy != NULL) {
            serve_pin(node, copy);
        }
    } else {
        serve_send_more(child);
    }
}

/* One HAVE at a time is on its way to a child. */
static void serve_send_more(struct child *child)
{
    if (child->is_sending || child->copy->is_withdrawn ||
        (child->next == child->copy->verified.range_count &&
         child->rate == rate_of_child(child->node))) {
        return;
    }
    struct sl_objects_message have = {0};
    fill_have(child, &have);
    child->is_sending = true;
    sl_objects_link_send(child->node->link, child->address, &have, have_sent, child);
}

static struct child *find_child(struct sl_objects_copy *copy, uint64_t id)
{
    SL_LIST_EACH (struct child, child, link, &copy->children.list) {
        if (child->id == id) {
            return child;
        }
    }
    return NULL;
}

/* Returns how many are left. */
static uint32_t serve_forget_silent(struct sl_objects_copy *copy, uint64_t now_ns)
{
    const bool is_late =
        copy->is_withdrawn && copy->pooled != NULL && now_ns - copy->withdrawn_ns > GONE_NS;
    uint32_t count = 0;
    SL_LIST_EACH (struct child, child, link, &copy->children.list) {
        if (is_late || now_ns - child->wanted_ns > CHILD_NS) {
            child_free(child);
        } else {
            count++;
        }
    }
    return count;
}

void sl_objects_serve_look(struct sl_objects *node)
{
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &node->copies) {
        (void)serve_forget_silent(copy, sl_reactor_now_ns(node->reactor));
        serve_pin(node, copy);
    }
}

/* WANT */

/* A repeated WANT begins anew: its answer lists the copy's ranges from the first one on. */
static void accept(struct sl_objects *node, struct sl_objects_copy *copy, const char *address,
                   const struct sl_objects_message *want)
{
    const uint64_t now_ns = sl_reactor_now_ns(node->reactor);
    struct child *child = find_child(copy, want->node);
    if (child != NULL) {
        child_free(child);
    }
    const uint32_t most = node->rate_bytes > 0 ? CHILDREN_LIMITED_MAX : CHILDREN_MAX;
    child = serve_forget_silent(copy, now_ns) < most ? calloc(1, sizeof *child) : NULL;
    if (child == NULL) {
        sl_objects_link_refuse(node->link, address, want, SL_ERR_AGAIN,
                               "too many processes fetch the version from here");
        return;
    }
    child->node = node;
    child->copy = copy;
    child->id = want->node;
    child->wanted_ns = now_ns;
    (void)snprintf(child->address, sizeof child->address, "%s", address);
    sl_list_append(&copy->children.list, &child->link);
    serve_pin(node, copy);
    node->serve.child_count++;
    divide_rate(node);
    struct sl_objects_message answer = {.is_answer = true, .request = want->request};
    fill_have(child, &answer);
    answer.kind = want->kind;
    child->is_sending = true;
    sl_objects_link_send(node->link, address, &answer, have_sent, child);
}

static bool serve_is_wanted(const struct sl_objects_copy *copy,
                            const struct sl_objects_message *want)
{
    return sl_hash_128_equal(copy->info.digest, want->digest);
}

static void park(struct sl_objects *node, const char *address,
                 const struct sl_objects_message *want)
{
    struct sl_objects_serve *serve = &node->serve;
    struct parked *parked = serve->parked_count < PARKED_MAX ? calloc(1, sizeof *parked) : NULL;
    if (parked == NULL) {
        sl_objects_link_refuse(node->link, address, want, SL_ERR_AGAIN,
                               "too many wait for versions to come");
        return;
    }
    parked->since_ns = sl_reactor_now_ns(node->reactor);
    (void)snprintf(parked->address, sizeof parked->address, "%s", address);
    (void)snprintf(parked->name, sizeof parked->name, "%s", want->name);
    parked->message = *want;
    parked->message.name = parked->name;
    if (serve->parked_count++ == 0) {
        sl_reactor_arm(node->reactor, &serve->parked_late, PARKED_NS);
    }
    sl_list_append(&serve->parked, &parked->link);
}

static void unpark(struct sl_objects_serve *serve, struct parked *parked)
{
    sl_list_remove(&parked->link);
    serve->parked_count--;
    free(parked);
}

void sl_objects_serve_want(struct sl_objects *node, const char *address,
                           const struct sl_objects_message *message)
{
    struct sl_objects_copy *copy = NULL;
    bool has_other = false;
    /* A keeper may store another one just now. */
    SL_LIST_EACH (struct sl_objects_copy, each, link, &node->copies) {
        if (!each->is_withdrawn && each->part == message->part &&
            sl_objects_copy_is_of(each, message->name, message->version)) {
            copy = serve_is_wanted(each, message) ? each : copy;
            has_other |= !serve_is_wanted(each, message);
        }
    }
    if (copy == NULL && !has_other) {
        park(node, address, message);
    } else if (copy == NULL) {
        sl_objects_link_refuse(node->link, address, message, SL_ERR_EXISTS,
                               "this version has another digest here");
    } else {
        accept(node, copy, address, message);
    }
}

void sl_objects_serve_done(struct sl_objects *node, const struct sl_objects_message *message)
{
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &node->copies) { /* withdrawn ones too */
        struct child *child = copy->part == message->part &&
                                      sl_objects_copy_is_of(copy, message->name, message->version)
                                  ? find_child(copy, message->node)
                                  : NULL;
        if (child != NULL) {
            child_free(child);
            serve_pin(node, copy);
        }
    }
}

void sl_objects_serve_add(struct sl_objects *node, struct sl_objects_copy *copy)
{
    copy->uses++;
    sl_list_append(&node->copies, &copy->link);
    SL_LIST_EACH (struct parked, parked, link, &node->serve.parked) {
        const struct sl_objects_message *want = &parked->message;
        if (want->version == copy->version && want->part == copy->part &&
            strcmp(want->name, copy->name) == 0 && serve_is_wanted(copy, want)) {
            accept(node, copy, parked->address, want);
            unpark(&node->serve, parked);
        }
    }
}

static void parked_late(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_serve *serve = SL_CONTAINER_OF(timer, struct sl_objects_serve, parked_late);
    struct sl_objects *node = SL_CONTAINER_OF(serve, struct sl_objects, serve);
    SL_LIST_EACH (struct parked, parked, link, &serve->parked) {
        if (now_ns - parked->since_ns < PARKED_NS) {
            sl_reactor_arm(node->reactor, timer, PARKED_NS - (now_ns - parked->since_ns));
            return;
        }
        sl_objects_link_refuse(node->link, parked->address, &parked->message, SL_ERR_NOT_FOUND,
                               "this node does not have the version");
        unpark(serve, parked);
    }
}

/* Copies that grow, and end */

static void send_grown(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_serve *serve = SL_CONTAINER_OF(timer, struct sl_objects_serve, grown);
    struct sl_objects *node = SL_CONTAINER_OF(serve, struct sl_objects, serve);
    serve->grown_blocks = 0;
    SL_LIST_EACH (const struct sl_objects_copy, copy, link, &node->copies) {
        SL_LIST_EACH (struct child, child, link, &copy->children.list) {
            serve_send_more(child);
        }
    }
}

void sl_objects_serve_grown(struct sl_objects *node)
{
    struct sl_objects_serve *serve = &node->serve;
    if (++serve->grown_blocks >= GROWN_BLOCKS) {
        sl_reactor_disarm(node->reactor, &serve->grown);
        send_grown(&serve->grown, sl_reactor_now_ns(node->reactor));
    } else if (!sl_timer_armed(&serve->grown)) {
        sl_reactor_arm(node->reactor, &serve->grown, GROWN_NS);
    }
}

void sl_objects_serve_gone(struct sl_objects *node, struct sl_objects_copy *copy,
                           const char *reason)
{
    struct sl_objects_message gone = {.kind = SL_OBJECTS_GONE,
                                      .name = copy->name,
                                      .version = copy->version,
                                      .part = copy->part,
                                      .text = reason};
    SL_LIST_EACH (struct child, child, link, &copy->children.list) {
        sl_objects_link_send(node->link, child->address, &gone, NULL, NULL);
    }
}

bool sl_objects_serve_is_ending(const struct sl_objects *node)
{
    SL_LIST_EACH (const struct sl_objects_copy, copy, link, &node->copies) {
        if (copy->is_withdrawn && copy->children.pins) {
            return true;
        }
    }
    return false;
}

void sl_objects_serve_forget(struct sl_objects *node, struct sl_objects_copy *copy)
{
    SL_LIST_EACH (struct child, child, link, &copy->children.list) {
        child_free(child);
    }
    serve_pin(node, copy);
}

void sl_objects_serve_init(struct sl_objects *node)
{
    struct sl_objects_serve *serve = &node->serve;
    sl_list_init(&serve->parked);
    serve->parked_late.run = parked_late;
    serve->grown.run = send_grown;
}

void sl_objects_serve_fini(struct sl_objects *node)
{
    struct sl_objects_serve *serve = &node->serve;
    SL_LIST_EACH (struct parked, parked, link, &serve->parked) {
        unpark(serve, parked);
    }
    sl_reactor_disarm(node->reactor, &serve->parked_late);
    sl_reactor_disarm(node->reactor, &serve->grown);
}
