/* Error replies to requests, and the log lines about them. Owner reactor. */
#ifndef SL_PS_SERVER_REQUEST_ERROR_H
#define SL_PS_SERVER_REQUEST_ERROR_H

#include "ps/server/request.h"

/* Sends an error reply. Such replies are short: if even this one finds no room, the connection is
 * closed. */
void sl_server_request_error_reply(const struct sl_server_reply_to *to, int err, const char *text);

/* Counts and logs a request with a value that its table does not accept. */
void sl_server_request_error_not_finite(const struct sl_server_channel *channel, const char *text);

#endif
