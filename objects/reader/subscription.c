#include "objects/reader/subscription.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"
#include "objects/node/call.h"
#include "objects/node/error.h"
#include "objects/node/node.h"

#define RETRY_NS  (20 * SL_CLOCK_NS_PER_MS) /* while no agent listens */
#define HELLO_MS  10000
#define DETECT_MS 1000 /* whether the default agent answers */

/* Connection */

static void close_fds(int *fds, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)close(fds[i]);
    }
}

int sl_objects_connection_call(struct sl_objects_connection *connection,
                               const struct sl_objects_session_request *request,
                               struct sl_objects_session_answer *answer,
                               int fds[SL_OBJECTS_SESSION_FDS_MAX])
{
    struct sl_reason reason;
    *answer = (struct sl_objects_session_answer){0};
    if (connection->session != NULL) {
        return sl_objects_session_call(connection->session, request, answer, fds);
    }
    if (connection->is_broken) {
        return sl_objects_fail(SL_ERR_CLOSED, "the agent has ended");
    }
    const int err = sl_objects_local_call(connection->fd, request, answer, fds, &reason);
    connection->is_broken = err != 0 && answer->err == 0;
    return err == 0 ? 0 : sl_objects_fail(err, "%s", reason.text);
}

void sl_objects_connection_put(struct sl_objects_connection *connection)
{
    if (--connection->uses > 0) {
        return;
    }
    if (connection->session != NULL) {
        sl_objects_session_close(&connection->session);
    }
    if (connection->fd >= 0) {
        (void)close(connection->fd);
    }
    free(connection);
}

/* At the own node, or at the agent with the name. waits: until one listens. */
static int open_session(const struct sl_subscription *subscription, uint64_t deadline_ns,
                        bool waits, struct sl_objects_connection *connection, int *board_fd)
{
    struct sl_objects *node = subscription->node;
    struct sl_reason reason;
    if (subscription->agent[0] == '\0') {
        const struct sl_objects_session_request hello = {.kind = SL_OBJECTS_SESSION_HELLO,
                                                         .timeout_ms = HELLO_MS,
                                                         .version = SL_OBJECTS_SESSION_MAGIC};
        struct sl_objects_session_answer answer;
        const int err = sl_objects_session_open(node, &connection->session);
        return err != 0 ? err : sl_objects_connection_call(connection, &hello, &answer, board_fd);
    }
    for (;;) {
        const int err = sl_objects_local_connect(subscription->agent, node->membership.identity,
                                                 sl_objects_ms_left(node, deadline_ns),
                                                 &connection->fd, board_fd, &reason);
        const bool is_absent = err == SL_ERR_NOT_FOUND || err == SL_ERR_CLOSED;
        if (err == 0) {
            return 0;
        }
        if (!is_absent || !waits || sl_objects_now_ns(node) >= deadline_ns) {
            return sl_objects_fail(is_absent && waits ? SL_ERR_DEADLINE : err, "%s", reason.text);
        }
        (void)nanosleep(&(struct timespec){.tv_nsec = RETRY_NS}, NULL);
    }
}

static int map_board(struct sl_subscription *subscription, int fd)
{
    const size_t bytes = sizeof(struct sl_objects_board);
    struct sl_shared memory;
    const int err = sl_shared_attach(fd, bytes, bytes, SL_SHARED_READ, &memory);
    if (err != 0) {
        (void)close(fd);
        return sl_objects_fail(err, "cannot map the board of the agent: %s", sl_err_name(err));
    }
    subscription->newest_min = sl_subscription_newest(subscription);
    subscription->entry = NULL;
    sl_shared_detach(&subscription->board);
    subscription->board = memory;
    return 0;
}

static int follow(struct sl_subscription *subscription, struct sl_objects_connection *connection,
                  uint64_t deadline_ns)
{
    struct sl_objects_session_request request = {
        .kind = SL_OBJECTS_SESSION_FOLLOW,
        .timeout_ms = sl_objects_ms_left(subscription->node, deadline_ns),
        .options = subscription->follow ? SL_OBJECTS_FOLLOW_FETCH : 0};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    (void)snprintf(request.name, sizeof request.name, "%s", subscription->name);
    const int err = sl_objects_connection_call(connection, &request, &answer, fds);
    if (err != 0) {
        return err;
    }
    close_fds(fds, answer.fd_count);
    if (answer.board_entry >= SL_LIMIT_OBJECTS_FOLLOWS) {
        return sl_objects_fail(SL_ERR_PROTOCOL, "entry %u is not on the agent's board",
                               answer.board_entry);
    }
    subscription->entry =
        &((const struct sl_objects_board *)subscription->board.base)->entries[answer.board_entry];
    return 0;
}

static int start_session(struct sl_subscription *subscription, uint64_t deadline_ns, bool waits)
{
    struct sl_objects_connection *made = calloc(1, sizeof *made);
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    made->uses = 1;
    made->fd = -1;
    int err = open_session(subscription, deadline_ns, waits, made, fds);
    err = err != 0 ? err : map_board(subscription, fds[0]);
    err = err != 0 ? err : follow(subscription, made, deadline_ns);
    if (err != 0) {
        const struct sl_reason saved = sl_objects_error_save();
        sl_objects_connection_put(made);
        sl_objects_error_restore(&saved);
        return err;
    }
    subscription->connection = made;
    return 0;
}

int sl_objects_subscription_call(struct sl_subscription *subscription,
                                 struct sl_objects_session_request *request, uint64_t deadline_ns,
                                 struct sl_objects_session_answer *answer,
                                 int fds[SL_OBJECTS_SESSION_FDS_MAX])
{
    for (;;) {
        int err =
            subscription->connection == NULL ? start_session(subscription, deadline_ns, true) : 0;
        if (err == 0) {
            request->timeout_ms = sl_objects_ms_left(subscription->node, deadline_ns);
            err = sl_objects_connection_call(subscription->connection, request, answer, fds);
        }
        if (subscription->connection != NULL && subscription->connection->is_broken) {
            sl_objects_connection_put(subscription->connection);
            subscription->connection = NULL;
        }
        if (err != SL_ERR_CLOSED || subscription->connection != NULL) {
            return err;
        }
        if (sl_objects_now_ns(subscription->node) >= deadline_ns) { /* no time for the next agent */
            const struct sl_reason saved = sl_objects_error_save();
            return sl_objects_fail(SL_ERR_DEADLINE, "%s", saved.text);
        }
    }
}

/* Staleness */

/* The board's ring, by version. Returns the number of commits. */
static uint32_t read_commits(const struct sl_objects_board_entry *entry,
                             struct sl_objects_commit commits[SL_OBJECTS_BOARD_COMMITS])
{
    uint32_t count = 0;
    for (uint32_t i = 0; entry != NULL && i < SL_OBJECTS_BOARD_COMMITS; i++) {
        struct sl_objects_commit commit;
        commit.version = sl_objects_board_commit(entry, i, &commit.time_ns);
        if (commit.version == 0) {
            continue;
        }
        uint32_t at = count++;
        for (; at > 0 && commits[at - 1].version > commit.version; at--) {
            commits[at] = commits[at - 1];
        }
        commits[at] = commit;
    }
    return count;
}

void sl_objects_subscription_use(struct sl_subscription *subscription, uint64_t version)
{
    struct sl_objects_commit commits[SL_OBJECTS_BOARD_COMMITS];
    const uint32_t count = read_commits(subscription->entry, commits);
    sl_objects_staleness_open(&subscription->staleness, version,
                              sl_objects_now_ns(subscription->node), commits, count,
                              count == SL_OBJECTS_BOARD_COMMITS);
}

void sl_subscription_staleness(const struct sl_subscription *subscription, struct sl_staleness *out)
{
    struct sl_objects_commit commits[SL_OBJECTS_BOARD_COMMITS];
    sl_assert(subscription != NULL);
    sl_assert(out != NULL);
    const uint32_t count = read_commits(subscription->entry, commits);
    sl_objects_staleness_read(&subscription->staleness, sl_objects_now_ns(subscription->node),
                              commits, count, count == SL_OBJECTS_BOARD_COMMITS, out);
}

/* Public */

/* Without a named agent: the default one, if it listens and has the same catalogue; else the own
 * node. */
static int start_anywhere(struct sl_subscription *subscription, uint64_t deadline_ns)
{
    const struct sl_objects *node = subscription->node;
    const bool is_off =
        node->setup.no_sockets || strcmp(node->names.agent, SL_OBJECTS_LOCAL_OFF) == 0;
    const bool is_named = !is_off && node->names.agent[0] != '\0';
    int err = SL_ERR_NOT_FOUND;
    if (!is_off) {
        (void)snprintf(subscription->agent, sizeof subscription->agent, "%s",
                       is_named ? node->names.agent : SL_OBJECTS_LOCAL_DEFAULT);
        err = start_session(subscription,
                            is_named ? deadline_ns : sl_objects_deadline_ns(node, DETECT_MS),
                            is_named);
    }
    if (is_named || err == 0) {
        return err;
    }
    if (subscription->agent[0] != '\0') {
        sl_log_info("objects/%s: views use the memory of this process: %s", subscription->name,
                    sl_objects_last_error());
        subscription->agent[0] = '\0';
    }
    return start_session(subscription, deadline_ns, true);
}

int sl_subscription_open(struct sl_objects *objects, const char *name,
                         const struct sl_subscribe_options *options, uint32_t timeout_ms,
                         struct sl_subscription **out)
{
    sl_assert(objects != NULL);
    sl_assert(out != NULL);
    int err = sl_objects_check_name(name);
    err = err != 0 ? err : sl_objects_check_timeout(timeout_ms);
    if (err == 0 && options != NULL) {
        err = sl_objects_check_size(options->struct_size, sizeof *options);
    }
    if (err != 0) {
        return err;
    }
    struct sl_subscription *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_objects_fail(SL_ERR_NO_MEMORY, "out of memory");
    }
    made->node = objects;
    made->follow = options != NULL && options->follow;
    (void)snprintf(made->name, sizeof made->name, "%s", name);
    err = start_anywhere(made, sl_objects_deadline_ns(objects, timeout_ms));
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
    const struct sl_objects_board_entry *entry = subscription->entry;
    const uint64_t newest = entry == NULL          ? 0
                            : subscription->follow ? sl_objects_board_complete(entry)
                                                   : sl_objects_board_announced(entry);
    return newest != 0 ? newest
                       : subscription->newest_min; /* until the agent has its first answer */
}

void sl_subscription_residency(const struct sl_subscription *subscription, struct sl_residency *out)
{
    uint64_t read_ns = 0, mib_ns = 0;
    sl_assert(subscription != NULL);
    sl_assert(out != NULL);
    if (subscription->entry != NULL) {
        sl_objects_board_cost((const void *)subscription->board.base, &read_ns, &mib_ns);
    }
    *out = (struct sl_residency){
        .version = sl_subscription_newest(subscription),
        .bytes = subscription->entry != NULL ? sl_objects_board_resident(subscription->entry) : 0,
        .read_us = (double)read_ns / SL_CLOCK_NS_PER_US,
        .mib_us = (double)mib_ns / SL_CLOCK_NS_PER_US};
}

int sl_subscription_wait(struct sl_subscription *subscription, uint64_t above, uint32_t timeout_ms,
                         uint64_t *version)
{
    sl_assert(subscription != NULL);
    sl_assert(version != NULL);
    const uint64_t newest = sl_subscription_newest(subscription);
    int err = sl_objects_check_timeout(timeout_ms);
    if (err == 0 && newest > above) {
        *version = newest;
        return sl_objects_succeed();
    }
    struct sl_objects_session_request request = {.kind = SL_OBJECTS_SESSION_WAIT, .version = above};
    struct sl_objects_session_answer answer;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    err = err != 0
              ? err
              : sl_objects_subscription_call(subscription, &request,
                                             sl_objects_deadline_ns(subscription->node, timeout_ms),
                                             &answer, fds);
    if (err != 0) {
        return err;
    }
    close_fds(fds, answer.fd_count);
    *version = answer.version;
    return sl_objects_succeed();
}

void sl_subscription_close(struct sl_subscription **subscription)
{
    sl_assert(subscription != NULL);
    struct sl_subscription *gone = *subscription;
    *subscription = NULL;
    if (gone == NULL) {
        return;
    }
    const struct sl_reason saved = sl_objects_error_save();
    sl_assert(gone->view_count == 0);
    if (gone->connection != NULL) {
        sl_objects_connection_put(gone->connection);
    }
    sl_shared_detach(&gone->board);
    free(gone);
    sl_objects_error_restore(&saved);
}
