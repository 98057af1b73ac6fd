#include "serve/worker/version.h"

#include <stdlib.h>
#include <string.h>

#include "core/array.h"

#define MIB      1048576.0
/* Each group costs the worker a wait for the agent: the wake-up of a thread, twice. */
#define GROUP_US 30
/* Until READs have been measured: a network of 10 Gbit/s. */
#define READ_US  50
#define MIB_US   840

/* The text of the library's last error. */
static int failed(struct sl_reason *reason, int err)
{
    const char *text = sl_objects_last_error();
    return sl_reason_fail(reason, err, "%s", text[0] != '\0' ? text : sl_err_name(err));
}

/* Schedule */

/* Chooses the groups, whose ends become the stops, and sets wait_for. */
static void plan(const struct sl_serve_open *open, const struct sl_residency *residency,
                 struct sl_serve_version *version, struct sl_serve_layer *layers)
{
    const struct sl_engine_info *info = version->info;
    const bool is_known = open->profile->layer_count == info->layer_count;
    const bool is_measured = residency->mib_us > 0;
    const struct sl_serve_costs costs = {.transfer_us = is_measured ? residency->read_us : READ_US,
                                         .byte_us =
                                             (is_measured ? residency->mib_us : MIB_US) / MIB,
                                         .group_us = GROUP_US};
    struct sl_serve_schedule schedule;
    uint64_t here = residency->version == version->number ? residency->bytes : 0;
    for (uint32_t i = 0; i < info->layer_count; i++) {
        const uint64_t end = info->layers[i].image_end;
        layers[i].missing_bytes = end > here ? (double)(end - here) : 0;
        layers[i].compute_us = is_known ? open->profile->shares[i] * open->profile->run_us
                                        : info->layers[i].flops / open->flops_per_us;
        here = end > here ? end : here;
    }
    sl_serve_schedule_plan(open->rule, open->rule_bytes, &costs, layers, info->layer_count,
                           open->search, &schedule);
    uint32_t group = 0;
    for (uint32_t i = 0; i < info->layer_count; i++) {
        group += group < schedule.group_count && i == schedule.ends[group];
        version->wait_for[i] = layers[i].missing_bytes > 0
                                   ? info->layers[schedule.ends[group] - 1].image_end
                                   : info->layers[i].image_end;
    }
    for (uint32_t i = 0; i < schedule.group_count; i++) {
        version->stops[i] = info->layers[schedule.ends[i] - 1].image_end;
    }
    version->stop_count = schedule.group_count;
}

/* Opens a view of the version whose READs end at the stops. */
static int open_view(struct sl_subscription *subscription, uint64_t number, const uint64_t *stops,
                     uint32_t stop_count, uint32_t timeout_ms, struct sl_view **out)
{
    const struct sl_view_options options = {.struct_size = sizeof options,
                                            .version = number,
                                            .stream = true,
                                            .stop_count = stop_count,
                                            .stops = stops};
    return sl_view_open(subscription, &options, timeout_ms, out);
}

/* The view was opened with the stops of the last open. If others are better now, another view of
 * the version brings them to the agent; without it bytes would only come in other pieces. */
static int schedule(const struct sl_serve_open *open, const struct sl_residency *residency,
                    struct sl_subscription *subscription, struct sl_serve_version *version,
                    struct sl_reason *reason)
{
    const uint32_t count = version->info->layer_count;
    struct sl_serve_layer *layers = calloc(count + 1, sizeof *layers);
    struct sl_view *view = NULL;
    version->wait_for = calloc(count + 1, sizeof *version->wait_for);
    if (layers == NULL || version->wait_for == NULL) {
        free(layers);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    plan(open, residency, version, layers);
    free(layers);
    const struct sl_serve_profile *before = open->profile;
    if (version->stop_count > 1 &&
        (version->stop_count != before->stop_count ||
         memcmp(version->stops, before->stops, version->stop_count * sizeof version->stops[0]) !=
             0) &&
        open_view(subscription, version->number, version->stops, version->stop_count,
                  open->timeout_ms, &view) == 0) {
        sl_view_close(&view);
    }
    return 0;
}

/* Open */

/* Lists the version's tensors, and waits for those that an engine's open reads. */
static int read_image(const struct sl_serve_open *open, struct sl_serve_version *version,
                      struct sl_engine_image *image, struct sl_object_tensor **tensors,
                      uint64_t **offsets, struct sl_reason *reason)
{
    uint32_t tensor_room = 0, offset_room = 0, count = 0;
    uint64_t cursor = 0, needed = 0;
    for (;; count++) {
        if (!sl_array_make_room(tensors, &tensor_room, count, sizeof **tensors) ||
            !sl_array_make_room(offsets, &offset_room, count, sizeof **offsets)) {
            return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
        }
        struct sl_object_tensor *tensor = &(*tensors)[count];
        if (sl_view_next_tensor(version->view, &cursor, tensor, &(*offsets)[count]) != 0) {
            break;
        }
        const uint64_t end = (*offsets)[count] + tensor->bytes;
        version->bytes = end > version->bytes ? end : version->bytes;
        needed = tensor->name[0] == '.' && end > needed ? end : needed;
    }
    *image = (struct sl_engine_image){.tensors = *tensors,
                                      .offsets = *offsets,
                                      .count = count,
                                      .bytes = version->bytes,
                                      .note = sl_view_note(version->view)};
    const int err = needed > 0 ? sl_view_wait(version->view, needed, open->timeout_ms) : 0;
    return err == 0 ? 0 : failed(reason, err);
}

/* What a request can name and a notice can carry. */
static int check_info(const struct sl_engine_info *info, struct sl_reason *reason)
{
    if (info->input_count > SL_SERVE_TENSORS_MAX || info->output_count > SL_SERVE_TENSORS_MAX ||
        info->layer_count > SL_SERVE_LAYERS_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "the model has %u inputs, %u outputs and %u layers: at most %d, %d "
                              "and %d",
                              info->input_count, info->output_count, info->layer_count,
                              SL_SERVE_TENSORS_MAX, SL_SERVE_TENSORS_MAX, SL_SERVE_LAYERS_MAX);
    }
    for (uint32_t i = 0; i < info->input_count + info->output_count; i++) {
        const char *name = i < info->input_count ? info->inputs[i].name
                                                 : info->outputs[i - info->input_count].name;
        if (strlen(name) >= SL_SERVE_TENSOR_NAME) {
            return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                                  "the name of tensor `%s` is longer than %d bytes", name,
                                  SL_SERVE_TENSOR_NAME - 1);
        }
    }
    return 0;
}

static int open_engine(const struct sl_serve_open *open, struct sl_serve_version *version,
                       struct sl_reason *reason)
{
    struct sl_engine_image image;
    struct sl_object_tensor *tensors = NULL;
    uint64_t *offsets = NULL;
    int err = read_image(open, version, &image, &tensors, &offsets, reason);
    for (uint32_t i = 0; err == 0 && version->model == NULL && i < open->engine_count; i++) {
        version->engine = open->engines[i];
        err = version->engine->open(&image, open->rows_max, reason, &version->model);
        err = err == SL_ERR_UNSUPPORTED && i + 1 < open->engine_count ? 0 : err;
    }
    free(tensors);
    free(offsets);
    if (err == 0) {
        version->info = version->engine->info(version->model);
        version->number = sl_view_version(version->view);
        err = check_info(version->info, reason);
    }
    return err;
}

int sl_serve_version_open(const struct sl_serve_open *open, struct sl_subscription **subscription,
                          struct sl_serve_version **out, struct sl_reason *reason)
{
    struct sl_residency residency;
    int err = *subscription == NULL ? sl_subscription_open(open->objects, open->name, NULL,
                                                           open->timeout_ms, subscription)
                                    : 0;
    struct sl_serve_version *made = err == 0 ? calloc(1, sizeof *made) : NULL;
    if (made == NULL) {
        return err != 0 ? failed(reason, err)
                        : sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    sl_subscription_residency(*subscription, &residency);
    err = open_view(*subscription, open->number, open->profile->stops, open->profile->stop_count,
                    open->timeout_ms, &made->view);
    err = err != 0 ? failed(reason, err) : open_engine(open, made, reason);
    err = err != 0 ? err : schedule(open, &residency, *subscription, made, reason);
    if (err != 0) {
        sl_serve_version_close(&made);
        return err;
    }
    *out = made;
    return 0;
}

void sl_serve_version_close(struct sl_serve_version **version)
{
    struct sl_serve_version *gone = *version;
    *version = NULL;
    if (gone == NULL) {
        return;
    }
    if (gone->model != NULL) {
        gone->engine->close(&gone->model);
    }
    sl_view_close(&gone->view);
    free(gone->wait_for);
    free(gone);
}

/* Run */

/* Waits for bytes of the images, if they are not known to be there. */
static int wait_for(struct sl_serve_version *version, uint64_t bytes, uint64_t deadline_ns,
                    const struct sl_clock *clock, struct sl_reason *reason)
{
    if (bytes <= version->verified) {
        return 0;
    }
    const uint64_t now_ns = sl_clock_now_ns(clock);
    const uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / SL_CLOCK_NS_PER_MS : 0;
    const uint32_t timeout_ms =
        left_ms < SL_TRANSFER_TIMEOUT_MS_MAX ? (uint32_t)left_ms + 1 : SL_TRANSFER_TIMEOUT_MS_MAX;
    const int err = sl_view_wait(version->view, bytes, timeout_ms);
    if (err != 0) {
        return failed(reason, err);
    }
    version->verified = bytes;
    return 0;
}

int sl_serve_version_run(struct sl_serve_version *version, const struct sl_serve_batch *batch,
                         uint8_t *scratch, uint64_t deadline_ns, const struct sl_clock *clock,
                         struct sl_serve_times *times, struct sl_reason *reason)
{
    const struct sl_engine_info *info = version->info;
    const uint64_t begun_ns = sl_clock_now_ns(clock);
    times->wait_ns = times->run_ns = 0;
    if (batch->item_count == 0) {
        return wait_for(version, version->bytes, deadline_ns, clock, reason);
    }
    sl_serve_batch_gather(info, batch, scratch);
    for (uint32_t i = 0; i < info->layer_count; i++) {
        const uint64_t asked_ns = sl_clock_now_ns(clock);
        const bool is_last = i + 1 == info->layer_count;
        int err = wait_for(version, is_last ? version->bytes : version->wait_for[i], deadline_ns,
                           clock, reason);
        const uint64_t ready_ns = sl_clock_now_ns(clock);
        err =
            err != 0 ? err : version->engine->run(version->model, scratch, i, batch->rows, reason);
        if (err != 0) {
            return err;
        }
        times->wait_ns += ready_ns - asked_ns;
        times->layers[i] = (float)(sl_clock_now_ns(clock) - ready_ns) / SL_CLOCK_NS_PER_US;
    }
    sl_serve_batch_scatter(info, batch, scratch);
    times->run_ns = sl_clock_now_ns(clock) - begun_ns - times->wait_ns;
    return 0;
}
