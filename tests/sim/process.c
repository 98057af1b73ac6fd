#include "tests/sim/process.h"

#include <stdio.h>

#include "core/assert.h"
#include "core/clock.h"
#include "tests/sim/random.h"

#define DRAIN_TURNS_MAX 2000000
#define DRAIN_STEP_NS   (20 * SL_CLOCK_NS_PER_MS)

uint64_t sl_sim_process_now(const struct sl_sim_process *process)
{
    return sl_sim_network_now(process->network) + process->offset_ns;
}

static uint64_t clock_now(void *ctx)
{
    return sl_sim_process_now(ctx);
}

static uint64_t aside_now(void *ctx)
{
    struct sl_sim_process *process = ctx;
    return process->aside_us_max == 0
               ? 0
               : SL_CLOCK_NS_PER_US * sl_sim_below(&process->aside_random, process->aside_us_max);
}

void sl_sim_process_init(struct sl_sim_process *process, struct sl_sim_network *network,
                         uint32_t host, const char *name, uint32_t reactor_count, uint64_t seed,
                         uint64_t offset_ns, uint64_t gap_ns)
{
    *process = (struct sl_sim_process){.network = network,
                                       .host = host,
                                       .offset_ns = offset_ns,
                                       .gap_ns = gap_ns,
                                       .usual_gap_ns = gap_ns,
                                       .aside_random = seed,
                                       .due_ns = sl_sim_network_now(network)};
    process->clock = (struct sl_clock){.now_ns = clock_now, .ctx = process};
    sl_assert(reactor_count <= SL_SIM_REACTORS_MAX);
    process->reactor_count = reactor_count;
    for (uint32_t i = 0; i < reactor_count; i++) {
        struct sl_reactor_options options = {.index = i,
                                             .core = -1,
                                             .stepped = true,
                                             .clock = &process->clock,
                                             .seed = (seed + i) | 1,
                                             .offload_ns = aside_now,
                                             .offload_ctx = process};
        (void)snprintf(options.name, sizeof options.name, "%.8s.%u", name, i % 1000);
        int err = sl_reactor_create(&options, &process->reactors[i]);
        sl_assert(err == 0);
        sl_reactor_turn(process->reactors[i], sl_sim_process_now(process));
    }
    int err = sl_reactor_connect(process->reactors, reactor_count);
    sl_assert(err == 0);
}

void sl_sim_process_fini(struct sl_sim_process *process)
{
    for (uint32_t i = 0; i < process->reactor_count; i++) {
        sl_reactor_destroy(&process->reactors[i]);
    }
}

/* When the reactor has something to do, by the network's clock. */
static uint64_t reactor_due(const struct sl_sim_process *process, uint32_t index)
{
    const struct sl_reactor *reactor = process->reactors[index];
    uint64_t due_ns = sl_sim_network_next(process->network, process->host, reactor);
    uint64_t own_ns = sl_reactor_next_ns(reactor);
    if (own_ns != SL_CLOCK_NEVER) {
        own_ns = own_ns > process->offset_ns ? own_ns - process->offset_ns : 0;
        due_ns = own_ns < due_ns ? own_ns : due_ns;
    }
    uint64_t free_ns = process->turned_ns[index] + process->gap_ns;
    return due_ns > free_ns ? due_ns : free_ns;
}

void sl_sim_process_look(struct sl_sim_process *process)
{
    process->due_ns = SL_CLOCK_NEVER;
    for (uint32_t i = 0; i < process->reactor_count; i++) {
        sl_sim_process_wake(process, reactor_due(process, i));
    }
}

bool sl_sim_process_step(struct sl_sim_process *process)
{
    uint64_t now_ns = sl_sim_network_now(process->network);
    bool turned = false;
    for (uint32_t i = 0; i < process->reactor_count; i++) {
        if (reactor_due(process, i) <= now_ns) {
            (void)sl_reactor_turn(process->reactors[i], sl_sim_process_now(process));
            process->turned_ns[i] = now_ns;
            turned = true;
        }
    }
    sl_sim_process_look(process);
    return turned;
}

void sl_sim_process_drain(struct sl_sim_process *process, bool (*done)(void *ctx), void *ctx)
{
    uint32_t turns = 0;
    while (!done(ctx)) {
        process->offset_ns += DRAIN_STEP_NS;
        for (uint32_t i = 0; i < process->reactor_count; i++) {
            (void)sl_reactor_turn(process->reactors[i], sl_sim_process_now(process));
        }
        turns++;
        sl_assert(turns < DRAIN_TURNS_MAX);
    }
}
