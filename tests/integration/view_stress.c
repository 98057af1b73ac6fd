/* The processes of objects_views_test.py: a publisher at full rate, and readers that check every
 * word of every version, also of one that they keep open while newer ones come.
 *
 *   view_stress publish CATALOGUE BYTES
 *   view_stress read AGENT follow|open */
#include <inttypes.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NAME       "stress"
#define TIMEOUT_MS 2000
#define PRINT_NS   50000000

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

/* Prints a line from time to time. */
static void report(const char *what, uint64_t version)
{
    static uint64_t last_ns;
    if (now_ns() - last_ns > PRINT_NS) {
        printf("%s %" PRIu64 "\n", what, version);
        (void)fflush(stdout);
        last_ns = now_ns();
    }
}

static uint64_t word_of(uint64_t version, uint64_t index)
{
    return version * 0x9e3779b97f4a7c15U + index;
}

/* Publish */

static int find_next(struct sl_objects *objects, uint64_t *version)
{
    struct sl_object_list *list = NULL;
    const int err = sl_object_list(objects, NAME, TIMEOUT_MS, &list);
    if (err == 0) {
        const uint64_t newest = list->count > 0 ? list->entries[list->count - 1].version : 0;
        *version = newest >= *version ? newest + 1 : *version;
        sl_object_list_free(&list);
    }
    return err;
}

static int publish_one(struct sl_objects *objects, uint64_t version, uint64_t *words,
                       uint64_t bytes)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .version = version, .take_over = true};
    const struct sl_object_extent extent = {.base = words, .bytes = bytes};
    struct sl_publication *publication = NULL;
    uint64_t committed;
    for (uint64_t i = 0; i < bytes / sizeof *words; i++) {
        words[i] = word_of(version, i);
    }
    int err = sl_publish_begin(objects, &options, TIMEOUT_MS, &publication);
    err = err != 0 ? err : sl_publish_bytes(publication, &extent, 1);
    err = err != 0 ? err : sl_publish_commit(publication, TIMEOUT_MS, &committed);
    sl_publish_end(&publication);
    return err;
}

static int publish(const char *catalogue, uint64_t bytes)
{
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0"};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = catalogue,
                                               .agent = "off",
                                               .pool_bytes = 8 * bytes};
    struct sl_objects *objects = NULL;
    uint64_t *words = malloc(bytes);
    int err = words != NULL ? sl_objects_create(&options, &objects) : SL_ERR_NO_MEMORY;
    uint64_t version = 1;
    while (objects != NULL) {
        err = publish_one(objects, version, words, bytes);
        if (err == 0) {
            report("published", version++);
            continue;
        }
        fprintf(stderr, "publish %" PRIu64 ": %s: %s\n", version, sl_err_name(err),
                sl_objects_last_error());
        while (find_next(objects, &version) != 0) {
        }
    }
    return err;
}

/* Read */

static void check(const struct sl_view *view)
{
    struct sl_object_tensor tensor;
    const uint64_t version = sl_view_version(view);
    if (sl_view_tensor(view, "bytes", &tensor, NULL) != 0) {
        printf("version %" PRIu64 " has no bytes\n", version);
        exit(3);
    }
    const uint64_t *words = tensor.data;
    for (uint64_t i = 0; i < tensor.bytes / sizeof *words; i++) {
        if (words[i] != word_of(version, i)) {
            printf("version %" PRIu64 ": word %" PRIu64 " of %" PRIu64 " is wrong\n", version, i,
                   tensor.bytes / sizeof *words);
            exit(3);
        }
    }
}

static int read_versions(const char *agent, bool follows)
{
    const struct sl_objects_options options = {.struct_size = sizeof options, .agent = agent};
    const struct sl_subscribe_options follow = {.struct_size = sizeof follow, .follow = follows};
    struct sl_objects *objects = NULL;
    struct sl_subscription *subscription = NULL;
    struct sl_view *kept = NULL;
    uint64_t version = 0;
    int err = sl_objects_create(&options, &objects);
    while (err == 0 && sl_subscription_open(objects, NAME, &follow, TIMEOUT_MS, &subscription)) {
        fprintf(stderr, "subscribe: %s\n", sl_objects_last_error());
    }
    while (err == 0) {
        struct sl_view *view = NULL;
        err = sl_subscription_wait(subscription, version, TIMEOUT_MS, &version);
        err = err != 0 ? err : sl_view_open(subscription, NULL, TIMEOUT_MS, &view);
        if (err != 0) {
            fprintf(stderr, "read: %s: %s\n", sl_err_name(err), sl_objects_last_error());
        } else {
            version = sl_view_version(view);
            check(view);
            report("read", version);
        }
        if (kept != NULL) {
            check(kept);
        }
        sl_view_close(&kept);
        kept = view;
        /* The pool is too small, a process was killed, or the version is gone. */
        err = err == SL_ERR_INVALID || err == SL_ERR_CORRUPT || err == SL_ERR_PROTOCOL ? err : 0;
    }
    return err;
}

int main(int argc, char **argv)
{
    int err = SL_ERR_INVALID;
    if (argc == 4 && strcmp(argv[1], "publish") == 0) {
        err = publish(argv[2], strtoull(argv[3], NULL, 10));
    } else if (argc == 4 && strcmp(argv[1], "read") == 0) {
        err = read_versions(argv[2], strcmp(argv[3], "follow") == 0);
    }
    fprintf(stderr, "%s: %s\n", argv[0], sl_err_name(err));
    return 1;
}
