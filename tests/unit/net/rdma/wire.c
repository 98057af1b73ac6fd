#include "tests/unit/net/rdma/wire.h"

#include <string.h>

#include "core/log.h"
#include "net/rdma/conn.h"
#include "net/rdma/conn_table.h"
#include "net/rdma/receive.h"
#include "net/rdma/send.h"
#include "tests/support/unit.h"

/* ---- The device -------------------------------------------------------------------------------
 */

/* All of the range is under the key, with these rights. */
static void assert_covered(struct rdma_wire_end *end, uint64_t at, uint32_t bytes, uint32_t key,
                           int access)
{
    const struct rdma_fake_region *region = rdma_fake_region_of(&end->wire->fake, key);
    assert_non_null(region);
    assert_true(at >= region->at);
    assert_true(at + bytes <= region->at + region->bytes);
    assert_int_equal(region->access & access, access);
}

static void record_remote_sges(struct rdma_wire_end *end, const struct ibv_send_wr *wr,
                               struct rdma_wire_request *request)
{
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *remote_sge = &wr->sg_list[i];
        request->remote_sges[i] = *remote_sge;
        if ((wr->send_flags & IBV_SEND_INLINE) != 0) {
            assert_true(request->bytes + remote_sge->length <= RDMA_WIRE_INLINE);
            memcpy(request->inlined + request->bytes, (const void *)(uintptr_t)remote_sge->addr,
                   remote_sge->length);
        } else {
            assert_covered(end, remote_sge->addr, remote_sge->length, remote_sge->lkey,
                           wr->opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_LOCAL_WRITE : 0);
        }
        request->bytes += remote_sge->length;
    }
}

static int post_send(struct ibv_qp *queue_pair, struct ibv_send_wr *requests,
                     struct ibv_send_wr **bad)
{
    struct rdma_wire_end *end =
        (struct rdma_wire_end *)((char *)queue_pair - offsetof(struct rdma_wire_end, queue_pair));
    *bad = requests;
    if (end->post_error != 0) {
        return end->post_error;
    }
    end->post_calls++;
    for (const struct ibv_send_wr *wr = requests; wr != NULL; wr = wr->next) {
        assert_true(end->posted - end->done < SL_RDMA_SENDS);
        assert_in_range(wr->num_sge, 1, (int)end->conn->nic->caps.sge_max);
        struct rdma_wire_request *request = &end->requests[end->posted++ % RDMA_WIRE_REQUESTS];
        *request = (struct rdma_wire_request){.opcode = wr->opcode,
                                              .flags = wr->send_flags,
                                              .id = wr->wr_id,
                                              .remote_sge_count = (uint32_t)wr->num_sge,
                                              .remote_at = wr->wr.rdma.remote_addr,
                                              .remote_key = wr->wr.rdma.rkey};
        record_remote_sges(end, wr, request);
    }
    return 0;
}

static void move(struct rdma_wire_end *end, const struct rdma_wire_request *request)
{
    bool reads = request->opcode == IBV_WR_RDMA_READ;
    uint8_t *remote = (uint8_t *)(uintptr_t)request->remote_at;
    assert_covered(end, request->remote_at, request->bytes, request->remote_key,
                   reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE);
    for (uint32_t i = 0; i < request->remote_sge_count; i++) {
        uint8_t *local = (uint8_t *)(uintptr_t)request->remote_sges[i].addr;
        uint32_t bytes = request->remote_sges[i].length;
        memcpy(reads ? local : remote, reads ? remote : local, bytes);
        remote += bytes;
    }
}

void rdma_wire_inject(struct rdma_wire_end *end, const void *packet, uint32_t bytes)
{
    struct ibv_wc wc = rdma_fake_fill(&end->wire->fake, IBV_WC_SUCCESS);
    struct sl_rdma_block *block = sl_rdma_pool_take(&end->wire->fake.nic, &wc);
    assert_true(bytes <= SL_RDMA_PACKET_BYTES);
    memcpy(block->at, packet, bytes);
    sl_rdma_receive_block(end->conn, block, bytes);
}

static void deliver(struct rdma_wire_end *end, const struct rdma_wire_request *request)
{
    uint8_t packet[SL_RDMA_PACKET_BYTES];
    uint32_t bytes = 0;
    assert_true(request->bytes <= sizeof packet);
    if ((request->flags & IBV_SEND_INLINE) != 0) {
        memcpy(packet, request->inlined, request->bytes);
    } else {
        for (uint32_t i = 0; i < request->remote_sge_count; i++) {
            memcpy(packet + bytes, (const void *)(uintptr_t)request->remote_sges[i].addr,
                   request->remote_sges[i].length);
            bytes += request->remote_sges[i].length;
        }
    }
    rdma_wire_inject(rdma_wire_other(end), packet, request->bytes);
}

uint32_t rdma_wire_carry(struct rdma_wire_end *end, uint32_t count)
{
    uint32_t carried = 0;
    while (carried < count && end->done != end->posted && end->conn->phase != SL_RDMA_ENDED) {
        const struct rdma_wire_request request = end->requests[end->done++ % RDMA_WIRE_REQUESTS];
        uint32_t number = request.id >> 18 & 0xfffff;
        carried++;
        if (request.opcode != IBV_WR_SEND) {
            move(end, &request);
        } else if (rdma_wire_other(end)->conn->phase != SL_RDMA_ENDED) {
            deliver(end, &request);
        }
        assert_ptr_equal(sl_rdma_conn_of(&end->wire->fake.rdma, request.id), end->conn);
        if ((request.flags & IBV_SEND_SIGNALED) == 0) {
            continue;
        }
        if (request.opcode == IBV_WR_RDMA_READ) {
            sl_rdma_receive_read_done(end->conn, number);
        } else {
            sl_rdma_send_completed(end->conn, number);
        }
    }
    return carried;
}

/* ---- The layer above --------------------------------------------------------------------------
 */

static struct rdma_wire_end *end_of(void *ctx, const struct sl_conn *conn)
{
    struct rdma_wire_end *end = ctx;
    assert_ptr_equal(&end->conn->base, conn);
    return end;
}

static void on_connected(void *ctx, struct sl_conn *conn)
{
}

static void *on_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    struct rdma_wire_end *end = end_of(ctx, conn);
    assert_true(header->payload_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES);
    end->asked++;
    return end->sink;
}

static int fill_of(const uint8_t *payload, uint32_t bytes)
{
    bool alike = bytes < 2 || memcmp(payload, payload + 1, bytes - 1) == 0;
    return bytes == 0 ? 0 : alike ? payload[0] : -1;
}

static void on_received(void *ctx, struct sl_conn *conn, const struct sl_transport_message *message)
{
    struct rdma_wire_end *end = end_of(ctx, conn);
    uint32_t number = end->received++;
    end->messages[number % RDMA_WIRE_MESSAGES] = *message;
    end->fills[number % RDMA_WIRE_MESSAGES] =
        fill_of(message->payload, message->header.payload_bytes);
    if (!end->hold) {
        rdma_wire_release(end, number);
    }
}

static void on_sent(void *ctx, struct sl_conn *conn, void *cookie)
{
    struct rdma_wire_end *end = end_of(ctx, conn);
    end->sent[end->sent_count++ % RDMA_WIRE_MESSAGES] = (uintptr_t)cookie;
}

static void on_writable(void *ctx, struct sl_conn *conn)
{
    end_of(ctx, conn)->writable_count++;
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    (void)end_of(ctx, conn);
}

static const struct sl_transport_events events = {.connected = on_connected,
                                                  .sink = on_sink,
                                                  .received = on_received,
                                                  .sent = on_sent,
                                                  .writable = on_writable,
                                                  .closed = on_closed};

void rdma_wire_release(struct rdma_wire_end *end, uint32_t number)
{
    const struct sl_transport_message *message = &end->messages[number % RDMA_WIRE_MESSAGES];
    end->released++;
    if (message->token != NULL) {
        sl_rdma_receive_release(&end->conn->base, message);
    }
}

/* ---- Both together ----------------------------------------------------------------------------
 */

static void flush(struct sl_rdma *rdma)
{
    sl_rdma_pool_flush(rdma->nics);
    struct sl_list_link *link;
    while ((link = sl_list_pop(&rdma->dirty)) != NULL) {
        sl_rdma_send_flush(SL_CONTAINER_OF(link, struct sl_rdma_conn, dirty));
    }
}

void rdma_wire_turn(struct rdma_wire *wire)
{
    struct sl_rdma *rdma = &wire->fake.rdma;
    struct sl_list visits;
    sl_list_init(&visits);
    sl_list_append_all(&visits, &rdma->ready);
    struct sl_list_link *link;
    while ((link = sl_list_pop(&visits)) != NULL) {
        struct sl_rdma_conn *conn = SL_CONTAINER_OF(link, struct sl_rdma_conn, ready);
        if (conn->phase != SL_RDMA_ENDED) {
            (void)sl_rdma_receive_visit(conn);
            sl_rdma_send_report(conn);
        }
    }
    flush(rdma);
}

void rdma_wire_settle(struct rdma_wire *wire)
{
    for (uint32_t quiet = 0; quiet < 3; quiet++) {
        rdma_wire_turn(wire);
        if (rdma_wire_carry(&wire->ends[0], UINT32_MAX) +
                rdma_wire_carry(&wire->ends[1], UINT32_MAX) >
            0) {
            quiet = 0;
        }
    }
}

static void nothing(struct rdma_cm_id *id)
{
}

static int fine(struct rdma_cm_id *id)
{
    return 0;
}

static void connect_end(struct rdma_wire *wire, struct rdma_wire_end *end)
{
    static const struct sl_transport_ops ops = {.scheme = "rdma"};
    struct rdma_fake *fake = &wire->fake;
    fake->rdma.base.ops = &ops;
    end->wire = wire;
    end->queue_pair.context = &fake->verbs;
    end->id.qp = &end->queue_pair;
    end->conn = sl_rdma_conn_new(&fake->rdma, &events, end);
    assert_non_null(end->conn);
    struct sl_rdma_conn *conn = end->conn;
    conn->nic = &fake->nic;
    conn->phase = SL_RDMA_LIVE;
    conn->link.id = &end->id;
    conn->link.established = true;
    conn->credit.limit_theirs = SL_RDMA_WINDOW_MIN;
    conn->reads_peer = SL_RDMA_READS;
    assert_true(sl_rdma_pool_reserve(&fake->nic, conn, SL_RDMA_WINDOW_MIN));
    sl_conn_report_connected(&conn->base);
}

void rdma_wire_init(struct rdma_wire *wire)
{
    memset(wire, 0, sizeof *wire);
    struct rdma_fake *fake = &wire->fake;
    rdma_fake_init(fake);
    sl_log_setup(SL_LOG_ERROR, "test");
    fake->verbs.ops.post_send = post_send;
    fake->library.destroy_qp = nothing;
    fake->library.destroy_id = fine;
    fake->library.disconnect = fine;
    fake->nic.caps.inline_max = RDMA_WIRE_INLINE;
    fake->nic.caps.sge_max = SL_RDMA_REMOTE_SGES + 2;
    fake->nic.caps.reads_max = SL_RDMA_READS;
    assert_int_equal(sl_rdma_memory_open(&fake->nic), 0);
    assert_int_equal(sl_rdma_pool_open(&fake->nic), 0);
    connect_end(wire, &wire->ends[0]);
    connect_end(wire, &wire->ends[1]);
}

void rdma_wire_fini(struct rdma_wire *wire)
{
    struct rdma_fake *fake = &wire->fake;
    sl_rdma_conn_cancel_all(&fake->rdma);
    sl_rdma_memory_close(&fake->nic);
    sl_rdma_pool_close(&fake->nic);
    sl_rdma_conn_free_all(&fake->rdma);
    rdma_fake_fini(fake);
}

/* ---- Frames -----------------------------------------------------------------------------------
 */

void rdma_wire_frame(uint8_t *memory, enum sl_frame_type type, uint64_t request_id,
                     uint32_t payload_bytes, uint8_t fill)
{
    const struct sl_frame frame = {.type = (uint8_t)type,
                                   .payload_bytes = payload_bytes,
                                   .request_id = request_id,
                                   .budget_us = 1};
    sl_frame_encode(&frame, memory);
    memset(memory + SL_FRAME_HEADER_BYTES, fill, payload_bytes);
}

void rdma_wire_send(struct rdma_wire_end *end, const uint8_t *memory, void *cookie)
{
    struct sl_frame frame;
    memcpy(&frame, memory, sizeof frame);
    const struct sl_transport_frame offered = {.head = memory,
                                               .head_bytes =
                                                   SL_FRAME_HEADER_BYTES + frame.payload_bytes,
                                               .cookie = cookie};
    assert_int_equal(sl_rdma_send_burst(&end->conn->base, &offered, 1), 1);
}

void rdma_wire_expect(const struct rdma_wire_end *end, uint32_t number, uint64_t request_id,
                      uint32_t payload_bytes, uint8_t fill)
{
    assert_true(number < end->received);
    const struct sl_transport_message *message = &end->messages[number % RDMA_WIRE_MESSAGES];
    assert_int_equal(message->header.request_id, request_id);
    assert_int_equal(message->header.payload_bytes, payload_bytes);
    assert_int_equal(end->fills[number % RDMA_WIRE_MESSAGES], fill);
}

struct sl_rdma_packet rdma_wire_head(const struct rdma_wire_request *request)
{
    struct sl_rdma_packet head;
    assert_int_equal(request->opcode, IBV_WR_SEND);
    assert_true(request->remote_sges[0].length >= sizeof head);
    memcpy(&head,
           (request->flags & IBV_SEND_INLINE) != 0
               ? (const void *)request->inlined
               : (const void *)(uintptr_t)request->remote_sges[0].addr,
           sizeof head);
    return head;
}
