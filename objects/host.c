#include "objects/host.h"

#include <stdlib.h>
#include <time.h>

#include "objects/catalogue.h"
#include "objects/link.h"
#include "objects/setup.h"
#include "reactor/reactor.h"

/* Nodes that knew an earlier catalogue reconnect, and report their copies, in this time. */
#define SETTLE_MS 3000

struct sl_objects_host {
    struct sl_reactor *reactor;
    struct sl_objects_link *link;
    const struct sl_objects_setup *setup;
    struct sl_objects_catalogue *catalogue;
    struct sl_timer timer; /* of the catalogue's next tick */
};

static uint64_t unix_us(const struct sl_objects_setup *setup)
{
    if (setup->unix_us != NULL) {
        return setup->unix_us(setup->ctx);
    }
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t unix_ms(void *ctx)
{
    return unix_us(((struct sl_objects_host *)ctx)->setup) / 1000;
}

static void send(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct sl_objects_host *host = ctx;
    struct sl_objects_message sent = *message;
    sl_objects_link_send(host->link, address, &sent, NULL, NULL);
}

static uint64_t now_ms(const struct sl_objects_host *host)
{
    return sl_reactor_now_ns(host->reactor) / SL_CLOCK_NS_PER_MS;
}

static void arm(struct sl_objects_host *host)
{
    const uint64_t next_ms = sl_objects_catalogue_next_ms(host->catalogue);
    const uint64_t left_ms = next_ms > now_ms(host) ? next_ms - now_ms(host) : 0;
    sl_reactor_arm(host->reactor, &host->timer,
                   next_ms == UINT64_MAX ? SL_CLOCK_NEVER : left_ms * SL_CLOCK_NS_PER_MS);
}

static void tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_host *host = SL_CONTAINER_OF(timer, struct sl_objects_host, timer);
    sl_objects_catalogue_tick(host->catalogue, now_ms(host));
    arm(host);
}

int sl_objects_host_create(struct sl_reactor *reactor, struct sl_objects_link *link,
                           const struct sl_objects_setup *setup, struct sl_objects_host **out)
{
    struct sl_objects_host *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->reactor = reactor;
    made->link = link;
    made->setup = setup;
    made->timer.run = tick;
    const struct sl_objects_catalogue_options options = {.term = unix_us(setup),
                                                         .settle_ms = SETTLE_MS,
                                                         .keep_versions = setup->keep_versions,
                                                         .replicas = setup->replicas,
                                                         .unix_ms = unix_ms,
                                                         .send = send,
                                                         .ctx = made};
    const int err = sl_objects_catalogue_create(&options, now_ms(made), &made->catalogue);
    if (err != 0) {
        free(made);
        return err;
    }
    arm(made);
    *out = made;
    return 0;
}

void sl_objects_host_destroy(struct sl_objects_host **host)
{
    struct sl_objects_host *gone = *host;
    *host = NULL;
    sl_reactor_disarm(gone->reactor, &gone->timer);
    sl_objects_catalogue_destroy(&gone->catalogue);
    free(gone);
}

void sl_objects_host_receive(struct sl_objects_host *host, const char *address,
                             const struct sl_objects_message *message)
{
    sl_objects_catalogue_receive(host->catalogue, address, message, now_ms(host));
    arm(host);
}

const struct sl_objects_catalogue *sl_objects_host_catalogue(const struct sl_objects_host *host)
{
    return host->catalogue;
}
