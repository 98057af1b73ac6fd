/* Replies that are made as they are sent: long pulls of dense arrays. What is copied into a part is
 * read by the kernel while it is in the cache, and the few parts that are under way lie in the same
 * memory again and again; no reply fills a buffer of its own. */
#include "core/assert.h"
#include "ps/server/internal.h"

/* Four of these and their bookkeeping fill a block of the outbox. */
#define PART_BYTES (60U << 10)

/* What one connection has under way, about a second-level cache: with half of it, a reactor that
 * polls sends too little at a time; with twice, the kernel reads from further away. */
#define PARTS_MAX  8

bool sl_server_reply_chunks_fits(const struct sl_server_conn *conn,
                                 const struct sl_shard_exec *work)
{
    return sl_shard_is_chunked(conn->server->shard, work) &&
           (conn->conn->transport->ops->capabilities & SL_TRANSPORT_CHUNKS) != 0 &&
           !conn->hello.checksum && !conn->outbox->checksum;
}

/* A write of the session has begun and is not done: it may tick at its end. */
static bool is_written_beside(const struct sl_server_conn *conn)
{
    const struct sl_server_request *first = conn->queue.first;
    return conn->session->overtaken_writes > 0 ||
           (first != NULL && first->started && sl_server_request_writes(&first->work));
}

/* Of the frames of a connection one at a time may be sent in parts: a pull that was parked, or that
 * passed others, comes to its turn while another's reply is under way, and takes a buffer then. */
bool sl_server_reply_chunks_may_begin(const struct sl_server_request *request)
{
    return !request->conn->out.is_open &&
           sl_server_reply_chunks_fits(request->conn, &request->work) &&
           !(request->overtaken && is_written_beside(request->conn));
}

/* Later writes that could overtake it wait, as behind a write. */
static void begin(struct sl_server_request *request)
{
    request->started = request->streams = true;
    request->session->overtaken_writes += request->overtaken;
    request->server->request_count++;
}

/* Makes and sends the next part; false: no room for it now. */
static bool send_part(struct sl_server_request *request, uint32_t *spent)
{
    struct sl_server_conn *conn = request->conn;
    struct sl_shard_exec *work = &request->work;
    sl_assert(request->streams == conn->out.is_open); /* or its parts were another's */
    const uint32_t header_bytes = request->streams ? 0 : SL_FRAME_HEADER_BYTES;
    const uint64_t left = work->reply_bytes - work->reply_done;
    const uint32_t room_bytes = PART_BYTES - header_bytes;
    const uint32_t bytes = left < room_bytes ? (uint32_t)left : room_bytes;
    uint8_t *room = sl_server_admission_reserve_part(conn, header_bytes + bytes);
    if (room == NULL) {
        return false;
    }
    if (!request->streams) {
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
    sl_assert(conn != NULL); /* it writes nothing, and so is nobody's orphan */
    /* Those behind the reply are waiting for it. */
    while (*spent < keys && conn->out.count - conn->out.behind_count < PARTS_MAX &&
           send_part(request, spent)) {
        if (request->work.reply_done == request->work.reply_bytes) {
            sl_server_scheduler_remove(request);
            sl_server_request_free(request);
            return SL_SERVER_ANSWERED;
        }
    }
    return SL_SERVER_CONTINUES;
}
