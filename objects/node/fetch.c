#include "objects/node/fetch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/format.h"
#include "core/log.h"
#include "objects/node/board_residency.h"
#include "objects/node/cache.h"
#include "objects/node/directory.h"
#include "objects/node/download.h"
#include "objects/node/node.h"

#define HOLDERS_MAX    16
#define MISMATCHES_MAX 2                          /* then a holder is not used any more */
#define TICK_NS        (10 * SL_CLOCK_NS_PER_MS)  /* looks for slow sources */
#define FIND_NS        (200 * SL_CLOCK_NS_PER_MS) /* between two FINDs */
#define FORGIVE_NS     SL_CLOCK_NS_PER_S          /* then a holder that failed is tried again */

enum { MISSING, FLYING, VERIFIED }; /* of a block, and of the manifest */

/* A node that may have the part. */
struct holder {
    uint64_t node;
    char address[SL_OBJECTS_ADDRESS_BYTES];
    uint32_t mismatches;
    bool has_failed;    /* for some time */
    uint64_t failed_ns; /* the last time; 0: never */
};

struct sl_objects_fetch {
    struct sl_objects *node;
    struct sl_objects_copy *copy;
    sl_objects_fetch_over_fn *over;
    void *ctx;
    uint64_t deadline_ns;
    struct sl_timer timer;

    uint8_t manifest;                     /* its state */
    uint8_t *blocks;                      /* [block count]: their states */
    uint32_t missing[SL_OBJECTS_STRIPES]; /* blocks that are not verified */

    struct holder holders[HOLDERS_MAX]; /* in the order in which they are tried */
    uint32_t holder_count;
    struct sl_list downloads;                                  /* the ones that are closing too */
    struct sl_objects_download *of_stripe[SL_OBJECTS_STRIPES]; /* NULL: none now */
    struct sl_objects_ask find;
    uint64_t found_ns;
    char last_holder[SL_OBJECTS_ADDRESS_BYTES]; /* that failed, or else was used */
    char last_reason[SL_TRANSFER_REASON_BYTES];

    uint64_t planned[SL_OBJECTS_STRIPES]; /* parents of the catalogue's plan; 0: none */
    bool is_started, is_ending;
    int err;
    char reason[SL_REASON_BYTES];
};

static void find_parent(struct sl_objects_fetch *fetch, uint32_t stripe);

static uint32_t stripe_of(const struct sl_objects_fetch *fetch, uint32_t block)
{
    const uint64_t manifest_blocks = sl_objects_block_count(fetch->copy->info.manifest_bytes);
    return (uint32_t)((manifest_blocks + block) % SL_OBJECTS_STRIPES);
}

static bool needs(const struct sl_objects_fetch *fetch, uint32_t stripe)
{
    return fetch->missing[stripe] > 0 || fetch->manifest != VERIFIED;
}

/* End */

/* Closes the sources; the fetch is over when the last of them is closed. */
static void fetch_end(struct sl_objects_fetch *fetch, int err, const char *reason)
{
    if (fetch->is_ending) {
        return;
    }
    fetch->is_ending = true;
    fetch->err = err;
    (void)snprintf(fetch->reason, sizeof fetch->reason, "%s", reason);
    sl_objects_ask_cancel(&fetch->find);
    SL_LIST_EACH (struct sl_objects_download, download, link, &fetch->downloads) {
        sl_objects_download_close(download);
    }
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) { /* some are freed before the others */
        fetch->of_stripe[i] = NULL;
    }
    sl_reactor_arm(fetch->node->reactor, &fetch->timer, 0);
}

static void end_if_closed(struct sl_objects_fetch *fetch)
{
    if (!fetch->is_ending || !sl_list_empty(&fetch->downloads)) {
        return;
    }
    sl_reactor_disarm(fetch->node->reactor, &fetch->timer);
    fetch->copy->fetch = NULL;
    if (fetch->err == 0) {
        sl_objects_report(fetch->node, fetch->copy);
    }
    fetch->over(fetch->node, fetch->copy, fetch->ctx, fetch->err, fetch->reason);
    sl_objects_fetch_free(fetch);
}

/* Writes "3, 17-20 (5 of 160)". */
static void describe_missing(const struct sl_objects_fetch *fetch, char *text, size_t bytes)
{
    const uint32_t count = sl_objects_copy_block_count(fetch->copy);
    uint32_t missing = 0, listed = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t from = i;
        while (i < count && fetch->blocks[i] != VERIFIED) {
            i++;
        }
        missing += i - from;
        if (i > from && listed++ < 8) {
            (void)(i - from > 1 ? sl_format_add(text, bytes, ", ", "%u-%u", from, i - 1)
                                : sl_format_add(text, bytes, ", ", "%u", from));
        }
    }
    (void)sl_format_add(text, bytes, "", "%s (%u of %u)", listed > 8 ? ", ..." : "", missing,
                        count);
}

void sl_objects_fetch_describe(const struct sl_objects_fetch *fetch, char text[SL_REASON_BYTES])
{
    char missing[256];
    describe_missing(fetch, missing, sizeof missing);
    (void)snprintf(text, SL_REASON_BYTES,
                   "%s@%" PRIu64
                   " part %u: not complete in time; missing %s %s; last holder %s%s%s",
                   fetch->copy->name, fetch->copy->version, fetch->copy->part,
                   fetch->manifest == VERIFIED ? "blocks" : "the manifest and blocks", missing,
                   fetch->last_holder[0] != '\0' ? fetch->last_holder : "unknown",
                   fetch->last_reason[0] != '\0' ? ": " : "", fetch->last_reason);
}

/* Holders */

static struct holder *find_holder(struct sl_objects_fetch *fetch, uint64_t node)
{
    for (uint32_t i = 0; i < fetch->holder_count; i++) {
        if (fetch->holders[i].node == node) {
            return &fetch->holders[i];
        }
    }
    return NULL;
}

static void add_holder(struct sl_objects_fetch *fetch, const struct sl_objects_peer *peer)
{
    struct holder *holder = find_holder(fetch, peer->node);
    if (peer->node == 0 || peer->node == fetch->node->id) {
        return;
    }
    if (holder == NULL && fetch->holder_count < HOLDERS_MAX) {
        holder = &fetch->holders[fetch->holder_count++];
        *holder = (struct holder){.node = peer->node};
    } else if (holder == NULL) { /* instead of the one that has failed last */
        holder = &fetch->holders[HOLDERS_MAX - 1];
        for (uint32_t i = 0; i < HOLDERS_MAX; i++) {
            holder = fetch->holders[i].failed_ns > holder->failed_ns ? &fetch->holders[i] : holder;
        }
        *holder = (struct holder){.node = peer->node};
    }
    (void)snprintf(holder->address, sizeof holder->address, "%s", peer->address);
}

static void add_holders(struct sl_objects_fetch *fetch, const struct sl_objects_message *news)
{
    for (uint32_t i = 0; i < news->news.parent_count; i++) {
        add_holder(fetch, &news->news.parents[i]);
    }
    for (uint32_t i = 0; i < news->news.other_count; i++) {
        add_holder(fetch, &news->news.others[i]);
    }
}

static bool fetch_is_usable(const struct holder *holder)
{
    return !holder->has_failed && holder->mismatches < MISMATCHES_MAX;
}

static void forgive(struct sl_objects_fetch *fetch, uint64_t now_ns)
{
    for (uint32_t i = 0; i < fetch->holder_count; i++) {
        struct holder *holder = &fetch->holders[i];
        if (holder->has_failed && now_ns - holder->failed_ns > FORGIVE_NS) {
            holder->has_failed = false;
        }
    }
}

/* Sources */

static const struct sl_objects_download_events EVENTS;

static struct sl_objects_download *find_download(struct sl_objects_fetch *fetch, uint64_t node)
{
    SL_LIST_EACH (struct sl_objects_download, download, link, &fetch->downloads) {
        if (download->id == node) {
            return download;
        }
    }
    return NULL;
}

static bool has_stripe(const struct sl_objects_download *download)
{
    const struct sl_objects_fetch *fetch = download->ctx;
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->of_stripe[i] == download) {
            return true;
        }
    }
    return false;
}

/* Reads as much as the window allows: the manifest, and then blocks of the source's stripes. */
static void fetch_pump(struct sl_objects_download *download)
{
    struct sl_objects_fetch *fetch = download->ctx;
    struct sl_objects_stretch stretches[SL_OBJECTS_READ_BLOCKS];
    uint32_t window;
    if (fetch->is_ending || download->is_closing) {
        return;
    }
    if (fetch->manifest != VERIFIED) {
        if (fetch->manifest == MISSING && sl_objects_download_manifest(download, stretches) &&
            sl_objects_download_read(download, stretches, 1) == 0) {
            fetch->manifest = FLYING;
        }
        return;
    }
    while (download->flying_count < (window = sl_objects_download_window(download))) {
        uint32_t count = 0, count_max = sl_objects_download_read_max(download, window);
        while (count < count_max && sl_objects_download_next(download, &stretches[count])) {
            const uint32_t block = stretches[count].block;
            if (fetch->blocks[block] == MISSING &&
                fetch->of_stripe[stripe_of(fetch, block)] == download) {
                fetch->blocks[block] = FLYING;
                count++;
                count_max = sl_objects_copy_stops_behind(fetch->copy, block) ? count : count_max;
            }
        }
        if (count == 0) {
            return;
        }
        const int err = sl_objects_download_read(download, stretches, count);
        for (uint32_t i = 0; err != 0 && i < count; i++) {
            fetch->blocks[stretches[i].block] = MISSING;
        }
        if (err != 0) {
            sl_objects_download_rewind(download);
        }
        if (err != 0 && (err != SL_ERR_TOO_LARGE || count == 1)) {
            return; /* the next tick tries again */
        }
    }
}

/* Makes the holder the source of the stripe. The one before is closed if it has no other stripe.
 * While an earlier download from the holder closes, nothing changes, and a tick tries again: its
 * DONE would end a new one at the source. */
static void fetch_assign(struct sl_objects_fetch *fetch, uint32_t stripe,
                         const struct holder *holder)
{
    struct sl_objects_download *before = fetch->of_stripe[stripe];
    struct sl_objects_download *download = find_download(fetch, holder->node);
    if (download == NULL) {
        if (sl_objects_download_create(fetch->node, fetch->copy, holder->node, holder->address,
                                       fetch->deadline_ns, &EVENTS, fetch, &download) != 0) {
            return; /* no memory: the next tick tries again */
        }
        sl_list_append(&fetch->downloads, &download->link);
        (void)snprintf(fetch->last_holder, sizeof fetch->last_holder, "%s", holder->address);
        fetch->last_reason[0] = '\0';
    } else if (download->is_closing) {
        return;
    }
    fetch->of_stripe[stripe] = download;
    if (before != NULL && before != download && !has_stripe(before)) {
        sl_objects_download_close(before);
    }
    sl_objects_download_rewind(download);
    fetch_pump(download);
}

/* The source is not used any more for now: other ones take over its stripes. */
static void replace(struct sl_objects_download *download, const char *reason)
{
    struct sl_objects_fetch *fetch = download->ctx;
    struct holder *holder = find_holder(fetch, download->id);
    if (download->is_closing) {
        return;
    }
    if (holder != NULL) {
        holder->has_failed = true;
        holder->failed_ns = sl_reactor_now_ns(fetch->node->reactor);
    }
    fetch->copy->counts.replaced_parents++;
    (void)snprintf(fetch->last_holder, sizeof fetch->last_holder, "%s", download->address);
    (void)snprintf(fetch->last_reason, sizeof fetch->last_reason, "%s", reason);
    sl_log_debug("objects: %s@%" PRIu64 " part %u: source %s replaced: %s", fetch->copy->name,
                 fetch->copy->version, fetch->copy->part, download->address, reason);
    sl_objects_download_close(download);
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->of_stripe[i] == download) {
            fetch->of_stripe[i] = NULL;
            find_parent(fetch, i);
        }
    }
}

static void fetch_failed(struct sl_objects_download *download, int err, const char *reason)
{
    replace(download, reason);
}

static void fetch_closed(void *ctx)
{
    end_if_closed(ctx);
}

/* FIND */

static void fetch_found(struct sl_objects_ask *ask, const struct sl_objects_message *answer,
                        int err, const char *reason)
{
    struct sl_objects_fetch *fetch = SL_CONTAINER_OF(ask, struct sl_objects_fetch, find);
    fetch->found_ns = sl_reactor_now_ns(fetch->node->reactor);
    if (err == 0) {
        add_holders(fetch, answer);
    } else if (fetch->last_reason[0] == '\0') {
        (void)snprintf(fetch->last_reason, sizeof fetch->last_reason, "%s", reason);
    }
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->of_stripe[i] == NULL && needs(fetch, i)) {
            find_parent(fetch, i);
        }
    }
}

/* Asks for other holders than those that failed. */
static void find_more(struct sl_objects_fetch *fetch)
{
    struct sl_objects_message *find = &fetch->find.message;
    const uint64_t now_ns = sl_reactor_now_ns(fetch->node->reactor);
    if (sl_list_linked(&fetch->find.link) || fetch->is_ending ||
        (fetch->found_ns != 0 && now_ns - fetch->found_ns < FIND_NS)) {
        return; /* a tick tries again */
    }
    *find = (struct sl_objects_message){.kind = SL_OBJECTS_FIND,
                                        .name = fetch->copy->name,
                                        .version = fetch->copy->version,
                                        .part = fetch->copy->part};
    for (uint32_t i = 0; i < fetch->holder_count; i++) {
        if (!fetch_is_usable(&fetch->holders[i]) && find->find.bad_count < SL_OBJECTS_OTHERS_MAX) {
            find->find.bad[find->find.bad_count++] = fetch->holders[i].node;
        }
    }
    fetch->find.answered = fetch_found;
    sl_objects_ask(fetch->node, &fetch->find, fetch->deadline_ns);
}

/* A holder that can take the place of this one: it has not failed yet, or not for the longest time.
 * So each of them gets its turn, however many have ended. NULL: there is none. */
static const struct holder *fetch_find_other(const struct sl_objects_fetch *fetch,
                                             const struct sl_objects_download *now)
{
    const struct holder *best = NULL;
    for (uint32_t i = 0; i < fetch->holder_count; i++) {
        const struct holder *holder = &fetch->holders[i];
        if (fetch_is_usable(holder) && (now == NULL || now->id != holder->node) &&
            (best == NULL || holder->failed_ns < best->failed_ns)) {
            best = holder;
        }
    }
    return best;
}

static void find_parent(struct sl_objects_fetch *fetch, uint32_t stripe)
{
    const struct holder *other = fetch_find_other(fetch, fetch->of_stripe[stripe]);
    if (other != NULL) {
        fetch_assign(fetch, stripe, other);
    } else {
        find_more(fetch);
    }
}

/* Time */

/* A slow source stays in use until there is another one. */
static void look_at(struct sl_objects_fetch *fetch, uint32_t stripe, uint64_t now_ns)
{
    struct sl_objects_download *download = fetch->of_stripe[stripe];
    if (download == NULL) {
        find_parent(fetch, stripe);
        return;
    }
    const bool waits_for_manifest = fetch->manifest == FLYING && download->flying_count == 0;
    if (waits_for_manifest || now_ns <= sl_objects_download_slow_ns(download)) {
        fetch_pump(download);
    } else if (fetch_find_other(fetch, download) != NULL) {
        replace(download, "it has brought nothing for a while");
    } else {
        find_more(fetch);
    }
}

static void fetch_timer_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_fetch *fetch = SL_CONTAINER_OF(timer, struct sl_objects_fetch, timer);
    if (fetch->is_ending) {
        end_if_closed(fetch);
        return;
    }
    if (now_ns >= fetch->deadline_ns) {
        char text[SL_REASON_BYTES];
        sl_objects_fetch_describe(fetch, text);
        fetch_end(fetch, SL_ERR_DEADLINE, text);
        return;
    }
    forgive(fetch, now_ns);
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (needs(fetch, i) && !fetch->is_ending) {
            look_at(fetch, i, now_ns);
        }
    }
    if (!fetch->is_ending) {
        const uint64_t left_ns = fetch->deadline_ns - now_ns;
        sl_reactor_arm(fetch->node->reactor, timer, left_ns < TICK_NS ? left_ns : TICK_NS);
    }
}

/* Bytes that have arrived */

/* The file does not count as a whole part any more. */
static void set_damaged(const struct sl_objects_download *download)
{
    const struct sl_objects_copy *copy = download->copy;
    struct sl_objects_stored *stored = sl_objects_stored_of_copy(download->node, copy);
    if (download->id == download->node->id && stored != NULL) {
        stored->has_file = false;
        sl_objects_report(download->node, copy);
    }
}

static void mismatch(struct sl_objects_download *download, const char *what)
{
    struct sl_objects_fetch *fetch = download->ctx;
    struct holder *holder = find_holder(fetch, download->id);
    char reason[64];
    (void)snprintf(reason, sizeof reason, "%s does not match its digest", what);
    fetch->copy->counts.corrupt_blocks++;
    sl_log_warn("objects: %s@%" PRIu64 " part %u: %s from %s; fetched elsewhere%s",
                fetch->copy->name, fetch->copy->version, fetch->copy->part, reason,
                download->address,
                holder != NULL && ++holder->mismatches >= MISMATCHES_MAX
                    ? "; this holder is not used any more: check its memory"
                    : "");
    set_damaged(download);
    replace(download, reason);
}

static void end_if_complete(struct sl_objects_fetch *fetch)
{
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->missing[i] > 0) {
            return;
        }
    }
    fetch_end(fetch, 0, "");
}

static void tell_grown(struct sl_objects_fetch *fetch)
{
    if (fetch->copy->grown != NULL) {
        fetch->copy->grown(fetch->copy);
        sl_objects_board_residency_changed(fetch->node, fetch->copy->name);
    }
}

/* The block has the right bytes. */
static int fetch_count_block(struct sl_objects_fetch *fetch, uint32_t block)
{
    struct sl_objects_copy *copy = fetch->copy;
    const int err = sl_objects_copy_add_block(copy, block);
    if (err == 0) {
        fetch->blocks[block] = VERIFIED;
        fetch->missing[stripe_of(fetch, block)]--;
        fetch->copy->counts.verified_bytes +=
            sl_objects_manifest_block_bytes(&copy->manifest, block);
        sl_objects_serve_grown(fetch->node);
    }
    return err;
}

/* Counts blocks that share their slots with an older version. */
static int count_shared(struct sl_objects_fetch *fetch)
{
    const struct sl_objects_pool_version *pooled = fetch->copy->pooled;
    const uint32_t from = sl_objects_copy_manifest_blocks(fetch->copy);
    int err = 0;
    for (uint32_t i = from; err == 0 && pooled != NULL && i < pooled->resident_count; i++) {
        err = pooled->blocks[i].is_verified && fetch->blocks[i - from] != VERIFIED
                  ? fetch_count_block(fetch, i - from)
                  : 0;
    }
    return err;
}

/* The digest of the part vouches for it: what is wrong now was published so. */
static int decode_manifest(struct sl_objects_fetch *fetch, const void *bytes,
                           struct sl_reason *reason)
{
    struct sl_objects_copy *copy = fetch->copy;
    int err = sl_objects_manifest_decode(&copy->manifest, bytes, copy->info.manifest_bytes, reason);
    if (err == 0 && copy->manifest.image_bytes != copy->info.bytes) {
        err = sl_reason_fail(reason, SL_ERR_CORRUPT,
                             "its image has another size than the record says");
    }
    for (uint32_t i = 0; copy->pooled != NULL && i < copy->pooled->resident_count; i++) {
        sl_objects_pool_set_verified(copy->pooled, i);
    }
    if (err == 0 && copy->pooled != NULL) {
        err = sl_objects_copy_reserve(fetch->node, copy, reason);
    }
    err = err != 0 ? err : sl_objects_copy_add_manifest(copy);
    return err != 0 ? err : count_shared(fetch);
}

/* Returns false if the bytes are wrong. */
static bool take_manifest(struct sl_objects_fetch *fetch, int *err, struct sl_reason *reason)
{
    const struct sl_objects_copy *copy = fetch->copy;
    uint8_t *room = malloc(copy->info.manifest_bytes); /* if it lies in several places */
    if (room == NULL) {
        *err = sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
        return true;
    }
    const void *bytes =
        sl_objects_place_read(copy->places, copy->place_count, 0, copy->info.manifest_bytes, room);
    const bool is_right =
        sl_hash_128_equal(sl_hash_bytes_128(bytes, copy->info.manifest_bytes), copy->info.digest);
    *err = is_right ? decode_manifest(fetch, bytes, reason) : 0;
    free(room);
    return is_right;
}

static void manifest_arrived(struct sl_objects_download *download)
{
    struct sl_objects_fetch *fetch = download->ctx;
    const struct sl_objects_copy *copy = fetch->copy;
    struct sl_reason reason = {.text = "out of memory"};
    int err;
    if (!take_manifest(fetch, &err, &reason)) {
        fetch->manifest = MISSING;
        mismatch(download, "the manifest");
        return;
    }
    if (err != 0) {
        char text[SL_REASON_BYTES];
        (void)snprintf(text, sizeof text, "%s@%" PRIu64 " part %u: manifest: %.1500s", copy->name,
                       copy->version, copy->part, reason.text);
        fetch_end(fetch, err, text);
        return;
    }
    fetch->manifest = VERIFIED;
    sl_objects_serve_grown(fetch->node);
    tell_grown(fetch);
    end_if_complete(fetch); /* an image without bytes */
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->of_stripe[i] != NULL) {
            fetch_pump(fetch->of_stripe[i]);
        }
    }
}

/* It need not be read. Its first block has room for it. */
static void fetch_described(struct sl_objects_download *download, const void *manifest)
{
    struct sl_objects_fetch *fetch = download->ctx;
    if (!fetch->is_ending && !download->is_closing && fetch->manifest == MISSING) {
        memcpy(fetch->copy->places[0].base, manifest, fetch->copy->info.manifest_bytes);
        manifest_arrived(download);
    }
}

static void blocks_arrived(struct sl_objects_download *download,
                           const struct sl_objects_stretch *stretches, uint32_t count)
{
    struct sl_objects_fetch *fetch = download->ctx;
    struct sl_objects_pool_version *pooled = fetch->copy->pooled;
    uint32_t wrong = SL_OBJECTS_MANIFEST_STRETCH;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t block = stretches[i].block;
        if (stretches[i].is_wrong) {
            fetch->blocks[block] = MISSING;
            wrong = block;
            continue;
        }
        if (pooled != NULL) {
            sl_objects_pool_set_verified(pooled,
                                         sl_objects_copy_manifest_blocks(fetch->copy) + block);
        }
        if (fetch_count_block(fetch, block) != 0) {
            fetch_end(fetch, SL_ERR_NO_MEMORY, "out of memory");
        }
    }
    tell_grown(fetch);
    end_if_complete(fetch);
    if (wrong != SL_OBJECTS_MANIFEST_STRETCH) {
        char what[32];
        (void)snprintf(what, sizeof what, "block %u", wrong);
        mismatch(download, what);
    }
    fetch_pump(download);
}

static void fetch_arrived(struct sl_objects_download *download,
                          const struct sl_objects_stretch *stretches, uint32_t count, int err,
                          const char *reason)
{
    struct sl_objects_fetch *fetch = download->ctx;
    const bool is_manifest = stretches[0].block == SL_OBJECTS_MANIFEST_STRETCH;
    if (fetch->is_ending) { /* the copy may be withdrawn, and then gets no more slots */
        return;
    }
    if (err == 0 && is_manifest) {
        manifest_arrived(download);
    } else if (err == 0) {
        blocks_arrived(download, stretches, count);
    } else {
        for (uint32_t i = 0; i < count && !is_manifest; i++) {
            fetch->blocks[stretches[i].block] = MISSING;
        }
        fetch->manifest = is_manifest ? MISSING : fetch->manifest;
        set_damaged(download);
        replace(download, reason);
    }
    for (uint32_t i = 0; download->is_closing && i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->of_stripe[i] != NULL) { /* what was in flight is missing again */
            sl_objects_download_rewind(fetch->of_stripe[i]);
            fetch_pump(fetch->of_stripe[i]);
        }
    }
}

static const struct sl_objects_download_events EVENTS = {.grown = fetch_pump,
                                                         .described = fetch_described,
                                                         .arrived = fetch_arrived,
                                                         .failed = fetch_failed,
                                                         .closed = fetch_closed};

/* Messages */

void sl_objects_fetch_have(struct sl_objects_fetch *fetch, const struct sl_objects_message *have)
{
    struct sl_objects_download *download = find_download(fetch, have->node);
    if (download != NULL) {
        sl_objects_download_have(download, have);
    }
}

void sl_objects_fetch_gone(struct sl_objects_fetch *fetch, const struct sl_objects_message *gone)
{
    struct sl_objects_download *download = find_download(fetch, gone->node);
    if (download != NULL) {
        replace(download, gone->text);
    }
}

/* Planned parents become the sources, unless they have failed here. */
static void follow_plan(struct sl_objects_fetch *fetch)
{
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        const struct holder *holder = find_holder(fetch, fetch->planned[i]);
        if (needs(fetch, i) && holder != NULL && fetch_is_usable(holder)) {
            fetch_assign(fetch, i, holder);
        }
    }
}

void sl_objects_fetch_news(struct sl_objects_fetch *fetch, const struct sl_objects_message *news)
{
    add_holders(fetch, news);
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        fetch->planned[i] = i < news->news.parent_count ? news->news.parents[i].node : 0;
    }
    if (fetch->is_started && !fetch->is_ending) {
        follow_plan(fetch);
    }
}

/* Start */

int sl_objects_fetch_create(struct sl_objects *node, struct sl_objects_copy *copy,
                            uint64_t deadline_ns, sl_objects_fetch_over_fn *over, void *ctx)
{
    const uint32_t count = sl_objects_copy_block_count(copy);
    struct sl_objects_fetch *made = calloc(1, sizeof *made);
    uint8_t *blocks = calloc(count + 1, 1);
    if (made == NULL || blocks == NULL) {
        free(made);
        free(blocks);
        return SL_ERR_NO_MEMORY;
    }
    made->node = node;
    made->copy = copy;
    made->over = over;
    made->ctx = ctx;
    made->deadline_ns = deadline_ns;
    made->blocks = blocks;
    made->timer.run = fetch_timer_passed;
    sl_list_init(&made->downloads);
    for (uint32_t i = 0; i < count; i++) {
        made->missing[stripe_of(made, i)]++;
    }
    copy->counts = (struct sl_objects_fetch_counts){0};
    if (copy->verified.range_count > 0) { /* it had all blocks, and the last ones were evicted */
        made->manifest = VERIFIED;
        memset(blocks, VERIFIED, copy->verified.count);
        for (uint32_t i = 0; i < copy->verified.count; i++) {
            made->missing[stripe_of(made, i)]--;
            copy->counts.verified_bytes += sl_objects_manifest_block_bytes(&copy->manifest, i);
        }
        if (count_shared(made) != 0) {
            sl_objects_fetch_free(made);
            return SL_ERR_NO_MEMORY;
        }
    }
    copy->fetch = made;
    return 0;
}

void sl_objects_fetch_free(struct sl_objects_fetch *fetch)
{
    if (fetch != NULL) {
        free(fetch->blocks);
        free(fetch);
    }
}

/* A file of this node is the source of both stripes. There are few holders yet. */
static void use_file(struct sl_objects_fetch *fetch)
{
    const struct sl_objects_copy *copy = fetch->copy;
    const struct sl_objects_stored *stored = sl_objects_stored_of_copy(fetch->node, copy);
    if (stored == NULL) {
        return;
    }
    struct holder *file = &fetch->holders[fetch->holder_count++];
    *file = (struct holder){.node = fetch->node->id};
    sl_objects_directory_describe(fetch->node->directory, &stored->key, file->address,
                                  sizeof file->address);
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (needs(fetch, i)) {
            fetch_assign(fetch, i, file);
        }
    }
}

void sl_objects_fetch_start(struct sl_objects_fetch *fetch)
{
    fetch->is_started = true;
    sl_reactor_arm(fetch->node->reactor, &fetch->timer, TICK_NS);
    if (fetch->manifest == VERIFIED) {
        end_if_complete(fetch);
    }
    follow_plan(fetch);
    use_file(fetch);
    for (uint32_t i = 0; i < SL_OBJECTS_STRIPES; i++) {
        if (fetch->of_stripe[i] == NULL && needs(fetch, i)) {
            find_parent(fetch, i);
        }
    }
}

void sl_objects_fetch_cancel(struct sl_objects_fetch *fetch, const char *reason)
{
    fetch_end(fetch, SL_ERR_CANCELLED, reason);
}

void sl_objects_fetch_prolong(struct sl_objects_fetch *fetch, uint64_t deadline_ns)
{
    if (deadline_ns > fetch->deadline_ns) {
        fetch->deadline_ns = deadline_ns;
        SL_LIST_EACH (struct sl_objects_download, download, link, &fetch->downloads) {
            download->deadline_ns = deadline_ns;
        }
    }
}
