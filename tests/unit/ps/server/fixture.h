/* For the server's tests: servers on reactor threads of their own with the real TCP transport, and
 * a peer that speaks frames over a blocking socket, well or badly. Assertions of the test program
 * fail when something does not come within a generous deadline. */
#ifndef SL_TESTS_UNIT_PS_SERVER_FIXTURE_H
#define SL_TESTS_UNIT_PS_SERVER_FIXTURE_H

#include <semaphore.h>

#include "net/session/message.h"
#include "net/wire/frame.h"
#include "ps/server/server.h"
#include "tests/support/shard_request.h"
#include "tests/support/unit.h"

#define SERVER_COUNT       2 /* shards 0 and 1 of 2 */
#define SERVER_FIXTURE_DIM 4
#define NOBODY             UINT32_MAX           /* a client without a clock */
#define LONG_US            (180U * 1000 * 1000) /* a budget that does not end */

struct server_fixture {
    struct sl_reactor *reactors[SERVER_COUNT];
    struct sl_server *servers[SERVER_COUNT];
    struct sl_coordinator *coordinator;
    struct sl_server_options options; /* what the test wants different */
    bool number_late;                 /* set_shard is left to the test */
    uint64_t lease_ns;                /* 0: the default */
    uint16_t port;
    sem_t drained; /* posted once for each server that was drained */
};

/* Set options before; zeroed otherwise. with_coordinator: of 1 ps. */
void server_fixture_start(struct server_fixture *fixture, bool with_coordinator);
void server_fixture_stop(struct server_fixture *fixture);
void server_fixture_number(struct server_fixture *fixture);

/* Starts servers that have as few buffers as they do with, without a coordinator. */
void server_fixture_setup_least(struct server_fixture *fixture);

/* The first `count` keys of the shard, ascending. */
void server_fixture_keys(uint32_t shard, uint64_t *keys, uint32_t count);

/* For each of `count` keys a gradient of its own, of the dim that peer_open_table gives. */
void server_fixture_gradients(float *gradients, uint32_t count);

/* Runs on the reactor of that server, before it returns. */
void server_fixture_run_on(struct server_fixture *fixture, uint32_t index,
                           void (*run)(struct server_fixture *fixture, uint32_t index));

struct peer {
    int fd;
    uint64_t next_id;
    struct sl_message_hello hello;
    struct sl_message_welcome welcome;
    bool checksum;
    struct sl_frame header; /* received last */
    _Alignas(8) uint8_t payload[SL_LIMIT_FRAME_PAYLOAD_BYTES];
};

struct peer *peer_connect(const struct server_fixture *fixture);
void peer_close(struct peer **peer);

void peer_send_bytes(struct peer *peer, const void *bytes, size_t count);
void peer_send_frame(struct peer *peer, struct sl_frame frame, const void *payload);
void peer_send_message(struct peer *peer, const struct sl_message *message);

/* Sends the request with the next id; returns the id. */
uint64_t peer_send_request(struct peer *peer, const struct shard_request *request,
                           uint32_t budget_us);

/* Receives one frame; false when the connection has ended. */
bool peer_receive(struct peer *peer);

/* Receives a control message; *out needs sl_message_fini. */
void peer_receive_message(struct peer *peer, struct sl_message *out);

/* Receives the end of the connection, whatever frames come before it. */
void peer_expect_end(struct peer *peer);
void peer_expect_end_and_close(struct peer **peer);

/* Receives the reply with this id and returns its status as an sl_err. */
int peer_receive_reply(struct peer *peer, uint64_t id);

/* A hello for the shard; returns the answer: Welcome or Error. */
struct sl_message peer_hello(struct peer *peer, const struct sl_message_hello *hello);

/* A worker (UINT32_MAX: a client) welcomed by the shard. */
struct peer *peer_join(const struct server_fixture *fixture, uint32_t worker, uint32_t shard);

/* Joins shard 0, and opens table 0. */
struct peer *peer_join_table(const struct server_fixture *fixture, uint32_t worker,
                             enum sl_consistency_mode mode);

/* The worker counts from `clock` on. */
void peer_join_clock(struct peer *peer, uint32_t clock);

/* Returns when the server has seen everything that the peer sent. */
void peer_sync(struct peer *peer);

/* Opens a SUM table of SERVER_FIXTURE_DIM; consistency: over two workers. */
void peer_open_table(struct peer *peer, uint32_t id, enum sl_consistency_mode mode);

#define SERVER_CASE(name, setup, ...)                                                              \
    SL_CASE_USING(name, struct server_fixture, fixture, setup, server_fixture_stop, ##__VA_ARGS__)

#endif
