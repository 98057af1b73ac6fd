/* Reads rows of one column of a published table: rows_reader NAME TABLE KEY... prints the version,
 * and each key with its value. It finds the catalogue in the environment, as programs of a job do.
 */
#include <inttypes.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>

#define TIMEOUT_MS 30000
#define KEYS_MAX   256

static int fail(const char *what)
{
    (void)fprintf(stderr, "rows_reader: %s: %s\n", what, sl_objects_last_error());
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    const struct sl_objects_options options = {.struct_size = sizeof options};
    const struct sl_view_options newest = {.struct_size = sizeof newest};
    struct sl_objects *objects = NULL;
    struct sl_subscription *subscription = NULL;
    struct sl_view *view = NULL;
    uint64_t keys[KEYS_MAX];
    float rows[KEYS_MAX];
    uint8_t found[KEYS_MAX];
    const uint32_t count = argc > 3 ? (uint32_t)argc - 3 : 0;
    if (count == 0 || count > KEYS_MAX) {
        return EXIT_FAILURE;
    }
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = strtoull(argv[3 + i], NULL, 10);
    }
    if (sl_objects_create(&options, &objects) != 0) {
        return fail("cannot start");
    }
    if (sl_subscription_open(objects, argv[1], NULL, TIMEOUT_MS, &subscription) != 0 ||
        sl_view_open(subscription, &newest, TIMEOUT_MS, &view) != 0 ||
        sl_view_rows(view, argv[2], keys, count, 1, rows, found) != 0) {
        return fail(argv[1]);
    }
    (void)printf("version %" PRIu64 "\n", sl_view_version(view));
    for (uint32_t i = 0; i < count; i++) {
        if (found[i] != 0) {
            (void)printf("%" PRIu64 " is %.9g\n", keys[i], (double)rows[i]);
        } else {
            (void)printf("%" PRIu64 " is not there\n", keys[i]);
        }
    }
    sl_view_close(&view);
    sl_subscription_close(&subscription);
    sl_objects_destroy(&objects);
    return EXIT_SUCCESS;
}
