/* Packets between processes of this host, with descriptors: sockets of the kind SOCK_SEQPACKET at
 * abstract addresses. Any thread; no allocation. */
#ifndef SL_NET_BASE_UNIX_SOCKET_H
#define SL_NET_BASE_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "core/err.h"

#define SL_UNIX_SOCKET_FDS_MAX 4 /* descriptors of one packet */

/* The abstract address of a text, which is shorter than sun_path. */
socklen_t sl_unix_socket_address(const char *text, struct sockaddr_un *out);

/* Opens a non-blocking socket, above the standard descriptors. Errors: IO, NO_MEMORY. */
int sl_unix_socket_open(int *out_fd);

/* Whether the peer has our user id; *pid is its process id. Abstract addresses have no owner. */
bool sl_unix_socket_is_ours(int fd, int *pid);

/* Sends one packet with descriptors, which stay the caller's; never waits. Errors: AGAIN (the peer
 * does not read), CLOSED. */
int sl_unix_socket_send(int fd, const void *packet, size_t bytes, const int *fds,
                        uint32_t fd_count);

/* Receives one packet of exactly `bytes` bytes, and fds[*fd_count], at most fds_most of them, which
 * are the caller's. After an error there are none. Never waits. Errors: AGAIN (none), CLOSED,
 * PROTOCOL (another length, too many descriptors). */
int sl_unix_socket_receive(int fd, void *packet, size_t bytes, int *fds, uint32_t fds_most,
                           uint32_t *fd_count);

#endif
