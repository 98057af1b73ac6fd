/* starling-bench transfer, also installed as transfer_engine_bench: moves blocks between registered
 * memory of two processes. */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"
#include "bench/report.h"
#include "bench/transfer.h"
#include "config/cli.h"
#include "core/arena_pages.h"
#include "core/log.h"

#define FREE_TIMEOUT_MS 5000

/* ---- Memory ---------------------------------------------------------------------------------- */

/* NUMA nodes with memory, from the system's list such as "0-1,3". */
static uint32_t count_nodes(void)
{
    char text[256] = "";
    FILE *file = fopen("/sys/devices/system/node/has_memory", "re");
    if (file != NULL) {
        (void)!fgets(text, sizeof text, file);
        (void)fclose(file);
    }
    uint32_t count = 0;
    for (char *at = text; *at >= '0' && *at <= '9';) {
        const unsigned long first = strtoul(at, &at, 10);
        const unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;
        count += (uint32_t)(last - first + 1);
        at += *at == ',';
    }
    return count == 0                            ? 1
           : count > SL_BENCH_TRANSFER_NODES_MAX ? SL_BENCH_TRANSFER_NODES_MAX
                                                 : count;
}

static int add_shared(struct sl_bench_transfer_engine *engine, uint32_t node)
{
    void *memory;
    const int err =
        sl_transfer_memory_create(engine->transfer, engine->buffer_bytes, (int)node,
                                  SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE, &memory);
    if (err == 0) {
        engine->buffers[node] = memory;
        memset(memory, (int)node + 1, engine->buffer_bytes); /* present, as below */
    }
    return err;
}

static int add_private(struct sl_bench_transfer_engine *engine, uint32_t node)
{
    char location[SL_TRANSFER_LOCATION_BYTES];
    (void)snprintf(location, sizeof location, "cpu:%u", node);
    uint8_t *base = sl_arena_pages_map(engine->buffer_bytes, true);
    if (base == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    engine->buffers[node] = base;
    memset(base, (int)node + 1, engine->buffer_bytes); /* present before anything is measured */
    const struct sl_transfer_memory memory = {
        .base = base,
        .bytes = engine->buffer_bytes,
        .location = engine->count > 1 ? location : "*",
        .access = SL_TRANSFER_PEERS_READ | SL_TRANSFER_PEERS_WRITE,
    };
    return sl_transfer_register(engine->transfer, &memory, 1);
}

static uint64_t whole_pages(uint64_t bytes)
{
    const uint64_t page = SL_ARENA_HUGE_PAGE_BYTES;
    return (bytes + page - 1) / page * page;
}

int sl_bench_transfer_engine_open(struct sl_bench_transfer_engine *engine,
                                  const struct sl_bench_transfer_options *options,
                                  uint64_t buffer_bytes)
{
    *engine = (struct sl_bench_transfer_engine){
        .buffer_bytes = whole_pages(buffer_bytes),
        .is_shared = options->memory == SL_BENCH_TRANSFER_SHARED,
        .count = count_nodes(),
    };
    int err = sl_transfer_create(&options->engine, &engine->transfer); /* logs its errors */
    if (err == SL_ERR_REFUSED && options->engine.secret == NULL) {
        sl_log_error("flags for this: --secret-file=FILE, --local_server_name=127.0.0.1:PORT, or "
                     "--insecure");
    }
    if (err != 0) {
        return err;
    }
    for (uint32_t node = 0; err == 0 && node < engine->count; node++) {
        err = engine->is_shared ? add_shared(engine, node) : add_private(engine, node);
    }
    if (err != 0) {
        sl_log_error("a buffer of %" PRIu64 " bytes: %s %s", engine->buffer_bytes, sl_err_name(err),
                     sl_transfer_last_error());
    }
    return err;
}

void sl_bench_transfer_engine_close(struct sl_bench_transfer_engine *engine)
{
    for (uint32_t i = 0; i < engine->count && engine->is_shared; i++) {
        void *memory = engine->buffers[i];
        if (memory != NULL) {
            (void)sl_transfer_memory_free(engine->transfer, &memory, FREE_TIMEOUT_MS);
        }
    }
    if (engine->transfer != NULL) {
        sl_transfer_destroy(&engine->transfer);
    }
    for (uint32_t i = 0; i < engine->count && !engine->is_shared; i++) {
        if (engine->buffers[i] != NULL) {
            sl_arena_pages_unmap(engine->buffers[i], engine->buffer_bytes);
        }
    }
}

/* ---- Roles ----------------------------------------------------------------------------------- */

/* Blocks the signals that end a target, for it and for the threads that it starts. */
static void block_signals(sigset_t *signals)
{
    (void)sigemptyset(signals);
    (void)sigaddset(signals, SIGINT);
    (void)sigaddset(signals, SIGTERM);
    (void)sigprocmask(SIG_BLOCK, signals, NULL);
}

static int run_target(const struct sl_bench_transfer_options *options)
{
    struct sl_bench_transfer_engine engine;
    sigset_t signals;
    int signal_number;
    block_signals(&signals);
    const int err = sl_bench_transfer_engine_open(&engine, options, options->buffer_size);
    if (err == 0) {
        printf("%s serves %u x %" PRIu64 " bytes until SIGINT; start the initiator with "
               "--segment_id=%s\n",
               sl_transfer_name(engine.transfer), engine.count, engine.buffer_bytes,
               sl_transfer_name(engine.transfer));
        (void)fflush(stdout);
        (void)sigwait(&signals, &signal_number);
    }
    sl_bench_transfer_engine_close(&engine);
    return err == 0 ? 0 : 1;
}

static int write_report(const struct sl_bench_transfer_options *options,
                        const struct sl_bench_transfer_moved *moved)
{
    if (options->common.json == NULL) {
        return 0;
    }
    char setting[256];
    (void)snprintf(setting, sizeof setting,
                   "%s to %s; %" PRIu64 " threads, batches of %" PRIu64 " x %" PRIu64 " bytes",
                   options->operation == SL_TRANSFER_READ ? "READ" : "WRITE", options->segment_id,
                   options->threads, options->batch_size, options->block_size);
    struct sl_bench_report *report = sl_bench_report_create("transfer", setting);
    sl_bench_report_add(report, "transfer", "bytes", "1/s", (double)moved->bytes / moved->seconds);
    sl_bench_report_add(report, "transfer", "batches", "1/s",
                        (double)moved->batches / moved->seconds);
    return sl_bench_report_finish(&report, &options->common);
}

static int run_initiator(const struct sl_bench_transfer_options *options)
{
    struct sl_bench_transfer_engine engine;
    struct sl_bench_transfer_moved moved;
    int err = sl_bench_transfer_engine_open(&engine, options,
                                            options->buffer_size * (options->verify ? 2 : 1));
    err = err != 0
              ? err
              : sl_bench_transfer_initiate(&engine, options, options->segment_id, true, &moved);
    sl_bench_transfer_engine_close(&engine);
    if (err != 0) {
        return 1;
    }
    printf("Test completed: duration %.2f, batch count %" PRIu64 ", throughput %.*f %s/s\n",
           moved.seconds, moved.batches, (int)options->report_precision,
           (double)moved.bytes / moved.seconds / options->unit->bytes, options->unit->name);
    if (options->verify) {
        printf("Verified: %" PRIu64 " bytes, %" PRIu64 " wrong\n", moved.bytes / 2,
               moved.wrong_bytes);
    }
    return write_report(options, &moved) == 0 && moved.wrong_bytes == 0 ? 0 : 1;
}

int sl_bench_transfer_run(int argc, char **argv)
{
    static struct sl_bench_transfer_options options;
    const int parsed = sl_bench_transfer_options_parse(&options, argc, argv);
    int status = parsed < 0 ? 2 : 0;
    if (parsed == SL_CLI_RUN) {
        status = options.mode == SL_BENCH_TRANSFER_TARGET ? run_target(&options)
                                                          : run_initiator(&options);
    }
    sl_bench_transfer_options_fini(&options);
    return status;
}
