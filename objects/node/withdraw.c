#include "objects/node/withdraw.h"

#include <inttypes.h>
#include <stdio.h>

#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/fetch.h"
#include "objects/node/node.h"

#define POLL_NS (2 * SL_CLOCK_NS_PER_MS)

void sl_objects_withdraw(struct sl_objects *node, struct sl_objects_copy *copy, const char *reason)
{
    if (!copy->is_withdrawn) {
        copy->is_withdrawn = true;
        copy->withdrawn_ns = sl_reactor_now_ns(node->reactor);
        sl_objects_serve_gone(node, copy, reason);
        sl_objects_report_none(node, copy->name, copy->version, copy->part);
    }
    if (copy->fetch != NULL) {
        sl_objects_fetch_cancel(copy->fetch, reason);
    }
    if (copy->pooled != NULL) {
        sl_objects_pool_retire(&node->pool, copy->pooled);
    }
}

/* Copies that leave the node's list, until their memory is unregistered. */
struct drop_call {
    struct sl_objects_call call;
    const char *name;
    uint64_t version, deadline_ns;
    struct sl_timer timer; /* of the next look whether they are at rest */
    struct sl_list copies;
    const struct sl_objects_copy *only; /* NULL: all that are committed */
    bool are_failed;                    /* only copies that are withdrawn: of a get that failed */
    bool has_failed;                    /* some of their memory is still registered */
    bool has_found;
};

static bool is_dropped(const struct drop_call *drop, const struct sl_objects_copy *copy)
{
    return sl_objects_copy_is_of(copy, drop->name, drop->version) &&
           (drop->only != NULL ? drop->only == copy : !copy->is_uncommitted) &&
           (copy->pooled != NULL ? !drop->are_failed && !copy->is_withdrawn
                                 : copy->is_withdrawn || !drop->are_failed);
}

static void look_for_dropped(struct sl_timer *timer, uint64_t now_ns)
{
    struct drop_call *drop = SL_CONTAINER_OF(timer, struct drop_call, timer);
    struct sl_objects *node = drop->call.node;
    bool is_busy = false;
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &node->copies) {
        if (is_dropped(drop, copy)) {
            drop->has_found = true;
            is_busy |= copy->fetch != NULL && copy->pooled == NULL; /* for at most 100 ms */
            sl_objects_withdraw(node, copy, "it was withdrawn");
        }
    }
    if (is_busy && now_ns < drop->deadline_ns) {
        sl_reactor_arm(node->reactor, timer, POLL_NS);
        return;
    }
    if (is_busy) {
        sl_objects_answer(&drop->call, SL_ERR_DEADLINE, "%s@%" PRIu64 ": this node still reads it",
                          drop->name, drop->version);
        return;
    }
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &node->copies) {
        if (is_dropped(drop, copy)) {
            sl_objects_serve_forget(node, copy);
            sl_list_append(&drop->copies, &copy->link);
        }
    }
    sl_objects_answer(&drop->call, drop->has_found ? 0 : SL_ERR_NOT_FOUND,
                      "%s@%" PRIu64 ": this node has no copy", drop->name, drop->version);
}

static void drop_here(struct sl_objects *node, struct sl_objects_call *call)
{
    look_for_dropped(&SL_CONTAINER_OF(call, struct drop_call, call)->timer,
                     sl_reactor_now_ns(node->reactor));
}

/* After a failure they go back to the list, for another try: one copy may keep the memory of all
 * parts of its version. */
static void dropped_here(struct sl_objects *node, struct sl_objects_call *call)
{
    struct drop_call *drop = SL_CONTAINER_OF(call, struct drop_call, call);
    SL_LIST_TAKE (struct sl_objects_copy, copy, link, &drop->copies) {
        if (drop->has_failed) {
            sl_list_append(&node->copies, &copy->link);
        } else {
            sl_objects_copy_put(copy);
        }
    }
    sl_objects_answer(call, 0, "dropped");
}

static int drop(struct sl_objects *node, const struct drop_call *what, uint32_t timeout_ms)
{
    struct drop_call drop = *what;
    const uint64_t deadline_ns = sl_objects_deadline_ns(node, timeout_ms);
    drop.call.run = drop_here;
    drop.timer.run = look_for_dropped;
    drop.deadline_ns = deadline_ns;
    sl_list_init(&drop.copies);
    int err = sl_objects_call(node, &drop.call);
    if (err != 0) {
        return err;
    }
    SL_LIST_EACH (struct sl_objects_copy, copy, link, &drop.copies) {
        const int failed = sl_objects_memory_unregister(node->transfer, &copy->memory,
                                                        sl_objects_ms_left(node, deadline_ns));
        err = err != 0 ? err : failed;
    }
    const struct sl_reason saved = sl_objects_error_save();
    drop.has_failed = err != 0;
    drop.call.run = dropped_here;
    (void)sl_objects_call(node, &drop.call);
    sl_objects_error_restore(&saved);
    return err;
}

int sl_objects_withdraw_version(struct sl_objects *node, const char *name, uint64_t version,
                                uint32_t timeout_ms)
{
    return drop(node, &(struct drop_call){.name = name, .version = version}, timeout_ms);
}

int sl_objects_withdraw_copy(struct sl_objects *node, const struct sl_objects_copy *copy,
                             uint32_t timeout_ms)
{
    return drop(node,
                &(struct drop_call){.name = copy->name, .version = copy->version, .only = copy},
                timeout_ms);
}

void sl_objects_withdraw_failed(struct sl_objects *node, const char *name, uint64_t version,
                                uint32_t timeout_ms)
{
    (void)drop(node, &(struct drop_call){.name = name, .version = version, .are_failed = true},
               timeout_ms);
}
