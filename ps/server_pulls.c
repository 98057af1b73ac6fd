/* Small pulls. One by itself costs less than what it waits for: a line of the table's index, and
 * then a record, that are in no cache. So those that arrive in a turn are collected, and their keys
 * looked up together. Nothing else happens on a connection while pulls of it are here, and nothing
 * that moves clocks; so each is answered as it would have been at once. */
#include <string.h>

#include "core/assert.h"
#include "ps/server_internal.h"

static uint64_t credit_of(const struct sl_server_pull *pull)
{
    return sl_request_credit_bytes(pull->message.header.payload_bytes, pull->reply_bytes);
}

static bool has_room(const struct sl_server_pulls *pulls, uint32_t key_count)
{
    return pulls->count < SL_SERVER_PULLS && pulls->key_count + key_count <= SL_SHARD_PULLS_KEYS;
}

static void append(struct sl_server_conn *conn, const struct sl_transport_message *message,
                   const struct sl_shard_pull *pull)
{
    struct sl_server_pulls *pulls = &conn->server->pulls;
    if (!has_room(pulls, pull->key_count)) {
        sl_server_pulls_answer(conn->server);
    }
    memcpy(pulls->keys + pulls->key_count, pull->keys, pull->key_count * sizeof *pull->keys);
    pulls->pulls[pulls->count++] = (struct sl_server_pull){
        .conn = conn,
        .message = *message,
        .reply_bytes = pull->reply_bytes,
        .key_count = (uint16_t)pull->key_count,
        .table_id = pull->table_id,
    };
    pulls->key_count += pull->key_count;
    pulls->cost += pull->cost;
    conn->has_pulls = true;
}

bool sl_server_pulls_take(struct sl_server_conn *conn, const struct sl_transport_message *message)
{
    struct sl_server *server = conn->server;
    struct sl_shard_caller caller = sl_server_request_caller(conn);
    struct sl_shard_pull pull;
    uint32_t bytes = message->header.payload_bytes;
    if (message->token == NULL || server->draining || !sl_server_queue_is_free(conn) ||
        !sl_shard_pull_begin(server->shard, &caller, message->payload, bytes, &pull) ||
        server->pulls.cost + pull.cost > server->turn_keys ||
        !sl_credit_spend(&conn->credit, sl_request_credit_bytes(bytes, pull.reply_bytes))) {
        return false;
    }
    append(conn, message, &pull);
    return true;
}

/* One that cannot be answered with the others. */
static void answer_alone(struct sl_server *server, struct sl_server_pull *pull)
{
    struct sl_server_conn *conn = pull->conn;
    struct sl_shard_caller caller = sl_server_request_caller(conn);
    struct sl_shard_work work;
    char reason[SL_MESSAGE_TEXT_BYTES];
    int err = sl_shard_begin(server->shard, &caller, pull->message.payload,
                             pull->message.header.payload_bytes, &work, reason, sizeof reason);
    sl_assert(err == 0); /* it has been checked when it arrived */
    sl_server_request_serve(conn, &pull->message, &work, credit_of(pull));
}

/* False: the outbox has no room, or an earlier one of the connection had none. */
static bool answer(struct sl_server *server, const struct sl_server_pull *pull,
                   const uint32_t *records)
{
    struct sl_server_conn *conn = pull->conn;
    uint8_t *frame =
        sl_server_queue_is_free(conn) ? sl_server_watch_reserve(conn, pull->reply_bytes) : NULL;
    if (frame == NULL) {
        return false;
    }
    sl_shard_pull_read(server->shard, pull->table_id, records, pull->key_count,
                       frame + SL_FRAME_HEADER_BYTES);
    sl_server_request_reply(conn, pull->message.header.request_id, credit_of(pull),
                            pull->reply_bytes);
    server->request_count++;
    return true;
}

/* Answers the first pulls, those that are of one table; returns how many, and moves on in the keys.
 */
static uint32_t answer_table(struct sl_server *server, struct sl_server_pull *pulls, uint32_t count,
                             const uint64_t **keys)
{
    uint32_t records[SL_SHARD_PULLS_KEYS];
    uint16_t table_id = pulls->table_id;
    uint32_t done = 0;
    uint32_t key_count = 0;
    for (; done < count && pulls[done].table_id == table_id; done++) {
        key_count += pulls[done].key_count;
    }
    bool found = sl_shard_pulls_find(server->shard, table_id, *keys, key_count, records);
    const uint32_t *at = records;
    for (uint32_t i = 0; i < done; at += pulls[i++].key_count) {
        struct sl_server_pull *pull = &pulls[i];
        if (pull->conn == NULL) {
            continue;
        }
        if (!found || !answer(server, pull, at)) {
            answer_alone(server, pull);
        }
        sl_server_release(pull->conn, &pull->message);
    }
    *keys += key_count;
    return done;
}

void sl_server_pulls_answer(struct sl_server *server)
{
    struct sl_server_pulls *pulls = &server->pulls;
    uint32_t count = pulls->count;
    if (count == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (pulls->pulls[i].conn != NULL) {
            pulls->pulls[i].conn->has_pulls = false;
        }
    }
    server->turn_keys -= pulls->cost < server->turn_keys ? pulls->cost : server->turn_keys;
    pulls->count = pulls->key_count = pulls->cost = 0;
    const uint64_t *keys = pulls->keys;
    for (uint32_t done = 0; done < count;) {
        done += answer_table(server, pulls->pulls + done, count - done, &keys);
    }
}

void sl_server_pulls_drop(struct sl_server_conn *conn)
{
    struct sl_server_pulls *pulls = &conn->server->pulls;
    for (uint32_t i = 0; conn->has_pulls && i < pulls->count; i++) {
        struct sl_server_pull *pull = &pulls->pulls[i];
        if (pull->conn == conn) {
            sl_server_release(conn, &pull->message);
            pull->conn = NULL;
        }
    }
    conn->has_pulls = false;
}
