/* Requests, from the frame to the reply. Owner reactor. */
#ifndef SL_PS_SERVER_REQUEST_H
#define SL_PS_SERVER_REQUEST_H

#include "core/assert.h"
#include "ps/server/slow_requests.h"
#include "ps/server/state.h"

/* Speed of a pull of a dense array, which only copies, relative to other work of the same cost. */
#define SL_SERVER_DENSE_PULL 4

enum sl_server_request_stage {
    SL_SERVER_REQUEST_WAITS,   /* for its first slice */
    SL_SERVER_REQUEST_STARTED, /* slices have run; the reply is made in memory */
    SL_SERVER_REQUEST_STREAMS, /* the first chunk of the reply was sent (reply_chunks.h) */
    SL_SERVER_REQUEST_DONE,    /* the reply is complete and waits for room, or for the backup */
};

/* A request that was not answered in the upcall that received it. Until it is answered, exactly one
 * list holds it: its channel's queue, or the server's parked or resumed requests. On a backup
 * also an entry of the primary's log: id is its number; session and channel are NULL. */
struct sl_server_request {
    struct sl_list_link link;
    struct sl_list *list; /* NULL: being sent, or held by the log */
    struct sl_server *server;
    /* NULL: ended (a push in progress completes), or held by the log */
    struct sl_server_session *session;
    /* Channel of the session. NULL: closed; the request has begun to write and continues as the
     * session's orphan. */
    struct sl_server_channel *channel;
    struct sl_timer deadline;
    struct sl_server_timing timing;
    uint64_t id, half_ns; /* half_ns: when half of its time is over */
    uint64_t credit_bytes;
    uint8_t *payload;
    uint32_t payload_bytes;
    uint8_t *reply;        /* made over several turns */
    uint8_t *reply_buffer; /* direct reply buffer, used instead while connected; NULL: none */
    enum sl_server_request_stage stage;
    bool overtaken;   /* was parked or orphaned: later requests may have run first */
    bool is_long;     /* the payload arrived in a sink */
    bool is_runnable; /* waits only for its turn */
    struct sl_shard_request work;
    uint32_t effect_first; /* earlier sections are in the log, or in the backup's snapshot */
    uint32_t effect_end;   /* of the sections that took effect before the session ended */
    /* Sections in the log; and where the others begin in the payload, with room for a prefix, which
     * lies at the payload's start until then. */
    uint32_t logged_sections, logged_bytes;
};

/* Where the reply to a request goes. */
struct sl_server_reply_to {
    struct sl_server_channel *channel;
    uint64_t id;           /* of the request, without the shard */
    uint64_t credit_bytes; /* that the reply returns */
    uint8_t *buffer;       /* direct reply buffer of the client; NULL: none */
};

/* A received request before it runs or is queued. */
struct sl_server_incoming {
    struct sl_server_reply_to to;
    const struct sl_transport_message *message;
    const uint8_t *payload; /* in memory that no peer can write */
    uint32_t payload_bytes;
    uint32_t values_bytes;
    const uint8_t *values; /* in the sender's memory or copied; NULL: part of the payload */
};

enum sl_server_outcome {
    SL_SERVER_ANSWERED,  /* the request was removed from its list */
    SL_SERVER_CONTINUES, /* run it again; no progress if nothing was spent */
    SL_SERVER_WAITS,     /* for clocks, or for its handler */
};

/* Lists of requests */

static inline struct sl_server_request *sl_server_request_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_server_request, link);
}

/* NULL: the list is empty. */
static inline struct sl_server_request *sl_server_request_first(const struct sl_list *list)
{
    return sl_list_empty(list) ? NULL : sl_server_request_of(list->head.next);
}

/* The request must be in no list. */
static inline void sl_server_request_append(struct sl_list *list, struct sl_server_request *request)
{
    sl_assert(request->list == NULL);
    request->list = list;
    sl_list_append(list, &request->link);
}

static inline void sl_server_request_unlist(struct sl_server_request *request)
{
    sl_list_remove(&request->link);
    request->list = NULL;
}

/* Counts a request that begins to run, unless it is counted as answered at once. */
static inline void sl_server_request_begun(struct sl_server *server,
                                           const struct sl_shard_request *work)
{
    server->turn.has_requests = true;
    sl_cell_add(&server->cells.used->requests[sl_request_kind_of(work->main.op)], 1);
}

/* The request begins another phase. */
static inline void sl_server_request_enter(struct sl_server_request *request,
                                           enum sl_request_phase phase)
{
    sl_server_timing_enter(&request->timing, phase, sl_server_now_ns(request->server));
}

/* Properties */

/* Returns true for a request that its handler has kept, or that waits for one which it has kept. */
static inline bool sl_server_request_is_kept(const struct sl_server_request *request)
{
    return sl_flags_has(request->work.flags, SL_SHARD_KEPT);
}

/* Returns true for a write that was not applied before. */
static inline bool sl_server_request_writes(const struct sl_shard_request *work)
{
    return sl_flags_has(work->flags, SL_SHARD_WRITES) && !sl_shard_skips_writes(work);
}

static inline bool sl_server_request_started(const struct sl_server_request *request)
{
    return request->stage != SL_SERVER_REQUEST_WAITS;
}

/* Returns true when the request waits for room in the log. */
static inline bool sl_server_request_waits_for_log(const struct sl_server_request *request)
{
    return request->server->role.log_room != SL_SERVER_LOG_HAS_ROOM &&
           !sl_server_request_started(request) && sl_server_request_writes(&request->work);
}

/* Returns how many times faster the request's section runs than others of its cost: dense and KV
 * pulls only copy. */
static inline uint32_t sl_server_request_speed(const struct sl_server_request *request)
{
    const struct sl_shard_request *work = &request->work;
    const uint8_t op = work->view.section.op;
    bool copies = sl_flags_has(work->flags, SL_SHARD_IN_SECTION) &&
                  (op == SL_REQUEST_DENSE_PULL || op == SL_REQUEST_KV_PULL);
    return copies ? SL_SERVER_DENSE_PULL : 1;
}

/* Returns the client that sends requests on the connection. */
static inline struct sl_shard_client sl_server_request_client(const struct sl_server_conn *conn)
{
    return (struct sl_shard_client){
        .has_clock = conn->greeting.hello.role == SL_MESSAGE_ROLE_WORKER,
        .worker = conn->greeting.hello.task_index,
        .client = conn->greeting.hello.client_id,
    };
}

/* Returns the header of a reply, which returns the request's credit to the client. */
static inline struct sl_frame sl_server_reply_header(struct sl_server_channel *channel, uint64_t id,
                                                     uint64_t credit_bytes, uint32_t payload_bytes)
{
    sl_credit_grant(&channel->conn->credit, credit_bytes, 1);
    return (struct sl_frame){
        .payload_bytes = payload_bytes,
        .type = SL_FRAME_REPLY,
        .request_id = sl_frame_id(channel->server->options.shard.index, id),
        .budget_us = sl_shard_clock_min(channel->server->shard),
        .credit_bytes = (uint32_t)credit_bytes,
        .credit_requests = 1,
        .flags = channel->conn->greeting.hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
}

/* Path of a request */

/* Handles a request frame. */
void sl_server_request_arrive(struct sl_server_channel *channel,
                              const struct sl_transport_message *message);

/* Runs or queues a request whose credit is spent. */
void sl_server_request_serve(struct sl_server_incoming *incoming, struct sl_shard_request *work);

/* Runs the request if it fits into a cost of `keys`, else a slice of it. *spent: the cost. */
enum sl_server_outcome sl_server_request_run(struct sl_server_request *request, uint32_t keys,
                                             uint32_t *spent);

/* Answers with an error, which the session records if the request writes, and frees the request. */
void sl_server_request_fail(struct sl_server_request *request, int err, const char *text);

/* The same with DEADLINE. The text says what the request waited for: clocks, or its turn. */
void sl_server_request_fail_late(struct sl_server_request *request, bool waits);

/* The request's session has ended: logs the request's effect and frees the request. */
void sl_server_request_end(struct sl_server_request *request);

/* Frees a request that needs no answer. */
void sl_server_request_free(struct sl_server_request *request);

/* The token of a kept request was answered (sl_server_token_answered_fn). If the client is
 * disconnected, the answer waits for it. */
void sl_server_request_answered(struct sl_server_request *request,
                                const struct sl_kv_answer *answer);

/* Frees the payload, which is not needed any more. */
void sl_server_request_put_payload(struct sl_server_request *request);

#endif
