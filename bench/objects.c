/* starling-bench objects: publishing and getting versions, beside hashing and READs of the same
 * bytes; and versions that many processes get at the same time, each with a limited uplink, beside
 * one process, and beside all of them reading from the origin. Each process is forked, in each turn
 * again: this one has no thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <starling_objects.h>

#include "bench/bench.h"
#include "bench/contest.h"
#include "bench/fork.h"
#include "bench/now.h"
#include "bench/options.h"
#include "bench/staleness.h"
#include "core/hash.h"
#include "core/log.h"
#include "objects/node.h"

#define NAME            "model"
#define TIMEOUT_MS      600000
#define READ_BYTES      (1ULL << 20)
#define READS           16 /* of a batch; two are in flight */
#define GETTERS_MAX     256

#define GET_OF_READ     0.55
#define PUBLISH_OF_HASH 0.8

enum kind { PUBLISH, HASH, GET, READ, FAN_OUT, STAR };
enum part { PART_ALL, PART_ONE, PART_FAN_OUT, PART_CROWD };

struct options {
    struct sl_bench_common common;
    int part;
    uint64_t megabytes;
    uint64_t getters, getter_megabytes, getter_rate;
    uint64_t crowd, crowd_megabytes, crowd_rate;
};

/* What the origin says to the processes of its turn, in memory that they share: the name before its
 * first word, the rest before its second one. */
struct board {
    char origin[SL_TRANSFER_NAME_BYTES];
    void *base;            /* of its memory */
    uint64_t open_ns;      /* when the version became visible */
    int begin[2], read[2]; /* pipes: a byte for the origin: publish; one for each that READs */
};

/* A contestant. */
struct entry {
    enum kind kind;
    uint64_t bytes, rate; /* rate: of each process, bytes per second; 0: no limit */
    uint32_t getters;
    struct board *board;
};

/* What a getter found. */
struct found {
    uint64_t begun_ns, ended_ns;
};

struct bench {
    struct options options;
    struct sl_bench_contest contest;
    struct entry entries[10];
    uint32_t entry_count;
};

static const struct sl_bench_quantity BYTES[] = {{"bytes", "B/s"}};
static const struct sl_bench_quantity TIMES[] = {{"time", "s"}, {"images from the origin", ""}};

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

/* A host of its own. */
static struct sl_objects *create_node(struct sl_transfer *engine, const char *catalogue,
                                      uint64_t rate)
{
    char label[32];
    (void)snprintf(label, sizeof label, "%d", (int)getpid());
    const struct sl_objects_setup setup = {.host = strdup(label)};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine = engine,
                                               .catalogue = catalogue,
                                               .rate_bytes = rate};
    struct sl_objects *node;
    must(sl_objects_create_with(&options, &setup, &node), "node");
    struct sl_object_list *list; /* when it is answered, the node is attached */
    must(sl_object_list(node, NULL, TIMEOUT_MS, &list), "catalogue");
    sl_object_list_free(&list);
    return node;
}

static void publish(struct sl_objects *node, uint8_t *memory, uint64_t bytes)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .origin = SL_ORIGIN_CALLER};
    const struct sl_object_extent extent = {.base = memory, .bytes = bytes};
    struct sl_publication *publication;
    uint64_t version;
    must(sl_publish_begin(node, &options, TIMEOUT_MS, &publication), "begin");
    must(sl_publish_bytes(publication, &extent, 1), "bytes");
    must(sl_publish_commit(publication, TIMEOUT_MS, &version), "commit");
    sl_publish_end(&publication);
}

/* READs all of it, two batches in flight. */
static void read_all(struct sl_transfer *engine, struct sl_transfer_segment *segment, uint64_t from,
                     uint8_t *to, uint64_t bytes)
{
    struct sl_transfer_batch *batches[2];
    for (uint32_t i = 0; i < 2; i++) {
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
        if (turn >= 2) {
            must(sl_transfer_batch_wait(batches[turn % 2]), "READ");
        }
        must(sl_transfer_batch_submit(batches[turn % 2], requests, count, TIMEOUT_MS, NULL),
             "READ");
    }
    for (uint32_t i = 0; i < 2 && i < turn; i++) {
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

/* Hosts the catalogue, publishes when it may, and stays. */
static _Noreturn void run_origin(const struct entry *entry, int to)
{
    struct board *board = entry->board;
    struct sl_transfer *engine = create_engine(entry->kind == STAR ? entry->rate : 0);
    struct sl_objects *node = create_node(engine, NULL, entry->rate);
    uint8_t *memory = allocate(entry->bytes);
    (void)snprintf(board->origin, sizeof board->origin, "%s", sl_objects_address(node));
    board->base = memory;
    sl_bench_fork_tell(to, "", 1);
    wait_for_byte(board->begin);
    publish(node, memory, entry->bytes);
    board->open_ns = sl_bench_now_ns();
    sl_bench_fork_tell(to, "", 1);
    wait_for_byte(board->begin);
    const uint64_t bytes = sl_bench_tcp_bytes_sent();
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
    struct sl_objects *node = create_node(engine, board->origin, entry->rate);
    struct sl_transfer_segment *segment;
    struct sl_subscription *subscription;
    struct found found = {0};
    uint8_t *memory = allocate(entry->bytes);
    memset(memory, 1, entry->bytes);
    must(sl_transfer_segment_open(engine, board->origin, TIMEOUT_MS, &segment), "segment");
    must(sl_subscription_open(node, NAME, NULL, TIMEOUT_MS, &subscription), "subscription");
    sl_bench_fork_tell(to, "", 1);
    if (entry->kind == GET || entry->kind == FAN_OUT) {
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

/* Publishes, or hashes as many bytes in the same blocks. */
static _Noreturn void run_alone(const struct entry *entry, int to)
{
    struct found found = {0};
    uint8_t *memory = allocate(entry->bytes);
    uint64_t sum = 0;
    struct sl_objects *node =
        entry->kind == PUBLISH ? create_node(create_engine(0), NULL, 0) : NULL;
    found.begun_ns = sl_bench_now_ns();
    if (node != NULL) {
        publish(node, memory, entry->bytes);
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

/* sent: by the origin, in bytes. */
static int run_group(struct entry *entry, struct sl_bench_fork *getters, struct found *slowest,
                     uint64_t *sent)
{
    struct sl_bench_fork origin;
    int err = start_and_hear(&origin, entry, run_origin);
    uint32_t count = 0;
    while (err == 0 && count < entry->getters) {
        err = start(&getters[count++], entry, run_getter);
    }
    char byte;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = sl_bench_fork_hear(&getters[i], TIMEOUT_MS, &byte, 1);
    }
    sl_bench_fork_tell(entry->board->begin[1], "", 1);
    err = err != 0 ? err : sl_bench_fork_hear(&origin, TIMEOUT_MS, &byte, 1);
    static const char bytes[GETTERS_MAX];
    sl_bench_fork_tell(entry->board->read[1], bytes, count);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        struct found found = {0};
        err = sl_bench_fork_hear(&getters[i], TIMEOUT_MS, &found, sizeof found);
        *slowest = found.ended_ns > slowest->ended_ns ? found : *slowest;
    }
    sl_bench_fork_tell(entry->board->begin[1], "", 1);
    err = err != 0 ? err : sl_bench_fork_hear(&origin, TIMEOUT_MS, sent, sizeof *sent);
    for (uint32_t i = 0; i < count; i++) {
        sl_bench_fork_end(&getters[i]);
    }
    sl_bench_fork_end(&origin);
    return err;
}

static int run(void *ctx, const struct sl_bench_common *common, double *values)
{
    static struct sl_bench_fork getters[GETTERS_MAX];
    struct entry *entry = ctx;
    struct found found = {0};
    uint64_t sent = 0;
    int err;
    memset(entry->board, 0, sizeof *entry->board);
    if (pipe(entry->board->begin) != 0 || pipe(entry->board->read) != 0) {
        return SL_ERR_IO;
    }
    if (entry->kind == PUBLISH || entry->kind == HASH) {
        err = start(&getters[0], entry, run_alone);
        err = err != 0 ? err : sl_bench_fork_hear(&getters[0], TIMEOUT_MS, &found, sizeof found);
        sl_bench_fork_end(&getters[0]);
    } else {
        err = run_group(entry, getters, &found, &sent);
    }
    for (int i = 0; i < 2; i++) {
        (void)close(entry->board->begin[i]);
        (void)close(entry->board->read[i]);
    }
    if (err != 0) {
        sl_log_error("a process of the turn has ended: %s", sl_err_name(err));
    } else if (entry->kind == FAN_OUT || entry->kind == STAR) {
        values[0] = sl_bench_seconds(found.ended_ns - entry->board->open_ns);
        values[1] = (double)sent / (double)entry->bytes;
    } else {
        values[0] = (double)entry->bytes / sl_bench_seconds(found.ended_ns - found.begun_ns);
    }
    return err;
}

/* ---- Contestants and ratios ------------------------------------------------------------------ */

static void add(struct bench *bench, const struct entry *what, const char *name)
{
    struct entry *entry = &bench->entries[bench->entry_count++];
    const bool is_group = what->kind == FAN_OUT || what->kind == STAR;
    const bool is_alone = what->kind == PUBLISH || what->kind == HASH;
    *entry = *what;
    entry->board =
        mmap(NULL, sizeof *entry->board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct sl_bench_contestant contestant = {.quantities = is_group ? TIMES : BYTES,
                                                   .quantity_count = is_group ? 2 : 1,
                                                   .transport = is_alone ? NULL : "TCP",
                                                   .run = run,
                                                   .ctx = entry};
    sl_bench_contest_add(&bench->contest, &contestant, "%s", name);
}

/* Their names; ratios name the same. */
static void group_name(char name[SL_BENCH_NAME_BYTES], const char *what, uint64_t getters,
                       uint64_t megabytes, uint64_t rate)
{
    (void)snprintf(name, SL_BENCH_NAME_BYTES, "%s %llu x %llu MiB, uplinks %llu MB/s", what,
                   (unsigned long long)getters, (unsigned long long)megabytes,
                   (unsigned long long)rate);
}

static void add_group(struct bench *bench, uint64_t getters, uint64_t megabytes, uint64_t rate,
                      bool has_star)
{
    char name[SL_BENCH_NAME_BYTES];
    struct entry entry = {.kind = FAN_OUT,
                          .bytes = megabytes << 20,
                          .rate = rate * 1000000,
                          .getters = (uint32_t)getters};
    group_name(name, "get", getters, megabytes, rate);
    add(bench, &entry, name);
    entry.getters = 1;
    group_name(name, "get", 1, megabytes, rate);
    add(bench, &entry, name);
    if (has_star) {
        entry.kind = STAR;
        entry.getters = (uint32_t)getters;
        group_name(name, "star", getters, megabytes, rate);
        add(bench, &entry, name);
    }
}

static void add_all(struct bench *bench)
{
    const struct options *o = &bench->options;
    const struct {
        enum kind kind;
        const char *name;
    } single[] = {{PUBLISH, "publish"}, {HASH, "XXH3-128"}, {GET, "get"}, {READ, "READ of 1 MB"}};
    for (uint32_t i = 0; i < 4 && (o->part == PART_ALL || o->part == PART_ONE); i++) {
        const struct entry entry = {
            .kind = single[i].kind, .bytes = o->megabytes << 20, .getters = 1};
        add(bench, &entry, single[i].name);
    }
    if (o->part == PART_ALL || o->part == PART_FAN_OUT) {
        add_group(bench, o->getters, o->getter_megabytes, o->getter_rate, true);
    }
    if (o->part == PART_ALL || o->part == PART_CROWD) {
        add_group(bench, o->crowd, o->crowd_megabytes, o->crowd_rate, false);
    }
}

static void conclude_group(const struct bench *bench, struct sl_bench_report *report,
                           uint64_t getters, uint64_t megabytes, uint64_t rate, double most)
{
    char name[SL_BENCH_NAME_BYTES], other[SL_BENCH_NAME_BYTES];
    group_name(name, "get", getters, megabytes, rate);
    group_name(other, "get", 1, megabytes, rate);
    sl_bench_contest_ratio(&bench->contest, report, "time", name, other, 0, most);
    group_name(other, "star", getters, megabytes, rate);
    sl_bench_contest_ratio(&bench->contest, report, "time", other, name, 0, 0);
}

static void conclude(void *ctx, struct sl_bench_report *report)
{
    const struct bench *bench = ctx;
    const struct options *o = &bench->options;
    sl_bench_contest_ratio(&bench->contest, report, "bytes", "publish", "XXH3-128", PUBLISH_OF_HASH,
                           0);
    sl_bench_contest_ratio(&bench->contest, report, "bytes", "get", "READ of 1 MB", GET_OF_READ, 0);
    conclude_group(bench, report, o->getters, o->getter_megabytes, o->getter_rate, 1.3);
    conclude_group(bench, report, o->crowd, o->crowd_megabytes, o->crowd_rate, 1.8);
}

static int parse(int argc, char **argv, struct options *o)
{
    const struct sl_cli_option table[] = {
        sl_bench_choice("part", &o->part, "all|one|fan-out|crowd", "What is measured."),
        sl_bench_number("megabytes", &o->megabytes, 1, 65536,
                        "MiB of the version that one process publishes and gets."),
        sl_bench_number("getters", &o->getters, 2, GETTERS_MAX, "Processes of fan-out."),
        sl_bench_number("getter-megabytes", &o->getter_megabytes, 1, 65536, "MiB that they get."),
        sl_bench_number("getter-rate", &o->getter_rate, 1, 100000,
                        "MB/s that leave each of them, and the origin."),
        sl_bench_number("crowd", &o->crowd, 2, GETTERS_MAX, "Processes of crowd."),
        sl_bench_number("crowd-megabytes", &o->crowd_megabytes, 1, 65536, "MiB that they get."),
        sl_bench_number("crowd-rate", &o->crowd_rate, 1, 100000,
                        "MB/s that leave each of them, and the origin."),
    };
    return sl_bench_parse("objects", "Publishing and getting versions, alone and in a crowd.",
                          table, sizeof table / sizeof table[0], &o->common, argc, argv);
}

int sl_bench_objects_run(int argc, char **argv)
{
    static struct bench bench;
    bench.options = (struct options){.common = sl_bench_common_defaults(),
                                     .megabytes = 1024,
                                     .getters = 8,
                                     .getter_megabytes = 256,
                                     .getter_rate = 100,
                                     .crowd = 64,
                                     .crowd_megabytes = 10,
                                     .crowd_rate = 20};
    const int parsed = parse(argc, argv, &bench.options);
    if (parsed != SL_CLI_RUN) {
        return parsed < 0 ? 2 : 0;
    }
    add_all(&bench);
    return sl_bench_contest_report(&bench.contest, "objects",
                                   "processes on any core; every process of a group is a host of "
                                   "its own; time from the commit to the last getter",
                                   conclude, &bench, &bench.options.common) == 0
               ? 0
               : 1;
}
