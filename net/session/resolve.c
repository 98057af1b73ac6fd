#include "net/session/resolve.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/list.h"
#include "core/thread.h"

struct sl_resolve {
    /* Owned by the reactor. */
    struct sl_reactor *reactor;
    sl_resolve_done_fn *done; /* NULL: cancelled or timed out */
    void *ctx;
    struct sl_timer deadline;
    uint64_t timeout_ns;

    /* Owned by the thread until the reactor receives its mail. Both may read the constant
     * endpoint. */
    struct sl_endpoint endpoint;
    sl_resolve_lookup_fn *lookup;
    struct sl_mailbox_lane *lane;
    struct sl_resolve_found found;
};

static struct {
    pthread_mutex_t lock;
    uint32_t count;
} running = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool running_begin(void)
{
    pthread_mutex_lock(&running.lock);
    bool begins = running.count < SL_RESOLVE_AT_ONCE;
    running.count += begins ? 1 : 0;
    pthread_mutex_unlock(&running.lock);
    return begins;
}

static void running_end(void)
{
    pthread_mutex_lock(&running.lock);
    sl_assert(running.count > 0);
    running.count--;
    pthread_mutex_unlock(&running.lock);
}

bool sl_resolve_is_numeric(const struct sl_endpoint *endpoint)
{
    sl_assert(endpoint != NULL);
    struct in_addr ignored;
    return strchr(endpoint->host, ':') != NULL || /* an IPv6 address: names have no colon */
           inet_pton(AF_INET, endpoint->host, &ignored) == 1;
}

/* Lookup thread */

static void take_addresses(const struct sl_endpoint *endpoint, const struct addrinfo *from,
                           struct sl_resolve_found *found)
{
    for (; from != NULL && found->address_count < SL_RESOLVE_ADDRESSES; from = from->ai_next) {
        struct sockaddr_storage address = {0};
        memcpy(&address, from->ai_addr, from->ai_addrlen);
        struct sl_endpoint *to = &found->addresses[found->address_count];
        if (sl_endpoint_from_sockaddr(&address, to) == SL_OK) {
            to->scheme = endpoint->scheme;
            to->port = endpoint->port;
            memcpy(to->name, endpoint->host, sizeof to->name);
            found->address_count++;
        }
    }
}

void sl_resolve_lookup(const struct sl_endpoint *endpoint, struct sl_resolve_found *found)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *first = NULL;
    int failure = getaddrinfo(endpoint->host, NULL, &hints, &first);
    const char *why = failure != 0 ? gai_strerror(failure) : "no IPv4 or IPv6 address";
    if (failure == 0) {
        take_addresses(endpoint, first, found);
        freeaddrinfo(first);
    }
    found->err = found->address_count > 0 ? SL_OK : SL_ERR_NOT_FOUND;
    if (found->err != SL_OK) {
        (void)snprintf(found->reason, sizeof found->reason, "cannot resolve host \"%s\": %s",
                       endpoint->host, why);
    }
}

/* Runs on the reactor: the thread is done with `resolve`. */
static void resolve_arrive(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_resolve *resolve = ctx;
    if (resolve->done != NULL) {
        sl_reactor_disarm(resolve->reactor, &resolve->deadline);
        resolve->done(resolve->ctx, &resolve->found);
    }
    free(resolve);
}

static void *resolve_run(void *ctx)
{
    struct sl_resolve *resolve = ctx;
    struct sl_mailbox_lane *lane = resolve->lane;
    resolve->lookup(&resolve->endpoint, &resolve->found);
    /* Before the result is posted, so that a caller that retries on the result finds a free
     * slot. */
    running_end();
    int err = sl_mailbox_post(
        lane, (struct sl_mail){.run = resolve_arrive, .ctx = resolve, .drop = free});
    sl_assert(err == SL_OK); /* the only mail of its lane */
    sl_mailbox_lane_close(&lane);
    return NULL;
}

static int start_thread(struct sl_resolve *resolve)
{
    pthread_t thread;
    if (sl_thread_start(&thread, NULL, resolve_run, resolve) != 0) {
        return SL_ERR_IO;
    }
    pthread_detach(thread);
    return SL_OK;
}

/* Reactor */

static void resolve_deadline_passed(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_resolve *resolve = SL_CONTAINER_OF(timer, struct sl_resolve, deadline);
    sl_resolve_done_fn *done = resolve->done;
    resolve->done = NULL;
    struct sl_resolve_found found = {.err = SL_ERR_DEADLINE};
    (void)snprintf(found.reason, sizeof found.reason,
                   "cannot resolve host \"%s\": no answer within %llu ms", resolve->endpoint.host,
                   resolve->timeout_ns / SL_CLOCK_NS_PER_MS);
    done(resolve->ctx, &found);
}

int sl_resolve_start(struct sl_reactor *reactor, const struct sl_endpoint *endpoint,
                     uint64_t timeout_ns, sl_resolve_lookup_fn *lookup, sl_resolve_done_fn *done,
                     void *ctx, struct sl_resolve **out)
{
    sl_assert(endpoint != NULL);
    sl_assert(timeout_ns > 0);
    sl_assert(lookup != NULL);
    sl_assert(done != NULL);
    sl_assert(out != NULL);
    sl_reactor_assert_owner(reactor);
    struct sl_resolve *resolve = calloc(1, sizeof *resolve);
    if (resolve == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *resolve = (struct sl_resolve){
        .reactor = reactor,
        .done = done,
        .ctx = ctx,
        .deadline = {.run = resolve_deadline_passed},
        .timeout_ns = timeout_ns,
        .endpoint = *endpoint,
        .lookup = lookup,
    };
    int err = running_begin() ? SL_OK : SL_ERR_AGAIN;
    if (err != SL_OK) {
        goto fail;
    }
    err = sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &resolve->lane);
    if (err != SL_OK) {
        err = SL_ERR_NO_MEMORY;
        goto fail_running;
    }
    err = start_thread(resolve);
    if (err != SL_OK) {
        goto fail_lane;
    }
    sl_reactor_arm(reactor, &resolve->deadline, timeout_ns);
    *out = resolve;
    return SL_OK;

fail_lane:
    sl_mailbox_lane_close(&resolve->lane);
fail_running:
    running_end();
fail:
    free(resolve);
    return err;
}

void sl_resolve_cancel(struct sl_resolve **resolve)
{
    sl_assert(resolve != NULL);
    struct sl_resolve *cancelling = *resolve;
    if (cancelling == NULL) {
        return;
    }
    sl_reactor_assert_owner(cancelling->reactor);
    sl_assert(cancelling->done != NULL);
    *resolve = NULL;
    cancelling->done = NULL;
    sl_reactor_disarm(cancelling->reactor, &cancelling->deadline);
}
