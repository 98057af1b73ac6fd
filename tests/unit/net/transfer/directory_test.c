/* Engines that find each other in a metadata store: an HTTP server of the test. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "net/transfer/engine.h"
#include "net/transfer/record.h"
#include "pair.h"
#include "tests/support/free_port.h"
#include "tests/support/http_server.h"

struct world {
    struct http_server server;
    char url[64], key[SL_TRANSFER_NAME_BYTES + 16];
    struct sl_transfer *here, *there;
};

static void set_up(struct world *world)
{
    *world = (struct world){.here = NULL};
    http_server_start(&world->server, NULL, 0);
    (void)snprintf(world->url, sizeof world->url, "http://127.0.0.1:%u/metadata",
                   world->server.port);
    char name[32];
    (void)snprintf(name, sizeof name, "127.0.0.1:%u", free_port());
    struct sl_transfer_options options = {.name = "127.0.0.1:0", .metadata = world->url};
    assert_int_equal(sl_transfer_create(&options, &world->here), 0);
    options.name = name; /* nobody listens there when it has ended */
    assert_int_equal(sl_transfer_create(&options, &world->there), 0);
    (void)snprintf(world->key, sizeof world->key, "starling/ram/%s",
                   sl_transfer_name(world->there));
}

static void tear_down(struct world *world)
{
    sl_transfer_destroy(&world->here);
    sl_transfer_destroy(&world->there);
    for (uint32_t i = 0; i < world->server.pair_count; i++) {
        assert_null(strstr(world->server.pairs[i].key, "127.0.0.1"));
    }
    http_server_stop(&world->server);
}

#define CASE(name) SL_CASE_USING(name, struct world, fixture, set_up, tear_down)

/* Stores a record as a process would that has this name. */
static void store(struct world *world, const char *name, const char *host, uint16_t port,
                  uint64_t incarnation)
{
    struct http_server_pair *pair = &world->server.pairs[world->server.pair_count++];
    (void)snprintf(pair->key, sizeof pair->key, "starling/ram/%s", name);
    (void)snprintf(pair->value, sizeof pair->value,
                   "{\"name\": \"%s\", \"protocol\": \"starling\", \"ip_or_host_name\": \"%s\", "
                   "\"rpc_port\": %u, \"incarnation\": \"%llx\", "
                   "\"timestamp\": \"2020-01-01T00:00:00Z\"}",
                   name, host, port, (unsigned long long)incarnation);
}

static uint16_t port_of(const struct sl_transfer *transfer)
{
    return (uint16_t)atoi(strrchr(sl_transfer_name(transfer), ':') + 1);
}

static void expect_not_open(struct world *world, const char *name, int err, const char *word)
{
    struct sl_transfer_segment *segment = NULL;
    const uint64_t begin_ns = sl_clock_now_ns(sl_clock_system());
    const int got = sl_transfer_segment_open(world->here, name, PAIR_TIMEOUT_MS, &segment);
    if (got != err || strstr(sl_transfer_last_error(), word) == NULL) {
        fail_msg("%d, not %d: \"%s\" lacks \"%s\"", got, err, sl_transfer_last_error(), word);
    }
    assert_null(segment);
    assert_true(sl_clock_now_ns(sl_clock_system()) - begin_ns < SL_TEST_PATIENCE_NS / 2);
}

CASE(create__publishes_a_record_and_destroy_removes_it)
{
    const char *record = http_server_value(&fixture->server, fixture->key);
    assert_non_null(record);
    assert_non_null(strstr(record, "\"rpc_port\":"));
    assert_non_null(strstr(record, "tcp://127.0.0.1:"));
    assert_non_null(strstr(record, "priority_matrix"));
    sl_transfer_destroy(&fixture->there);
    assert_null(http_server_value(&fixture->server, fixture->key));
}

CASE(segment_open__finds_the_address_by_the_name)
{
    struct sl_transfer_segment *segment;
    assert_int_equal(sl_transfer_segment_open(fixture->here, sl_transfer_name(fixture->there),
                                              PAIR_TIMEOUT_MS, &segment),
                     0);
    sl_transfer_segment_close(&segment);
    store(fixture, "a-name", "127.0.0.1", port_of(fixture->there), fixture->there->incarnation);
    assert_int_equal(sl_transfer_segment_open(fixture->here, "a-name", PAIR_TIMEOUT_MS, &segment),
                     0);
    sl_transfer_segment_close(&segment);
    expect_not_open(fixture, "b-name", SL_ERR_NOT_FOUND, "b-name");
    expect_not_open(fixture, "", SL_ERR_INVALID, "a name has");
}

CASE(segment_open__reports_the_age_of_a_record_whose_process_has_ended)
{
    const uint16_t port = port_of(fixture->there);
    char address[64];
    store(fixture, "dead", "127.0.0.1", port, fixture->there->incarnation);
    store(fixture, "restarted", "127.0.0.1", port, fixture->there->incarnation + 1);
    expect_not_open(fixture, "restarted", SL_ERR_REFUSED, "another incarnation");
    sl_transfer_destroy(&fixture->there);
    (void)snprintf(address, sizeof address, "127.0.0.1 port %u, written", port);
    expect_not_open(fixture, "dead", SL_ERR_REFUSED, address);
    expect_not_open(fixture, "dead", SL_ERR_REFUSED, "dead");
    expect_not_open(fixture, "dead", SL_ERR_REFUSED, " d ago");
}

CASE(segment_open__refuses_a_record_without_an_address)
{
    store(fixture, "odd", "tcp://127.0.0.1", 1, 7);
    store(fixture, "blank", "", 1, 7);
    expect_not_open(fixture, "odd", SL_ERR_PROTOCOL, "odd");
    expect_not_open(fixture, "blank", SL_ERR_PROTOCOL, "blank");
}

CASE(segment_open__refuses_a_record_that_is_invalid)
{
    char name[SL_TRANSFER_NAME_BYTES + 8];
    store(fixture, "cut", "127.0.0.1", 1, 7);
    *strchr(fixture->server.pairs[fixture->server.pair_count - 1].value, '}') = '\0';
    store(fixture, "another", "127.0.0.1", 1, 7);
    struct http_server_pair *pair = &fixture->server.pairs[fixture->server.pair_count - 1];
    (void)snprintf(pair->key, sizeof pair->key, "starling/ram/mine");
    expect_not_open(fixture, "cut", SL_ERR_PROTOCOL, "record starling/ram/cut: no JSON");
    expect_not_open(fixture, "mine", SL_ERR_PROTOCOL, "another segment");
    (void)snprintf(name, sizeof name, "%0256d:1", 0);
    expect_not_open(fixture, name, SL_ERR_INVALID, "a name has");
}

SL_CASE(segment_open__refuses_a_record_that_is_too_long)
{
    struct http_server server;
    struct sl_transfer *transfer;
    struct sl_transfer_segment *segment;
    char url[64];
    http_server_start(&server, "HTTP/1.1 200 OK\r\n\r\n", SL_TRANSFER_RECORD_BYTES_MAX + 1);
    (void)snprintf(url, sizeof url, "http://127.0.0.1:%u", server.port);
    const struct sl_transfer_options options = {.name = "127.0.0.1:0", .metadata = url};
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(sl_transfer_segment_open(transfer, "a", PAIR_TIMEOUT_MS, &segment),
                     SL_ERR_TOO_LARGE);
    assert_non_null(strstr(sl_transfer_last_error(), "metadata store"));
    sl_transfer_destroy(&transfer);
    http_server_stop(&server);
}

CASE(segments__stay_open_while_the_store_is_away)
{
    struct sl_transfer_segment *segment;
    struct sl_transfer_info info;
    const char *name = sl_transfer_name(fixture->there);
    assert_int_equal(sl_transfer_segment_open(fixture->here, name, PAIR_TIMEOUT_MS, &segment), 0);
    http_server_stop(&fixture->server);
    expect_not_open(fixture, name, SL_ERR_IO, fixture->url);
    assert_int_equal(sl_transfer_segment_info(segment, &info), 0);
    assert_int_equal(info.state, SL_TRANSFER_SEGMENT_OPEN);
    sl_transfer_segment_close(&segment);
    http_server_start(&fixture->server, NULL, 0); /* for the end of the case: on another port */
}

SL_CASE(create__fails_without_its_metadata_store)
{
    struct sl_transfer *made = NULL;
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .metadata = "http://127.0.0.1:1/metadata",
                                                .start_timeout_ms = PAIR_TIMEOUT_MS};
    assert_int_equal(sl_transfer_create(&options, &made), SL_ERR_IO);
    assert_non_null(strstr(sl_transfer_last_error(), "127.0.0.1:1"));
    assert_null(made);
}
