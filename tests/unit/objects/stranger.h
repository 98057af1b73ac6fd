/* A process with an engine only, which sends a node any message and reads its answers. */
#ifndef SL_TESTS_UNIT_OBJECTS_STRANGER_H
#define SL_TESTS_UNIT_OBJECTS_STRANGER_H

#include "net/transfer/async.h"
#include "objects/catalogue/message.h"
#include "tests/support/reactor_thread.h"

struct stranger {
    struct sl_transfer *transfer;
    struct sl_transfer_segment *node;
    struct reactor_thread thread; /* its engine's */
    struct sl_transfer_async *async;
    struct sl_completion completion;
    const struct sl_objects_message *question;
    uint8_t bytes[SL_OBJECTS_MESSAGE_BYTES]; /* of the answer */
    struct sl_objects_message answer;
};

void stranger_init(struct stranger *stranger, const char *node);
void stranger_fini(struct stranger *stranger);

void stranger_send(struct stranger *stranger, const struct sl_objects_message *message);

/* Returns the error of the answer, which is in stranger->answer. */
int stranger_ask(struct stranger *stranger, const struct sl_objects_message *message);

#endif
