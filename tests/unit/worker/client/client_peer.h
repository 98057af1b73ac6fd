/* A client whose ps the test plays, one thread, a transport from memory to memory: the ps is its
 * own coordinator, has one shard and one table, answers as `manner` says, and remembers what it
 * heard.
 */
#ifndef SL_TESTS_UNIT_WORKER_CLIENT_CLIENT_PEER_H
#define SL_TESTS_UNIT_WORKER_CLIENT_CLIENT_PEER_H

#include <stdint.h>

#include "tests/support/loop_transport.h"
#include "tests/support/unit.h"
#include "worker/client/client_internal.h"

#define PEER_TURNS_MAX      20000
#define PEER_DIM            1
#define PEER_TABLE          3 /* the id that it gives */
#define PEER_HEARD_MAX      4096
#define PEER_REGISTERED_MAX 100

/* Of requests on the data connection. */
enum peer_manner {
    PEER_CORRECT,
    PEER_UNKNOWN_ID,
    PEER_WRONG_LENGTH,
    PEER_TWICE,
    PEER_ERROR_WITHOUT_TEXT,
    PEER_ERROR_WITH_LONG_TEXT,
    PEER_LATE, /* says itself that the deadline has passed */
    PEER_SILENT,
    PEER_HANGS_UP,
};

/* A message of the client's on the data connection. */
struct peer_heard {
    uint32_t connection;       /* which one, from 1 */
    enum sl_message_kind kind; /* 0: a request */
    uint64_t id;               /* of a request */
    uint8_t op;                /* of its first section */
    uint32_t clock;            /* of a request, or of a JOIN */
};

/* What the client has requested of its transport of the preferred path. */
struct peer_path {
    enum sl_endpoint_scheme scheme; /* shm, unless the case says another */
    struct sl_loop_network network;
    struct sl_transport *transport;   /* the ps's */
    struct sl_endpoint endpoint;      /* the client's end of it is asked for this, by shm:// */
    char host[SL_MESSAGE_NAME_BYTES]; /* the ps's */
    char client_host[SL_MESSAGE_NAME_BYTES]; /* the client's */
    bool client_wants_none;                  /* its option disable_shm, or disable_rdma */
    bool client_wants_tls;                   /* over TCP, which is not TCP here */
    bool is_missing;                         /* no transport for it is built in */
    bool is_plain;                           /* it shares nothing */
    bool is_only;                            /* the ps has no other way */
    const char *device;                      /* rdma, dpdk: the client's options; NULL, 0: none */
    uint32_t gid_index;
    struct sl_transport_options options; /* that the client's transport was opened with */

    /* What the client's transport was told. */
    struct {
        void *base;
        size_t bytes;
    } registered[PEER_REGISTERED_MAX];
    uint32_t registered_count;
    void *reply_buffer; /* of the last frame sent */
    uint32_t reply_buffer_bytes;
    const void *payload; /* likewise; NULL: all of it is in the outbox */
};

struct peer_world {
    struct sl_loop_network network; /* first */
    struct peer_path path;
    struct sl_clock clock;
    uint64_t now_ns;
    struct sl_reactor *reactors[2]; /* the ps's, the client's */
    struct sl_client *client;
    struct sl_table *table;

    struct sl_transport *transport;
    struct sl_outbox outbox;
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_message_welcome welcome; /* of the shard */
    struct sl_message_welcome control_welcome;
    enum peer_manner manner;
    bool is_deaf;    /* hangs up when it hears a hello for the shard */
    int open_err;    /* of tables on the shard; 0: it opens them */
    uint32_t joined; /* the clock that it answers to a JOIN when that is greater */
    bool answers_barrier;
    struct sl_message checkpoint_answer; /* with the id of who asks; a kind of 0: none comes */
    bool client_joins;                   /* the client comes on top of the job's workers */

    struct sl_conn *control, *data; /* the last ones, or NULL */
    uint32_t data_connections;
    struct peer_heard heard[PEER_HEARD_MAX];
    uint32_t heard_count;
    uint32_t registered, kept_tables, heartbeats; /* on the control connections */
    struct sl_message_barrier barrier;
    uint32_t checkpoint_timeout_ms;
};

void peer_setup(struct peer_world *world); /* the client has not begun */
void peer_teardown(
    struct peer_world *world);             /* closes the client, which may have failed to start */
void peer_again(struct peer_world *world); /* both, for another part of the case */
#define PEER_CASE(name) SL_CASE_USING(name, struct peer_world, world, peer_setup, peer_teardown)

void peer_turn(struct peer_world *world);
void peer_turns(struct peer_world *world, uint32_t count);

/* Fills in the preferred path that the ps registers. */
void peer_fill_path(const struct peer_world *world, struct sl_message_ps *ps);

/* The result of the start. */
int peer_start_client(struct peer_world *world, int32_t task_index);
void peer_start_with_table(struct peer_world *world, int32_t task_index);

/* Sends a message that was not asked for on the control connection. */
void peer_tell(struct peer_world *world, const struct sl_message *message);

/* The ps begins, or ceases, to listen on the preferred path. */
void peer_listen_path(struct peer_world *world);
void peer_ignore_path(struct peer_world *world);

/* Answers the request that was heard last with an error. */
void peer_refuse(struct peer_world *world, int err);

/* Closes the data connection, and turns until the client has seen it. */
void peer_hang_up(struct peer_world *world);

/* Turns until the step is done; ends it, which must end like this. */
void peer_expect(struct peer_world *world, struct sl_step *step, int err, const char *text);

void peer_assert_contains(const char *text, const char *part);

#endif
