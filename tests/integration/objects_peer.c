/* A process of objects_failures_test.py, driven by lines on standard input:
 *
 *   objects_peer CATALOGUE METADATA AGENT HOST RATE POOL    ("-": NULL, or 0)
 *   begin NAME VERSION host|ps|caller BYTES TIMEOUT_MS
 *   commit TIMEOUT_MS
 *   get NAME VERSION BYTES TIMEOUT_MS    ("arriving": the first quarter is there)
 *   damage                               of the version that was got or published last
 *   open NAME VERSION TIMEOUT_MS         a view, which stays open until the next one is
 *   check                                of this view
 *
 * Every answer is a line: "= ERROR VERSION TOOK_US LATE_US TORN_BYTES TEXT", LATE_US beyond the
 * deadline. */
#include <inttypes.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TRUSTED_MS 60000 /* of calls that are not measured */

static struct {
    struct sl_objects *objects;
    struct sl_publication *publication;
    struct sl_subscription *subscription;
    struct sl_view *view;
    uint64_t *words; /* of the version that was got or published last */
    uint64_t bytes;
} peer;

static uint64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000U + (uint64_t)now.tv_nsec / 1000U;
}

static uint64_t word_of(uint64_t version, uint64_t index)
{
    return version * 0x9e3779b97f4a7c15U + index;
}

static uint64_t count_torn(const uint64_t *words, uint64_t bytes, uint64_t version)
{
    uint64_t torn = 0;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++) {
        torn += words[i] != word_of(version, i) ? sizeof *words : 0;
    }
    return torn;
}

static uint64_t count_torn_in_view(const struct sl_view *view)
{
    struct sl_object_tensor tensor;
    const uint64_t version = sl_view_version(view);
    return sl_view_tensor(view, "bytes", &tensor, NULL) == 0
               ? count_torn(tensor.data, tensor.bytes, version)
               : UINT64_MAX;
}

static void answer(int err, uint64_t version, uint64_t begin_us, uint64_t timeout_ms, uint64_t torn)
{
    const uint64_t took_us = now_us() - begin_us, limit_us = timeout_ms * 1000;
    printf("= %s %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n",
           err == 0 ? "ok" : sl_err_name(err), version, took_us,
           took_us > limit_us ? took_us - limit_us : 0, torn,
           err == 0 ? "" : sl_objects_last_error());
    (void)fflush(stdout);
}

/* Memory of earlier versions stays: a node may still read it. */
static void allocate(uint64_t bytes)
{
    peer.words = malloc(bytes);
    peer.bytes = bytes;
    if (peer.words == NULL) {
        abort();
    }
}

static void begin(const char *name, uint64_t version, const char *origin, uint64_t bytes,
                  uint32_t timeout_ms)
{
    const struct sl_publish_options options = {.struct_size = sizeof options,
                                               .name = name,
                                               .version = version,
                                               .take_over = true,
                                               .origin =
                                                   strcmp(origin, "host") == 0 ? SL_ORIGIN_HOST
                                                   : strcmp(origin, "ps") == 0 ? SL_ORIGIN_PS
                                                                               : SL_ORIGIN_CALLER};
    allocate(bytes);
    for (uint64_t i = 0; i < bytes / sizeof *peer.words; i++) {
        peer.words[i] = word_of(version, i);
    }
    const struct sl_object_extent extent = {.base = peer.words, .bytes = bytes};
    const uint64_t begin_us = now_us();
    sl_publish_end(&peer.publication);
    int err = sl_publish_begin(peer.objects, &options, timeout_ms, &peer.publication);
    err = err != 0 ? err : sl_publish_bytes(peer.publication, &extent, 1);
    answer(err, version, begin_us, timeout_ms, 0);
}

static void commit(uint32_t timeout_ms)
{
    const uint64_t begin_us = now_us();
    uint64_t version = 0;
    const int err = sl_publish_commit(peer.publication, timeout_ms, &version);
    answer(err, version, begin_us, timeout_ms, 0);
}

static void get(const char *name, uint64_t version, uint64_t bytes, uint32_t timeout_ms)
{
    struct sl_get *get = NULL;
    struct sl_get_progress progress = {.done = false};
    allocate(bytes);
    const struct sl_object_extent extent = {.base = peer.words, .bytes = bytes};
    const uint64_t begin_us = now_us();
    int err = sl_get_start(peer.objects, name, version, &extent, 1, timeout_ms, &get);
    while (err == 0 && !progress.done && progress.verified_bytes < bytes / 4) {
        (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        err = sl_get_progress(get, &progress);
    }
    if (err == 0) {
        printf("arriving\n");
        (void)fflush(stdout);
        err = sl_get_wait(get);
    }
    const uint64_t torn = err == 0 ? count_torn(peer.words, bytes, progress.version) : 0;
    answer(err, progress.version, begin_us, timeout_ms, torn);
    sl_get_close(&get);
}

/* The subscription is opened with time enough, so that the measured call is that of the view. */
static void open_view(const char *name, uint64_t version, uint32_t timeout_ms)
{
    const struct sl_view_options options = {.struct_size = sizeof options, .version = version};
    struct sl_view *view = NULL;
    int err = 0;
    if (peer.subscription == NULL) {
        err = sl_subscription_open(peer.objects, name, NULL, TRUSTED_MS, &peer.subscription);
    }
    const uint64_t begin_us = now_us();
    err = err != 0 ? err : sl_view_open(peer.subscription, &options, timeout_ms, &view);
    const uint64_t torn = err == 0 ? count_torn_in_view(view) : 0;
    answer(err, err == 0 ? sl_view_version(view) : 0, begin_us, timeout_ms, torn);
    if (err == 0) {
        sl_view_close(&peer.view);
        peer.view = view;
    }
}

static void damage(void)
{
    for (uint64_t i = 0; i < peer.bytes / sizeof *peer.words; i += SL_OBJECTS_BLOCK_BYTES / 8) {
        peer.words[i] ^= 1;
    }
    answer(0, 0, now_us(), 0, 0);
}

static void obey(const char *line)
{
    char name[64], origin[16];
    uint64_t version, bytes;
    uint32_t timeout_ms;
    if (sscanf(line, "begin %63s %" SCNu64 " %15s %" SCNu64 " %" SCNu32, name, &version, origin,
               &bytes, &timeout_ms) == 5) {
        begin(name, version, origin, bytes, timeout_ms);
    } else if (sscanf(line, "commit %" SCNu32, &timeout_ms) == 1) {
        commit(timeout_ms);
    } else if (sscanf(line, "get %63s %" SCNu64 " %" SCNu64 " %" SCNu32, name, &version, &bytes,
                      &timeout_ms) == 4) {
        get(name, version, bytes, timeout_ms);
    } else if (sscanf(line, "open %63s %" SCNu64 " %" SCNu32, name, &version, &timeout_ms) == 3) {
        open_view(name, version, timeout_ms);
    } else if (strcmp(line, "check\n") == 0) {
        answer(0, sl_view_version(peer.view), now_us(), TRUSTED_MS, count_torn_in_view(peer.view));
    } else if (strcmp(line, "damage\n") == 0) {
        damage();
    } else {
        fprintf(stderr, "unknown: %s", line);
        abort();
    }
}

static const char *option(const char *word)
{
    return strcmp(word, "-") == 0 ? NULL : word;
}

int main(int argc, char **argv)
{
    char line[256];
    if (argc != 7) {
        return 2;
    }
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .metadata = option(argv[2]), .endpoints = "tcp://127.0.0.1:0"};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = option(argv[1]),
                                               .agent = argv[3],
                                               .host = option(argv[4]),
                                               .rate_bytes = strtoull(argv[5], NULL, 10),
                                               .pool_bytes = strtoull(argv[6], NULL, 10)};
    const int err = sl_objects_create(&options, &peer.objects);
    if (err != 0) {
        fprintf(stderr, "%s: %s\n", sl_err_name(err), sl_objects_last_error());
        return 1;
    }
    printf("ready\n");
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        obey(line);
    }
    return 0;
}
