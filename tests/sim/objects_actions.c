#include "tests/sim/objects_actions.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/node/node.h"
#include "objects/node/publish.h"
#include "tests/sim/objects_views.h"
#include "tests/sim/random.h"
#include "tests/support/wrong_delta.h"

#define SLACK_NS       (60 * SL_CLOCK_NS_PER_MS) /* 50 of the engine, and some turns */
#define POISON         0xdb
#define FOLLOWED_MAX   3    /* waits of one subscription */
#define NEWS_MS        3000 /* NEWS takes no longer than that */
#define PROOF_ATTEMPTS 120
#define PROOF_ACTIONS  3
#define POOL_BYTES     (8 * SL_OBJECTS_BLOCK_BYTES)
#define BYTES_MAX      70000
#define BACK_OFF_NS    (500 * SL_CLOCK_NS_PER_MS)

/* Calls and their deadlines */

struct sl_sim_objects_timing sl_sim_objects_begin(const struct sl_sim_objects_app *app)
{
    return (struct sl_sim_objects_timing){.began_ns = sl_sim_process_now(&app->base.process),
                                          .paused_ns = app->base.process.paused_ns,
                                          .since_ns = sl_sim_network_now(app->options.network)};
}

void sl_sim_objects_judge(struct sl_sim_objects_app *app,
                          const struct sl_sim_objects_timing *timing, const char *what,
                          const char *about, uint32_t timeout_ms, int err)
{
    if (app->base.dying) {
        return;
    }
    const uint64_t paused_ns = app->base.process.paused_ns - timing->paused_ns;
    const uint64_t took_ns = sl_sim_process_now(&app->base.process) - timing->began_ns;
    if (app->options.verbose) {
        printf("           %u: %s %s: %s%s%s\n", app->options.host, what, about, sl_err_name(err),
               err != 0 ? ": " : "", err != 0 ? sl_objects_last_error() : "");
    }
    if (took_ns > timeout_ms * SL_CLOCK_NS_PER_MS + SLACK_NS + paused_ns) {
        sl_sim_fail(&app->options.oracle->breach, "deadline",
                    "node %u: %s has taken %" PRIu64 " ms of %u: %s", app->options.host, what,
                    sl_sim_ms(took_ns), timeout_ms, sl_err_name(err));
    }
}

/* A call that needs the catalogue alone has not ended in good time, without any fault. */
void sl_sim_objects_judge_reached(struct sl_sim_objects_app *app,
                                  const struct sl_sim_objects_timing *timing, const char *what,
                                  uint32_t timeout_ms, int err)
{
    if (err == SL_ERR_DEADLINE && timeout_ms >= app->options.plan->timeout_ms && !app->base.dying &&
        sl_sim_objects_oracle_is_certain(app->options.oracle, app->options.host,
                                         timing->since_ns)) {
        sl_sim_fail(&app->options.oracle->breach, "progress", "node %u: %s: %s", app->options.host,
                    what, sl_objects_last_error());
    }
}

uint32_t sl_sim_objects_draw_timeout(struct sl_sim_objects_app *app)
{
    const struct sl_sim_objects_plan *plan = app->options.plan;
    return plan->impatient && sl_sim_chance(&app->base.random, 300)
               ? 1 + sl_sim_below(&app->base.random, plan->impatient_ms)
               : plan->timeout_ms;
}

void sl_sim_objects_name(uint32_t name, char text[16])
{
    (void)snprintf(text, 16, "n%u", name);
}

/* What the application has */

static struct sl_sim_objects_held *find_place(struct sl_sim_objects_app *app)
{
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX; i++) {
        if (app->held[i].content == 0 && !app->held[i].is_busy) {
            app->held[i].is_busy = true; /* until it is held, or not */
            return &app->held[i];
        }
    }
    return NULL;
}

static void hold(struct sl_sim_objects_app *app, struct sl_sim_objects_held *held, uint32_t content,
                 uint32_t part, uint64_t version, bool is_certain)
{
    held->content = content;
    held->version = version;
    held->is_busy = false;
    if (!app->base.dying && is_certain) {
        sl_sim_objects_oracle_hold(app->options.oracle, content, part, app->options.host);
    }
}

/* Nobody may read the memory any more: who does sees other bytes. */
static void let_go(struct sl_sim_objects_held *held)
{
    if (held->memory != NULL) {
        memset(held->memory, POISON, held->bytes);
    }
    free(held->memory);
    *held = (struct sl_sim_objects_held){0};
}

static void take_memory(struct sl_sim_objects_held *held, uint64_t bytes)
{
    held->bytes = bytes;
    held->memory = malloc(bytes);
    sl_assert(held->memory != NULL);
}

/* Cuts the memory into up to three extents. */
static uint32_t cut(struct sl_sim_objects_app *app, const struct sl_sim_objects_held *held,
                    struct sl_object_extent extents[3])
{
    const uint32_t count = held->bytes < 3 ? 1 : 1 + sl_sim_below(&app->base.random, 3);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t from = held->bytes * i / count;
        extents[i] = (struct sl_object_extent){.base = held->memory + from,
                                               .bytes = held->bytes * (i + 1) / count - from};
    }
    return count;
}

/* Publish */

struct publishing {
    uint32_t name, part, content;
    uint64_t version; /* 0: the next one */
    enum sl_object_origin origin;
    bool delta;
    uint32_t timeout_ms;
};

/* is_alone: it does not wait for other parts. */
static int commit(struct sl_sim_objects_app *app, struct sl_publication *publication, uint32_t name,
                  bool is_alone, uint32_t timeout_ms, uint64_t *version)
{
    int err = SL_ERR_DEADLINE;
    sl_sim_objects_oracle_commit(app->options.oracle, name);
    for (uint32_t i = 0; i < 2 && err == SL_ERR_DEADLINE && !app->base.dying; i++) {
        const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
        err = sl_publish_commit(publication, timeout_ms, version);
        sl_sim_objects_judge(app, &timing, "commit", "", timeout_ms, err);
        if (is_alone) {
            sl_sim_objects_judge_reached(app, &timing, "commit", timeout_ms, err);
        }
    }
    sl_sim_objects_oracle_commit_ended(app->options.oracle, name, err);
    return err;
}

/* The error names the publisher. */
static void judge_publisher(struct sl_sim_objects_app *app,
                            const struct sl_sim_objects_timing *timing, uint32_t name)
{
    for (uint32_t host = 0; host < app->options.plan->node_count; host++) {
        char address[SL_SIM_APP_NAME_BYTES];
        sl_sim_app_name(app->options.plan->first_host + host, address);
        if (strncmp(sl_objects_last_error(), address, strlen(address)) == 0) {
            sl_sim_objects_oracle_judge_publisher(app->options.oracle, name, host,
                                                  timing->since_ns);
        }
    }
}

static void record_keepers(struct sl_sim_objects_app *app, const struct publishing *publishing,
                           const struct sl_publication *publication)
{
    for (uint32_t i = 0; i < publication->keeper_count; i++) {
        sl_sim_objects_oracle_store(app->options.oracle, publishing->content, publishing->part,
                                    publication->keepers[i].node);
    }
}

static int publish(struct sl_sim_objects_app *app, const struct publishing *publishing,
                   struct sl_sim_objects_held *held)
{
    const struct sl_sim_objects_plan *plan = app->options.plan;
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    char name[16];
    sl_sim_objects_name(publishing->name, name);
    const struct sl_publish_options options = {
        .struct_size = sizeof options,
        .name = name,
        .version = publishing->version,
        .origin = publishing->origin,
        .part = publishing->part,
        .part_count = plan->part_counts[publishing->name],
        .take_over = plan->takes_over || publishing->name == plan->name_count,
        .delta = publishing->delta,
    };
    struct sl_publication *publication;
    struct sl_object_extent extents[3];
    uint64_t version = 0;
    bool is_kept = false; /* by others */
    oracle->attempted[app->options.host][publishing->name] = true;
    oracle->published[app->options.host][publishing->name] = true;
    take_memory(held, oracle->contents[publishing->content].bytes[publishing->part]);
    sl_sim_objects_oracle_fill(publishing->content, publishing->part, held->memory, held->bytes);
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    int err = sl_publish_begin(app->node, &options, publishing->timeout_ms, &publication);
    sl_sim_objects_judge(app, &timing, "begin", name, publishing->timeout_ms, err);
    if (publishing->origin != SL_ORIGIN_PS || plan->calm) {
        sl_sim_objects_judge_reached(app, &timing, "begin", publishing->timeout_ms, err);
    }
    if (err == SL_ERR_EXISTS && !app->base.dying) {
        judge_publisher(app, &timing, publishing->name);
    }
    if (err == 0) {
        err = sl_publish_bytes(publication, extents, cut(app, held, extents));
        sl_assert(err == 0);
        is_kept = publication->keeper_count > 0;
        err = commit(app, publication, publishing->name,
                     options.part_count == 1 && (!is_kept || plan->calm), publishing->timeout_ms,
                     &version);
        if (err == 0 && !app->base.dying) {
            sl_sim_objects_oracle_committed(oracle, publishing->content, version);
            record_keepers(app, publishing, publication);
        }
        sl_publish_end(&publication);
    }
    if (err == 0 && !publishing->delta && publishing->origin == SL_ORIGIN_HOST &&
        options.part_count == 1 && sl_sim_chance(&app->base.random, 300)) {
        (void)wrong_delta_publish(app->node, name, version, publishing->timeout_ms);
    }
    if (err != 0 || publishing->origin != SL_ORIGIN_CALLER) {
        let_go(held);
    }
    if (err != 0 || is_kept) {
        return err;
    }
    hold(app, held, publishing->content, publishing->part, version, true);
    return 0;
}

static void act_publish(struct sl_sim_objects_app *app, struct sl_sim_objects_held *held)
{
    const struct sl_sim_objects_plan *plan = app->options.plan;
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    const uint32_t name = sl_sim_below(&app->base.random, plan->name_count);
    const uint32_t parts = plan->part_counts[name];
    const uint32_t host_permille = plan->machine_nodes > 1 ? 800 : 500;
    struct publishing publishing = {
        .name = name,
        .part = app->options.host % parts,
        .origin = plan->has_host && sl_sim_chance(&app->base.random, host_permille)
                      ? SL_ORIGIN_HOST
                      : SL_ORIGIN_CALLER,
        .timeout_ms = sl_sim_objects_draw_timeout(app),
    };
    if (plan->keeper_count > 0 && sl_sim_chance(&app->base.random, 500)) {
        publishing.origin = SL_ORIGIN_PS;
    }
    if (parts > 1) {
        publishing.version = oracle->part_next[name][publishing.part]++;
    }
    publishing.content = sl_sim_objects_oracle_content(oracle, name, publishing.version);
    if (parts == 1 && sl_sim_chance(&app->base.random, 150)) { /* a number that may be taken */
        publishing.version = 1 + sl_sim_below(&app->base.random, oracle->committed + 1ULL);
    }
    publishing.delta = publishing.origin == SL_ORIGIN_HOST && sl_sim_chance(&app->base.random, 700);
    (void)publish(app, &publishing, held);
}

/* Get */

/* Judges the bytes of the node's copy, in memory of the caller or in the pool. */
static uint32_t judge_bytes(struct sl_sim_objects_app *app, uint32_t name, uint64_t version)
{
    const uint32_t parts = app->options.plan->part_counts[name];
    uint8_t *images[SL_SIM_OBJECTS_PARTS_MAX] = {NULL};
    uint64_t bytes[SL_SIM_OBJECTS_PARTS_MAX] = {0};
    bool is_whole = !app->base.dying;
    char text[16];
    uint32_t content = 0;
    sl_sim_objects_name(name, text);
    for (uint32_t part = 0; part < parts; part++) {
        const struct sl_objects_copy *copy =
            app->node == NULL ? NULL : sl_objects_copy_find(app->node, text, version, part);
        if (copy == NULL) { /* it is withdrawn or removed already */
            is_whole = false;
            continue;
        }
        bytes[part] = copy->info.bytes;
        images[part] = malloc(bytes[part]);
        sl_assert(images[part] != NULL);
        const uint64_t image_at = sl_objects_copy_image_at(copy);
        for (uint32_t i = 0; i < copy->place_count; i++) {
            const struct sl_objects_place *place = &copy->places[i];
            if (place->offset >= image_at) {
                memcpy(images[part] + (place->offset - image_at), place->base, place->bytes);
            }
        }
    }
    if (is_whole) {
        content = sl_sim_objects_oracle_judge(app->options.oracle, app->options.host, name, version,
                                              (const uint8_t *const *)images, bytes);
    }
    for (uint32_t part = 0; part < parts; part++) {
        free(images[part]);
    }
    return content;
}

static void judge_progress(struct sl_sim_objects_app *app, struct sl_get *get)
{
    struct sl_get_progress progress;
    if (sl_get_progress(get, &progress) == 0 && progress.corrupt_blocks > 0 && !app->base.dying) {
        sl_sim_fail(&app->options.oracle->breach, "withdraw",
                    "node %u has read %" PRIu64 " blocks that were not those", app->options.host,
                    progress.corrupt_blocks);
    }
}

/* A get has found that version of the name (0: none), or has not been able to fetch it. */
static void judge_found(struct sl_sim_objects_app *app, const struct sl_sim_objects_timing *timing,
                        uint32_t name, uint64_t wanted, uint64_t version, int err)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    const uint64_t since_ns = timing->since_ns;
    const uint64_t newest = sl_sim_objects_oracle_newest(oracle, name, since_ns);
    if (app->base.dying || (err != 0 && err != SL_ERR_NOT_FOUND)) {
        return;
    }
    if (wanted == 0 && version < newest) {
        sl_sim_fail(&oracle->breach, "newest",
                    "node %u finds n%u@%" PRIu64 ", but %" PRIu64 " exists", app->options.host,
                    name, version, newest);
    }
    if (wanted != 0 && err == SL_ERR_NOT_FOUND &&
        sl_sim_objects_oracle_exists(oracle, name, wanted, since_ns)) {
        sl_sim_fail(&oracle->breach, "exists", "node %u: %s", app->options.host,
                    sl_objects_last_error());
    }
}

/* Without a fault, what a holder has is fetched. */
static void judge_fetched(struct sl_sim_objects_app *app,
                          const struct sl_sim_objects_timing *timing, uint32_t name,
                          uint64_t version, uint32_t timeout_ms, int err, const char *why)
{
    const struct sl_sim_objects_plan *plan = app->options.plan;
    const bool is_tight = /* for files: what is in use may fill the pool */
        plan->has_disks && (plan->pool_bytes < POOL_BYTES || plan->bytes_max > BYTES_MAX);
    if (!app->base.dying && err == SL_ERR_DEADLINE && timeout_ms >= plan->timeout_ms && !is_tight &&
        sl_sim_objects_oracle_is_certain(app->options.oracle, app->options.host,
                                         timing->since_ns) &&
        sl_sim_objects_oracle_exists(app->options.oracle, name, version, timing->since_ns)) {
        sl_sim_fail(&app->options.oracle->breach, "progress", "node %u: %s", app->options.host,
                    why);
    }
}

/* Into memory that held has, or else into the pool: then half of the gets stay open, and the others
 * may be evicted. */
static int get(struct sl_sim_objects_app *app, uint32_t name, uint64_t version, uint32_t timeout_ms,
               struct sl_sim_objects_held *held)
{
    struct sl_object_extent extents[3];
    const uint32_t count = held->memory != NULL ? cut(app, held, extents) : 0;
    struct sl_get *got;
    struct sl_get_progress progress = {0};
    char text[16];
    sl_sim_objects_name(name, text);
    app->options.oracle->attempted[app->options.host][name] = true;
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    int err = sl_get_start(app->node, text, version, extents, count, timeout_ms, &got);
    sl_sim_objects_judge(app, &timing, "get", text, timeout_ms, err);
    sl_sim_objects_judge_reached(app, &timing, "get", timeout_ms, err);
    if (err != 0) {
        judge_found(app, &timing, name, version, 0, err);
        let_go(held);
        return err;
    }
    char why[256];
    err = sl_get_wait(got);
    (void)snprintf(why, sizeof why, "%s", sl_objects_last_error());
    sl_sim_objects_judge(app, &timing, "wait", text, timeout_ms, err);
    judge_progress(app, got);
    (void)sl_get_progress(got, &progress);
    judge_found(app, &timing, name, version, progress.version, 0);
    judge_fetched(app, &timing, name, progress.version, timeout_ms, err, why);
    const uint32_t content = err == 0 ? judge_bytes(app, name, progress.version) : 0;
    const bool stays = content != 0 && count == 0 && sl_sim_chance(&app->base.random, 500);
    if (!stays) {
        sl_get_close(&got);
    }
    if (err != 0) {
        let_go(held);
    } else if (content == 0) { /* already gone: its memory is registered until it is withdrawn */
        (void)sl_object_withdraw(app->node, text, progress.version, SL_SIM_OBJECTS_PROOF_MS);
        let_go(held);
    } else {
        hold(app, held, content, SL_SIM_OBJECTS_ALL, progress.version, count > 0 || stays);
        held->got = stays ? got : NULL;
    }
    return err;
}

/* The size of the newest version. */
static uint64_t list_newest(struct sl_sim_objects_app *app, uint32_t name, uint64_t *version)
{
    const uint32_t timeout_ms = sl_sim_objects_draw_timeout(app);
    struct sl_object_list *list;
    uint64_t bytes = 0;
    char text[16];
    sl_sim_objects_name(name, text);
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    const int err = sl_object_list(app->node, text, timeout_ms, &list);
    sl_sim_objects_judge(app, &timing, "list", text, timeout_ms, err);
    sl_sim_objects_judge_reached(app, &timing, "list", timeout_ms, err);
    if (err != 0 || app->base.dying) {
        return 0;
    }
    for (uint64_t i = 0; i < list->count; i++) {
        sl_sim_objects_oracle_judge_holders(app->options.oracle, name, list->entries[i].holders,
                                            timing.since_ns);
    }
    judge_found(app, &timing, name, 0, list->count > 0 ? list->entries[list->count - 1].version : 0,
                0);
    if (list->count > 0) {
        bytes = list->entries[list->count - 1].bytes;
        *version = list->entries[list->count - 1].version;
    }
    sl_object_list_free(&list);
    return bytes;
}

static void act_get(struct sl_sim_objects_app *app, struct sl_sim_objects_held *held)
{
    const uint32_t name = sl_sim_below(&app->base.random, app->options.plan->name_count);
    uint64_t version = 0;
    if (sl_sim_chance(&app->base.random, 600)) {
        const uint64_t bytes = list_newest(app, name, &version);
        if (bytes == 0 || app->base.dying) {
            let_go(held);
            return;
        }
        take_memory(held, bytes);
    }
    (void)get(app, name, version, sl_sim_objects_draw_timeout(app), held);
}

/* Withdraw and remove */

static int withdraw(struct sl_sim_objects_app *app, struct sl_sim_objects_held *held,
                    uint32_t timeout_ms)
{
    char text[16];
    sl_sim_objects_name(app->options.oracle->contents[held->content].name, text);
    held->is_busy = true;
    sl_sim_objects_oracle_drop(app->options.oracle, held->content, app->options.host);
    sl_get_close(&held->got);
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    const int err = sl_object_withdraw(app->node, text, held->version, timeout_ms);
    sl_sim_objects_judge(app, &timing, "withdraw", text, timeout_ms, err);
    held->is_busy = false;
    /* NOT_FOUND: removed; or the node had fetched what it published, and has withdrawn both. */
    if (err == 0 || err == SL_ERR_NOT_FOUND) {
        let_go(held);
    } else if (err != SL_ERR_DEADLINE && !app->base.dying) {
        sl_sim_fail(&app->options.oracle->breach, "withdraw", "node %u: %s", app->options.host,
                    sl_objects_last_error());
    }
    return err;
}

static void act_withdraw(struct sl_sim_objects_app *app)
{
    struct sl_sim_objects_held *held =
        &app->held[sl_sim_below(&app->base.random, SL_SIM_OBJECTS_HELD_MAX)];
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX; i++, held++) {
        held = held == &app->held[SL_SIM_OBJECTS_HELD_MAX] ? app->held : held;
        if (held->content != 0 && !held->is_busy) {
            (void)withdraw(app, held, sl_sim_objects_draw_timeout(app));
            return;
        }
    }
}

static void act_remove(struct sl_sim_objects_app *app)
{
    const struct sl_sim_objects_plan *plan = app->options.plan;
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    const uint32_t index = sl_sim_below(&app->base.random, oracle->content_count);
    const struct sl_sim_objects_content *content = &oracle->contents[index];
    const uint32_t name = content->name, timeout_ms = sl_sim_objects_draw_timeout(app);
    char text[16];
    if (index == 0 || name == plan->name_count || content->version == 0) {
        return;
    }
    const uint64_t version = sl_sim_chance(&app->base.random, 200) ? 0 : content->version;
    sl_sim_objects_oracle_remove(oracle, name, version);
    sl_sim_objects_name(name, text);
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    const int err = sl_object_remove(app->node, text, version, timeout_ms);
    if ((err == 0 || err == SL_ERR_NOT_FOUND) && !app->base.dying) {
        sl_sim_objects_oracle_removed(oracle, name);
    }
    sl_sim_objects_judge(app, &timing, "remove", text, timeout_ms, err);
    sl_sim_objects_judge_reached(app, &timing, "remove", timeout_ms, err);
}

/* Follow */

static void follow(struct sl_sim_objects_app *app, struct sl_subscription *subscription,
                   uint32_t name)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    uint64_t above = 0;
    for (uint32_t i = 0; i < FOLLOWED_MAX && !app->base.dying; i++) {
        const uint32_t timeout_ms = 1 + sl_sim_below(&app->base.random, SL_SIM_OBJECTS_FOLLOW_MS);
        uint64_t version = 0;
        const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
        const int err = sl_subscription_wait(subscription, above, timeout_ms, &version);
        sl_sim_objects_judge(app, &timing, "follow", "", timeout_ms, err);
        const uint64_t newest = sl_subscription_newest(subscription);
        if (app->base.dying) {
            return;
        }
        if (err == 0 &&
            (version <= above ||
             (newest < version && !sl_sim_objects_oracle_may_be_removed(oracle, name, version)))) {
            sl_sim_fail(&oracle->breach, "newest",
                        "node %u: n%u@%" PRIu64 " follows %" PRIu64 ", then %" PRIu64,
                        app->options.host, name, version, above, newest);
        }
        if (err == SL_ERR_DEADLINE && timeout_ms > NEWS_MS &&
            sl_sim_objects_oracle_is_certain(oracle, app->options.host, timing.since_ns) &&
            sl_sim_objects_oracle_newest(oracle, name, timing.since_ns) > above) {
            sl_sim_fail(&oracle->breach, "newest", "node %u has no news of n%u", app->options.host,
                        name);
        }
        above = err == 0 ? version : above;
    }
}

int sl_sim_objects_subscribe(struct sl_sim_objects_app *app, uint32_t name, bool fetches,
                             uint32_t timeout_ms, struct sl_subscription **out)
{
    const struct sl_subscribe_options options = {.struct_size = sizeof options, .follow = fetches};
    char text[16];
    sl_sim_objects_name(name, text);
    app->options.oracle->attempted[app->options.host][name] = true;
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    const int err = sl_subscription_open(app->node, text, &options, timeout_ms, out);
    sl_sim_objects_judge(app, &timing, "subscribe", text, timeout_ms, err);
    sl_sim_objects_judge_reached(app, &timing, "subscribe", timeout_ms, err);
    return err;
}

static void act_follow(struct sl_sim_objects_app *app)
{
    const uint32_t name = sl_sim_below(&app->base.random, app->options.plan->name_count);
    struct sl_subscription *subscription;
    if (sl_sim_objects_subscribe(app, name, false, sl_sim_objects_draw_timeout(app),
                                 &subscription) == 0) {
        follow(app, subscription, name);
        sl_subscription_close(&subscription);
    }
}

static void act_wait_held(struct sl_sim_objects_app *app)
{
    const uint32_t name = sl_sim_below(&app->base.random, app->options.plan->name_count);
    const uint32_t timeout_ms = 1 + sl_sim_below(&app->base.random, SL_SIM_OBJECTS_FOLLOW_MS);
    char text[16];
    sl_sim_objects_name(name, text);
    const struct sl_sim_objects_timing timing = sl_sim_objects_begin(app);
    const int err = sl_object_wait_held(app->node, text, 0, 2, timeout_ms);
    sl_sim_objects_judge(app, &timing, "wait_held", text, timeout_ms, err);
}

/* What views and followed names have brought into the pool. */
static void withdraw_rest(struct sl_sim_objects_app *app)
{
    const struct sl_objects_copy *copy = NULL;
    do {
        copy = NULL;
        SL_LIST_FOREACH (link, &app->node->copies) {
            const struct sl_objects_copy *each =
                SL_CONTAINER_OF(link, struct sl_objects_copy, link);
            const bool is_stored =
                sl_objects_stored_find(app->node, each->name, each->version, each->part) != NULL;
            copy = each->is_withdrawn || is_stored ? copy : each;
        }
        if (copy != NULL) {
            char name[SL_OBJECTS_NAME_BYTES];
            (void)snprintf(name, sizeof name, "%s", copy->name);
            (void)sl_object_withdraw(app->node, name, copy->version, app->options.plan->timeout_ms);
        }
    } while (copy != NULL && !app->base.dying);
}

void sl_sim_objects_remove_all(struct sl_sim_objects_app *app)
{
    for (uint32_t name = 0; name <= app->options.plan->name_count && !app->base.dying; name++) {
        char text[16];
        sl_sim_objects_name(name, text);
        sl_sim_objects_oracle_remove(app->options.oracle, name, 0);
        (void)sl_object_remove(app->node, text, 0, SL_SIM_OBJECTS_PROOF_MS);
    }
}

void sl_sim_objects_withdraw_all(struct sl_sim_objects_app *app)
{
    for (uint32_t i = 0; i < SL_SIM_OBJECTS_HELD_MAX && !app->base.dying; i++) {
        int err = app->held[i].content != 0 ? SL_ERR_DEADLINE : 0;
        for (uint32_t k = 0; k < PROOF_ATTEMPTS && err == SL_ERR_DEADLINE && !app->base.dying;
             k++) {
            err = withdraw(app, &app->held[i], app->options.plan->timeout_ms);
        }
        if (err == SL_ERR_DEADLINE && !app->base.dying) {
            sl_sim_fail(&app->options.oracle->breach, "withdraw", "node %u: %s", app->options.host,
                        sl_objects_last_error());
        }
    }
    if (!app->base.dying) {
        withdraw_rest(app);
    }
}

/* Actions */

void sl_sim_objects_act(struct sl_sim_objects_app *app)
{
    const uint32_t drawn = sl_sim_below(&app->base.random, 100);
    if (drawn >= 90) {
        act_withdraw(app);
        return;
    }
    if (drawn >= 80) {
        act_follow(app);
        return;
    }
    if (drawn >= 75) {
        act_wait_held(app);
        return;
    }
    if (drawn >= 70 && app->options.plan->removes) {
        act_remove(app);
        return;
    }
    if (drawn >= 55) {
        sl_sim_objects_act_view(app);
        return;
    }
    struct sl_sim_objects_held *held = find_place(app);
    if (held != NULL && drawn < 30) {
        act_publish(app, held);
    } else if (held != NULL) {
        act_get(app, held);
    }
}

/* Proof */

void sl_sim_objects_prove_publish(struct sl_sim_objects_app *app)
{
    struct sl_sim_objects_oracle *oracle = app->options.oracle;
    const uint32_t name = app->options.plan->name_count;
    struct sl_sim_objects_held *held = find_place(app);
    sl_assert(held != NULL);
    const struct publishing publishing = {.name = name,
                                          .content = sl_sim_objects_oracle_content(oracle, name, 0),
                                          .origin = SL_ORIGIN_CALLER,
                                          .timeout_ms = SL_SIM_OBJECTS_PROOF_MS};
    const int err = publish(app, &publishing, held);
    if (err != 0 && !app->base.dying) {
        sl_sim_fail(&oracle->breach, "progress", "node %u cannot publish: %s", app->options.host,
                    sl_objects_last_error());
    }
}

void sl_sim_objects_prove_get(struct sl_sim_objects_app *app)
{
    for (uint32_t i = 0; i < PROOF_ACTIONS && !app->base.dying; i++) {
        struct sl_sim_objects_held *place = find_place(app);
        if (place != NULL) {
            act_get(app, place);
        }
    }
    if (app->base.dying || (app->options.host % 2 == 1 && sl_sim_objects_prove_view(app))) {
        return;
    }
    struct sl_sim_objects_held *held = find_place(app);
    sl_assert(held != NULL);
    int err = SL_ERR_NOT_FOUND;
    for (uint32_t i = 0; i < PROOF_ATTEMPTS && err == SL_ERR_NOT_FOUND && !app->base.dying; i++) {
        uint64_t version;
        const uint64_t bytes = list_newest(app, app->options.plan->name_count, &version);
        if (bytes > 0) {
            take_memory(held, bytes);
            err = get(app, app->options.plan->name_count, version, SL_SIM_OBJECTS_PROOF_MS, held);
        } else {
            sl_sim_app_sleep(&app->base, BACK_OFF_NS);
        }
    }
    if (err != 0 && !app->base.dying) {
        sl_sim_fail(&app->options.oracle->breach, "progress", "node %u cannot get: %s",
                    app->options.host, sl_objects_last_error());
    }
}
