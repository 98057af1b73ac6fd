/* Servers and the scheduler as functions of a program. */
#include <starling_kv.h>

#include "core/assert.h"
#include "ps/run.h"

int sl_kv_serve(int argc, char **argv, const struct sl_kv_handler *handler)
{
    return sl_ps_run(argc, argv, handler, NULL);
}

void sl_kv_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer)
{
    sl_assert(token != NULL);
    sl_assert(answer != NULL);
    sl_ps_reply(token, answer);
}
