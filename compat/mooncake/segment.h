/* Segments of an engine: numbers of names, and the connection to each peer, which is closed when
 * neither its segment nor a batch uses it. Thread rules: base.h. */
#ifndef SL_COMPAT_MOONCAKE_SEGMENT_H
#define SL_COMPAT_MOONCAKE_SEGMENT_H

#include "compat/mooncake/base.h"

/* One incarnation of a peer. */
struct sl_mooncake_peer {
    struct sl_transfer_segment *segment;
    uint32_t uses; /* under the engine's lock */
};

/* Writes "host:port" of a name, which may lack the port: that is `port`, NULL: 12001, the port of
 * Mooncake's handshake. False, and a log line: the name is too long or empty. */
bool sl_mooncake_segment_name(const char *name, const char *port, char out[SL_TRANSFER_NAME_BYTES]);

/* One use more of the segment's peer, under the engine's lock. NULL: there is no such segment, or
 * it is closed. LOCAL_SEGMENT must be open. */
struct sl_mooncake_peer *sl_mooncake_segment_use(struct sl_mooncake_engine *engine,
                                                 segment_id_t id);

/* Opens LOCAL_SEGMENT, if it is this one. */
void sl_mooncake_segment_open_local(struct sl_mooncake_engine *engine, segment_id_t id);

/* One use less; the last one closes it, which may wait 2 s. NULL is nothing. Without the lock. */
void sl_mooncake_segment_release(struct sl_mooncake_engine *engine, struct sl_mooncake_peer *peer);

/* One use less, when the engine's struct sl_transfer is gone. */
void sl_mooncake_segment_forget(struct sl_mooncake_peer *peer);

/* The engine's struct sl_transfer is gone. */
void sl_mooncake_segment_free_all(struct sl_mooncake_engine *engine);

#endif
