#include "transfer/names.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/assert.h"
#include "core/endpoint.h"
#include "core/log.h"
#include "metastore/remote_metastore.h"
#include "transfer/announcement.h"

struct sl_names {
    struct sl_reactor *reactor;
    struct sl_metastore_address address;
    struct sl_metastore *metastore; /* NULL: P2PHANDSHAKE */
    struct sl_remote_metastore *remote;
    struct sl_announcement announcement;
    char *text; /* the published record; NULL: none */

    /* publish and withdraw without a store, or with an error. */
    struct sl_timer timer;
    void (*done)(void *ctx, int err, const char *reason);
    void *ctx;
    int err;
    const char *reason;

    /* One lookup at a time is in flight, so that those which wait can end at their deadline. */
    struct sl_list lookups;          /* waiting */
    struct sl_names_lookup *current; /* in flight; NULL: none, or it has ended */
    struct sl_metastore_request reading;
    bool is_reading;
};

/* False: too long. */
static bool make_key(const struct sl_names *names, const char *name,
                     char key[SL_METASTORE_KEY_BYTES])
{
    return snprintf(key, SL_METASTORE_KEY_BYTES, "%s" SL_TRANSFER_RECORD_KEY_PREFIX "%s",
                    names->address.prefix, name) < SL_METASTORE_KEY_BYTES;
}

/* Lookups */

static int fail(struct sl_names_lookup *lookup, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct sl_names_lookup *lookup, int err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(lookup->reason, sizeof lookup->reason, format, args);
    va_end(args);
    return err;
}

void sl_names_cancel(struct sl_names_lookup *lookup)
{
    struct sl_names *names = lookup->names;
    sl_reactor_disarm(names->reactor, &lookup->timer);
    sl_list_remove(&lookup->link);
    names->current = names->current == lookup ? NULL : names->current;
}

static void finish(struct sl_names_lookup *lookup, int err)
{
    sl_names_cancel(lookup);
    lookup->err = err;
    lookup->done(lookup);
}

/* The time is over, or the answer was known at once. */
static void on_lookup_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_names_lookup *lookup = SL_CONTAINER_OF(timer, struct sl_names_lookup, timer);
    finish(lookup, lookup->err);
}

/* Reads the record from the store's answer. Returns 0, or an error with the reason. */
static int take_answer(struct sl_names_lookup *lookup, const struct sl_metastore_request *reading)
{
    const struct sl_metastore_answer *answer = &reading->answer;
    char why[256];
    if (answer->err != 0) {
        return fail(lookup, answer->err, "metadata store: %s", answer->reason);
    }
    if (answer->item_count == 0) {
        return fail(lookup, SL_ERR_NOT_FOUND, "metadata store: there is no record %s",
                    reading->key);
    }
    const int err = sl_transfer_record_decode((const char *)answer->pairs[0].value,
                                              answer->pairs[0].value_bytes, lookup->name,
                                              &lookup->record, why, sizeof why);
    return err == 0 ? 0 : fail(lookup, err, "metadata store: record %s: %s", reading->key, why);
}

static void read_next(struct sl_names *names);

static void on_read(void *ctx, struct sl_metastore_request *reading)
{
    struct sl_names *names = ctx;
    struct sl_names_lookup *lookup = names->current;
    names->is_reading = false;
    const int err = lookup == NULL ? 0 : take_answer(lookup, reading);
    sl_metastore_answer_fini(&reading->answer);
    if (lookup != NULL) {
        finish(lookup, err);
    }
    read_next(names);
}

static void read_next(struct sl_names *names)
{
    struct sl_list_link *link = names->is_reading ? NULL : sl_list_pop(&names->lookups);
    if (link == NULL) {
        return;
    }
    struct sl_names_lookup *lookup = SL_CONTAINER_OF(link, struct sl_names_lookup, link);
    const uint64_t now_ns = sl_reactor_now_ns(names->reactor), due_ns = lookup->timer.due_ns;
    names->current = lookup;
    names->is_reading = true;
    names->reading =
        (struct sl_metastore_request){.kind = SL_METASTORE_READ,
                                      .timeout_ns = due_ns > now_ns ? due_ns - now_ns : 1,
                                      .done = on_read,
                                      .ctx = names};
    sl_assert(make_key(names, lookup->name, names->reading.key)); /* checked before */
    sl_metastore_request(names->metastore, &names->reading);
}

/* Without a store the name is the address. */
static int take_address(struct sl_names_lookup *lookup)
{
    struct sl_endpoint endpoint;
    if (sl_endpoint_parse(lookup->name, &endpoint, NULL) != 0 || endpoint.port == 0) {
        return fail(lookup, SL_ERR_INVALID, "\"%.200s\" is not host:port", lookup->name);
    }
    memcpy(lookup->record.name, lookup->name, sizeof lookup->record.name);
    memcpy(lookup->record.host, endpoint.host, sizeof lookup->record.host);
    lookup->record.port = endpoint.port;
    return 0;
}

void sl_names_lookup(struct sl_names *names, struct sl_names_lookup *lookup)
{
    char key[SL_METASTORE_KEY_BYTES];
    sl_reactor_assert_owner(names->reactor);
    uint64_t wait_ns = 0;
    lookup->names = names;
    lookup->record = (struct sl_transfer_record){.port = 0};
    lookup->link = (struct sl_list_link){NULL, NULL};
    lookup->reason[0] = '\0';
    if (names->metastore == NULL) {
        lookup->err = take_address(lookup);
    } else if (lookup->name[0] == '\0' || !make_key(names, lookup->name, key)) {
        lookup->err = fail(lookup, SL_ERR_INVALID, "the name is empty or too long");
    } else {
        lookup->err = fail(lookup, SL_ERR_DEADLINE, "metadata store: no answer in time");
        wait_ns = lookup->timeout_ns;
        sl_list_append(&names->lookups, &lookup->link);
    }
    lookup->timer = (struct sl_timer){.run = on_lookup_timer};
    sl_reactor_arm(names->reactor, &lookup->timer, wait_ns);
    read_next(names);
}

/* Publishing */

/* Whether only processes of this host reach the store. */
static bool is_loopback(const struct sl_metastore_address *address)
{
    const bool is_etcd = address->kind == SL_METASTORE_ADDRESS_ETCD;
    const char *server = is_etcd ? address->etcd.servers[0] : strstr(address->http.url, "//");
    char name[SL_METASTORE_KEY_BYTES];
    struct sl_endpoint endpoint;
    if (server == NULL) {
        return false;
    }
    server += strspn(server, "/");
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(server, "/"), server);
    return sl_endpoint_parse(name, &endpoint, NULL) == 0 && sl_endpoint_is_loopback(&endpoint);
}

static void on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_names *names = SL_CONTAINER_OF(timer, struct sl_names, timer);
    names->done(names->ctx, names->err, names->reason);
}

/* Calls done in a later turn. */
static void report(struct sl_names *names, int err, const char *reason,
                   void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    names->done = done;
    names->ctx = ctx;
    names->err = err;
    names->reason = reason;
    names->timer.run = on_timer;
    sl_reactor_arm(names->reactor, &names->timer, 0);
}

void sl_names_publish(struct sl_names *names, struct sl_transfer_record *record,
                      uint64_t timeout_ns, void (*done)(void *ctx, int err, const char *reason),
                      void *ctx)
{
    char key[SL_METASTORE_KEY_BYTES];
    sl_reactor_assert_owner(names->reactor);
    sl_assert(names->text == NULL);
    record->written_s = (int64_t)time(NULL);
    if (names->metastore == NULL) {
        report(names, 0, "", done, ctx);
        return;
    }
    if (!make_key(names, record->name, key)) {
        report(names, SL_ERR_INVALID, "the name is too long", done, ctx);
        return;
    }
    const int err = sl_transfer_record_encode(record, &names->text);
    if (err != 0) {
        report(names, err, "the record cannot be written as JSON", done, ctx);
        return;
    }
    if (sl_announcement_is_loopback(record->host) && !is_loopback(&names->address)) {
        sl_log_warn(
            "%s is in a metadata store that hosts share, but they cannot reach %s: name the "
            "engine by an address of the network",
            record->name, record->host);
    }
    sl_announcement_start(&names->announcement, names->reactor, names->metastore, key, record,
                          names->text, timeout_ns, done, ctx);
}

void sl_names_withdraw(struct sl_names *names, uint64_t timeout_ns,
                       void (*done)(void *ctx, int err, const char *reason), void *ctx)
{
    if (names->text == NULL) {
        report(names, 0, "", done, ctx);
        return;
    }
    sl_announcement_stop(&names->announcement, timeout_ns, done, ctx);
}

/* Create and destroy */

int sl_names_create(struct sl_reactor *reactor, const struct sl_metastore_address *address,
                    struct sl_metastore *metastore, struct sl_names **out)
{
    struct sl_names *names = calloc(1, sizeof *names);
    if (names == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    names->reactor = reactor;
    names->address = *address;
    names->metastore = metastore;
    sl_list_init(&names->lookups);
    if (metastore == NULL && address->kind != SL_METASTORE_ADDRESS_NONE) {
        const bool is_etcd = address->kind == SL_METASTORE_ADDRESS_ETCD;
        const struct sl_remote_metastore_options options = {
            .etcd = is_etcd ? &names->address.etcd : NULL,
            .http = is_etcd ? NULL : &names->address.http};
        const int err = sl_remote_metastore_create(reactor, &options, &names->remote);
        if (err != 0) {
            free(names);
            return err;
        }
        names->metastore = sl_remote_metastore_base(names->remote);
    }
    *out = names;
    return 0;
}

void sl_names_destroy(struct sl_names **names, uint64_t timeout_ns)
{
    struct sl_names *gone = *names;
    *names = NULL;
    if (gone->text != NULL) {
        sl_announcement_drop(&gone->announcement);
    }
    sl_reactor_disarm(gone->reactor, &gone->timer);
    if (gone->current != NULL) {
        sl_list_prepend(&gone->lookups, &gone->current->link);
    }
    SL_LIST_FOREACH (link, &gone->lookups) {
        struct sl_names_lookup *lookup = SL_CONTAINER_OF(link, struct sl_names_lookup, link);
        finish(lookup, fail(lookup, SL_ERR_CANCELLED, "the engine ends"));
    }
    if (gone->remote != NULL && !sl_remote_metastore_destroy(&gone->remote, timeout_ns)) {
        return; /* a thread hangs in a request that is part of the names: they stay until exit */
    }
    free(gone->text);
    free(gone);
}
