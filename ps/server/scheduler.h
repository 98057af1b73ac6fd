/* The scheduler orders the requests of all connections. A request that can be answered at once is
 * answered in the upcall that received it. Other requests are queued: too long for the rest of the
 * turn, behind others of their connection, or waiting for clocks. Each turn (turn.c) takes them
 * from here, in turn by connection, one slice each. A queued or parked request is answered DEADLINE
 * when its deadline passes; a started one is finished. Owner reactor. */
#ifndef SL_PS_SERVER_SCHEDULER_H
#define SL_PS_SERVER_SCHEDULER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/list.h"
#include "reactor/reactor.h"

/* Cost (of about one key each: SL_LIMIT_TURN_COST) that one request may spend before the next
 * connection runs, and that all sliced requests together may spend in a turn. Bounds the wait of
 * small requests. */
#define SL_SERVER_SLICE_KEYS   512
#define SL_SERVER_SLICED_KEYS  1024

/* A request with a higher push cost is sliced even if it fits into the turn: a push takes three
 * times as long as a pull of the same cost. A dense push of 512 KiB, as clients send them, costs
 * 2050. */
#define SL_SERVER_PUSH_KEYS    2112

/* Part of a turn that is reserved for runnable requests. */
#define SL_SERVER_BACKLOG_COST (SL_LIMIT_TURN_COST / 2)

struct sl_server;
struct sl_server_channel;
struct sl_server_request;
struct sl_server_session;
struct sl_server_tokens;

struct sl_server_scheduler {
    struct sl_reactor_source source; /* of turn.c */
    struct sl_list ready;            /* channels whose first request may run */
    struct sl_list parked, resumed;  /* requests that wait for clocks, and that need not any more */
    uint32_t runnable_count;         /* channels in `ready`, and requests in `resumed` */
    uint32_t crowded_count; /* queued requests that are runnable: new ones run after them */
    uint32_t parked_count;
    size_t parked_bytes; /* of buffers */
    size_t orphan_bytes; /* those of disconnected clients */
    /* The host's freed_count when all runnable requests waited for memory; 0: they did not. */
    uint64_t blocked_at;
    struct sl_server_tokens
        *tokens;      /* of requests that a handler keeps; NULL: no handler, no shard */
    bool resume_next; /* take a resumed request next, else one of `ready` */
    bool yielded;     /* the previous turn left its slices to this one */
};

void sl_server_scheduler_init(struct sl_server *server);
void sl_server_scheduler_fini(struct sl_server *server);

/* Queues a request behind the others of its channel; park: the request already waits for
 * clocks. */
void sl_server_scheduler_add(struct sl_server_request *request, bool park);

/* Returns the next request to run; NULL: none. Alternates between resumed requests and channels.
 * Takes a channel out of the ring until _ran puts it back. */
struct sl_server_request *sl_server_scheduler_next(struct sl_server *server);

/* A request of _next has run, which had the channel `channel` before; waits: for clocks. */
void sl_server_scheduler_ran(struct sl_server_request *request, struct sl_server_channel *channel,
                             bool waits);

/* Clocks have moved: resumes requests that need not wait any longer. */
void sl_server_scheduler_resume_parked(struct sl_server *server);

/* Resumes a parked request. */
void sl_server_scheduler_resume(struct sl_server_request *request);

/* The handler has kept a request, which may have waited for it: later writes of its session go on.
 */
void sl_server_scheduler_kept(struct sl_server_request *request);

/* Returns the session's kept request with this id, whose client was disconnected; NULL: none. */
struct sl_server_request *sl_server_scheduler_find_kept(const struct sl_server_session *session,
                                                        uint64_t id);

/* Removes the request from its list. */
void sl_server_scheduler_remove(struct sl_server_request *request);

/* The channel leaves its session: drops its requests, except a write in progress, which becomes
 * the session's orphan. */
void sl_server_scheduler_drop(struct sl_server_channel *channel);

/* Gives an orphan a channel again. */
void sl_server_scheduler_adopt(struct sl_server_request *request,
                               struct sl_server_channel *channel);

/* The session ends: drops its orphan, except that a push in progress completes. */
void sl_server_scheduler_abandon(struct sl_server_session *session);

/* Answers all parked requests with the error. */
void sl_server_scheduler_cancel_parked(struct sl_server *server, int err, const char *text);

/* Removes the request and frees it: it is answered, or needs no answer. */
void sl_server_scheduler_discard(struct sl_server_request *request);

/* For the replication log: leave detaches a completed request from its channel; answer queues it
 * to be answered and freed. */
void sl_server_scheduler_leave(struct sl_server_request *request);
void sl_server_scheduler_answer(struct sl_server_request *request);

/* The replication log has room again: requests that write may continue. */
void sl_server_scheduler_wake(struct sl_server *server);

#endif
