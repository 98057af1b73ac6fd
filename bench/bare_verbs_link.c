#include "bench/bare_verbs_link.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "core/assert.h"
#include "core/log.h"

#define RESOLVE_MS  5000
#define RETRY_COUNT 7
#define READS       16

static int fail(const char *what)
{
    sl_log_error("verbs: %s: %s", what, strerror(errno));
    return SL_ERR_IO;
}

static uint8_t *map(uint64_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
                    -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

int sl_bench_verbs_open(struct sl_bench_verbs_side *side, uint32_t count, uint64_t bytes)
{
    const char *why = NULL;
    sl_assert(count >= 1);
    sl_assert(count <= SL_BENCH_BARE_VERBS_CONNECTIONS_MAX);
    *side = (struct sl_bench_verbs_side){
        .library = sl_rdma_library_get(&why), .count = count, .bytes = bytes};
    if (side->library == NULL) {
        sl_log_error("verbs: %s", why);
        return SL_ERR_UNSUPPORTED;
    }
    side->memory = map(bytes);
    side->messages = map((uint64_t)count * SL_BENCH_VERBS_MESSAGES * SL_BENCH_VERBS_MESSAGE_BYTES);
    side->events = side->library->create_event_channel();
    if (side->memory == NULL || side->messages == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    return side->events == NULL ? fail("no event channel") : 0;
}

int sl_bench_verbs_post_receive(struct sl_bench_verbs_side *side, uint32_t number)
{
    struct ibv_sge sge = {
        .addr = (uintptr_t)(side->messages + (uint64_t)number * SL_BENCH_VERBS_MESSAGE_BYTES),
        .length = SL_BENCH_VERBS_MESSAGE_BYTES,
        .lkey = side->messages_mr->lkey};
    struct ibv_recv_wr request = {.wr_id = number, .sg_list = &sge, .num_sge = 1};
    struct ibv_recv_wr *bad;
    errno = ibv_post_recv(side->ids[number / SL_BENCH_VERBS_MESSAGES]->qp, &request, &bad);
    return errno == 0 ? 0 : fail("a receive buffer cannot be posted");
}

/* What all queue pairs share, on the device of the first. */
static int open_device(struct sl_bench_verbs_side *side, struct ibv_context *device)
{
    const struct sl_rdma_library *library = side->library;
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    const uint32_t messages = side->count * SL_BENCH_VERBS_MESSAGES;
    if (side->pd != NULL) {
        return 0;
    }
    side->pd = library->alloc_pd(device);
    side->cq = library->create_cq(
        device, (int)(side->count * (SL_BENCH_VERBS_SENDS + SL_BENCH_VERBS_MESSAGES)), NULL, NULL,
        0);
    if (side->pd == NULL || side->cq == NULL) {
        return fail("no completion queue");
    }
    side->mr = library->reg_mr(side->pd, side->memory, side->bytes, access);
    side->messages_mr = library->reg_mr(side->pd, side->messages,
                                        (uint64_t)messages * SL_BENCH_VERBS_MESSAGE_BYTES, access);
    return side->mr == NULL || side->messages_mr == NULL ? fail("memory cannot be registered") : 0;
}

static int make_queue_pair(struct sl_bench_verbs_side *side, uint32_t index, struct rdma_cm_id *id)
{
    int err = open_device(side, id->verbs);
    if (err != 0) {
        return err;
    }
    struct ibv_qp_init_attr attr = {
        .send_cq = side->cq,
        .recv_cq = side->cq,
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = SL_BENCH_VERBS_SENDS,
                .max_recv_wr = SL_BENCH_VERBS_MESSAGES,
                .max_send_sge = 1,
                .max_recv_sge = 1,
                .max_inline_data = SL_BENCH_VERBS_MESSAGE_BYTES},
    };
    if (side->library->create_qp(id, side->pd, &attr) != 0) {
        return fail("no queue pair");
    }
    side->ids[index] = id;
    for (uint32_t i = 0; err == 0 && i < SL_BENCH_VERBS_MESSAGES; i++) {
        err = sl_bench_verbs_post_receive(side, index * SL_BENCH_VERBS_MESSAGES + i);
    }
    return err;
}

/* The next event; *id is whose it is. */
static int next_event(struct sl_bench_verbs_side *side, enum rdma_cm_event_type *type,
                      struct rdma_cm_id **id)
{
    struct rdma_cm_event *event;
    if (side->library->get_cm_event(side->events, &event) != 0) {
        return fail("no event of rdma_cm's");
    }
    *type = event->event;
    *id = event->id;
    (void)side->library->ack_cm_event(event);
    return 0;
}

static int unexpected(const struct sl_bench_verbs_side *side, enum rdma_cm_event_type type)
{
    sl_log_error("verbs: rdma_cm said %s", side->library->event_str(type));
    return SL_ERR_IO;
}

/* The next event must be of this type. */
static int await(struct sl_bench_verbs_side *side, enum rdma_cm_event_type type)
{
    enum rdma_cm_event_type came;
    struct rdma_cm_id *id;
    const int err = next_event(side, &came, &id);
    return err != 0 || came == type ? err : unexpected(side, came);
}

static struct sockaddr_in address_of(const char *address, uint16_t port)
{
    struct sockaddr_in out = {.sin_family = AF_INET, .sin_port = htons(port)};
    (void)inet_pton(AF_INET, address, &out.sin_addr);
    return out;
}

int sl_bench_verbs_listen(struct sl_bench_verbs_side *side, const char *address, uint16_t *port)
{
    const struct sl_rdma_library *library = side->library;
    struct sockaddr_in at = address_of(address, 0);
    if (library->create_id(side->events, &side->listener, NULL, RDMA_PS_TCP) != 0 ||
        library->bind_addr(side->listener, (struct sockaddr *)&at) != 0 ||
        library->listen(side->listener, (int)side->count) != 0) {
        return fail("it cannot listen");
    }
    *port = ntohs(library->get_src_port(side->listener));
    return 0;
}

static struct rdma_conn_param parameters(void)
{
    return (struct rdma_conn_param){.responder_resources = READS,
                                    .initiator_depth = READS,
                                    .retry_count = RETRY_COUNT,
                                    .rnr_retry_count = RETRY_COUNT};
}

static int accept_one(struct sl_bench_verbs_side *side, uint32_t index, struct rdma_cm_id *id)
{
    struct rdma_conn_param param = parameters();
    const int err = make_queue_pair(side, index, id);
    return err == 0 && side->library->accept(id, &param) != 0 ? fail("it cannot accept") : err;
}

int sl_bench_verbs_accept(struct sl_bench_verbs_side *side)
{
    uint32_t accepted = 0, established = 0;
    int err = 0;
    while (err == 0 && established < side->count) {
        enum rdma_cm_event_type type;
        struct rdma_cm_id *id;
        err = next_event(side, &type, &id);
        if (err == 0 && type == RDMA_CM_EVENT_CONNECT_REQUEST && accepted < side->count) {
            err = accept_one(side, accepted++, id);
        } else if (err == 0 && type == RDMA_CM_EVENT_ESTABLISHED) {
            established++;
        } else if (err == 0) {
            err = unexpected(side, type);
        }
    }
    return err;
}

static int connect_one(struct sl_bench_verbs_side *side, uint32_t index, struct sockaddr_in *to)
{
    const struct sl_rdma_library *library = side->library;
    struct rdma_conn_param param = parameters();
    struct rdma_cm_id *id;
    if (library->create_id(side->events, &id, NULL, RDMA_PS_TCP) != 0 ||
        library->resolve_addr(id, NULL, (struct sockaddr *)to, RESOLVE_MS) != 0) {
        return fail("the address cannot be resolved");
    }
    int err = await(side, RDMA_CM_EVENT_ADDR_RESOLVED);
    if (err == 0 && library->resolve_route(id, RESOLVE_MS) != 0) {
        err = fail("there is no route");
    }
    err = err != 0 ? err : await(side, RDMA_CM_EVENT_ROUTE_RESOLVED);
    err = err != 0 ? err : make_queue_pair(side, index, id);
    if (err == 0 && library->connect(id, &param) != 0) {
        err = fail("it cannot connect");
    }
    return err != 0 ? err : await(side, RDMA_CM_EVENT_ESTABLISHED);
}

int sl_bench_verbs_connect(struct sl_bench_verbs_side *side, const char *address, uint16_t port)
{
    struct sockaddr_in to = address_of(address, port);
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < side->count; i++) {
        err = connect_one(side, i, &to);
    }
    return err;
}
