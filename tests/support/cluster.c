#include "tests/support/cluster.h"
#include "ps/process/state.h"

#include <dirent.h>
#include <netinet/in.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/assert.h"
#include "net/shm/shm.h"
#include "ps/agent/agent.h"
#include "ps/coordinator/coordinator.h"
#include "ps/server/server.h"
#include "tests/support/free_port.h"
#include "tests/support/patience.h"

struct ps;

/* A reactor with its server. */
struct core {
    struct ps *ps;
    uint32_t local_index;
    struct sl_reactor *reactor;
    sem_t paused, resume;
};

struct ps {
    struct sl_cluster *cluster;
    uint32_t task_index;
    uint32_t start_count; /* tells its incarnations apart */
    bool stopped;
    struct core *cores;
    struct sl_server **servers;
    struct sl_reactor **reactors;
    struct sl_coordinator *coordinator; /* of ps 0 */
    struct sl_endpoint bound;           /* of the same port after each start */
    char host[SL_SHM_HOST_BYTES];

    struct sl_agent *member; /* on reactor 0 */
    uint32_t numbered;       /* shards that know their number; under the cluster's lock */
};

struct sl_cluster {
    struct sl_cluster_options options;
    struct ps *ps;
    char coordinator[64];
    struct sl_endpoint coordinator_endpoint;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* some ps's `numbered` */
};

struct errand {
    void (*run)(struct core *core);
    struct core *core;
    sem_t done;
};

static void run_errand(void *ctx, uint64_t a, uint64_t b)
{
    struct errand *errand = ctx;
    errand->run(errand->core);
    sem_post(&errand->done);
}

static void post(struct core *core, struct sl_mail mail)
{
    struct sl_mailbox_lane *lane;
    int err = sl_mailbox_lane_open(sl_reactor_mailbox(core->reactor), &lane);
    sl_assert(err == 0);
    err = sl_mailbox_post(lane, mail);
    sl_assert(err == 0);
    sl_mailbox_lane_close(&lane);
}

static void run_on(struct core *core, void (*run)(struct core *core))
{
    struct errand errand = {.run = run, .core = core};
    sem_init(&errand.done, 0, 0);
    post(core, (struct sl_mail){.run = run_errand, .ctx = &errand});
    while (sem_wait(&errand.done) != 0) {
    }
    sem_destroy(&errand.done);
}

/* What a killed process has yet to say stays unsaid. */
static _Thread_local bool is_mute;

static uint32_t send_unless_mute(struct sl_conn *conn, const struct sl_transport_frame *frames,
                                 uint32_t count)
{
    return is_mute ? 0 : sl_builtin_find(SL_ENDPOINT_TCP)->send_burst(conn, frames, count);
}

static struct sl_transport_ops link_ops;
static pthread_once_t link_ops_once = PTHREAD_ONCE_INIT; /* clusters may be several */

static void make_link_ops(void)
{
    link_ops = *sl_builtin_find(SL_ENDPOINT_TCP);
    link_ops.send_burst = send_unless_mute;
    link_ops.send_now = NULL;
}

static uint64_t incarnation_of(const struct ps *ps)
{
    return 1000 * (ps->task_index + 1) + ps->start_count;
}

static int create_server(void *ctx)
{
    struct core *core = ctx;
    struct ps *ps = core->ps;
    const struct sl_server_options options = {
        .reactor = core->reactor,
        .transports = {.first = sl_builtin_find(SL_ENDPOINT_TCP),
                       .shm = ps->cluster->options.shm ? sl_builtin_find(SL_ENDPOINT_SHM) : NULL},
        .shard.memory_bytes_max = (size_t)ps->cluster->options.memory_bytes_max,
        .task_index = ps->task_index,
        .local_index = core->local_index,
        .servers = ps->servers,
        .server_count = ps->cluster->options.shards_of_ps,
        .coordinator = core->local_index == 0 ? ps->coordinator : NULL,
        .coordinator_ops = &sl_process_coordinator_ops,
        .incarnation = incarnation_of(ps),
    };
    int err = sl_server_create(&options, &ps->servers[core->local_index]);
    return err;
}

static void destroy_server(void *ctx)
{
    struct core *core = ctx;
    struct ps *ps = core->ps;
    if (core->local_index == 0) {
        is_mute = true;
        sl_agent_close(&ps->member);
    }
    sl_server_destroy(&ps->servers[core->local_index]);
}

static void listen_near(struct ps *ps)
{
    if (ps->cluster->options.shm && !ps->cluster->options.shm_is_deaf) {
        struct sl_endpoint near = ps->bound, bound;
        near.scheme = SL_ENDPOINT_SHM;
        int err = sl_server_listen(ps->servers[0], &near, &bound);
        sl_assert(err == 0);
    }
}

/* A ps that is started again listens on its preferred path first, because clients try that path
 * first. */
static void listen_on_loopback(struct core *core)
{
    struct ps *ps = core->ps;
    struct sl_endpoint endpoint = {
        .scheme = SL_ENDPOINT_TCP, .host = "127.0.0.1", .port = ps->bound.port};
    bool is_again = ps->start_count > 1;
    if (is_again) {
        listen_near(ps);
    }
    int err = sl_server_listen(ps->servers[0], &endpoint, &ps->bound);
    sl_assert(err == 0);
    if (!is_again) {
        listen_near(ps);
    }
}

static void number_shard(void *ctx, uint64_t first_shard, uint64_t shard_count)
{
    struct core *core = ctx;
    struct ps *ps = core->ps;
    int err = sl_server_set_shard(ps->servers[core->local_index],
                                  (uint32_t)first_shard + core->local_index, (uint32_t)shard_count);
    sl_assert(err == 0);
    struct sl_cluster *cluster = ps->cluster;
    pthread_mutex_lock(&cluster->lock);
    ps->numbered++;
    pthread_cond_signal(&cluster->changed);
    pthread_mutex_unlock(&cluster->lock);
}

/* Runs the mail on every reactor of the process; called on its reactor 0. */
static void run_on_all(struct ps *ps, struct sl_mail mail)
{
    for (uint32_t i = 0; i < ps->cluster->options.shards_of_ps; i++) {
        mail.ctx = &ps->cores[i];
        if (i == 0) {
            mail.run(mail.ctx, mail.a, mail.b);
        } else {
            sl_reactor_post(ps->cores[0].reactor, i, mail);
        }
    }
}

static void joined(void *ctx, uint32_t first_shard, uint32_t shard_count, uint64_t lease_ns)
{
    (void)lease_ns; /* the servers have it */
    run_on_all(ctx, (struct sl_mail){.run = number_shard, .a = first_shard, .b = shard_count});
}

static void join_failed(void *ctx, int err)
{
    (void)err; /* the test stopped the cluster before it was whole */
}

static void lose_worker(void *ctx, uint64_t task_index, uint64_t client_id)
{
    const struct core *core = ctx;
    const struct sl_message_expired lost = {
        .role = SL_MESSAGE_ROLE_WORKER,
        .task_index = (uint32_t)task_index,
        .client_id = client_id,
        .why = "the coordinator says so",
    };
    sl_server_on_expired(core->ps->servers[core->local_index], &lost);
}

static void lost(void *ctx, const struct sl_message_expired *who)
{
    run_on_all(ctx,
               (struct sl_mail){.run = lose_worker, .a = who->task_index, .b = who->client_id});
}

static void join_cluster(struct core *core)
{
    struct ps *ps = core->ps;
    if (ps->cluster->options.shm) {
        sl_shm_host(ps->host);
    }
    const struct sl_agent_options options = {
        .reactor = core->reactor,
        .transport = &link_ops,
        .coordinator = ps->cluster->coordinator_endpoint,
        .task_index = ps->task_index,
        .shard_count = ps->cluster->options.shards_of_ps,
        .data = ps->bound,
        .host = ps->host,
        .incarnation = incarnation_of(ps),
        .start_timeout_ns = SL_TEST_PATIENCE_NS,
        .events = {.joined = joined, .failed = join_failed, .expired = lost},
        .ctx = ps,
    };
    int err = sl_agent_open(&options, &ps->member);
    sl_assert(err == 0);
}

static void make_coordinator(struct ps *ps)
{
    const struct sl_cluster_options *options = &ps->cluster->options;
    const struct sl_coordinator_options coordinator = {
        .ps_count = options->ps_expected == 0 ? options->ps_count : options->ps_expected,
        .worker_count = options->worker_count,
        .waiting_interval_ns = SL_CLOCK_NS_PER_MS, /* as often as the server looks */
        .send = sl_server_send_to_peer,
        .close = sl_server_close_peer,
    };
    int err = sl_coordinator_create(&coordinator, &ps->coordinator);
    sl_assert(err == 0);
}

static void make_core(struct ps *ps, uint32_t index)
{
    struct core *core = &ps->cores[index];
    *core = (struct core){.ps = ps, .local_index = index};
    sem_init(&core->paused, 0, 0);
    sem_init(&core->resume, 0, 0);
    struct sl_reactor_options options = {.index = index, .core = -1};
    snprintf(options.name, sizeof options.name, "ps%u.%u", ps->task_index, index);
    int err = sl_reactor_create(&options, &core->reactor);
    sl_assert(err == 0);
    ps->reactors[index] = core->reactor;
    sl_reactor_on_stop(core->reactor, destroy_server, core);
}

static void start_ps(struct sl_cluster *cluster, uint32_t task_index)
{
    struct ps *ps = &cluster->ps[task_index];
    uint32_t count = cluster->options.shards_of_ps;
    *ps = (struct ps){.cluster = cluster,
                      .task_index = task_index,
                      .start_count = ps->start_count + 1,
                      .bound = ps->bound};
    ps->cores = calloc(count, sizeof *ps->cores);
    ps->servers = calloc(count, sizeof(struct sl_server *));
    ps->reactors = calloc(count, sizeof(struct sl_reactor *));
    sl_assert(ps->cores != NULL && ps->servers != NULL && ps->reactors != NULL);
    if (task_index == 0) {
        make_coordinator(ps);
    }
    for (uint32_t i = 0; i < count; i++) {
        make_core(ps, i);
    }
    int err = sl_reactor_connect(ps->reactors, count);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_reactor_start(ps->reactors[i], create_server, &ps->cores[i]);
    }
    sl_assert(err == 0);
    run_on(&ps->cores[0], listen_on_loopback);
    if (task_index == 0) {
        cluster->coordinator_endpoint = ps->bound;
        snprintf(cluster->coordinator, sizeof cluster->coordinator, "127.0.0.1:%u", ps->bound.port);
    }
    run_on(&ps->cores[0], join_cluster);
}

static void wait_numbered(struct sl_cluster *cluster, const struct ps *ps)
{
    pthread_mutex_lock(&cluster->lock);
    while (ps->numbered < cluster->options.shards_of_ps) {
        pthread_cond_wait(&cluster->changed, &cluster->lock);
    }
    pthread_mutex_unlock(&cluster->lock);
}

struct sl_cluster *sl_cluster_start(const struct sl_cluster_options *options)
{
    struct sl_cluster *cluster = calloc(1, sizeof *cluster);
    sl_assert(cluster != NULL);
    cluster->options = *options;
    pthread_once(&link_ops_once, make_link_ops);
    pthread_mutex_init(&cluster->lock, NULL);
    pthread_cond_init(&cluster->changed, NULL);
    cluster->ps = calloc(options->ps_count, sizeof *cluster->ps);
    sl_assert(cluster->ps != NULL);
    for (uint32_t i = 0; i < options->ps_count; i++) {
        cluster->ps[i].bound.port = free_port();
        start_ps(cluster, i);
    }
    for (uint32_t i = 0; options->ps_expected <= options->ps_count && i < options->ps_count; i++) {
        wait_numbered(cluster, &cluster->ps[i]);
    }
    return cluster;
}

static void free_ps(struct ps *ps)
{
    for (uint32_t i = 0; i < ps->cluster->options.shards_of_ps; i++) {
        sl_reactor_destroy(&ps->reactors[i]);
        sem_destroy(&ps->cores[i].paused);
        sem_destroy(&ps->cores[i].resume);
    }
    if (ps->coordinator != NULL) {
        sl_coordinator_destroy(&ps->coordinator);
    }
    free(ps->cores);
    free(ps->servers);
    free(ps->reactors);
}

void sl_cluster_kill(struct sl_cluster *cluster, uint32_t ps)
{
    struct ps *victim = &cluster->ps[ps];
    if (victim->stopped) {
        return;
    }
    victim->stopped = true;
    for (uint32_t i = 0; i < cluster->options.shards_of_ps; i++) {
        sl_reactor_stop(victim->reactors[i]);
    }
    for (uint32_t i = 0; i < cluster->options.shards_of_ps; i++) {
        sl_reactor_join(victim->reactors[i]);
    }
    free_ps(victim);
}

void sl_cluster_restart(struct sl_cluster *cluster, uint32_t ps)
{
    sl_cluster_kill(cluster, ps);
    start_ps(cluster, ps);
    wait_numbered(cluster, &cluster->ps[ps]);
}

void sl_cluster_stop(struct sl_cluster **cluster)
{
    struct sl_cluster *gone = *cluster;
    *cluster = NULL;
    for (uint32_t i = gone->options.ps_count; i > 0; i--) {
        sl_cluster_kill(gone, i - 1);
    }
    pthread_cond_destroy(&gone->changed);
    pthread_mutex_destroy(&gone->lock);
    free(gone->ps);
    free(gone);
}

const char *sl_cluster_coordinator(const struct sl_cluster *cluster)
{
    return cluster->coordinator;
}

static void wait_for_resume(void *ctx, uint64_t a, uint64_t b)
{
    struct core *core = ctx;
    sem_post(&core->paused);
    while (sem_wait(&core->resume) != 0) {
    }
}

void sl_cluster_pause(struct sl_cluster *cluster, uint32_t ps)
{
    struct core *cores = cluster->ps[ps].cores;
    for (uint32_t i = 0; i < cluster->options.shards_of_ps; i++) {
        post(&cores[i], (struct sl_mail){.run = wait_for_resume, .ctx = &cores[i]});
    }
    for (uint32_t i = 0; i < cluster->options.shards_of_ps; i++) {
        while (sem_wait(&cores[i].paused) != 0) {
        }
    }
}

void sl_cluster_resume(struct sl_cluster *cluster, uint32_t ps)
{
    for (uint32_t i = 0; i < cluster->options.shards_of_ps; i++) {
        sem_post(&cluster->ps[ps].cores[i].resume);
    }
}

/* Shared memory is reached by sockets with names of their own, which end like this. */
static bool is_name_of(const struct sockaddr_un *address, socklen_t bytes, uint16_t port)
{
    char name[sizeof address->sun_path + 1] = "", end[16];
    size_t name_bytes = bytes - offsetof(struct sockaddr_un, sun_path);
    if (name_bytes <= 1) {
        return false;
    }
    memcpy(name, address->sun_path + 1, name_bytes - 1); /* behind the NUL of abstract names */
    int end_bytes = snprintf(end, sizeof end, ":%u", port);
    size_t length = strlen(name);
    return length > (size_t)end_bytes && strcmp(name + length - (size_t)end_bytes, end) == 0;
}

/* Whether the descriptor is a connection that a listener at the port has accepted. */
static bool is_connection_to(int fd, uint16_t port)
{
    union {
        struct sockaddr any;
        struct sockaddr_in in;
        struct sockaddr_un un;
    } address;
    socklen_t bytes = sizeof address;
    int listens = 0;
    socklen_t listens_bytes = sizeof listens;
    if (getsockname(fd, &address.any, &bytes) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) != 0 || listens != 0) {
        return false;
    }
    return address.any.sa_family == AF_INET   ? ntohs(address.in.sin_port) == port
           : address.any.sa_family == AF_UNIX ? is_name_of(&address.un, bytes, port)
                                              : false;
}

void sl_cluster_cut(struct sl_cluster *cluster, uint32_t ps)
{
    /* Held still, the process closes none of its descriptors: none can become another's. */
    sl_cluster_pause(cluster, ps);
    DIR *descriptors = opendir("/proc/self/fd");
    sl_assert(descriptors != NULL);
    for (struct dirent *entry; (entry = readdir(descriptors)) != NULL;) {
        int fd = atoi(entry->d_name);
        if (is_connection_to(fd, cluster->ps[ps].bound.port)) {
            (void)shutdown(fd, SHUT_RDWR);
        }
    }
    (void)closedir(descriptors);
    sl_cluster_resume(cluster, ps);
}
