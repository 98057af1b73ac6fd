/* The balancer chooses the worker of a request, from what workers have reported (LOAD) and what
 * this gateway has sent them. Residency and costs are those of a host, whose workers share a pool.
 *
 * BASIC is the rule of PipePS: an idle worker whose host holds the model; any idle worker; one with
 * fewer than 2 requests whose host holds it; the least loaded with fewer than 4; else none.
 * COST: the least expected finish: queue + exposed load + compute. Exposed load is the time by
 * which loading the missing bytes takes longer than computing. The worker estimates it, since it
 * knows the layers; for a host that has not reported the model it is the time to transfer all
 * bytes, as far as that exceeds the compute time.
 *
 * With both a worker whose reports have not counted a request for 200 ms is chosen only if there is
 * no other: its host may be gone.
 *
 * Pure, with the time as an argument, in ns. One owner thread. Allocates for each new model, and
 * each host that reports it. */
#ifndef SL_SERVE_BALANCE_H
#define SL_SERVE_BALANCE_H

#include "programs/serve/base/message.h"

#define SL_SERVE_HOSTS_MAX       64
#define SL_SERVE_WORKERS_MAX     256
#define SL_SERVE_BALANCE_BUCKETS 1024

enum sl_serve_strategy { SL_SERVE_BASIC, SL_SERVE_COST };

struct sl_serve_model {
    char name[SL_OBJECTS_NAME_BYTES];
    uint32_t waiting;          /* requests that wait for a worker; the gateway's */
    uint64_t output_row_bytes; /* most that outputs of a row have needed; the gateway's */
    /* Private */
    struct sl_serve_load *loads[SL_SERVE_HOSTS_MAX]; /* by host; NULL: not reported */
    uint32_t host;                                   /* that reported last */
    struct sl_serve_model *next;                     /* of the same bucket */
};

struct sl_serve_balance_worker {
    char name[SL_TRANSFER_NAME_BYTES];
    char host[SL_SERVE_LABEL_BYTES];
    uint32_t batch_max;
    bool is_leaving, is_full; /* not chosen; the gateway's */
    /* Private; read-only for others. */
    struct sl_list_link link;
    uint32_t host_index;
    struct sl_list uses;
    uint32_t use_count;    /* never above slots */
    uint32_t slots;        /* requests at the worker at one time */
    uint32_t other_count;  /* requests of other gateways, as of the last report */
    uint64_t uses_ns;      /* cost of the uses */
    int64_t correction_ns; /* reported queue minus the cost of uses that it has */
    uint64_t reported_ns;  /* time of the last report */
};

/* A request at a worker. Storage of the gateway. */
struct sl_serve_use {
    struct sl_list_link link;
    struct sl_serve_balance_worker *worker;
    const struct sl_serve_model *model;
    uint64_t cost_ns, begun_ns;
    uint64_t due_ns;  /* the deadline of its request */
    bool is_received; /* the worker's reports count it; the gateway's */
};

struct sl_serve_balance {
    enum sl_serve_strategy strategy;
    struct sl_list workers;
    uint32_t worker_count;                  /* that are not leaving */
    uint32_t host_uses[SL_SERVE_HOSTS_MAX]; /* workers of the host */
    struct sl_serve_model *buckets[SL_SERVE_BALANCE_BUCKETS];
};

void sl_serve_balance_init(struct sl_serve_balance *balance, enum sl_serve_strategy strategy);

/* No worker is left. Frees the models. */
void sl_serve_balance_fini(struct sl_serve_balance *balance);

/* Finds or adds a model; valid until fini. NULL: no memory. */
struct sl_serve_model *sl_serve_balance_model(struct sl_serve_balance *balance, const char *name);

/* Adds a worker: its name, host and batch_max are set, the rest is zero. Errors: TOO_LARGE: too
 * many hosts or workers. */
int sl_serve_balance_join(struct sl_serve_balance *balance, struct sl_serve_balance_worker *worker);

/* Removes it; its uses have ended. */
void sl_serve_balance_leave(struct sl_serve_balance *balance,
                            struct sl_serve_balance_worker *worker);

/* Takes a LOAD. Without memory for a model, ignores that model. */
void sl_serve_balance_report(struct sl_serve_balance *balance,
                             struct sl_serve_balance_worker *worker,
                             const struct sl_serve_message *load, uint64_t now_ns);

/* NULL: the request has to wait. cost_ns: expected time that the worker is busy with it. */
struct sl_serve_balance_worker *sl_serve_balance_choose(const struct sl_serve_balance *balance,
                                                        const struct sl_serve_model *model,
                                                        uint64_t rows, uint64_t now_ns,
                                                        uint64_t *cost_ns);

/* Expected time until a request is answered that no other waits before, whatever slots are free;
 * and its cost behind those that wait already. The cost of a model counts only while it is tried:
 * else a model that was slow to load once would be refused for ever. False: there is no worker. */
bool sl_serve_balance_expect(const struct sl_serve_balance *balance,
                             const struct sl_serve_model *model, uint64_t rows, uint64_t now_ns,
                             uint64_t *finish_ns, uint64_t *cost_ns);

/* Workers that answer: others are leaving, receive nothing, or have a request that they have not
 * answered for a while after its deadline. Requests are sent to those last. */
uint32_t sl_serve_balance_able(const struct sl_serve_balance *balance, uint64_t now_ns);

/* The request is sent to use->worker, which has a free slot; it is answered, or the worker lost. */
void sl_serve_balance_begin(struct sl_serve_balance *balance, struct sl_serve_use *use);
void sl_serve_balance_end(struct sl_serve_use *use);

/* Expected time until all requests that the worker has are answered. */
uint64_t sl_serve_balance_queue_ns(const struct sl_serve_balance_worker *worker, uint64_t now_ns);

#endif
