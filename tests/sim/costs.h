/* Costs state how long a processor works for a turn of a reactor, for the frames that it moves and
 * for the rows in them, and how fast the network is. Measured by bench/scale.py. Without costs, as
 * in runs from seeds, a turn takes no time. */
#ifndef SL_TESTS_SIM_COSTS_H
#define SL_TESTS_SIM_COSTS_H

#include <stdbool.h>
#include <stdint.h>

/* Costs of the work of a reactor, in ns; servers and clients have their own. */
struct sl_sim_side_costs {
    double turn;     /* that moves frames */
    double call;     /* of the kernel: for each connection that sends or receives in a turn */
    double frame;    /* sent or received */
    double pulled;   /* row of a request that reads rows */
    double pushed;   /* row of a request that writes rows */
    double in_byte;  /* received */
    double out_byte; /* sent */
};

struct sl_sim_costs {
    struct sl_sim_side_costs server, client;
    double swap;      /* ns of a processor that goes on with another process, or one that slept */
    double rest;      /* ns of a processor for a process that has slept on a timer, */
    double crowd;     /* and for each doubling of the processes that share it */
    double wake;      /* ns until a sleeping process runs on an idle processor */
    double late;      /* instead, once in 50 times */
    double slice;     /* ns that a process may run while others wait for its processor */
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
