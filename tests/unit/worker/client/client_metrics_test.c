/* The page of a client's metrics: complete, and equal to what the client has done. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "core/log.h"
#include "tests/unit/worker/client/client_fixture.h"
#include "worker/client/client_internal.h"

#define KEYS   64
#define STEPS  10
#define LATE_S 3600

static char page[64 << 10];

static void read_page(const struct sl_client *client)
{
    const int bytes = sl_client_metrics(client, page, sizeof page);
    assert_int_equal(bytes, strlen(page));
}

/* The sum of a family's series; without one the test fails. */
static uint64_t value_of(const char *family)
{
    const size_t bytes = strlen(family);
    uint64_t sum = 0;
    uint32_t count = 0;
    for (const char *line = page; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, family, bytes) == 0 && (line[bytes] == ' ' || line[bytes] == '{')) {
            sum += strtoull(strchr(line, ' '), NULL, 10);
            count++;
        }
    }
    if (count == 0) {
        fail_msg("no %s in:\n%s", family, page);
    }
    return sum;
}

static void push(struct sl_client *client, struct sl_table *table)
{
    uint64_t keys[KEYS];
    float ones[KEYS];
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = sl_hash_key(i);
        ones[i] = 1;
    }
    assert_int_equal(sl_client_push(client, table, keys, KEYS, ones, TIMEOUT_MS), 0);
}

CLIENT_CASE(client_metrics__equal_the_statistics)
{
    const struct sl_table_spec spec = fixture_sparse("counted", 1);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    for (uint32_t i = 0; i < STEPS; i++) {
        push(fixture.client, table);
    }
    struct sl_client_stats stats, later;
    do { /* a heartbeat may be sent meanwhile */
        sl_client_stats(fixture.client, &stats);
        read_page(fixture.client);
        sl_client_stats(fixture.client, &later);
    } while (stats.bytes_sent != later.bytes_sent);
    assert_int_equal(value_of("starling_client_step_seconds_count"), STEPS);
    assert_int_equal(stats.requests, 2 * STEPS); /* to both shards */
    assert_int_equal(value_of("starling_client_requests_total"), stats.requests);
    assert_non_null(strstr(page, "starling_client_requests_total{op=\"push\"} 20\n"));
    assert_int_equal(value_of("starling_sent_bytes_total"), stats.bytes_sent);
    assert_true(stats.bytes_sent > STEPS * KEYS * sizeof(uint64_t));
    assert_int_equal(value_of("starling_client_replies_total"), stats.replies);
    assert_int_equal(value_of("starling_client_request_seconds_count"), stats.replies);
    assert_int_equal(value_of("starling_client_failures_total"), 0);
    assert_int_equal(value_of("starling_client_reconnects_total"), 0);
    assert_int_equal(value_of("starling_client_in_flight"), 0);
}

CLIENT_CASE(client_metrics__count_a_reconnect)
{
    const struct sl_table_spec spec = fixture_sparse("cut", 1);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    uint64_t reconnects = 0;
    do { /* unless the new connections are there before the push, it waits for them */
        const uint64_t before = reconnects;
        sl_cluster_cut(fixture.cluster, 0);
        while (reconnects == before) {
            push(fixture.client, table);
            read_page(fixture.client);
            reconnects = value_of("starling_client_reconnects_total");
        }
        assert_int_equal(value_of("starling_client_in_flight"), 0);
    } while (value_of("starling_client_credit_wait_seconds_count") == 0);
}

CLIENT_CASE(client_metrics__need_room)
{
    const int bytes = sl_client_metrics(fixture.client, NULL, 0);
    assert_true(bytes > 0);
    page[0] = '?';
    assert_int_equal(sl_client_metrics(fixture.client, page, (size_t)bytes), bytes);
    assert_int_equal(page[0], '?');
    assert_int_equal(sl_client_metrics(fixture.client, page, (size_t)bytes + 1), bytes);
    assert_int_equal(strlen(page), bytes);
}

static bool is_late;

static uint64_t read_clock(void *ctx)
{
    return sl_clock_now_ns(sl_clock_system()) + (is_late ? LATE_S * SL_CLOCK_NS_PER_S : 0);
}

/* Returns the seconds of all steps, after one that its thread has waited for or asked for. */
static uint64_t seconds_after_step(struct sl_table *table, bool waits)
{
    const uint64_t key = 1;
    const float one = 1;
    is_late = false;
    struct sl_step *step = fixture_step(fixture.client, 0);
    assert_int_equal(sl_step_push(step, table, &key, 1, &one), 0);
    assert_int_equal(sl_step_submit(step, TIMEOUT_MS), 0);
    is_late = true;
    while (!waits && !sl_step_done(step)) {
    }
    assert_int_equal(sl_step_wait(step), 0);
    sl_step_destroy(&step);
    read_page(fixture.client);
    return value_of("starling_client_step_seconds_sum");
}

CLIENT_CASE(client_metrics__a_step_ends_when_its_waiting_thread_goes_on)
{
    if (fixture_caller_driven) {
        skip(); /* that thread runs the reactor, whose clock says when */
    }
    static const struct sl_clock clock = {.now_ns = read_clock};
    const struct sl_table_spec spec = fixture_sparse("waited", 1);
    struct sl_table *table = fixture_table(fixture.client, &spec);
    const struct sl_clock *const own = fixture.client->clock;
    fixture.client->clock = &clock;
    assert_true(seconds_after_step(table, false) < LATE_S);
    uint32_t in_time = 0; /* whose reply was here before the wait */
    while (seconds_after_step(table, true) < LATE_S) {
        assert_true(++in_time < 1000);
    }
    fixture.client->clock = own;
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
    fixture_shape = (struct shape){1, 2, 2, SL_PROTOCOL_PER_TABLE};
}

SL_UNIT_WAYS(fixture_way);
