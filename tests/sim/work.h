/* One step of a simulated client: built with what the oracle books, submitted, and judged when it
 * has ended. Its arrays stay until then. One thread. Allocates. */
#ifndef SL_TESTS_SIM_WORK_H
#define SL_TESTS_SIM_WORK_H

#include "tests/sim/oracle.h"
#include "tests/sim/process.h"
#include "tests/sim/scan.h"

#define SL_SIM_WORK_OPERATIONS 24

/* A table as a client has opened it. */
struct sl_sim_operation {
    uint32_t table;
    uint32_t clock; /* that it pulls for */
    uint64_t *keys; /* sparse */
    uint32_t key_count, key_capacity;
    uint64_t start, count; /* dense: elements */
    float *gradients, *values;
    uint8_t *found;  /* of a find; NULL: it is none */
    uint32_t *units; /* sparse: that keys 2i and 2i + 1 of `watched_at` are the witnesses of */
    uint32_t *watched_at;
    uint32_t watched_count, watched_capacity;
    bool pushes, pulls;
};

struct sl_sim_work {
    struct sl_step *step;
    struct sl_sim_oracle *oracle;
    struct sl_sim_process *process;
    uint64_t *random;
    struct sl_table *const *tables; /* the client's, by number in the plan */
    uint32_t instance, clock;
    uint32_t unit_first, unit_end; /* that its pushes are booked as */
    struct sl_sim_operation operations[SL_SIM_WORK_OPERATIONS];
    uint32_t operation_count;
    bool ticks, finishes;
    struct sl_sim_scan *scan; /* whose message is the last operation; NULL: none */
    uint32_t timeout_ms;
    uint64_t begun_ns, deadline_ns; /* the network's time; the process's */
    uint64_t late_ns;               /* the network's, when its deadline was found to be over */
    uint64_t paused_ns;             /* of the process, at its beginning */
    uint32_t disturbances;          /* of the instance, likewise */
};

/* Errors: sl_step_begin's. */
int sl_sim_work_begin(struct sl_sim_work *work, struct sl_client *client,
                      struct sl_sim_oracle *oracle, struct sl_sim_process *process,
                      uint32_t instance, struct sl_table *const *tables, uint64_t *random,
                      uint32_t clock);

/* Adds operations. A table that has no room for another push is left out. */
void sl_sim_work_push(struct sl_sim_work *work, uint32_t table, bool pull_too);
void sl_sim_work_pull(struct sl_sim_work *work, uint32_t table, uint32_t clock);
void sl_sim_work_tick(struct sl_sim_work *work);
void sl_sim_work_finish(struct sl_sim_work *work);

/* A pull of exactly these units, and of all shared keys of the table: the observer's last. */
void sl_sim_work_pull_all(struct sl_sim_work *work, uint32_t table);

/* Errors: sl_step_submit's; then it has ended. */
int sl_sim_work_submit(struct sl_sim_work *work, uint32_t timeout_ms);

/* AGAIN, or its result, once: what it did is booked and checked. Free it then. */
int sl_sim_work_poll(struct sl_sim_work *work);

/* The process is gone: what it pushed may or may not arrive. The step itself is still to be ended.
 */
void sl_sim_work_forsake(struct sl_sim_work *work);

/* work_requests.c: of the units that are under way, which requests they went in, by now, where
 * there are disks. The step was submitted. */
void sl_sim_work_note_requests(struct sl_sim_work *work);

/* Ends the step, which is done or was never submitted, and frees its arrays. */
void sl_sim_work_free(struct sl_sim_work *work);

#endif
