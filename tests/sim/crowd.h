/* `--crowd`: a thousand members of a service, unmodified, lose it at one moment, and return when it
 * runs again: nodes of objects and their catalogue, or the processes of a job and its coordinator.
 * The members' requests must be spread over time. One thread. Allocates. */
#ifndef SL_TESTS_SIM_CROWD_H
#define SL_TESTS_SIM_CROWD_H

/* Prints what has happened, or the breach. Returns the exit status. */
int sl_sim_crowd_main(int argument_count, char **arguments);

#endif
