/* One shard's connection on its worker reactor: the requests that wait for credit, those in flight,
 * and where replies go. A link that breaks fails all that it has, naming the peer and why, and
 * everything that is given to it afterwards. Owner reactor. */
#ifndef SL_WORKER_LINK_H
#define SL_WORKER_LINK_H

#include "core/endpoint.h"
#include "net/control/session.h"
#include "net/credit.h"
#include "worker/inflight.h"
#include "worker/operation.h"

struct sl_call;
struct sl_hub;

enum sl_link_state {
    SL_LINK_OPENING,
    SL_LINK_OPEN,
    SL_LINK_BROKEN, /* disconnect was called; `closed` has not come */
    SL_LINK_CLOSED
};

#define SL_LINK_NAME_BYTES   (SL_LIMIT_ENDPOINT_BYTES + 48)
#define SL_LINK_REASON_BYTES SL_MESSAGE_TEXT_BYTES

struct sl_link {
    struct sl_hub *hub;
    uint32_t shard;                /* in the cluster */
    uint32_t ps_task, local_shard; /* and in its process */
    char peer_name[32];            /* "ps/1 shard 3" */
    char name[SL_LINK_NAME_BYTES]; /* "ps/1 shard 3 (tcp://127.0.0.1:5555)" */
    struct sl_endpoint endpoint;
    enum sl_link_state state;
    char reason[SL_LINK_REASON_BYTES]; /* of the end */
    struct sl_session *session;
    struct sl_call *opening; /* the call that waits for the welcome, or NULL */

    struct sl_credit credit;
    uint32_t payload_bytes_max; /* of one frame, as the peer says */
    uint64_t next_id;
    struct sl_inflight inflight;
    struct sl_request *queue_first, *queue_last;
    struct sl_request *landing; /* its reply is being received into the caller's memory */
    void *buffer;               /* of the hub's: a long reply is being received into it */
};

/* Begins to connect; counted into call->left, and answered when welcomed or failed. */
void sl_link_open(struct sl_link *link, struct sl_call *call);

/* Ends the session, with a goodbye where it is open. No request may be left. */
void sl_link_close(struct sl_link *link);

/* Sends the request, or queues it until there is credit. The link is open. Never fails. */
void sl_link_submit(struct sl_link *link, struct sl_request *request);

/* Takes a queued request back. */
void sl_link_withdraw(struct sl_link *link, struct sl_request *request);

/* Nobody waits for the reply of a request in flight any more: when it comes, it is dropped. */
void sl_link_forget(struct sl_link *link, struct sl_request *request);

/* Disconnects for this reason; what is in flight fails when the connection has closed. */
void sl_link_break(struct sl_link *link, int err, const char *reason);

/* Sends what waits, as far as credit and the outbox allow. */
void sl_link_pump(struct sl_link *link);

#endif
