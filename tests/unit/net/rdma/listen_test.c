/* Who asks to connect and is turned away: both sides. */

#include <arpa/inet.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/rdma/access.h"
#include "net/rdma/conn.h"
#include "net/rdma/connect.h"
#include "net/rdma/listen.h"
#include "net/rdma/send.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/wire.h"

struct fixture {
    struct rdma_wire wire;
    struct rdma_wire_end *a;
};

static int done(struct ibv_qp *queue_pair, struct ibv_qp_attr *attr, int mask)
{
    return 0;
}

static void setup(struct fixture *fixture)
{
    rdma_wire_init(&fixture->wire);
    fixture->a = &fixture->wire.ends[0];
    fixture->wire.fake.library.modify_qp = done;
}

static void teardown(struct fixture *fixture)
{
    rdma_wire_fini(&fixture->wire);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static struct rdma_cm_id listening, asking;
static struct ibv_qp asked_pair;
static struct sl_rdma_hello rejection;
static uint32_t rejections;

static int create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context,
                     enum rdma_port_space space)
{
    listening = (struct rdma_cm_id){.context = context};
    *id = &listening;
    return 0;
}

static int bind_address(struct rdma_cm_id *id, struct sockaddr *address)
{
    return 0;
}

static int start_listening(struct rdma_cm_id *id, int backlog)
{
    return 0;
}

static uint16_t source_port(struct rdma_cm_id *id)
{
    return htons(7);
}

static int create_pair(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
    asked_pair = (struct ibv_qp){.context = id->verbs, .qp_num = 4711};
    id->qp = &asked_pair;
    return 0;
}

static int reject(struct rdma_cm_id *id, const void *data, uint8_t bytes)
{
    assert_ptr_equal(id, &asking);
    assert_int_equal(bytes, sizeof rejection);
    memcpy(&rejection, data, sizeof rejection);
    rejections++;
    return 0;
}

static const struct sl_transport_events nobody;
static const struct sl_endpoint any = {.scheme = SL_ENDPOINT_RDMA, .host = "10.9.0.1"};

static void start(struct fixture *fixture, struct sl_endpoint *bound)
{
    struct sl_rdma_library *library = &fixture->wire.fake.library;
    library->create_id = create_id;
    library->bind_addr = bind_address;
    library->listen = start_listening;
    library->get_src_port = source_port;
    library->create_qp = create_pair;
    library->reject = reject;
    rejections = 0;
    assert_int_equal(sl_rdma_listen(&fixture->wire.fake.rdma.base, &any, &nobody, NULL, bound), 0);
}

/* A connect request comes, and is turned away, once. Why. */
static uint32_t ask_to_connect(struct fixture *fixture, const struct sl_rdma_hello *hello)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    struct sl_endpoint bound;
    start(fixture, &bound);
    asking = (struct rdma_cm_id){.verbs = &fake->verbs};
    const struct sl_rdma_cm_event event = {
        .type = RDMA_CM_EVENT_CONNECT_REQUEST, .id = &asking, .has_hello = true, .hello = *hello};
    sl_rdma_listen_request(fake->rdma.listeners, &event);
    sl_rdma_listen_close(&fake->rdma);
    while (fake->rdma.conns.count > 2) {
        struct sl_rdma_conn *conn =
            SL_CONTAINER_OF(sl_list_pop(&fake->rdma.ready), struct sl_rdma_conn, ready);
        assert_int_equal(conn->phase, SL_RDMA_ENDED);
        (void)sl_rdma_conn_visit(conn);
        fake->nic.empties++;
    }
    assert_int_equal(rejections, 1);
    assert_int_equal(rejection.magic, SL_RDMA_MAGIC);
    assert_int_equal(rejection.version, SL_RDMA_VERSION);
    return rejection.limit;
}

CASE(listen_request__says_why_not)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    struct sl_rdma_hello hello = {
        .magic = SL_RDMA_MAGIC, .version = SL_RDMA_VERSION, .limit = 8, .reads = 1};
    fake->rdma.base.connections_max = 0;
    assert_int_equal(ask_to_connect(fixture, &hello), SL_RDMA_FULL);
    fake->rdma.base.connections_max = 100;
    const uint32_t entries = fake->nic.cq_entries;
    fake->nic.caps.resizes = false;
    fake->nic.cq_entries = fake->nic.cq_promised + SL_RDMA_SENDS;
    assert_int_equal(ask_to_connect(fixture, &hello), SL_RDMA_DEVICE_FULL);
    fake->nic.cq_entries = entries;
    const uint32_t promised = fake->nic.pool.reserved;
    fake->nic.pool.reserved = fake->nic.pool.total[SL_RDMA_BLOCK_RECEIVE];
    fake->live_bytes_max = 1;
    assert_int_equal(ask_to_connect(fixture, &hello), SL_RDMA_NO_MEMORY);
    fake->nic.pool.reserved = promised;
    hello.reads = 0;
    assert_int_equal(ask_to_connect(fixture, &hello), SL_RDMA_NOT_SANE);
    hello.reads = 1;
    hello.target = 1;
    assert_int_equal(ask_to_connect(fixture, &hello), SL_RDMA_NO_TARGET);
    hello.version = 1;
    assert_int_equal(ask_to_connect(fixture, &hello), SL_RDMA_NO_REASON);
}

static struct rdma_event_channel first_channel, other_channel;

static struct rdma_event_channel *create_channel(void)
{
    return &first_channel;
}

static void destroy_channel(struct rdma_event_channel *channel)
{
    assert_ptr_equal(channel, &first_channel);
}

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

static int migrate(struct rdma_cm_id *id, struct rdma_event_channel *channel)
{
    assert_ptr_equal(id, &asking);
    assert_ptr_equal(channel, &other_channel);
    assert_null(id->context);
    return 0;
}

static void open_channel(struct fixture *fixture)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    struct sl_rdma_library *library = &fake->library;
    library->get_devices = get_devices;
    library->free_devices = free_devices;
    devices[0] = &fake->verbs;
    library->create_event_channel = create_channel;
    library->destroy_event_channel = destroy_channel;
    library->migrate_id = migrate;
    first_channel.fd = eventfd(0, EFD_CLOEXEC);
    fake->rdma.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    assert_int_equal(sl_rdma_cm_open(&fake->rdma), 0);
}

/* The other one turns it away, since it may have no connection. */
CASE(listen_request__goes_to_the_transport_that_it_names)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    struct sl_rdma other = {.base.reactor = fake->rdma.base.reactor,
                            .library = &fake->library,
                            .cm = &other_channel,
                            .options.number = 1};
    other.base.cells = &other.base.own_cells;
    struct sl_endpoint bound, same;
    open_channel(fixture);
    start(fixture, &bound);
    assert_int_equal(bound.port, 7);
    assert_int_equal(sl_rdma_listen(&other.base, &bound, &nobody, NULL, &same), 0);
    assert_true(sl_endpoint_same(&bound, &same));
    assert_int_equal(sl_rdma_listen(&other.base, &bound, &nobody, NULL, &same), SL_ERR_IN_USE);
    fake->rdma.base.connections_max = 100;
    asking = (struct rdma_cm_id){.verbs = &fake->verbs};
    const struct sl_rdma_cm_event event = {.type = RDMA_CM_EVENT_CONNECT_REQUEST,
                                           .id = &asking,
                                           .has_hello = true,
                                           .hello = {.magic = SL_RDMA_MAGIC,
                                                     .version = SL_RDMA_VERSION,
                                                     .limit = 8,
                                                     .reads = 1,
                                                     .target = 1}};
    sl_rdma_listen_request(fake->rdma.listeners, &event);
    assert_int_equal(rejections, 1);
    assert_int_equal(rejection.limit, SL_RDMA_FULL);
    sl_rdma_listen_close(&other);
    sl_rdma_listen_request(fake->rdma.listeners, &event);
    assert_int_equal(rejections, 2);
    assert_int_equal(rejection.limit, SL_RDMA_NO_TARGET);
    sl_rdma_listen_close(&fake->rdma);
    sl_rdma_cm_close(&fake->rdma);
    close(fake->rdma.epoll_fd);
    close(first_channel.fd);
}

/* ---- Access to memory -------------------------------------------------------------------------
 */

static unsigned given[8]; /* access, by each change of a queue pair's */
static uint32_t given_count;

static int init_attributes(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask)
{
    assert_non_null(id->qp);
    attr->qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
    *mask = IBV_QP_STATE | (attr->qp_state == IBV_QPS_INIT ? IBV_QP_ACCESS_FLAGS : 0);
    return 0;
}

static int note_access(struct ibv_qp *queue_pair, struct ibv_qp_attr *attr, int mask)
{
    assert_non_null(queue_pair);
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) {
        given[given_count++] = attr->qp_access_flags;
    }
    return 0;
}

/* With a queue pair, librdmacm would modify it. */
static int accept_without(struct rdma_cm_id *id, struct rdma_conn_param *param)
{
    assert_null(id->qp);
    assert_non_null(param->private_data);
    return 0;
}

CASE(access_accept__gives_none_before_the_peer_is_welcome)
{
    struct sl_rdma_library *library = &fixture->wire.fake.library;
    struct sl_rdma_conn *conn = fixture->a->conn;
    library->init_qp_attr = init_attributes;
    library->modify_qp = note_access;
    library->accept = accept_without;
    given_count = 0;
    conn->base.is_welcome = false;
    assert_int_equal(sl_rdma_access_accept(conn), 0);
    assert_non_null(conn->link.id->qp);
    sl_rdma_send_flush(conn);
    assert_int_equal(given_count, 1);
    assert_int_equal(given[0], 0);
    conn->base.is_welcome = true;
    sl_rdma_send_flush(conn);
    sl_rdma_send_flush(conn);
    assert_int_equal(given_count, 2);
    assert_int_equal(given[1], IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
}

/* It is not asked again and again, as one that is too busy to say anything. */
CASE(rejected__who_says_why_is_not_asked_again)
{
    struct sl_rdma_conn *conn = fixture->a->conn;
    conn->phase = SL_RDMA_RESOLVING;
    struct sl_rdma_cm_event event = {.type = RDMA_CM_EVENT_REJECTED, .status = 28};
    sl_rdma_connect_event(conn, &event);
    assert_int_equal(conn->phase, SL_RDMA_RESOLVING);
    assert_int_equal(conn->connect.attempts, 1);
    event.has_hello = true;
    event.hello = (struct sl_rdma_hello){
        .magic = SL_RDMA_MAGIC, .version = SL_RDMA_VERSION, .limit = SL_RDMA_DEVICE_FULL};
    sl_rdma_connect_event(conn, &event);
    assert_int_equal(conn->phase, SL_RDMA_ENDED);
    assert_int_equal(conn->end.err, SL_ERR_REFUSED);
}

static uint32_t asked_again;

static int no_option(struct rdma_cm_id *id, int level, int name, void *value, size_t bytes)
{
    (void)id;
    (void)level;
    (void)name;
    (void)value;
    (void)bytes;
    return 0;
}

static int resolve_address(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                           int timeout_ms)
{
    (void)id;
    (void)from;
    (void)timeout_ms;
    assert_int_equal(to->sa_family, AF_INET);
    asked_again++;
    return 0;
}

CASE(rejected__a_busy_listener_is_asked_again_after_a_pause)
{
    struct rdma_fake *fake = &fixture->wire.fake;
    struct sl_rdma_conn *conn = fixture->a->conn;
    fake->library.create_id = create_id;
    fake->library.set_option = no_option;
    fake->library.resolve_addr = resolve_address;
    conn->phase = SL_RDMA_RESOLVING;
    conn->connect.endpoint = any;
    asked_again = 0;
    const struct sl_rdma_cm_event event = {.type = RDMA_CM_EVENT_REJECTED, .status = 28};
    sl_rdma_connect_event(conn, &event);
    assert_null(conn->link.id);
    assert_false(sl_rdma_connect_visit(conn));
    fake->rdma.awake = false;
    rdma_fake_sleep(fake, 10);
    assert_true(fake->rdma.awake);
    assert_true(sl_list_linked(&conn->ready));
    assert_true(sl_rdma_connect_visit(conn));
    assert_int_equal(asked_again, 1);
    assert_ptr_equal(conn->link.id, &listening);
    assert_false(sl_rdma_connect_visit(conn));
    rdma_fake_sleep(fake, fake->rdma.base.peer_timeout_ms + 1);
    assert_int_equal(conn->end.err, SL_ERR_DEADLINE);
}
