/* The load `objects`: publishing and getting versions, beside hashing and READs of the same bytes;
 * versions that many processes get at the same time, each with a limited uplink, beside one
 * process, and beside all of them reading from the origin; views of many readers of an agent; and
 * short versions, of one process or between two agents, beside pulls of one row. Each process is
 * forked, in each turn again: this one has no thread. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <starling.h>
#include <starling_objects.h>

#include "bench/bench.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/staleness.h"
#include "bench/turns.h"
#include "bench/workload.h"
#include "core/hash.h"
#include "core/log.h"
#include "objects/node/node.h"

#define NAME           "model"
#define TIMEOUT_MS     600000
#define READ_BYTES     (1ULL << 20)
#define READS          16 /* of a batch */
#define BATCHES        2  /* in flight */
#define GETTERS_MAX    256

#define SHORTS         200 /* short versions, or pulls of a row, of a turn */
#define SHORTS_MAX     10000
#define SHORT_PAUSE_NS (2 * SL_CLOCK_NS_PER_MS)
#define SETTLE_NS      (100 * SL_CLOCK_NS_PER_MS)

/* CROWD: nodes that follow. VIEWS, SHORT: the first process is the agent of the others. RELAY: the
 * origin is the agent of the last process, which publishes; the first one is that of a reader. */
enum kind {
    PUBLISH,
    HASH,
    GET,
    GET_UNVERIFIED,
    READ,
    FAN_OUT,
    STAR,
    CROWD,
    VIEWS,
    SHORT,
    RELAY,
    PULL
};
#define KIND_CHOICES                                                                               \
    "publish|hash|get|get-unverified|read|fan-out|star|crowd|views|short|relay|pull"
#define RELAY_GETTERS 3

/* Memory that the origin shares with the processes of its turn. It writes the name before it writes
 * the first byte to them, and the rest before the second byte. */
struct board {
    char origin[SL_TRANSFER_NAME_BYTES];
    void *base;       /* of its memory */
    uint64_t open_ns; /* when the version became visible */
    /* Short versions: the begin of the publication, with RELAY of its commit; at the reader. */
    uint64_t begun_ns[SHORTS_MAX + 1], seen_ns[SHORTS_MAX + 1];
    /* Pipes. A byte for the origin: publish; a byte for each getter: READ; look at the memory. */
    int begin[2], read[2], look[2];
};

/* A contestant. */
struct entry {
    enum kind kind;
    uint64_t bytes, rate; /* rate: of each process, bytes per second; 0: no limit */
    uint64_t shorts;      /* versions of a turn */
    uint32_t getters;
    uint32_t index;          /* of the getter that is forked */
    const char *coordinator; /* PULL: of the server */
    struct board *board;
};

/* The times of a getter. */
struct found {
    uint64_t begun_ns, ended_ns;
};

enum { BYTES, TIME, IMAGES, PSS, P50, P99, QUANTITIES };
static const struct sl_bench_quantity quantities[QUANTITIES] = {
    [BYTES] = {"bytes", "B/s"},  [TIME] = {"time", "s"}, [IMAGES] = {"images from the origin", ""},
    [PSS] = {"Pss / bytes", ""}, [P50] = {"p50", "us"},  [P99] = {"p99", "us"}};

/* ---- In processes of a turn ------------------------------------------------------------------ */

/* Ends the process: the parent misses its word. */
static void must(int err, const char *what)
{
    if (err != 0) {
        const char *text = sl_objects_last_error();
        sl_log_error("%s: %s: %s", what, sl_err_name(err),
                     text[0] != '\0' ? text : sl_transfer_last_error());
        _exit(1);
    }
}

static void wait_for_byte(const int *ends)
{
    char byte;
    must(read(ends[0], &byte, 1) == 1 ? 0 : SL_ERR_IO, "pipe");
}

static uint8_t *allocate(uint64_t bytes)
{
    uint8_t *memory = malloc(bytes);
    must(memory != NULL ? 0 : SL_ERR_NO_MEMORY, "memory");
    for (uint64_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
        const uint64_t word = i * 0x9e3779b97f4a7c15ULL;
        memcpy(memory + i, &word, sizeof word);
    }
    return memory;
}

static struct sl_transfer *create_engine(uint64_t rate)
{
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .bytes_per_s_max = rate};
    struct sl_transfer *engine;
    must(sl_transfer_create(&options, &engine), "engine");
    return engine;
}

/* On a host of its own, but for a publisher with an agent. agent: its name, or NULL. */
static struct sl_objects *create_node(struct sl_transfer *engine, const char *catalogue,
                                      const struct entry *entry, const char *agent)
{
    char label[32];
    const bool is_relayed = entry->kind == RELAY && entry->index + 1 == RELAY_GETTERS;
    const bool is_relay = is_relayed || (agent != NULL && strchr(agent, '+') != NULL);
    (void)snprintf(label, sizeof label, "%d", (int)(is_relay ? getppid() : getpid()));
    /* For manifests, and for short versions that become old. */
    const bool is_short = entry->kind == SHORT || entry->kind == RELAY;
    const uint64_t slack = (is_short ? 256 : 8) * (uint64_t)SL_OBJECTS_BLOCK_BYTES;
    const struct sl_objects_setup setup = {.agent = agent,
                                           .trusting = entry->kind == GET_UNVERIFIED};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = engine,
                                               .catalogue = catalogue,
                                               .agent = is_relayed ? NULL : "off",
                                               .host = label,
                                               .pool_bytes = entry->bytes + slack,
                                               .rate_bytes = entry->rate};
    struct sl_objects *node;
    must(sl_objects_create_with(&options, &setup, &node), "node");
    struct sl_object_list *list; /* when it is answered, the node is attached */
    must(sl_object_list(node, NULL, TIMEOUT_MS, &list), "catalogue");
    sl_object_list_free(&list);
    return node;
}

/* commit_ns: the begin of the commit; NULL: of no interest. */
static void publish(struct sl_objects *node, uint8_t *memory, uint64_t bytes,
                    enum sl_object_origin origin, uint64_t *commit_ns)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .origin = origin};
    const struct sl_object_extent extent = {.base = memory, .bytes = bytes};
    struct sl_publication *publication;
    uint64_t version;
    must(sl_publish_begin(node, &options, TIMEOUT_MS, &publication), "begin");
    must(sl_publish_bytes(publication, &extent, 1), "bytes");
    if (commit_ns != NULL) {
        *commit_ns = sl_bench_now_ns();
    }
    must(sl_publish_commit(publication, TIMEOUT_MS, &version), "commit");
    sl_publish_end(&publication);
}

/* READs all of it, some batches in flight. */
static void read_all(struct sl_transfer *engine, struct sl_transfer_segment *segment, uint64_t from,
                     uint8_t *to, uint64_t bytes)
{
    struct sl_transfer_batch *batches[BATCHES];
    for (uint32_t i = 0; i < BATCHES; i++) {
        must(sl_transfer_batch_create(engine, READS, &batches[i]), "batch");
    }
    uint32_t turn = 0;
    for (uint64_t at = 0; at < bytes; turn++) {
        struct sl_transfer_request requests[READS];
        uint32_t count = 0;
        for (; count < READS && at < bytes; count++) {
            const uint64_t length = bytes - at < READ_BYTES ? bytes - at : READ_BYTES;
            requests[count] = (struct sl_transfer_request){.op = SL_TRANSFER_READ,
                                                           .local = to + at,
                                                           .segment = segment,
                                                           .remote = from + at,
                                                           .bytes = length};
            at += length;
        }
        if (turn >= BATCHES) {
            must(sl_transfer_batch_wait(batches[turn % BATCHES]), "READ");
        }
        must(sl_transfer_batch_submit(batches[turn % BATCHES], requests, count, TIMEOUT_MS, NULL),
             "READ");
    }
    for (uint32_t i = 0; i < BATCHES && i < turn; i++) {
        must(sl_transfer_batch_wait(batches[i]), "READ");
    }
}

/* After a first READ, which connects. */
static void read_version(struct sl_transfer *engine, struct sl_transfer_segment *segment,
                         uint64_t from, uint8_t *to, uint64_t bytes, struct found *found)
{
    const struct sl_transfer_memory memory = {.base = to, .bytes = bytes};
    must(sl_transfer_register(engine, &memory, 1), "register");
    read_all(engine, segment, from, to, 1);
    found->begun_ns = sl_bench_now_ns();
    read_all(engine, segment, from, to, bytes);
    found->ended_ns = sl_bench_now_ns();
}

/* Bytes count as sent when the system has said so, which may be after they arrived. */
static uint64_t settled_bytes_sent(void)
{
    uint64_t before, bytes = sl_bench_tcp_bytes_sent();
    do {
        before = bytes;
        sl_bench_sleep_ns(SETTLE_NS);
        bytes = sl_bench_tcp_bytes_sent();
    } while (bytes != before);
    return bytes;
}

static void publish_shorts(const struct entry *entry, struct sl_objects *node, uint8_t *memory)
{
    struct board *board = entry->board;
    for (uint64_t i = 1; i <= entry->shorts; i++) {
        memcpy(memory, &i, sizeof i);
        sl_bench_sleep_ns(SHORT_PAUSE_NS);
        board->begun_ns[i] = sl_bench_now_ns();
        publish(node, memory, entry->bytes, SL_ORIGIN_HOST,
                entry->kind == RELAY ? &board->begun_ns[i] : NULL);
    }
}

/* Publishes short versions at the agent that is the origin. */
static _Noreturn void run_relayed(const struct entry *entry, int to)
{
    struct sl_objects *node = create_node(create_engine(0), entry->board->origin, entry, NULL);
    struct found found = {0};
    sl_bench_fork_tell(to, "", 1);
    wait_for_byte(entry->board->read);
    publish_shorts(entry, node, allocate(entry->bytes));
    sl_bench_fork_tell(to, &found, sizeof found);
    for (;;) {
        (void)pause();
    }
}

/* Hosts the catalogue, publishes when it may, and stays. */
static _Noreturn void run_origin(const struct entry *entry, int to)
{
    struct board *board = entry->board;
    char agent[32];
    (void)snprintf(agent, sizeof agent, "bench+%d", (int)getppid());
    struct sl_transfer *engine = create_engine(entry->kind == STAR ? entry->rate : 0);
    struct sl_objects *node = create_node(engine, NULL, entry, entry->kind == RELAY ? agent : NULL);
    uint8_t *memory = allocate(entry->bytes);
    (void)snprintf(board->origin, sizeof board->origin, "%s", sl_objects_address(node));
    board->base = memory;
    sl_bench_fork_tell(to, "", 1);
    wait_for_byte(board->begin);
    if (entry->kind == RELAY) {
        sl_bench_fork_tell(board->read[1], "", 1);
    } else if (entry->kind == SHORT) {
        publish_shorts(entry, node, memory);
    } else {
        publish(node, memory, entry->bytes, SL_ORIGIN_CALLER, NULL);
    }
    board->open_ns = sl_bench_now_ns();
    sl_bench_fork_tell(to, "", 1);
    wait_for_byte(board->begin);
    const uint64_t bytes = settled_bytes_sent();
    sl_bench_fork_tell(to, &bytes, sizeof bytes);
    for (;;) {
        (void)pause();
    }
}

/* Waits for the version, and gets it. */
static void get(struct sl_objects *node, struct sl_subscription *subscription, uint8_t *memory,
                uint64_t bytes, struct found *found)
{
    const struct sl_object_extent extent = {.base = memory, .bytes = bytes};
    uint64_t version;
    struct sl_get *get;
    must(sl_subscription_wait(subscription, 0, TIMEOUT_MS, &version), "subscription");
    found->begun_ns = sl_bench_now_ns();
    must(sl_get_start(node, NAME, version, &extent, 1, TIMEOUT_MS, &get), "get");
    must(sl_get_wait(get), "get");
    found->ended_ns = sl_bench_now_ns();
    sl_get_close(&get);
}

/* It is a holder, too, until it is killed. */
static _Noreturn void run_getter(const struct entry *entry, int to)
{
    struct board *board = entry->board;
    struct sl_transfer *engine = create_engine(0);
    struct sl_objects *node = create_node(engine, board->origin, entry, NULL);
    struct sl_transfer_segment *segment;
    struct sl_subscription *subscription;
    struct found found = {0};
    uint8_t *memory = allocate(entry->bytes);
    memset(memory, 1, entry->bytes);
    must(sl_transfer_segment_open(engine, board->origin, TIMEOUT_MS, &segment), "segment");
    must(sl_subscription_open(node, NAME, NULL, TIMEOUT_MS, &subscription), "subscription");
    sl_bench_fork_tell(to, "", 1);
    if (entry->kind != STAR && entry->kind != READ) {
        get(node, subscription, memory, entry->bytes, &found);
    } else {
        wait_for_byte(board->read);
        sl_transfer_segment_close(&segment); /* its list of memory is an old one */
        must(sl_transfer_segment_open(engine, board->origin, TIMEOUT_MS, &segment), "segment");
        read_version(engine, segment, (uint64_t)(uintptr_t)board->base, memory, entry->bytes,
                     &found);
    }
    sl_bench_fork_tell(to, &found, sizeof found);
    for (;;) {
        (void)pause();
    }
}

/* A node that fetches each version. */
static _Noreturn void run_follower(const struct entry *entry, int to)
{
    const struct sl_subscribe_options follow = {.struct_size = sizeof follow, .follow = true};
    struct sl_objects *node = create_node(create_engine(0), entry->board->origin, entry, NULL);
    struct sl_subscription *subscription;
    struct found found = {0};
    uint64_t version;
    must(sl_subscription_open(node, NAME, &follow, TIMEOUT_MS, &subscription), "subscription");
    sl_bench_fork_tell(to, "", 1);
    must(sl_subscription_wait(subscription, 0, TIMEOUT_MS, &version), "version");
    found.ended_ns = sl_bench_now_ns();
    sl_bench_fork_tell(to, &found, sizeof found);
    for (;;) {
        (void)pause();
    }
}

/* Of memory that processes share by a descriptor: the agent's pool. */
static uint64_t shared_pss(void)
{
    FILE *file = fopen("/proc/self/smaps", "re");
    char line[512];
    unsigned long long kilobytes, sum = 0;
    bool is_shared = false;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strchr(line, '-') != NULL && strchr(line, '-') < line + 17) {
            is_shared = strstr(line, "memfd:") != NULL;
        } else if (is_shared && sscanf(line, "Pss: %llu", &kilobytes) == 1) {
            sum += kilobytes << 10;
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sum;
}

/* Opens a view of the version. */
static void open_view(struct sl_subscription *subscription, struct sl_object_tensor *tensor)
{
    struct sl_view *view;
    uint64_t version;
    must(sl_subscription_wait(subscription, 0, TIMEOUT_MS, &version), "version");
    must(sl_view_open(subscription, NULL, TIMEOUT_MS, &view), "view");
    must(sl_view_tensor(view, "bytes", tensor, NULL), "tensor");
}

static uint64_t touch(const struct sl_object_tensor *tensor)
{
    uint64_t sum = 0;
    for (uint64_t at = 0; at < tensor->bytes; at += 4096) {
        sum += ((const uint8_t *)tensor->data)[at];
    }
    return sum;
}

/* Polls for short versions. */
static void poll_shorts(const struct entry *entry, struct sl_subscription *subscription)
{
    struct board *board = entry->board;
    for (uint64_t seen = 0; seen < entry->shorts;) {
        const uint64_t newest = sl_subscription_newest(subscription);
        const uint64_t now_ns = newest > seen ? sl_bench_now_ns() : 0;
        while (seen < newest) {
            board->seen_ns[++seen] = now_ns;
        }
        (void)sched_yield();
    }
}

/* The agent, which follows the name too, or a reader of it. */
static _Noreturn void run_reader(const struct entry *entry, int to)
{
    struct board *board = entry->board;
    const struct sl_subscribe_options follow = {.struct_size = sizeof follow, .follow = true};
    char agent[32];
    (void)snprintf(agent, sizeof agent, "bench-%d", (int)getppid());
    const struct sl_objects_options options = {.struct_size = sizeof options, .agent = agent};
    struct sl_objects *node;
    struct sl_subscription *subscription;
    struct sl_object_tensor tensor = {0};
    struct found found = {0};
    if (entry->index == 0) {
        node = create_node(create_engine(0), board->origin, entry, agent);
    } else {
        must(sl_objects_create(&options, &node), "reader");
    }
    must(sl_subscription_open(node, NAME, &follow, TIMEOUT_MS, &subscription), "subscription");
    sl_bench_fork_tell(to, "", 1);
    if (entry->index > 0 && entry->kind == VIEWS) {
        open_view(subscription, &tensor);
        found.ended_ns = sl_bench_now_ns();
    } else if (entry->index > 0) {
        poll_shorts(entry, subscription);
    }
    sl_bench_fork_tell(to, &found, sizeof found);
    for (uint32_t i = 0; entry->kind != RELAY && i < 2; i++) { /* all have a view; read it */
        wait_for_byte(i == 0 ? board->read : board->look);
        const uint64_t value = i == 0 ? touch(&tensor) : shared_pss();
        sl_bench_fork_tell(to, &value, sizeof value);
    }
    for (;;) {
        (void)pause();
    }
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

/* Pulls a row; the median is the time of one. */
static _Noreturn void run_pulls(const struct entry *entry, int to)
{
    const struct sl_table_spec spec = sl_bench_rows_table("rows", 16, SL_OPTIMIZER_SGD);
    struct sl_client *client;
    struct sl_table *table;
    struct found found = {0};
    uint64_t times[SHORTS];
    const uint64_t key = sl_bench_workload_key(0);
    float row[16] = {0};
    const struct sl_client_options connect = {.struct_size = sizeof connect,
                                              .coordinator = entry->coordinator,
                                              .task_index = -1,
                                              .manual_progress = true,
                                              .disable_shm = true};
    must(sl_client_create(&connect, &client), "client");
    must(sl_client_table_open(client, &spec, TIMEOUT_MS, &table), "table");
    must(sl_client_push(client, table, &key, 1, row, TIMEOUT_MS), "push"); /* creates the row */
    for (uint32_t i = 0; i < 2 * SHORTS; i++) { /* the first half warms up */
        const uint64_t begun_ns = sl_bench_now_ns();
        must(sl_client_pull(client, table, &key, 1, row, TIMEOUT_MS), "pull");
        times[i % SHORTS] = sl_bench_now_ns() - begun_ns;
    }
    sl_client_destroy(&client);
    qsort(times, SHORTS, sizeof times[0], compare_times);
    found.ended_ns = times[SHORTS / 2];
    sl_bench_fork_tell(to, &found, sizeof found);
    _exit(0);
}

/* Publishes, or hashes as many bytes in the same blocks. */
static _Noreturn void run_alone(const struct entry *entry, int to)
{
    struct found found = {0};
    uint8_t *memory = allocate(entry->bytes);
    uint64_t sum = 0;
    struct sl_objects *node =
        entry->kind == PUBLISH ? create_node(create_engine(0), NULL, entry, NULL) : NULL;
    found.begun_ns = sl_bench_now_ns();
    if (node != NULL) {
        publish(node, memory, entry->bytes, SL_ORIGIN_CALLER, NULL);
    }
    for (uint64_t at = 0; node == NULL && at < entry->bytes; at += SL_OBJECTS_BLOCK_BYTES) {
        const uint64_t left = entry->bytes - at;
        sum += sl_hash_bytes_128(memory + at,
                                 left < SL_OBJECTS_BLOCK_BYTES ? left : SL_OBJECTS_BLOCK_BYTES)
                   .low;
    }
    found.ended_ns = sl_bench_now_ns();
    __asm__ volatile("" : : "r"(sum));
    sl_bench_fork_tell(to, &found, sizeof found);
    _exit(0);
}

/* ---- Turns ----------------------------------------------------------------------------------- */

static int start(struct sl_bench_fork *process, const struct entry *entry,
                 void (*run)(const struct entry *entry, int to))
{
    int to = -1;
    const int err = sl_bench_fork_start(process, -1, &to);
    if (err == 0 && process->pid == 0) {
        run(entry, to);
        _exit(1);
    }
    return err;
}

static int start_and_hear(struct sl_bench_fork *process, const struct entry *entry,
                          void (*run)(const struct entry *entry, int to))
{
    char byte;
    const int err = start(process, entry, run);
    return err != 0 ? err : sl_bench_fork_hear(process, TIMEOUT_MS, &byte, 1);
}

static void (*getter_of(const struct entry *entry))(const struct entry *entry, int to)
{
    const enum kind kind = entry->kind;
    return kind == RELAY && entry->index + 1 == RELAY_GETTERS ? run_relayed
           : kind == VIEWS || kind == SHORT || kind == RELAY  ? run_reader
           : kind == CROWD                                    ? run_follower
                                                              : run_getter;
}

/* sent: by the origin, in bytes. pss: of all getters. */
static int run_group(struct entry *entry, struct sl_bench_fork *getters, struct found *slowest,
                     uint64_t *sent, uint64_t *pss)
{
    static const char bytes[GETTERS_MAX + 1];
    const bool has_agent = entry->kind == VIEWS || entry->kind == SHORT;
    struct sl_bench_fork origin;
    entry->index = 0;
    int err = start_and_hear(&origin, entry, run_origin);
    uint32_t count = 0;
    while (err == 0 && count < entry->getters) {
        entry->index = count;
        err = start(&getters[count++], entry, getter_of(entry));
    }
    char byte;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_bench_fork_hear(&getters[i], TIMEOUT_MS, &byte, 1);
    }
    sl_bench_fork_tell(entry->board->begin[1], "", 1);
    err = err != 0 ? err : sl_bench_fork_hear(&origin, TIMEOUT_MS, &byte, 1);
    if (entry->kind == STAR || entry->kind == READ) {
        sl_bench_fork_tell(entry->board->read[1], bytes, count);
    }
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        struct found found = {0};
        err = sl_bench_fork_hear(&getters[i], TIMEOUT_MS, &found, sizeof found);
        *slowest = found.ended_ns > slowest->ended_ns ? found : *slowest;
    }
    for (uint32_t step = 0; step < 2 && has_agent; step++) {
        const struct board *board = entry->board;
        *pss = 0;
        sl_bench_fork_tell((step == 0 ? board->read : board->look)[1], bytes, count);
        for (uint32_t i = 0; err == 0 && i < count; i++) {
            uint64_t one = 0;
            err = sl_bench_fork_hear(&getters[i], TIMEOUT_MS, &one, sizeof one);
            *pss += one;
        }
    }
    sl_bench_fork_tell(entry->board->begin[1], "", 1);
    err = err != 0 ? err : sl_bench_fork_hear(&origin, TIMEOUT_MS, sent, sizeof *sent);
    for (uint32_t i = 0; i < count; i++) {
        sl_bench_fork_end(&getters[i]);
    }
    sl_bench_fork_end(&origin);
    return err;
}

static bool is_group(const struct entry *entry)
{
    return entry->kind == FAN_OUT || entry->kind == STAR || entry->kind == CROWD ||
           entry->kind == VIEWS;
}

static void note_shorts(const struct entry *entry, double *values)
{
    const struct board *board = entry->board;
    static uint64_t times[SHORTS_MAX];
    for (uint32_t i = 1; i <= entry->shorts; i++) {
        times[i - 1] = board->seen_ns[i] - board->begun_ns[i];
    }
    qsort(times, entry->shorts, sizeof times[0], compare_times);
    values[P50] = (double)times[entry->shorts / 2] / 1e3;
    values[P99] = (double)times[entry->shorts * 99 / 100] / 1e3;
}

static void note(const struct entry *entry, const struct found *found, uint64_t sent, uint64_t pss,
                 double *values)
{
    if (entry->kind == SHORT || entry->kind == RELAY) {
        note_shorts(entry, values);
    } else if (entry->kind == PULL) {
        values[P50] = (double)found->ended_ns / 1e3;
    } else if (is_group(entry)) {
        values[TIME] = sl_bench_seconds(found->ended_ns - entry->board->open_ns);
        values[IMAGES] = (double)sent / (double)entry->bytes;
        if (entry->kind == VIEWS) {
            values[PSS] = (double)pss / (double)entry->bytes;
        }
    } else {
        values[BYTES] = (double)entry->bytes / sl_bench_seconds(found->ended_ns - found->begun_ns);
    }
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    static struct sl_bench_fork getters[GETTERS_MAX + 1];
    struct entry *entry = ctx;
    struct found found = {0};
    uint64_t sent = 0, pss = 0;
    int err;
    memset(entry->board, 0, sizeof *entry->board);
    if (pipe(entry->board->begin) != 0 || pipe(entry->board->read) != 0 ||
        pipe(entry->board->look) != 0) {
        return SL_ERR_IO;
    }
    if (entry->kind == PUBLISH || entry->kind == HASH || entry->kind == PULL) {
        err = start(&getters[0], entry, entry->kind == PULL ? run_pulls : run_alone);
        err = err != 0 ? err : sl_bench_fork_hear(&getters[0], TIMEOUT_MS, &found, sizeof found);
        sl_bench_fork_end(&getters[0]);
    } else {
        err = run_group(entry, getters, &found, &sent, &pss);
    }
    for (int i = 0; i < 2; i++) {
        (void)close(entry->board->begin[i]);
        (void)close(entry->board->read[i]);
        (void)close(entry->board->look[i]);
    }
    if (err != 0) {
        sl_log_error("a process of the turn has ended: %s", sl_err_name(err));
    } else {
        note(entry, &found, sent, pss, values);
    }
    return err;
}

int sl_bench_objects_run(int argc, char **argv)
{
    struct sl_bench_common common = sl_bench_common_defaults();
    struct entry entry = {0};
    uint64_t getters = 1;
    int kind = 0;
    entry.shorts = SHORTS;
    const struct sl_cli_option table[] = {
        sl_bench_choice("kind", &kind, KIND_CHOICES, "What is done."),
        sl_bench_number("bytes", &entry.bytes, 0, 1e11, "Of the version."),
        sl_bench_number("rate", &entry.rate, 0, 1e12, "Bytes per second of each process; 0: any."),
        sl_bench_number("getters", &getters, 1, GETTERS_MAX + 1, "Processes, the agent included."),
        sl_bench_number("versions", &entry.shorts, 1, SHORTS_MAX, "Of --kind=short and relay."),
        sl_bench_text("coordinator", &entry.coordinator, "HOST:PORT", "Of --kind=pull."),
    };
    const int parsed =
        sl_bench_parse_load("objects", table, sizeof table / sizeof table[0], &common, argc, argv);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    entry.kind = (enum kind)kind;
    entry.getters = (uint32_t)getters;
    entry.board =
        mmap(NULL, sizeof *entry.board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return sl_bench_turns_serve(
        &(struct sl_bench_turns){
            .quantities = quantities, .quantity_count = QUANTITIES, .run = run, .ctx = &entry},
        &common);
}
