/* End signals ask a program to end in good order: SIGINT, SIGTERM, and SIGHUP, which a closed
 * terminal sends and which counts as SIGTERM. A SIGHUP that the program's parent ignores (nohup)
 * stays ignored. SIGHUP asks a service to read files again instead. Programs only, at start; no
 * allocation. */
#ifndef SL_CORE_END_SIGNALS_H
#define SL_CORE_END_SIGNALS_H

#include <signal.h>

#include "core/reason.h"

/* Makes this program a service: SIGHUP is no end signal, ignored or not; a thread of its own calls
 * `reload` for each. Blocks the signal in the calling thread: of the main thread, before the
 * functions below and before other threads, once. Errors: IO, with a log line: no thread. */
int sl_end_signals_reload_at_hangup(void (*reload)(void));

/* Adds the end signals to an initialized set. */
void sl_end_signals_add(sigset_t *set);

/* Blocks or unblocks the end signals in the calling thread, and returns them. how: SIG_BLOCK or
 * SIG_UNBLOCK. */
sigset_t sl_end_signals_mask(int how);

/* Calls `handler` for each end signal; flags: as of sigaction. */
void sl_end_signals_catch(void (*handler)(int number), int flags);

/* Of a caller that has blocked the end signals, and removes its unfinished files before it lets
 * them through. 0: none has come; else CANCELLED, with a reason. */
int sl_end_signals_check(struct sl_reason *reason);

/* Returns SIGTERM for SIGHUP, and other numbers as they are. Async-signal-safe. */
int sl_end_signals_number(int number);

#endif
