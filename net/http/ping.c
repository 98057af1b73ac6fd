#include "net/http/ping.h"

#include <jansson.h>

#include "core/assert.h"
#include "core/clock.h"
#include "reactor/mailbox.h"

static uint64_t ping_now(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

static double ping_seconds(uint64_t ns)
{
    return (double)ns / (double)SL_CLOCK_NS_PER_S;
}

static void close_lane(struct sl_mailbox_lane **lane)
{
    if (*lane != NULL) {
        sl_mailbox_lane_close(lane);
    }
}

int sl_ping_open(struct sl_ping *ping, struct sl_reactor *reactor, struct sl_mailbox *answers)
{
    ping->reactor = reactor;
    int err = sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &ping->to);
    err = err != 0 ? err : sl_mailbox_lane_open(answers, &ping->from);
    if (err != 0) {
        sl_ping_close(ping);
    }
    return err;
}

void sl_ping_close(struct sl_ping *ping)
{
    close_lane(&ping->to);
    close_lane(&ping->from);
}

/* On the observer's thread. */
static void ping_on_answer(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_ping *ping = ctx;
    ping->is_pending = false;
    ping->answered_ns = ping_now();
    if (ping->answered != NULL) {
        ping->answered(ping->ctx);
    }
}

/* On the reactor. */
static void on_ping(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_ping *ping = ctx;
    if (ping->visit != NULL) {
        ping->visit(ping->ctx);
    }
    const int err =
        sl_mailbox_post(ping->from, (struct sl_mail){.run = ping_on_answer, .ctx = ping});
    sl_assert(err == 0); /* one at a time */
}

static void measure(struct sl_ping *ping, uint64_t now_ns)
{
    const uint64_t busy_ns = ping->cells != NULL ? sl_cell_get(&ping->cells->busy_ns) : 0;
    if (ping->busy_at_ns != 0 && now_ns > ping->busy_at_ns) {
        ping->busy = (double)(busy_ns - ping->busy_ns) / (double)(now_ns - ping->busy_at_ns);
    }
    ping->busy_ns = busy_ns;
    ping->busy_at_ns = now_ns;
}

void sl_ping_send(struct sl_ping *ping, uint64_t now_ns)
{
    measure(ping, now_ns);
    if (!ping->is_pending &&
        sl_mailbox_post(ping->to, (struct sl_mail){.run = on_ping, .ctx = ping}) == 0) {
        ping->is_pending = true;
        ping->sent_ns = now_ns;
    }
}

void sl_ping_reply_health(const struct sl_ping *pings, uint32_t count, struct sl_reply *reply)
{
    const uint64_t now_ns = ping_now();
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_ping *ping = &pings[i];
        if (ping->is_pending && now_ns >= ping->sent_ns + SL_PING_HANGING_NS) {
            sl_reply_error(reply, 503, "reactor %s has not answered for %.1f s",
                           sl_reactor_name(ping->reactor), ping_seconds(now_ns - ping->sent_ns));
            return;
        }
    }
    sl_reply_json(reply, json_pack("{s:s}", "status", "ok"));
}

struct json_t *sl_ping_describe(const struct sl_ping *pings, uint32_t count)
{
    const uint64_t now_ns = ping_now();
    json_t *list = json_array();
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_ping *ping = &pings[i];
        const uint64_t stalls = ping->cells != NULL ? sl_cell_get(&ping->cells->stalls) : 0;
        const double age_s = ping->answered_ns != 0 ? ping_seconds(now_ns - ping->answered_ns) : 0;
        (void)json_array_append_new(list, json_pack("{s:I, s:f, s:I, s:f}", "index", (json_int_t)i,
                                                    "busy", ping->busy, "stalls",
                                                    (json_int_t)stalls, "age_s", age_s));
    }
    return list;
}
