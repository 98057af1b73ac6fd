#include "programs/objects/example.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <starling_objects.h>

#include "config/settings_cli.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/text_file.h"
#include "net/store/address.h"

#define OBJECT       "foo/bar"
#define MATRIX_BYTES (1U << 20)
#define GB           1e9

static struct {
    int command; /* index of "trainer|inferencer" */
    const char *name, *device, *matrix_file;
    uint64_t file_size_mb, hold_ns, timeout_ns;
    size_t rate_bytes;
} flags = {.file_size_mb = 2048, .hold_ns = UINT64_MAX, .timeout_ns = 60 * SL_CLOCK_NS_PER_S};

static struct sl_settings settings;

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(CHOICE, &flags.command, .name = "cmd", .choices = "trainer|inferencer",
                  .help = "The trainer publishes " OBJECT "; inferencers get and serve it."),
    SL_CLI_OPTION(STRING, &flags.name, .name = "local_server_name", .metavar = "HOST:PORT",
                  .help = "Where this process listens. Default: on loopback if the metadata server "
                          "is there, else this host's address."),
    SL_CLI_OPTION(STRING, &flags.device, .name = "device_name", .metavar = "NAME,...",
                  .help = "RDMA devices. Default: all. On a host without any: TCP."),
    SL_CLI_OPTION(STRING, &flags.matrix_file, .name = "nic_priority_matrix", .metavar = "FILE",
                  .help = "Preferred and available devices by location, as JSON."),
    SL_CLI_OPTION(U64, &flags.file_size_mb, .name = "file_size_mb", .metavar = "MB", .least = 1,
                  .most = 1 << 18, .help = "MiB of the object."),
    SL_CLI_OPTION(DURATION, &flags.hold_ns, .name = "hold", .metavar = "TIME", .most = 1e6,
                  .help = "How long the object is served afterwards. Default: 100 s by the "
                          "trainer, 10 s by an inferencer."),
    SL_CLI_OPTION(DURATION, &flags.timeout_ns, .name = "timeout", .metavar = "TIME", .least = 0.001,
                  .most = 3600, .help = "Deadline of each call. Default: 60s"),
    SL_CLI_OPTION(SIZE, &flags.rate_bytes, .name = "rate",
                  .help = "Bytes per second that other processes read here. Default: no limit."),
};

struct example {
    struct sl_objects *objects;
    char *matrix; /* JSON text; NULL: none */
    uint8_t *base;
    uint64_t bytes;
    uint32_t timeout_ms;
    struct sl_reason reason;
};

static int example_failed(struct example *example, int err)
{
    return sl_reason_fail(&example->reason, err, "%s", sl_objects_last_error());
}

/* Node */

static int read_matrix(struct example *example)
{
    if (flags.matrix_file == NULL) {
        return 0;
    }
    example->matrix = malloc(MATRIX_BYTES + 1);
    const size_t bytes =
        example->matrix == NULL
            ? 0
            : sl_text_file_read(flags.matrix_file, example->matrix, MATRIX_BYTES + 1);
    return bytes > 0 && bytes < MATRIX_BYTES
               ? 0
               : sl_reason_fail(&example->reason, SL_ERR_INVALID,
                                "--nic_priority_matrix=%s: accepted is a readable file of less "
                                "than 1 MiB",
                                flags.matrix_file);
}

static bool has_rdma_devices(void)
{
    glob_t found;
    const bool has = glob("/sys/class/infiniband/*", 0, NULL, &found) == 0;
    globfree(&found);
    return has;
}

static int start_node(struct example *example, const struct sl_metastore_address *store)
{
    struct sl_transfer_options engine;
    int err = sl_settings_cli_engine(&settings, &engine, &example->reason);
    err = err != 0 ? err : read_matrix(example);
    if (err != 0) {
        return err;
    }
    const bool is_local =
        store->kind == SL_METASTORE_ADDRESS_NONE || sl_metastore_address_is_loopback(store);
    const bool has_rdma = has_rdma_devices();
    const char *standard = is_local ? "127.0.0.1:0" : NULL;
    engine.name = flags.name != NULL ? flags.name : standard;
    engine.nic_priority_matrix = has_rdma ? example->matrix : NULL;
    engine.rdma_device = has_rdma ? flags.device : NULL;
    const struct sl_objects_options node = {.struct_size = sizeof node,
                                            .engine_options = &engine,
                                            .catalogue = settings.objects.catalogue,
                                            .agent = "off",
                                            .rate_bytes = flags.rate_bytes};
    err = sl_objects_create(&node, &example->objects);
    explicit_bzero(&settings.security, sizeof settings.security);
    return err == 0 ? 0 : example_failed(example, err);
}

/* Commands */

/* Waits for the catalogue, so that what is measured is the object. Lists the objects. */
static int list(struct example *example, bool prints)
{
    struct sl_object_list *list = NULL;
    const int err = sl_object_list(example->objects, "foo", example->timeout_ms, &list);
    if (err != 0) {
        return example_failed(example, err);
    }
    for (uint64_t i = 0; prints && i < list->count; i++) {
        (void)printf("%s@%" PRIu64 ": %" PRIu64 " bytes, holders: %u\n", list->entries[i].name,
                     list->entries[i].version, list->entries[i].bytes, list->entries[i].holders);
    }
    sl_object_list_free(&list);
    return 0;
}

static void print_done(const char *what, const struct example *example, uint64_t since_ns)
{
    const double seconds =
        (double)(sl_clock_now_ns(sl_clock_system()) - since_ns) / (double)SL_CLOCK_NS_PER_S;
    (void)printf("Object %s done: duration (ms) %.0f throughput (GB/s) %.3f\n", what, seconds * 1e3,
                 (double)example->bytes / GB / seconds);
    (void)fflush(stdout);
}

/* Serves until the time is over, or SIGINT or SIGTERM comes; then the memory is the caller's. */
static int example_hold(struct example *example, const sigset_t *signals, uint64_t version,
                        uint32_t default_s)
{
    const uint64_t hold_ns =
        flags.hold_ns != UINT64_MAX ? flags.hold_ns : default_s * SL_CLOCK_NS_PER_S;
    const struct timespec time = {.tv_sec = (time_t)(hold_ns / SL_CLOCK_NS_PER_S),
                                  .tv_nsec = (long)(hold_ns % SL_CLOCK_NS_PER_S)};
    while (sigtimedwait(signals, NULL, &time) < 0 && errno == EINTR) {
    }
    const int err = sl_object_withdraw(example->objects, OBJECT, version, example->timeout_ms);
    return err == 0 || err == SL_ERR_NOT_FOUND ? 0 : example_failed(example, err);
}

static int example_train(struct example *example, const sigset_t *signals)
{
    const struct sl_publish_options publish = {.struct_size = sizeof publish,
                                               .name = OBJECT,
                                               .origin = SL_ORIGIN_CALLER,
                                               .take_over = true};
    const struct sl_object_extent extent = {.base = example->base, .bytes = example->bytes};
    struct sl_publication *publication = NULL;
    uint64_t version = 0;
    for (uint64_t i = 0; i < example->bytes / sizeof i; i++) {
        const uint64_t word = i * 0x9e3779b97f4a7c15U;
        memcpy(example->base + i * sizeof i, &word, sizeof word);
    }
    const uint64_t since_ns = sl_clock_now_ns(sl_clock_system());
    int err = sl_publish_begin(example->objects, &publish, example->timeout_ms, &publication);
    err = err != 0 ? err : sl_publish_bytes(publication, &extent, 1);
    err = err != 0 ? err : sl_publish_commit(publication, example->timeout_ms, &version);
    err = err != 0 ? example_failed(example, err) : 0;
    sl_publish_end(&publication);
    if (err != 0) {
        return err;
    }
    print_done("registration", example, since_ns);
    err = list(example, true);
    return err != 0 ? err : example_hold(example, signals, version, 100);
}

static int example_infer(struct example *example, const sigset_t *signals)
{
    const struct sl_object_extent extent = {.base = example->base, .bytes = example->bytes};
    const uint64_t since_ns = sl_clock_now_ns(sl_clock_system());
    struct sl_get *get = NULL;
    struct sl_get_progress progress = {0};
    int err = sl_get_start(example->objects, OBJECT, 0, &extent, 1, example->timeout_ms, &get);
    err = err != 0 ? err : sl_get_wait(get);
    err = err != 0 ? example_failed(example, err) : sl_get_progress(get, &progress);
    sl_get_close(&get);
    if (err != 0) {
        return err;
    }
    print_done("retrieval", example, since_ns);
    return example_hold(example, signals, progress.version, 10);
}

/* Command line */

static int parse(const struct sl_cli *cli, int argc, char **argv,
                 struct sl_metastore_address *store, struct sl_reason *reason)
{
    const int result = sl_cli_parse(cli, argc, argv, reason);
    if (result != SL_CLI_RUN) {
        return result;
    }
    if (settings.objects.metadata == NULL) {
        settings.objects.metadata =
            settings.objects.catalogue != NULL ? "P2PHANDSHAKE" : "localhost:2379";
    }
    const int err = sl_metastore_address_parse(settings.objects.metadata, store, reason);
    return err != 0 || settings.objects.catalogue != NULL ||
                   store->kind == SL_METASTORE_ADDRESS_ETCD
               ? err
               : sl_reason_fail(reason, SL_ERR_INVALID,
                                "--catalogue is missing: --metadata_server=%s does not name the "
                                "catalogue; only etcd does",
                                settings.objects.metadata);
}

int sl_example_run(int argc, char **argv)
{
    struct example example = {0};
    struct sl_metastore_address store;
    sigset_t signals;
    static struct sl_settings_cli all;
    const struct sl_cli own = {.program = argv[0],
                               .summary = "The example of Mooncake's P2P store: moves one object "
                                          "from a trainer to inferencers. --metadata_server is "
                                          "an etcd, by default localhost:2379, or, with "
                                          "--catalogue, any address of --metadata.",
                               .usage = "--cmd trainer|inferencer [options]",
                               .options = options,
                               .option_count = sizeof options / sizeof options[0]};
    sl_settings_cli_init(SL_PROGRAM_OBJECTS, 1, &own, &settings, &all);
    const int result = parse(&all.cli, argc, argv, &store, &example.reason);
    if (result != SL_CLI_RUN) {
        return sl_cli_exit(&own, result, &example.reason);
    }
    sl_settings_log_setup(&settings, "p2p-store-example");
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGINT);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    example.timeout_ms = (uint32_t)(flags.timeout_ns / SL_CLOCK_NS_PER_MS);
    example.bytes = flags.file_size_mb << 20;
    example.base =
        mmap(NULL, example.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int err = example.base != MAP_FAILED
                  ? start_node(&example, &store)
                  : sl_reason_fail(&example.reason, SL_ERR_NO_MEMORY,
                                   "--file_size_mb=%" PRIu64 ": no memory", flags.file_size_mb);
    err = err != 0 ? err : list(&example, false);
    if (err == 0) {
        err = (flags.command == 0 ? example_train : example_infer)(&example, &signals);
    }
    sl_objects_destroy(&example.objects);
    free(example.matrix);
    sl_settings_fini(&settings);
    if (err == 0) {
        (void)printf("ALL DONE\n");
    }
    return sl_cli_end(&own, err, &example.reason);
}
