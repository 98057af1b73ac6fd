/* Messages between processes of the job. */
#include <starling_kv.h>

#include "core/assert.h"
#include "core/reason.h"
#include "worker/kv/engine.h"

static int check_body(const void *body, uint32_t bytes)
{
    if (bytes > SL_KV_MESSAGE_BYTES || (body == NULL && bytes > 0)) {
        return sl_reason_report(SL_ERR_INVALID,
                                "kv: a message of %u bytes%s: accepts up to %u, and a body", bytes,
                                body == NULL ? " without a body" : "", SL_KV_MESSAGE_BYTES);
    }
    return 0;
}

static uint32_t group_of(enum sl_kv_role role)
{
    return role == SL_KV_SCHEDULER ? SL_KV_SCHEDULER_GROUP
           : role == SL_KV_SERVER  ? SL_KV_SERVER_GROUP
           : role == SL_KV_WORKER  ? SL_KV_WORKER_GROUP
                                   : 0;
}

void sl_kv_messages(struct sl_kv *kv, sl_kv_message_fn *request, sl_kv_message_fn *answer,
                    void *ctx)
{
    sl_assert(kv != NULL);
    struct sl_engine *engine = kv->engine;
    sl_engine_lock(engine);
    engine->messages =
        (struct sl_engine_messages){.request = request, .answer = answer, .ctx = ctx};
    sl_engine_wake(engine);
    sl_engine_unlock(engine);
}

/* Lists the processes of the groups to targets[], unless it is NULL. Returns their number. */
static uint32_t list_targets(const struct sl_message_cluster *cluster, uint32_t groups,
                             struct sl_relay_target *targets)
{
    const uint32_t counts[] = {1, cluster->ps_count, cluster->worker_count};
    uint32_t count = 0;
    for (uint32_t g = 0; g < 3; g++) {
        const uint32_t group = 1U << g;
        for (uint32_t i = 0; (groups & group) != 0 && i < counts[g]; i++) {
            if (targets != NULL) {
                targets[count].group = group;
                targets[count].rank = group == SL_KV_SERVER_GROUP ? cluster->ps[i].task_index : i;
            }
            count++;
        }
    }
    return count;
}

int sl_kv_message_send(struct sl_kv *kv, uint32_t groups, const struct sl_kv_node *node,
                       int32_t head, const void *body, uint32_t bytes, uint64_t *timestamp)
{
    sl_assert(kv != NULL);
    sl_assert(timestamp != NULL);
    const struct sl_message_cluster *cluster = &kv->engine->client->cluster;
    const uint32_t asked = node != NULL ? group_of(node->role) : groups;
    if (check_body(body, bytes) != 0) {
        return SL_ERR_INVALID;
    }
    if (asked == 0 || asked > SL_MESSAGE_GROUPS ||
        (node != NULL && node->rank >= SL_LIMIT_WORKERS)) {
        return sl_reason_report(SL_ERR_INVALID,
                                "kv: a message to groups %u: accepts a sum of "
                                "SL_KV_SCHEDULER_GROUP, SL_KV_SERVER_GROUP and SL_KV_WORKER_GROUP, "
                                "or a node of one of them",
                                asked);
    }
    const uint32_t count = node != NULL ? 1 : list_targets(cluster, asked, NULL);
    struct sl_relay *relay = sl_relay_create((uint32_t)head, body, bytes, count);
    if (relay != NULL && node != NULL) {
        relay->targets[0].group = asked;
        relay->targets[0].rank = node->rank;
    } else if (relay != NULL) {
        (void)list_targets(cluster, asked, relay->targets);
    }
    const int err = relay == NULL ? SL_ERR_NO_MEMORY : sl_engine_begin_send(kv, relay, timestamp);
    return err == 0 ? 0 : sl_reason_report(err, "kv: message: %s", sl_err_name(err));
}

int sl_kv_message_answer(struct sl_kv *kv, const struct sl_kv_message *request, int32_t head,
                         const void *body, uint32_t bytes)
{
    sl_assert(kv != NULL);
    sl_assert(request != NULL);
    if (check_body(body, bytes) != 0) {
        return SL_ERR_INVALID;
    }
    const int err =
        sl_relay_inbox_answer(&kv->engine->inbox, request->id, (uint32_t)head, body, bytes);
    return err == 0 ? 0 : sl_reason_report(err, "kv: answer: %s", sl_err_name(err));
}
