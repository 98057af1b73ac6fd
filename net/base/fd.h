/* Descriptors of sockets. Any thread. */
#ifndef SL_NET_BASE_FD_H
#define SL_NET_BASE_FD_H

/* Returns fd, or a duplicate above the standard descriptors: if the program was started with one of
 * them closed, its output must not go to a peer. Takes fd. -1, with errno: fd was -1, or there is
 * no descriptor left, and fd is closed. */
int sl_fd_lift(int fd);

#endif
