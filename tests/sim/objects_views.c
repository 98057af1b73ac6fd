#include "tests/sim/objects_views.h"

#include <inttypes.h>
#include <string.h>

#include "core/assert.h"
#include "tests/sim/random.h"

#define VIEWS_MAX 2    /* of one subscription */
#define VIEW_MS   2000 /* a view stays open, at most */

struct images {
    uint32_t count;
    const uint8_t *at[SL_SIM_OBJECTS_PARTS_MAX];
    uint64_t bytes[SL_SIM_OBJECTS_PARTS_MAX];
};

static bool is_of_application(const struct sl_sim_objects_app *app, const uint8_t *at)
{
    bool is = false;
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX; i++) {
        const struct sl_sim_objects_held *held = &app->held[i];
        is = is || (held->memory != NULL && at >= held->memory && at < held->memory + held->bytes);
    }
    return is;
}

/* The images of all parts. False: some lie in memory of the application, which may withdraw it. */
static bool find_images(const struct sl_sim_objects_app *app, const struct sl_view *view,
                        struct images *images)
{
    struct sl_object_tensor tensor;
    uint64_t cursor = 0;
    images->count = 0;
    while (sl_view_next_tensor(view, &cursor, &tensor, NULL) == 0) {
        if (tensor.data == NULL || is_of_application(app, tensor.data)) {
            return false;
        }
        sl_assert(images->count < SL_SIM_OBJECTS_PARTS_MAX);
        images->at[images->count] = tensor.data;
        images->bytes[images->count++] = tensor.bytes;
    }
    return true;
}

static uint64_t hash_images(const struct images *images)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < images->count; i++) {
        hash = sl_hash_bytes(images->at[i], images->bytes[i], hash);
    }
    return hash;
}

/* The bytes of an open view are those of one version, and stay so. */
static void look_at_view(struct sl_sim_objects_app *app, const struct sl_view *view, uint32_t name)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    struct images images;
    if (app->base.dying || !find_images(app, view, &images) ||
        sl_sim_objects_oracle_judge(oracle, app->options.host, name, sl_view_version(view),
                                    images.at, images.bytes) == 0) {
        return;
    }
    const uint64_t before = hash_images(&images);
    sl_sim_app_sleep(&app->base, SL_CLOCK_NS_PER_MS * sl_sim_below(&app->base.random, VIEW_MS));
    if (!app->base.dying && hash_images(&images) != before) {
        sl_sim_fail(&oracle->breach, "view", "node %u has a view of n%u@%" PRIu64 " that changes",
                    app->options.host, name, sl_view_version(view));
    }
}

/* Returns the error of the open, or of the wait for all bytes. */
static int view(struct sl_sim_objects_app *app, struct sl_subscription *subscription, uint32_t name,
                uint32_t timeout_ms)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    const struct sl_view_options options = {.struct_size = sizeof options,
                                            .behind_max =
                                                sl_sim_chance(&app->base.random, 300) ? 1 : 0,
                                            .stream = sl_sim_chance(&app->base.random, 300)};
    const uint64_t newest = sl_subscription_newest(subscription);
    struct sl_view *opened;
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    int err = sl_view_open(subscription, &options, timeout_ms, &opened);
    sl_sim_objects_judge(app, &timing, "view", "", timeout_ms, err);
    if (err != 0) {
        return err;
    }
    if (options.behind_max == 0 && sl_view_version(opened) < newest && !app->base.dying &&
        !sl_sim_objects_oracle_may_be_removed(oracle, name, newest)) {
        sl_sim_fail(&oracle->breach, "newest",
                    "node %u has a view of n%u@%" PRIu64 ", but knew %" PRIu64, app->options.host,
                    name, sl_view_version(opened), newest);
    }
    const struct sl_sim_objects_timing waiting = sl_sim_objects_begin(app);
    err = sl_view_wait(opened, UINT64_MAX, timeout_ms);
    sl_sim_objects_judge(app, &waiting, "wait for view", "", timeout_ms, err);
    if (err == 0) {
        look_at_view(app, opened, name);
    }
    sl_view_close(&opened);
    return err;
}

void sl_sim_objects_act_view(struct sl_sim_objects_app *app)
{
    const uint32_t name = sl_sim_below(&app->base.random, app->options.plan->name_count);
    struct sl_subscription *subscription;
    if (sl_sim_objects_subscribe(app, name, sl_sim_chance(&app->base.random, 500),
                                 sl_sim_objects_draw_timeout(app), &subscription) != 0) {
        return;
    }
    for (uint32_t i = 0; i < VIEWS_MAX && !app->base.dying; i++) {
        (void)view(app, subscription, name,
                   1 + sl_sim_below(&app->base.random, SL_SIM_OBJECTS_FOLLOW_MS));
    }
    sl_subscription_close(&subscription);
}

/* Proof */

bool sl_sim_objects_prove_view(struct sl_sim_objects_app *app)
{
    struct sl_subscription *subscription;
    int err = sl_sim_objects_subscribe(app, app->options.plan->name_count, true,
                                       SL_SIM_OBJECTS_PROOF_MS, &subscription);
    if (err == 0) {
        err = view(app, subscription, app->options.plan->name_count, SL_SIM_OBJECTS_PROOF_MS);
        sl_subscription_close(&subscription);
    }
    const bool is_full = err == SL_ERR_TOO_LARGE || err == SL_ERR_NO_MEMORY ||
                         (err == SL_ERR_DEADLINE && strstr(sl_objects_last_error(), "pool"));
    if (err != 0 && !is_full && !app->base.dying) {
        sl_sim_fail(&app->options.oracle->breach, "progress", "node %u cannot view: %s",
                    app->options.host, sl_objects_last_error());
    }
    return !is_full;
}
