#include "ps/replication/receiver.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/format.h"
#include "core/log.h"
#include "core/reason.h"
#include "ps/replication/state.h"
#include "ps/server/handshake.h"
#include "ps/server/request.h"
#include "ps/shard/table_drop.h"

/* Limits of entries that the primary sends ahead. A small entry takes a smallest block, a long one
 * up to twice its size. The longest entry must fit. */
#define AHEAD_ENTRIES     2048
#define AHEAD_PART        4
#define AHEAD_BYTES_LEAST (2 * (size_t)SL_LIMIT_FRAME_PAYLOAD_BYTES)

static struct sl_replication_entry_head receiver_head_of(const struct sl_server_request *request)
{
    struct sl_replication_entry_head head;
    memcpy(&head, request->payload, sizeof head);
    return head;
}

static const uint8_t *receiver_body_of(const struct sl_server_request *request)
{
    return request->payload + sizeof(struct sl_replication_entry_head);
}

void sl_replication_receiver_forget(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    /* Nothing was executed: keep the empty shard, because creating one takes milliseconds. */
    const bool is_empty = replica->backup.position == 0 && !replica->backup.is_loading &&
                          replica->backup.progress == SL_REPLICATION_PROGRESS_WAITS &&
                          !replica->backup.is_broken;
    sl_replication_receiver_drop(server);
    sl_replication_expirations_forget(replica);
    if (replica->backup.feed != NULL) {
        sl_server_conn_drop(replica->backup.feed, SL_ERR_CLOSED, "the shard has another epoch");
    }
    sl_server_sessions_forget(server);
    if (!is_empty && server->shard != NULL) {
        sl_shard_destroy(&server->shard);
    }
    if (server->shard == NULL) {
        server->options.shard.copy = sl_server_next_copy(server);
        replica->backup.is_broken = sl_shard_create(&server->options.shard, &server->shard) != 0;
    }
    if (server->shard == NULL) {
        sl_log_error("shard %u: no memory for the backup; retrying in the next epoch",
                     server->options.shard.index);
    }
    replica->backup.position = replica->backup.acked = replica->backup.received = 0;
    replica->backup.is_loading = false;
    server->role.state = 0;
}

void sl_replication_receiver_admit(struct sl_server_conn *conn)
{
    struct sl_server *server = conn->server;
    struct sl_replication_backup *backup = &server->replica->backup;
    if (sl_replication_receiver_waits(server)) {
        sl_server_handshake_refuse(conn, SL_ERR_AGAIN, "the backup executes earlier entries");
        return;
    }
    if (backup->feed != NULL) {
        sl_server_conn_drop(backup->feed, SL_ERR_CLOSED, "its primary reconnected");
    }
    const bool resumed = server->role.state == conn->greeting.hello.state && !backup->is_loading;
    if (!resumed) {
        sl_replication_receiver_forget(server);
    }
    if (server->shard == NULL) {
        sl_server_handshake_refuse(conn, SL_ERR_AGAIN, "the backup has no memory");
        return;
    }
    server->role.state = conn->greeting.hello.state;
    backup->feed = conn;
    backup->received = backup->acked = backup->position;
    backup->credit_bytes = backup->credit_requests = 0; /* from an earlier connection */
    conn->kind = SL_SERVER_CONN_PRIMARY;
    const size_t ahead = server->host->memory.buffers.bytes / AHEAD_PART;
    conn->credit = (struct sl_credit){
        .bytes = ahead < AHEAD_BYTES_LEAST ? AHEAD_BYTES_LEAST : ahead,
        .requests = AHEAD_ENTRIES,
    };
    conn->conn->is_welcome = true;
    struct sl_message message = sl_greeting_welcome(&conn->greeting);
    message.welcome.incarnation = server->role.state;
    message.welcome.resumed = resumed;
    message.welcome.position = backup->position;
    message.welcome.credit_bytes = conn->credit.bytes;
    message.welcome.credit_requests = conn->credit.requests;
    message.welcome.shard = server->options.shard.index;
    message.welcome.shard_count = server->options.shard.count;
    sl_server_send(conn, &message);
}

void sl_replication_receiver_closed(struct sl_server *server)
{
    server->replica->backup.feed = NULL;
    server->replica->backup.credit_bytes = 0;
    server->replica->backup.credit_requests = 0;
}

bool sl_replication_receiver_waits(const struct sl_server *server)
{
    return !sl_list_empty(&server->replica->backup.entries);
}

static void put_first(struct sl_server *server)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    struct sl_server_request *request = sl_server_request_first(&backup->entries);
    backup->progress = SL_REPLICATION_PROGRESS_WAITS;
    sl_server_request_unlist(request);
    server->role.has_entries = !sl_list_empty(&backup->entries);
    sl_server_request_free(request);
}

void sl_replication_receiver_drop(struct sl_server *server)
{
    while (sl_replication_receiver_waits(server)) {
        put_first(server);
    }
}

/* Receiving */

/* Returns the payload in memory that the request owns; NULL: no memory. */
static uint8_t *take_payload(struct sl_server_conn *conn,
                             const struct sl_transport_message *message)
{
    struct sl_server_buffers *buffers = &conn->server->host->memory.buffers;
    const uint32_t bytes = message->header.payload_bytes;
    if (message->payload == conn->sink.buffer) {
        conn->sink.buffer = NULL;
        return (uint8_t *)(uintptr_t)message->payload;
    }
    uint8_t *payload = sl_server_buffers_get(buffers, bytes, buffers->bytes);
    if (payload != NULL) {
        memcpy(payload, message->payload, bytes);
    }
    return payload;
}

void sl_replication_receiver_arrive(struct sl_server_conn *conn,
                                    const struct sl_transport_message *message)
{
    struct sl_server *server = conn->server;
    struct sl_replication_backup *backup = &server->replica->backup;
    const struct sl_frame *header = &message->header;
    const uint64_t cost = sl_request_credit_bytes(header->payload_bytes, 0);
    const bool fits = header->payload_bytes >= sizeof(struct sl_replication_entry_head) &&
                      header->request_id == backup->received + 1 &&
                      sl_credit_spend(&conn->credit, cost);
    struct sl_server_request *request = fits ? sl_pool_get(&server->host->memory.requests) : NULL;
    uint8_t *payload = request == NULL ? NULL : take_payload(conn, message);
    sl_server_conn_release(conn, message);
    if (payload == NULL) {
        if (request != NULL) {
            sl_pool_put(&server->host->memory.requests, request);
        }
        sl_server_conn_drop(conn, fits ? SL_ERR_NO_MEMORY : SL_ERR_PROTOCOL,
                            "entry %" PRIu64 " of %u bytes, behind %" PRIu64, header->request_id,
                            header->payload_bytes, backup->received);
        return;
    }
    *request = (struct sl_server_request){
        .server = server,
        .id = header->request_id,
        .credit_bytes = cost,
        .payload = payload,
        .payload_bytes = header->payload_bytes,
    };
    backup->received = header->request_id;
    sl_server_request_append(&backup->entries, request);
    server->role.has_entries = true;
}

/* Executing */

void sl_replication_receiver_acknowledge(struct sl_server *server)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    struct sl_server_conn *conn = backup->feed;
    if (conn == NULL || backup->acked == backup->position || conn->conn->state != SL_CONN_OPEN ||
        sl_outbox_reserve(conn->outbox, 0) == NULL) {
        return;
    }
    const struct sl_frame header = {
        .type = SL_FRAME_REPLY,
        .request_id = backup->position,
        .credit_bytes = (uint32_t)backup->credit_bytes,
        .credit_requests = (uint16_t)backup->credit_requests,
        .flags = conn->greeting.hello.checksum ? SL_FRAME_CHECKSUM : 0,
    };
    sl_credit_grant(&conn->credit, backup->credit_bytes, backup->credit_requests);
    backup->credit_bytes = backup->credit_requests = 0;
    backup->acked = backup->position;
    sl_outbox_commit(conn->outbox, conn->conn, &conn->out, &header, NULL, 0, NULL, NULL);
}

/* Reports the divergence and stops being a backup. Returns false. */
static bool receiver_fail(struct sl_server *server, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static bool receiver_fail(struct sl_server *server, const char *format, ...)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    char what[SL_MESSAGE_TEXT_BYTES / 2];
    SL_FORMAT(what, format);
    char text[SL_MESSAGE_TEXT_BYTES];
    (void)snprintf(text, sizeof text, "the backup is not in sync at entry %" PRIu64 ": %s",
                   backup->position + 1, what);
    sl_log_error("shard %u: %s", server->options.shard.index, text);
    backup->is_broken = true;
    sl_replication_receiver_acknowledge(server);
    sl_replication_receiver_drop(server);
    if (backup->feed != NULL) {
        sl_server_send_error(backup->feed, 0, SL_ERR_INVALID, text);
        sl_server_conn_drop(backup->feed, SL_ERR_INVALID, "%s", text);
    }
    return false;
}

static bool is_client(const struct sl_replication_entry_head *head)
{
    return (head->role == SL_MESSAGE_ROLE_WORKER && head->task_index < SL_LIMIT_WORKERS) ||
           (head->role == SL_MESSAGE_ROLE_CLIENT && head->task_index == 0) ||
           (head->role == SL_MESSAGE_ROLE_PS && head->task_index < SL_LIMIT_PS);
}

/* NULL: diverged. */
static struct sl_server_session *session_of(struct sl_server *server,
                                            const struct sl_replication_entry_head *head)
{
    struct sl_reason reason = {.text = "an entry of no client"};
    struct sl_server_session *session =
        is_client(head)
            ? sl_server_session_follow(server, head->client_id, (enum sl_message_role)head->role,
                                       head->task_index, &reason)
            : NULL;
    if (session == NULL) {
        (void)receiver_fail(server, "%.200s", reason.text);
    }
    return session;
}

/* Records a completed or failed write in its session. */
static bool end_write(struct sl_server *server, const struct sl_replication_entry_head *head)
{
    if (head->error > (uint32_t)-SL_ERR_CANCELLED) { /* the last error code */
        return receiver_fail(server, "it has failed with %u, which is no error", head->error);
    }
    if (head->role == 0) {
        return true;
    }
    struct sl_server_session *session = session_of(server, head);
    if (session == NULL) {
        return false;
    }
    sl_server_session_arrived(session, head->request_id);
    if (head->error != 0) {
        sl_server_session_failed(session, head->request_id, -(int)head->error);
    } else {
        sl_server_session_wrote(session, head->request_id);
    }
    return true;
}

/* Records the sections that a write has applied so far: a client that retries it skips them. */
static bool continue_write(struct sl_server *server, const struct sl_replication_entry_head *head)
{
    struct sl_server_session *session = session_of(server, head);
    if (session == NULL) {
        return false;
    }
    sl_server_session_arrived(session, head->request_id);
    session->begun_id = head->request_id;
    session->begun_sections = head->end;
    return true;
}

/* Returns the first section to apply. The snapshot that this backup started from, or an entry
 * since, may contain earlier ones. */
static uint32_t written_before(const struct sl_server *server,
                               const struct sl_replication_entry_head *head)
{
    const struct sl_server_session *session =
        head->role == 0 ? NULL : sl_server_session_find(server, head->client_id);
    const bool is_partial = session != NULL && session->begun_id == head->request_id;
    return is_partial && session->begun_sections > head->first ? session->begun_sections
                                                               : head->first;
}

static bool begin_write(struct sl_server *server, struct sl_server_request *request,
                        const struct sl_replication_entry_head *head)
{
    const struct sl_shard_client caller = {.has_clock = head->has_clock != 0,
                                           .worker = head->task_index};
    struct sl_reason reason;
    if (head->body_bytes == 0) {
        return true;
    }
    if (caller.has_clock && caller.worker >= SL_LIMIT_WORKERS) {
        return receiver_fail(server, "an entry of worker/%u", caller.worker);
    }
    int err = sl_shard_begin(server->shard, &caller, receiver_body_of(request), head->body_bytes,
                             &request->work, &reason);
    if (err != 0 || head->body_first > head->first || head->first > head->end ||
        head->end - head->body_first > request->work.sections_left) {
        return receiver_fail(server, "%.200s", err != 0 ? reason.text : "it has fewer sections");
    }
    sl_shard_skip_writes_before(&request->work, written_before(server, head) - head->body_first);
    sl_shard_apply_only(&request->work, head->end - head->body_first);
    server->replica->backup.progress = SL_REPLICATION_PROGRESS_RUNS;
    return true;
}

static bool open_table(struct sl_server *server, const struct sl_message *message)
{
    struct sl_reason reason;
    const struct sl_message_table_open *open = &message->table_open;
    const int err = sl_shard_table_open(server->shard, open->table_id, &open->spec, &reason);
    return err == 0 || receiver_fail(server, "%.200s", reason.text);
}

static bool join(struct sl_server *server, const struct sl_replication_entry_head *head,
                 const struct sl_message *message)
{
    const uint32_t clock = sl_shard_worker_join(server->shard, head->task_index, message->clock);
    return clock == message->clock || receiver_fail(server, "worker/%u may join at %u, not at %u",
                                                    head->task_index, clock, message->clock);
}

static bool execute_message(struct sl_server *server, const struct sl_server_request *request,
                            const struct sl_replication_entry_head *head)
{
    const bool is_table = head->kind == SL_REPLICATION_ENTRY_TABLE;
    struct sl_message message;
    if (head->message_bytes > head->body_bytes ||
        sl_message_decode(receiver_body_of(request), head->message_bytes, &message) != 0) {
        return receiver_fail(server, "its message is not valid");
    }
    bool done;
    if (message.kind != (is_table ? SL_MESSAGE_TABLE_OPEN : SL_MESSAGE_JOIN) ||
        (!is_table && (head->role != SL_MESSAGE_ROLE_WORKER || !is_client(head)))) {
        done = receiver_fail(server, "it has a message of kind %d", (int)message.kind);
    } else {
        done = is_table ? open_table(server, &message) : join(server, head, &message);
    }
    sl_message_fini(&message);
    return done;
}

static bool confirm_session(struct sl_server *server, const struct sl_replication_entry_head *head)
{
    struct sl_server_session *session = session_of(server, head);
    if (session == NULL) {
        return false;
    }
    sl_server_session_confirm(session);
    if (session->role == SL_MESSAGE_ROLE_WORKER) {
        sl_shard_worker_seen(server->shard, session->task_index);
    }
    return true;
}

/* Starts a snapshot block. The first block starts the load. */
static bool begin_block(struct sl_server *server, const struct sl_server_request *request,
                        const struct sl_replication_entry_head *head)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    struct sl_reason reason = {.text = "a snapshot of what is there already"};
    const bool is_first = request->id == 1;
    if (is_first != !backup->is_loading) {
        return receiver_fail(server, "%.200s", reason.text);
    }
    backup->block = (struct sl_snapshot_block){
        .kind = head->block_kind,
        .table_id = head->table_id,
        .count = head->record_count,
        .bytes = head->body_bytes,
        .capacity = head->body_bytes,
        .payload = (uint8_t *)(uintptr_t)receiver_body_of(request),
    };
    backup->session_load = (struct sl_server_session_load){.is_exact = true};
    backup->progress = SL_REPLICATION_PROGRESS_LOADS;
    int err = 0;
    if (is_first) {
        backup->is_loading = true;
        err = sl_shard_load_begin(&backup->load, server->shard, server->options.shard.index,
                                  server->options.shard.count, &reason);
    }
    err = err == 0 ? sl_snapshot_block_check(&backup->block, &reason) : err;
    return err == 0 || receiver_fail(server, "%.200s", reason.text);
}

/* Continues loading a block; like sl_shard_run. */
static int load_block(struct sl_server *server, uint32_t keys, uint32_t *spent,
                      struct sl_reason *reason)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    const struct sl_snapshot_block *block = &backup->block;
    if (block->kind == SL_SNAPSHOT_SESSIONS) {
        const int loaded =
            sl_server_session_load(server, block, &backup->session_load, keys, reason);
        *spent = backup->session_load.spent;
        return loaded;
    }
    int result = sl_shard_load_block(&backup->load, block, keys, reason);
    *spent = backup->load.spent;
    if (result == SL_SHARD_DONE && block->kind == SL_SNAPSHOT_END) {
        result = sl_shard_load_end(&backup->load, reason);
        backup->is_loading = false;
    }
    return result;
}

/* Starts an entry. False: diverged. */
static bool begin(struct sl_server *server, struct sl_server_request *request)
{
    const struct sl_replication_entry_head head = receiver_head_of(request);
    if (head.body_bytes != request->payload_bytes - sizeof head) {
        return receiver_fail(server, "it has %u bytes, not %u", request->payload_bytes,
                             head.body_bytes);
    }
    if (head.kind == SL_REPLICATION_ENTRY_SNAPSHOT) {
        return begin_block(server, request, &head);
    }
    if (server->replica->backup.is_loading) {
        return receiver_fail(server, "it comes before the snapshot is complete");
    }
    switch (head.kind) {
    case SL_REPLICATION_ENTRY_WRITE:
    case SL_REPLICATION_ENTRY_PART:
        return begin_write(server, request, &head);
    case SL_REPLICATION_ENTRY_SESSION:
        return confirm_session(server, &head);
    case SL_REPLICATION_ENTRY_TABLE:
    case SL_REPLICATION_ENTRY_JOIN:
        return execute_message(server, request, &head);
    case SL_REPLICATION_ENTRY_END:
        if (is_client(&head)) {
            sl_server_session_unfollow(server, head.client_id, (enum sl_message_role)head.role,
                                       head.task_index, head.is_expired != 0);
            return true;
        }
        break;
    case SL_REPLICATION_ENTRY_EXPIRED:
        if (head.task_index < SL_LIMIT_WORKERS) {
            sl_shard_worker_expired(server->shard, head.task_index);
            return true;
        }
        break;
    case SL_REPLICATION_ENTRY_DROP:
        (void)sl_shard_table_drop(server->shard, head.table_id);
        return true;
    default:
        break;
    }
    return receiver_fail(server, "it is of kind %u", head.kind);
}

/* The first entry was executed. False: diverged. */
static bool finish(struct sl_server *server, const struct sl_server_request *request)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    const struct sl_replication_entry_head head = receiver_head_of(request);
    if ((head.kind == SL_REPLICATION_ENTRY_WRITE && !end_write(server, &head)) ||
        (head.kind == SL_REPLICATION_ENTRY_PART && !continue_write(server, &head))) {
        return false;
    }
    backup->position = request->id;
    backup->credit_bytes += request->credit_bytes;
    backup->credit_requests++;
    sl_cell_add(&server->cells.used->entries, 1);
    put_first(server);
    return true;
}

/* Runs one slice of the first entry. *spent: its cost. False: stop for now. */
static bool step(struct sl_server *server, uint32_t keys, uint32_t *spent)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    struct sl_server_request *request = sl_server_request_first(&backup->entries);
    *spent = 1;
    if (backup->progress == SL_REPLICATION_PROGRESS_WAITS) {
        backup->progress = SL_REPLICATION_PROGRESS_EXECUTED; /* unless `begin` starts slices */
        if (!begin(server, request)) {
            return false;
        }
    }
    if (backup->progress != SL_REPLICATION_PROGRESS_EXECUTED) {
        struct sl_reason reason;
        const int result =
            backup->progress == SL_REPLICATION_PROGRESS_RUNS
                ? sl_shard_run(server->shard, &request->work, NULL, keys, spent, &reason)
                : load_block(server, keys, spent, &reason);
        if (result < 0) {
            return receiver_fail(server, "%.200s", reason.text);
        }
        if (result != SL_SHARD_DONE) {
            return result == SL_SHARD_AGAIN && sl_shard_iteration_due(server->shard);
        }
        backup->progress = SL_REPLICATION_PROGRESS_EXECUTED;
    }
    return finish(server, request);
}

uint32_t sl_replication_receiver_run(struct sl_server *server, uint32_t keys)
{
    struct sl_replication_backup *backup = &server->replica->backup;
    uint32_t left = keys;
    bool goes_on = true;
    while (goes_on && left > 0 && !sl_list_empty(&backup->entries)) {
        uint32_t spent = 0;
        if (!backup->is_loading && sl_shard_iteration_due(server->shard)) {
            spent = sl_shard_apply_iteration(server->shard, left);
        } else {
            goes_on = step(server, left, &spent);
        }
        spent += spent == 0; /* an entry without keys is work too */
        left -= spent < left ? spent : left;
    }
    sl_replication_receiver_acknowledge(server);
    return keys - left;
}
