/* The server program as a function. */
#ifndef SL_PS_RUN_H
#define SL_PS_RUN_H

#include <stdint.h>

struct sl_kv_answer;
struct sl_kv_handler;
struct sl_kv_token;
struct sl_process;
struct sl_process_options;
struct sl_reason;
struct sl_run;

/* Adds to the options what the settings ask for beside the servers (objects/), or sets up the log
 * of a process with an embedding. Errors, with a reason: INVALID, NO_MEMORY. */
typedef int sl_ps_run_extend_fn(const struct sl_run *run, struct sl_process_options *options,
                                struct sl_reason *reason);

/* As struct sl_process_embedding. */
struct sl_ps_embedding {
    int fd;
    void (*woken)(void *ctx, struct sl_process *process);
    void (*registered)(void *ctx, uint32_t task_index);
    void *ctx;
    struct sl_reason *reason; /* result, beside an error that is not logged */
    int err;                  /* result: why the process could not start; 0: it did */
};

struct sl_ps_run_options {
    int argc;
    char **argv;
    const char *const *variables; /* that count in place of the environment's: struct sl_cli */
    const struct sl_kv_handler *handler; /* as struct sl_shard_options.kv_handler */
    sl_ps_run_extend_fn *extend;         /* NULL: nothing */
    struct sl_ps_embedding *embedding;   /* NULL: this process is the server */
};

/* Runs this process as a server or a scheduler: see sl_kv_serve. Messages begin with the base name
 * of argv[0]. Main thread, or with an embedding any thread. Returns the exit status. */
int sl_ps_run(const struct sl_ps_run_options *options);

/* As sl_kv_reply. Any thread. */
void sl_ps_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer);

/* As sl_process_embedding_stop, and _handle. */
void sl_ps_stop(struct sl_process *process);
void sl_ps_handle(struct sl_process *process, const struct sl_kv_handler *handler);

#endif
