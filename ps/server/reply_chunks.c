#include "ps/server/reply_chunks.h"

#include <string.h>

#include "core/assert.h"
#include "net/transport_now.h"

/* Values that are copied together: half of one is never sent before a push changes it. */
#define UNIT_BYTES    8U

/* Of a dense or KV array, for one unit of budget. */
#define BYTES_PER_KEY 256U

/* In one call: blocks of a dense array of 1 MiB, a header, and another block, for an array that
 * begins within one. */
#define PIECES_MAX    258

/* Four chunks and their bookkeeping fill a block of the outbox. */
#define PART_BYTES    (60U << 10)

/* Chunks in flight per connection: about a second-level cache. With half of it, a polling reactor
 * sends too little at a time; with twice, the kernel reads from a farther cache. */
#define PARTS_MAX     8

bool sl_server_reply_chunks_fits(const struct sl_server_channel *channel,
                                 const struct sl_shard_request *work)
{
    const struct sl_server_conn *conn = channel->conn;
    return sl_shard_is_chunked(channel->server->shard, work) &&
           (conn->conn->transport->ops->capabilities & SL_TRANSPORT_CHUNKS) != 0 &&
           !conn->greeting.hello.checksum && !conn->outbox->checksum;
}

/* A write of the session has started and is not done: its end may tick a clock. */
static bool is_written_beside(const struct sl_server_channel *channel)
{
    const struct sl_server_request *first = sl_server_request_first(&channel->queue);
    return channel->session->overtaken_writes > 0 ||
           (first != NULL && sl_server_request_started(first) &&
            sl_server_request_writes(&first->work));
}

/* A connection sends one frame at a time in chunks. A pull that was parked, or that overtook
 * others, may find another reply open; it uses a buffer then. */
bool sl_server_reply_chunks_may_begin(const struct sl_server_request *request)
{
    return !request->channel->conn->out.is_open &&
           sl_server_reply_chunks_fits(request->channel, &request->work) &&
           !(request->overtaken && is_written_beside(request->channel));
}

/* Writes the header of the reply. Later writes that could overtake the reply wait, as behind a
 * write. */
static void server_reply_chunks_begin(struct sl_server_request *request, uint8_t *header)
{
    const struct sl_frame frame = sl_server_reply_header(
        request->channel, request->id, request->credit_bytes, (uint32_t)request->work.reply_bytes);
    sl_frame_encode(&frame, header);
    request->stage = SL_SERVER_REQUEST_STREAMS;
    request->session->overtaken_writes += request->overtaken;
    sl_server_request_begun(request->server, &request->work);
}

/* Makes and sends the next chunk; false: no room now. */
static bool send_part(struct sl_server_request *request, uint32_t *spent)
{
    struct sl_server_conn *conn = request->channel->conn;
    struct sl_shard_request *work = &request->work;
    const bool is_first = request->stage != SL_SERVER_REQUEST_STREAMS;
    sl_assert(is_first != conn->out.is_open); /* else the open frame is another reply */
    const uint32_t header_bytes = is_first ? SL_FRAME_HEADER_BYTES : 0;
    const uint64_t left = work->reply_bytes - work->reply_done;
    const uint32_t room_bytes = PART_BYTES - header_bytes;
    const uint32_t bytes = left < room_bytes ? (uint32_t)left : room_bytes;
    uint8_t *room = sl_server_admission_reserve_part(conn, header_bytes + bytes);
    if (room == NULL) {
        return false;
    }
    if (is_first) {
        server_reply_chunks_begin(request, room);
    }
    *spent += sl_shard_next_chunk(request->server->shard, work, room + header_bytes, bytes);
    sl_outbox_commit_part(conn->outbox, conn->conn, &conn->out, header_bytes + bytes, bytes < left);
    return true;
}

/* Copies what the transport did not take of the header, and of the values' next unit. Its `sent`
 * says that there is room again. Returns the cost. */
static uint32_t send_rest(struct sl_server_request *request, uint8_t *room, const uint8_t *header,
                          uint32_t header_bytes, uint32_t unit_taken)
{
    struct sl_server_conn *conn = request->channel->conn;
    struct sl_shard_request *work = &request->work;
    uint8_t unit[UNIT_BYTES];
    memcpy(room, header, header_bytes);
    const uint32_t spent = sl_shard_next_chunk(request->server->shard, work, unit, UNIT_BYTES);
    memcpy(room + header_bytes, unit + unit_taken, UNIT_BYTES - unit_taken);
    sl_outbox_commit_part(conn->outbox, conn->conn, &conn->out,
                          header_bytes + UNIT_BYTES - unit_taken,
                          work->reply_done < work->reply_bytes);
    return spent;
}

/* Sends what the transport has room for, straight from the table; false: no room now. */
static bool send_values(struct sl_server_request *request, uint64_t bytes_max, uint32_t *spent)
{
    struct sl_server_conn *conn = request->channel->conn;
    struct sl_shard *shard = request->server->shard;
    struct sl_shard_request *work = &request->work;
    const bool is_first = request->stage != SL_SERVER_REQUEST_STREAMS;
    sl_assert(is_first != conn->out.is_open); /* else the open frame is another reply */
    uint8_t header[SL_FRAME_HEADER_BYTES];
    struct iovec pieces[PIECES_MAX] = {{.iov_base = header, .iov_len = sizeof header}};
    uint8_t *room = sl_server_admission_reserve_part(conn, sizeof header + UNIT_BYTES);
    if (room == NULL) {
        return false;
    }
    if (is_first) {
        server_reply_chunks_begin(request, header);
    }
    const uint32_t header_bytes = is_first ? sizeof header : 0;
    const uint32_t first = is_first ? 0 : 1;
    const uint32_t count = sl_shard_next_values(shard, work, bytes_max, pieces + 1, PIECES_MAX - 1);
    const uint32_t taken = sl_transport_send_now(conn->conn, pieces + first, count + 1 - first);
    const uint32_t header_taken = taken < header_bytes ? taken : header_bytes;
    const uint32_t unit_taken = (taken - header_taken) % UNIT_BYTES;
    *spent += sl_shard_pass_values(shard, work, taken - header_taken - unit_taken);
    if (work->reply_done < work->reply_bytes) {
        *spent += send_rest(request, room, header + header_taken, header_bytes - header_taken,
                            unit_taken);
    } else {
        sl_outbox_abandon(conn->outbox);
        sl_outbox_end_parts(conn->conn, &conn->out);
    }
    return true;
}

/* Makes and sends more of the reply. */
static bool send_more(struct sl_server_request *request, uint32_t keys, uint32_t *spent)
{
    const struct sl_server_conn *conn = request->channel->conn;
    const uint32_t unsent = conn->out.count - conn->out.behind_count; /* those behind wait for it */
    const bool is_stored = sl_request_returned(&request->work.view.section) == SL_PRECISION_F32;
    if (!is_stored || !sl_transport_sends_now(conn->conn)) {
        return unsent < PARTS_MAX && send_part(request, spent);
    }
    const uint64_t bytes_max = (uint64_t)(keys - *spent) * BYTES_PER_KEY;
    return unsent == 0 &&
           send_values(request, bytes_max > PART_BYTES ? bytes_max : PART_BYTES, spent);
}

enum sl_server_outcome sl_server_reply_chunks_run(struct sl_server_request *request, uint32_t keys,
                                                  uint32_t *spent)
{
    sl_assert(request->channel != NULL); /* it writes nothing, so it is never an orphan */
    if (sl_shard_is_dropped(request->server->shard, &request->work)) {
        sl_server_conn_drop(request->channel->conn, SL_ERR_NOT_FOUND,
                            "the table of a reply that was being sent was dropped");
        return SL_SERVER_CONTINUES;
    }
    while (*spent < keys && send_more(request, keys, spent)) {
        if (request->work.reply_done == request->work.reply_bytes) {
            return SL_SERVER_ANSWERED;
        }
    }
    return SL_SERVER_CONTINUES;
}
