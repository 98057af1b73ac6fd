/* What travels, line by line, for people: PS_VERBOSE. At level 1 every connection that is made,
 * accepted or closed, at 2 also every frame that is sent or received. Off, it costs one branch that
 * is never taken where transports make their upcalls and take what is sent. */
#ifndef SL_NET_TRACE_H
#define SL_NET_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct sl_conn;
struct sl_frame;
struct sl_transport_frame;

enum { SL_VERBOSE_OFF, SL_VERBOSE_CONNECTIONS, SL_VERBOSE_MESSAGES };

/* Written by sl_trace_set only. */
extern _Atomic uint32_t sl_trace_level;

/* Lines are of the log's level INFO. Any thread: others may be at it, as where one process has
 * servers and a client that comes later. */
void sl_trace_set(uint32_t level);

static inline bool sl_trace_wants(uint32_t level)
{
    return __builtin_expect(atomic_load_explicit(&sl_trace_level, memory_order_relaxed) >= level,
                            0);
}

/* The rest is for the facade. what: "accepted". why: behind it, or "". Owner reactor. */
void sl_trace_connection(const struct sl_conn *conn, const char *what, const char *why);
void sl_trace_received(const struct sl_conn *conn, const struct sl_frame *frame);
void sl_trace_sent(const struct sl_conn *conn, const struct sl_transport_frame *frames,
                   uint32_t count);

#endif
