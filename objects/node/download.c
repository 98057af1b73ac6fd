#include "objects/node/download.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/array.h"
#include "core/assert.h"
#include "net/transfer/async.h"
#include "objects/node/board_residency.h"
#include "objects/node/call.h"
#include "objects/node/directory.h"
#include "objects/node/node.h"
#include "reactor/offload.h"

#define WINDOW_NS            (20 * SL_CLOCK_NS_PER_MS)
/* Of a stream from a source that is faster than 10 Gbit/s, so near: what is in flight delays what
 * is to be verified, if both need one core. */
#define NEAR_WINDOW_NS       (2 * SL_CLOCK_NS_PER_MS)
#define NEAR_BLOCK_NS        (200 * SL_CLOCK_NS_PER_US)
#define WINDOW_BLOCKS_MIN    4
#define WINDOW_BLOCKS_MAX    (16 * 1048576 / SL_OBJECTS_BLOCK_BYTES)
#define IDLE_NS              (500 * SL_CLOCK_NS_PER_MS)
#define SLOW_NS              (50 * SL_CLOCK_NS_PER_MS)
#define FIRST_NS             SL_CLOCK_NS_PER_S /* to connect, and for the first block */
/* A manifest is read at once: a source is not slow that sends 1 MB of it per second. */
#define MANIFEST_NS_PER_BYTE 1000ULL
#define WANT_NS              (10 * SL_CLOCK_NS_PER_S) /* before the source forgets this node */
#define STREAM_BLOCKS        4
/* A READ of so much is compared at once: the way to the offload thread takes as long. */
#define DIGEST_HERE_BYTES    SL_OBJECTS_BLOCK_BYTES
#define QUIET_NS             SL_CLOCK_NS_PER_S /* then WANT, its answer, or a HAVE may be lost */

/* Stretches that are being read. */
struct read {
    struct sl_list_link link; /* of source->reads */
    struct sl_objects_download *download;
    struct sl_transfer_batch *batch;
    uint64_t started_ns;
    uint64_t bytes;
    uint32_t count;
    struct sl_objects_stretch stretches[SL_OBJECTS_READ_BLOCKS];
    struct sl_offload_job digesting;
};

/* The source may use the memory for something else. */
static void send_done(struct sl_objects_download *download)
{
    const struct sl_objects_copy *copy = download->copy;
    struct sl_objects_message done = {
        .kind = SL_OBJECTS_DONE, .name = copy->name, .version = copy->version, .part = copy->part};
    sl_objects_link_send(download->node->link, download->address, &done, NULL, NULL);
}

static void free_if_closed(struct sl_objects_download *download)
{
    if (!download->is_closing || !sl_list_empty(&download->reads)) {
        return;
    }
    void (*closed)(void *ctx) = download->events->closed;
    void *ctx = download->ctx;
    if (download->segment != NULL) {
        send_done(download);
    }
    sl_list_remove(&download->link);
    sl_reactor_disarm(download->node->reactor, &download->want_again);
    sl_reactor_disarm(download->node->reactor, &download->paced);
    sl_objects_link_peer_put(download->node->link, &download->peer);
    free(download->offered.ranges);
    free(download);
    closed(ctx);
}

static void download_fail(struct sl_objects_download *download, int err, const char *reason)
{
    if (!download->is_closing) {
        download->events->failed(download, err, reason);
    }
}

/* Pace */

static uint64_t bytes_ns(const struct sl_objects_pace *pace, uint64_t bytes)
{
    return pace->rate == 0 ? 0 : bytes * SL_CLOCK_NS_PER_S / pace->rate;
}

void sl_objects_pace_set(struct sl_objects_pace *pace, uint64_t rate, uint64_t now_ns)
{
    pace->rate = rate;
    const uint64_t latest_ns = now_ns + bytes_ns(pace, SL_OBJECTS_BLOCK_BYTES);
    pace->due_ns = pace->due_ns < latest_ns ? pace->due_ns : latest_ns;
}

void sl_objects_pace_take(struct sl_objects_pace *pace, uint64_t bytes, uint64_t now_ns)
{
    const uint64_t least_ns = now_ns > WINDOW_NS ? now_ns - WINDOW_NS : 0;
    pace->due_ns = (pace->due_ns > least_ns ? pace->due_ns : least_ns) + bytes_ns(pace, bytes);
}

static void paced(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_download *download =
        SL_CONTAINER_OF(timer, struct sl_objects_download, paced);
    download->events->grown(download);
}

/* Between two blocks: what was measured, or what the pace demands. */
static uint64_t block_ns(const struct sl_objects_download *download)
{
    const uint64_t paced_ns = bytes_ns(&download->pace, SL_OBJECTS_BLOCK_BYTES);
    return paced_ns > download->block_ns ? paced_ns : download->block_ns;
}

/* WANT and HAVE */

/* Above what an honest source lists, whose memory is cut at blocks, tensors and extents. */
static uint32_t ranges_max(const struct sl_objects_download *download)
{
    return 4 * (SL_LIMIT_OBJECTS_TENSORS + SL_OBJECTS_EXTENTS_MAX) +
           2 * sl_objects_copy_block_count(download->copy);
}

void sl_objects_download_have(struct sl_objects_download *download,
                              const struct sl_objects_message *have)
{
    const uint64_t image_end =
        sl_objects_copy_image_at(download->copy) + download->copy->info.bytes;
    sl_objects_pace_set(&download->pace, have->have.rate,
                        sl_reactor_now_ns(download->node->reactor));
    if (have->is_answer) { /* it lists all ranges again, and a HAVE after it may have come first */
        struct sl_objects_range *ranges = download->offered.ranges;
        download->offered.count -= download->offered.wanted_at;
        if (download->offered.count > 0) {
            memmove(ranges, ranges + download->offered.wanted_at,
                    download->offered.count * sizeof *ranges);
        }
        download->offered.wanted_at = 0;
        sl_objects_download_rewind(download);
    }
    for (uint32_t i = 0; i < have->have.range_count; i++) {
        const struct sl_objects_range *range = &have->have.ranges[i];
        if (range->offset + range->bytes > image_end ||
            download->offered.count == ranges_max(download) ||
            !sl_array_make_room(&download->offered.ranges, &download->offered.capacity,
                                download->offered.count, sizeof download->offered.ranges[0])) {
            download_fail(download, SL_ERR_PROTOCOL,
                          "it lists too many ranges, or bytes behind the end");
            return;
        }
        download->offered.ranges[download->offered.count++] = *range;
    }
    if (have->have.range_count > 0) {
        download->arrived_ns = sl_reactor_now_ns(download->node->reactor);
        if (have->have.manifest_words == (download->copy->info.manifest_bytes + 7) / 8) {
            download->events->described(download, have->have.manifest);
        }
        download->events->grown(download);
    }
}

static void wanted(struct sl_objects_request *request, const struct sl_objects_message *answer,
                   int err, const char *reason)
{
    struct sl_objects_download *download =
        SL_CONTAINER_OF(request, struct sl_objects_download, want);
    if (err != 0) {
        download_fail(download, err, reason);
        return;
    }
    sl_objects_download_have(download, answer);
}

static void send_want(struct sl_objects_download *download)
{
    const struct sl_objects_copy *copy = download->copy;
    struct sl_objects_message want = {.kind = SL_OBJECTS_WANT,
                                      .name = copy->name,
                                      .version = copy->version,
                                      .part = copy->part,
                                      .digest = copy->info.digest};
    download->want.answered = wanted;
    download->wanted_ns = sl_reactor_now_ns(download->node->reactor);
    download->offered.wanted_at = download->offered.count;
    sl_reactor_arm(download->node->reactor, &download->want_again, QUIET_NS);
    sl_objects_link_request(download->node->link, &download->want, download->address, &want,
                            sl_objects_ms_left(download->node, download->deadline_ns));
}

static void want_again(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_download *download =
        SL_CONTAINER_OF(timer, struct sl_objects_download, want_again);
    if (now_ns - download->arrived_ns < QUIET_NS && now_ns - download->wanted_ns < WANT_NS) {
        sl_reactor_arm(download->node->reactor, timer, QUIET_NS);
        return;
    }
    sl_objects_link_cancel(download->node->link, &download->want);
    send_want(download);
}

static void download_opened(struct sl_objects_peer_use *peer, struct sl_transfer_segment *segment,
                            int err, const char *reason)
{
    struct sl_objects_download *download = SL_CONTAINER_OF(peer, struct sl_objects_download, peer);
    if (err != 0) {
        download_fail(download, err, reason);
    } else if (!download->is_closing) {
        download->segment = segment;
        send_want(download);
    }
}

/* All of the file: offsets of the stored part are those of the file. */
static int list_file(struct sl_objects_download *download)
{
    const struct sl_objects_copy *copy = download->copy;
    const uint64_t image_at = sl_objects_copy_image_at(copy);
    if (!sl_array_make_room(&download->offered.ranges, &download->offered.capacity, 2,
                            sizeof download->offered.ranges[0])) {
        return SL_ERR_NO_MEMORY;
    }
    download->offered.ranges[0] = (struct sl_objects_range){.bytes = copy->info.manifest_bytes};
    download->offered.ranges[1] = (struct sl_objects_range){
        .offset = image_at, .address = image_at, .bytes = copy->info.bytes};
    download->offered.count = copy->info.bytes == 0 ? 1 : 2;
    return 0;
}

int sl_objects_download_create(struct sl_objects *node, struct sl_objects_copy *copy, uint64_t id,
                               const char *address, uint64_t deadline_ns,
                               const struct sl_objects_download_events *events, void *ctx,
                               struct sl_objects_download **out)
{
    struct sl_objects_download *download = calloc(1, sizeof *download);
    if (download == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    download->ctx = ctx;
    download->node = node;
    download->copy = copy;
    download->blocks_max = SL_OBJECTS_READ_BLOCKS;
    download->events = events;
    download->id = id;
    (void)snprintf(download->address, sizeof download->address, "%s", address);
    download->deadline_ns = deadline_ns;
    download->arrived_ns = sl_reactor_now_ns(node->reactor);
    download->want_again.run = want_again;
    download->paced.run = paced;
    download->peer.opened = download_opened;
    sl_list_init(&download->reads);
    if (id == node->id) {
        const int err = list_file(download);
        if (err != 0) {
            free(download);
            return err;
        }
        *out = download;
        return 0;
    }
    *out = download;
    download->segment = sl_objects_link_peer_get(node->link, &download->peer, address,
                                                 sl_objects_ms_left(node, deadline_ns));
    if (download->segment != NULL) {
        send_want(download);
    }
    return 0;
}

/* Blocks that the source has */

/* Where the ranges from the given one on end to continue each other; *last: that range. */
static uint64_t reach(const struct sl_objects_download *download, uint32_t range, uint64_t enough,
                      uint32_t *last)
{
    const struct sl_objects_range *at = &download->offered.ranges[range];
    uint64_t end = at->offset + at->bytes;
    while (end < enough && range + 1 < download->offered.count && at[1].offset == end) {
        at++;
        range++;
        end += at->bytes;
    }
    *last = range;
    return end;
}

bool sl_objects_download_manifest(const struct sl_objects_download *download,
                                  struct sl_objects_stretch *out)
{
    uint32_t last;
    *out = (struct sl_objects_stretch){.bytes = download->copy->info.manifest_bytes,
                                       .block = SL_OBJECTS_MANIFEST_STRETCH};
    return download->offered.count > 0 && download->offered.ranges[0].offset == 0 &&
           reach(download, 0, out->bytes, &last) >= out->bytes;
}

bool sl_objects_download_next(struct sl_objects_download *download, struct sl_objects_stretch *out)
{
    const uint64_t image_at = sl_objects_copy_image_at(download->copy);
    while (download->offered.next < download->offered.count) {
        const struct sl_objects_range *range = &download->offered.ranges[download->offered.next];
        const uint64_t from = range->offset > download->offered.next_offset
                                  ? range->offset
                                  : download->offered.next_offset;
        /* The first block that begins there or behind. */
        const uint64_t block = from > image_at ? sl_objects_block_count(from - image_at) : 0;
        const uint64_t begin = image_at + block * SL_OBJECTS_BLOCK_BYTES;
        const uint64_t left = image_at + download->copy->info.bytes - begin;
        uint32_t last;
        if (begin >= range->offset + range->bytes) {
            download->offered.next++;
            download->offered.next_offset = 0;
            continue;
        }
        *out = (struct sl_objects_stretch){
            .offset = begin,
            .bytes = left < SL_OBJECTS_BLOCK_BYTES ? left : SL_OBJECTS_BLOCK_BYTES,
            .range = download->offered.next,
            .block = (uint32_t)block};
        const uint64_t end = reach(download, download->offered.next, begin + out->bytes, &last);
        if (end < begin + out->bytes && last + 1 == download->offered.count) {
            return false; /* the rest of the block may come with the next HAVE */
        }
        download->offered.next_offset = begin + 1;
        if (end >= begin + out->bytes) {
            return true;
        }
    }
    return false;
}

void sl_objects_download_rewind(struct sl_objects_download *download)
{
    download->offered.next = 0;
    download->offered.next_offset = 0;
}

/* READs */

static uint8_t *local_at(const struct sl_objects_copy *copy, uint64_t offset, uint64_t *left)
{
    const uint32_t i = sl_objects_place_find(copy->places, copy->place_count, offset);
    sl_assert(i < copy->place_count && copy->places[i].offset <= offset);
    const uint64_t within = offset - copy->places[i].offset;
    *left = copy->places[i].bytes - within;
    return copy->places[i].base + within;
}

/* Appends to the requests of the node; the last one grows if this one continues it. */
static bool add_request(struct sl_objects_download *download, uint32_t *count, uint8_t *local,
                        uint64_t remote, uint64_t bytes)
{
    struct sl_objects_requests *all = &download->node->requests;
    struct sl_transfer_request *last = *count > 0 ? &all->items[*count - 1] : NULL;
    if (last != NULL && (uint8_t *)last->local + last->bytes == local &&
        last->remote + last->bytes == remote) {
        last->bytes += bytes;
        return true;
    }
    if (!sl_array_make_room(&all->items, &all->capacity, *count, sizeof all->items[0])) {
        return false;
    }
    all->items[(*count)++] = (struct sl_transfer_request){.op = SL_TRANSFER_READ,
                                                          .local = local,
                                                          .segment = download->segment,
                                                          .remote = remote,
                                                          .bytes = bytes};
    return true;
}

/* One request for each piece that is in one place on both sides. */
static bool add_stretch(struct sl_objects_download *download, uint32_t *count,
                        const struct sl_objects_stretch *stretch)
{
    const uint64_t end = stretch->offset + stretch->bytes;
    uint64_t offset = stretch->offset;
    uint32_t i = stretch->range;
    while (offset < end) {
        const struct sl_objects_range *range = &download->offered.ranges[i];
        const uint64_t there = range->offset + range->bytes - offset;
        uint64_t here;
        uint8_t *local = local_at(download->copy, offset, &here);
        uint64_t bytes = here < there ? here : there;
        bytes = bytes < end - offset ? bytes : end - offset;
        if (!add_request(download, count, local, range->address + (offset - range->offset),
                         bytes)) {
            return false;
        }
        offset += bytes;
        i += bytes == there ? 1 : 0;
    }
    return true;
}

static void measure(struct sl_objects_download *download, const struct read *read, uint64_t now_ns)
{
    const uint64_t over_ns = sl_clock_now_ns(sl_reactor_clock(download->node->reactor));
    const bool was_busy = read->started_ns < download->arrived_ns; /* else it includes the way */
    const uint64_t since_ns = was_busy ? download->arrived_ns : read->started_ns;
    const uint64_t block_ns = (now_ns - since_ns) / read->count + 1;
    download->block_ns =
        download->block_ns == 0 ? block_ns : (3 * download->block_ns + block_ns) / 4;
    download->arrived_ns = now_ns;
    if (was_busy && download->over_ns != 0) {
        sl_objects_cost_add(&download->node->measured.cost, read->bytes,
                            over_ns - download->over_ns);
        sl_objects_board_residency_cost(download->node);
    }
    download->over_ns = over_ns;
}

/* The source stays until the READ has been used. */
static void download_use_read(struct read *read, int err, const char *reason)
{
    struct sl_objects_download *download = read->download;
    download->events->arrived(download, read->stretches, read->count, err, reason);
    sl_list_remove(&read->link);
    free(read);
    free_if_closed(download);
}

/* Compares the blocks with their digests. On the offload thread too: a copy that is fetched keeps
 * its places and its manifest. */
static void download_verify(struct read *read, uint8_t *scratch)
{
    const struct sl_objects_copy *copy = read->download->copy;
    for (uint32_t i = 0; i < read->count; i++) {
        struct sl_objects_stretch *stretch = &read->stretches[i];
        stretch->is_wrong = !sl_objects_manifest_verify(
            &copy->manifest, stretch->block,
            sl_objects_place_read(copy->places, copy->place_count, stretch->offset,
                                  (uint32_t)stretch->bytes, scratch));
    }
}

static void download_digest(struct sl_offload_job *job)
{
    struct read *read = SL_CONTAINER_OF(job, struct read, digesting);
    download_verify(read, read->download->node->digests.scratch + SL_OBJECTS_BLOCK_BYTES);
}

static void download_digested(struct sl_offload_job *job)
{
    struct read *read = SL_CONTAINER_OF(job, struct read, digesting);
    read->download->digesting_count -= read->count;
    if (job->err != 0) { /* there is no thread */
        download_verify(read, read->download->node->digests.scratch);
    }
    download_use_read(read, 0, "");
}

static void read_over(void *ctx, int err, const char *reason)
{
    struct read *read = ctx;
    struct sl_objects_download *download = read->download;
    struct sl_objects *node = download->node;
    const bool verifies = err == 0 && !node->setup.trusting &&
                          read->stretches[0].block != SL_OBJECTS_MANIFEST_STRETCH;
    sl_transfer_batch_free(&read->batch);
    download->flying_count -= read->count;
    if (err == 0) {
        measure(download, read, sl_reactor_now_ns(node->reactor));
    }
    if (verifies && read->bytes > DIGEST_HERE_BYTES) {
        read->digesting =
            (struct sl_offload_job){.work = download_digest, .done = download_digested};
        download->digesting_count += read->count;
        sl_offload_post(node->digests.offload, &read->digesting);
        download->events->grown(download); /* the next READ does not wait for it */
        return;
    }
    if (verifies) {
        download_verify(read, node->digests.scratch);
    }
    download_use_read(read, err, reason);
}

int sl_objects_download_read(struct sl_objects_download *download,
                             const struct sl_objects_stretch *stretches, uint32_t count)
{
    struct sl_objects *node = download->node;
    const struct sl_objects_copy *copy = download->copy;
    const struct sl_objects_pool_key key = {copy->name, copy->version, copy->part};
    const bool is_file = download->id == node->id;
    struct read *read = calloc(1, sizeof *read);
    uint64_t bytes = 0;
    uint32_t request_count = 0;
    int err = read != NULL ? 0 : SL_ERR_NO_MEMORY;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = add_stretch(download, &request_count, &stretches[i]) ? 0 : SL_ERR_NO_MEMORY;
        read->stretches[i] = stretches[i];
        bytes += stretches[i].bytes;
    }
    if (err == 0 && !is_file) {
        err = sl_transfer_batch_create(node->transfer, request_count, &read->batch);
    }
    if (err == 0) {
        read->download = download;
        read->bytes = bytes;
        read->count = count;
        read->started_ns = sl_reactor_now_ns(node->reactor);
        err = is_file ? sl_objects_directory_read(node->directory, &key, node->requests.items,
                                                  request_count, read_over, read)
                      : sl_transfer_async_submit(sl_objects_link_async(node->link), read->batch,
                                                 node->requests.items, request_count,
                                                 sl_objects_ms_left(node, download->deadline_ns),
                                                 NULL, read_over, read);
    }
    if (err != 0) {
        if (read != NULL && read->batch != NULL) {
            sl_transfer_batch_free(&read->batch);
        }
        download->blocks_max = err == SL_ERR_TOO_LARGE ? 1 : download->blocks_max;
        free(read);
        return err;
    }
    if (download->flying_count == 0) { /* it owes blocks from now on */
        download->arrived_ns = read->started_ns;
    }
    sl_list_append(&download->reads, &read->link);
    download->flying_count += count;
    sl_objects_pace_take(&download->pace, bytes, read->started_ns);
    return 0;
}

uint32_t sl_objects_download_window(struct sl_objects_download *download)
{
    const uint64_t now_ns = sl_reactor_now_ns(download->node->reactor);
    if (download->digesting_count >= WINDOW_BLOCKS_MAX) {
        return 0;
    }
    if (now_ns < download->pace.due_ns) {
        sl_reactor_arm(download->node->reactor, &download->paced, download->pace.due_ns - now_ns);
        return 0;
    }
    const bool is_near =
        download->copy->stops.offsets != NULL && block_ns(download) < NEAR_BLOCK_NS;
    const uint64_t window_ns = is_near ? NEAR_WINDOW_NS : WINDOW_NS;
    const uint64_t blocks = block_ns(download) == 0 ? 0 : window_ns / block_ns(download);
    return blocks < WINDOW_BLOCKS_MIN   ? WINDOW_BLOCKS_MIN
           : blocks > WINDOW_BLOCKS_MAX ? WINDOW_BLOCKS_MAX
                                        : (uint32_t)blocks;
}

uint32_t sl_objects_download_read_max(const struct sl_objects_download *download, uint32_t window)
{
    const uint32_t most =
        download->copy->stops.offsets != NULL && download->blocks_max > STREAM_BLOCKS
            ? STREAM_BLOCKS
            : download->blocks_max;
    return window / 4 < most ? window / 4 : most;
}

uint64_t sl_objects_download_slow_ns(const struct sl_objects_download *download)
{
    const uint64_t flying = download->flying_count > 0 ? download->flying_count : 1;
    const uint64_t expected_ns = 4 * flying * block_ns(download);
    const uint64_t first_ns = FIRST_NS + download->copy->info.manifest_bytes * MANIFEST_NS_PER_BYTE;
    const uint64_t least_ns = download->block_ns == 0      ? first_ns
                              : download->flying_count > 0 ? SLOW_NS
                                                           : IDLE_NS;
    const uint64_t from_ns =
        download->arrived_ns > download->pace.due_ns ? download->arrived_ns : download->pace.due_ns;
    return from_ns + (expected_ns > least_ns ? expected_ns : least_ns);
}

/* End */

/* In a turn of its own, since the caller of close may be in an event of this source. */
static void closing(struct sl_timer *timer, uint64_t now_ns)
{
    free_if_closed(SL_CONTAINER_OF(timer, struct sl_objects_download, want_again));
}

void sl_objects_download_close(struct sl_objects_download *download)
{
    struct sl_objects *node = download->node;
    if (download->is_closing) {
        return;
    }
    download->is_closing = true;
    sl_objects_link_cancel(node->link, &download->want);
    SL_LIST_EACH (const struct read, read, link, &download->reads) {
        if (read->batch != NULL) { /* else it has arrived */
            sl_transfer_async_cancel(sl_objects_link_async(node->link), read->batch);
        }
    }
    download->want_again.run = closing;
    sl_reactor_arm(node->reactor, &download->want_again, 0);
}
