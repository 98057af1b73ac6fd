#include "worker/kv/serve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/assert.h"
#include "core/reason.h"
#include "ps/run.h"
#include "ps/run_options.h"
#include "worker/kv/join.h"

enum handler_state {
    HANDLER_AWAITED, /* requests wait */
    HANDLER_NEW,     /* the server's thread will set it */
    HANDLER_SET,
};

struct sl_kv_server {
    char **variables, **flags; /* copies; each ends with NULL */
    uint32_t flag_count;
    enum sl_kv_role role;
    struct sl_kv_handler handler; /* its `handle` is NULL: not set yet, or none */
    bool is_awaited;              /* at the start */
    struct sl_ps_embedding embedding;
    struct sl_reason reason;
    pthread_t thread;
    pthread_mutex_t lock; /* of the following */
    pthread_cond_t changed;
    enum { STARTS, REGISTERED, ENDED } stage;
    bool stops;
    enum handler_state handler_state;
    uint32_t rank; /* UINT32_MAX: it was never registered */
    int status;
};

int sl_kv_serve(int argc, char **argv, const struct sl_kv_handler *handler)
{
    return sl_ps_run(&(struct sl_ps_run_options){.argc = argc, .argv = argv, .handler = handler});
}

void sl_kv_reply(struct sl_kv_token *token, const struct sl_kv_answer *answer)
{
    sl_assert(token != NULL);
    sl_assert(answer != NULL);
    sl_ps_reply(token, answer);
}

/* The server's thread and reactors */

static const struct sl_kv_handler *handler_of(const struct sl_kv_server *server)
{
    return server->handler.handle == NULL ? NULL : &server->handler;
}

/* The thread of sl_process_run. */
static void serve_woken(void *ctx, struct sl_process *process)
{
    struct sl_kv_server *server = ctx;
    pthread_mutex_lock(&server->lock);
    const bool stops = server->stops, has_new = server->handler_state == HANDLER_NEW;
    server->handler_state = has_new ? HANDLER_SET : server->handler_state;
    pthread_mutex_unlock(&server->lock);
    if (has_new) {
        sl_ps_handle(process, handler_of(server));
    }
    if (stops) {
        sl_ps_stop(process);
    }
}

static void serve_registered(void *ctx, uint32_t task_index)
{
    struct sl_kv_server *server = ctx;
    pthread_mutex_lock(&server->lock);
    server->stage = REGISTERED;
    server->rank = task_index;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
}

static int serve_extend(const struct sl_run *run, struct sl_process_options *options,
                        struct sl_reason *reason)
{
    sl_join_set_up_log(&run->settings, options->kind == SL_PROCESS_SCHEDULER ? "scheduler" : "ps");
    return 0;
}

static void *serve_run(void *ctx)
{
    struct sl_kv_server *server = ctx;
    static const struct sl_kv_handler awaited = {.handle = NULL};
    const struct sl_ps_run_options options = {
        .argc = (int)server->flag_count,
        .argv = server->flags,
        .variables = (const char *const *)server->variables,
        .handler = server->is_awaited ? &awaited : handler_of(server),
        .extend = serve_extend,
        .embedding = &server->embedding,
    };
    const int status = sl_ps_run(&options);
    pthread_mutex_lock(&server->lock);
    server->stage = ENDED;
    server->status = status;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->lock);
    return NULL;
}

/* Start */

int sl_serve_role_of(const char *const *variables, enum sl_kv_role *out)
{
    static const char *const names[] = {"scheduler", "server", "worker", "joint"};
    const char *role_text = sl_cli_variable(variables, "DMLC_ROLE");
    if (role_text == NULL || role_text[0] == '\0') {
        return sl_reason_report(SL_ERR_NOT_FOUND,
                                "kv: DMLC_ROLE is not set: accepts scheduler, server, worker, "
                                "joint");
    }
    for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(role_text, names[i]) == 0) {
            *out = (enum sl_kv_role)i;
            return 0;
        }
    }
    return sl_reason_report(
        SL_ERR_INVALID, "kv: DMLC_ROLE=%s: accepts scheduler, server, worker, joint", role_text);
}

static void texts_free(char **texts)
{
    for (uint32_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        free(texts[i]);
    }
    free(texts);
}

/* Copies the texts behind `first`, if that is not NULL. Returns NULL without memory. */
static char **texts_copy(const char *first, const char *const *texts, uint32_t *count)
{
    uint32_t given = 0;
    while (texts != NULL && texts[given] != NULL) {
        given++;
    }
    *count = 0;
    char **copies = calloc((size_t)given + 2, sizeof *copies);
    if (copies == NULL) {
        return NULL;
    }
    if (first != NULL) {
        copies[(*count)++] = strdup(first);
    }
    for (uint32_t i = 0; i < given; i++) {
        copies[(*count)++] = strdup(texts[i]);
    }
    for (uint32_t i = 0; i < *count; i++) {
        if (copies[i] == NULL) { /* the others are leaked behind it: there is no memory at all */
            texts_free(copies);
            return NULL;
        }
    }
    return copies;
}

static void serve_free(struct sl_kv_server *server)
{
    if (server->embedding.fd >= 0) {
        (void)close(server->embedding.fd);
    }
    texts_free(server->variables);
    texts_free(server->flags);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

static struct sl_kv_server *serve_make(const struct sl_kv_server_options *options)
{
    struct sl_kv_server *server = calloc(1, sizeof *server);
    if (server == NULL) {
        return NULL;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&server->lock, NULL);
    uint32_t count;
    server->rank = UINT32_MAX;
    server->variables = texts_copy(NULL, options->variables, &count);
    server->flags = texts_copy("kv", options->flags, &server->flag_count);
    server->embedding = (struct sl_ps_embedding){
        .fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
        .woken = serve_woken,
        .registered = serve_registered,
        .ctx = server,
        .reason = &server->reason,
    };
    if (server->variables == NULL || server->flags == NULL || server->embedding.fd < 0) {
        serve_free(server);
        return NULL;
    }
    server->is_awaited = options->handler_later;
    server->handler_state = options->handler_later ? HANDLER_AWAITED : HANDLER_SET;
    if (options->handler != NULL) {
        server->handler = *options->handler;
    }
    return server;
}

/* The process's signals are not for its threads. */
static int thread_start(struct sl_kv_server *server)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&server->thread, NULL, serve_run, server);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed == 0 ? 0 : SL_ERR_NO_MEMORY;
}

/* Waits until the server is registered, or has ended without that. */
static int await_registration(struct sl_kv_server *server)
{
    pthread_mutex_lock(&server->lock);
    while (server->stage == STARTS) {
        pthread_cond_wait(&server->changed, &server->lock);
    }
    const bool is_registered = server->stage == REGISTERED || server->rank != UINT32_MAX;
    pthread_mutex_unlock(&server->lock);
    if (is_registered) {
        return 0;
    }
    (void)pthread_join(server->thread, NULL);
    const int err = server->embedding.err;
    return err != 0 ? err : SL_ERR_CLOSED;
}

int sl_kv_server_start(const struct sl_kv_server_options *options, struct sl_kv_server **out)
{
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    enum sl_kv_role role;
    int err = sl_serve_role_of(options->variables, &role);
    if (err != 0) {
        return err;
    }
    if (role == SL_KV_WORKER || (options->handler_later && options->handler != NULL) ||
        (options->handler != NULL && options->handler->handle == NULL)) {
        return sl_reason_report(SL_ERR_INVALID, "kv server: %s",
                                role == SL_KV_WORKER
                                    ? "DMLC_ROLE=worker: accepts scheduler, server, joint"
                                    : "accepts a handler with `handle`, or handler_later, or none");
    }
    struct sl_kv_server *server = serve_make(options);
    if (server == NULL) {
        return sl_reason_report(SL_ERR_NO_MEMORY, "kv server: out of memory, or of descriptors");
    }
    server->role = role == SL_KV_SCHEDULER ? SL_KV_SCHEDULER : SL_KV_SERVER;
    err = thread_start(server);
    err = err != 0 ? err : await_registration(server);
    if (err != 0) {
        const char *why = server->reason.text;
        (void)sl_reason_report(err, "kv server: %s%s", why[0] != '\0' ? why : sl_err_name(err),
                               why[0] != '\0' ? "" : "; the log has the reason");
        serve_free(server);
        return err;
    }
    *out = server;
    return 0;
}

/* Later */

static void serve_wake(const struct sl_kv_server *server)
{
    const uint64_t one = 1;
    (void)!write(server->embedding.fd, &one, sizeof one);
}

int sl_kv_server_handle(struct sl_kv_server *server, const struct sl_kv_handler *handler)
{
    sl_assert(server != NULL);
    pthread_mutex_lock(&server->lock);
    const bool is_first = server->handler_state == HANDLER_AWAITED;
    const bool is_valid = handler == NULL || handler->handle != NULL;
    if (is_first && is_valid) {
        server->handler_state = HANDLER_NEW;
        if (handler != NULL) {
            server->handler = *handler;
        }
    }
    pthread_mutex_unlock(&server->lock);
    if (!is_first || !is_valid) {
        return sl_reason_report(SL_ERR_INVALID, "kv server: %s",
                                is_first
                                    ? "a handler needs `handle`"
                                    : "it has its handler: it is set once, with handler_later");
    }
    serve_wake(server);
    return 0;
}

uint32_t sl_kv_server_rank(const struct sl_kv_server *server)
{
    sl_assert(server != NULL);
    return server->rank; /* written before the start returned */
}

enum sl_kv_role sl_serve_role(const struct sl_kv_server *server)
{
    return server->role;
}

const char *const *sl_serve_variables(const struct sl_kv_server *server)
{
    return (const char *const *)server->variables;
}

int sl_kv_server_wait(struct sl_kv_server *server, uint32_t timeout_ms)
{
    sl_assert(server != NULL);
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&server->lock);
    while (server->stage != ENDED &&
           pthread_cond_timedwait(&server->changed, &server->lock, &until) != ETIMEDOUT) {
    }
    const bool has_ended = server->stage == ENDED;
    pthread_mutex_unlock(&server->lock);
    return has_ended
               ? 0
               : sl_reason_report(SL_ERR_DEADLINE, "kv server: the job has not ended within %u ms",
                                  timeout_ms);
}

int sl_kv_server_stop(struct sl_kv_server **server)
{
    sl_assert(server != NULL);
    struct sl_kv_server *stopping = *server;
    *server = NULL;
    if (stopping == NULL) {
        return 0;
    }
    pthread_mutex_lock(&stopping->lock);
    stopping->stops = true;
    pthread_mutex_unlock(&stopping->lock);
    serve_wake(stopping);
    (void)pthread_join(stopping->thread, NULL);
    const int status = stopping->status;
    serve_free(stopping);
    return status;
}
