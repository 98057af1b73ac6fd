/* Logs connections and frames for debugging (PS_VERBOSE). Level 1: every connection made, accepted
 * or closed; level 2: also every frame sent or received. Off, it costs one predictable branch per
 * upcall and per send. */
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

/* Lines have log level INFO. Any thread, also while others trace: one process may have servers and
 * a later client. */
void sl_trace_set(uint32_t level);

static inline bool sl_trace_wants(uint32_t level)
{
    return __builtin_expect(atomic_load_explicit(&sl_trace_level, memory_order_relaxed) >= level,
                            0);
}

/* For the transport functions. what: such as "accepted"; why: the cause, or "". Owner reactor. */
void sl_trace_connection(const struct sl_conn *conn, const char *what, const char *why);
void sl_trace_received(const struct sl_conn *conn, const struct sl_frame *frame);
void sl_trace_sent(const struct sl_conn *conn, const struct sl_transport_frame *frames,
                   uint32_t count);

#endif
