/* Names with a store in memory, whose time the test makes pass; with an HTTP server; and with a
 * real etcd where there is one. */
#include "transfer/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "metastore/remote_metastore.h"
#include "tests/support/http_server.h"
#include "tests/support/memory_store.h"
#include "tests/support/unit.h"
#include "tests/unit/metastore/real_etcd.h"
#include "transfer/announcement.h"

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

static uint32_t found_count;

static void on_found(struct sl_names_lookup *lookup)
{
    found_count++;
}

static struct sl_transfer_record record_of(const char *host, uint64_t incarnation)
{
    struct sl_transfer_record record = {
        .name = NAME, .port = 12345, .incarnation = incarnation, .software = "starling"};
    (void)snprintf(record.host, sizeof record.host, "%s", host);
    return record;
}

static struct sl_names_lookup lookup_of(const char *name, uint64_t timeout_ns)
{
    struct sl_names_lookup lookup = {.timeout_ns = timeout_ns, .done = on_found};
    (void)snprintf(lookup.name, sizeof lookup.name, "%s", name);
    return lookup;
}

/* ---- a store in memory, and a stepped reactor ---- */

struct world {
    struct sl_reactor *reactor;
    struct memory_store *memory;
    struct sl_metastore *handle;
    struct sl_names *names;
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
    const struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_ETCD};
    *world = (struct world){.now_ns = SECOND};
    world->clock = (struct sl_clock){.now_ns = on_now, .ctx = world};
    const struct sl_reactor_options options = {
        .name = "names", .core = -1, .stepped = true, .clock = &world->clock};
    assert_int_equal(sl_reactor_create(&options, &world->reactor), 0);
    world->memory = memory_store_create();
    world->handle = memory_store_handle(world->memory);
    assert_int_equal(sl_names_create(world->reactor, &address, world->handle, &world->names), 0);
    (void)sl_reactor_turn(world->reactor, world->now_ns);
}

static void tear_down(struct world *world)
{
    while (memory_store_answer(world->memory)) {
    }
    sl_names_destroy(&world->names, 0);
    sl_reactor_destroy(&world->reactor);
    memory_store_destroy(world->memory);
}

#define CASE(name) SL_CASE_USING(name, struct world, set_up, tear_down)

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

static struct outcome publish(struct world *world, struct sl_transfer_record record)
{
    static struct outcome outcome;
    outcome = (struct outcome){.is_over = false};
    sl_names_publish(world->names, &record, 2 * SECOND, on_done, &outcome);
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
    char why[128];
    const struct sl_metastore_item *item = memory_store_look(world->memory, KEY);
    if (item == NULL) {
        return 0;
    }
    assert_int_equal(sl_transfer_record_decode((const char *)item->value, item->value_bytes, NAME,
                                               &record, why, sizeof why),
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
    sl_names_withdraw(fixture->names, SECOND, on_done, &outcome);
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
        struct outcome outcome = {.is_over = false};
        struct sl_transfer_record record = record_of("10.0.0.2", 7);
        const struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_ETCD};
        struct sl_names *names;
        fixture->is_silent = false;
        assert_int_equal(sl_names_create(fixture->reactor, &address, fixture->handle, &names), 0);
        sl_names_publish(names, &record, 2 * SECOND, on_done, &outcome);
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
        sl_names_destroy(&names, 0);
    }
}

/* The owner of the name ends while this engine waits for it. */
CASE(publish__a_name_that_becomes_free)
{
    put_record(fixture, record_of("127.0.0.1", 9));
    struct outcome outcome = {.is_over = false};
    struct sl_transfer_record record = record_of("127.0.0.1", 7);
    sl_names_publish(fixture->names, &record, 5 * SECOND, on_done, &outcome);
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
    struct outcome outcome = {.is_over = false};
    struct sl_transfer_record record = record_of("127.0.0.1", 7);
    sl_names_publish(fixture->names, &record, 20 * SECOND, on_done, &outcome);
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
    sl_names_withdraw(fixture->names, SECOND, on_done, &outcome);
    pass(fixture, SECOND / 2);
    fixture->is_silent = false;
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
    assert_int_equal(incarnation_there(fixture), 0);
    outcome = (struct outcome){.is_over = false};
    sl_names_withdraw(fixture->names, SECOND, on_done, &outcome); /* there is none any more */
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
}

CASE(withdraw__a_store_that_is_silent)
{
    assert_int_equal(publish(fixture, record_of("10.0.0.2", 7)).err, 0);
    fixture->is_silent = true;
    struct outcome outcome = {.is_over = false};
    sl_names_withdraw(fixture->names, SECOND, on_done, &outcome);
    pass(fixture, SECOND + SECOND / 10);
    assert_int_equal(outcome.err, SL_ERR_DEADLINE);
}

CASE(lookup__finds)
{
    put_record(fixture, record_of("10.0.0.2", 9));
    struct sl_names_lookup lookup = lookup_of(NAME, SECOND);
    found_count = 0;
    sl_names_lookup(fixture->names, &lookup);
    assert_int_equal(found_count, 0);
    step(fixture);
    assert_int_equal(found_count, 1);
    assert_int_equal(lookup.err, 0);
    assert_string_equal(lookup.record.host, "10.0.0.2");
    assert_int_equal(lookup.record.incarnation, 9);
}

CASE(lookup__errors)
{
    char name[SL_LIMIT_ENDPOINT_BYTES];
    const struct {
        const char *name, *value, *words;
        int err;
    } CASES[] = {
        {"a:1", NULL, "no record starling/ram/a:1", SL_ERR_NOT_FOUND},
        {"b:1", "{\"name\":\"b:1\"", "starling/ram/b:1: no JSON", SL_ERR_PROTOCOL},
        {"c:1", "{\"protocol\":7}", "\"protocol\"", SL_ERR_PROTOCOL},
        {"", NULL, "name", SL_ERR_INVALID},
        {name, NULL, "name", SL_ERR_INVALID},
    };
    (void)snprintf(name, sizeof name, "%0250d:1", 0);
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        char key[300];
        (void)snprintf(key, sizeof key, "starling/ram/%s", CASES[i].name);
        if (CASES[i].value != NULL) {
            memory_store_set(fixture->memory, key, CASES[i].value);
        }
        struct sl_names_lookup lookup = lookup_of(CASES[i].name, SECOND);
        found_count = 0;
        sl_names_lookup(fixture->names, &lookup);
        pass(fixture, SECOND / 10);
        assert_int_equal(found_count, 1);
        if (lookup.err != CASES[i].err || strstr(lookup.reason, CASES[i].words) == NULL) {
            fail_msg("case %zu: %d, %s", i, lookup.err, lookup.reason);
        }
    }
}

CASE(lookup__huge)
{
    const size_t bytes = (size_t)SL_TRANSFER_RECORD_BYTES_MAX + 1;
    char *value = malloc(bytes);
    assert_non_null(value);
    memset(value, ' ', bytes);
    memory_store_put(fixture->memory, KEY, value, bytes);
    free(value);
    struct sl_names_lookup lookup = lookup_of(NAME, SECOND);
    sl_names_lookup(fixture->names, &lookup);
    pass(fixture, SECOND / 10);
    assert_int_equal(lookup.err, SL_ERR_TOO_LARGE);
}

/* Each ends at its own deadline, those that wait behind others too; later ones work. */
CASE(lookup__a_store_that_is_silent)
{
    struct sl_names_lookup lookups[3];
    put_record(fixture, record_of("10.0.0.2", 9));
    fixture->is_silent = true;
    found_count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        lookups[i] = lookup_of(NAME, (3 - i) * SECOND);
        sl_names_lookup(fixture->names, &lookups[i]);
    }
    pass(fixture, SECOND + SECOND / 10);
    assert_int_equal(found_count, 1);
    assert_int_equal(lookups[2].err, SL_ERR_DEADLINE);
    pass(fixture, SECOND);
    assert_int_equal(found_count, 2);
    sl_names_cancel(&lookups[0]);
    pass(fixture, 2 * SECOND);
    assert_int_equal(found_count, 2);
    fixture->is_silent = false;
    struct sl_names_lookup lookup = lookup_of(NAME, SECOND);
    sl_names_lookup(fixture->names, &lookup);
    pass(fixture, SECOND / 10);
    assert_int_equal(found_count, 3);
    assert_int_equal(lookup.err, 0);
}

CASE(destroy__cancels_lookups)
{
    struct sl_names_lookup lookups[3];
    fixture->is_silent = true;
    found_count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        lookups[i] = lookup_of(NAME, SECOND);
        sl_names_lookup(fixture->names, &lookups[i]);
    }
    sl_names_cancel(&lookups[0]);
    memory_store_forget(fixture->handle, false); /* as a store that is destroyed */
    sl_names_destroy(&fixture->names, 0);
    assert_int_equal(found_count, 2);
    assert_int_equal(lookups[2].err, SL_ERR_CANCELLED);
    const struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_ETCD};
    assert_int_equal(sl_names_create(fixture->reactor, &address, fixture->handle, &fixture->names),
                     0);
}

/* ---- without a store ---- */

CASE(lookup__without_a_store)
{
    const struct sl_metastore_address none = {.kind = SL_METASTORE_ADDRESS_NONE};
    struct sl_names *names;
    assert_int_equal(sl_names_create(fixture->reactor, &none, NULL, &names), 0);
    struct outcome outcome = {.is_over = false};
    struct sl_transfer_record record = record_of("localhost", 7);
    sl_names_publish(names, &record, SECOND, on_done, &outcome);
    struct sl_names_lookup lookup = lookup_of("[::1]:7", SECOND), bad = lookup_of("a", SECOND);
    sl_names_lookup(names, &lookup);
    sl_names_lookup(names, &bad);
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
    assert_int_equal(lookup.err, 0);
    assert_string_equal(lookup.record.host, "::1");
    assert_int_equal(lookup.record.port, 7);
    assert_int_equal(lookup.record.incarnation, 0);
    assert_int_equal(bad.err, SL_ERR_INVALID);
    assert_non_null(strstr(bad.reason, "\"a\""));
    outcome = (struct outcome){.is_over = false};
    sl_names_withdraw(names, SECOND, on_done, &outcome);
    pass(fixture, SECOND / 10);
    assert_true(outcome.is_over && outcome.err == 0);
    sl_names_destroy(&names, 0);
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

/* ---- real stores, and a reactor that this thread drives ---- */

#define TIMEOUT (64 * SECOND) /* a machine that is busy may take long */

struct real {
    struct sl_metastore_address address;
    struct sl_reactor *reactor;
    struct sl_names *names[2];
};

static void real_make(struct real *real, const char *text)
{
    const struct sl_reactor_options options = {.name = "names", .core = -1};
    assert_int_equal(sl_metastore_address_parse(text, &real->address, NULL), 0);
    assert_int_equal(sl_reactor_create(&options, &real->reactor), 0);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sl_names_create(real->reactor, &real->address, NULL, &real->names[i]), 0);
    }
    assert_int_equal(sl_reactor_attach(real->reactor), 0);
}

static void real_free(struct real *real)
{
    for (uint32_t i = 0; i < 2; i++) {
        sl_names_destroy(&real->names[i], TIMEOUT);
    }
    sl_reactor_detach(real->reactor);
    sl_reactor_destroy(&real->reactor);
}

static bool is_over(void *ctx)
{
    return ((const struct outcome *)ctx)->is_over;
}

static struct outcome real_publish(struct real *real, uint32_t i, uint64_t incarnation,
                                   uint64_t timeout_ns)
{
    struct outcome outcome = {.is_over = false};
    struct sl_transfer_record record = record_of(i == 0 ? "10.0.0.2" : "10.0.0.3", incarnation);
    sl_names_publish(real->names[i], &record, timeout_ns, on_done, &outcome);
    sl_reactor_drive_until(real->reactor, is_over, &outcome);
    return outcome;
}

/* The publish lasts until its timeout. One that is too short even for the store's first answer is
 * repeated with a longer one. */
static struct outcome real_publish_taken(struct real *real, uint32_t i, uint64_t incarnation)
{
    struct outcome outcome = real_publish(real, i, incarnation, SECOND);
    for (uint64_t ns = 4 * SECOND; outcome.err == SL_ERR_DEADLINE && ns <= TIMEOUT; ns *= 4) {
        sl_names_destroy(&real->names[i], TIMEOUT);
        assert_int_equal(sl_names_create(real->reactor, &real->address, NULL, &real->names[i]), 0);
        outcome = real_publish(real, i, incarnation, ns);
    }
    return outcome;
}

static int real_withdraw(struct real *real, uint32_t i)
{
    struct outcome outcome = {.is_over = false};
    sl_names_withdraw(real->names[i], TIMEOUT, on_done, &outcome);
    sl_reactor_drive_until(real->reactor, is_over, &outcome);
    return outcome.err;
}

static bool is_found(void *ctx)
{
    return found_count > 0;
}

static struct sl_names_lookup real_lookup(struct real *real, uint32_t i, const char *name)
{
    struct sl_names_lookup lookup = lookup_of(name, TIMEOUT);
    found_count = 0;
    sl_names_lookup(real->names[i], &lookup);
    sl_reactor_drive_until(real->reactor, is_found, NULL);
    return lookup;
}

SL_CASE(etcd__publish_lookup_withdraw)
{
    struct real_etcd etcd;
    struct real real;
    char text[64];
    if (!real_etcd_start(&etcd, NULL)) {
        skip();
    }
    (void)snprintf(text, sizeof text, "etcd://127.0.0.1:%u/jobs/a", etcd.port);
    real_make(&real, text);
    assert_int_equal(real_publish(&real, 0, 7, TIMEOUT).err, 0);
    struct sl_names_lookup lookup = real_lookup(&real, 1, NAME);
    assert_int_equal(lookup.err, 0);
    assert_int_equal(lookup.record.incarnation, 7);
    assert_string_equal(lookup.record.host, "10.0.0.2");
    lookup = real_lookup(&real, 0, "10.0.0.9:1");
    assert_int_equal(lookup.err, SL_ERR_NOT_FOUND);
    assert_non_null(strstr(lookup.reason, "jobs/a/starling/ram/10.0.0.9:1"));
    const struct outcome second = real_publish_taken(&real, 1, 8);
    assert_int_equal(second.err, SL_ERR_EXISTS);
    assert_non_null(strstr(second.reason, "10.0.0.2"));
    assert_int_equal(real_withdraw(&real, 0), 0);
    assert_int_equal(real_lookup(&real, 1, NAME).err, SL_ERR_NOT_FOUND);
    real_free(&real);
    real_etcd_stop(&etcd);
}

SL_CASE(http__publish_lookup_withdraw)
{
    struct http_server server;
    struct real real;
    char text[64];
    http_server_start(&server, NULL, 0);
    (void)snprintf(text, sizeof text, "http://127.0.0.1:%u/metadata", server.port);
    real_make(&real, text);
    assert_int_equal(real_publish(&real, 0, 7, TIMEOUT).err, 0);
    assert_non_null(http_server_value(&server, KEY));
    const struct sl_names_lookup lookup = real_lookup(&real, 1, NAME);
    assert_int_equal(lookup.err, 0);
    assert_int_equal(lookup.record.incarnation, 7);
    assert_int_equal(real_lookup(&real, 1, "a:1").err, SL_ERR_NOT_FOUND);
    /* HTTP cannot compare: the last one has the name. */
    assert_int_equal(real_publish(&real, 1, 8, TIMEOUT).err, 0);
    assert_int_equal(real_lookup(&real, 0, NAME).record.incarnation, 8);
    assert_int_equal(real_withdraw(&real, 1), 0);
    assert_int_equal(real_lookup(&real, 0, NAME).err, SL_ERR_NOT_FOUND);
    real_free(&real);
    http_server_stop(&server);
}

SL_CASE(http__answers_that_are_wrong)
{
    static const struct {
        const char *says;
        size_t blanks_max;
        int err;
    } CASES[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"name\":1", 0, SL_ERR_PROTOCOL},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", 0, SL_ERR_PROTOCOL},
        {"HTTP/1.1 200 OK\r\n\r\n", SIZE_MAX, SL_ERR_TOO_LARGE},
        {"HTTP/1.1 200 OK\r\n\r\n", SL_TRANSFER_RECORD_BYTES_MAX + 1, SL_ERR_TOO_LARGE},
        {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 0, SL_ERR_IO},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct http_server server;
        struct real real;
        char text[64];
        http_server_start(&server, CASES[i].says, CASES[i].blanks_max);
        (void)snprintf(text, sizeof text, "http://127.0.0.1:%u", server.port);
        real_make(&real, text);
        const struct sl_names_lookup lookup = real_lookup(&real, 0, NAME);
        if (lookup.err != CASES[i].err || strstr(lookup.reason, "metadata store") == NULL) {
            fail_msg("case %zu: %d, %s", i, lookup.err, lookup.reason);
        }
        real_free(&real);
        http_server_stop(&server);
    }
}
