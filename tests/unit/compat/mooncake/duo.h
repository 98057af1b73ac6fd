/* Two engines of Mooncake's C functions in this process, with memory that both have registered. */
#ifndef SL_TESTS_UNIT_COMPAT_MOONCAKE_DUO_H
#define SL_TESTS_UNIT_COMPAT_MOONCAKE_DUO_H

#include <stdbool.h>
#include <stdint.h>

#include "compat/mooncake/include/transfer_engine_c.h"

#define DUO_BYTES (1U << 20)

struct duo {
    transfer_engine_t here, there;
    char here_name[64], there_name[64];
    segment_id_t segment; /* of there, at here */
    uint8_t *local, *remote;
};

/* An engine on loopback with P2PHANDSHAKE; any free port. */
transfer_engine_t duo_engine(void);

void duo_init(struct duo *duo);
void duo_fini(struct duo *duo);

/* Waits until the task is over; returns its status. */
int duo_wait(transfer_engine_t engine, batch_id_t batch, size_t task);

/* One request in a batch of its own, with its end. Returns its status, or the error of the
 * submission. */
int duo_move(const struct duo *duo, int opcode, void *local, const void *remote, size_t bytes);

#endif
