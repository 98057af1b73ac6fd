/* The server program as a function. */
#ifndef SL_PS_RUN_H
#define SL_PS_RUN_H

struct sl_kv_handler;

/* Runs this process as a server or a scheduler, with the flags of argv and the environment: see
 * sl_kv_serve. Messages begin with the base name of argv[0]. Main thread. Returns the exit
 * status. */
int sl_ps_run(int argc, char **argv, const struct sl_kv_handler *handler);

#endif
