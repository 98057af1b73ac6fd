/* A peer over shared memory that is no transport of ours: it says and writes what it likes. */
#ifndef TESTS_CONFORMANCE_SHM_RAW_H
#define TESTS_CONFORMANCE_SHM_RAW_H

#include "conformance.h"
#include "net/shm/socket.h"

struct shm_raw {
    int fd;
    struct sl_shared memory;
    struct sl_shm_segment *segment;
    uint32_t sent;
};

/* Connected to the endpoint, and no more. */
struct shm_raw shm_raw_dial(const struct sl_endpoint *endpoint);

/* As the protocol has it, until the connection is accepted. */
struct shm_raw shm_raw_connect(const struct sl_endpoint *endpoint);

/* Any packet, with `fd_count` descriptors. False: the other side is gone. */
bool shm_raw_say(const struct shm_raw *raw, const void *packet, size_t bytes, const int *fds,
                 uint32_t fd_count);

/* A right note, but for what is in it. */
bool shm_raw_note(const struct shm_raw *raw, struct sl_shm_ctrl_msg note, int fd);

/* Reads what the other side says until it closes; returns the number of notes. */
uint32_t shm_raw_await_end(const struct shm_raw *raw);

/* A slot with a right frame of this number, inline. */
struct sl_shm_slot shm_raw_slot(uint32_t number, uint32_t payload_bytes);

/* Publishes the slot as the next one; and rings. */
void shm_raw_put(struct shm_raw *raw, const struct sl_shm_slot *slot);
void shm_raw_publish(struct shm_raw *raw, const struct sl_shm_slot *slot);

void shm_raw_close(struct shm_raw *raw);

#endif
