/* The fixture for tests of sessions with a preferred path to their peer. */
#ifndef SL_TESTS_UNIT_NET_SESSION_PATH_FIXTURE_H
#define SL_TESTS_UNIT_NET_SESSION_PATH_FIXTURE_H

#include <stdint.h>

#include "tests/support/unit.h"
#include "tests/unit/net/session/session_fixture.h"

/* The preferred path leads over a network of its own, to the same acceptor. */
struct path_fixture {
    struct session_fixture base; /* first: what the fixture's functions are given */
    struct sl_loop_network network;
    struct sl_transport *ours, *peers;
    struct sl_outbox outbox;
    struct sl_session_preferred path;
};

/* The error with which a connection over the preferred path ends for its owner; 0: its own. */
extern int path_end;
extern bool path_is_silent;            /* what is connected to gives no answer */
extern uint64_t path_takes_ns;         /* what the turn takes in which it is made */
extern struct sl_endpoint path_target; /* of the last that was made */
extern uint32_t path_number;           /* `target` of the same */
extern struct sl_conn *path_conn;

void path_setup(struct path_fixture *fixture);
void path_teardown(struct path_fixture *fixture);

#define PATH_CASE(name) SL_CASE_USING(name, struct path_fixture, fixture, path_setup, path_teardown)

void path_listen(struct path_fixture *fixture);
void path_listen_far(struct path_fixture *fixture);

/* The session is welcomed, this way. */
void path_expect_way(struct path_fixture *fixture, bool path);

/* Once more, up to the welcome. */
void path_greeted(struct path_fixture *fixture, bool path);

#endif
