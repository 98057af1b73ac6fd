/* Host headers that are accepted. A page of another site can make a browser send requests to a name
 * that resolves to this process; the Host header then has that name. Any thread. */
#ifndef SL_NET_HTTP_HOST_H
#define SL_NET_HTTP_HOST_H

#include <stdbool.h>

/* Whether the header has, with or without a port, the address to which the connection `fd` was
 * made, localhost, the name of this machine, or the host `configured`, as the user has given it. */
bool sl_host_is_accepted(const char *header, int fd, const char *configured);

#endif
