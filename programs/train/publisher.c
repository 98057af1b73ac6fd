#include "programs/train/publisher.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/format.h"
#include "core/log.h"
#include "programs/models/model_note.h"

struct sl_publisher {
    const char *name;
    int every_ms;
    uint32_t timeout_ms;
    char tables[SL_MODEL_TABLES * SL_TABLE_NAME_BYTES]; /* with commas between them */
    char note[SL_MODEL_NOTE_BYTES];
    struct sl_objects *objects;
    pthread_t thread;
    int end_fd; /* readable: end */
};

static void publisher_publish(struct sl_publisher *self)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = self->name, .note = self->note};
    uint64_t version;
    if (sl_publish_tables(self->objects, &options, self->tables, self->timeout_ms, &version) != 0) {
        sl_log_warn("--publish %s: no version: %s", self->name, sl_objects_last_error());
    } else {
        sl_log_info("published %s@%" PRIu64 " (%s)", self->name, version, self->note);
    }
}

static void *publisher_run(void *ctx)
{
    struct sl_publisher *self = ctx;
    struct pollfd end = {.fd = self->end_fd, .events = POLLIN};
    while (poll(&end, 1, self->every_ms) <= 0) {
        publisher_publish(self);
    }
    return NULL;
}

static void free_publisher(struct sl_publisher **publisher)
{
    sl_objects_destroy(&(*publisher)->objects);
    if ((*publisher)->end_fd >= 0) {
        (void)close((*publisher)->end_fd);
    }
    free(*publisher);
    *publisher = NULL;
}

/* Its threads leave signals to the training thread. */
static bool start(struct sl_publisher *self, const struct sl_objects_options *options)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    self->end_fd = eventfd(0, EFD_CLOEXEC);
    const bool is_running = sl_objects_create(options, &self->objects) == 0 && self->end_fd >= 0 &&
                            pthread_create(&self->thread, NULL, publisher_run, self) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return is_running;
}

void sl_publisher_start(const struct sl_publisher_options *options, struct sl_publisher **out)
{
    const struct sl_objects_options node = {.struct_size = sizeof node,
                                            .engine_options = options->engine,
                                            .catalogue = options->catalogue,
                                            .agent = "off"};
    struct sl_publisher *made = calloc(1, sizeof *made);
    *out = NULL;
    if (made == NULL) {
        return;
    }
    made->name = options->name;
    made->every_ms = (int)(options->every_ns / SL_CLOCK_NS_PER_MS);
    made->timeout_ms = options->timeout_ms;
    sl_model_note_write(options->model, options->shape, made->note);
    struct sl_table_spec specs[SL_MODEL_TABLES];
    const uint32_t count = options->model->tables(options->shape, specs);
    for (uint32_t i = 0; i < count; i++) {
        (void)sl_format_add(made->tables, sizeof made->tables, ",", "%s", specs[i].name);
    }
    if (!start(made, &node)) {
        sl_log_warn("--publish %s: nothing is published: %s", made->name,
                    made->objects == NULL ? sl_objects_last_error() : "no thread");
        free_publisher(&made);
        return;
    }
    *out = made;
}

void sl_publisher_stop(struct sl_publisher **publisher, bool publishes_last)
{
    const uint64_t one = 1;
    if (*publisher == NULL) {
        return;
    }
    (void)!write((*publisher)->end_fd, &one, sizeof one);
    (void)pthread_join((*publisher)->thread, NULL);
    if (publishes_last) {
        publisher_publish(*publisher);
    }
    free_publisher(publisher);
}
