/* One session, and an acceptor that keeps what it receives and sends what the case says, over the
 * loop transport. */
#ifndef SL_TESTS_UNIT_NET_SESSION_SESSION_FIXTURE_H
#define SL_TESTS_UNIT_NET_SESSION_SESSION_FIXTURE_H

#include "net/session/session.h"
#include "tests/support/loop_transport.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"

#define START_TIMEOUT_NS      (10 * SL_CLOCK_NS_PER_S)
#define SESSION_FIXTURE_HEARD 8

/* Side a has the session; side b accepts, keeps what it receives, and sends what the case says. */
struct session_fixture {
    struct sl_loop_network network;
    struct sl_stepped_pair pair;
    struct sl_outbox outbox, acceptor_outbox;
    struct sl_outbox_queue acceptor_queue;
    struct sl_session *session;

    struct sl_conn *accepted;
    uint32_t accepted_count;
    struct sl_message last; /* received by the acceptor; without memory of its own */
    uint32_t received_count;
    struct session_fixture_heard {
        enum sl_message_kind kind;
        uint64_t id;
        struct sl_message_hello hello; /* of a hello */
        uint32_t timeout_ms;           /* of a barrier */
    } heard[SESSION_FIXTURE_HEARD];    /* the first that were received since received_count was 0 */
    bool acceptor_closed;

    uint32_t lease_ms; /* in the acceptor's welcome */
    bool welcomed;
    struct sl_message_welcome welcome;
    uint32_t welcomed_count;
    void (*when_welcomed)(struct session_fixture *fixture); /* from inside the event, or NULL */
    uint32_t lost_count;
    int lost_err;
    char lost_reason[2048];
    uint32_t told_count;
    struct sl_message told; /* the last; without memory of its own */
    uint32_t closed_count;
    int closed_err;
    char closed_reason[2048];
    uint32_t data_count;
    struct sl_frame data;
    uint8_t *sink_memory;
    bool close_when_told;

    uint32_t answer_count;
    int answer_err;
    uint32_t answer_table_id;
    char answer_reason[1024];
};

void session_fixture_listen_now(struct session_fixture *fixture);

/* The same by another transport of side b. */
void session_fixture_listen_at(struct session_fixture *fixture, struct sl_transport *transport,
                               const struct sl_endpoint *endpoint);
void session_fixture_send_frame(struct session_fixture *fixture, struct sl_frame frame,
                                const void *payload);
void session_fixture_send_message(struct session_fixture *fixture,
                                  const struct sl_message *message);
void session_fixture_send_error(struct session_fixture *fixture, uint64_t id, int err,
                                const char *text);
void session_fixture_send_welcome(struct session_fixture *fixture, uint32_t version);
void session_fixture_answer(void *ctx, const struct sl_message *answer, int err,
                            const char *reason);
void session_fixture_setup(struct session_fixture *fixture, enum sl_message_purpose purpose);

/* The same with options of the case's own on top: persistent, secret. */
void session_fixture_setup_as(struct session_fixture *fixture, enum sl_message_purpose purpose,
                              bool persistent, const struct sl_secret *secret);

/* Replaces the session by a persistent one with more candidates for its endpoint. */
void session_fixture_reopen_with(struct session_fixture *fixture, const struct sl_endpoint *others,
                                 uint32_t other_count);
void session_fixture_teardown(struct session_fixture *fixture);
#define SESSION_CASE(name, purpose)                                                                \
    SL_CASE_USING(name, struct session_fixture, fixture, session_fixture_setup,                    \
                  session_fixture_teardown, purpose)

bool session_fixture_has_received(void *ctx);
bool session_fixture_is_welcomed(void *ctx);
bool session_fixture_is_lost(void *ctx);
bool session_fixture_is_told(void *ctx);
bool session_fixture_is_closed(void *ctx);
bool session_fixture_is_answered(void *ctx);
bool session_fixture_is_acceptor_closed(void *ctx);
void session_fixture_until(struct session_fixture *fixture, bool (*done)(void *ctx));
void session_fixture_greet(struct session_fixture *fixture);

/* In turns of 1 ms; more than a second in turns of 10. */
void session_fixture_pass(struct session_fixture *fixture, uint32_t ms);

/* The peer breaks the welcomed connection; up to `lost`. */
void session_fixture_lose(struct session_fixture *fixture);

/* Up to the next welcome, of a session that has lost its connection. */
void session_fixture_greet_again(struct session_fixture *fixture);

void session_fixture_ask(struct session_fixture *fixture);

#endif
