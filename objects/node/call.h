/* Calls of the application to the node's reactor, and what the public functions check. */
#ifndef SL_OBJECTS_NODE_CALL_H
#define SL_OBJECTS_NODE_CALL_H

#include "core/reason.h"
#include "reactor/completion.h"

struct sl_objects;

/* Something that a thread of the application wants done on the reactor. Storage of that thread. */
struct sl_objects_call {
    /* Calls sl_objects_answer, then or later. */
    void (*run)(struct sl_objects *node, struct sl_objects_call *call);
    struct sl_objects *node;
    struct sl_completion completion;
    int err;
    char text[SL_REASON_BYTES];
};

/* A thread of the application: runs call->run on the reactor and waits for its answer. Returns its
 * error, with the text in sl_objects_last_error. Errors: NO_MEMORY, TOO_LARGE (threads) too. */
int sl_objects_call(struct sl_objects *node, struct sl_objects_call *call);

/* The same in two parts, of one thread: begin returns at once; each begin that returned 0 has an
 * end, which waits. call->completion says whether the answer is there. */
int sl_objects_call_begin(struct sl_objects *node, struct sl_objects_call *call);
int sl_objects_call_end(struct sl_objects *node, struct sl_objects_call *call);

/* A thread of the application: returns when the completion has ended. */
void sl_objects_wait(const struct sl_objects *node, struct sl_completion *completion);

/* Ends the call; no later access to it follows. */
void sl_objects_answer(struct sl_objects_call *call, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Errors: INVALID, with the text: not 1 to SL_TRANSFER_TIMEOUT_MS_MAX; not a name of an object; a
 * struct of another version of the header. */
int sl_objects_check_timeout(uint32_t timeout_ms);
int sl_objects_check_name(const char *name);
int sl_objects_check_size(uint32_t struct_size, size_t bytes);

/* Errors: UNSUPPORTED, with the text: the node only reads from an agent. */
int sl_objects_check_engine(const struct sl_objects *node);

/* Time; a deadline from now; milliseconds from now, at least 1. Any thread. */
uint64_t sl_objects_now_ns(const struct sl_objects *node);
uint64_t sl_objects_deadline_ns(const struct sl_objects *node, uint32_t timeout_ms);
uint32_t sl_objects_ms_left(const struct sl_objects *node, uint64_t deadline_ns);

#endif
