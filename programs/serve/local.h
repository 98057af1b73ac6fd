/* All of model serving on this machine: the storage of a directory with its catalogue and the
 * host's pool, a gateway, and workers, as child processes. A worker that ends is started again; if
 * another one ends, all end. Main thread. */
#ifndef SL_PROGRAMS_SERVE_LOCAL_H
#define SL_PROGRAMS_SERVE_LOCAL_H

/* starling-serve without a role. Returns the exit status. */
int sl_serve_local_run(int argc, char **argv);

#endif
