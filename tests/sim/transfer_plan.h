/* What a seed means for the simulation of transfer engines. Pure. */
#ifndef SL_TESTS_SIM_TRANSFER_PLAN_H
#define SL_TESTS_SIM_TRANSFER_PLAN_H

#include "tests/sim/plan.h"

#define SL_SIM_TRANSFER_PROCESSES_MAX 4
#define SL_SIM_TRANSFER_BUFFERS_MAX   3
#define SL_SIM_TRANSFER_HANDLES_MAX   2
/* Of all segments that a process may have open: host * HANDLES_MAX + handle. */
#define SL_SIM_TRANSFER_PEERS_MAX     (SL_SIM_TRANSFER_PROCESSES_MAX * SL_SIM_TRANSFER_HANDLES_MAX)
#define SL_SIM_TRANSFER_GUARD_WORDS   64 /* around buffers, and between them */

struct sl_sim_transfer_plan {
    uint64_t seed;
    uint32_t first_host; /* in the world */
    uint32_t process_count, reactor_count, lanes, slice_bytes, stall_ms;
    uint32_t buffer_count, buffer_words; /* that each process serves; a word has 8 bytes */
    uint32_t batch_count;                /* of one life of a process */
    uint32_t slots;                      /* batches of a process at a time */
    uint32_t requests_max, request_words_max;
    uint32_t timeout_ms, impatient_ms;
    uint32_t think_us_max;
    uint64_t gap_ns; /* of a turn */
    bool secret, checksum;
    bool hot;           /* most requests are for the same few words */
    bool impatient;     /* some batches have deadlines that pass, or are cancelled */
    bool unregisters;   /* memory is unregistered under load, and registered again */
    bool calm;          /* nothing fails */
    uint32_t tcp_rails; /* addresses of each process that TCP uses */
    uint32_t rdma_rails;
    bool is_one_rail_cut; /* and that is all that fails: no request does */
    uint32_t handles;     /* segments that a process opens of each peer */
    uint64_t bytes_per_s_max;
    bool has_reader; /* async.h takes the engines' notices, not their applications */
    bool naps; /* in the middle of its work a process has none for so long that lanes are closed */
    /* Engines are found in a metadata store; otherwise by their addresses. */
    bool has_store;
    uint32_t store_delay_us, store_late_permille, store_late_us;
    struct sl_sim_network_options network;
    struct sl_sim_fault faults[SL_SIM_FAULTS_MAX]; /* a, b: processes; KILL_PS: a process */
    uint32_t fault_count;
};

/* faults: bit k allows those of kind k. */
void sl_sim_transfer_plan_make(struct sl_sim_transfer_plan *plan, uint64_t seed, uint32_t faults);

void sl_sim_transfer_plan_print(const struct sl_sim_transfer_plan *plan);

/* Words of the memory that a process serves, guards included; where buffer i begins. */
static inline uint32_t sl_sim_transfer_buffer_at(const struct sl_sim_transfer_plan *plan,
                                                 uint32_t index)
{
    return SL_SIM_TRANSFER_GUARD_WORDS + index * (plan->buffer_words + SL_SIM_TRANSFER_GUARD_WORDS);
}

static inline uint32_t sl_sim_transfer_served_words(const struct sl_sim_transfer_plan *plan)
{
    return sl_sim_transfer_buffer_at(plan, plan->buffer_count);
}

#endif
