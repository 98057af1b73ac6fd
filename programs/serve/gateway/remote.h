/* A remote is a worker as its gateway sees it, from JOIN until nothing of it is left: the segment
 * of its engine, ranges of its arena for inputs, and memory of this gateway that it alone writes
 * outputs to. After its end that memory is unregistered, so that late WRITEs of it change nothing.
 *
 * Owner: the gateway's reactor. Allocates and registers on another thread. */
#ifndef SL_SERVE_REMOTE_H
#define SL_SERVE_REMOTE_H

#include "net/transfer/async.h"
#include "programs/serve/base/range.h"
#include "programs/serve/gateway/balance.h"
#include "reactor/offload.h"

#define SL_SERVE_OUTPUT_BYTES   (64ULL << 20)
#define SL_SERVE_REMOTE_SEND_MS 10000

struct sl_serve_remote;

/* What all remotes of a gateway share. */
struct sl_serve_remote_events {
    struct sl_transfer *transfer;
    struct sl_transfer_async *async;
    void (*post)(void *ctx, struct sl_offload_job *job);
    void *post_ctx;
    void (*joined)(void *ctx, struct sl_serve_remote *remote);
    /* Only after `joined`. What was sent may or may not have arrived; nothing more may be sent. */
    void (*lost)(void *ctx, struct sl_serve_remote *remote, const char *reason);
    /* Nothing of it is left: it may begin again, or be freed. */
    void (*ended)(void *ctx, struct sl_serve_remote *remote);
    void *ctx;
};

struct sl_serve_remote {
    struct sl_list_link link; /* the gateway's, like the balancer's worker */
    struct sl_serve_balance_worker worker;
    struct sl_serve_join {
        char host[SL_SERVE_LABEL_BYTES];
        uint64_t arena_address, arena_bytes, incarnation;
        uint32_t batch_max;
    } join, next; /* next.batch_max > 0: it has joined once more */
    const struct sl_serve_remote_events *events;
    struct sl_transfer_segment *segment;    /* while it is joined */
    struct sl_serve_ranges inputs, outputs; /* of join's arena; of output_base */
    uint8_t *output_base;
    uint32_t outputs_read; /* requests whose outputs are read; the gateway's */
    enum sl_serve_remote_end {
        SL_SERVE_REMOTE_STAYS,
        SL_SERVE_REMOTE_LEFT,     /* its LEAVE was answered */
        SL_SERVE_REMOTE_REPLACED, /* another process has its name */
    } end;
    struct sl_timer again; /* until it begins again by itself; the gateway's, like `tries` */
    uint32_t tries;
    uint32_t writes; /* of inputs whose INFER comes next; the flights' */
    /* Private */
    bool is_joined, is_lost;
    uint32_t sends; /* batches and notices in progress */
    bool is_busy;   /* a job, or the opening of the segment */
    uint32_t ends;  /* callbacks of the segment that are to come */
    struct sl_offload_job job;
    char reason[SL_TRANSFER_REASON_BYTES];
};

/* name, join and events are set, the rest is zero, or as it was at `ended`. */
void sl_serve_remote_begin(struct sl_serve_remote *remote);

/* The worker has ended, or has joined once more, or this gateway ends. Not after `ended`. */
void sl_serve_remote_lose(struct sl_serve_remote *remote, const char *reason);

/* After an ask, or a WRITE, to a worker that has joined was begun, with the error; and when it has
 * ended. Errors: AGAIN, with a reason. */
int sl_serve_remote_began(struct sl_serve_remote *remote, int err, struct sl_reason *reason);
void sl_serve_remote_sent(struct sl_serve_remote *remote);

/* Sends CANCEL, or LEAVE, to a worker that has joined. Returns whether it will arrive if the worker
 * stays. */
bool sl_serve_remote_tell(struct sl_serve_remote *remote, uint32_t kind, uint64_t request);

/* After worker.is_leaving was set: answers LEAVE when nothing is on its way to the worker. After a
 * change of `outputs_read`: ends a lost one. */
void sl_serve_remote_look(struct sl_serve_remote *remote);

#endif
