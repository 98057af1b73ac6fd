#include "ps/process.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/shm/shm.h"
#include "ps/coordinator.h"
#include "ps/member.h"
#include "ps/server.h"
#include "reactor/topology.h"

/* How long an idle reactor spins: about what waking it up would cost. */
#define SPIN_US             50

/* A Waiting must come well before the deadline that it explains. */
#define WAITING_INTERVAL_NS (2 * SL_CLOCK_NS_PER_S)

struct process;

/* One reactor, with its server. Its thread's, but for what is set before start. */
struct process_core {
    struct process *process;
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_server *server;
    struct sl_mailbox_lane *to_core; /* the main thread's */
    struct sl_mailbox_lane *to_main; /* the reactor's */
    struct sl_message_stats stats;   /* written when it stops, read after join */
};

struct process {
    struct sl_process_options options;
    uint64_t incarnation;
    struct process_core *cores;
    struct sl_reactor **reactors;
    struct sl_server **servers;
    uint32_t created_count; /* of reactors */
    uint32_t started_count;
    struct sl_coordinator *coordinator;
    struct sl_endpoint bound_control, bound_data;
    char host[SL_SHM_HOST_BYTES]; /* "": nobody comes through shared memory */

    /* Reactor 0's; the numbers are read by others after the mail that says they are there. */
    struct sl_member *member;
    uint32_t first_shard, shard_count;
    uint64_t lease_ns;

    struct sl_mailbox *mailbox; /* the main thread's */
    int signal_fd;
    int signal;              /* that arrived; 0: none */
    uint32_t answers_wanted; /* from cores */
    int result;              /* the first error that a core reported */
};

/* ---- On the reactors ------------------------------------------------------------------------- */

static void on_answer(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct process *process = ctx;
    process->answers_wanted--;
}

static void on_failure(void *ctx, uint64_t a, uint64_t b)
{
    (void)b;
    struct process *process = ctx;
    process->result = process->result == 0 ? (int)(int64_t)a : process->result;
}

/* Reports to the main thread that what it asked for is done, or that something failed. */
static void report(struct process_core *core, int result)
{
    int err =
        sl_mailbox_post(core->to_main, (struct sl_mail){.run = result == 0 ? on_answer : on_failure,
                                                        .ctx = core->process,
                                                        .a = (uint64_t)(int64_t)result});
    sl_assert(err == 0); /* a core has at most a few things to say */
}

static int core_start(void *ctx)
{
    struct process_core *core = ctx;
    struct process *process = core->process;
    const struct sl_process_options *options = &process->options;
    const bool only_shm = options->data.scheme == SL_ENDPOINT_SHM;
    struct sl_server_options server = {
        .reactor = core->reactor,
        .transport = sl_transport_find(only_shm ? options->control.scheme : options->data.scheme),
        .local = only_shm || options->shm ? sl_transport_find(SL_ENDPOINT_SHM) : NULL,
        .transport_options = {.congestion_control = options->congestion_control,
                              .tls = options->tls},
        .shard = {.memory_bytes_max = options->memory_bytes_max / options->reactor_count},
        .task_index = options->task_index,
        .local_index = core->index,
        .servers = process->servers,
        .server_count = options->reactor_count,
        .coordinator = core->index == 0 ? process->coordinator : NULL,
        .checksum = options->checksum,
        .secret = options->secret,
        .incarnation = process->incarnation,
    };
    int err = sl_server_create(&server, &core->server);
    process->servers[core->index] = core->server;
    return err;
}

static void core_stop(void *ctx)
{
    struct process_core *core = ctx;
    if (core->index == 0) {
        sl_member_close(&core->process->member);
    }
    if (sl_server_stats(core->server, &core->stats) != 0) {
        sl_log_warn("no memory for the totals of %s", sl_reactor_name(core->reactor));
    }
    sl_server_destroy(&core->server);
}

static bool same_endpoint(const struct sl_endpoint *a, const struct sl_endpoint *b)
{
    return a->scheme == b->scheme && a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* Its reactor knows which shard it has: the last step of the start. */
static void core_set_shard(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct process_core *core = ctx;
    const struct process *process = core->process;
    if (process->lease_ns != 0) {
        sl_server_set_lease(core->server, process->lease_ns);
    }
    report(core, sl_server_set_shard(core->server, process->first_shard + core->index,
                                     process->shard_count));
}

/* Reactor 0 tells the others, and itself, in its own order: nobody hears of a loss before he knows
 * his shard. */
static void on_joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    struct process *process = ctx;
    process->first_shard = first_shard;
    process->shard_count = shard_count;
    process->lease_ns = lease_ns;
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        sl_reactor_post(process->reactors[0], i,
                        (struct sl_mail){.run = core_set_shard, .ctx = &process->cores[i]});
    }
}

static void on_join_failed(void *ctx, int err)
{
    report(&((struct process *)ctx)->cores[0], err);
}

struct loss {
    struct sl_server *server;
    struct sl_message_lost lost;
};

static void core_lost(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct loss *loss = ctx;
    sl_server_lost(loss->server, &loss->lost);
    free(loss);
}

static void on_lost(void *ctx, const struct sl_message_lost *lost)
{
    struct process *process = ctx;
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        struct loss *loss = malloc(sizeof *loss);
        if (loss == NULL) {
            sl_log_error("no memory to tell shard %u that worker/%u is lost", i, lost->task_index);
            continue; /* its session there ends by its own lease */
        }
        *loss = (struct loss){.server = process->servers[i], .lost = *lost};
        sl_reactor_post(process->reactors[0], i,
                        (struct sl_mail){.run = core_lost, .ctx = loss, .drop = free});
    }
}

static int join(struct process *process)
{
    const struct sl_process_options *options = &process->options;
    const struct sl_member_options member = {
        .reactor = process->reactors[0],
        .transport = sl_transport_find(options->coordinator.scheme),
        .transport_options = {.congestion_control = options->congestion_control,
                              .tls = options->tls},
        .coordinator = options->coordinator,
        .task_index = options->task_index,
        .shard_count = options->reactor_count,
        .ps_count = options->ps_count,
        .worker_count = options->worker_count,
        .data = options->data,
        .host = process->host,
        .incarnation = process->incarnation,
        .secret = options->secret,
        .checksum = options->checksum,
        .start_timeout_ns = options->start_timeout_ns,
        .joined = on_joined,
        .failed = on_join_failed,
        .lost = on_lost,
        .ctx = process,
    };
    return sl_member_open(&member, &process->member);
}

/* Where workers of this host come through shared memory: at the data endpoint's own address, which
 * they know already. Without that they come as all others do. */
static void listen_near(struct process_core *core)
{
    struct process *process = core->process;
    const struct sl_process_options *options = &process->options;
    if (options->data.scheme != SL_ENDPOINT_SHM) {
        if (!options->shm) {
            return;
        }
        struct sl_endpoint near = options->data;
        near.scheme = SL_ENDPOINT_SHM;
        near.port = process->bound_data.port;
        int err = sl_server_listen(core->server, &near, NULL);
        if (err != 0) {
            char text[SL_LIMIT_ENDPOINT_BYTES];
            sl_endpoint_format(&near, text, sizeof text);
            sl_log_warn("%s: %s: workers of this host come by the network", text, sl_err_name(err));
            return;
        }
    }
    sl_shm_host(process->host);
}

/* Reactor 0: listens, and joins the cluster; each core answers when it knows its shard. */
static void core_join(void *ctx, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct process_core *core = ctx;
    struct process *process = core->process;
    const struct sl_process_options *options = &process->options;
    int err = sl_server_listen(core->server, &options->control, &process->bound_control);
    process->bound_data = process->bound_control;
    if (err == 0 && !same_endpoint(&options->control, &options->data)) {
        err = sl_server_listen(core->server, &options->data, &process->bound_data);
    }
    if (err == 0) {
        listen_near(core);
        err = join(process);
    }
    if (err != 0) {
        report(core, err);
    }
}

static void core_drained(void *ctx)
{
    report(ctx, 0);
}

static void core_drain(void *ctx, uint64_t a, uint64_t b)
{
    (void)b;
    struct process_core *core = ctx;
    if (core->index == 0) {
        sl_member_leave(core->process->member);
    }
    sl_server_drain(core->server, a, core_drained, core);
}

/* ---- On the main thread ---------------------------------------------------------------------- */

static void post(struct process_core *core, sl_mail_fn *run, uint64_t a)
{
    int err = sl_mailbox_post(core->to_core, (struct sl_mail){.run = run, .ctx = core, .a = a});
    sl_assert(err == 0); /* the main thread posts a few mails in a process's life */
}

static void take_signal(struct process *process)
{
    struct signalfd_siginfo info;
    if (read(process->signal_fd, &info, sizeof info) != (ssize_t)sizeof info) {
        return;
    }
    if (process->signal != 0) {
        _exit(128 + (int)info.ssi_signo);
    }
    process->signal = (int)info.ssi_signo;
}

/* Sleeps until a mail or a signal has come, and sees to them. */
static void wait_once(struct process *process)
{
    struct pollfd fds[] = {
        {.fd = process->signal_fd, .events = POLLIN},
        {.fd = sl_mailbox_fd(process->mailbox), .events = POLLIN},
    };
    if (sl_mailbox_arm(process->mailbox)) {
        (void)poll(fds, 2, -1);
    }
    sl_mailbox_disarm(process->mailbox);
    (void)sl_mailbox_drain(process->mailbox, UINT32_MAX);
    if ((fds[0].revents & POLLIN) != 0) {
        take_signal(process);
    }
}

/* Waits for the answers of the cores. Errors: theirs, or CANCELLED when a signal came first. */
static int wait_answers(struct process *process)
{
    while (process->answers_wanted > 0 && process->signal == 0 && process->result == 0) {
        wait_once(process);
    }
    return process->result != 0 ? process->result : process->signal != 0 ? SL_ERR_CANCELLED : 0;
}

static int block_signals(struct process *process)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN); /* a reader of our output that is gone shall not end us */
    process->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return process->signal_fd < 0 ? SL_ERR_IO : 0;
}

/* A connection is a descriptor: the system's customary 1024 would be few. */
static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int create_core(struct process *process, uint32_t index)
{
    const struct sl_process_options *options = &process->options;
    struct process_core *core = &process->cores[index];
    struct sl_reactor_options reactor = {
        .index = index,
        .core = -1,
        .polling = options->polling,
        .spin_us = SPIN_US,
    };
    (void)snprintf(reactor.name, sizeof reactor.name, "ps%u.%u", options->task_index, index);
    if (options->pin && sl_topology_core_for(index, false, &reactor.core) != 0) {
        sl_log_warn("reactor %u is not pinned: there are %u cores", index,
                    sl_topology_core_count());
        reactor.core = -1;
    }
    core->process = process;
    core->index = index;
    int err = sl_reactor_create(&reactor, &core->reactor);
    if (err != 0) {
        return err;
    }
    process->reactors[index] = core->reactor;
    process->created_count++;
    sl_reactor_on_stop(core->reactor, core_stop, core);
    err = sl_mailbox_lane_open(sl_reactor_mailbox(core->reactor), &core->to_core);
    return err != 0 ? err : sl_mailbox_lane_open(process->mailbox, &core->to_main);
}

static int create_coordinator(struct process *process)
{
    const struct sl_process_options *options = &process->options;
    if (options->task_index != 0) {
        return 0;
    }
    uint64_t half = options->start_timeout_ns / 2;
    struct sl_coordinator_options coordinator = {
        .ps_count = options->ps_count,
        .worker_count = options->worker_count,
        .waiting_interval_ns = half < WAITING_INTERVAL_NS ? half : WAITING_INTERVAL_NS,
        .lease_ns = options->lease_ns,
        .send = sl_server_send_to_peer,
        .close = sl_server_close_peer,
    };
    return sl_coordinator_create(&coordinator, &process->coordinator);
}

static int create(struct process *process)
{
    uint32_t count = process->options.reactor_count;
    process->cores = calloc(count, sizeof *process->cores);
    process->reactors = calloc(count, sizeof *process->reactors);
    process->servers = calloc(count, sizeof *process->servers);
    if (process->cores == NULL || process->reactors == NULL || process->servers == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    raise_descriptor_limit();
    int err = block_signals(process);
    if (err == 0) {
        err = sl_mailbox_create(&process->mailbox);
    }
    for (uint32_t i = 0; i < count && err == 0; i++) {
        err = create_core(process, i);
    }
    if (err == 0) {
        err = sl_reactor_connect(process->reactors, count);
        process->incarnation = sl_reactor_random(process->reactors[0]);
    }
    return err != 0 ? err : create_coordinator(process);
}

static int start(struct process *process)
{
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        int err = sl_reactor_start(process->reactors[i], core_start, &process->cores[i]);
        if (err != 0) {
            return err;
        }
        process->started_count++;
    }
    process->answers_wanted = process->options.reactor_count;
    post(&process->cores[0], core_join, 0);
    return wait_answers(process);
}

static void print_ready(const struct process *process)
{
    char control[SL_LIMIT_ENDPOINT_BYTES];
    char data[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&process->bound_control, control, sizeof control);
    sl_endpoint_format(&process->bound_data, data, sizeof data);
    (void)printf("ps/%u ready: control %s, data %s, shards %u-%u of %u\n",
                 process->options.task_index, control, data, process->first_shard,
                 process->first_shard + process->options.reactor_count - 1, process->shard_count);
    (void)fflush(stdout);
}

/* Lets the servers answer what they have; a second signal ends the process meanwhile. */
static void drain(struct process *process)
{
    sl_log_info("%s: draining", process->signal == 0        ? "no longer a member"
                                : process->signal == SIGINT ? "SIGINT"
                                                            : "SIGTERM");
    process->answers_wanted = process->options.reactor_count;
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        post(&process->cores[i], core_drain, process->options.drain_timeout_ns);
    }
    while (process->answers_wanted > 0) {
        wait_once(process);
    }
}

/* Rows of one table over all shards, "emb 1000"; each table once. */
static void print_tables(const struct process *process)
{
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        const struct sl_message_stats *stats = &process->cores[i].stats;
        for (uint32_t t = 0; i == 0 && t < stats->table_count; t++) {
            uint64_t rows = 0;
            for (uint32_t k = 0; k < process->options.reactor_count; k++) {
                const struct sl_message_stats *other = &process->cores[k].stats;
                for (uint32_t u = 0; u < other->table_count; u++) {
                    bool same = strcmp(other->tables[u].name, stats->tables[t].name) == 0;
                    rows += same ? other->tables[u].rows : 0;
                }
            }
            (void)printf(", %s %" PRIu64 " rows", stats->tables[t].name, rows);
        }
    }
}

static void print_totals(const struct process *process)
{
    struct sl_message_stats total = {0};
    for (uint32_t i = 0; i < process->options.reactor_count; i++) {
        const struct sl_message_stats *stats = &process->cores[i].stats;
        total.requests += stats->requests;
        total.bytes_in += stats->bytes_in;
        total.bytes_out += stats->bytes_out;
        total.stalls += stats->stalls;
    }
    (void)printf("ps/%u done: %" PRIu64 " requests, %" PRIu64 " bytes in, %" PRIu64
                 " bytes out, %" PRIu64 " stalls",
                 process->options.task_index, total.requests, total.bytes_in, total.bytes_out,
                 total.stalls);
    print_tables(process);
    (void)printf("\n");
    (void)fflush(stdout);
}

/* Reactor 0 hands connections to the others: it stops first. */
static void stop(struct process *process)
{
    for (uint32_t i = 0; i < process->started_count; i++) {
        sl_reactor_stop(process->reactors[i]);
        sl_reactor_join(process->reactors[i]);
    }
}

static void destroy(struct process *process)
{
    for (uint32_t i = 0; process->cores != NULL && i < process->options.reactor_count; i++) {
        struct process_core *core = &process->cores[i];
        if (core->to_core != NULL) {
            sl_mailbox_lane_close(&core->to_core);
        }
        if (core->to_main != NULL) {
            sl_mailbox_lane_close(&core->to_main);
        }
        struct sl_message stats = {.kind = SL_MESSAGE_STATS, .stats = core->stats};
        sl_message_fini(&stats);
    }
    for (uint32_t i = 0; i < process->created_count; i++) {
        sl_reactor_destroy(&process->reactors[i]);
    }
    if (process->coordinator != NULL) {
        sl_coordinator_destroy(&process->coordinator);
    }
    if (process->mailbox != NULL) {
        sl_mailbox_destroy(&process->mailbox);
    }
    if (process->signal_fd >= 0) {
        (void)close(process->signal_fd);
    }
    free(process->servers);
    free(process->reactors);
    free(process->cores);
}

int sl_process_run(const struct sl_process_options *options)
{
    sl_assert(options->reactor_count > 0);
    struct process process = {.options = *options, .signal_fd = -1};
    int err = create(&process);
    if (err == 0) {
        err = start(&process);
    }
    bool ready = err == 0;
    bool failed = !ready && process.signal == 0;
    if (ready) {
        print_ready(&process);
        while (process.signal == 0 && process.result == 0) {
            wait_once(&process);
        }
        failed = process.result != 0;
        drain(&process);
    } else if (process.signal != 0) {
        sl_log_info("stopped by a signal before it was ready");
    } else {
        sl_log_error("ps/%u could not start: %s", options->task_index, sl_err_name(err));
    }
    stop(&process);
    if (ready) {
        print_totals(&process);
    }
    destroy(&process);
    return failed ? 1 : 0;
}
