/* Sessions of other processes of the host: packets (session.h) on an abstract socket, from
 * processes of the same user only. A packet that is not a request, or comes while one is in
 * progress, ends its connection, and with it the session; other sessions are not disturbed.
 *
 * The agent's side belongs to the node's reactor, and never waits. The reader's side is blocking,
 * for one thread at a time, and needs no node. */
#ifndef SL_OBJECTS_NODE_LOCAL_H
#define SL_OBJECTS_NODE_LOCAL_H

#include "objects/node/session.h"

#define SL_OBJECTS_LOCAL_NAME_BYTES 64 /* of an agent, with NUL */
#define SL_OBJECTS_LOCAL_DEFAULT    "default"
#define SL_OBJECTS_LOCAL_OFF        "off" /* no agent */

/* Sets *out to the address of the agent of this user with the name. Returns its length. */
struct sockaddr_un;
uint32_t sl_objects_local_address(const char *name, struct sockaddr_un *out);

/* Agent: on the reactor */

/* Accepts sessions; node->local has them. Errors: IN_USE (another agent of this user has the name),
 * NO_MEMORY, IO, UNSUPPORTED (a simulated reactor). */
int sl_objects_local_open(struct sl_objects *node, const char *name);

/* Ends all sessions. No effect if it is not open. */
void sl_objects_local_close(struct sl_objects *node);

/* Reader */

/* Connects to the agent of this host and user with the name, and sends HELLO. catalogue: that the
 * agent has to have; "": any. *fd, and *board_fd of its board, are the caller's. Errors, with a
 * reason: NOT_FOUND (no process listens), REFUSED (another user's, another catalogue), CLOSED (too
 * many sessions), VERSION, DEADLINE (the agent is stopped), IO. */
int sl_objects_local_connect(const char *name, const char *catalogue, uint32_t timeout_ms, int *fd,
                             int *board_fd, struct sl_reason *reason);

/* Makes one request. fds[answer->fd_count] are the caller's. Returns answer->err, with its text as
 * reason; or, and then the connection is of no more use: CLOSED (the agent has ended), PROTOCOL,
 * DEADLINE (the agent has not answered for request->timeout_ms and 0.05 s). */
int sl_objects_local_call(int fd, const struct sl_objects_session_request *request,
                          struct sl_objects_session_answer *answer,
                          int fds[SL_OBJECTS_SESSION_FDS_MAX], struct sl_reason *reason);

#endif
