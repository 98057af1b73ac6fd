/* For tests of the server on a clock of their own: one server, shard 0 of 1, and peers in the same
 * thread, over the transport from memory to memory. Assertions fail when something does not come
 * within many turns. */
#ifndef SL_TESTS_UNIT_PS_SERVER_STEPPED_H
#define SL_TESTS_UNIT_PS_SERVER_STEPPED_H

#include "net/outbox.h"
#include "ps/server/server.h"
#include "tests/support/loop_transport.h"
#include "tests/support/shard_request.h"
#include "tests/support/stepped_pair.h"
#include "tests/support/unit.h"

#define STEPPED_DIM     4
#define NOBODY          UINT32_MAX /* a client without a clock */
#define STEPPED_KEYS    20000      /* a push of them takes many turns */
#define STEPPED_BUDGET  (600U * 1000 * 1000)
#define STEPPED_REPLIES 64
#define STEPPED_LEASE   (10 * SL_CLOCK_NS_PER_S)

struct stepped {
    struct sl_loop_network network;
    struct sl_stepped_pair pair; /* a: the server's side */
    struct sl_server *server;
    struct sl_server *servers[2];     /* itself, and what the test puts behind it */
    struct sl_server_options options; /* what the test wants different */
    bool registers_nothing;           /* likewise, of the network */
    struct sl_endpoint endpoint, path_endpoint, bypass_endpoint;
    struct sl_endpoint behind; /* of servers[1], with shard 0 too, for peers that ask for shard 1 */
    struct sl_transport *path; /* of the peers that share memory, when the options have it too */
    struct sl_transport *bypass; /* of those that have a device, likewise */
    struct sl_outbox outbox;     /* of the peers */
    uint64_t keys[STEPPED_KEYS];
    float gradients[STEPPED_KEYS * STEPPED_DIM]; /* all 1 */
    struct shard_request request;
};

struct stepped_reply {
    uint64_t id;
    int status;
    uint32_t bytes;
    float value; /* the first of a pull */
    float last;
    char text[SL_MESSAGE_TEXT_BYTES];
};

/* A connection; a peer forgets an old one when it connects anew. */
struct stepped_link {
    struct stepped_peer *peer; /* NULL: forgotten */
    struct sl_conn *conn;
    struct sl_outbox_queue queue;
};

struct stepped_peer {
    struct stepped *world;
    struct sl_message_hello hello;
    uint32_t shard;            /* to attach */
    bool path, bypass;         /* by shared memory, by a device; set before it joins */
    void *reply_buffer;        /* where long replies go instead of `sink`; NULL: nowhere */
    struct stepped_link *link; /* NULL: it has ended */
    bool connected;
    uint32_t answer_count;
    struct sl_message answer; /* the control message received last */
    uint32_t reply_count;
    struct stepped_reply replies[STEPPED_REPLIES]; /* the last ones */
    _Alignas(8) uint8_t sink[SL_LIMIT_FRAME_PAYLOAD_BYTES];
};

/* A world and two peers in it, not joined. */
struct stepped_two {
    struct stepped stepped;
    struct stepped_peer first, second;
};

void stepped_two_setup(struct stepped_two *two, uint32_t connections_max);
void stepped_two_teardown(struct stepped_two *two);

/* The world is zeroed but for options; large, so from the heap. */
void stepped_start(struct stepped *world, uint64_t seed);
void stepped_stop(struct stepped *world);
void stepped_turns(struct stepped *world, uint32_t count);

/* So much time, in turns of a tenth of a second. */
void stepped_pass(struct stepped *world, uint64_t ns);

/* Connects, and waits until it is connected. */
void stepped_connect(struct stepped_peer *peer);

/* A client of the shard, welcomed; worker NOBODY: without a clock. Zeroed before. */
void stepped_join(struct stepped_peer *peer, struct stepped *world, uint32_t worker,
                  uint64_t client_id);

/* Connects anew, as the same client, without closing what was there, and is welcomed; or answered
 * something else. */
/* Attaches peer->shard; returns the answer. After a hello with purpose DATA, stepped_join and
 * stepped_again do it. */
const struct sl_message *stepped_attach(struct stepped_peer *peer);

const struct sl_message *stepped_again(struct stepped_peer *peer);

/* Closes the connection without a goodbye; the server has seen the end when it returns. */
void stepped_break(struct stepped_peer *peer);

/* Sends a message, and waits for one. */
const struct sl_message *stepped_ask(struct stepped_peer *peer, const struct sl_message *message);
void stepped_tell(struct stepped_peer *peer, const struct sl_message *message);

void stepped_open_table(struct stepped_peer *peer, uint32_t id, enum sl_consistency_mode mode);

/* Its optimizer is SUM. */
void stepped_open_spec(struct stepped_peer *peer, uint32_t id, struct sl_table_spec spec);

/* The client 7, no worker, joins and opens the ASP table 0. */
void stepped_join_client(struct stepped_peer *peer, struct stepped *world);

/* Sends world->request. */
void stepped_send(struct stepped_peer *peer, uint64_t id, uint32_t budget_us);

/* Builds and sends it: a push, a pull, a tick. */
void stepped_push(struct stepped_peer *peer, uint64_t id, uint16_t table, uint32_t key_count);
void stepped_pull(struct stepped_peer *peer, uint64_t id, uint32_t clock, uint16_t table);
void stepped_tick(struct stepped_peer *peer, uint64_t id, uint32_t clock);

/* Likewise, and waits for its success. */
void stepped_push_done(struct stepped_peer *peer, uint64_t id, uint16_t table, uint32_t key_count);
void stepped_tick_done(struct stepped_peer *peer, uint64_t id, uint32_t clock);

/* Waits for the reply to the request. */
const struct stepped_reply *stepped_reply(struct stepped_peer *peer, uint64_t id);

/* Waits for the reply, and expects success. */
void stepped_expect_ok(struct stepped_peer *peer, uint64_t id);

struct sl_transport_stats stepped_stats(const struct sl_transport *transport);

/* Waits until the connection has ended. */
void stepped_expect_end(struct stepped_peer *peer);

/* What the first rows of the table have now, asked by somebody else: the first and the last of them
 * are the same. */
float stepped_values(struct stepped *world, uint16_t table, uint32_t key_count);

/* worker/0 and worker/1, of clients 7 and 8; the first has ended iteration 0. Table 0 is BSP, table
 * 1 ASP. */
void stepped_join_two(struct stepped_peer *first, struct stepped_peer *second,
                      struct stepped *world);

/* A case with such a world, which takes so many connections at the most (0: the default). */
#define TWO_CASE_OF(name, connections_max)                                                         \
    SL_CASE_USING(name, struct stepped_two, world, stepped_two_setup, stepped_two_teardown,        \
                  connections_max)
#define TWO_CASE(name) TWO_CASE_OF(name, 0)

#endif
