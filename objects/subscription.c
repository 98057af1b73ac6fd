#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/shared.h"
#include "objects/call.h"
#include "objects/error.h"
#include "objects/node.h"
#include "objects/session.h"

struct sl_subscription {
    struct sl_objects_session *session;
    struct sl_shared memory; /* the board */
    const struct sl_objects_board_entry *entry;
};

static int attach_board(struct sl_subscription *subscription, int fd)
{
    const size_t bytes = sizeof(struct sl_objects_board);
    const int err = sl_shared_attach(fd, bytes, bytes, SL_SHARED_READ, &subscription->memory);
    if (err != 0) {
        (void)close(fd);
        return sl_objects_fail(err, "cannot map the board: %s", sl_err_name(err));
    }
    return 0;
}

static int follow(struct sl_subscription *subscription, const char *name, uint32_t timeout_ms)
{
    struct sl_objects_session_request request = {.kind = SL_OBJECTS_SESSION_HELLO,
                                                 .timeout_ms = timeout_ms,
                                                 .version = SL_OBJECTS_SESSION_MAGIC};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    int err = sl_objects_session_call(subscription->session, &request, &answer, fds);
    err = err != 0 ? err : attach_board(subscription, fds[0]);
    if (err == 0) {
        request.kind = SL_OBJECTS_SESSION_FOLLOW;
        (void)snprintf(request.name, sizeof request.name, "%s", name);
        err = sl_objects_session_call(subscription->session, &request, &answer, fds);
    }
    if (err == 0) {
        const struct sl_objects_board *board = (void *)subscription->memory.base;
        subscription->entry = &board->entries[answer.board_entry];
    }
    return err;
}

int sl_subscription_open(struct sl_objects *objects, const char *name, uint32_t timeout_ms,
                         struct sl_subscription **out)
{
    sl_assert(objects != NULL);
    sl_assert(out != NULL);
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    if (err != 0) {
        return err;
    }
    struct sl_subscription *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    err = sl_objects_session_open(objects, &made->session);
    err = err != 0 ? err : follow(made, name, timeout_ms);
    if (err != 0) {
        sl_subscription_close(&made);
        return err;
    }
    *out = made;
    return sl_objects_succeed();
}

uint64_t sl_subscription_newest(const struct sl_subscription *subscription)
{
    sl_assert(subscription != NULL);
    return sl_objects_board_announced(subscription->entry);
}

int sl_subscription_wait(struct sl_subscription *subscription, uint64_t above, uint32_t timeout_ms,
                         uint64_t *version)
{
    sl_assert(subscription != NULL);
    sl_assert(version != NULL);
    const struct sl_objects_session_request request = {
        .kind = SL_OBJECTS_SESSION_WAIT, .timeout_ms = timeout_ms, .version = above};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    int err = sl_objects_check_timeout(timeout_ms);
    err = err != 0 ? err : sl_objects_session_call(subscription->session, &request, &answer, fds);
    if (err != 0) {
        return err;
    }
    *version = answer.version;
    return sl_objects_succeed();
}

void sl_subscription_close(struct sl_subscription **subscription)
{
    sl_assert(subscription != NULL);
    struct sl_subscription *gone = *subscription;
    *subscription = NULL;
    if (gone != NULL) {
        const struct sl_reason saved = sl_objects_error_save();
        sl_objects_session_close(&gone->session);
        sl_shared_detach(&gone->memory);
        free(gone);
        sl_objects_error_restore(&saved);
    }
}
