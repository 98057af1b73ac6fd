#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net/rdma/nic.h"
#include "tests/support/unit.h"
#include "tests/unit/net/rdma/fake.h"

#define RAILS      3
#define EVENTS_MAX 64

/* One device, and a rail of each of three reactors. */
struct fixture {
    struct rdma_fake fake;
    struct sl_rdma_nic nics[RAILS];
    struct sl_rdma_member members[RAILS];
    struct ibv_cq queues[RAILS];
    struct ibv_qp pairs[RAILS];
    struct ibv_async_event events[EVENTS_MAX];
    uint32_t written, read, acknowledged;
};

static struct fixture *current;

static int fake_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
    assert_ptr_equal(context, &current->fake.verbs);
    if (current->read == current->written) {
        errno = EAGAIN;
        return -1;
    }
    *event = current->events[current->read++];
    return 0;
}

static void fake_ack_async_event(struct ibv_async_event *event)
{
    current->acknowledged++;
}

static void setup(struct fixture *fixture)
{
    current = fixture;
    rdma_fake_init(&fixture->fake);
    fixture->fake.library.get_async_event = fake_get_async_event;
    fixture->fake.library.ack_async_event = fake_ack_async_event;
    fixture->fake.verbs.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fixture->fake.verbs.cmd_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fixture->fake.device.dev_path[0] = '/';
    for (uint32_t i = 0; i < RAILS; i++) {
        bool is_first = false;
        fixture->nics[i] = fixture->fake.nic;
        fixture->queues[i].cq_context = &fixture->nics[i];
        fixture->pairs[i] = (struct ibv_qp){.recv_cq = &fixture->queues[i], .qp_num = 1000 + i};
        assert_int_equal(sl_rdma_device_join(&fixture->nics[i], &fixture->members[i], &is_first),
                         0);
        assert_int_equal(is_first, i == 0);
    }
}

static void teardown(struct fixture *fixture)
{
    for (uint32_t i = 0; i < RAILS; i++) {
        sl_rdma_device_leave(&fixture->members[i]);
    }
    assert_int_equal(fixture->read, fixture->acknowledged);
    close(fixture->fake.verbs.async_fd);
    close(fixture->fake.verbs.cmd_fd);
    rdma_fake_fini(&fixture->fake);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static void happen_to(struct fixture *fixture, uint32_t nic, enum ibv_event_type type)
{
    fixture->events[fixture->written++] =
        (struct ibv_async_event){.element.qp = &fixture->pairs[nic], .event_type = type};
}

static bool is_awake(const struct fixture *fixture, uint32_t nic)
{
    struct pollfd fd = {.fd = fixture->members[nic].wake_fd, .events = POLLIN};
    return poll(&fd, 1, 0) == 1;
}

CASE(next__what_is_another_s_goes_to_him)
{
    struct sl_rdma_device_event event;
    happen_to(fixture, 2, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_false(sl_rdma_device_next(&fixture->members[0], &event));
    assert_int_equal(fixture->acknowledged, 1); /* who destroys a queue pair waits for it */
    assert_false(is_awake(fixture, 0));
    assert_false(is_awake(fixture, 1));
    assert_true(is_awake(fixture, 2));
    assert_true(sl_rdma_device_next(&fixture->members[2], &event));
    assert_int_equal(event.type, IBV_EVENT_QP_LAST_WQE_REACHED);
    assert_int_equal(event.queue_pair, 1002);
    assert_false(sl_rdma_device_next(&fixture->members[2], &event));
    assert_false(is_awake(fixture, 2));
}

CASE(next__what_is_the_device_s_goes_to_all)
{
    struct sl_rdma_device_event event;
    fixture->events[fixture->written++] =
        (struct ibv_async_event){.element.port_num = 1, .event_type = IBV_EVENT_PORT_ERR};
    for (uint32_t i = 0; i < RAILS; i++) {
        assert_true(sl_rdma_device_next(&fixture->members[i], &event));
        assert_int_equal(event.type, IBV_EVENT_PORT_ERR);
        assert_false(sl_rdma_device_next(&fixture->members[i], &event));
    }
    assert_int_equal(fixture->acknowledged, 1);
}

CASE(next__many_come_in_order)
{
    struct sl_rdma_device_event event;
    for (uint32_t i = 0; i < 50; i++) {
        fixture->pairs[1].qp_num = i;
        happen_to(fixture, 1, IBV_EVENT_QP_FATAL);
        assert_false(sl_rdma_device_next(&fixture->members[0], &event));
    }
    for (uint32_t i = 0; i < 50; i++) {
        assert_true(sl_rdma_device_next(&fixture->members[1], &event));
        assert_int_equal(event.queue_pair, i);
    }
    assert_false(sl_rdma_device_next(&fixture->members[1], &event));
}

CASE(leave__others_still_hear)
{
    struct sl_rdma_device_event event;
    happen_to(fixture, 1, IBV_EVENT_QP_FATAL);
    happen_to(fixture, 2, IBV_EVENT_QP_FATAL);
    sl_rdma_device_leave(&fixture->members[1]);
    assert_false(sl_rdma_device_next(&fixture->members[1], &event));
    assert_true(sl_rdma_device_next(&fixture->members[2], &event));
    assert_int_equal(event.queue_pair, 1002);
    assert_int_equal(fixture->acknowledged, 2);
}

/* Nothing to be read now, rather than nothing ever. */
static bool leads_somewhere(int fd)
{
    eventfd_t value;
    return read(fd, &value, sizeof value) == -1 && errno == EAGAIN;
}

static void leave_all(struct fixture *fixture)
{
    for (uint32_t i = 0; i < RAILS; i++) {
        assert_true(leads_somewhere(fixture->fake.verbs.async_fd));
        assert_true(leads_somewhere(fixture->fake.verbs.cmd_fd));
        sl_rdma_device_leave(&fixture->members[i]);
    }
}

CASE(remove__all_are_told_and_the_last_lets_go)
{
    struct sl_rdma_device_event event;
    sl_rdma_device_remove(&fixture->members[1]);
    sl_rdma_device_remove(&fixture->members[2]);
    for (uint32_t i = 0; i < RAILS; i++) {
        assert_true(is_awake(fixture, i));
        assert_true(sl_rdma_device_next(&fixture->members[i], &event));
        assert_int_equal(event.type, IBV_EVENT_DEVICE_FATAL);
        assert_false(sl_rdma_device_next(&fixture->members[i], &event));
    }
    leave_all(fixture);
    assert_false(leads_somewhere(fixture->fake.verbs.async_fd));
    assert_false(leads_somewhere(fixture->fake.verbs.cmd_fd));
    sl_rdma_device_remove(&fixture->members[0]);
}

CASE(leave__a_device_that_is_there_stays_open)
{
    leave_all(fixture);
    assert_true(leads_somewhere(fixture->fake.verbs.async_fd));
    assert_true(leads_somewhere(fixture->fake.verbs.cmd_fd));
}

CASE(is_there__by_its_entry_in_sysfs)
{
    assert_true(sl_rdma_device_is_there(&fixture->members[0]));
    fixture->fake.device.dev_path[1] = '?';
    assert_false(sl_rdma_device_is_there(&fixture->members[0]));
    sl_rdma_device_leave(&fixture->members[0]);
    assert_true(sl_rdma_device_is_there(&fixture->members[0]));
}
