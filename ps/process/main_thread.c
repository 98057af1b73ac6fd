#include "ps/process/main_thread.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/end_signals.h"

/* Signals */

const char *sl_process_signal_name(int signal)
{
    return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

/* Runs on any thread. Writes no core dump, which would be as large as the tables. */
static void main_thread_on_quit(int number)
{
    _exit(128 + number);
}

int sl_process_block_signals(struct sl_process *process)
{
    const struct sl_process_embedding *embedding = process->options.embedding;
    if (embedding != NULL) {
        process->main.signal_fd = fcntl(embedding->fd, F_DUPFD_CLOEXEC, 0);
        return process->main.signal_fd < 0 ? SL_ERR_IO : 0;
    }
    const sigset_t set = sl_end_signals_mask(SIG_BLOCK);
    (void)signal(SIGQUIT, main_thread_on_quit);
    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe on our output must not kill the process */
    (void)signal(SIGXFSZ, SIG_IGN); /* nor must a checkpoint beyond the file size limit */
    process->main.signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return process->main.signal_fd < 0 ? SL_ERR_IO : 0;
}

static void take_signal(struct sl_process *process)
{
    const struct sl_process_embedding *embedding = process->options.embedding;
    if (embedding != NULL) {
        uint64_t count;
        (void)!read(process->main.signal_fd, &count, sizeof count);
        embedding->woken(embedding->ctx, process);
        return;
    }
    struct signalfd_siginfo info;
    if (read(process->main.signal_fd, &info, sizeof info) != (ssize_t)sizeof info) {
        return;
    }
    /* A repeated signal has no effect: control groups, timeout(1) and launchers all send one. */
    process->main.signal = process->main.signal != 0 ? process->main.signal
                                                     : sl_end_signals_number((int)info.ssi_signo);
}

/* Mail */

static void main_thread_on_answer(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ctx;
    process->main.answers_wanted--;
}

static void on_failure(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_process *process = ctx;
    process->main.result = process->main.result == 0 ? (int)(int64_t)a : process->main.result;
}

void sl_process_answer(struct sl_process_core *core, int result)
{
    const struct sl_process_sim_hooks *sim_hooks = core->process->sim_hooks;
    if (sim_hooks != NULL) {
        sim_hooks->answer(sim_hooks->ctx, core->index, result);
        return;
    }
    int err = sl_mailbox_post(
        core->to_main, (struct sl_mail){.run = result == 0 ? main_thread_on_answer : on_failure,
                                        .ctx = core->process,
                                        .a = (uint64_t)(int64_t)result});
    sl_assert(err == 0); /* a core sends only a few answers */
}

void sl_process_post(struct sl_process_core *core, sl_mail_fn *run, uint64_t a)
{
    int err = sl_mailbox_post(core->to_core, (struct sl_mail){.run = run, .ctx = core, .a = a});
    sl_assert(err == 0); /* the main thread sends only a few mails */
}

void sl_process_wait_once(struct sl_process *process)
{
    struct pollfd fds[] = {
        {.fd = process->main.signal_fd, .events = POLLIN},
        {.fd = sl_mailbox_fd(process->main.mailbox), .events = POLLIN},
    };
    if (sl_mailbox_arm(process->main.mailbox)) {
        (void)poll(fds, 2, -1);
    }
    sl_mailbox_disarm(process->main.mailbox);
    (void)sl_mailbox_drain(process->main.mailbox, UINT32_MAX);
    if ((fds[0].revents & POLLIN) != 0) {
        take_signal(process);
    }
}
