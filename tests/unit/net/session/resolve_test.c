#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "net/session/resolve.h"
#include "tests/support/localhost.h"
#include "tests/support/unit.h"

#define TIMEOUT_NS (60 * SL_CLOCK_NS_PER_S)
#define WAIT_TURNS 60000 /* of a millisecond of real time each, at most */

/* A stepped reactor, whose clock goes only where the case moves it. */
struct fixture {
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_reactor *reactor;
    struct sl_resolve *resolve;
    uint32_t done_count;
    struct sl_resolve_found found;
};

static uint64_t now_of(void *ctx)
{
    return ((const struct fixture *)ctx)->now_ns;
}

static void setup(struct fixture *fixture)
{
    sl_log_setup(SL_LOG_OFF, "test");
    *fixture = (struct fixture){.now_ns = SL_CLOCK_NS_PER_S};
    fixture->clock = (struct sl_clock){.now_ns = now_of, .ctx = fixture};
    struct sl_reactor_options options = {
        .name = "test", .core = -1, .stepped = true, .clock = &fixture->clock, .seed = 1};
    assert_int_equal(sl_reactor_create(&options, &fixture->reactor), SL_OK);
    (void)sl_reactor_turn(fixture->reactor, fixture->now_ns);
}

static void teardown(struct fixture *fixture)
{
    sl_reactor_destroy(&fixture->reactor);
}

static void on_done(void *ctx, const struct sl_resolve_found *found)
{
    struct fixture *fixture = ctx;
    assert_non_null(fixture->resolve); /* not before start has returned */
    fixture->resolve = NULL;
    fixture->done_count++;
    fixture->found = *found;
}

static struct sl_endpoint named(const char *host)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_TCP, .port = 4242};
    snprintf(endpoint.host, sizeof endpoint.host, "%s", host);
    return endpoint;
}

static int start(struct fixture *fixture, const char *host, sl_resolve_lookup_fn *lookup)
{
    struct sl_endpoint endpoint = named(host);
    return sl_resolve_start(fixture->reactor, &endpoint, TIMEOUT_NS, lookup, on_done, fixture,
                            &fixture->resolve);
}

/* Waits for the thread, without moving the reactor's clock. */
static void turn_until_done(struct fixture *fixture)
{
    for (int i = 0; i < WAIT_TURNS && fixture->done_count == 0; i++) {
        (void)sl_reactor_turn(fixture->reactor, fixture->now_ns);
        nanosleep(&(struct timespec){.tv_nsec = SL_CLOCK_NS_PER_MS}, NULL);
    }
    assert_int_equal(fixture->done_count, 1);
}

static sem_t let_go, ended;

static void wait_for(sem_t *semaphore)
{
    while (sem_wait(semaphore) != 0) {
    }
}

static void lookup_slow(const struct sl_endpoint *endpoint, struct sl_resolve_found *found)
{
    wait_for(&let_go);
    found->addresses[0] = *endpoint;
    found->address_count = 1;
    sem_post(&ended);
}

static void setup_slow(void)
{
    assert_int_equal(sem_init(&let_go, 0, 0), 0);
    assert_int_equal(sem_init(&ended, 0, 0), 0);
}

static void teardown_slow(void)
{
    sem_destroy(&let_go);
    sem_destroy(&ended);
}

#define SLOW_CASE(name) SL_CASE_WITH(name, setup_slow(), teardown_slow())

SL_CASE(resolve_is_numeric__tells_addresses_from_names)
{
    static const char *const addresses[] = {"127.0.0.1", "0.0.0.0", "::1", "fe80::1%lo"};
    static const char *const names[] = {"localhost", "ps-0.example", "1.example", "127.0.0.1.nip"};
    for (size_t i = 0; i < sizeof addresses / sizeof addresses[0]; i++) {
        struct sl_endpoint endpoint = named(addresses[i]);
        assert_true(sl_resolve_is_numeric(&endpoint));
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct sl_endpoint endpoint = named(names[i]);
        assert_false(sl_resolve_is_numeric(&endpoint));
    }
}

SL_CASE(resolve_start__finds_localhost)
{
    SKIP_WITHOUT_LOCALHOST();
    struct fixture fixture;
    setup(&fixture);
    assert_int_equal(start(&fixture, "localhost", sl_resolve_lookup), SL_OK);
    turn_until_done(&fixture);
    assert_int_equal(fixture.found.err, SL_OK);
    assert_in_range(fixture.found.address_count, 1, SL_RESOLVE_ADDRESSES);
    for (uint32_t i = 0; i < fixture.found.address_count; i++) {
        const struct sl_endpoint *address = &fixture.found.addresses[i];
        assert_true(sl_resolve_is_numeric(address));
        assert_true(strncmp(address->host, "127.", 4) == 0 || strcmp(address->host, "::1") == 0);
        assert_int_equal(address->port, 4242);
        assert_string_equal(address->name, "localhost");
    }
    teardown(&fixture);
}

/* "invalid." is a domain that never has any (RFC 6761). */
SL_CASE(resolve_start__names_a_host_that_does_not_exist)
{
    struct fixture fixture;
    setup(&fixture);
    assert_int_equal(start(&fixture, "nobody.invalid", sl_resolve_lookup), SL_OK);
    turn_until_done(&fixture);
    assert_int_equal(fixture.found.err, SL_ERR_NOT_FOUND);
    assert_non_null(strstr(fixture.found.reason, "cannot resolve host \"nobody.invalid\": "));
    teardown(&fixture);
}

SLOW_CASE(resolve_start__ends_at_its_deadline)
{
    struct fixture fixture;
    setup(&fixture);
    assert_int_equal(start(&fixture, "slow.example", lookup_slow), SL_OK);
    (void)sl_reactor_turn(fixture.reactor, fixture.now_ns += TIMEOUT_NS - SL_CLOCK_NS_PER_S);
    assert_int_equal(fixture.done_count, 0);
    (void)sl_reactor_turn(fixture.reactor, fixture.now_ns += 2 * SL_CLOCK_NS_PER_S);
    assert_int_equal(fixture.done_count, 1);
    assert_int_equal(fixture.found.err, SL_ERR_DEADLINE);
    assert_non_null(strstr(fixture.found.reason, "\"slow.example\": no answer within 60000 ms"));
    /* The answer that comes too late is nobody's. */
    sem_post(&let_go);
    wait_for(&ended);
    for (int i = 0; i < 20; i++) {
        (void)sl_reactor_turn(fixture.reactor, fixture.now_ns);
        nanosleep(&(struct timespec){.tv_nsec = SL_CLOCK_NS_PER_MS}, NULL);
    }
    assert_int_equal(fixture.done_count, 1);
    teardown(&fixture);
}

SLOW_CASE(resolve_cancel__is_safe_at_any_moment)
{
    for (int when = 0; when < 3; when++) {
        struct fixture fixture;
        setup(&fixture);
        assert_int_equal(start(&fixture, "slow.example", lookup_slow), SL_OK);
        if (when == 0) { /* the answer is on its way, or there */
            sem_post(&let_go);
            wait_for(&ended);
        }
        sl_resolve_cancel(&fixture.resolve);
        assert_null(fixture.resolve);
        sl_resolve_cancel(&fixture.resolve);
        if (when == 1) { /* the answer comes to a reactor that lives */
            sem_post(&let_go);
            wait_for(&ended);
            (void)sl_reactor_turn(fixture.reactor, fixture.now_ns += 2 * TIMEOUT_NS);
        }
        teardown(&fixture);
        if (when == 2) { /* the answer comes to nobody */
            sem_post(&let_go);
            wait_for(&ended);
        }
        assert_int_equal(fixture.done_count, 0);
    }
}

SLOW_CASE(resolve_start__is_bounded)
{
    struct fixture fixtures[SL_RESOLVE_AT_ONCE + 1];
    for (int i = 0; i <= SL_RESOLVE_AT_ONCE; i++) {
        setup(&fixtures[i]);
    }
    /* Threads of the cases before may be about to end. */
    int started = 0;
    for (int i = 0; i < WAIT_TURNS && started < SL_RESOLVE_AT_ONCE; i++) {
        if (start(&fixtures[started], "slow.example", lookup_slow) == SL_OK) {
            started++;
        } else {
            nanosleep(&(struct timespec){.tv_nsec = SL_CLOCK_NS_PER_MS}, NULL);
        }
    }
    assert_int_equal(started, SL_RESOLVE_AT_ONCE);
    struct fixture *last = &fixtures[SL_RESOLVE_AT_ONCE];
    assert_int_equal(start(last, "slow.example", lookup_slow), SL_ERR_AGAIN);
    for (int i = 0; i < SL_RESOLVE_AT_ONCE; i++) {
        sem_post(&let_go);
    }
    for (int i = 0; i < SL_RESOLVE_AT_ONCE; i++) {
        turn_until_done(&fixtures[i]);
        assert_string_equal(fixtures[i].found.addresses[0].host, "slow.example");
    }
    sem_post(&let_go);
    assert_int_equal(start(last, "slow.example", lookup_slow), SL_OK);
    turn_until_done(last);
    for (int i = 0; i <= SL_RESOLVE_AT_ONCE; i++) {
        teardown(&fixtures[i]);
    }
}
