/* Persistent sessions whose endpoint has a name. */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/support/localhost.h"
#include "tests/support/unit.h"
#include "tests/unit/net/session/session_fixture.h"

static void setup(struct session_fixture *fixture)
{
    session_fixture_setup_as(fixture, SL_MESSAGE_PURPOSE_CONTROL, true, NULL);
}

static void go_to(struct session_fixture *fixture, const char *host)
{
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_TCP, .port = 4000};
    snprintf(endpoint.host, sizeof endpoint.host, "%s", host);
    sl_session_set_endpoint(fixture->session, &endpoint);
}

/* As fast as the real time that a look-up takes. */
static void until_slowly(struct session_fixture *fixture, bool (*done)(void *ctx))
{
    for (int i = 0; i < 8000 && !done(fixture); i++) {
        session_fixture_pass(fixture, 1);
        nanosleep(&(struct timespec){.tv_nsec = SL_CLOCK_NS_PER_MS}, NULL);
    }
    assert_true(done(fixture));
}

static bool is_not_resolved(void *ctx)
{
    struct session_fixture *fixture = ctx;
    return strstr(sl_session_last_error(fixture->session), "cannot resolve host") != NULL;
}

SL_CASE(session_set_endpoint__takes_names)
{
    SKIP_WITHOUT_LOCALHOST();
    struct session_fixture fixture;
    setup(&fixture);
    session_fixture_listen_now(&fixture);
    go_to(&fixture, "nobody.invalid");
    until_slowly(&fixture, is_not_resolved);
    assert_non_null(strstr(sl_session_last_error(fixture.session), "\"nobody.invalid\""));
    assert_int_equal(fixture.received_count, 0);
    go_to(&fixture, "localhost");
    until_slowly(&fixture, session_fixture_has_received);
    assert_int_equal(fixture.last.kind, SL_MESSAGE_HELLO);
    session_fixture_teardown(&fixture);
}

/* At any moment of a look-up, which goes on without it. */
SL_CASE(session_close__works_during_a_look_up)
{
    for (uint32_t turns = 60; turns < 90; turns += 2) {
        struct session_fixture fixture;
        setup(&fixture);
        session_fixture_listen_now(&fixture);
        go_to(&fixture, turns % 4 == 0 ? "localhost" : "nobody.invalid");
        session_fixture_pass(&fixture, turns);
        if (turns % 3 == 0) {
            nanosleep(&(struct timespec){.tv_nsec = SL_CLOCK_NS_PER_MS}, NULL);
        }
        sl_session_close(&fixture.session);
        session_fixture_pass(&fixture, turns % 5);
        session_fixture_teardown(&fixture);
        assert_int_equal(fixture.closed_count, 0);
    }
}

/* Look-ups that nobody waits for any more end with the process: what the C library has in hand for
 * them then is no leak. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
    return "leak:__res_context_send\n";
}
