/* TCP sockets of a transport: options, errors, and their state in the kernel. Owner reactor. */
#ifndef SL_NET_TCP_SOCKET_H
#define SL_NET_TCP_SOCKET_H

#include "net/tcp/state.h"

/* Opens a blocking socket (io_uring needs no other) with the transport's options. Errors: IO,
 * NO_MEMORY. */
int sl_tcp_socket_open(const struct sl_tcp *tcp, int family, int *out_fd);

/* Sets the options that an accepted socket does not reliably inherit. */
void sl_tcp_socket_tune(const struct sl_tcp *tcp, int fd);

/* Sets SO_RCVLOWAT: the socket becomes readable at `bytes`, or at the end of the stream. Returns
 * false if the kernel refuses. */
bool sl_tcp_socket_set_low(int fd, uint32_t bytes);

/* Sets TCP_USER_TIMEOUT: how long sent data may stay unacknowledged. */
void sl_tcp_socket_set_patience(int fd, uint32_t timeout_ms);

/* State of a connection in the kernel (TCP_INFO). */
struct sl_tcp_progress {
    uint64_t received, acked; /* bytes, since the connection opened */
    uint32_t since_ack_ms;    /* since the last acknowledgement */
    bool all_arrived;         /* nothing is unsent or unacknowledged */
    bool window_closed;       /* the peer's receive window is closed */
    bool over;                /* the kernel has ended the connection */
};

/* Returns false if the kernel does not provide the state. */
bool sl_tcp_socket_progress(int fd, struct sl_tcp_progress *out);

/* Returns why the kernel has ended an open connection; CLOSED if unknown. */
int sl_tcp_socket_end_err(int fd);

/* Converts an errno of an open connection. */
int sl_tcp_socket_err(int system_errno);

/* Opens a bound, listening socket; waits up to 0.5 s for an address that is in use. Errors: IN_USE,
 * IO, NOT_FOUND (no such local address). */
int sl_tcp_socket_listen(const struct sl_tcp *tcp, const struct sockaddr_storage *address,
                         socklen_t address_bytes, int *out_fd);

/* Binds a socket that will connect to a numeric address of this host; the kernel chooses the port
 * when it connects. Errors: NOT_FOUND: this host lacks it, or it is of another family. */
int sl_tcp_socket_bind(int fd, const char *local);

/* Checks that the kernel has this congestion control. Errors: INVALID, with a log line that lists
 * the available ones. */
int sl_tcp_socket_check_congestion(const char *name);

/* Returns the endpoint of this side or of the peer. Errors: IO. */
int sl_tcp_socket_name(int fd, bool of_peer, struct sl_endpoint *out);

/* Whether the socket is connected to itself: the kernel may choose the destination port as source
 * port. */
bool sl_tcp_socket_is_own_peer(int fd);

#endif
