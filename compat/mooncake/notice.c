#include "compat/mooncake/notice.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compat/mooncake/segment.h"

#define TAKE_MS 1 /* for the first message */

struct sl_transfer_notice sl_mooncake_notice(notify_msg_t message)
{
    const size_t bytes = message.msg != NULL ? strlen(message.msg) : 0;
    return (struct sl_transfer_notice){.name = message.name,
                                       .text = message.msg,
                                       .bytes = bytes <= SL_TRANSFER_NOTICE_BYTES ? (uint32_t)bytes
                                                                                  : UINT32_MAX};
}

int genNotifyInEngine(transfer_engine_t handle, uint64_t target_id, notify_msg_t notify_msg)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL) {
        return SL_MOONCAKE_INVALID;
    }
    const segment_id_t id = target_id <= INT32_MAX ? (segment_id_t)target_id : -1;
    sl_mooncake_segment_open_local(engine, id);
    pthread_mutex_lock(&engine->lock);
    struct sl_mooncake_peer *peer = sl_mooncake_segment_use(engine, id);
    pthread_mutex_unlock(&engine->lock);
    if (peer == NULL) {
        return sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "segment %" PRIu64 " is not open",
                                target_id);
    }
    const struct sl_transfer_notice notice = sl_mooncake_notice(notify_msg);
    const int err = sl_transfer_notice_send(peer->segment, &notice, SL_MOONCAKE_WAIT_MS);
    const int result =
        err == 0 ? 0
                 : sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "%s", sl_transfer_last_error());
    sl_mooncake_segment_release(engine, peer);
    return result;
}

static bool copy(const struct sl_transfer_noticed *from, notify_msg_t *to)
{
    to->name = strdup(from->name);
    to->msg = strdup((const char *)from->text);
    return to->name != NULL && to->msg != NULL;
}

notify_msg_t *getNotifsFromEngine(transfer_engine_t handle, int *size)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL || size == NULL) {
        return NULL;
    }
    struct sl_transfer_noticed one;
    notify_msg_t *found = NULL;
    int count = 0;
    bool has_memory = true;
    *size = 0;
    while (has_memory && count < SL_TRANSFER_NOTICES_MAX &&
           sl_transfer_notice_take(engine->transfer, TAKE_MS, &one) == 0) {
        notify_msg_t *larger = realloc(found, ((size_t)count + 1) * sizeof *larger);
        has_memory = larger != NULL;
        if (has_memory) {
            found = larger;
            has_memory = copy(&one, &found[count++]);
        }
    }
    if (!has_memory) {
        (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "out of memory");
        (void)freeNotifsMsgBuf(found, count);
        return NULL;
    }
    *size = count;
    return found;
}

int freeNotifsMsgBuf(notify_msg_t *msg, int size)
{
    for (int i = 0; msg != NULL && i < size; i++) {
        free(msg[i].name);
        free(msg[i].msg);
    }
    free(msg);
    return 0;
}
