/* Sessions with a preferred path to their peer, beside their endpoint. */
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/log.h"
#include "net/session/resolve.h"
#include "tests/support/localhost.h"
#include "tests/support/unit.h"
#include "tests/unit/net/session/path_fixture.h"

/* After a hello that has come already. */
static void welcomed(struct path_fixture *fixture, bool path)
{
    fixture->base.welcomed = false;
    session_fixture_send_welcome(&fixture->base, SL_FRAME_PROTOCOL_VERSION);
    session_fixture_until(&fixture->base, session_fixture_is_welcomed);
    path_expect_way(fixture, path);
}

PATH_CASE(session_path__names_the_reactor_when_connecting)
{
    path_listen(fixture);
    path_greeted(fixture, true);
    assert_int_equal(path_number, 1);
    sl_session_set_shard(fixture->base.session, 3, 2);
    session_fixture_lose(&fixture->base);
    path_greeted(fixture, true);
    assert_int_equal(path_number, 2);
}

/* An owner closes several transports one after the other, under connections that have not ended:
 * the endpoint's transport is closed when the connection of the preferred path ends. */
PATH_CASE(session_path__outlives_the_transport_of_its_endpoint)
{
    path_listen(fixture);
    path_listen_far(fixture);
    path_greeted(fixture, true);
    sl_session_close(&fixture->base.session);
    sl_transport_close(&fixture->base.pair.a.transport);
}

/* The process's standard error goes to a pipe meanwhile. */
static void with_words(struct path_fixture *fixture, void (*act)(struct path_fixture *, bool),
                       bool path, char *words, size_t bytes)
{
    int ends[2];
    int old = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    sl_log_setup(SL_LOG_WARN, "test");
    act(fixture, path);
    sl_log_setup(SL_LOG_OFF, "test");
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    close(ends[1]);
    ssize_t got = read(ends[0], words, bytes - 1);
    words[got > 0 ? got : 0] = '\0';
    close(ends[0]);
}

static void greeted_with_words(struct path_fixture *fixture, bool path, char *words, size_t bytes)
{
    with_words(fixture, path_greeted, path, words, bytes);
}

PATH_CASE(session_path__that_is_refused_goes_on_by_the_endpoint_at_once)
{
    path_listen_far(fixture);
    char words[512];
    greeted_with_words(fixture, false, words, sizeof words);
    assert_non_null(strstr(words, "ps/1 shard 1: not through shm://a.name.that.nobody.looks.up:7: "
                                  "refused; over tcp://127.0.0.1:4000\n"));
    assert_ptr_equal(strchr(words, '\n'), strrchr(words, '\n'));
    /* The first pause would have been 50 ms. */
    assert_true(fixture->base.pair.now_ns < SL_CLOCK_NS_PER_S + 45 * SL_CLOCK_NS_PER_MS);
}

/* The session that uses its endpoint finds the preferred path, and takes it. */
static void comes_back(struct path_fixture *fixture)
{
    session_fixture_pass(&fixture->base,
                         (uint32_t)(SL_SESSION_PATH_PAUSE_NS / SL_CLOCK_NS_PER_MS) - 1000);
    fixture->base.lost_count = 0;
    session_fixture_until(&fixture->base, session_fixture_is_lost);
    assert_non_null(strstr(fixture->base.lost_reason, "the preferred path works again"));
    path_greeted(fixture, true);
}

PATH_CASE(session_path__that_was_refused_is_left_alone_for_a_while)
{
    path_listen_far(fixture);
    path_greeted(fixture, false);
    path_listen(fixture);
    session_fixture_lose(&fixture->base);
    char words[512];
    greeted_with_words(fixture, false, words, sizeof words);
    assert_string_equal(words, ""); /* it was said */
    comes_back(fixture);
}

PATH_CASE(session_set_path__forgets_that_it_was_refused)
{
    path_listen_far(fixture);
    path_greeted(fixture, false);
    path_listen(fixture);
    sl_session_set_preferred(fixture->base.session, &fixture->path);
    session_fixture_lose(&fixture->base);
    path_greeted(fixture, true);
    /* None any more. */
    sl_session_set_preferred(fixture->base.session,
                             &(struct sl_session_preferred){.transport = NULL});
    session_fixture_lose(&fixture->base);
    path_greeted(fixture, false);
}

/* A peer that has stopped answers on neither: the preferred path is not to blame. */
PATH_CASE(session_path__is_tried_again_as_long_as_the_endpoint_fails_too)
{
    session_fixture_pass(&fixture->base, 3000);
    assert_non_null(
        strstr(sl_session_last_error(fixture->base.session), "no process listens there yet"));
    path_listen(fixture);
    path_greeted(fixture, true);
    path_listen_far(fixture);
    session_fixture_lose(&fixture->base);
    path_greeted(fixture, true);
}

PATH_CASE(session_path__without_a_welcome_goes_on_by_the_endpoint)
{
    path_listen(fixture);
    path_greeted(fixture, true);
    session_fixture_lose(&fixture->base);
    fixture->base.received_count = 0;
    session_fixture_until(&fixture->base, session_fixture_has_received);
    assert_ptr_equal(fixture->base.accepted->transport, fixture->peers);
    path_listen_far(fixture);
    /* It hears nothing until its patience ends. */
    session_fixture_until(&fixture->base, session_fixture_is_acceptor_closed);
    path_greeted(fixture, false);
}

/* The peer would give this answer on any path: the session asks again over the preferred path. */
PATH_CASE(session_path__is_kept_when_the_peer_says_not_yet)
{
    path_listen(fixture);
    path_listen_far(fixture);
    session_fixture_until(&fixture->base, session_fixture_has_received);
    session_fixture_send_error(&fixture->base, 0, SL_ERR_AGAIN, "a moment");
    session_fixture_until(&fixture->base, session_fixture_is_acceptor_closed);
    path_greeted(fixture, true);
    assert_int_equal(fixture->base.accepted_count, 2);
}

PATH_CASE(session_path__refused_for_good_is_the_end)
{
    path_listen(fixture);
    path_listen_far(fixture);
    session_fixture_until(&fixture->base, session_fixture_has_received);
    session_fixture_send_error(&fixture->base, 0, SL_ERR_REFUSED, "another secret");
    session_fixture_until(&fixture->base, session_fixture_is_closed);
    assert_int_equal(fixture->base.closed_err, SL_ERR_REFUSED);
    assert_int_equal(fixture->base.accepted_count, 1);
}

/* The peer of an earlier welcome may be at the endpoint, and somebody else on the near path. */
PATH_CASE(session_path__refused_after_a_welcome_goes_on_by_the_endpoint)
{
    path_listen(fixture);
    path_listen_far(fixture);
    path_greeted(fixture, true);
    session_fixture_lose(&fixture->base);
    fixture->base.received_count = 0;
    session_fixture_until(&fixture->base, session_fixture_has_received);
    session_fixture_send_error(&fixture->base, 0, SL_ERR_REFUSED, "another secret");
    session_fixture_until(&fixture->base, session_fixture_is_acceptor_closed);
    path_greeted(fixture, false);
    assert_int_equal(fixture->base.closed_count, 0);
}

/* The state of the preferred path from now on. */
static void go_over_rdma(struct path_fixture *fixture, const char *host)
{
    fixture->path.endpoint.scheme = SL_ENDPOINT_RDMA;
    snprintf(fixture->path.endpoint.host, sizeof fixture->path.endpoint.host, "%s", host);
    sl_session_set_preferred(fixture->base.session, &fixture->path);
}

/* As fast as the real time that a look-up takes. */
static void until_slowly(struct path_fixture *fixture, bool (*done)(void *ctx))
{
    for (int i = 0; i < 8000 && !done(&fixture->base); i++) {
        session_fixture_pass(&fixture->base, 1);
        nanosleep(&(struct timespec){.tv_nsec = SL_CLOCK_NS_PER_MS}, NULL);
    }
    assert_true(done(&fixture->base));
}

static bool is_preferred_tried(void *ctx)
{
    return path_conn != NULL;
}

SL_CASE(session_path__by_a_name_is_looked_up)
{
    SKIP_WITHOUT_LOCALHOST();
    struct path_fixture fixture;
    path_setup(&fixture);
    go_over_rdma(&fixture, "localhost");
    path_listen(&fixture);
    path_listen_far(&fixture);
    until_slowly(&fixture, session_fixture_has_received);
    welcomed(&fixture, true);
    assert_int_equal(path_target.scheme, SL_ENDPOINT_RDMA);
    assert_int_equal(path_target.port, 7);
    assert_true(sl_resolve_is_numeric(&path_target));
    assert_string_equal(path_target.name, "localhost");
    path_teardown(&fixture);
}

PATH_CASE(session_path__by_a_name_that_is_none_goes_on_by_the_endpoint)
{
    go_over_rdma(fixture, "nobody.invalid");
    path_listen(fixture);
    path_listen_far(fixture);
    until_slowly(fixture, session_fixture_has_received);
    char words[512];
    with_words(fixture, welcomed, false, words, sizeof words);
    assert_non_null(strstr(words, "ps/1 shard 1: not through rdma://nobody.invalid:7: cannot "
                                  "resolve host \"nobody.invalid\""));
}

/* The transport of the way that is looked up may be gone when its address is found. */
PATH_CASE(session_set_path__forgets_a_look_up)
{
    go_over_rdma(fixture, "localhost");
    path_listen_far(fixture);
    session_fixture_pass(&fixture->base, 1);
    sl_session_set_preferred(fixture->base.session,
                             &(struct sl_session_preferred){.transport = NULL});
    path_greeted(fixture, false);
    assert_int_equal(fixture->base.accepted_count, 1);
}

static void lose_path(struct path_fixture *fixture, int err)
{
    path_greeted(fixture, true);
    path_end = err;
    session_fixture_lose(&fixture->base);
    path_end = 0;
    assert_int_equal(fixture->base.lost_err, err);
}

SL_CASE(session_path__whose_medium_fails_twice_is_left_alone_for_a_while)
{
    static const int errs[] = {SL_ERR_IO, SL_ERR_DEADLINE};
    for (size_t i = 0; i < sizeof errs / sizeof *errs; i++) {
        struct path_fixture fixture;
        path_setup(&fixture);
        go_over_rdma(&fixture, "10.0.0.1");
        path_listen(&fixture);
        path_listen_far(&fixture);
        lose_path(&fixture, errs[i]);
        path_greeted(&fixture, true);
        session_fixture_pass(&fixture.base, 9000); /* as long as devices try */
        path_end = errs[i];
        session_fixture_lose(&fixture.base);
        path_end = 0;
        path_greeted(&fixture, false);
        session_fixture_lose(&fixture.base);
        path_greeted(&fixture, false);
        comes_back(&fixture);
        path_teardown(&fixture);
    }
}

PATH_CASE(session_path__that_lasts_between_failures_is_kept)
{
    go_over_rdma(fixture, "10.0.0.1");
    path_listen(fixture);
    path_listen_far(fixture);
    lose_path(fixture, SL_ERR_IO);
    for (int i = 0; i < 3; i++) {
        path_greeted(fixture, true);
        session_fixture_pass(&fixture->base,
                             (uint32_t)(SL_SESSION_PATH_LASTS_NS / SL_CLOCK_NS_PER_MS));
        path_end = SL_ERR_IO;
        session_fixture_lose(&fixture->base);
        path_end = 0;
    }
    lose_path(fixture, SL_ERR_CLOSED); /* the peer's doing */
    path_greeted(fixture, true);
}

static void lose_path_after(struct path_fixture *fixture, int err, uint32_t ms)
{
    path_greeted(fixture, true);
    session_fixture_pass(&fixture->base, ms);
    path_end = err;
    session_fixture_lose(&fixture->base);
    path_end = 0;
}

/* It carries what is short: the greeting. The end that sends what is long fails after 8 to 10 s,
 * and the other one sees it go. */
SL_CASE(session_path__that_carries_too_little_is_left_alone_for_a_while)
{
    static const struct {
        int err;
        uint32_t ms, count;
    } cases[] = {{SL_ERR_CLOSED, 9000, 3}, {SL_ERR_IO, 12000, 2}, {SL_ERR_CLOSED, 1, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct path_fixture fixture;
        path_setup(&fixture);
        go_over_rdma(&fixture, "10.0.0.1");
        path_listen(&fixture);
        path_listen_far(&fixture);
        for (uint32_t lost = 0; lost < cases[i].count; lost++) {
            lose_path_after(&fixture, cases[i].err, cases[i].ms);
        }
        path_greeted(&fixture, false);
        comes_back(&fixture);
        path_teardown(&fixture);
    }
}

PATH_CASE(session_path__is_not_blamed_for_what_the_owner_gives_up)
{
    path_listen(fixture);
    path_listen_far(fixture);
    for (int i = 0; i < 6; i++) {
        path_greeted(fixture, true);
        fixture->base.lost_count = 0;
        sl_session_reconnect(fixture->base.session, "just so");
        session_fixture_until(&fixture->base, session_fixture_is_lost);
    }
    path_greeted(fixture, true);
    /* It is for all else. */
    for (int i = 0; i < 3; i++) {
        session_fixture_lose(&fixture->base);
        path_greeted(fixture, i < 2);
    }
}

/* Somebody takes connections there, and says nothing. */
PATH_CASE(session_path__that_leads_astray_is_looked_for_less_and_less)
{
    go_over_rdma(fixture, "10.0.0.1");
    path_listen_far(fixture);
    path_greeted(fixture, false);
    path_listen(fixture);
    for (uint32_t pause_s = 60; pause_s <= 480; pause_s *= 2) {
        fixture->base.lost_count = 0;
        session_fixture_pass(&fixture->base, pause_s * 1000 - 500);
        assert_int_equal(fixture->base.lost_count, 0);
        session_fixture_pass(&fixture->base, pause_s * 250);
        assert_int_equal(fixture->base.lost_count, 1);
        session_fixture_until(&fixture->base, session_fixture_is_acceptor_closed);
        path_greeted(fixture, false);
    }
}

static uint32_t probe_count; /* connections that were begun over the preferred path */

static void pass_and_count(struct path_fixture *fixture, uint32_t seconds)
{
    for (uint32_t i = 0; i < seconds * 200; i++) {
        struct sl_conn *before = path_conn;
        sl_stepped_pair_turn(&fixture->base.pair, 5 * SL_CLOCK_NS_PER_MS);
        probe_count += path_conn != before ? 1 : 0;
    }
}

/* Asked less and less often, and the connection that there is goes on meanwhile. */
SL_CASE(session_path__is_looked_for_while_the_endpoint_serves)
{
    for (int silent = 0; silent < 2; silent++) {
        struct path_fixture fixture;
        path_setup(&fixture);
        go_over_rdma(&fixture, "10.0.0.1");
        path_listen_far(&fixture);
        path_greeted(&fixture, false);
        path_is_silent = silent == 1;
        probe_count = 0;
        pass_and_count(&fixture, 59);
        assert_int_equal(probe_count, 0);
        pass_and_count(&fixture, 25);
        assert_int_equal(probe_count, 1);
        pass_and_count(&fixture, 100);
        assert_int_equal(probe_count, 1);
        pass_and_count(&fixture, 1500);
        assert_in_range(probe_count, 6, 8); /* every 240 to 300 s */
        assert_int_equal(fixture.base.lost_count, 0);
        assert_int_equal(fixture.base.accepted_count, 1);
        path_is_silent = false;
        path_listen(&fixture);
        session_fixture_pass(&fixture.base, 290000);
        session_fixture_until(&fixture.base, session_fixture_is_lost);
        path_greeted(&fixture, true);
        path_teardown(&fixture);
    }
}

SL_CASE(session_path__by_a_name_is_looked_for)
{
    SKIP_WITHOUT_LOCALHOST();
    struct path_fixture fixture;
    path_setup(&fixture);
    go_over_rdma(&fixture, "10.0.0.1");
    path_listen_far(&fixture);
    path_greeted(&fixture, false);
    go_over_rdma(&fixture, "localhost");
    path_listen(&fixture);
    path_conn = NULL;
    fixture.base.received_count = 0;
    session_fixture_pass(&fixture.base, 75000); /* it is being looked up by now */
    until_slowly(&fixture, is_preferred_tried);
    assert_string_equal(path_target.name, "localhost");
    until_slowly(&fixture, session_fixture_has_received);
    welcomed(&fixture, true);
    path_teardown(&fixture);
}

/* Closed, lost, or told of another way, at any moment of it. */
SL_CASE(session_path__is_looked_for_no_more)
{
    for (uint32_t i = 0; i < 60; i++) {
        struct path_fixture fixture;
        path_setup(&fixture);
        go_over_rdma(&fixture, "10.0.0.1");
        path_listen_far(&fixture);
        path_greeted(&fixture, false);
        path_listen(&fixture);
        path_is_silent = i % 2 == 0;
        struct sl_conn *before = path_conn;
        session_fixture_pass(&fixture.base, 55000);
        assert_ptr_equal(path_conn, before);
        while (path_conn == before) {
            session_fixture_pass(&fixture.base, 1);
        }
        session_fixture_pass(&fixture.base, i / 6);
        if (i % 3 == 0) {
            sl_session_close(&fixture.base.session);
        } else if (i % 3 == 1) {
            sl_session_set_preferred(fixture.base.session,
                                     &(struct sl_session_preferred){.transport = NULL});
        } else {
            sl_session_reconnect(fixture.base.session, "just so");
        }
        session_fixture_pass(&fixture.base, 5000);
        path_teardown(&fixture);
    }
}

/* As long as a device takes that was opened in the same turn. */
PATH_CASE(session_path__time_limit_begins_after_a_long_turn)
{
    path_takes_ns = START_TIMEOUT_NS / 2;
    path_is_silent = true;
    path_listen(fixture);
    path_listen_far(fixture);
    session_fixture_pass(&fixture->base, 2);
    path_is_silent = false;
    path_greeted(fixture, true);
}

/* rdma_cm tries for long to reach a host that is gone. */
PATH_CASE(session_path__without_an_answer_goes_on_by_the_endpoint)
{
    go_over_rdma(fixture, "10.0.0.1");
    path_is_silent = true;
    path_listen_far(fixture);
    session_fixture_pass(&fixture->base, START_TIMEOUT_NS / SL_CLOCK_NS_PER_MS / 4 - 100);
    assert_int_equal(fixture->base.accepted_count, 0);
    session_fixture_pass(&fixture->base, 200);
    assert_int_equal(fixture->base.accepted_count, 1);
    char words[512];
    with_words(fixture, welcomed, false, words, sizeof words);
    assert_non_null(strstr(words, "not through rdma://10.0.0.1:7: no answer from the host; over"));
    /* Later there is a lease to keep. */
    sl_session_set_preferred(fixture->base.session, &fixture->path);
    session_fixture_lose(&fixture->base);
    session_fixture_pass(&fixture->base, 2900);
    assert_int_equal(fixture->base.accepted_count, 1);
    path_greeted(fixture, false);
    assert_true(fixture->base.pair.now_ns < 8 * SL_CLOCK_NS_PER_S);
}
