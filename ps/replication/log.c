/* The primary's log holds entries, and the replies to them, until the backup acknowledges them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/replication/internal.h"
#include "ps/shard/snapshot.h"

/* Bodies up to this size are copied behind their head, so that small entries are sent in one
 * piece. */
#define COPIED_BYTES_MAX (4U << 10)

/* Beyond these limits requests that write wait: entries, and one part in MEMORY_PART of the memory
 * for requests. */
#define ENTRIES_MAX      4096

/* Beyond this limit no message is executed that the backup must execute too. */
#define MESSAGES_MAX     (2 * ENTRIES_MAX)
#define MEMORY_PART      4

static struct sl_timer_wheel *timers_of(const struct sl_server *server)
{
    return sl_reactor_timers(server->options.reactor);
}

/* Entries */

static void look_at_room(struct sl_server *server)
{
    const struct sl_replication *replica = server->replica;
    const size_t bytes_max = server->memory.buffers.bytes / MEMORY_PART;
    const enum sl_server_log_room before = server->role.log_room;
    server->role.log_room =
        replica->entry_count >= MESSAGES_MAX ? SL_SERVER_LOG_OVERFULL
        : replica->entry_bytes >= bytes_max || replica->entry_count >= ENTRIES_MAX
            ? SL_SERVER_LOG_FULL
            : SL_SERVER_LOG_HAS_ROOM;
    if (before != SL_SERVER_LOG_HAS_ROOM && server->role.log_room == SL_SERVER_LOG_HAS_ROOM) {
        sl_server_scheduler_wake(server);
    }
}

static void answer(const struct sl_replication_entry *entry)
{
    struct sl_message message = {.kind = entry->answer_kind, .id = entry->answer_id};
    if (entry->answer_kind == SL_MESSAGE_JOINED) {
        message.clock = entry->answer;
    } else {
        message.table_id = entry->answer;
    }
    sl_server_send(entry->conn, &message);
}

static void drop_block(struct sl_replication_entry *entry)
{
    struct sl_server *server = entry->server;
    server->replica->block_count--;
    if (entry->is_snapshot && server->shard != NULL) {
        sl_shard_snapshot_put(server->shard, entry->block);
    } else {
        sl_snapshot_block_destroy(&entry->block);
    }
}

/* Frees an entry that was allocated separately. */
static void free_entry(struct sl_replication_entry *entry)
{
    struct sl_server *server = entry->server;
    if (entry->conn != NULL) {
        answer(entry);
    }
    if (entry->buffer != NULL) {
        sl_server_buffers_put(&server->memory.buffers, entry->buffer);
        sl_server_unblock(server);
    }
    if (entry->block != NULL) {
        drop_block(entry);
    }
    free(entry);
}

/* Ends an entry that nothing needs any more: answers its request or message. */
static void finish(struct sl_replication_entry *entry)
{
    struct sl_server *server = entry->server;
    struct sl_server_request *request = entry->request;
    server->replica->entry_count--;
    server->replica->entry_bytes -= entry->bytes;
    if (request == NULL) {
        free_entry(entry);
    } else if (request->conn != NULL) {
        sl_server_scheduler_answer(request);
    } else {
        sl_server_request_free(request);
    }
}

static void end(struct sl_replication_entry *entry)
{
    struct sl_replication *replica = entry->server->replica;
    replica->ended += entry->block == NULL;
    if (!entry->in_transport) {
        finish(entry);
        return;
    }
    entry->is_over = true;
    entry->next = replica->over;
    replica->over = entry;
}

/* Finishes an entry that ended before the transport released it. */
static void finish_over(struct sl_replication_entry *entry)
{
    struct sl_server *server = entry->server;
    struct sl_replication_entry **at = &server->replica->over;
    while (*at != entry) {
        at = &(*at)->next;
    }
    *at = entry->next;
    finish(entry);
    look_at_room(server);
}

static struct sl_replication_entry *take_first(struct sl_replication *replica)
{
    struct sl_replication_entry *entry = replica->first;
    replica->first = entry->next;
    if (replica->first == NULL) {
        replica->last = NULL;
    }
    if (replica->unsent == entry) {
        replica->unsent = entry->next;
    }
    return entry;
}

static bool is_last_block(const struct sl_replication_entry *entry)
{
    return entry->block != NULL && entry->block->kind == SL_SNAPSHOT_END;
}

static void replies_wait(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    sl_replication_set_link(replica, SL_REPLICATION_IN_SYNC);
    replica->answered = replica->appended;
}

/* Reports "in sync" when the backup has everything that was answered without it. */
static void look_at_step(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    if (replica->link != SL_REPLICATION_IN_SYNC || replica->is_in_sync || replica->has_given_up ||
        replica->ended < replica->answered) {
        return;
    }
    replica->is_in_sync = true;
    replica->catch_up_failures = 0;
    server->role.degraded_since_ns = 0;
    sl_log_info("shard %u: its backup on ps/%u is in sync (epoch %" PRIu64
                "); acknowledged while degraded so far: %" PRIu64 " writes",
                server->options.shard.index, replica->config.backup_task, replica->config.epoch,
                server->role.degraded_writes);
    sl_replication_report(server, true);
    sl_replication_open(server);
}

void sl_replication_log_begin(struct sl_server *server)
{
    server->replica->number = 0;
    replies_wait(server);
    look_at_step(server);
}

void sl_replication_log_acknowledged(struct sl_server *server, uint64_t number)
{
    struct sl_replication *replica = server->replica;
    while (replica->first != NULL && replica->first->number != 0 &&
           replica->first->number <= number) {
        if (is_last_block(replica->first)) {
            replies_wait(server);
        }
        end(take_first(replica));
    }
    look_at_room(server);
    look_at_step(server);
}

/* Sending */

static void body_sent(void *ctx)
{
    struct sl_replication_entry *entry = ctx;
    entry->in_transport = false;
    entry->server->replica->in_transport_count--;
    if (entry->is_over) {
        finish_over(entry);
    }
}

/* False: no credit or no room now. */
static bool send_entry(struct sl_replication *replica, struct sl_replication_entry *entry)
{
    const uint32_t body_bytes = entry->head.body_bytes;
    const uint32_t bytes = (uint32_t)sizeof entry->head + body_bytes;
    const uint32_t copied = body_bytes <= COPIED_BYTES_MAX ? body_bytes : 0;
    const uint64_t cost = sl_request_credit_bytes(bytes, 0);
    if (entry->in_transport || !sl_credit_spend(&replica->credit, cost)) {
        return false;
    }
    uint8_t *room = sl_outbox_reserve(&replica->outbox, (uint32_t)sizeof entry->head + copied);
    if (room == NULL) {
        sl_credit_grant(&replica->credit, cost, 1);
        return false;
    }
    memcpy(room + SL_FRAME_HEADER_BYTES, &entry->head, sizeof entry->head);
    if (copied > 0) {
        memcpy(room + SL_FRAME_HEADER_BYTES + sizeof entry->head, entry->body, copied);
    }
    entry->number = entry->number == 0 ? ++replica->number : entry->number;
    const struct sl_frame frame = {
        .payload_bytes = bytes,
        .type = SL_FRAME_REQUEST,
        .request_id = entry->number,
        .budget_us = UINT32_MAX,
    };
    const bool has_rest = copied < body_bytes;
    entry->in_transport = has_rest;
    replica->in_transport_count += has_rest;
    sl_outbox_commit(&replica->outbox, sl_session_conn(replica->session),
                     sl_session_queue(replica->session), &frame, has_rest ? entry->body : NULL,
                     has_rest ? body_bytes : 0, has_rest ? body_sent : NULL, entry);
    return true;
}

void sl_replication_log_pump(struct sl_replication *replica)
{
    if (replica->session == NULL || sl_session_conn(replica->session) == NULL) {
        return;
    }
    while (replica->unsent != NULL && send_entry(replica, replica->unsent)) {
        replica->unsent = replica->unsent->next;
    }
}

static void append(struct sl_server *server, struct sl_replication_entry *entry)
{
    struct sl_replication *replica = server->replica;
    const bool is_behind = replica->link == SL_REPLICATION_SNAPSHOT && entry->block == NULL;
    struct sl_replication_entry **first = is_behind ? &replica->behind_first : &replica->first;
    struct sl_replication_entry **last = is_behind ? &replica->behind_last : &replica->last;
    entry->server = server;
    entry->next = NULL;
    *(*last == NULL ? first : &(*last)->next) = entry;
    *last = entry;
    replica->unsent = replica->unsent == NULL && !is_behind ? entry : replica->unsent;
    replica->appended += entry->block == NULL;
    replica->entry_count++;
    replica->entry_bytes += entry->bytes;
    look_at_room(server);
    sl_replication_log_pump(replica);
    sl_replication_sender_listen(server);
}

/* End of the log */

/* Moves the entries logged during the snapshot behind it. */
static void join_lists(struct sl_replication *replica)
{
    if (replica->behind_first == NULL) {
        return;
    }
    *(replica->last == NULL ? &replica->first : &replica->last->next) = replica->behind_first;
    replica->last = replica->behind_last;
    replica->unsent = replica->unsent == NULL ? replica->behind_first : replica->unsent;
    replica->behind_first = replica->behind_last = NULL;
}

void sl_replication_log_follow_snapshot(struct sl_server *server)
{
    sl_replication_set_link(server->replica, SL_REPLICATION_FOLLOWS);
    join_lists(server->replica);
    sl_replication_log_pump(server->replica);
}

/* Returns true for a write that will be acknowledged without its waiting backup. */
static bool is_acknowledged_degraded(const struct sl_replication *replica,
                                     const struct sl_replication_entry *entry)
{
    return replica->link == SL_REPLICATION_IN_SYNC && entry->request != NULL &&
           entry->request->conn != NULL && entry->head.error == 0;
}

void sl_replication_log_abort(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    for (const struct sl_replication_entry *entry = replica->first; entry != NULL;
         entry = entry->next) {
        server->role.degraded_writes += is_acknowledged_degraded(replica, entry);
    }
    if (server->shard != NULL) {
        sl_replication_catch_up_end(server);
    }
    sl_replication_set_link(replica, SL_REPLICATION_NONE);
    replica->is_in_sync = false;
    join_lists(replica);
    while (replica->first != NULL) {
        replica->first->conn =
            sl_server_drains(server)
                ? NULL
                : replica->first->conn; /* the backup may not have it: no answer */
        end(take_first(replica));
    }
    look_at_room(server);
}

static bool is_awaited_in(const struct sl_replication_entry *entry)
{
    while (entry != NULL && entry->conn == NULL &&
           (entry->request == NULL || entry->request->conn == NULL)) {
        entry = entry->next;
    }
    return entry != NULL;
}

bool sl_replication_log_is_awaited(const struct sl_server *server)
{
    return is_awaited_in(server->replica->first) || is_awaited_in(server->replica->over);
}

static void forget_in(struct sl_replication_entry *entry, const struct sl_server_conn *conn)
{
    for (; entry != NULL; entry = entry->next) {
        entry->conn = entry->conn == conn ? NULL : entry->conn;
        if (entry->request != NULL && entry->request->conn == conn) {
            sl_server_scheduler_leave(entry->request);
        }
    }
}

void sl_replication_log_forget(struct sl_server_conn *conn)
{
    const struct sl_replication *replica = conn->server->replica;
    forget_in(replica->first, conn);
    forget_in(replica->over, conn);
}

/* Logged events */

static void name_client(struct sl_replication_entry_head *head,
                        const struct sl_server_session *session)
{
    head->role = (uint8_t)session->role;
    head->task_index = session->task_index;
    head->client_id = session->client_id;
}

/* Allocates an entry of `bytes` including its body; NULL: no memory, and no backup is in sync any
 * more. */
static struct sl_replication_entry *make(struct sl_server *server, size_t bytes)
{
    struct sl_replication_entry *entry = malloc(bytes);
    if (entry == NULL) {
        sl_replication_sender_give_up(server, "no memory for the log");
        return NULL;
    }
    *entry = (struct sl_replication_entry){.server = server, .bytes = bytes};
    return entry;
}

/* Clears the padding of values from shared memory, which the request did not check. */
static void clean(const struct sl_server *server, struct sl_server_request *request)
{
    if (request->work.out_of_line) {
        sl_shard_clean_padding(server->shard, &request->work, request->payload,
                               request->payload_bytes);
    }
}

static struct sl_replication_entry_head head_of(struct sl_server_request *request,
                                                uint32_t section_end, int err)
{
    struct sl_replication_entry_head head = {
        .kind = SL_REPLICATION_ENTRY_WRITE,
        .has_clock = request->work.caller.has_clock,
        .task_index = request->work.caller.worker,
        .request_id = request->id,
        .error = (uint32_t)-err,
    };
    if (request->session != NULL) {
        name_client(&head, request->session);
    }
    if (section_end > request->effect_first) {
        clean(request->server, request);
        head.first = request->effect_first;
        head.end = section_end;
        head.body_bytes = request->payload_bytes;
    }
    return head;
}

/* Turns the request into an entry: it leaves its list and session, and its client may wait for
 * it. */
static void take_request(struct sl_server_request *request, uint32_t section_end, int err)
{
    struct sl_server *server = request->server;
    struct sl_replication_entry *entry = (struct sl_replication_entry *)(void *)(request + 1);
    *entry = (struct sl_replication_entry){
        .request = request,
        .head = head_of(request, section_end, err),
        .body = request->payload,
    };
    entry->bytes = sl_server_buffers_size(&server->memory.buffers, request->payload);
    if (request->reply != NULL) {
        entry->bytes +=
            sl_server_buffers_size(sl_server_shm_owner(server, request->reply), request->reply);
    }
    request->session = NULL;
    sl_timer_disarm(timers_of(server), &request->deadline);
    append(server, entry);
}

/* The reply does not wait: keeps only the payload. */
static void take_payload(struct sl_server_request *request, uint32_t section_end)
{
    struct sl_server *server = request->server;
    struct sl_replication_entry *entry = make(server, sizeof *entry);
    if (entry != NULL) {
        entry->head = head_of(request, section_end, 0);
        entry->bytes += sl_server_buffers_size(&server->memory.buffers, request->payload);
        entry->body = entry->buffer = request->payload;
        request->payload = NULL;
        append(server, entry);
    }
}

bool sl_replication_log_done(struct sl_server_request *request)
{
    const bool waits = request->server->replica->link == SL_REPLICATION_IN_SYNC;
    const uint32_t section_end = request->work.replayed ? 0 : request->work.prefix.section_count;
    sl_assert(request->stage == SL_SERVER_REQUEST_DONE);
    if (waits) {
        sl_server_scheduler_remove(request);
        take_request(request, section_end, 0);
    } else if (!request->work.replayed) {
        request->server->role.degraded_writes++;
        take_payload(request, section_end);
    }
    return waits;
}

bool sl_replication_log_failed(struct sl_server_request *request, uint32_t section_end, int err)
{
    sl_assert(request->list == NULL);
    if (request->payload == NULL || request->server->role.switchover == SL_SERVER_SWITCHED_OVER) {
        return false;
    }
    if (request->conn != NULL) {
        sl_server_scheduler_leave(request);
    }
    request->stage = SL_SERVER_REQUEST_DONE;
    take_request(request, section_end, err);
    return true;
}

/* Logs an entry without a body. */
static void log_head(struct sl_server *server, const struct sl_replication_entry_head *head)
{
    struct sl_replication_entry *entry = make(server, sizeof *entry);
    if (entry != NULL) {
        entry->head = *head;
        append(server, entry);
    }
}

void sl_replication_log_refused(const struct sl_server_session *session, uint64_t request_id,
                                int err)
{
    struct sl_replication_entry_head head = {
        .kind = SL_REPLICATION_ENTRY_WRITE, .request_id = request_id, .error = (uint32_t)-err};
    name_client(&head, session);
    log_head(session->server, &head);
}

void sl_replication_log_client(const struct sl_server_session *session,
                               enum sl_server_client_event event)
{
    struct sl_replication_entry_head head = {.task_index = session->task_index};
    if (event == SL_SERVER_CLIENT_UNKNOWN) {
        head.kind = SL_REPLICATION_ENTRY_EXPIRED;
    } else {
        head.kind = event == SL_SERVER_CLIENT_CONFIRMED ? SL_REPLICATION_ENTRY_SESSION
                                                        : SL_REPLICATION_ENTRY_END;
        head.is_expired = event == SL_SERVER_CLIENT_EXPIRED;
        name_client(&head, session);
    }
    log_head(session->server, &head);
}

void sl_replication_log_answer(struct sl_server_conn *conn, const struct sl_message *message,
                               const struct sl_message *answer)
{
    struct sl_server *server = conn->server;
    const bool waits = server->replica->link == SL_REPLICATION_IN_SYNC;
    const size_t bytes = sl_message_encoded_bytes(message);
    if (!waits) {
        sl_server_send(conn, answer);
    }
    struct sl_replication_entry_head head = {
        .kind = message->kind == SL_MESSAGE_JOIN ? SL_REPLICATION_ENTRY_JOIN
                                                 : SL_REPLICATION_ENTRY_TABLE,
        .body_bytes = (uint32_t)sl_bytes_pad8(bytes),
        .message_bytes = (uint32_t)bytes,
    };
    name_client(&head, conn->session);
    struct sl_replication_entry *entry = make(server, sizeof *entry + head.body_bytes);
    if (entry == NULL && waits) {
        sl_server_send_error(conn, message->id, SL_ERR_NO_MEMORY, "no memory for the log");
    }
    if (entry == NULL) {
        return;
    }
    uint8_t *body = (uint8_t *)(entry + 1);
    entry->head = head;
    memset(body, 0, head.body_bytes);
    sl_message_encode(message, body);
    entry->body = body;
    entry->conn = waits ? conn : NULL;
    entry->answer_kind = answer->kind;
    entry->answer_id = answer->id;
    entry->answer = answer->kind == SL_MESSAGE_JOINED ? answer->clock : answer->table_id;
    append(server, entry);
}

bool sl_replication_log_block(struct sl_server *server, struct sl_snapshot_block *block,
                              bool is_snapshot)
{
    struct sl_replication_entry *entry = malloc(sizeof *entry);
    server->replica->block_count++;
    if (entry == NULL) {
        struct sl_replication_entry none = {
            .server = server, .block = block, .is_snapshot = is_snapshot};
        drop_block(&none);
        return false;
    }
    *entry = (struct sl_replication_entry){
        .block = block,
        .is_snapshot = is_snapshot,
        .body = block->payload,
        .head = {.kind = SL_REPLICATION_ENTRY_SNAPSHOT,
                 .role = block->kind,
                 .task_index = block->table_id,
                 .end = block->count,
                 .body_bytes = block->bytes},
    };
    append(server, entry);
    return true;
}
