/* A peer over RDMA that is no transport of ours: it says what it likes, by verbs alone. */
#ifndef TESTS_CONFORMANCE_RDMA_RAW_H
#define TESTS_CONFORMANCE_RDMA_RAW_H

#include "net/rdma/library.h"
#include "net/rdma/packet.h"
#include "rdma.h"

#define RAW_SEND_BYTES 16384U /* the longest SEND: more than a receiver has room for */
#define RAW_SENDS      64U    /* outstanding */
#define RAW_RECEIVES   64U
#define RAW_LENT_BYTES (1U << 20)

struct rdma_raw {
    const struct sl_rdma_library *library;
    struct rdma_event_channel *channel;
    struct rdma_cm_id *id;
    struct ibv_pd *pd;
    struct ibv_cq *cq;
    struct ibv_mr *mr; /* of all `memory`; others may read and write it */
    uint8_t *memory;
    uint8_t *lent; /* RAW_LENT_BYTES of it, which serve nothing else */
    struct sl_rdma_hello theirs;
    uint32_t posted, completed; /* sends */
    uint32_t failed;            /* of them, and of the receives */
    enum ibv_wc_status first_failure;
    uint32_t received, read; /* packets that came, and that rdma_raw_receive returned */
    uint32_t received_bytes[RAW_RECEIVES];
    bool connected, ended;
};

/* A queue pair of its own, with receives posted, and the way to the endpoint; no more. */
struct rdma_raw rdma_raw_dial(const struct sl_endpoint *endpoint);

/* Asks for a connection with this private data. False: it is turned away. */
bool rdma_raw_ask(struct rdma_raw *raw, const void *data, size_t bytes);

struct sl_rdma_hello rdma_raw_hello(void);

/* As the protocol has it, until the connection is there. */
struct rdma_raw rdma_raw_connect(const struct sl_endpoint *endpoint);

/* Posts a SEND of anything; a failure is seen later, or never. */
void rdma_raw_send(struct rdma_raw *raw, const void *packet, size_t bytes);

/* Posts an RDMA write of the lent memory's first bytes to where it may not. */
void rdma_raw_write(struct rdma_raw *raw, uint64_t to, uint32_t key, uint32_t bytes);

/* Posts an RDMA read of so many bytes to the beginning of the lent memory. */
void rdma_raw_read(struct rdma_raw *raw, uint64_t from, uint32_t key, uint32_t bytes);

/* The next packet that came; NULL: the connection has ended. Valid until the one after it. */
const struct sl_rdma_packet *rdma_raw_receive(struct rdma_raw *raw, uint32_t *bytes);

/* Until what was sent has come to the other side's device, or the connection has ended. */
void rdma_raw_settle(struct rdma_raw *raw);

/* Its end as that of a process: the other side is told by the kernel, or not at all. */
void rdma_raw_close(struct rdma_raw *raw);

/* A packet in the making. */
struct rdma_raw_packet {
    _Alignas(8) uint8_t bytes[RAW_SEND_BYTES];
    uint32_t count;
};

/* Begun, with this head; then pieces and frames behind it, as they come. */
struct rdma_raw_packet rdma_raw_begin(struct sl_rdma_packet head);
void rdma_raw_add(struct rdma_raw_packet *packet, const void *from, size_t bytes);
void rdma_raw_add_frame(struct rdma_raw_packet *packet, uint32_t number, uint32_t payload_bytes);

/* One right frame in a right packet. */
struct rdma_raw_packet rdma_raw_frames(uint32_t number, uint32_t payload_bytes);

#endif
