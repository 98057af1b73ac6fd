#include "duo.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/unit.h"

transfer_engine_t duo_engine(void)
{
    return createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
}

void duo_init(struct duo *duo)
{
    *duo = (struct duo){.here = duo_engine(), .there = duo_engine()};
    assert_non_null(duo->here);
    assert_non_null(duo->there);
    assert_int_equal(getLocalIpAndPort(duo->here, duo->here_name, sizeof duo->here_name), 0);
    assert_int_equal(getLocalIpAndPort(duo->there, duo->there_name, sizeof duo->there_name), 0);
    duo->local = calloc(1, DUO_BYTES);
    duo->remote = calloc(1, DUO_BYTES);
    assert_int_equal(registerLocalMemory(duo->here, duo->local, DUO_BYTES, "*", 1), 0);
    assert_int_equal(registerLocalMemory(duo->there, duo->remote, DUO_BYTES, "cpu:0", 1), 0);
    duo->segment = openSegment(duo->here, duo->there_name);
    assert_true(duo->segment > 0);
}

void duo_fini(struct duo *duo)
{
    destroyTransferEngine(duo->here);
    destroyTransferEngine(duo->there);
    free(duo->local);
    free(duo->remote);
}

int duo_wait(transfer_engine_t engine, batch_id_t batch, size_t task)
{
    const struct timespec pause = {.tv_nsec = 100000};
    struct transfer_status status = {.status = STATUS_PENDING};
    while (status.status == STATUS_PENDING || status.status == STATUS_WAITING) {
        assert_int_equal(getTransferStatus(engine, batch, task, &status), 0);
        (void)nanosleep(&pause, NULL);
    }
    return status.status;
}

int duo_move(const struct duo *duo, int opcode, void *local, const void *remote, size_t bytes)
{
    struct transfer_request request = {.opcode = opcode,
                                       .source = local,
                                       .target_id = duo->segment,
                                       .target_offset = (uintptr_t)remote,
                                       .length = bytes};
    const batch_id_t batch = allocateBatchID(duo->here, 1);
    assert_true(batch != INVALID_BATCH);
    const int result = submitTransfer(duo->here, batch, &request, 1);
    const int status = result == 0 ? duo_wait(duo->here, batch, 0) : result;
    assert_int_equal(freeBatchID(duo->here, batch), 0);
    return status;
}
