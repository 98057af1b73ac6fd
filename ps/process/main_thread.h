/* The main thread, which sleeps until a mail of a reactor or a signal arrives. */
#ifndef SL_PS_PROCESS_MAIN_THREAD_H
#define SL_PS_PROCESS_MAIN_THREAD_H

#include "ps/process/state.h"

/* Any thread. */
const char *sl_process_signal_name(int signal);

/* Blocks SIGTERM and SIGINT, and delivers them through signal_fd; with an embedding, signal_fd
 * wakes it. Main thread. Errors: IO. */
int sl_process_block_signals(struct sl_process *process);

/* Reports to the main thread that its request is done, or that something failed. The core's
 * reactor. */
void sl_process_answer(struct sl_process_core *core, int result);

/* Posts a mail with the core as its context. Main thread. */
void sl_process_post(struct sl_process_core *core, sl_mail_fn *run, uint64_t a);

/* Sleeps until a mail or a signal arrives, and handles it. Main thread. */
void sl_process_wait_once(struct sl_process *process);

#endif
