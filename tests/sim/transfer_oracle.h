/* The oracle of the simulation of transfer engines: it knows of every word of served memory which
 * values may stand there, and judges by that what READs return, what WRITEs leave behind, and what
 * must not change.
 *
 * A value names its origin, a WRITE request or its owner's content, and its place. Events have
 * numbers, ascending. When a WRITE has completed, no value may be in its place any more whose own
 * WRITE was over before that WRITE was submitted. That one rule covers three promises: a completed
 * WRITE is applied, a READ shows bytes of its time, nothing lands late. Of WRITEs of two engines,
 * or that failed, it holds only as far as engines promise it. One thread. Allocates. */
#ifndef SL_TESTS_SIM_TRANSFER_ORACLE_H
#define SL_TESTS_SIM_TRANSFER_ORACLE_H

#include "tests/sim/transfer_plan.h"
#include "tests/sim/world.h"

/* Where a value comes from: a WRITE request, or the content that a process has put there. */
struct sl_sim_transfer_origin {
    uint32_t life, target_life; /* of the engine that writes, and of the memory's process */
    uint32_t target;            /* host */
    uint32_t handle;            /* of the target's segments, by which it is written */
    uint32_t first, words;
    uint32_t begun, over; /* events; over UINT32_MAX: not yet */
    bool completed;
    bool is_owner;   /* content of the memory's process */
    bool is_private; /* of memory that is not registered: nobody may see or change it */
};

/* Of each word, or a copy for one request. */
struct sl_sim_transfer_floor {
    uint32_t any; /* when the last completed WRITE was submitted */
    /* The same, of one segment of an initiator's life: host * HANDLES_MAX + handle. */
    uint32_t same[SL_SIM_TRANSFER_PEERS_MAX];
    uint32_t base; /* nothing from before is there */
};

/* A notice of a batch. */
struct sl_sim_transfer_notice {
    uint32_t target, target_life;
    uint32_t host;                       /* that sends it */
    uint32_t first_origin, origin_count; /* the WRITEs of its batch */
    bool taken, confirmed;
};

struct sl_sim_transfer_memory {
    uint64_t *words; /* at the same address in every run */
    uint32_t life;   /* of the process; 0: none */
    struct sl_sim_transfer_floor *floors;
};

struct sl_sim_transfer_oracle {
    const struct sl_sim_transfer_plan *plan;
    uint32_t word_count; /* of each memory */
    struct sl_sim_transfer_memory memories[SL_SIM_TRANSFER_PROCESSES_MAX];
    struct sl_sim_transfer_origin *origins;
    uint32_t origin_count, origin_room;
    struct sl_sim_transfer_notice *notices;
    uint32_t notice_count, notice_room;
    uint32_t event;
    uint32_t life_count;
    uint64_t *incarnations; /* [life_count + 1]; by life */
    struct sl_sim_breach breach;
};

void sl_sim_transfer_oracle_init(struct sl_sim_transfer_oracle *oracle,
                                 const struct sl_sim_transfer_plan *plan);
void sl_sim_transfer_oracle_fini(struct sl_sim_transfer_oracle *oracle);

/* A process begins there; returns its life. */
uint32_t sl_sim_transfer_oracle_begin(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                      uint64_t incarnation);

/* The process ends: its memory is judged for the last time. */
void sl_sim_transfer_oracle_end(struct sl_sim_transfer_oracle *oracle, uint32_t host);

/* The life of the engine with this incarnation; 0: none. */
uint32_t sl_sim_transfer_oracle_life(const struct sl_sim_transfer_oracle *oracle,
                                     uint64_t incarnation);

/* The owner fills these words, while no peer reaches them. */
void sl_sim_transfer_oracle_fill(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                 uint32_t first, uint32_t words, bool is_private);

/* A WRITE through a segment begins; returns its number. peer: target * HANDLES_MAX + handle. */
uint32_t sl_sim_transfer_oracle_write(struct sl_sim_transfer_oracle *oracle, uint32_t life,
                                      uint32_t peer, uint32_t target_life, uint32_t first,
                                      uint32_t words);

/* Returns the value that a writer puts into the word. */
static inline uint64_t sl_sim_transfer_value(uint32_t origin, uint32_t word)
{
    return (uint64_t)origin << 32 | word;
}

/* The WRITE of this host is over. A completed one is judged. */
void sl_sim_transfer_oracle_written(struct sl_sim_transfer_oracle *oracle, uint32_t origin,
                                    uint32_t host, bool completed);

/* A READ by this host has returned these values, of words from `first` on; floors: as of when it
 * began. */
void sl_sim_transfer_oracle_read(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                 uint32_t target, uint32_t target_life, uint32_t first,
                                 uint32_t words, const uint64_t *values,
                                 const struct sl_sim_transfer_floor *floors);

/* A notice is sent after all WRITEs whose numbers follow; returns its number. */
uint32_t sl_sim_transfer_oracle_notice(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                       uint32_t target, uint32_t target_life);

/* It was taken there. */
void sl_sim_transfer_oracle_taken(struct sl_sim_transfer_oracle *oracle, uint32_t number,
                                  uint32_t host);

/* Judges that all notices were taken that the host has confirmed. */
void sl_sim_transfer_oracle_judge_notices(struct sl_sim_transfer_oracle *oracle, uint32_t host);

/* Judges all words of a process's memory. */
void sl_sim_transfer_oracle_scan(struct sl_sim_transfer_oracle *oracle, uint32_t host);

#endif
