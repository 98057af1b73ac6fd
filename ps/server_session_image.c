/* Sessions in an image: what a shard that is made of it has to know of its clients, so that what
 * they send again is carried out as far as it was not. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "ps/image.h"
#include "ps/server_internal.h"

/* ---- Into blocks ----------------------------------------------------------------------------- */

/* What has been written of a request that is in progress. */
static void note_partial(const struct sl_server_request *request)
{
    struct sl_server_session *session = request->session;
    const bool writes = session != NULL && request->started && !request->done &&
                        sl_server_request_writes(&request->work);
    const uint32_t sections = writes ? sl_shard_written(&request->work) : 0;
    if (sections > 0) {
        session->partial_id = request->id;
        session->partial_sections = sections;
    }
}

static void note_partials(const struct sl_server *server)
{
    const struct sl_server_list *const lists[] = {&server->parked, &server->resumed};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        for (const struct sl_server_request *request = lists[i]->first; request != NULL;
             request = request->next) {
            note_partial(request);
        }
    }
    for (const struct sl_server_conn *conn = server->conns; conn != NULL; conn = conn->next) {
        if (conn->queue.first != NULL) {
            note_partial(conn->queue.first); /* no other has begun */
        }
    }
}

static int by_age(const void *a, const void *b)
{
    const struct sl_server_failure *one = a, *other = b;
    return one->told_at < other->told_at ? -1 : one->told_at > other->told_at;
}

static void fill(const struct sl_server_session *session, struct sl_image_session *out)
{
    const bool is_partial = session->partial_id > session->last_write_id;
    out->client_id = session->client_id;
    out->role = (uint8_t)session->role;
    out->heard = session->heard;
    out->task_index = session->task_index;
    out->id_max = session->id_max;
    out->last_write_id = session->last_write_id;
    out->partial_id = is_partial ? session->partial_id : 0;
    out->partial_sections = is_partial ? session->partial_sections : 0;
    out->failure_count = 0;
    if (session->failures == NULL) {
        return;
    }
    /* Those that there are, and no more: this is done for all sessions in one turn. */
    struct sl_server_failure failures[SL_SERVER_SESSION_FAILURES];
    for (uint32_t i = 0; i < SL_SERVER_SESSION_FAILURES; i++) {
        if (session->failures[i].id != 0) {
            failures[out->failure_count++] = session->failures[i];
        }
    }
    qsort(failures, out->failure_count, sizeof failures[0], by_age);
    for (uint32_t i = 0; i < out->failure_count; i++) {
        out->failures[i] = (struct sl_image_failure){.id = failures[i].id, .err = failures[i].err};
    }
}

static int put(struct sl_image_block **last, const struct sl_image_session *session)
{
    if (*last != NULL && sl_image_put_session(*last, session)) {
        return 0;
    }
    struct sl_image_block *block;
    int err = sl_image_block_create(SL_IMAGE_BLOCK_BYTES, &block);
    if (err != 0) {
        return err;
    }
    sl_image_block_begin(block, SL_IMAGE_SESSIONS, 0);
    const bool fits = sl_image_put_session(block, session);
    sl_assert(fits);
    block->next = *last;
    *last = block;
    return 0;
}

/* One that does not know all of its failures ends with its connection; and of a peer that is
 * neither a worker nor a client nobody expects that it comes back. */
static bool is_lasting(const struct sl_server_session *session)
{
    return !session->forgets &&
           (session->role == SL_MESSAGE_ROLE_WORKER || session->role == SL_MESSAGE_ROLE_CLIENT);
}

int sl_server_session_image(struct sl_server *server, struct sl_image_block **out)
{
    struct sl_image_block *blocks = NULL;
    struct sl_image_session session;
    int err = 0;
    note_partials(server);
    for (uint32_t i = 0; i < SL_SERVER_SESSION_BUCKETS; i++) {
        for (const struct sl_server_session *at = server->sessions.buckets[i];
             at != NULL && err == 0; at = at->next) {
            if (is_lasting(at)) {
                fill(at, &session);
                err = put(&blocks, &session);
            }
        }
    }
    while (err != 0 && blocks != NULL) {
        struct sl_image_block *block = blocks;
        blocks = block->next;
        sl_image_block_destroy(&block);
    }
    *out = blocks;
    return err;
}

/* ---- Out of blocks --------------------------------------------------------------------------- */

static int load(struct sl_server *server, const struct sl_image_session *image, char *reason,
                size_t reason_bytes)
{
    const struct sl_message_hello hello = {.role = (enum sl_message_role)image->role,
                                           .client_id = image->client_id,
                                           .task_index = image->task_index};
    struct sl_server_session *session;
    int err = sl_server_session_revive(server, &hello, &session);
    if (err != 0) {
        (void)snprintf(reason, reason_bytes, "%s",
                       err == SL_ERR_CORRUPT ? "it has a client twice"
                                             : "no memory for its clients");
        return err;
    }
    session->heard = image->heard;
    session->restored = true;
    session->id_max = image->id_max;
    session->last_write_id = image->last_write_id;
    session->partial_id = image->partial_id;
    session->partial_sections = image->partial_sections;
    for (uint32_t i = 0; i < image->failure_count; i++) {
        sl_server_session_failed(session, image->failures[i].id, image->failures[i].err);
    }
    return 0;
}

int sl_server_session_load(struct sl_server *server, const struct sl_image_block *block,
                           char *reason, size_t reason_bytes)
{
    struct sl_bytes cursor = sl_image_records(block);
    struct sl_image_session session;
    if (block->kind != SL_IMAGE_SESSIONS) {
        (void)snprintf(reason, reason_bytes, "a block of %s is none of sessions",
                       sl_image_kind_name(block->kind));
        return SL_ERR_CORRUPT;
    }
    for (uint32_t i = 0; i < block->count; i++) {
        if (!sl_image_take_session(&cursor, &session)) {
            (void)snprintf(reason, reason_bytes, "client %u of a block of sessions is none", i);
            return SL_ERR_CORRUPT;
        }
        int err = load(server, &session, reason, reason_bytes);
        if (err != 0) {
            return err;
        }
    }
    if (cursor.left != 0) {
        (void)snprintf(reason, reason_bytes, "%zu bytes are left behind the clients of a block",
                       cursor.left);
        return SL_ERR_CORRUPT;
    }
    return 0;
}
