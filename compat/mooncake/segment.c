#include "compat/mooncake/segment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANDSHAKE_PORT "12001"

bool sl_mooncake_segment_name(const char *name, const char *port, char out[SL_TRANSFER_NAME_BYTES])
{
    const char *colon = strrchr(name, ':');
    const char *bracket = strrchr(name, ']');
    const bool is_bare_ipv6 = colon != NULL && bracket == NULL && strchr(name, ':') != colon;
    const bool has_port = colon != NULL && colon > bracket && !is_bare_ipv6;
    const int length = snprintf(out, SL_TRANSFER_NAME_BYTES, "%s%s%s%s%s", is_bare_ipv6 ? "[" : "",
                                name, is_bare_ipv6 ? "]" : "", has_port ? "" : ":",
                                has_port ? "" : (port != NULL ? port : HANDSHAKE_PORT));
    if (name[0] != '\0' && length < SL_TRANSFER_NAME_BYTES) {
        return true;
    }
    (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, "name",
                           "\"%.64s\" is not \"host\" or \"host:port\"", name);
    return false;
}

/* Peers */

static struct sl_mooncake_peer *peer_create(struct sl_transfer_segment *segment)
{
    struct sl_mooncake_peer *peer = calloc(1, sizeof *peer);
    if (peer != NULL) {
        peer->segment = segment;
        peer->uses = 1;
    }
    return peer;
}

void sl_mooncake_segment_forget(struct sl_mooncake_peer *peer)
{
    if (--peer->uses == 0) {
        free(peer);
    }
}

void sl_mooncake_segment_release(struct sl_mooncake_engine *engine, struct sl_mooncake_peer *peer)
{
    if (peer == NULL) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    const bool is_last = peer->uses == 1;
    peer->uses -= is_last ? 0 : 1;
    pthread_mutex_unlock(&engine->lock);
    if (is_last) { /* nobody else finds it any more */
        sl_transfer_segment_close(&peer->segment);
        sl_mooncake_segment_forget(peer);
    }
}

static bool has_ended(struct sl_mooncake_peer *peer)
{
    struct sl_transfer_info info;
    return sl_transfer_segment_info(peer->segment, &info) != 0 ||
           info.state == SL_TRANSFER_SEGMENT_CLOSED;
}

/* Numbers */

/* Under the lock. -1: the name has none. */
static segment_id_t find(const struct sl_mooncake_engine *engine, const char *name)
{
    segment_id_t found = -1;
    for (uint32_t i = 0; found < 0 && i < engine->segment_count; i++) {
        found = strcmp(engine->segments[i].name, name) == 0 ? (segment_id_t)i : -1;
    }
    return found;
}

/* Under the lock. LOCAL_SEGMENT is that of the engine's own name. -1: there are too many. */
static segment_id_t add(struct sl_mooncake_engine *engine, const char *name)
{
    const char *own = sl_transfer_name(engine->transfer);
    struct sl_mooncake_segment *segments = engine->segments;
    if (segments == NULL) {
        segments = calloc(SL_TRANSFER_SEGMENTS_MAX, sizeof *segments);
        engine->segments = segments;
        engine->segment_count = segments != NULL ? 1 : 0;
        if (segments != NULL) {
            (void)snprintf(segments[0].name, sizeof segments[0].name, "%s", own);
        }
    }
    const segment_id_t known = find(engine, name);
    if (known >= 0 || segments == NULL || engine->segment_count == SL_TRANSFER_SEGMENTS_MAX) {
        return known;
    }
    const uint32_t id = engine->segment_count++;
    (void)snprintf(segments[id].name, sizeof segments[id].name, "%s", name);
    return (segment_id_t)id;
}

struct sl_mooncake_peer *sl_mooncake_segment_use(struct sl_mooncake_engine *engine, segment_id_t id)
{
    struct sl_mooncake_segment *segment =
        id >= 0 && (uint32_t)id < engine->segment_count ? &engine->segments[id] : NULL;
    struct sl_mooncake_peer *peer = segment != NULL ? segment->peer : NULL;
    if (peer != NULL) {
        peer->uses++;
    }
    return peer;
}

/* Takes the peer from the segment. Under the lock. */
static struct sl_mooncake_peer *take(struct sl_mooncake_engine *engine, segment_id_t id)
{
    struct sl_mooncake_peer *peer = engine->segments[id].peer;
    engine->segments[id].peer = NULL;
    return peer;
}

/* Under the lock. One call of openSegment less; returns the peer if that was the last one. */
static struct sl_mooncake_peer *end_open(struct sl_mooncake_engine *engine, segment_id_t id)
{
    return --engine->segments[id].opens == 0 ? take(engine, id) : NULL;
}

/* The segment has this peer from now on, if its present one is `old`, which counts a call already.
 */
static segment_id_t replace(struct sl_mooncake_engine *engine, const char *name,
                            struct sl_mooncake_peer *old, struct sl_mooncake_peer *made)
{
    struct sl_mooncake_peer *gone = made;
    pthread_mutex_lock(&engine->lock);
    const segment_id_t id = add(engine, name);
    if (id >= 0) {
        struct sl_mooncake_segment *segment = &engine->segments[id];
        if (segment->peer == NULL || segment->peer == old) {
            gone = segment->peer;
            segment->peer = made;
        }
        segment->opens += old == NULL ? 1 : 0;
    }
    pthread_mutex_unlock(&engine->lock);
    sl_mooncake_segment_release(engine, gone);
    return id >= 0 ? id
                   : sl_mooncake_fail(SL_MOONCAKE_INVALID, "openSegment",
                                      "%s: no memory, or there are %d segments already", name,
                                      SL_TRANSFER_SEGMENTS_MAX);
}

/* NULL: it cannot be reached. */
static struct sl_mooncake_peer *connect_peer(struct sl_mooncake_engine *engine, const char *name)
{
    struct sl_transfer_segment *segment = NULL;
    if (sl_transfer_segment_open(engine->transfer, name, SL_MOONCAKE_WAIT_MS, &segment) != 0) {
        (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, "openSegment", "%s: %s", name,
                               sl_transfer_last_error());
        return NULL;
    }
    struct sl_mooncake_peer *peer = peer_create(segment);
    if (peer == NULL) {
        sl_transfer_segment_close(&segment);
    }
    return peer;
}

/* One call of openSegment. */
static segment_id_t open_named(struct sl_mooncake_engine *engine, const char *name)
{
    pthread_mutex_lock(&engine->lock);
    const segment_id_t known = find(engine, name);
    struct sl_mooncake_peer *old = sl_mooncake_segment_use(engine, known);
    if (old != NULL) {
        engine->segments[known].opens++;
    }
    pthread_mutex_unlock(&engine->lock);
    segment_id_t id = known;
    if (old == NULL || has_ended(old)) {
        struct sl_mooncake_peer *made = connect_peer(engine, name), *gone = NULL;
        if (made != NULL) {
            id = replace(engine, name, old, made);
        } else {
            id = SL_MOONCAKE_INVALID;
            pthread_mutex_lock(&engine->lock);
            gone = old != NULL ? end_open(engine, known) : NULL;
            pthread_mutex_unlock(&engine->lock);
        }
        sl_mooncake_segment_release(engine, gone);
    }
    sl_mooncake_segment_release(engine, old);
    return id;
}

void sl_mooncake_segment_open_local(struct sl_mooncake_engine *engine, segment_id_t id)
{
    if (id != LOCAL_SEGMENT) {
        return;
    }
    pthread_mutex_lock(&engine->lock);
    const bool is_open = engine->segment_count > 0 && engine->segments[0].peer != NULL;
    pthread_mutex_unlock(&engine->lock);
    if (!is_open) {
        (void)open_named(engine, sl_transfer_name(engine->transfer));
    }
}

segment_id_t openSegment(transfer_engine_t handle, const char *segment_name)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    char name[SL_TRANSFER_NAME_BYTES];
    if (engine == NULL || segment_name == NULL ||
        !sl_mooncake_segment_name(segment_name, NULL, name)) {
        return SL_MOONCAKE_INVALID;
    }
    return open_named(engine, name);
}

segment_id_t openSegmentNoCache(transfer_engine_t handle, const char *segment_name)
{
    return openSegment(handle, segment_name);
}

int closeSegment(transfer_engine_t handle, segment_id_t segment_id)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    struct sl_mooncake_peer *gone = NULL;
    pthread_mutex_lock(&engine->lock);
    const bool is_open = segment_id >= 0 && (uint32_t)segment_id < engine->segment_count &&
                         engine->segments[segment_id].opens > 0;
    gone = is_open ? end_open(engine, segment_id) : NULL;
    pthread_mutex_unlock(&engine->lock);
    sl_mooncake_segment_release(engine, gone);
    return is_open ? 0
                   : sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "segment %d is not open",
                                      segment_id);
}

int syncSegmentCache(transfer_engine_t handle)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    bool is_end = false;
    for (segment_id_t id = 0; !is_end; id++) {
        pthread_mutex_lock(&engine->lock);
        struct sl_mooncake_peer *peer = sl_mooncake_segment_use(engine, id);
        is_end = (uint32_t)id + 1 >= engine->segment_count;
        pthread_mutex_unlock(&engine->lock);
        struct sl_mooncake_peer *gone = NULL;
        if (peer != NULL && has_ended(peer)) {
            pthread_mutex_lock(&engine->lock);
            gone = engine->segments[id].peer == peer ? take(engine, id) : NULL;
            pthread_mutex_unlock(&engine->lock);
        }
        sl_mooncake_segment_release(engine, gone);
        sl_mooncake_segment_release(engine, peer);
    }
    return 0;
}

int removeLocalSegment(transfer_engine_t handle, const char *segment_name)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL || segment_name == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    char name[SL_TRANSFER_NAME_BYTES];
    const bool is_own = sl_mooncake_segment_name(segment_name, NULL, name) &&
                        strcmp(name, sl_transfer_name(engine->transfer)) == 0;
    return is_own ? 0
                  : sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "%.200s is not this engine, %s",
                                     segment_name, sl_transfer_name(engine->transfer));
}

void sl_mooncake_segment_free_all(struct sl_mooncake_engine *engine)
{
    for (uint32_t i = 0; i < engine->segment_count; i++) {
        if (engine->segments[i].peer != NULL) {
            sl_mooncake_segment_forget(engine->segments[i].peer);
        }
    }
    free(engine->segments);
}
