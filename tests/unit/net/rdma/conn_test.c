#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/rdma/cm.h"
#include "net/rdma/conn.h"
#include "net/rdma/end.h"
#include "net/rdma/hello.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/wire.h"

#define MEMORY_BYTES (1U << 20)

struct fixture {
    struct rdma_wire wire;
    struct rdma_wire_end *a, *b;
    uint8_t *memory;
};

static int done(struct ibv_qp *queue_pair, struct ibv_qp_attr *attr, int mask)
{
    return 0;
}

static int free_srq(struct ibv_srq *srq)
{
    return 0;
}

static int free_cq(struct ibv_cq *cq)
{
    return 0;
}

static int free_pd(struct ibv_pd *pd)
{
    return 0;
}

static void no_events(struct ibv_cq *cq, unsigned count)
{
}

static void setup(struct fixture *fixture)
{
    rdma_wire_init(&fixture->wire);
    fixture->a = &fixture->wire.ends[0];
    fixture->b = &fixture->wire.ends[1];
    fixture->memory = aligned_alloc(4096, MEMORY_BYTES);
    assert_non_null(fixture->memory);
    assert_int_equal(
        sl_rdma_memory_register(&fixture->wire.fake.rdma.base, fixture->memory, MEMORY_BYTES), 0);
    struct sl_rdma_library *library = &fixture->wire.fake.library;
    library->modify_qp = done;
    library->destroy_srq = free_srq;
    library->destroy_cq = free_cq;
    library->ack_cq_events = no_events;
    library->dealloc_pd = free_pd;
}

static void teardown(struct fixture *fixture)
{
    rdma_wire_fini(&fixture->wire);
    free(fixture->memory);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

/* As the device does with a queue pair that was told to stop. */
static void let_stop(struct rdma_wire_end *end)
{
    end->conn->link.last_wqe = true;
    end->conn->link.sends_completed = end->conn->link.sends_posted;
}

static uint32_t visit_until_closed(struct rdma_wire_end *end)
{
    uint32_t visits = 0;
    uint32_t before = end->wire->fake.rdma.conns.count;
    while (end->wire->fake.rdma.conns.count == before) {
        assert_true(++visits < 10);
        (void)sl_rdma_conn_visit(end->conn);
        end->wire->fake.nic.empties++;
    }
    return visits;
}

/* ---- The end ----------------------------------------------------------------------------------
 */

/* A payload that the peer has not read. */
CASE(nic_lose__what_connections_hold_is_given_back_before_the_device)
{
    struct sl_rdma *rdma = &fixture->wire.fake.rdma;
    struct sl_rdma_nic *nic = &fixture->wire.fake.nic;
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 100000, 1);
    rdma_wire_send(fixture->a, fixture->memory, NULL);
    rdma_wire_turn(&fixture->wire);
    sl_rdma_nic_lose(nic, "a test");
    assert_true(rdma->awake);
    let_stop(fixture->a);
    let_stop(fixture->b);
    sl_rdma_nic_close_gone(rdma);
    assert_non_null(nic->pd);
    (void)visit_until_closed(fixture->a);
    (void)visit_until_closed(fixture->b);
    sl_rdma_nic_close_gone(rdma);
    assert_null(nic->pd);
    assert_null(rdma->nics);
    assert_int_equal(fixture->wire.fake.live_bytes, 0);
    rdma->lost = NULL; /* the rail is not of the heap */
}

/* Its promise is given back, and it has a queue pair no more. */
CASE(nic_lose__a_connection_between_two_queue_pairs_keeps_the_device)
{
    struct sl_rdma *rdma = &fixture->wire.fake.rdma;
    struct sl_rdma_nic *nic = &fixture->wire.fake.nic;
    rdma_wire_frame(fixture->memory, SL_FRAME_REQUEST, 1, 100000, 1);
    rdma_wire_send(fixture->a, fixture->memory, NULL);
    rdma_wire_turn(&fixture->wire);
    let_stop(fixture->b);
    sl_rdma_conn_end(fixture->b->conn, SL_ERR_CLOSED);
    (void)visit_until_closed(fixture->b);
    fixture->a->conn->phase = SL_RDMA_RESOLVING;
    sl_rdma_conn_drop_link(fixture->a->conn);
    assert_int_equal(nic->promises, 0);
    sl_rdma_nic_lose(nic, "a test");
    sl_rdma_nic_close_gone(rdma);
    assert_non_null(nic->pd);
    (void)visit_until_closed(fixture->a);
    sl_rdma_nic_close_gone(rdma);
    assert_null(nic->pd);
    rdma->lost = NULL;
}

CASE(end__completions_are_looked_at_before_the_queue_pair_goes)
{
    struct sl_rdma_conn *conn = fixture->a->conn;
    let_stop(fixture->a);
    sl_rdma_conn_end(conn, SL_ERR_CLOSED);
    assert_false(sl_rdma_conn_visit(conn));
    assert_false(sl_rdma_conn_visit(conn)); /* the completion queue was not seen empty since */
    assert_true(sl_list_linked(&conn->ready));
    fixture->wire.fake.nic.empties++;
    assert_true(sl_rdma_conn_visit(conn));
    assert_int_equal(fixture->wire.fake.rdma.conns.count, 1);
}

/* All that it was to say was said before it left, and may not have been looked at. */
CASE(disconnected__what_came_before_the_connection_was_open_counts)
{
    struct sl_rdma_conn *conn = fixture->b->conn;
    conn->phase = SL_RDMA_ACCEPTING;
    conn->accept_pending = true;
    sl_rdma_conn_disconnected(conn);
    (void)sl_rdma_conn_visit(conn);
    assert_int_equal(conn->phase, SL_RDMA_ACCEPTING);
    assert_true(sl_list_linked(&conn->ready));
    fixture->wire.fake.nic.empties++;
    (void)sl_rdma_conn_visit(conn);
    assert_int_equal(conn->phase, SL_RDMA_ENDED);
    assert_int_equal(conn->end.err, SL_ERR_CLOSED);
}

/* Nobody would give the buffers back. */
CASE(credit_heard__without_a_queue_pair_nothing_is_promised)
{
    struct sl_rdma_conn *conn = fixture->b->conn;
    const struct sl_rdma_packet head = {
        .kind = SL_RDMA_CREDIT_UPDATE, .flags = SL_RDMA_STALLED, .limit = SL_RDMA_WINDOW_MIN};
    sl_rdma_conn_drop_link(conn);
    conn->phase = SL_RDMA_LIVE;
    rdma_wire_inject(fixture->b, &head, sizeof head);
    assert_int_equal(conn->phase, SL_RDMA_LIVE);
    assert_int_equal(conn->reserved, 0);
    assert_int_equal(fixture->wire.fake.nic.promises, 1);
}

/* ---- The event channel ------------------------------------------------------------------------
 */

static struct rdma_event_channel the_channel;
static uint32_t channels_destroyed;

static struct ibv_context *devices[1];

static struct ibv_context **get_devices(int *count)
{
    *count = 1;
    return devices;
}

static void free_devices(struct ibv_context **list)
{
    assert_ptr_equal(list, devices);
}

static const char *get_device_name(struct ibv_device *device)
{
    return device->name;
}

static struct rdma_event_channel *create_channel(void)
{
    return &the_channel;
}

static void destroy_channel(struct rdma_event_channel *channel)
{
    assert_ptr_equal(channel, &the_channel);
    channels_destroyed++;
}

CASE(cm_keep__the_channel_outlives_the_transport)
{
    struct sl_rdma *rdma = &fixture->wire.fake.rdma;
    struct sl_rdma_library *library = &fixture->wire.fake.library;
    library->get_devices = get_devices;
    library->free_devices = free_devices;
    devices[0] = &fixture->wire.fake.verbs;
    library->create_event_channel = create_channel;
    library->destroy_event_channel = destroy_channel;
    channels_destroyed = 0;
    the_channel.fd = eventfd(0, EFD_CLOEXEC);
    rdma->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(sl_rdma_cm_open(rdma), 0);
    struct sl_rdma_channel *pins = sl_rdma_cm_keep(rdma);
    sl_rdma_cm_close(rdma);
    assert_int_equal(channels_destroyed, 0);
    sl_rdma_cm_let_go(&pins);
    assert_null(pins);
    assert_int_equal(channels_destroyed, 1);
    close(rdma->epoll_fd);
    close(the_channel.fd);
}

CASE(cm_open__iwarp_is_no_device)
{
    struct sl_rdma_library *library = &fixture->wire.fake.library;
    library->get_devices = get_devices;
    library->free_devices = free_devices;
    library->get_device_name = get_device_name;
    devices[0] = &fixture->wire.fake.verbs;
    fixture->wire.fake.device.transport_type = IBV_TRANSPORT_IWARP;
    assert_int_equal(sl_rdma_cm_open(&fixture->wire.fake.rdma), SL_ERR_UNSUPPORTED);
}

static struct ibv_device_attr device_attr;

static int query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
    *attr = device_attr;
    return 0;
}

CASE(caps_ask__refuses_devices_that_cannot_be_used)
{
    struct sl_rdma_nic *nic = &fixture->wire.fake.nic;
    fixture->wire.fake.library.query_device = query_device;
    device_attr = (struct ibv_device_attr){.max_srq = 1, .max_srq_wr = 100, .max_cqe = 1000};
    assert_int_equal(sl_rdma_caps_ask(nic), 0);
    assert_int_equal(nic->caps.srq_max, 100);
    device_attr.max_srq = 0;
    assert_int_equal(sl_rdma_caps_ask(nic), SL_ERR_UNSUPPORTED);
    device_attr.max_srq = 1;
    fixture->wire.fake.device.transport_type = IBV_TRANSPORT_IWARP;
    assert_int_equal(sl_rdma_caps_ask(nic), SL_ERR_UNSUPPORTED);
}

SL_CASE(hello__is_checked)
{
    struct sl_rdma_hello hello = {.limit = 8, .reads = 1};
    assert_true(sl_rdma_hello_is_sane(&hello));
    hello.limit = UINT32_MAX;
    assert_false(sl_rdma_hello_is_sane(&hello));
    hello.limit = 0;
    assert_false(sl_rdma_hello_is_sane(&hello));
    hello = (struct sl_rdma_hello){.limit = 8};
    assert_false(sl_rdma_hello_is_sane(&hello));
}
