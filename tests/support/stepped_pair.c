#include "tests/support/stepped_pair.h"

#include <stdio.h>

static uint64_t now_ns(void *ctx)
{
    return ((const struct sl_stepped_pair *)ctx)->now_ns;
}

static uint64_t offload_ns(void *ctx)
{
    return ((const struct sl_stepped_pair *)ctx)->offload_ns;
}

static void side_init(struct sl_stepped_side *side, const struct sl_clock *clock, const char *name,
                      uint32_t index, const struct sl_transport_ops *ops, void *medium)
{
    struct sl_reactor_options options = {.index = index,
                                         .core = -1,
                                         .stepped = true,
                                         .clock = clock,
                                         .seed = 1 + index,
                                         .offload_ns = offload_ns,
                                         .offload_ctx = clock->ctx};
    (void)snprintf(options.name, sizeof options.name, "%s", name);
    int err = sl_reactor_create(&options, &side->reactor);
    sl_assert(err == SL_OK);
    err = sl_transport_open(ops, side->reactor, &(struct sl_transport_options){.medium = medium},
                            &side->transport);
    sl_assert(err == SL_OK);
}

void sl_stepped_pair_init(struct sl_stepped_pair *pair, const struct sl_transport_ops *ops,
                          void *medium_a, void *medium_b)
{
    *pair = (struct sl_stepped_pair){.now_ns = SL_CLOCK_NS_PER_S};
    pair->clock = (struct sl_clock){.now_ns = now_ns, .ctx = pair};
    side_init(&pair->a, &pair->clock, "a", 0, ops, medium_a);
    side_init(&pair->b, &pair->clock, "b", 1, ops, medium_b);
}

void sl_stepped_pair_fini(struct sl_stepped_pair *pair)
{
    sl_transport_close(&pair->a.transport);
    sl_transport_close(&pair->b.transport);
    sl_reactor_destroy(&pair->a.reactor);
    sl_reactor_destroy(&pair->b.reactor);
}

void sl_stepped_pair_turn(struct sl_stepped_pair *pair, uint64_t step_ns)
{
    pair->now_ns += step_ns;
    (void)sl_reactor_turn(pair->a.reactor, pair->now_ns);
    (void)sl_reactor_turn(pair->b.reactor, pair->now_ns);
}

bool sl_stepped_pair_until(struct sl_stepped_pair *pair, uint32_t turns_max,
                           bool (*done)(void *ctx), void *ctx)
{
    for (uint32_t turn = 0; turn < turns_max; turn++) {
        if (done(ctx)) {
            return true;
        }
        sl_stepped_pair_turn(pair, SL_CLOCK_NS_PER_MS);
    }
    return done(ctx);
}
