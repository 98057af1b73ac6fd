/* The suite that every transport passes. A target says which transport, how to make an endpoint
 * for it, and what may be forced; the suite starts real reactors with one transport each, and plays
 * the layers above.
 *
 * The world is made anew for each case. The test's thread talks to reactors through node_run, and
 * otherwise looks only at counters that the reactors write. */
#ifndef TESTS_CONFORMANCE_H
#define TESTS_CONFORMANCE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/assert.h"
#include "core/shared.h"
#include "net/transport.h"
#include "tests/support/faulty_transport.h"
#include "tests/support/unit.h"

#define NODES_MAX 3
#define PEERS_MAX 512
#define HELD_MAX  256
#define WAIT_S    180
#define SKIPPED   77 /* a program's exit status */

struct conformance_target {
    const char *name;
    const struct sl_transport_ops *ops;
    const char *endpoint; /* to listen on, port 0 */
    bool polling;
    const struct sl_transport_tls *tls; /* what the transports are opened with, or NULL */
    bool shakes_hands; /* who is turned away hears of it before he is connected; so with TLS */
    bool is_slow;      /* by far: the cases that take long have less to do */
    bool is_lossy;     /* what it carries may have to be sent again */
    uint32_t peer_timeout_ms; /* of worlds for which it does not matter; 0: the transport's */
    /* Takes features from a reactor before its transport opens; NULL: nothing. Owner reactor. */
    void (*cripple)(struct sl_reactor *reactor);
    /* A blocking socket to a listener of the transport's, to send it what no transport would; NULL:
     * there is no such thing, and cases that need it are skipped. */
    int (*connect_raw)(const struct sl_endpoint *endpoint);
    /* What a world's transports are opened with as options.medium; NULL: nothing. Then an address
     * goes with its world. */
    void *(*medium_open)(uint32_t node_count);
    void (*medium_close)(void *medium);
    /* Whose operations `ops` are; NULL: none, and cases with faults are skipped. */
    struct sl_faulty_transport *faulty;
};

/* Runs all cases against a target; returns the number that failed. */
int conformance_run(const struct conformance_target *target);

/* The row of a table of variants, whose first member is its name, that the program's only argument
 * names: CTest runs the program once for each row. Ends the program if there is no such row. */
#define CONFORMANCE_VARIANT(argc, argv, rows)                                                      \
    (&(rows)[conformance_find_variant(argc, argv, &(rows)[0].name, sizeof(rows)[0],                \
                                      sizeof(rows) / sizeof(rows)[0])])
size_t conformance_find_variant(int argc, char **argv, const void *rows, size_t row_bytes,
                                size_t row_count);

/* What the upper layer of a node does with its connections; changed by its reactor only. */
struct policy {
    bool echo;            /* answers every frame with one of the same content */
    bool hold;            /* keeps messages instead of releasing them */
    bool refuse_sink;     /* has no memory for long payloads */
    uint32_t sink_offset; /* of new peers: how far their sinks are from a round address */
    bool disconnect_on_accept;
    bool strangers;         /* accepted peers are not welcome */
    uint32_t disconnect_at; /* disconnects from inside the upcall for this frame; 0: never */
    struct node *owner;     /* hands accepted connections over to this node, at their first frame */
};

struct node {
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_transport *transport;
    struct sl_transport_options options;
    struct sl_endpoint bound;
    struct policy policy;
    struct sl_mailbox_lane *lane; /* of the test's thread */
    /* SHARES, REGISTERS: registered memory, which some frames are made in. */
    struct sl_shared slab;
    size_t slab_used;
    uint32_t slab_frames;
    /* REGISTERS: the same for the sinks of some peers. */
    struct sl_shared sinks;
    size_t sinks_used;
    struct peer *peers[PEERS_MAX];
    atomic_uint peer_count, open_count, closed_count;
    atomic_uint sink_asked, long_received;
    bool calling; /* a function of the transport is running: no upcall may come */
};

struct world {
    const struct conformance_target *target;
    struct node nodes[NODES_MAX];
    uint32_t node_count;
    struct sl_transport_options options;
    const struct sl_clock *clock;
};

extern const struct conformance_target *conformance_target;

/* How many, or how long: of a target that is slow, less. */
static inline uint32_t many(uint32_t fast, uint32_t slow)
{
    return conformance_target->is_slow ? slow : fast;
}

/* node_count reactors with a transport each; node 0 listens. */
struct world *world_open(uint32_t node_count, const struct sl_transport_options *options);

/* As world_open, with reactors whose time moves only by world_pass: what waits for a timer waits
 * for the test, however long that takes. */
struct world *world_open_with_frozen_clock(uint32_t node_count,
                                           const struct sl_transport_options *options);

/* Lets time pass for such reactors, and waits until each has had a turn in which it had. */
void world_pass(struct world *world, uint64_t time_ms);

/* As world_open_with_frozen_clock, but not for world_pass. Over a lossy medium, where what is lost
 * is sent again in time, time passes at a sixteenth of its pace: every limit is so much longer. */
struct world *world_open_unhurried(uint32_t node_count, const struct sl_transport_options *options);

/* Closes everything, and checks that nobody wrote to memory that was given back. */
void world_close(struct world *world);

/* A case in a world, which is closed after it. */
#define WORLD_CASE(name, opened)                                                                   \
    static void name##_in(struct world *world);                                                    \
    SL_CASE(name)                                                                                  \
    {                                                                                              \
        struct world *world = opened;                                                              \
        name##_in(world);                                                                          \
        world_close(world);                                                                        \
    }                                                                                              \
    static void name##_in(struct world *world)

/* Sets what the upper layer does. From the test's thread. */
void node_set_policy(struct node *node, struct policy policy);

/* Runs a function on the node's reactor and waits for it. */
void node_run(struct node *node, void (*run)(struct node *node, void *ctx), void *ctx);

/* Whether SL_TRANSPORT_UNREGISTERED_BYTES_MAX holds for the transport that is tested. */
bool node_needs_registered(void);

/* Opens a transport of its own on the node's reactor, and closes it again; returns the error. */
int node_open(struct node *node, const struct sl_transport_options *options);

/* Waits until a condition over atomics is true; the deadline only ends a hanging test. */
bool wait_expired(uint64_t *deadline_ns);
#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t deadline_ns_ = 0;                                                                 \
        while (!(condition)) {                                                                     \
            if (wait_expired(&deadline_ns_)) {                                                     \
                fail_msg("gave up waiting for %s", #condition);                                    \
            }                                                                                      \
        }                                                                                          \
    } while (0)

struct outgoing;

struct peer {
    struct node *node;
    struct sl_conn *conn;    /* NULL once closed, or handed over */
    struct sl_conn *handle;  /* the same, for messages that are released later than that */
    uint32_t made, expected; /* numbers of the last frame made, and of the next to come */
    struct outgoing *first_waiting, *last_waiting; /* not taken by the transport yet */
    struct outgoing *first_taken, *last_taken;     /* taken, and not `sent` */
    uint8_t *sink, *sink_memory;                   /* sink_memory: to be freed, or NULL */
    bool sink_named;
    struct sl_transport_message held[HELD_MAX];
    uint32_t held_count;
    atomic_bool open;
    atomic_bool sink_refused; /* at least once */
    atomic_uint sent_now;     /* whole frames, of `sent` */
    atomic_uint received, sent, taken, given_back, shorts, writables, closed, handed_over;
    atomic_int close_err;
};

/* Connects a new peer from the node, to target 0 or another; waits for nothing. */
struct peer *peer_connect(struct node *node, const struct sl_endpoint *endpoint);
struct peer *peer_connect_to(struct node *node, const struct sl_endpoint *endpoint,
                             uint32_t target);

/* Makes and sends frames of these payload sizes. Owner reactor. */
void peer_send(struct peer *peer, const uint32_t *sizes, uint32_t count);

/* As peer_send, from the test's thread. */
void peer_send_from_test(struct peer *peer, const uint32_t *sizes, uint32_t count);
void peer_disconnect_from_test(struct peer *peer);

/* Both in one turn: nothing of the peer's can come between. */
void peer_send_and_disconnect_from_test(struct peer *peer, const uint32_t *sizes, uint32_t count);

/* Releases what is held, in the order of `stride` steps through it. Owner reactor. */
void peer_release_held(struct peer *peer, uint32_t stride);

/* The peer that accepted as the n-th of the node; waits for it. */
struct peer *node_peer(struct node *node, uint32_t n);

/* The type of a connection's frame of this number, in either direction, and its payload. */
static inline uint8_t type_of(uint32_t number)
{
    return number % 4 == 1 ? SL_FRAME_DATA : SL_FRAME_REQUEST;
}
const uint8_t *content_of(uint32_t number, uint32_t payload_bytes);

/* A raw connection to node 0 of a world, which echoes, and the peer that accepted it; `bystander`
 * is a connection between nodes 1 and 0. Skips the case where there is no such thing. */
struct raw {
    struct world *world;
    int fd;
    struct peer *accepted, *bystander;
};

struct raw raw_open(struct world *world);

/* The bystander is served as before; then closes everything. */
void raw_close(struct raw *raw);

void raw_write(int fd, const void *from, size_t bytes);
void raw_read(int fd, void *to, size_t bytes);

/* A frame as the peers make it; FRAME_BYTES(payload_bytes) of memory. */
void raw_make_frame(uint8_t *to, uint32_t number, uint32_t payload_bytes);
#define FRAME_BYTES(payload_bytes) (SL_FRAME_HEADER_BYTES + (payload_bytes))

/* conformance_run refers to them, so that a program that calls it has these files. */
extern const char conformance_transfer_cases, conformance_close_cases, conformance_raw_cases,
    conformance_silence_cases, conformance_migrate_cases, conformance_target_cases,
    conformance_rma_cases;

#endif
