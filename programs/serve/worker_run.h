/* The role of a worker process. Its main thread is the worker's reactor. */
#ifndef SL_PROGRAMS_SERVE_WORKER_RUN_H
#define SL_PROGRAMS_SERVE_WORKER_RUN_H

/* starling-serve worker; argv[0] is the role. Returns the exit status. */
int sl_serve_worker_run(int argc, char **argv);

#endif
