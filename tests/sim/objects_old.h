/* Old shows a keeper the records of thousands of versions that earlier processes have left in its
 * directory, beside the files of its disk. Nobody removes them and their names have no commits: an
 * attempt to change one of these files is a breach. One thread. */
#ifndef SL_TESTS_SIM_OBJECTS_OLD_H
#define SL_TESTS_SIM_OBJECTS_OLD_H

#include "tests/sim/world.h"
#include "tests/support/memory_disk.h"

#define SL_SIM_OLD_NAME    "old" /* and a number */
#define SL_SIM_OLD_OF_NAME 250   /* versions of a name */

struct sl_sim_old {
    struct sl_disk disk; /* to be handed on */
    struct memory_disk *memory;
    uint32_t count; /* versions, in multiples of SL_SIM_OLD_OF_NAME */
    struct sl_sim_breach *breach;
};

/* The memory and the breach outlive it. */
void sl_sim_old_init(struct sl_sim_old *old, struct memory_disk *memory, uint32_t count,
                     struct sl_sim_breach *breach);

#endif
