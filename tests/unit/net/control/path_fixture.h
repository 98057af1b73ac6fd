/* What tests of sessions with a nearer way to their peer begin with. */
#ifndef SL_TESTS_UNIT_NET_CONTROL_PATH_FIXTURE_H
#define SL_TESTS_UNIT_NET_CONTROL_PATH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/net/control/session_fixture.h"

/* The near way leads over a network of its own, to the same acceptor. */
struct near_fixture {
    struct session_fixture base; /* first: what the fixture's functions are given */
    struct sl_loop_network network;
    struct sl_transport *ours, *peers;
    struct sl_outbox outbox;
    struct sl_session_preferred near;
};

/* What a connection by the near way ends with, as its owner hears of it; 0: as it is. */
extern int near_end;
extern bool near_is_silent;            /* what is connected to gives no answer */
extern struct sl_endpoint near_target; /* of the last that was made */
extern struct sl_conn *near_conn;

void near_setup(struct near_fixture *fixture);
void near_teardown(struct near_fixture *fixture);

void near_listen(struct near_fixture *fixture);
void near_listen_far(struct near_fixture *fixture);

/* The session is welcomed, this way. */
void near_expect_way(struct near_fixture *fixture, bool near);

/* Once more, up to the welcome. */
void near_greeted(struct near_fixture *fixture, bool near);

#endif
