/* The shards of which this process has copies: primaries and backups, among them one that moves
 * here. placement.h creates and ends them. */
#ifndef SL_PS_PROCESS_HOSTED_H
#define SL_PS_PROCESS_HOSTED_H

#include "ps/process/state.h"

struct sl_view;

enum sl_process_report {
    SL_PROCESS_REPORT_NOTHING,
    SL_PROCESS_REPORT_IN_SYNC,
    SL_PROCESS_REPORT_FAILED,
};

/* A shard that is here, or was. Lives as long as the process, so that mail and readers on other
 * threads may refer to it. */
struct sl_process_hosted {
    _Atomic(struct sl_process_hosted *) next; /* by ascending shard */
    struct sl_process *process;
    uint32_t shard;
    struct sl_process_core *core; /* of its reactor: shard modulo reactors.count */

    _Alignas(64) struct sl_server_cells cells; /* of its reactor */
    struct sl_replication_cells replica_cells; /* of its reactor */
    struct {
        _Alignas(64) struct sl_metrics_source server, replica;
        char label[SL_PROCESS_LABEL_BYTES];
    } metrics;

    /* Reactor 0: */
    bool is_here; /* the reactor was told to create it, and not to end it */
    struct sl_message_placement placement;         /* as last received */
    char backup_endpoint[SL_LIMIT_ENDPOINT_BYTES]; /* with placement.backup_plus_1 */
    uint64_t refused_epoch;                        /* it cannot be here in this epoch; 0: it can */
    uint64_t notified_epoch;                       /* last epoch sent to the reactor */
    enum sl_process_report report;                 /* of that epoch */
    struct {
        bool takes_part;
        struct sl_message_checkpoint_file file;
    } checkpoint; /* the last one */

    /* The shard's reactor: */
    size_t tables_bytes;      /* limit of the memory of its tables; 0: none */
    struct sl_server *server; /* NULL: it is not here */
    bool loads;               /* the server loads a checkpoint */
    struct {
        bool is_ending;                  /* its connections are being closed */
        bool returns;                    /* create it again when it has ended */
        struct sl_replica_config config; /* the last one: for that server */
    } end;
    struct sl_message_stats stats; /* written when the server ends, read after the reactors stop */

    /* The observer's thread: */
    struct {
        struct sl_view *view;      /* NULL: no views */
        struct sl_cell_copy times; /* of requests, as of the last report */
        uint64_t slow_count;       /* slow requests, as of the last report */
    } observed;
};

static inline struct sl_process_hosted *sl_process_hosted_first(const struct sl_process *process)
{
    return atomic_load_explicit(&process->shards.first, memory_order_acquire);
}

static inline struct sl_process_hosted *
sl_process_hosted_next(const struct sl_process_hosted *hosted)
{
    return atomic_load_explicit(&hosted->next, memory_order_acquire);
}

/* Any thread. */
#define SL_PROCESS_FOREACH(hosted, process)                                                        \
    for (struct sl_process_hosted *hosted = sl_process_hosted_first(process); hosted != NULL;      \
         hosted = sl_process_hosted_next(hosted))

/* Returns whether this process is the primary of the shard, as the cluster says. Reactor 0. */
static inline bool sl_process_hosted_is_primary(const struct sl_process_hosted *hosted)
{
    return hosted->is_here && hosted->placement.primary == hosted->process->member.task_index;
}

/* One of the things that sl_process.starts_left counts has happened. Reactor 0. */
void sl_process_hosted_started(struct sl_process *process);

/* Returns the entry of the shard; if `adds`, a new one. NULL: there is none, or no memory. Reactor
 * 0. */
struct sl_process_hosted *sl_process_hosted_find(struct sl_process *process, uint32_t shard,
                                                 bool adds);

/* Posts a mail to the shard's reactor. Reactor 0. */
void sl_process_hosted_mail(const struct sl_process_hosted *hosted, struct sl_mail mail);

/* Posts a mail to the reactor of each shard that is here, with the hosted as its context; the
 * server may have ended when it arrives. Returns their number. Reactor 0. */
uint32_t sl_process_hosted_post(struct sl_process *process, sl_mail_fn *run, uint64_t a,
                                uint64_t b);

/* Returns true if no shard is here. Reactor 0. */
bool sl_process_hosted_is_empty(const struct sl_process *process);

/* Returns true if this process has tables. Reactor 0. */
bool sl_process_hosted_has_tables(const struct sl_process *process);

/* Callback of the agent: a worker expired. */
void sl_process_hosted_expired(void *process, const struct sl_message_expired *expired);

/* Tells the server whether the coordinator will promote its backup when this process leaves, as
 * sl_process_hosted_end has found. The shard's reactor. */
void sl_process_hosted_set_switchover(struct sl_process_hosted *hosted, bool may_switch_over);

/* The process stops: posts `run` to each shard that is here, with a: whether it switches over.
 * Returns their number. Reactor 0. */
uint32_t sl_process_hosted_end(struct sl_process *process, sl_mail_fn *run);

/* Frees all entries. The reactors have stopped. */
void sl_process_hosted_free(struct sl_process *process);

#endif
