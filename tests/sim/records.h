/* What a coordinator must not forget, kept for the one that is started in its place: in the place
 * of a cluster store (docs/cluster-store.md) that never fails. What has changed is kept before the
 * next message leaves that may rest on it. One thread. Allocates. */
#ifndef SL_TESTS_SIM_RECORDS_H
#define SL_TESTS_SIM_RECORDS_H

#include <stdbool.h>

#include "ps/coordinator/coordinator.h"

struct sl_sim_record {
    enum sl_coordinator_record kind;
    uint32_t index;
    uint8_t *value; /* NULL: there is none */
    size_t value_bytes;
    bool is_dirty; /* it is another at the coordinator */
};

struct sl_sim_records {
    struct sl_sim_record *records;
    uint32_t count, capacity;
    uint32_t forgotten; /* times that all were, since no ps was left that they know of */
};

/* The record has changed. */
void sl_sim_records_note(struct sl_sim_records *records, enum sl_coordinator_record kind,
                         uint32_t index);

/* Keeps what has changed since. Asserts that there is memory. */
void sl_sim_records_keep(struct sl_sim_records *records, const struct sl_coordinator *coordinator);

/* Whether some record of the kind has changed, and is not kept yet. */
bool sl_sim_records_lack(const struct sl_sim_records *records, enum sl_coordinator_record kind);

/* Gives a coordinator that has just been created what was kept. */
void sl_sim_records_give(struct sl_sim_records *records, struct sl_coordinator *coordinator,
                         uint64_t now_ns);

void sl_sim_records_fini(struct sl_sim_records *records);

#endif
