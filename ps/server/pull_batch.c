#include "ps/server/pull_batch.h"

#include <string.h>

#include "core/assert.h"
#include "ps/server/request.h"
#include "ps/server/shm.h"
#include "ps/server/state.h"

static uint64_t credit_of(const struct sl_server_pull *pull)
{
    return sl_request_credit_bytes(pull->message.header.payload_bytes, pull->reply_bytes);
}

static bool has_room(const struct sl_server_pull_batch *pulls, uint32_t key_count)
{
    return pulls->count < SL_SERVER_PULLS &&
           pulls->key_count + key_count <= SL_SHARD_PULL_BATCH_KEYS;
}

static void append(struct sl_server_channel *channel, const struct sl_transport_message *message,
                   const struct sl_shard_small_pull *pull)
{
    struct sl_server_pull_batch *pulls = &channel->server->pulls;
    if (!has_room(pulls, pull->key_count)) {
        sl_server_pull_batch_answer(channel->server);
    }
    for (uint32_t i = 0; i < pull->key_count; i++) {
        pulls->keys[pulls->key_count + i] = pull->keys[i];
    }
    struct sl_server_pull *to = &pulls->pulls[pulls->count++];
    to->channel = channel;
    memcpy(&to->message, message, sizeof to->message);
    to->reply_bytes = pull->reply_bytes;
    to->key_count = (uint16_t)pull->key_count;
    to->table_id = pull->table_id;
    pulls->key_count += pull->key_count;
    pulls->cost += pull->cost;
    channel->has_pulls = true;
}

/* Returns the cost that further pulls may spend in this turn. */
static uint32_t keys_left(const struct sl_server *server)
{
    uint32_t taken =
        server->pulls.cost + (server->scheduler.crowded_count > 0 ? SL_SERVER_BACKLOG_COST : 0);
    return server->host->budget_left > taken ? server->host->budget_left - taken : 0;
}

bool sl_server_pull_batch_take(struct sl_server_channel *channel,
                               const struct sl_transport_message *message)
{
    struct sl_server *server = channel->server;
    struct sl_shard_client caller = sl_server_request_client(channel->conn);
    struct sl_shard_small_pull pull;
    uint32_t bytes = message->header.payload_bytes;
    /* A longer message may be in the client's memory; a small pull is shorter. */
    if (bytes >= SL_SERVER_SHM_SINK_BYTES || sl_server_drains(server) ||
        !sl_server_channel_is_free(channel) ||
        !sl_shard_small_pull_parse(server->shard, &caller, message->payload, bytes, &pull) ||
        pull.cost > keys_left(server) ||
        !sl_credit_spend(&channel->conn->credit,
                         sl_request_credit_bytes(bytes, pull.reply_bytes))) {
        return false;
    }
    append(channel, message, &pull);
    return true;
}

/* Answers a pull that cannot be answered with the batch. */
static void answer_one(struct sl_server *server, struct sl_server_pull *pull)
{
    struct sl_server_channel *channel = pull->channel;
    struct sl_shard_client caller = sl_server_request_client(channel->conn);
    struct sl_shard_request work;
    int err = sl_shard_begin(server->shard, &caller, pull->message.payload,
                             pull->message.header.payload_bytes, &work, NULL);
    sl_assert(err == 0); /* validated on arrival */
    struct sl_server_incoming incoming = {
        .to = {.channel = channel,
               .id = sl_frame_number(pull->message.header.request_id),
               .credit_bytes = credit_of(pull)},
        .message = &pull->message,
        .payload = pull->message.payload,
        .payload_bytes = pull->message.header.payload_bytes,
    };
    sl_server_request_serve(&incoming, &work);
}

/* Returns how many of the first pulls belong to one channel and have replies that fit into one
 * run of *run_bytes. */
static uint32_t run_length(const struct sl_server_pull *pulls, uint32_t count, uint32_t *run_bytes)
{
    uint32_t bytes = 0;
    uint32_t length = 0;
    for (; length < count && pulls[length].channel == pulls->channel; length++) {
        uint32_t more = SL_FRAME_HEADER_BYTES + pulls[length].reply_bytes;
        if (bytes + more > SL_OUTBOX_RUN_BYTES_MAX) {
            break;
        }
        bytes += more;
    }
    *run_bytes = bytes;
    return length;
}

/* False: no room in the outbox, or an earlier pull of the channel found none. */
static bool answer_run(struct sl_server *server, const struct sl_server_pull *pulls, uint32_t count,
                       uint32_t run_bytes, const uint64_t *keys, const float *const *rows)
{
    struct sl_server_channel *channel = pulls->channel;
    struct sl_server_conn *conn = channel->conn;
    uint8_t *frame = sl_server_channel_is_free(channel)
                         ? sl_server_admission_reserve_run(conn, run_bytes, count)
                         : NULL;
    const uint64_t *first_key = keys;
    if (frame == NULL) {
        return false;
    }
    /* Without checksums: the run as a whole gets them. */
    struct sl_frame header = {.type = SL_FRAME_REPLY,
                              .budget_us = sl_shard_clock_min(server->shard),
                              .credit_requests = 1};
    for (const struct sl_server_pull *pull = pulls; pull != pulls + count; pull++) {
        header.payload_bytes = pull->reply_bytes;
        header.request_id = pull->message.header.request_id;
        header.credit_bytes = (uint32_t)credit_of(pull);
        sl_credit_grant(&conn->credit, header.credit_bytes, 1);
        sl_frame_encode(&header, frame);
        sl_shard_small_pull_write(server->shard, pull->table_id, keys, rows, pull->key_count,
                                  frame + SL_FRAME_HEADER_BYTES);
        keys += pull->key_count;
        rows += pull->key_count;
        frame += SL_FRAME_HEADER_BYTES + pull->reply_bytes;
    }
    sl_shard_small_pulls_end(server->shard, pulls->table_id, first_key,
                             (uint32_t)(keys - first_key));
    sl_outbox_commit_run(conn->outbox, conn->conn, &conn->out, run_bytes,
                         conn->greeting.hello.checksum);
    server->turn.at_once[SL_REQUEST_KIND_PULL] += count;
    server->turn.has_requests = true;
    sl_server_slow_requests_see(&server->slow, sl_server_request_client(conn),
                                (struct sl_shard_main_section){.cost = count * pulls->key_count,
                                                               .key_count = pulls->key_count,
                                                               .table_id = pulls->table_id,
                                                               .op = SL_REQUEST_PULL});
    return true;
}

static uint32_t keys_of(const struct sl_server_pull *pulls, uint32_t count)
{
    uint32_t key_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        key_count += pulls[i].key_count;
    }
    return key_count;
}

/* Answers pulls of one table; rows NULL: the lookup failed. */
static void answer_found(struct sl_server *server, struct sl_server_pull *pulls, uint32_t count,
                         const uint64_t *keys, const float *const *rows)
{
    while (count > 0) {
        uint32_t run_bytes;
        uint32_t length = run_length(pulls, count, &run_bytes);
        bool is_open = pulls->channel != NULL;
        bool answered =
            is_open && rows != NULL && answer_run(server, pulls, length, run_bytes, keys, rows);
        for (uint32_t i = 0; is_open && i < length; i++) {
            if (!answered) {
                answer_one(server, &pulls[i]);
            }
            sl_server_conn_release(pulls[i].channel->conn, &pulls[i].message);
        }
        const uint32_t key_count = keys_of(pulls, length);
        keys += key_count;
        rows = rows == NULL ? NULL : rows + key_count;
        pulls += length;
        count -= length;
    }
}

/* Answers the leading pulls of one table; returns how many. */
static uint32_t answer_table(struct sl_server *server, struct sl_server_pull *pulls, uint32_t count,
                             const uint64_t *keys)
{
    const float *rows[SL_SHARD_PULL_BATCH_KEYS];
    uint16_t table_id = pulls->table_id;
    uint32_t length = 1;
    while (length < count && pulls[length].table_id == table_id) {
        length++;
    }
    bool found =
        sl_shard_pull_batch_find(server->shard, table_id, keys, keys_of(pulls, length), rows);
    answer_found(server, pulls, length, keys, found ? rows : NULL);
    return length;
}

void sl_server_pull_batch_answer(struct sl_server *server)
{
    struct sl_server_pull_batch *pulls = &server->pulls;
    uint32_t count = pulls->count;
    if (count == 0) {
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (pulls->pulls[i].channel != NULL) {
            pulls->pulls[i].channel->has_pulls = false;
        }
    }
    sl_server_spend(server, pulls->cost);
    pulls->count = pulls->key_count = pulls->cost = 0;
    const uint64_t *keys = pulls->keys;
    for (uint32_t done = 0; done < count;) {
        uint32_t more = answer_table(server, pulls->pulls + done, count - done, keys);
        keys += keys_of(pulls->pulls + done, more);
        done += more;
    }
}

void sl_server_pull_batch_before(struct sl_server_channel *channel)
{
    if (channel->has_pulls) {
        sl_server_pull_batch_answer(channel->server);
    }
}

void sl_server_pull_batch_drop(struct sl_server_channel *channel)
{
    if (channel == NULL || !channel->has_pulls) {
        return;
    }
    struct sl_server_pull_batch *pulls = &channel->server->pulls;
    for (uint32_t i = 0; i < pulls->count; i++) {
        struct sl_server_pull *pull = &pulls->pulls[i];
        if (pull->channel == channel) {
            sl_server_conn_release(channel->conn, &pull->message);
            pull->channel = NULL;
        }
    }
    channel->has_pulls = false;
}
