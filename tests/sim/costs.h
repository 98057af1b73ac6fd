/* Costs state how long a processor works for a turn of a reactor, for the frames that it moves and
 * for the rows in them, and how fast the network is. Measured by bench/scale.py. Without costs, as
 * in runs from seeds, a turn takes no time. */
#ifndef SL_TESTS_SIM_COSTS_H
#define SL_TESTS_SIM_COSTS_H

#include <stdbool.h>
#include <stdint.h>

/* What servers and clients have each of their own, in ns. */
struct sl_sim_side_costs {
    double pulled;   /* row of a request that reads rows */
    double pushed;   /* row of a request that writes rows */
    double in_byte;  /* received */
    double out_byte; /* sent */
};

struct sl_sim_costs {
    struct sl_sim_side_costs server, client;
    double call;      /* ns of the kernel, for each connection that sends or receives in a turn */
    double frame;     /* ns of each frame sent or received */
    double swap;      /* ns of a processor that goes on with another process, or one that slept */
    double wake;      /* ns until an idle processor begins with a process, */
    double idle;      /* and how much more than a swap that takes of it, in ns */
    double latency;   /* ns of the network, one way */
    double bandwidth; /* bytes per ns of each direction of a host's link */
};

/* Processor time of the turn under way. */
struct sl_sim_meter {
    const struct sl_sim_costs *costs; /* NULL: a turn takes no time */
    uint32_t server_count;            /* the first hosts are servers */
    uint64_t turn;                    /* its number, from 1 */
    double spent_ns;
};

/* Reads lines "server.turn 1500", in which # begins a comment; later lines replace earlier ones.
 * Returns false if one cannot be read, or a cost is missing: printed. */
bool sl_sim_costs_read(const char *path, struct sl_sim_costs *out);

/* Adds a whole frame that the host sends or receives. *called: the last turn in which its
 * connection did so. */
void sl_sim_meter_frame(struct sl_sim_meter *meter, uint32_t host, bool is_sent,
                        const uint8_t *frame, uint32_t bytes, uint64_t *called);

#endif
