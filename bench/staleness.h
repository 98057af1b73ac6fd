/* Parts of starling-bench staleness. A trainer pushes versions of its parameters,
 * all of them as many bytes; workers pull them, take steps, and post which versions the steps used.
 * A mode is a way from the trainer to the workers. Flags and lines are those of SRL's benchmark. */
#ifndef SL_BENCH_STALENESS_H
#define SL_BENCH_STALENESS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/child.h"
#include "bench/options.h"
#include "core/log.h"

#define SL_BENCH_STALENESS_PAGE  4096 /* each begins with the version */
#define SL_BENCH_STALENESS_KEPT  4    /* versions in the trainer's memory */
#define SL_BENCH_STALENESS_PIECE 8192 /* of a version: a datagram */

struct sl_bench_staleness_options {
    struct sl_bench_common common;
    int mode;
    double push_frequency, pull_frequency, post_frequency, step_frequency, max_time; /* seconds */
    double loss;        /* multicast: share of datagrams that a worker drops */
    uint64_t data_size; /* MiB */
    double changed;  /* server: share of the bf16 elements that a step changes; 0: no such steps */
    bool delta, tcp; /* server: with deltas; over TCP also on one host */
    uint64_t rate;   /* server: bytes per second that the trainer's node sends; 0: any */
    uint64_t max_version, workers, workers_per_node;
    bool subscribe;
    const char *dir;     /* where the folder of the file-system mode is made; NULL: $TMPDIR */
    const char *trainer; /* of a worker's process: "HOST:PORT"; NULL: this is the trainer */
    const char *trial_name;
    enum sl_log_level log_level;
};

/* Where workers find what is pushed. */
struct sl_bench_staleness_place {
    char text[1024]; /* a folder; a group; the catalogue */
    uint32_t port;   /* of the group */
};

struct sl_bench_staleness_trainer;

/* A run in one process. */
struct sl_bench_staleness {
    struct sl_bench_staleness_options options;
    const struct sl_bench_staleness_mode *mode;
    uint64_t bytes;        /* of a version */
    bool is_distributed;   /* over hosts */
    bool is_first_of_host; /* worker */
    struct sl_bench_staleness_place place;
    void *state;                                      /* the mode's */
    uint64_t sent_bytes;                              /* trainer: by the mode, other than by TCP */
    struct sl_bench_staleness_trainer *trainer;       /* trainer */
    const uint8_t *memories[SL_BENCH_STALENESS_KEPT]; /* trainer: version v in v mod KEPT */
};

struct sl_bench_staleness_mode {
    const char *name;
    /* In the trainer: sets run->place. Errors, logged: any. */
    int (*open_trainer)(struct sl_bench_staleness *run);
    /* Returns when workers can get the version, which is in its memory. */
    int (*push)(struct sl_bench_staleness *run, uint64_t version);
    void (*close_trainer)(struct sl_bench_staleness *run);
    /* In a worker. */
    int (*open_worker)(struct sl_bench_staleness *run);
    /* Returns when this process has a version above `above`; *memory stays until the next pull. */
    int (*pull)(struct sl_bench_staleness *run, uint64_t above, uint64_t *version,
                const uint8_t **memory);
};
extern const struct sl_bench_staleness_mode sl_bench_staleness_files;
extern const struct sl_bench_staleness_mode sl_bench_staleness_multicast;
extern const struct sl_bench_staleness_mode sl_bench_staleness_server;

/* Messages between trainer and workers, over TCP. */
enum sl_bench_staleness_kind {
    SL_BENCH_STALENESS_CLOCK = 1, /* answer: a: the trainer's clock */
    SL_BENCH_STALENESS_READY,     /* answer, when all are: a: the start, on the trainer's clock */
    SL_BENCH_STALENESS_PLACE,     /* answer: a: 1 for the first one of a host; the place */
    SL_BENCH_STALENESS_POST,      /* a: time; b: steps; c: sum of their versions */
    SL_BENCH_STALENESS_END,       /* answer of the worker: LOG */
    SL_BENCH_STALENESS_LOG,       /* a: torn reads; b: its end; struct sl_bench_staleness_use[] */
    SL_BENCH_STALENESS_FETCH,     /* a: version; indexes u32[] of datagrams; answer: their bytes */
};

struct sl_bench_staleness_message {
    uint32_t kind, bytes; /* bytes: of what follows */
    uint64_t a, b, c;
};

/* From then on a worker uses the version. */
struct sl_bench_staleness_use {
    uint64_t time_ns; /* on the trainer's clock */
    uint64_t version;
};

/* Errors, logged: IO. */
int sl_bench_staleness_listen(bool is_distributed, int *fd, char address[256]);
int sl_bench_staleness_connect(const char *address, int *fd);
int sl_bench_staleness_send(int fd, const struct sl_bench_staleness_message *message,
                            const void *payload);

/* Reads exactly so many bytes, or the next message without what follows. Errors: CLOSED. */
int sl_bench_staleness_read(int fd, void *to, uint64_t bytes);
int sl_bench_staleness_receive(int fd, struct sl_bench_staleness_message *message);

/* In the trainer: handles messages until then, at least those that are there. Errors, logged: a
 * worker has ended. */
int sl_bench_staleness_serve(struct sl_bench_staleness_trainer *trainer, uint64_t until_ns);

/* Sleeps until the next time of pulls; *due_ns: kept between calls, 0 at first. */
void sl_bench_staleness_sleep(const struct sl_bench_staleness *run, uint64_t *due_ns);

/* A worker's process. */
int sl_bench_staleness_work(struct sl_bench_staleness *run);

/* Bytes that open TCP connections of this process have sent. */
uint64_t sl_bench_tcp_bytes_sent(void);

#endif
