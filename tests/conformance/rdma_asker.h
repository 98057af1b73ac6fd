/* Two layers above a transport, for answers that go to where they are wanted: one asks, and says
 * where; the other answers by the request's id, from memory of either sort. */
#ifndef TESTS_CONFORMANCE_RDMA_ASKER_H
#define TESTS_CONFORMANCE_RDMA_ASKER_H

#include "rdma.h"

#define QUESTIONS_MAX 1200
#define ASKER_POISON  0xe7 /* fills, at `closed`, the landings of what was not answered */

enum answer_manner {
    ANSWER_FROM_REGISTERED = 1 << 0, /* its payload lies in memory that the transport knows */
    ANSWER_LATER = 1 << 1,           /* when answerer_answer_kept says so */
    ANSWER_REFUSED = 1 << 2          /* an error, without a payload */
};

/* A request, and where its answer is wanted */
struct question {
    uint32_t bytes;        /* of the answer's payload, which is content_of(id) */
    uint32_t manner;       /* answer_manner */
    uint8_t *reply_buffer; /* or NULL */
    uint32_t reply_buffer_bytes;
    uint8_t *elsewhere; /* what `sink` says instead of the landing; or NULL */
};

/* Listens on the node, beside the suite's peers; *bound is where. */
void answerer_open(struct node *node, struct sl_endpoint *bound);

/* Answers what was kept of the connections on the node, in an order of the seed's. */
void answerer_answer_kept(struct node *node, uint64_t seed);

/* Disconnects those on the node. */
void answerer_disconnect(struct node *node);

extern atomic_uint answerer_open_count, answerer_kept_count;

struct asker {
    struct node *node;
    struct sl_conn *conn; /* NULL once closed */
    struct question questions[QUESTIONS_MAX];
    uint8_t frames[QUESTIONS_MAX][SL_FRAME_HEADER_BYTES + 8];
    bool answered[QUESTIONS_MAX];
    uint32_t asked, taken;
    atomic_uint answers, sent, sink_asked, closed;
    atomic_int close_err;
    atomic_bool open;
};

/* Connected to the answerer: waits for that. */
struct asker *asker_open(struct node *node, const struct sl_endpoint *endpoint);

/* Asks; the first question has id 1, the next 2. From the test's thread. */
void asker_ask(struct asker *asker, const struct question *questions, uint32_t count);

void asker_disconnect(struct asker *asker);

/* After the world was closed. */
void asker_destroy(struct asker **asker);

#endif
