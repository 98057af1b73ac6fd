/* A minimal program that uses libstarling_objects: publishes a text as a version of the object
 * "text", or gets the newest version that another process has published.
 *
 *   cc objects.c $(pkg-config --cflags --libs starling-objects) -o objects
 *   ./objects publish "some text"            prints the address of its catalogue; until SIGINT
 *   ./objects get 127.0.0.1:41000            the address that the other process printed */
#include <signal.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MS 5000

/* Serves the text from where it is, until a signal comes. */
static int publish(struct sl_objects *objects, char *text, const sigset_t *signals)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "text", .origin = SL_ORIGIN_CALLER};
    const struct sl_object_extent extent = {.base = text, .bytes = strlen(text)};
    struct sl_publication *publication = NULL;
    uint64_t version;
    int err = sl_publish_begin(objects, &options, TIMEOUT_MS, &publication);
    if (err == 0) {
        err = sl_publish_bytes(publication, &extent, 1);
    }
    if (err == 0) {
        err = sl_publish_commit(publication, TIMEOUT_MS, &version);
    }
    if (err == 0) {
        printf("%s\n", sl_objects_address(objects));
        fflush(stdout);
        int signal_number;
        sigwait(signals, &signal_number);
        err = sl_object_withdraw(objects, "text", version, TIMEOUT_MS);
    }
    if (publication != NULL) {
        sl_publish_end(&publication);
    }
    return err;
}

/* From here on this process has the version too, and would serve it until it withdraws. */
static int get_into(struct sl_objects *objects, const struct sl_object_entry *entry, char *text)
{
    const struct sl_object_extent extent = {.base = text, .bytes = entry->bytes};
    struct sl_get *get = NULL;
    int err = sl_get_start(objects, entry->name, entry->version, &extent, 1, TIMEOUT_MS, &get);
    if (err != 0) {
        return err;
    }
    err = sl_get_wait(get); /* ends by the deadline */
    if (err == 0) {
        printf("%.*s\n", (int)entry->bytes, text);
    }
    sl_get_close(&get);
    int withdrawn; /* before that other nodes may read the text, also if the get failed */
    do {
        withdrawn = sl_object_withdraw(objects, entry->name, entry->version, TIMEOUT_MS);
    } while (withdrawn == SL_ERR_DEADLINE);
    return err;
}

static int get_newest(struct sl_objects *objects)
{
    struct sl_object_list *list = NULL;
    int err = sl_object_list(objects, "text", TIMEOUT_MS, &list);
    if (err != 0) {
        return err;
    }
    if (list->count > 0) {
        const struct sl_object_entry *newest = &list->entries[list->count - 1];
        char *text = malloc(newest->bytes + 1);
        err = text != NULL ? get_into(objects, newest, text) : SL_ERR_NO_MEMORY;
        free(text);
    }
    sl_object_list_free(&list);
    return err;
}

int main(int argc, char **argv)
{
    if (argc != 3 || (strcmp(argv[1], "publish") != 0 && strcmp(argv[1], "get") != 0)) {
        fprintf(stderr, "usage: %s publish TEXT | get CATALOGUE\n", argv[0]);
        return 2;
    }
    const int publishes = argv[1][0] == 'p';
    sigset_t signals; /* blocked here, and so in the threads of the node */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    /* On loopback, peers need no secret. */
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0"};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = publishes ? NULL : argv[2]};
    struct sl_objects *objects = NULL;
    int err = sl_objects_create(&options, &objects);
    if (err == 0) {
        err = publishes ? publish(objects, argv[2], &signals) : get_newest(objects);
    }
    if (err != 0) {
        fprintf(stderr, "%s: %s: %s\n", argv[0], sl_err_name(err), sl_objects_last_error());
    }
    if (objects != NULL) {
        sl_objects_destroy(&objects);
    }
    return err == 0 ? 0 : 1;
}
