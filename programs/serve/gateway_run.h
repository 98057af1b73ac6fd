/* starling-serve gateway: HTTP, workers and the catalogue of one process. Main thread. */
#ifndef SL_PROGRAMS_SERVE_GATEWAY_RUN_H
#define SL_PROGRAMS_SERVE_GATEWAY_RUN_H

/* argv[0] is the role. Returns the exit status. */
int sl_serve_gateway_run(int argc, char **argv);

#endif
