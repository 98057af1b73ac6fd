/* A store that accepts requests and never answers: each request ends by its own deadline. */
#include "net/store/remote_metastore.h"

#include <stdio.h>
#include <unistd.h>

#include "core/clock.h"
#include "real_etcd.h"
#include "tests/support/unit.h"

#define LONG_NS  (60 * SL_CLOCK_NS_PER_S)
#define SHORT_NS (50 * SL_CLOCK_NS_PER_MS)

struct read {
    struct sl_metastore_request request;
    bool is_over;
};

static void on_done(void *ctx, struct sl_metastore_request *request)
{
    struct read *read = ctx;
    assert_false(read->is_over);
    read->is_over = true;
    sl_metastore_answer_fini(&request->answer);
}

static bool is_over(void *ctx)
{
    return ((const struct read *)ctx)->is_over;
}

static void send_read(struct sl_remote_metastore *remote, struct read *read, uint64_t timeout_ns)
{
    *read = (struct read){.request = {.kind = SL_METASTORE_READ,
                                      .timeout_ns = timeout_ns,
                                      .key = "k",
                                      .done = on_done,
                                      .ctx = read}};
    sl_metastore_request(sl_remote_metastore_base(remote), &read->request);
}

SL_CASE(request__ends_by_its_own_deadline_behind_a_longer_one)
{
    struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_HTTP};
    const struct sl_reactor_options options = {.name = "store", .core = -1};
    struct sl_reactor *reactor;
    struct sl_remote_metastore *remote;
    struct read first, behind, last;
    uint16_t port;
    const int listener = real_etcd_listen(&port); /* never accepts */
    (void)snprintf(address.url, sizeof address.url, "http://127.0.0.1:%u", port);
    assert_int_equal(sl_reactor_create(&options, &reactor), 0);
    assert_int_equal(sl_remote_metastore_create(reactor, &address, &remote), 0);
    assert_int_equal(sl_reactor_attach(reactor), 0);
    send_read(remote, &first, LONG_NS);
    send_read(remote, &behind, SHORT_NS);
    sl_reactor_drive_until(reactor, is_over, &behind);
    assert_int_equal(behind.request.answer.err, SL_ERR_DEADLINE);
    assert_int_equal(behind.request.timeout_ns, SHORT_NS); /* so that it can be repeated */
    assert_false(first.is_over);

    /* The one in flight ends with its connection; those behind it are cancelled. */
    send_read(remote, &last, LONG_NS);
    (void)close(listener);
    assert_true(sl_remote_metastore_destroy(&remote, LONG_NS));
    assert_true(first.is_over && last.is_over);
    assert_int_equal(first.request.timeout_ns, LONG_NS);
    assert_int_not_equal(last.request.answer.err, 0);
    sl_reactor_detach(reactor);
    sl_reactor_destroy(&reactor);
}
