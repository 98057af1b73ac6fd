/* Scale predicts the throughput and the latency of one job: servers and clients, unmodified, on
 * processors and links that take the time that costs.h states. Workers pull rows, compute, push
 * gradients and tick, as in bench/workers.c. One thread. */
#ifndef SL_TESTS_SIM_SCALE_H
#define SL_TESTS_SIM_SCALE_H

/* arguments: "workers=8 servers=1 ...": prints what was measured as a line of JSON. Without any:
 * prints the parameters and their defaults. Returns the program's exit status. */
int sl_sim_scale_main(int argument_count, char **arguments);

#endif
