/* A setup is what a simulation replaces of an engine: reactors, transport, store, random numbers,
 * the waiting of application threads. Zero: nothing. Any thread. */
#ifndef SL_NET_TRANSFER_SETUP_H
#define SL_NET_TRANSFER_SETUP_H

#include <starling_transfer.h>

#include "net/transport.h"
#include "reactor/completion.h"

struct sl_clock;
struct sl_metastore;

struct sl_transfer_setup {
    /* Stepped and connected, as many as reactor_count; they outlive the engine. NULL: the engine
     * starts its own. */
    struct sl_reactor *const *reactors;
    const struct sl_clock *clock; /* of reactors that the engine starts; NULL: the system's */
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    void *medium;                   /* of the transports */
    struct sl_metastore *metastore; /* instead of the one that the options name; NULL: that */
    uint64_t (*random)(void *ctx);  /* for the incarnation and for keys */
    /* Returns when the completion has ended. */
    void (*wait)(void *ctx, struct sl_completion *completion);
    void *ctx;
};

/* As sl_transfer_create. setup: NULL: nothing is replaced. */
int sl_transfer_create_with(const struct sl_transfer_options *options,
                            const struct sl_transfer_setup *setup, struct sl_transfer **out);

/* Not on a reactor. */
void sl_transfer_setup_wait(const struct sl_transfer_setup *setup,
                            struct sl_completion *completion);

/* Returns a random number that is not 0. */
uint64_t sl_transfer_setup_random(const struct sl_transfer_setup *setup);

#endif
