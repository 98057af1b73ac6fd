#include "ps/coordinator/waiter.h"

#include <stdio.h>

#include "core/clock.h"
#include "core/format.h"
#include "core/log.h"
#include "ps/coordinator/state.h"

/* The error that names the missing tasks must arrive before the client times out by itself. */
#define EARLY_MAX_NS SL_CLOCK_NS_PER_S

void sl_coordinator_waiter_init(struct sl_coordinator_waiter *waiter,
                                const struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member, uint64_t request,
                                uint32_t timeout_ms, uint64_t now_ns)
{
    const uint64_t timeout_ns = timeout_ms * SL_CLOCK_NS_PER_MS;
    const uint64_t early_ns = timeout_ns / 8 < EARLY_MAX_NS ? timeout_ns / 8 : EARLY_MAX_NS;
    *waiter = (struct sl_coordinator_waiter){
        .member = member,
        .request = request,
        .remind_ns = now_ns + coordinator->options.waiting_interval_ns,
        .deadline_ns = timeout_ms == 0 ? SL_CLOCK_NEVER : now_ns + timeout_ns - early_ns,
        .timeout_ms = timeout_ms,
    };
}

bool sl_coordinator_waiter_is_due(const struct sl_coordinator_waiter *waiter, uint64_t now_ns)
{
    return now_ns >= waiter->remind_ns || now_ns >= waiter->deadline_ns;
}

static void fail(const struct sl_coordinator_waiter *waiter, struct sl_coordinator *coordinator,
                 const char *what, const struct sl_message_waiting *waiting)
{
    struct sl_message message = {
        .kind = SL_MESSAGE_ERROR,
        .id = waiter->request,
        .error.err = SL_ERR_DEADLINE,
    };
    char names[sizeof message.error.text - 96]; /* room for the other words */
    sl_coordinator_write_missing(waiting, names, sizeof names);
    (void)snprintf(message.error.text, sizeof message.error.text,
                   "%s: still waiting after %u ms for %s", what, waiter->timeout_ms, names);
    sl_log_warn("%s timed out: %s", waiter->member->name, message.error.text);
    sl_coordinator_send(coordinator, waiter->member, &message);
}

bool sl_coordinator_waiter_tick(struct sl_coordinator_waiter *waiter,
                                struct sl_coordinator *coordinator, const char *what,
                                const struct sl_message_waiting *waiting, uint64_t now_ns)
{
    if (now_ns >= waiter->deadline_ns) {
        fail(waiter, coordinator, what, waiting);
        return true;
    }
    if (now_ns >= waiter->remind_ns) {
        waiter->remind_ns = now_ns + coordinator->options.waiting_interval_ns;
        const struct sl_message message = {
            .kind = SL_MESSAGE_WAITING,
            .id = waiter->request,
            .waiting = *waiting,
        };
        sl_coordinator_send(coordinator, waiter->member, &message);
    }
    return false;
}

void sl_coordinator_list_missing(struct sl_message_waiting *waiting, uint32_t *total,
                                 const char *role, uint32_t task_index)
{
    const uint32_t last = SL_MESSAGE_MISSING_COUNT - 1;
    (*total)++;
    if (*total <= SL_MESSAGE_MISSING_COUNT) {
        waiting->missing_count = *total;
        (void)snprintf(waiting->missing[*total - 1], sizeof waiting->missing[0], "%s/%u", role,
                       task_index);
    } else {
        (void)snprintf(waiting->missing[last], sizeof waiting->missing[0], "%u more",
                       *total - last);
    }
}

void sl_coordinator_write_missing(const struct sl_message_waiting *waiting, char *text,
                                  size_t bytes)
{
    text[0] = '\0';
    for (uint32_t i = 0; i < waiting->missing_count; i++) {
        (void)sl_format_add(text, bytes, ", ", "%s", waiting->missing[i]);
    }
}
