/* Sends the requests of a list to a server that speaks the Open Inference Protocol, with random
 * inputs in binary, and prints their latencies. The list is PipePS's: a title line, then
 * "model_name, batch_size, send_interval" (in seconds). One thread, by libcurl. */
#ifndef SL_PROGRAMS_SERVE_CLIENT_H
#define SL_PROGRAMS_SERVE_CLIENT_H

/* starling-serve client; argv[0] is the role. Returns the exit status: also 1 if no request was
 * answered. */
int sl_serve_client_run(int argc, char **argv);

#endif
