/* Table registry: a name has one id and one specification until the table is dropped. */
#ifndef SL_PS_COORDINATOR_TABLE_H
#define SL_PS_COORDINATOR_TABLE_H

#include "ps/coordinator/state.h"

void sl_coordinator_table_open(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message);

/* Answers with the specifications of tables from an id on. */
void sl_coordinator_table_list(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message);

/* Forgets a table. Its id is not used again, and the next cluster has it. */
void sl_coordinator_table_drop(struct sl_coordinator *coordinator,
                               const struct sl_coordinator_member *member,
                               const struct sl_message *message);

/* Forgets the tables that a server knows to be dropped: an earlier coordinator dropped them. */
void sl_coordinator_table_take_dropped(struct sl_coordinator *coordinator,
                                       const struct sl_message_dropped *dropped);

/* Answers with table names only; the shards have their statistics. */
void sl_coordinator_table_stats(struct sl_coordinator *coordinator,
                                const struct sl_coordinator_member *member, uint64_t id);

/* Stores a table under a given id; one without a name was dropped. Errors: NO_MEMORY. */
int sl_coordinator_table_load(struct sl_coordinator *coordinator, uint32_t id,
                              const struct sl_message_table_open *open);

#endif
