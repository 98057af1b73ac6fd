#include "programs/serve/worker/version.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/array.h"

#define MIB      1048576.0
#define WAIT_MS  500 /* for bytes: then another model may be computed first */
/* Each group costs the worker a wait for the agent: the wake-up of a thread, twice. */
#define GROUP_US 30
/* Until READs have been measured: a network of 10 Gbit/s. */
#define READ_US  50
#define MIB_US   840

/* The text of the library's last error. */
static int worker_version_failed(struct sl_reason *reason, int err)
{
    const char *text = sl_objects_last_error();
    return sl_reason_fail(reason, err, "%s", text[0] != '\0' ? text : sl_err_name(err));
}

/* Schedule */

/* Chooses the groups of layers, whose ends become the stops. READs of a stream have nearly one
 * size, so that what they cost beside their bytes is not known well: it is bounded. */
static void worker_version_plan(const struct sl_serve_open *open,
                                const struct sl_residency *residency,
                                const struct sl_serve_profile *profile,
                                struct sl_serve_version *version)
{
    struct sl_serve_layer *layers = calloc(profile->layer_count + 1, sizeof *layers);
    const bool is_measured = residency->mib_us > 0;
    const double mib_us = is_measured ? residency->mib_us : MIB_US;
    const double read_us = is_measured ? residency->read_us : READ_US;
    const struct sl_serve_costs costs = {.transfer_us = read_us < mib_us / 8 ? read_us : mib_us / 8,
                                         .byte_us = mib_us / MIB,
                                         .group_us = GROUP_US};
    struct sl_serve_schedule schedule;
    uint64_t here = residency->bytes;
    version->resident = here;
    version->stop_count = 0;
    for (uint32_t i = 0; layers != NULL && i < profile->layer_count; i++) {
        const uint64_t end = profile->layers[i].image_end;
        layers[i].missing_bytes = end > here ? (double)(end - here) : 0;
        layers[i].compute_us = profile->layers[i].share * profile->run_us;
        here = end > here ? end : here;
    }
    if (layers != NULL) { /* else each layer waits for its own bytes */
        sl_serve_schedule_plan(open->rule, open->rule_bytes, &costs, layers, profile->layer_count,
                               open->search, &schedule);
        version->stop_count = schedule.group_count;
    }
    for (uint32_t i = 0; i < version->stop_count; i++) {
        version->stops[i] = profile->layers[schedule.ends[i] - 1].image_end;
    }
    free(layers);
}

static bool is_profile_of(const struct sl_serve_profile *profile, const struct sl_engine_info *info)
{
    bool is_same = profile->layer_count == info->layer_count;
    for (uint32_t i = 0; is_same && i < info->layer_count; i++) {
        is_same = profile->layers[i].image_end == info->layers[i].image_end;
    }
    return is_same;
}

/* A model that has not run yet: FLOPs say how long layers take. Its bytes come as the agent likes,
 * since the view was opened before the layers were known. */
static int plan_unknown(const struct sl_serve_open *open, const struct sl_residency *residency,
                        struct sl_serve_version *version, struct sl_reason *reason)
{
    const struct sl_engine_info *info = version->info;
    struct sl_serve_profile profile = {.layer_count = info->layer_count, .run_us = 1};
    profile.layers = calloc(info->layer_count + 1, sizeof *profile.layers);
    if (profile.layers == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    for (uint32_t i = 0; i < info->layer_count; i++) {
        profile.layers[i].image_end = info->layers[i].image_end;
        profile.layers[i].share = (float)(info->layers[i].flops * open->rows / open->flops_per_us);
    }
    worker_version_plan(open, residency, &profile, version);
    free(profile.layers);
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
        const uint8_t *data = tensor->data;
        const uint8_t *base = data != NULL ? data - (*offsets)[count] : NULL;
        version->base = count == 0 || base == version->base ? base : NULL;
        version->bytes = end > version->bytes ? end : version->bytes;
        needed = tensor->name[0] == '.' && end > needed ? end : needed;
    }
    *image = (struct sl_engine_image){.tensors = *tensors,
                                      .offsets = *offsets,
                                      .count = count,
                                      .bytes = version->bytes,
                                      .note = sl_view_note(version->view)};
    version->head = needed;
    const int err = needed > 0 ? sl_view_wait(version->view, needed, open->timeout_ms) : 0;
    return err == 0 ? 0 : worker_version_failed(reason, err);
}

/* Checks the limits of requests and notices. */
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
        const struct sl_engine_tensor *tensor =
            i < info->input_count ? &info->inputs[i] : &info->outputs[i - info->input_count];
        if (!sl_serve_request_name_is_valid(tensor->name) ||
            sl_serve_request_datatype(tensor->type) == NULL) {
            return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                                  "requests cannot have tensor `%.64s` of type %u: its name has 1 "
                                  "to %d bytes of printable UTF-8, its type one of the Open "
                                  "Inference Protocol",
                                  tensor->name, tensor->type, SL_SERVE_TENSOR_NAME - 1);
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

/* The first READ brings only what an engine's open reads, so that this is there early. */
static int open_view(const struct sl_serve_open *open, struct sl_subscription *subscription,
                     struct sl_serve_version *version, struct sl_reason *reason)
{
    uint64_t stops[SL_SERVE_GROUPS_MAX] = {open->profile->head > 0 ? open->profile->head : 1};
    uint32_t stop_count = 1;
    for (uint32_t i = 0; i < version->stop_count && stop_count < SL_SERVE_GROUPS_MAX; i++) {
        if (version->stops[i] > stops[0]) {
            stops[stop_count++] = version->stops[i];
        }
    }
    const struct sl_view_options options = {.struct_size = sizeof options,
                                            .version = open->number,
                                            .stream = true,
                                            .stop_count = stop_count,
                                            .stops = stops};
    const int err = sl_view_open(subscription, &options, open->timeout_ms, &version->view);
    if (err == SL_ERR_DEADLINE && open->number == 0 && sl_subscription_newest(subscription) == 0) {
        return sl_reason_fail(reason, SL_ERR_NOT_FOUND, "%s has no versions", open->name);
    }
    return err == 0 ? 0 : worker_version_failed(reason, err);
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
        return err != 0 ? worker_version_failed(reason, err)
                        : sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    sl_subscription_residency(*subscription, &residency);
    residency.bytes = open->number == 0 || open->number == residency.version ? residency.bytes : 0;
    worker_version_plan(open, &residency, open->profile, made);
    err = open_view(open, *subscription, made, reason);
    err = err != 0 ? err : open_engine(open, made, reason);
    if (err == 0 && !is_profile_of(open->profile, made->info)) {
        err = plan_unknown(open, &residency, made, reason);
    }
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
    free(gone);
}

/* Run */

/* Bytes of the images that must be there before the layer runs: those of its group. */
static uint64_t bytes_before(const struct sl_serve_version *version, uint32_t layer)
{
    const uint64_t end = version->info->layers[layer].image_end;
    if (layer + 1 == version->info->layer_count) {
        return version->bytes; /* also what no layer reads: the version is complete then */
    }
    for (uint32_t i = 0; end > version->resident && i < version->stop_count; i++) {
        if (version->stops[i] >= end) {
            return version->stops[i];
        }
    }
    return end;
}

/* Maps the bytes up to `end` at once, which takes a quarter of the time of page faults: usually
 * while they are on their way. */
static void map_ahead(const struct sl_serve_version *version, uint64_t end)
{
#ifdef MADV_POPULATE_READ
    const uintptr_t page = 4096;
    const uintptr_t from = ((uintptr_t)version->base + version->verified) / page * page;
    if (version->base != NULL) {
        (void)madvise((void *)from, (uintptr_t)version->base + end - from, MADV_POPULATE_READ);
    }
#endif
}

/* Waits for bytes of the images, if they are not known to be there. */
static int wait_for(struct sl_serve_version *version, uint64_t bytes, uint64_t deadline_ns,
                    const struct sl_clock *clock, struct sl_reason *reason)
{
    if (bytes <= version->verified) {
        return 0;
    }
    map_ahead(version, bytes);
    const uint64_t now_ns = sl_clock_now_ns(clock);
    const uint64_t left_ms = deadline_ns > now_ns ? (deadline_ns - now_ns) / SL_CLOCK_NS_PER_MS : 0;
    const uint32_t timeout_ms = left_ms < WAIT_MS ? (uint32_t)left_ms + 1 : WAIT_MS;
    const int err = sl_view_wait(version->view, bytes, timeout_ms);
    if (err != 0) {
        return worker_version_failed(reason, err);
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
        int err = wait_for(version, bytes_before(version, i), deadline_ns, clock, reason);
        const uint64_t ready_ns = sl_clock_now_ns(clock);
        err =
            err != 0 ? err : version->engine->run(version->model, scratch, i, batch->rows, reason);
        if (err != 0) {
            return err;
        }
        times->wait_ns += ready_ns - asked_ns;
        if (times->waits != NULL) {
            times->waits[i] = (float)(ready_ns - asked_ns) / SL_CLOCK_NS_PER_US;
        }
        times->layers[i] = (float)(sl_clock_now_ns(clock) - ready_ns) / SL_CLOCK_NS_PER_US;
    }
    sl_serve_batch_scatter(info, batch, scratch);
    times->run_ns = sl_clock_now_ns(clock) - begun_ns - times->wait_ns;
    return 0;
}
