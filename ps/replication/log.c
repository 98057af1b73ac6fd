#include "ps/replication/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/session/message_spec.h"
#include "ps/replication/state.h"
#include "ps/server/request.h"
#include "ps/server/shm.h"
#include "ps/shard/evict.h"
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

/* Entries */

static void update_room(struct sl_server *server)
{
    const struct sl_replication *replica = server->replica;
    const size_t bytes_max = server->host->memory.buffers.bytes / MEMORY_PART;
    const enum sl_server_log_room before = server->role.log_room;
    server->role.log_room =
        replica->log.entry_count >= MESSAGES_MAX ? SL_SERVER_LOG_OVERFULL
        : replica->log.bytes >= bytes_max || replica->log.entry_count >= ENTRIES_MAX
            ? SL_SERVER_LOG_FULL
            : SL_SERVER_LOG_HAS_ROOM;
    sl_replication_metrics_update(server);
    if (before != SL_SERVER_LOG_HAS_ROOM && server->role.log_room == SL_SERVER_LOG_HAS_ROOM) {
        sl_server_scheduler_wake(server);
    }
}

static void answer(struct sl_server_conn *conn, const struct sl_replication_answer *from)
{
    struct sl_message message = {.kind = from->kind, .id = from->id};
    if (from->kind == SL_MESSAGE_JOINED) {
        message.clock = from->value;
    } else {
        message.table_id = from->value;
        message.reject_nonfinite = from->reject_nonfinite;
        message.knows = SL_MESSAGE_SPEC_KNOWS;
    }
    sl_server_send(conn, &message);
}

static void finish_request(struct sl_server_request *request)
{
    if (request->channel != NULL) {
        sl_server_scheduler_answer(request);
    } else {
        sl_server_request_free(request);
    }
}

static void replication_log_put_block(struct sl_server *server, struct sl_snapshot_block *block)
{
    if (server->shard != NULL) {
        sl_shard_snapshot_put(server->shard, block);
    } else {
        sl_snapshot_block_destroy(&block);
    }
}

/* Frees what the entry owns, and answers the client that waits for it. */
static void replication_log_finish(struct sl_replication_entry *entry)
{
    struct sl_server *server = entry->server;
    sl_list_remove(&entry->link);
    server->replica->log.entry_count--;
    server->replica->log.bytes -= entry->bytes;
    switch (entry->owned) {
    case SL_REPLICATION_OWNS_REQUEST:
        finish_request(entry->request);
        return;
    case SL_REPLICATION_OWNS_BUFFER:
        sl_server_buffers_put(&server->host->memory.buffers, entry->buffer);
        sl_server_unblock(server);
        break;
    case SL_REPLICATION_OWNS_BLOCK:
        server->replica->catch_up.block_count--;
        replication_log_put_block(server, entry->block);
        break;
    case SL_REPLICATION_OWNS_ANSWER:
        if (entry->answer.channel != NULL) {
            answer(entry->answer.channel->conn, &entry->answer);
        }
        break;
    case SL_REPLICATION_OWNS_NOTHING:
        break;
    }
    free(entry);
}

/* Nothing needs the entry any more, but the transport may still read it. */
static void end(struct sl_replication_entry *entry)
{
    struct sl_replication_log *log = &entry->server->replica->log;
    log->ended += entry->owned != SL_REPLICATION_OWNS_BLOCK;
    if (entry->in_transport) {
        entry->is_over = true;
        sl_list_append(&log->over, &entry->link);
    } else {
        replication_log_finish(entry);
    }
}

static struct sl_replication_entry *entry_of(struct sl_list_link *link)
{
    return SL_CONTAINER_OF(link, struct sl_replication_entry, link);
}

/* NULL: the list is empty. */
static struct sl_replication_entry *replication_log_first_of(const struct sl_list *list)
{
    return sl_list_empty(list) ? NULL : entry_of(list->head.next);
}

static bool is_last_block(const struct sl_replication_entry *entry)
{
    return entry->owned == SL_REPLICATION_OWNS_BLOCK && entry->block->kind == SL_SNAPSHOT_END;
}

static void replies_wait(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    sl_replication_set_link(replica, SL_REPLICATION_IN_SYNC);
    replica->log.answered = replica->log.appended;
}

/* Reports "in sync" when the backup has everything that was answered without it. */
static void report_in_sync(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    if (replica->link != SL_REPLICATION_IN_SYNC || replica->is_in_sync || replica->has_given_up ||
        replica->log.ended < replica->log.answered) {
        return;
    }
    replica->is_in_sync = true;
    sl_backoff_reset(&replica->catch_up.late);
    server->role.backup.degraded_since_ns = 0;
    sl_replication_metrics_update(server);
    if (replica->config.needs_backup) {
        sl_log_info("shard %u: its backup on ps/%u is in sync (epoch %" PRIu64
                    "); acknowledged while degraded so far: %" PRIu64 " writes",
                    server->options.shard.index, replica->config.backup_task, replica->config.epoch,
                    server->role.backup.degraded_writes);
    }
    sl_replication_report(server, true);
    sl_replication_start_serving(server);
}

void sl_replication_log_begin(struct sl_server *server)
{
    server->replica->log.number = 0;
    replies_wait(server);
    report_in_sync(server);
}

static void acknowledge_in(struct sl_server *server, const struct sl_list *list, uint64_t number)
{
    struct sl_replication_entry *first;
    while ((first = replication_log_first_of(list)) != NULL && first->number != 0 &&
           first->number <= number) {
        if (is_last_block(first)) {
            replies_wait(server);
        }
        end(first);
    }
}

void sl_replication_log_acknowledged(struct sl_server *server, uint64_t number)
{
    acknowledge_in(server, &server->replica->log.sent, number);
    acknowledge_in(server, &server->replica->log.unsent, number);
    update_room(server);
    report_in_sync(server);
}

/* Sending */

static void body_sent(void *ctx)
{
    struct sl_replication_entry *entry = ctx;
    struct sl_server *server = entry->server;
    entry->in_transport = false;
    if (entry->is_over) {
        replication_log_finish(entry);
        update_room(server);
    }
}

/* False: no credit or no room now. */
static bool send_entry(struct sl_replication *replica, struct sl_replication_entry *entry)
{
    const uint32_t body_bytes = entry->head.body_bytes;
    const uint32_t bytes = (uint32_t)sizeof entry->head + body_bytes;
    const uint32_t copied = body_bytes <= COPIED_BYTES_MAX ? body_bytes : 0;
    const uint64_t cost = sl_request_credit_bytes(bytes, 0);
    if (entry->in_transport || !sl_credit_spend(&replica->sender.credit, cost)) {
        return false;
    }
    uint8_t *room =
        sl_outbox_reserve(&replica->sender.outbox, (uint32_t)sizeof entry->head + copied);
    if (room == NULL) {
        sl_credit_grant(&replica->sender.credit, cost, 1);
        return false;
    }
    memcpy(room + SL_FRAME_HEADER_BYTES, &entry->head, sizeof entry->head);
    if (copied > 0) {
        memcpy(room + SL_FRAME_HEADER_BYTES + sizeof entry->head, entry->body, copied);
    }
    entry->number = entry->number == 0 ? ++replica->log.number : entry->number;
    const struct sl_frame frame = {
        .payload_bytes = bytes,
        .type = SL_FRAME_REQUEST,
        .request_id = entry->number,
        .budget_us = UINT32_MAX,
    };
    const bool has_rest = copied < body_bytes;
    entry->in_transport = has_rest;
    sl_outbox_commit(&replica->sender.outbox, sl_session_conn(replica->sender.session),
                     sl_session_queue(replica->sender.session), &frame,
                     has_rest ? entry->body : NULL, has_rest ? body_bytes : 0,
                     has_rest ? body_sent : NULL, entry);
    return true;
}

void sl_replication_log_pump(struct sl_server *server)
{
    struct sl_replication_log *log = &server->replica->log;
    struct sl_replication_entry *entry;
    while (sl_replication_is_linked(server) &&
           (entry = replication_log_first_of(&log->unsent)) != NULL &&
           send_entry(server->replica, entry)) {
        sl_list_append(&log->sent, &entry->link);
    }
}

void sl_replication_log_resend(struct sl_server *server)
{
    struct sl_replication_log *log = &server->replica->log;
    sl_list_append_all(&log->sent, &log->unsent);
    sl_list_append_all(&log->unsent, &log->sent);
    sl_replication_log_pump(server);
}

static void replication_log_append(struct sl_server *server, struct sl_replication_entry *entry)
{
    struct sl_replication *replica = server->replica;
    struct sl_replication_log *log = &replica->log;
    const bool is_block = entry->owned == SL_REPLICATION_OWNS_BLOCK;
    const bool is_behind = replica->link == SL_REPLICATION_SNAPSHOT && !is_block;
    sl_list_append(is_behind ? &log->behind : &log->unsent, &entry->link);
    entry->server = server;
    log->appended += !is_block;
    log->entry_count++;
    log->bytes += entry->bytes;
    update_room(server);
    sl_replication_log_pump(server);
    sl_replication_expect_ack(server);
}

/* End of the log */

void sl_replication_log_follow_snapshot(struct sl_server *server)
{
    struct sl_replication_log *log = &server->replica->log;
    sl_replication_set_link(server->replica, SL_REPLICATION_FOLLOWS);
    sl_list_append_all(&log->unsent, &log->behind);
    sl_replication_log_pump(server);
}

/* Returns the connection that waits for the entry; NULL: none. */
static struct sl_server_channel *client_of(const struct sl_replication_entry *entry)
{
    return entry->owned == SL_REPLICATION_OWNS_REQUEST  ? entry->request->channel
           : entry->owned == SL_REPLICATION_OWNS_ANSWER ? entry->answer.channel
                                                        : NULL;
}

/* Returns true for a write that will be acknowledged without its waiting backup. */
static bool is_acknowledged_degraded(const struct sl_replication *replica,
                                     const struct sl_replication_entry *entry)
{
    return replica->link == SL_REPLICATION_IN_SYNC && entry->head.error == 0 &&
           entry->owned == SL_REPLICATION_OWNS_REQUEST && entry->request->channel != NULL;
}

void sl_replication_log_abort(struct sl_server *server)
{
    struct sl_replication *replica = server->replica;
    struct sl_list *entries = &replica->log.sent;
    sl_list_append_all(entries, &replica->log.unsent);
    sl_list_append_all(entries, &replica->log.behind);
    SL_LIST_FOREACH (link, entries) {
        server->role.backup.degraded_writes += is_acknowledged_degraded(replica, entry_of(link));
    }
    sl_replication_set_link(replica, SL_REPLICATION_NONE);
    replica->is_in_sync = false;
    struct sl_replication_entry *entry;
    while ((entry = replication_log_first_of(entries)) != NULL) {
        if (entry->owned == SL_REPLICATION_OWNS_ANSWER && sl_server_drains(server)) {
            entry->answer.channel = NULL; /* the backup may not have it: no answer */
        }
        end(entry);
    }
    update_room(server);
}

void sl_replication_log_init(struct sl_replication_log *log)
{
    sl_list_init(&log->sent);
    sl_list_init(&log->unsent);
    sl_list_init(&log->behind);
    sl_list_init(&log->over);
}

bool sl_replication_log_is_empty(const struct sl_replication_log *log)
{
    return sl_list_empty(&log->sent) && sl_list_empty(&log->unsent);
}

static bool is_awaited_in(const struct sl_list *list)
{
    SL_LIST_FOREACH (link, list) {
        if (client_of(entry_of(link)) != NULL) {
            return true;
        }
    }
    return false;
}

bool sl_replication_log_is_awaited(const struct sl_server *server)
{
    const struct sl_replication_log *log = &server->replica->log;
    return is_awaited_in(&log->sent) || is_awaited_in(&log->unsent) || is_awaited_in(&log->over);
}

static void forget_in(const struct sl_list *list, const struct sl_server_channel *channel)
{
    SL_LIST_FOREACH (link, list) {
        struct sl_replication_entry *entry = entry_of(link);
        if (client_of(entry) != channel) {
            continue;
        }
        if (entry->owned == SL_REPLICATION_OWNS_REQUEST) {
            sl_server_scheduler_leave(entry->request);
        } else {
            entry->answer.channel = NULL;
        }
    }
}

void sl_replication_log_forget(struct sl_server_channel *channel)
{
    const struct sl_replication_log *log = &channel->server->replica->log;
    forget_in(&log->sent, channel);
    forget_in(&log->unsent, channel);
    forget_in(&log->over, channel);
}

/* Logged events */

static void name_client(struct sl_replication_entry_head *head,
                        const struct sl_server_session *session)
{
    head->role = (uint8_t)session->role;
    head->task_index = session->task_index;
    head->client_id = session->client_id;
}

/* Allocates an entry of `bytes` including its body. NULL: no memory; the sender has given up on the
 * backup. */
static struct sl_replication_entry *replication_log_make(struct sl_server *server, size_t bytes)
{
    struct sl_replication_entry *entry = malloc(bytes);
    if (entry == NULL) {
        sl_replication_give_up(server, "no memory for the log");
        return NULL;
    }
    *entry = (struct sl_replication_entry){.server = server, .bytes = bytes};
    return entry;
}

/* Clears the padding of values from shared memory, which the request did not check. */
static void clean(const struct sl_server *server, struct sl_server_request *request)
{
    if (sl_flags_has(request->work.flags, SL_SHARD_OUT_OF_LINE)) {
        sl_shard_clean_padding(server->shard, &request->work, request->payload,
                               request->payload_bytes);
    }
}

static struct sl_replication_entry_head replication_log_head_of(struct sl_server_request *request,
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
        head.body_first = request->logged_sections;
        head.body_bytes = request->payload_bytes - request->logged_bytes;
    }
    return head;
}

/* Returns the sections that are not in the log, as a request of their own. */
static const uint8_t *rest_of(const struct sl_server_request *request)
{
    return memmove(request->payload + request->logged_bytes, request->payload,
                   sizeof(struct sl_request_prefix));
}

/* Turns the request into an entry: it leaves its list and session, and its client may wait for
 * it. */
static void replication_log_take_request(struct sl_server_request *request, uint32_t section_end,
                                         int err)
{
    struct sl_server *server = request->server;
    struct sl_replication_entry *entry = (struct sl_replication_entry *)(void *)(request + 1);
    *entry = (struct sl_replication_entry){
        .owned = SL_REPLICATION_OWNS_REQUEST,
        .request = request,
        .head = replication_log_head_of(request, section_end, err),
        .body = rest_of(request),
    };
    entry->bytes = sl_server_buffers_size(&server->host->memory.buffers, request->payload);
    if (request->reply != NULL) {
        entry->bytes += sl_server_buffers_size(sl_server_shm_owner(server->host, request->reply),
                                               request->reply);
    }
    request->session = NULL;
    sl_timer_disarm(sl_server_timers(server), &request->deadline);
    replication_log_append(server, entry);
}

/* The reply does not wait: keeps only the payload. */
static void take_payload(struct sl_server_request *request, uint32_t section_end)
{
    struct sl_server *server = request->server;
    struct sl_replication_entry *entry = replication_log_make(server, sizeof *entry);
    if (entry != NULL) {
        entry->head = replication_log_head_of(request, section_end, 0);
        entry->bytes += sl_server_buffers_size(&server->host->memory.buffers, request->payload);
        entry->owned = SL_REPLICATION_OWNS_BUFFER;
        entry->body = rest_of(request);
        entry->buffer = request->payload;
        request->payload = NULL;
        replication_log_append(server, entry);
    }
}

/* A later request may undo what these sections did, so the backup must execute them before it. */
void sl_replication_log_part(struct sl_server_request *request)
{
    struct sl_server *server = request->server;
    const struct sl_shard_request *work = &request->work;
    const uint32_t end = request->payload_bytes - work->effect_left;
    struct sl_replication_entry_head head = replication_log_head_of(request, work->effect_end, 0);
    head.kind = SL_REPLICATION_ENTRY_PART;
    head.body_bytes = end - request->logged_bytes;
    struct sl_replication_entry *entry =
        replication_log_make(server, sizeof *entry + head.body_bytes);
    if (entry == NULL) {
        return;
    }
    struct sl_request_prefix prefix;
    memcpy(&prefix, request->payload, sizeof prefix);
    prefix.section_count = work->effect_end - request->logged_sections;
    uint8_t *body = (uint8_t *)(entry + 1);
    memcpy(body, request->payload + request->logged_bytes, head.body_bytes);
    memcpy(body, &prefix, sizeof prefix);
    entry->head = head;
    entry->body = body;
    prefix.section_count = work->prefix.section_count - work->effect_end;
    prefix.clock = work->prefix.clock;
    memcpy(request->payload, &prefix, sizeof prefix);
    request->logged_bytes = end - (uint32_t)sizeof prefix;
    request->logged_sections = request->effect_first = work->effect_end;
    request->session->sent_id = request->id;
    request->session->sent_sections = work->effect_end;
    replication_log_append(server, entry);
}

bool sl_replication_log_done(struct sl_server_request *request)
{
    const bool waits = request->server->replica->link == SL_REPLICATION_IN_SYNC;
    const uint32_t section_end = request->work.effect_end;
    sl_assert(request->stage == SL_SERVER_REQUEST_DONE);
    if (waits) {
        sl_server_scheduler_remove(request);
        replication_log_take_request(request, section_end, 0);
    } else if (!sl_shard_skips_writes(&request->work)) {
        request->server->role.backup.degraded_writes++;
        take_payload(request, section_end);
    }
    return waits;
}

bool sl_replication_log_ended(struct sl_server_request *request, uint32_t section_end, int err)
{
    sl_assert(request->list == NULL);
    if (request->payload == NULL || request->server->role.switchover == SL_SERVER_SWITCHED_OVER) {
        return false;
    }
    if (request->channel != NULL) {
        sl_server_scheduler_leave(request);
    }
    request->stage = SL_SERVER_REQUEST_DONE;
    replication_log_take_request(request, section_end, err);
    return true;
}

/* Logs an entry without a body. */
static void log_head(struct sl_server *server, const struct sl_replication_entry_head *head)
{
    struct sl_replication_entry *entry = replication_log_make(server, sizeof *entry);
    if (entry != NULL) {
        entry->head = *head;
        replication_log_append(server, entry);
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

void sl_replication_log_evicted(struct sl_server *server, const struct sl_shard_evicted *rows)
{
    struct {
        struct sl_request_prefix prefix;
        struct sl_request_section section;
    } start = {.prefix.section_count = 1,
               .section = {.op = SL_REQUEST_ERASE,
                           .table_id = (uint16_t)rows->table_id,
                           .key_count = rows->count}};
    const size_t key_bytes = rows->count * sizeof rows->keys[0];
    const size_t body_bytes = sizeof start + key_bytes;
    struct sl_replication_entry *entry = replication_log_make(server, sizeof *entry + body_bytes);
    if (entry == NULL) {
        return;
    }
    uint8_t *body = (uint8_t *)(entry + 1);
    memcpy(body, &start, sizeof start);
    memcpy(body + sizeof start, rows->keys, key_bytes);
    entry->body = body;
    entry->head = (struct sl_replication_entry_head){
        .kind = SL_REPLICATION_ENTRY_WRITE, .end = 1, .body_bytes = (uint32_t)body_bytes};
    replication_log_append(server, entry);
}

void sl_replication_log_dropped(struct sl_server *server, uint32_t table_id)
{
    const struct sl_replication_entry_head head = {.kind = SL_REPLICATION_ENTRY_DROP,
                                                   .table_id = table_id};
    log_head(server, &head);
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

void sl_replication_log_answer(struct sl_server_channel *channel, const struct sl_message *message,
                               const struct sl_message *reply)
{
    struct sl_server *server = channel->server;
    const bool waits = server->replica->link == SL_REPLICATION_IN_SYNC;
    const size_t bytes = sl_message_encoded_bytes(message);
    if (!waits) {
        sl_server_send(channel->conn, reply);
    }
    struct sl_replication_entry_head head = {
        .kind = message->kind == SL_MESSAGE_JOIN ? SL_REPLICATION_ENTRY_JOIN
                                                 : SL_REPLICATION_ENTRY_TABLE,
        .body_bytes = (uint32_t)sl_bytes_pad8(bytes),
        .message_bytes = (uint32_t)bytes,
    };
    name_client(&head, channel->session);
    struct sl_replication_entry *entry =
        replication_log_make(server, sizeof *entry + head.body_bytes);
    if (entry == NULL && waits) {
        sl_server_send_error(channel->conn, message->id, SL_ERR_NO_MEMORY, "no memory for the log");
    }
    if (entry == NULL) {
        return;
    }
    uint8_t *body = (uint8_t *)(entry + 1);
    entry->head = head;
    memset(body, 0, head.body_bytes);
    sl_message_encode(message, body);
    entry->body = body;
    entry->owned = SL_REPLICATION_OWNS_ANSWER;
    entry->answer = (struct sl_replication_answer){
        .channel = waits ? channel : NULL,
        .kind = reply->kind,
        .id = reply->id,
        .value = reply->kind == SL_MESSAGE_JOINED ? reply->clock : reply->table_id,
        .reject_nonfinite = reply->kind == SL_MESSAGE_TABLE_OPENED && reply->reject_nonfinite,
    };
    replication_log_append(server, entry);
}

bool sl_replication_log_block(struct sl_server *server, struct sl_snapshot_block *block)
{
    struct sl_replication_entry *entry = malloc(sizeof *entry);
    if (entry == NULL) {
        replication_log_put_block(server, block);
        return false;
    }
    *entry = (struct sl_replication_entry){
        .owned = SL_REPLICATION_OWNS_BLOCK,
        .block = block,
        .body = block->payload,
        .head = {.kind = SL_REPLICATION_ENTRY_SNAPSHOT,
                 .block_kind = block->kind,
                 .table_id = block->table_id,
                 .record_count = block->count,
                 .body_bytes = block->bytes},
    };
    server->replica->catch_up.block_count++;
    replication_log_append(server, entry);
    return true;
}
