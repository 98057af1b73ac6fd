/* The server program as a function. */
#ifndef SL_PS_RUN_H
#define SL_PS_RUN_H

struct sl_kv_answer;
struct sl_kv_handler;
struct sl_kv_token;
struct sl_process_options;
struct sl_reason;
struct sl_run;

/* Adds to the options what the settings ask for beside the servers (objects/). Errors, with a
 * reason: INVALID, NO_MEMORY. */
typedef int sl_ps_run_extend_fn(const struct sl_run *run, struct sl_process_options *options,
                                struct sl_reason *reason);

/* Runs this process as a server or a scheduler, with the flags of argv and the environment: see
 * sl_kv_serve. Messages begin with the base name of argv[0]. Main thread. Returns the exit
 * status. extend: NULL: --objects is refused. */
int sl_ps_run(int argc, char **argv, const struct sl_kv_handler *handler,
              sl_ps_run_extend_fn *extend);

/* As sl_kv_reply. Any thread. */
void sl_ps_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer);

#endif
