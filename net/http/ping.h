/* Ping is a mail to a reactor, which answers: a reactor that does not has hung. The observer's
 * thread sends one a second to each. */
#ifndef SL_NET_HTTP_PING_H
#define SL_NET_HTTP_PING_H

#include "net/http/reply.h"
#include "reactor/metrics.h"
#include "reactor/reactor.h"

#define SL_PING_HANGING_NS 1000000000ULL /* without an answer */

/* Zeroed before open. Used by the observer's thread. */
struct sl_ping {
    struct sl_reactor *reactor;
    struct sl_mailbox_lane *to, *from; /* to the reactor; back, used by the reactor */
    bool is_pending;
    uint64_t sent_ns, answered_ns;
    /* Set before open; or NULL. */
    const struct sl_reactor_cells *cells;
    void (*visit)(void *ctx);    /* on the reactor: may write what `answered` reads */
    void (*answered)(void *ctx); /* on the observer's thread, later */
    void *ctx;

    uint64_t busy_ns, busy_at_ns; /* at the last send */
    double busy;                  /* share of the time since the send before */
};

/* answers: the mailbox of the observer. Errors: NO_MEMORY, TOO_LARGE. Any thread. */
int sl_ping_open(struct sl_ping *ping, struct sl_reactor *reactor, struct sl_mailbox *answers);

/* Neither the observer nor the reactor runs. No effect on one that is not open. */
void sl_ping_close(struct sl_ping *ping);

/* Sends a ping, unless the reactor has not answered the last one. */
void sl_ping_send(struct sl_ping *ping, uint64_t now_ns);

/* Replies 200, or 503 with the name of a reactor that has hung: /healthz. */
void sl_ping_reply_health(const struct sl_ping *pings, uint32_t count, struct sl_reply *reply);

/* Returns the reactors for struct sl_process_info. */
struct json_t *sl_ping_describe(const struct sl_ping *pings, uint32_t count);

#endif
