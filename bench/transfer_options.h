/* The options of starling-bench transfer: the flags and variables of Mooncake's
 * transfer_engine_bench, and some of its own. One thread. */
#ifndef SL_BENCH_TRANSFER_OPTIONS_H
#define SL_BENCH_TRANSFER_OPTIONS_H

#include <starling_transfer.h>

#include "bench/options.h"
#include "config/security.h"

enum sl_bench_transfer_mode { SL_BENCH_TRANSFER_INITIATOR, SL_BENCH_TRANSFER_TARGET };
/* In the order of the choices of --protocol. ANY: the preferred path that both sides have. */
enum sl_bench_transfer_protocol {
    SL_BENCH_TRANSFER_ANY,
    SL_BENCH_TRANSFER_TCP,
    SL_BENCH_TRANSFER_SHM,
    SL_BENCH_TRANSFER_RDMA,
    SL_BENCH_TRANSFER_DPDK
};
enum sl_bench_transfer_memory { SL_BENCH_TRANSFER_PRIVATE, SL_BENCH_TRANSFER_SHARED };

/* A unit of --report_unit: GB, GiB, Gb, MB, MiB, Mb, KB, KiB, Kb. */
struct sl_bench_transfer_unit {
    const char *name;
    double bytes;
};

struct sl_bench_transfer_options {
    int mode;      /* sl_bench_transfer_mode */
    int operation; /* sl_transfer_op */
    int memory;    /* sl_bench_transfer_memory */
    int protocol;  /* sl_bench_transfer_protocol */
    const char *local_server_name, *metadata_server, *segment_id;
    uint64_t buffer_size, batch_size, block_size, threads, report_precision;
    double duration;
    const struct sl_bench_transfer_unit *unit;
    uint64_t timeout_ns;
    bool verify;
    bool has_bulk; /* one more thread writes blocks of 16 MB meanwhile; no flag */
    /* For the engine; strings as given, or freed with the options. */
    struct sl_transfer_options engine;
    struct sl_bench_common common;

    /* Private: what `engine` points to. */
    const char *matrix_file, *device_name, *unit_name, *variables_bind;
    bool auto_discovery, use_vram, insecure, polling;
    uint64_t lanes, slice_bytes, gid_index;
    struct sl_security_flags security_flags;
    struct sl_security security;
    char *text; /* the arguments */
    char *matrix;
    char endpoints[512], metadata[1024];
};

/* Reads flags (words joined by underscores or dashes) and variables, and logs which MC_ variables
 * are ignored. Returns SL_CLI_RUN, SL_CLI_EXIT_OK, or an error, which has been printed. In any case
 * *options needs fini. */
int sl_bench_transfer_options_parse(struct sl_bench_transfer_options *options, int argc,
                                    char **argv);
void sl_bench_transfer_options_fini(struct sl_bench_transfer_options *options);

#endif
