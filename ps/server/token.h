/* Reply tokens of a server whose handler keeps requests (starling_kv.h). A token outlives its
 * request, whose client may leave, and the server, which may stop: until it is answered, its memory
 * belongs to the program. Freed tokens are reused late, so that a second answer is detected.
 *
 * Answers come from any thread. They are listed under a lock, and one mail announces them to the
 * reactor. A server without a handler has no tokens. Allocates when more tokens are out than ever
 * before. */
#ifndef SL_PS_SERVER_TOKEN_H
#define SL_PS_SERVER_TOKEN_H

#include <starling_kv.h>

#include "reactor/mailbox.h"

struct sl_server_request;
struct sl_server_tokens;

/* Called when the request's token was answered. Owner reactor. */
typedef void sl_server_token_answered_fn(struct sl_server_request *request,
                                         const struct sl_kv_answer *answer);

/* Errors: NO_MEMORY, TOO_LARGE (lanes of the mailbox). Owner reactor. */
int sl_server_tokens_create(struct sl_mailbox *mailbox, sl_server_token_answered_fn *answered,
                            struct sl_server_tokens **out);

/* The server ends. No token may have a request. Tokens that are out stay valid until they are
 * answered. Owner reactor. Nulls *tokens. */
void sl_server_tokens_close(struct sl_server_tokens **tokens);

/* Returns the token that the handler may keep next; NULL: no memory. Owner reactor. */
struct sl_kv_token *sl_server_token_offer(struct sl_server_tokens *tokens);

/* The handler has kept the offered token, for this request. NULL: no effect. Owner
 * reactor. */
void sl_server_token_bind(struct sl_kv_token *token, struct sl_server_request *request);

/* The token's request has ended: no answer is wanted, or the answer was sent. NULL: no
 * effect. Owner reactor. */
void sl_server_token_unbind(struct sl_kv_token *token);

/* As sl_kv_reply. Any thread. */
void sl_server_token_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer);

#endif
