/* A client's half on one worker reactor: its transports, the memory of what is sent and received,
 * and the links to the shards whose index modulo the number of hubs is its own. Hub 0 also speaks
 * with the coordinator (control.h).
 *
 * Created and destroyed by an application thread, before the first call is posted and after the
 * last was answered; everything else by its reactor. All memory is taken by sl_hub_start. */
#ifndef SL_WORKER_HUB_H
#define SL_WORKER_HUB_H

#include "core/pool.h"
#include "net/outbox.h"
#include "worker/call.h"
#include "worker/link.h"

/* Frames that are built and not yet sent. Long bodies are sent from the steps' memory, so that a
 * frame here is a header and at most a few KiB. */
#define SL_HUB_OUTBOX_BYTES (32U << 20)

/* Long replies that are being received; a link needs at most one at a time. */
#define SL_HUB_BUFFERS_MAX  32

#define SL_HUB_SCHEMES      4 /* of enum sl_endpoint_scheme */

/* The same for all hubs of a client; owned by it. */
struct sl_hub_options {
    /* As sl_transport_find; a simulation has its own. */
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    struct sl_transport_options transport;
    char congestion_control[16]; /* what transport.congestion_control points to; TCP_CA_NAME_MAX */
    struct sl_message_hello hello; /* without purpose and shard */
    struct sl_endpoint coordinator;
    char coordinator_name[SL_LIMIT_ENDPOINT_BYTES + 16]; /* "coordinator (tcp://…)" */
    uint32_t ps_count;                                   /* expected; 0: unknown */
};

struct sl_hub {
    struct sl_reactor *reactor;
    uint32_t index, hub_count;
    const struct sl_hub_options *options;

    struct sl_transport *transports[SL_HUB_SCHEMES];
    struct sl_outbox outbox;
    struct sl_pool buffers; /* of SL_LIMIT_FRAME_PAYLOAD_BYTES each */
    bool has_outbox, has_buffers;
    struct sl_timer retry;

    struct sl_link *links; /* of all hubs, by shard; set before sl_hub_connect is posted */
    uint32_t shard_count;

    struct sl_session *coordinator; /* hub 0 */
    struct sl_call *joining;        /* hub 0: the call that waits for the coordinator's welcome */
    bool coordinator_lost;
    char coordinator_reason[SL_MESSAGE_TEXT_BYTES];

    struct sl_call *closing;
    uint64_t closing_until_ns;
    struct sl_timer closing_timer;

    struct {
        uint64_t requests, replies, failures;
    } stats;
};

/* ---- Run functions of calls */

/* Takes the memory. Errors: NO_MEMORY. */
void sl_hub_start(struct sl_call *call);

/* Connects this hub's links; links and shard_count are set. Errors: as sl_link_open. */
void sl_hub_connect(struct sl_call *call);

/* Opens table call->table_id with call->spec on this hub's shards. */
void sl_hub_table_open(struct sl_call *call);

/* Writes *call->stats. */
void sl_hub_stats(struct sl_call *call);

/* Says goodbye on every connection, waits until all are closed, a second at most, and gives back
 * what sl_hub_start took. No error. */
void sl_hub_close(struct sl_call *call);

/* ---- For links, parts and control */

static inline struct sl_link *sl_hub_link(const struct sl_hub *hub, uint32_t shard)
{
    return &hub->links[shard];
}

/* The transport of a scheme, opened at its first use. Errors: UNSUPPORTED, NO_MEMORY. */
int sl_hub_transport(struct sl_hub *hub, enum sl_endpoint_scheme scheme, struct sl_transport **out);

/* Until the deadline, and at least a millisecond. */
uint64_t sl_hub_time_left(const struct sl_hub *hub, uint64_t deadline_ns);

/* The outbox had no room: pumps every link a little later. */
void sl_hub_retry_later(struct sl_hub *hub);

#endif
