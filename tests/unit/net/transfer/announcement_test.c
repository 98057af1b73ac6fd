/* Records in a store in memory, whose time the test makes pass, and in a real etcd where there is
 * one. */
#include "net/transfer/announcement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "net/store/remote_metastore.h"
#include "tests/support/memory_store.h"
#include "tests/support/unit.h"
#include "tests/unit/net/store/real_etcd.h"

#define NAME   "10.0.0.2:12345"
#define KEY    "starling/ram/" NAME
#define SECOND SL_CLOCK_NS_PER_S

/* How a publish or withdraw has ended. */
struct outcome {
    bool is_over;
    int err;
    char reason[512];
};

static void on_done(void *ctx, int err, const char *reason)
{
    struct outcome *outcome = ctx;
    assert_false(outcome->is_over);
    outcome->is_over = true;
    outcome->err = err;
    (void)snprintf(outcome->reason, sizeof outcome->reason, "%s", reason);
}

static struct sl_transfer_record record_of(const char *host, uint64_t incarnation)
{
    struct sl_transfer_record record = {
        .name = NAME, .port = 12345, .incarnation = incarnation, .software = "starling"};
    (void)snprintf(record.host, sizeof record.host, "%s", host);
    return record;
}

/* ---- a store in memory, and a stepped reactor ---- */

struct world {
    struct sl_reactor *reactor;
    struct memory_store *memory;
    struct sl_metastore *handle;
    struct sl_announcement announcement;
    char *text; /* the record that was announced last; NULL: none */
    uint64_t now_ns;
    struct sl_clock clock;
    bool is_silent; /* the store does not answer */
};

static uint64_t on_now(void *ctx)
{
    return ((const struct world *)ctx)->now_ns;
}

static void set_up(struct world *world)
{
    *world = (struct world){.now_ns = SECOND};
    world->clock = (struct sl_clock){.now_ns = on_now, .ctx = world};
    const struct sl_reactor_options options = {
        .name = "records", .core = -1, .stepped = true, .clock = &world->clock};
    assert_int_equal(sl_reactor_create(&options, &world->reactor), 0);
    world->memory = memory_store_create();
    world->handle = memory_store_handle(world->memory);
    (void)sl_reactor_turn(world->reactor, world->now_ns);
}

/* Ends it as the end of its process does. */
static void drop(struct world *world)
{
    if (world->text != NULL) {
        while (memory_store_answer(world->memory)) {
        }
        sl_announcement_drop(&world->announcement);
        free(world->text);
        world->text = NULL;
    }
}

static void tear_down(struct world *world)
{
    drop(world);
    sl_reactor_destroy(&world->reactor);
    memory_store_destroy(world->memory);
}

#define CASE(name) SL_CASE_USING(name, struct world, fixture, set_up, tear_down)

static void step(struct world *world)
{
    memory_store_pass(world->memory, world->now_ns);
    while (!world->is_silent && memory_store_answer(world->memory)) {
    }
    (void)sl_reactor_turn(world->reactor, world->now_ns);
}

static void pass(struct world *world, uint64_t ns)
{
    for (const uint64_t end_ns = world->now_ns + ns; world->now_ns < end_ns;) {
        world->now_ns += 10 * SL_CLOCK_NS_PER_MS;
        step(world);
    }
}

static void start(struct world *world, struct sl_transfer_record record, uint64_t timeout_ns,
                  struct outcome *outcome)
{
    *outcome = (struct outcome){.is_over = false};
    record.written_s = 0;
    assert_int_equal(sl_transfer_record_encode(&record, &world->text), 0);
    sl_announcement_start(&world->announcement, world->reactor, world->handle, KEY, &record,
                          world->text, timeout_ns, on_done, outcome);
}

static struct outcome publish(struct world *world, struct sl_transfer_record record)
{
    static struct outcome outcome;
    start(world, record, 2 * SECOND, &outcome);
    assert_false(outcome.is_over);
    for (uint32_t i = 0; i < 220 && !outcome.is_over; i++) {
        pass(world, 10 * SL_CLOCK_NS_PER_MS);
    }
    assert_true(outcome.is_over);
    return outcome;
}

static void put_record(struct world *world, struct sl_transfer_record record)
{
    char *text;
    record.written_s = 0;
    assert_int_equal(sl_transfer_record_encode(&record, &text), 0);
    memory_store_set(world->memory, KEY, text);
    free(text);
}

static uint64_t incarnation_there(const struct world *world)
{
    struct sl_transfer_record record;
    const struct sl_metastore_item *item = memory_store_look(world->memory, KEY);
    if (item == NULL) {
        return 0;
    }
    assert_int_equal(sl_transfer_record_decode((const char *)item->value, item->value_bytes, NAME,
                                               &record, NULL),
                     0);
    return record.incarnation;
}

CASE(publish__is_renewed_and_withdrawn)
{
    struct outcome outcome = publish(fixture, record_of("10.0.0.2", 7));
    assert_int_equal(outcome.err, 0);
    for (uint32_t i = 0; i < 10; i++) {
        pass(fixture, 5 * SECOND);
        assert_int_equal(incarnation_there(fixture), 7);
    }
    outcome = (struct outcome){.is_over = false};
    sl_announcement_stop(&fixture->announcement, SECOND, on_done, &outcome);
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
    assert_int_equal(incarnation_there(fixture), 0);
    pass(fixture, 30 * SECOND);
    assert_int_equal(incarnation_there(fixture), 0);
}

/* A process that ends without withdrawing disappears within the lease. */
CASE(publish__ends_with_the_lease)
{
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    memory_store_pass(fixture->memory, fixture->now_ns + (SL_ANNOUNCEMENT_TTL_S + 1) * SECOND);
    assert_int_equal(incarnation_there(fixture), 0);
}

CASE(publish__a_name_that_is_alive_elsewhere)
{
    put_record(fixture, record_of("10.0.0.3", 9));
    const uint64_t begun_ns = fixture->now_ns;
    const struct outcome outcome = publish(fixture, record_of("10.0.0.2", 7));
    assert_int_equal(outcome.err, SL_ERR_EXISTS);
    assert_non_null(strstr(outcome.reason, "10.0.0.3"));
    assert_non_null(strstr(outcome.reason, " d ago"));
    assert_true(fixture->now_ns - begun_ns <= 2 * SECOND + SECOND / 10);
    pass(fixture, 30 * SECOND);
    assert_int_equal(incarnation_there(fixture), 9);
}

/* The store answers that the name is taken, and then nothing. Either the request in flight or the
 * publish ends first. */
CASE(publish__a_name_that_is_alive_elsewhere_in_a_store_that_becomes_silent)
{
    put_record(fixture, record_of("10.0.0.3", 9));
    for (uint32_t i = 0; i < 2; i++) {
        struct outcome outcome;
        fixture->is_silent = false;
        start(fixture, record_of("10.0.0.2", 7), 2 * SECOND, &outcome);
        pass(fixture, SECOND / 10);
        fixture->is_silent = true;
        pass(fixture, SECOND);
        assert_false(outcome.is_over);
        if (i == 0) {
            memory_store_time_out(fixture->handle);
        } else {
            pass(fixture, SECOND);
        }
        assert_int_equal(outcome.err, SL_ERR_EXISTS);
        assert_non_null(strstr(outcome.reason, "10.0.0.3"));
        fixture->is_silent = false;
        pass(fixture, SECOND / 10);
        drop(fixture);
    }
}

/* The owner of the name ends while this engine waits for it. */
CASE(publish__a_name_that_becomes_free)
{
    put_record(fixture, record_of("127.0.0.1", 9));
    struct outcome outcome;
    start(fixture, record_of("127.0.0.1", 7), 5 * SECOND, &outcome);
    pass(fixture, SECOND);
    assert_false(outcome.is_over); /* the same address, but every host has a loopback */
    memory_store_set(fixture->memory, KEY, NULL);
    pass(fixture, SECOND);
    assert_true(outcome.is_over && outcome.err == 0);
    assert_int_equal(incarnation_there(fixture), 7);
}

/* The lease, granted at the first attempt, does not end soon after the last one. */
CASE(publish__a_name_that_becomes_free_after_long)
{
    put_record(fixture, record_of("127.0.0.1", 9));
    struct outcome outcome;
    start(fixture, record_of("127.0.0.1", 7), 20 * SECOND, &outcome);
    pass(fixture, (SL_ANNOUNCEMENT_TTL_S - 1) * SECOND);
    memory_store_set(fixture->memory, KEY, NULL);
    pass(fixture, SECOND);
    assert_true(outcome.is_over && outcome.err == 0);
    for (uint32_t i = 0; i < 2 * SL_ANNOUNCEMENT_TTL_S; i++) {
        assert_int_equal(incarnation_there(fixture), 7);
        pass(fixture, SECOND / 2);
    }
}

/* This engine has the address now, so the process that had it has ended. */
CASE(publish__replaces_the_record_of_its_own_address)
{
    put_record(fixture, record_of("10.0.0.2", 9));
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    assert_int_equal(incarnation_there(fixture), 7);
    pass(fixture, 30 * SECOND);
    assert_int_equal(incarnation_there(fixture), 7);
}

CASE(publish__a_record_that_is_invalid)
{
    memory_store_set(fixture->memory, KEY, "{\"name\":");
    const struct outcome outcome = publish(fixture, record_of("10.0.0.2", 7));
    assert_int_equal(outcome.err, SL_ERR_EXISTS);
    assert_non_null(strstr(outcome.reason, "invalid"));
}

/* The write happens although its answer is lost: the store's client repeats it. */
CASE(publish__is_repeated)
{
    memory_store_repeat(fixture->handle, true);
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    assert_int_equal(incarnation_there(fixture), 7);
}

CASE(publish__the_store_fails)
{
    memory_store_cut(fixture->handle, true, false);
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, SL_ERR_IO);
}

CASE(publish__the_store_is_silent)
{
    fixture->is_silent = true;
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, SL_ERR_DEADLINE);
    fixture->is_silent = false;
    pass(fixture, SECOND);
    assert_int_equal(incarnation_there(fixture), 0); /* what it answers late is taken back */
}

/* The store is away for longer than the lease, then returns. */
CASE(publish__again_after_the_lease_has_ended)
{
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    memory_store_cut(fixture->handle, true, false);
    pass(fixture, 30 * SECOND);
    assert_int_equal(incarnation_there(fixture), 0);
    memory_store_cut(fixture->handle, false, false);
    pass(fixture, 8 * SECOND);
    assert_int_equal(incarnation_there(fixture), 7);
    pass(fixture, 30 * SECOND);
    assert_int_equal(incarnation_there(fixture), 7);
}

/* Meanwhile another engine has taken the name; later it ends. */
CASE(publish__again_when_the_name_is_free_again)
{
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    memory_store_cut(fixture->handle, true, false);
    pass(fixture, 30 * SECOND);
    put_record(fixture, record_of("10.0.0.3", 9));
    memory_store_cut(fixture->handle, false, false);
    pass(fixture, 30 * SECOND);
    assert_int_equal(incarnation_there(fixture), 9);
    memory_store_set(fixture->memory, KEY, NULL);
    pass(fixture, 8 * SECOND);
    assert_int_equal(incarnation_there(fixture), 7);
}

CASE(withdraw__while_a_renewal_is_in_flight)
{
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    fixture->is_silent = true;
    pass(fixture, 4 * SECOND);
    struct outcome outcome = {.is_over = false};
    sl_announcement_stop(&fixture->announcement, SECOND, on_done, &outcome);
    pass(fixture, SECOND / 2);
    fixture->is_silent = false;
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
    assert_int_equal(incarnation_there(fixture), 0);
    outcome = (struct outcome){.is_over = false};
    sl_announcement_stop(&fixture->announcement, SECOND, on_done,
                         &outcome); /* there is none any more */
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
}

CASE(withdraw__a_store_that_is_silent)
{
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    fixture->is_silent = true;
    struct outcome outcome = {.is_over = false};
    sl_announcement_stop(&fixture->announcement, SECOND, on_done, &outcome);
    pass(fixture, SECOND + SECOND / 10);
    assert_int_equal(outcome.err, SL_ERR_DEADLINE);
}

SL_CASE(is_loopback__addresses)
{
    assert_true(sl_announcement_is_loopback("localhost"));
    assert_true(sl_announcement_is_loopback("localhost.localdomain"));
    assert_true(sl_announcement_is_loopback("127.0.1.1"));
    assert_true(sl_announcement_is_loopback("::1"));
    assert_false(sl_announcement_is_loopback("10.0.0.1"));
    assert_false(sl_announcement_is_loopback("localhosts"));
    assert_false(sl_announcement_is_loopback("fe80::1"));
}

/* ---- a real etcd, and a reactor that this thread drives ---- */

#define TIMEOUT (64 * SECOND) /* a machine that is busy may take long */

struct real {
    struct real_etcd etcd;
    struct sl_reactor *reactor;
    struct sl_remote_metastore *remote;
    struct sl_announcement announcements[2];
    char *texts[2];
};

static bool is_over(void *ctx)
{
    return ((const struct outcome *)ctx)->is_over;
}

static struct outcome real_publish(struct real *real, uint32_t i, uint64_t incarnation,
                                   uint64_t timeout_ns)
{
    struct outcome outcome = {.is_over = false};
    const struct sl_transfer_record record =
        record_of(i == 0 ? "10.0.0.2" : "10.0.0.3", incarnation);
    free(real->texts[i]);
    assert_int_equal(sl_transfer_record_encode(&record, &real->texts[i]), 0);
    sl_announcement_start(&real->announcements[i], real->reactor,
                          sl_remote_metastore_base(real->remote), "jobs/a/" KEY, &record,
                          real->texts[i], timeout_ns, on_done, &outcome);
    sl_reactor_drive_until(real->reactor, is_over, &outcome);
    return outcome;
}

static int real_withdraw(struct real *real, uint32_t i)
{
    struct outcome outcome = {.is_over = false};
    sl_announcement_stop(&real->announcements[i], TIMEOUT, on_done, &outcome);
    sl_reactor_drive_until(real->reactor, is_over, &outcome);
    return outcome.err;
}

SL_CASE(etcd__publish_and_withdraw)
{
    static struct real real;
    struct sl_metastore_address address;
    char text[64];
    const struct sl_reactor_options options = {.name = "records", .core = -1};
    if (!real_etcd_start(&real.etcd, NULL)) {
        skip();
    }
    (void)snprintf(text, sizeof text, "etcd://127.0.0.1:%u", real.etcd.port);
    assert_int_equal(sl_metastore_address_parse(text, &address, NULL), 0);
    assert_int_equal(sl_reactor_create(&options, &real.reactor), 0);
    assert_int_equal(sl_remote_metastore_create(real.reactor, &address, &real.remote), 0);
    assert_int_equal(sl_reactor_attach(real.reactor), 0);
    assert_int_equal(real_publish(&real, 0, 7, TIMEOUT).err, 0);
    /* It lasts until its timeout, which is repeated if it was too short for the first answer. */
    struct outcome second = real_publish(&real, 1, 8, SECOND);
    for (uint64_t ns = 4 * SECOND; second.err == SL_ERR_DEADLINE && ns <= TIMEOUT; ns *= 4) {
        second = real_publish(&real, 1, 8, ns);
    }
    assert_int_equal(second.err, SL_ERR_EXISTS);
    assert_non_null(strstr(second.reason, "10.0.0.2"));
    assert_int_equal(real_withdraw(&real, 0), 0);
    assert_int_equal(real_publish(&real, 1, 8, TIMEOUT).err, 0); /* the name is free */
    for (uint32_t i = 0; i < 2; i++) {
        sl_announcement_drop(&real.announcements[i]);
    }
    assert_true(sl_remote_metastore_destroy(&real.remote, TIMEOUT));
    sl_reactor_detach(real.reactor);
    sl_reactor_destroy(&real.reactor);
    free(real.texts[0]);
    free(real.texts[1]);
    real_etcd_stop(&real.etcd);
}
