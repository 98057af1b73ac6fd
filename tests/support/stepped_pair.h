/* Two reactors stepped by the test's thread on a clock that the test moves, each with a transport
 * of its own. One thread. */
#ifndef SL_TESTS_SUPPORT_STEPPED_PAIR_H
#define SL_TESTS_SUPPORT_STEPPED_PAIR_H

#include "net/transport.h"

struct sl_stepped_side {
    struct sl_reactor *reactor;
    struct sl_transport *transport;
};

struct sl_stepped_pair {
    struct sl_clock clock;
    uint64_t now_ns;
    uint64_t
        offload_ns; /* how long a job of an offload thread waits, as struct sl_reactor_options */
    struct sl_stepped_side a, b;
};

/* Opens both transports with these ops and media, asserting that it works. The pair stays where it
 * is until fini: the reactors read its clock. */
void sl_stepped_pair_init(struct sl_stepped_pair *pair, const struct sl_transport_ops *ops,
                          void *medium_a, void *medium_b);

/* Closes what is still open, reactors included. */
void sl_stepped_pair_fini(struct sl_stepped_pair *pair);

/* Moves the clock by step_ns, then gives each reactor one turn. */
void sl_stepped_pair_turn(struct sl_stepped_pair *pair, uint64_t step_ns);

/* Turns of 1 ms each until done(ctx) or turns_max are over; returns whether it is done. */
bool sl_stepped_pair_until(struct sl_stepped_pair *pair, uint32_t turns_max,
                           bool (*done)(void *ctx), void *ctx);

#endif
