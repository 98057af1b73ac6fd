#include "rdma_raw.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/endpoint.h"

#define SENDS_AT      0
#define RECEIVES_AT   ((size_t)RAW_SENDS * RAW_SEND_BYTES)
#define LENT_AT       (RECEIVES_AT + (size_t)RAW_RECEIVES * SL_RDMA_PACKET_BYTES)
#define MEMORY_BYTES  (LENT_AT + RAW_LENT_BYTES)
#define IS_A_RECEIVE  (1ULL << 32) /* in wr_id */
#define RESOLVE_MS    5000
#define LOOK_EVERY_MS 1

/* The next event of rdma_cm's within the time; false: there was none. */
static bool next_event(struct rdma_raw *raw, int timeout_ms, enum rdma_cm_event_type *out)
{
    struct pollfd ready = {.fd = raw->channel->fd, .events = POLLIN};
    struct rdma_cm_event *event;
    if (poll(&ready, 1, timeout_ms) <= 0 || raw->library->get_cm_event(raw->channel, &event) != 0) {
        return false;
    }
    *out = event->event;
    if (*out == RDMA_CM_EVENT_ESTABLISHED &&
        event->param.conn.private_data_len >= sizeof raw->theirs) {
        memcpy(&raw->theirs, event->param.conn.private_data, sizeof raw->theirs);
    }
    raw->ended |= *out == RDMA_CM_EVENT_DISCONNECTED || *out == RDMA_CM_EVENT_DEVICE_REMOVAL;
    raw->library->ack_cm_event(event);
    return true;
}

static void expect_event(struct rdma_raw *raw, enum rdma_cm_event_type wanted)
{
    enum rdma_cm_event_type event = RDMA_CM_EVENT_ADDR_ERROR;
    assert_true(next_event(raw, WAIT_S * 1000, &event));
    assert_int_equal(event, wanted);
}

static uint8_t *receive_buffer(const struct rdma_raw *raw, uint32_t index)
{
    return raw->memory + RECEIVES_AT + (size_t)(index % RAW_RECEIVES) * SL_RDMA_PACKET_BYTES;
}

static void post_receive(struct rdma_raw *raw, uint32_t index)
{
    struct ibv_sge sge = {.addr = (uintptr_t)receive_buffer(raw, index),
                          .length = SL_RDMA_PACKET_BYTES,
                          .lkey = raw->mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = IS_A_RECEIVE | index, .sg_list = &sge, .num_sge = 1}, *bad;
    (void)ibv_post_recv(raw->id->qp, &wr, &bad); /* there may be no connection any more */
}

static void make_queue_pair(struct rdma_raw *raw)
{
    struct ibv_context *verbs = raw->id->verbs;
    raw->pd = raw->library->alloc_pd(verbs);
    raw->cq = raw->library->create_cq(verbs, RAW_SENDS + RAW_RECEIVES, NULL, NULL, 0);
    assert_non_null(raw->pd);
    assert_non_null(raw->cq);
    raw->memory = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(raw->memory);
    memset(raw->memory, 0x11, MEMORY_BYTES);
    raw->lent = raw->memory + LENT_AT;
    raw->mr = raw->library->reg_mr(raw->pd, raw->memory, MEMORY_BYTES,
                                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                       IBV_ACCESS_REMOTE_READ);
    assert_non_null(raw->mr);
    struct ibv_qp_init_attr attr = {.send_cq = raw->cq,
                                    .recv_cq = raw->cq,
                                    .qp_type = IBV_QPT_RC,
                                    .cap = {.max_send_wr = RAW_SENDS,
                                            .max_recv_wr = RAW_RECEIVES,
                                            .max_send_sge = 1,
                                            .max_recv_sge = 1}};
    assert_int_equal(raw->library->create_qp(raw->id, raw->pd, &attr), 0);
    for (uint32_t i = 0; i < RAW_RECEIVES; i++) {
        post_receive(raw, i);
    }
}

struct rdma_raw rdma_raw_dial(const struct sl_endpoint *endpoint)
{
    const char *why;
    struct rdma_raw raw = {.library = sl_rdma_library_get(&why)};
    struct sockaddr_storage address;
    socklen_t bytes;
    assert_non_null(raw.library);
    assert_int_equal(sl_endpoint_resolve(endpoint, false, &address, &bytes, NULL), 0);
    raw.channel = raw.library->create_event_channel();
    assert_non_null(raw.channel);
    assert_int_equal(raw.library->create_id(raw.channel, &raw.id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(
        raw.library->resolve_addr(raw.id, NULL, (struct sockaddr *)&address, RESOLVE_MS), 0);
    expect_event(&raw, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(raw.library->resolve_route(raw.id, RESOLVE_MS), 0);
    expect_event(&raw, RDMA_CM_EVENT_ROUTE_RESOLVED);
    make_queue_pair(&raw);
    return raw;
}

bool rdma_raw_ask(struct rdma_raw *raw, const void *data, size_t bytes)
{
    struct rdma_conn_param param = {.private_data = data,
                                    .private_data_len = (uint8_t)bytes,
                                    .responder_resources = 16,
                                    .initiator_depth = 16,
                                    .retry_count = 7,
                                    .rnr_retry_count = 7};
    enum rdma_cm_event_type event;
    assert_int_equal(raw->library->connect(raw->id, &param), 0);
    assert_true(next_event(raw, WAIT_S * 1000, &event));
    raw->connected = event == RDMA_CM_EVENT_ESTABLISHED;
    return raw->connected;
}

struct sl_rdma_hello rdma_raw_hello(void)
{
    return (struct sl_rdma_hello){
        .magic = SL_RDMA_MAGIC, .version = SL_RDMA_VERSION, .limit = RAW_RECEIVES / 2, .reads = 16};
}

struct rdma_raw rdma_raw_connect(const struct sl_endpoint *endpoint)
{
    const struct sl_rdma_hello hello = rdma_raw_hello();
    struct rdma_raw raw = rdma_raw_dial(endpoint);
    assert_true(rdma_raw_ask(&raw, &hello, sizeof hello));
    assert_int_equal(raw.theirs.magic, SL_RDMA_MAGIC);
    assert_true(raw.theirs.limit > 0);
    return raw;
}

void rdma_raw_close(struct rdma_raw *raw)
{
    raw->library->destroy_qp(raw->id);
    raw->library->destroy_id(raw->id);
    raw->library->dereg_mr(raw->mr);
    raw->library->destroy_cq(raw->cq);
    raw->library->dealloc_pd(raw->pd);
    raw->library->destroy_event_channel(raw->channel);
    free(raw->memory);
}

static void take_completions(struct rdma_raw *raw)
{
    struct ibv_wc done[16];
    int count = ibv_poll_cq(raw->cq, 16, done);
    for (int i = 0; i < count; i++) {
        if (done[i].status != IBV_WC_SUCCESS) {
            raw->first_failure = raw->failed++ == 0 ? done[i].status : raw->first_failure;
        } else if ((done[i].wr_id & IS_A_RECEIVE) != 0) {
            raw->received_bytes[raw->received % RAW_RECEIVES] = done[i].byte_len;
            raw->received++;
        }
        raw->completed += (done[i].wr_id & IS_A_RECEIVE) == 0;
    }
}

static void look(struct rdma_raw *raw)
{
    enum rdma_cm_event_type event;
    take_completions(raw);
    (void)next_event(raw, LOOK_EVERY_MS, &event);
}

/* Whether there is room for one more. */
static bool await_room(struct rdma_raw *raw)
{
    uint64_t deadline_ns = 0;
    while (raw->posted - raw->completed == RAW_SENDS && !raw->ended &&
           !wait_expired(&deadline_ns)) {
        look(raw);
    }
    return raw->posted - raw->completed < RAW_SENDS;
}

static void post(struct rdma_raw *raw, struct ibv_send_wr *wr, const uint8_t *at, size_t bytes)
{
    struct ibv_sge sge = {.addr = (uintptr_t)at, .length = (uint32_t)bytes, .lkey = raw->mr->lkey};
    struct ibv_send_wr *bad;
    wr->wr_id = raw->posted;
    wr->sg_list = &sge;
    wr->num_sge = 1;
    wr->send_flags = IBV_SEND_SIGNALED;
    if (ibv_post_send(raw->id->qp, wr, &bad) == 0) {
        raw->posted++;
    }
}

static void post_send(struct rdma_raw *raw, struct ibv_send_wr *wr, const void *from, size_t bytes)
{
    if (await_room(raw)) {
        uint8_t *slot = raw->memory + SENDS_AT + (size_t)(raw->posted % RAW_SENDS) * RAW_SEND_BYTES;
        memcpy(slot, from, bytes);
        post(raw, wr, slot, bytes);
    }
}

void rdma_raw_send(struct rdma_raw *raw, const void *packet, size_t bytes)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    assert_in_range(bytes, 0, RAW_SEND_BYTES);
    post_send(raw, &wr, packet, bytes);
}

void rdma_raw_write(struct rdma_raw *raw, uint64_t to, uint32_t key, uint32_t bytes)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE,
                             .wr.rdma = {.remote_addr = to, .rkey = key}};
    assert_in_range(bytes, 0, RAW_SEND_BYTES);
    post_send(raw, &wr, raw->lent, bytes);
}

void rdma_raw_read(struct rdma_raw *raw, uint64_t from, uint32_t key, uint32_t bytes)
{
    struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_READ,
                             .wr.rdma = {.remote_addr = from, .rkey = key}};
    assert_in_range(bytes, 0, RAW_LENT_BYTES);
    if (await_room(raw)) {
        post(raw, &wr, raw->lent, bytes);
    }
}

const struct sl_rdma_packet *rdma_raw_receive(struct rdma_raw *raw, uint32_t *bytes)
{
    uint64_t deadline_ns = 0;
    while (raw->received == raw->read) {
        if (raw->ended || raw->failed > 0) {
            return NULL;
        }
        if (wait_expired(&deadline_ns)) {
            fail_msg("no packet came");
        }
        look(raw);
    }
    if (raw->read > 0) {
        post_receive(raw, raw->read - 1);
    }
    *bytes = raw->received_bytes[raw->read % RAW_RECEIVES];
    const void *packet = receive_buffer(raw, raw->read);
    raw->read++;
    return packet;
}

void rdma_raw_settle(struct rdma_raw *raw)
{
    uint64_t deadline_ns = 0;
    while (raw->completed != raw->posted && !raw->ended && raw->failed == 0 &&
           !wait_expired(&deadline_ns)) {
        look(raw);
    }
}

struct rdma_raw_packet rdma_raw_begin(struct sl_rdma_packet head)
{
    struct rdma_raw_packet packet = {.count = 0};
    head.limit = head.limit != 0 ? head.limit : RAW_RECEIVES / 2;
    rdma_raw_add(&packet, &head, sizeof head);
    return packet;
}

void rdma_raw_add(struct rdma_raw_packet *packet, const void *from, size_t bytes)
{
    assert_true(bytes <= sizeof packet->bytes - packet->count);
    memcpy(packet->bytes + packet->count, from, bytes);
    packet->count += (uint32_t)bytes;
}

void rdma_raw_add_frame(struct rdma_raw_packet *packet, uint32_t number, uint32_t payload_bytes)
{
    uint8_t frame[RAW_SEND_BYTES];
    raw_make_frame(frame, number, payload_bytes);
    rdma_raw_add(packet, frame, FRAME_BYTES(payload_bytes));
}

struct rdma_raw_packet rdma_raw_frames(uint32_t number, uint32_t payload_bytes)
{
    struct rdma_raw_packet packet = rdma_raw_begin(
        (struct sl_rdma_packet){.kind = SL_RDMA_FRAMES, .frame_bytes = FRAME_BYTES(payload_bytes)});
    rdma_raw_add_frame(&packet, number, payload_bytes);
    return packet;
}
