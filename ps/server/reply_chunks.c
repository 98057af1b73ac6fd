#include "ps/server/reply_chunks.h"

#include "core/assert.h"

/* Four chunks and their bookkeeping fill a block of the outbox. */
#define PART_BYTES (60U << 10)

/* Chunks in flight per connection: about a second-level cache. With half of it, a polling reactor
 * sends too little at a time; with twice, the kernel reads from a farther cache. */
#define PARTS_MAX  8

bool sl_server_reply_chunks_fits(const struct sl_server_conn *conn,
                                 const struct sl_shard_request *work)
{
    return sl_shard_is_chunked(conn->server->shard, work) &&
           (conn->conn->transport->ops->capabilities & SL_TRANSPORT_CHUNKS) != 0 &&
           !conn->greeting.hello.checksum && !conn->outbox->checksum;
}

/* A write of the session has started and is not done: its end may tick a clock. */
static bool is_written_beside(const struct sl_server_conn *conn)
{
    const struct sl_server_request *first = sl_server_request_first(&conn->queue);
    return conn->session->overtaken_writes > 0 ||
           (first != NULL && sl_server_request_started(first) &&
            sl_server_request_writes(&first->work));
}

/* A connection sends one frame at a time in chunks. A pull that was parked, or that overtook
 * others, may find another reply open; it uses a buffer then. */
bool sl_server_reply_chunks_may_begin(const struct sl_server_request *request)
{
    return !request->conn->out.is_open &&
           sl_server_reply_chunks_fits(request->conn, &request->work) &&
           !(request->overtaken && is_written_beside(request->conn));
}

/* Later writes that could overtake this reply wait, as behind a write. */
static void begin(struct sl_server_request *request)
{
    request->stage = SL_SERVER_REQUEST_STREAMS;
    request->session->overtaken_writes += request->overtaken;
    sl_server_request_begun(request->server, &request->work);
}

/* Makes and sends the next chunk; false: no room now. */
static bool send_part(struct sl_server_request *request, uint32_t *spent)
{
    struct sl_server_conn *conn = request->conn;
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
        const struct sl_frame header = sl_server_reply_header(
            conn, request->id, request->credit_bytes, (uint32_t)work->reply_bytes);
        sl_frame_encode(&header, room);
        begin(request);
    }
    *spent += sl_shard_next_chunk(conn->server->shard, work, room + header_bytes, bytes);
    sl_outbox_commit_part(conn->outbox, conn->conn, &conn->out, header_bytes + bytes, bytes < left);
    return true;
}

enum sl_server_outcome sl_server_reply_chunks_run(struct sl_server_request *request, uint32_t keys,
                                                  uint32_t *spent)
{
    struct sl_server_conn *conn = request->conn;
    sl_assert(conn != NULL); /* it writes nothing, so it is never an orphan */
    /* Frames behind this reply wait for it, and do not count. */
    while (*spent < keys && conn->out.count - conn->out.behind_count < PARTS_MAX &&
           send_part(request, spent)) {
        if (request->work.reply_done == request->work.reply_bytes) {
            return SL_SERVER_ANSWERED;
        }
    }
    return SL_SERVER_CONTINUES;
}
