/* memif's control messages, and the sockets that they go over: datagrams of 128 bytes, in order,
 * some with a descriptor. As the protocol's public header (libmemif, VPP, DPDK's driver) has them;
 * both ends are on one machine, so that numbers are in its order. No thread, no state. */
#ifndef SL_NET_DPDK_MODULE_MEMIF_SOCKET_H
#define SL_NET_DPDK_MODULE_MEMIF_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SL_MODULE_MEMIF_PATH_BYTES   108U /* of a socket's address, as the driver has it */
#define SL_MODULE_MEMIF_REASON_BYTES 96U

enum sl_module_memif_kind {
    SL_MODULE_MEMIF_ACK = 1,
    SL_MODULE_MEMIF_HELLO,
    SL_MODULE_MEMIF_INIT,
    SL_MODULE_MEMIF_ADD_REGION,
    SL_MODULE_MEMIF_ADD_RING,
    SL_MODULE_MEMIF_CONNECT,
    SL_MODULE_MEMIF_CONNECTED,
    SL_MODULE_MEMIF_DISCONNECT,
};

struct sl_module_memif_message {
    uint8_t bytes[128];
    int fd; /* -1: none; else whoever has the message has to close it */
};

struct sl_module_memif_address {
    char path[SL_MODULE_MEMIF_PATH_BYTES];
    bool is_abstract;
};

/* Descriptors that do not block, or -errno. A file that nobody listens at any more gives way. */
int sl_module_memif_socket_listen(const struct sl_module_memif_address *address);
int sl_module_memif_socket_dial(const struct sl_module_memif_address *address);
int sl_module_memif_socket_accept(int listener);

/* 1: there was one; 0: not now; -1: the other side has gone, or sends what is no message. */
int sl_module_memif_socket_receive(int fd, struct sl_module_memif_message *out);
/* The same. The descriptor of one that was sent is closed. */
int sl_module_memif_socket_send(int fd, struct sl_module_memif_message *message);

uint16_t sl_module_memif_socket_kind(const struct sl_module_memif_message *message);
uint32_t sl_module_memif_socket_id(const struct sl_module_memif_message *init);
/* From a client to its server, or back. */
bool sl_module_memif_socket_is_c2s(const struct sl_module_memif_message *add_ring);
/* Its index among the rings of its way. */
uint32_t sl_module_memif_socket_ring(const struct sl_module_memif_message *add_ring);
void sl_module_memif_socket_reason(const struct sl_module_memif_message *disconnect,
                                   char out[SL_MODULE_MEMIF_REASON_BYTES]);

/* Sent and forgotten: who does not get them has gone, which shows otherwise. */
void sl_module_memif_socket_say(int fd, enum sl_module_memif_kind ack_or_hello);
void sl_module_memif_socket_refuse(int fd, const char *reason);

/* Closes what is open, and says that it is not. */
void sl_module_memif_socket_close(int *fd);

#endif
