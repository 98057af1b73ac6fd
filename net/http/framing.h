/* Framing says where the body of a request ends. Owner: the server's thread. */
#ifndef SL_NET_HTTP_FRAMING_H
#define SL_NET_HTTP_FRAMING_H

#include <stdbool.h>

struct MHD_Connection;

/* Whether the request has one length, or comes in chunks, but not both, and not two lengths. Else a
 * proxy may see another end of the body, and the rest would be a request that it did not check (RFC
 * 9112, 6.3): the reply is 400, and the connection ends. */
bool sl_http_framing_is_clear(struct MHD_Connection *connection);

#endif
