/* Connections over shared memory. They have an outbox and reply buffers of their own, which their
 * peers read in place, in addition to buffer_bytes_max: half as much again. A push that runs
 * at once is read in the client's memory. Only its structure, everything except values, is copied
 * first, because the peer can change its memory at any time and no check may depend on that. If the
 * client has a direct reply buffer, the reply is made there.
 *
 * Values are read in place only while the message is being delivered: a peer that ends the
 * connection reuses its memory. Owner reactor. */
#ifndef SL_PS_SERVER_SHM_H
#define SL_PS_SERVER_SHM_H

#include "ps/server/request.h"

/* Limits of a request that runs at once, without a copy: the size that clients send in one
 * piece. */
#define SL_SERVER_SHM_PUSH_KEYS  4608
#define SL_SERVER_SHM_BYTES      ((1U << 20) + (64U << 10))

/* From this size on a request may stay in the client's memory. Small pulls are shorter. */
#define SL_SERVER_SHM_SINK_BYTES 4096U

/* Creates the memory for replies, unless it exists. Errors: NO_MEMORY, IO. */
int sl_server_shm_begin(struct sl_server_host *host);
void sl_server_shm_fini(struct sl_server_host *host);

/* Describes a received request. Copies into the connection's sink what the peer could still change:
 * the whole request, or all but the values, which stay in place. */
void sl_server_shm_read(struct sl_server_conn *conn, const struct sl_transport_message *message,
                        struct sl_server_incoming *out);

/* Returns the cost for a turn that starts the request. An array that is only copied, and not into
 * memory that the kernel must then read, runs at the speed of sl_server_request_speed. */
uint64_t sl_server_shm_cost(const struct sl_shard_request *work);

/* Returns true when a long request should stay with its sender until the next turn. */
bool sl_server_shm_is_late(const struct sl_server_conn *conn, uint32_t bytes);

/* The request must wait: appends its values to the copied structure, since the sender may reuse its
 * memory when the connection ends. They still count as out of line: their padding was not checked,
 * and is not checked now. */
void sl_server_shm_take(struct sl_server_conn *conn, struct sl_server_incoming *incoming);

/* Returns the buffers for multi-turn replies to the channel; channel NULL: for an orphan. */
struct sl_server_buffers *sl_server_shm_buffers(struct sl_server_host *host,
                                                const struct sl_server_channel *channel);

/* Returns the buffers that the buffer belongs to. */
struct sl_server_buffers *sl_server_shm_owner(struct sl_server_host *host, const uint8_t *buffer);

/* The request is about to lose its channel: if it continues (goes_on), copies the reply so far
 * from the direct reply buffer. */
void sl_server_shm_take_off(struct sl_server_request *request, bool goes_on);

#endif
