/* A setup is what a simulation replaces of a node: reactor, clock, random numbers, the waiting of
 * application threads. Its engine has one too (transfer/setup.h). Zero: nothing. Any thread. */
#ifndef SL_OBJECTS_SETUP_H
#define SL_OBJECTS_SETUP_H

#include "reactor/completion.h"

struct sl_reactor;

struct sl_objects_setup {
    /* Stepped and connected; it outlives the node. NULL: the node starts its own. */
    struct sl_reactor *reactor;
    uint64_t (*unix_us)(void *ctx); /* microseconds of Unix time */
    uint64_t (*random)(void *ctx);  /* for the node's id */
    /* Returns when the completion has ended. */
    void (*wait)(void *ctx, struct sl_completion *completion);
    void *ctx;
};

#endif
