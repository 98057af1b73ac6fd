#include "objects/node/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "net/store/record_log.h"
#include "net/store/remote_metastore.h"
#include "objects/catalogue/catalogue.h"
#include "objects/node/directory.h"
#include "objects/node/node.h"

/* Nodes that knew an earlier catalogue reconnect, and report their copies, in this time. */
#define SETTLE_MS        3000

#define TTL_S            10
#define TICK_NS          (200 * SL_CLOCK_NS_PER_MS)
#define POLL_NS          SL_CLOCK_NS_PER_S
#define LEAVE_NS         (2 * SL_CLOCK_NS_PER_S)
#define END_NS           (2 * SL_CLOCK_NS_PER_S)      /* for a store that hangs */
#define RECORD_KEY_BYTES (SL_OBJECTS_NAME_BYTES + 22) /* NAME@VERSION */
#define TERM_SHIFT       20  /* below a term there is room for epochs of names */
#define MARK_KEY         "@" /* of the highest number of a version; no name is empty */

struct sl_objects_host {
    struct sl_objects *node;
    struct sl_objects_catalogue *catalogue; /* NULL: it is not here */
    struct sl_timer timer;                  /* of the catalogue's next tick */
    uint64_t term;

    /* With a metadata store. */
    struct sl_metastore *metastore;     /* NULL: there is none */
    struct sl_remote_metastore *remote; /* NULL: the metastore is the setup's */
    struct sl_record_log log;
    struct sl_timer look, wake;    /* of the log's next tick, and next run */
    uint64_t loaded_count, marked; /* records of earlier hosts; UINT64_MAX: no number was stored */
    bool is_leaving, has_left;

    /* Without a store, in the directory of this node, if it has one. */
    uint64_t promised, storing, stored; /* numbers of versions */
    bool is_storing;
    struct sl_list begins; /* answers that wait until `promised` is stored */
    int store_err;         /* of the last attempt */
    const char *store_reason;
};

/* The catalogue */

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
    return unix_us(&((struct sl_objects_host *)ctx)->node->setup) / 1000;
}

static uint64_t node_host_on_now(void *ctx)
{
    return sl_reactor_now_ns(((struct sl_objects_host *)ctx)->node->reactor);
}

/* Messages that wait: the address, and the encoded message. */

static void send_now(struct sl_objects_host *host, const char *address,
                     const struct sl_objects_message *message)
{
    struct sl_objects_message sent = *message;
    if (host->node->rate_bytes > 0) { /* it counts what others read, and they share that */
        sent.commit.image.manifest = NULL;
    }
    sl_objects_link_send(host->node->link, address, &sent, NULL, NULL);
}

static void send_held(void *ctx, uint64_t to, const uint8_t *held, size_t bytes)
{
    struct sl_objects_host *host = ctx;
    struct sl_objects_message message;
    if (sl_objects_message_decode(held + SL_OBJECTS_ADDRESS_BYTES,
                                  (uint32_t)bytes - SL_OBJECTS_ADDRESS_BYTES, &message,
                                  NULL) == 0) {
        message.err = host->store_err != 0 ? host->store_err : message.err;
        message.text = host->store_err != 0 ? host->store_reason : message.text;
        send_now(host, (const char *)held, &message);
    }
}

/* Without memory the message is lost. */
static void hold(struct sl_objects_host *host, const char *address,
                 const struct sl_objects_message *message)
{
    uint8_t encoded[SL_OBJECTS_MESSAGE_BYTES];
    const uint32_t message_bytes = sl_objects_message_encode(message, encoded);
    const size_t bytes = SL_OBJECTS_ADDRESS_BYTES + message_bytes;
    uint8_t *held = host->metastore != NULL
                        ? sl_record_log_hold(&host->log, 0, bytes)
                        : sl_record_log_message_add(&host->begins, host->promised, 0, bytes);
    if (held != NULL) {
        (void)snprintf((char *)held, SL_OBJECTS_ADDRESS_BYTES, "%s", address);
        memcpy(held + SL_OBJECTS_ADDRESS_BYTES, encoded, message_bytes);
    }
}

/* Numbers of versions */

static void store_promised(struct sl_objects_host *host);

static void promise_stored(void *ctx, int err, const char *reason)
{
    struct sl_objects_host *host = ctx;
    struct sl_record_log_message *held;
    host->is_storing = false;
    host->stored = err == 0 ? host->storing : host->stored;
    host->store_err = err;
    host->store_reason = reason;
    /* After an error all of them fail, and the next BEGIN tries again. */
    while ((held = sl_record_log_message_pop(&host->begins,
                                             err == 0 ? host->stored : UINT64_MAX)) != NULL) {
        send_held(host, 0, held->message, held->bytes);
        free(held);
    }
    host->store_err = 0;
    if (err == 0) {
        store_promised(host);
    }
}

static void store_promised(struct sl_objects_host *host)
{
    if (host->is_storing || host->promised == host->stored) {
        return;
    }
    host->is_storing = true;
    host->storing = host->promised;
    if (sl_objects_directory_mark(host->node->directory, host->promised, promise_stored, host) !=
        0) {
        promise_stored(host, SL_ERR_NO_MEMORY, "out of memory");
    }
}

static void mark(struct sl_objects_host *host, uint64_t number)
{
    char text[24];
    const int length = snprintf(text, sizeof text, "%" PRIu64, number);
    sl_record_log_change(&host->log, MARK_KEY, text, (size_t)length);
}

static void promised(void *ctx, uint64_t number)
{
    struct sl_objects_host *host = ctx;
    if (host->metastore != NULL) {
        mark(host, number);
    } else {
        host->promised = number;
    }
}

static void node_host_changed(void *ctx, const char *name, uint64_t version,
                              const struct sl_objects_record *record)
{
    struct sl_objects_host *host = ctx;
    uint8_t encoded[SL_OBJECTS_MESSAGE_BYTES];
    char key[RECORD_KEY_BYTES];
    uint32_t bytes = 0;
    if (record != NULL) {
        const struct sl_objects_message message = {
            .kind = SL_OBJECTS_COMMIT,
            .is_answer = true,
            .commit = {.record_count = 1, .record = *record}};
        bytes = sl_objects_message_encode(&message, encoded);
    }
    (void)snprintf(key, sizeof key, "%s@%" PRIu64, name, version);
    sl_record_log_change(&host->log, key, record != NULL ? encoded : NULL, bytes);
}

/* A host whose lease may have ended sends nothing: there may be another one. Without a store, BEGIN
 * waits until its number is stored. The number may be one that another BEGIN was given, which has
 * failed. */
static void node_host_send(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct sl_objects_host *host = ctx;
    const bool has_number =
        message->kind == SL_OBJECTS_BEGIN && message->is_answer && message->err == 0;
    if (host->metastore != NULL) {
        if (sl_record_log_leads(&host->log)) {
            (sl_record_log_waits(&host->log) ? hold : send_now)(host, address, message);
        }
    } else if (has_number && host->promised > host->stored && message->version > host->stored) {
        hold(host, address, message);
        store_promised(host);
    } else {
        send_now(host, address, message);
    }
}

static uint64_t now_ms(const struct sl_objects_host *host)
{
    return sl_reactor_now_ns(host->node->reactor) / SL_CLOCK_NS_PER_MS;
}

/* After each use of the catalogue. */
static void node_host_arm(struct sl_objects_host *host)
{
    const uint64_t next_ms = sl_objects_catalogue_next_ms(host->catalogue);
    const uint64_t left_ms = next_ms > now_ms(host) ? next_ms - now_ms(host) : 0;
    sl_reactor_arm(host->node->reactor, &host->timer,
                   next_ms == UINT64_MAX ? SL_CLOCK_NEVER : left_ms * SL_CLOCK_NS_PER_MS);
}

static void node_host_tick(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_host *host = SL_CONTAINER_OF(timer, struct sl_objects_host, timer);
    sl_objects_catalogue_tick(host->catalogue, now_ms(host));
    node_host_arm(host);
}

/* Without a store: the directory has the last number. In memory alone there is none. */
static void set_numbers(struct sl_objects_host *host)
{
    uint64_t above = 0;
    const struct sl_objects_directory *directory = host->node->directory;
    if (directory != NULL && !sl_objects_directory_marked(directory, &above)) {
        above = unix_ms(host); /* it is of a release that stored no number */
    }
    sl_objects_catalogue_set_numbers(host->catalogue, above, directory == NULL);
}

static int open_catalogue(struct sl_objects_host *host)
{
    const struct sl_objects_setup *setup = &host->node->setup;
    const struct sl_objects_catalogue_options options = {
        .term = host->metastore != NULL ? host->term << TERM_SHIFT : unix_us(setup),
        .settle_ms = SETTLE_MS,
        .keep_versions = setup->keep_versions,
        .replicas = setup->replicas,
        .unix_ms = unix_ms,
        .send = node_host_send,
        .changed = host->metastore != NULL ? node_host_changed : NULL,
        .promised = host->metastore != NULL || host->node->directory != NULL ? promised : NULL,
        .ctx = host};
    const int err = sl_objects_catalogue_create(&options, now_ms(host), &host->catalogue);
    if (err == 0 && host->metastore == NULL) {
        set_numbers(host);
    }
    return err;
}

static void close_catalogue(struct sl_objects_host *host)
{
    sl_reactor_disarm(host->node->reactor, &host->timer);
    sl_objects_catalogue_destroy(&host->catalogue);
}

/* The records of the host, and its key */

static void node_host_on_loaded(void *ctx, const char *key, const struct sl_metastore_item *item)
{
    struct sl_objects_host *host = ctx;
    struct sl_objects_message message;
    struct sl_reason reason = {.text = "it is no record"};
    if (strcmp(key, MARK_KEY) == 0) {
        host->marked = strtoull((const char *)item->value, NULL, 10);
    } else if (item->value_bytes > SL_OBJECTS_MESSAGE_BYTES ||
               sl_objects_message_decode(item->value, (uint32_t)item->value_bytes, &message,
                                         &reason) != 0 ||
               message.kind != SL_OBJECTS_COMMIT || !message.is_answer ||
               message.commit.record_count == 0) {
        sl_log_error("objects: %s in the metadata store is ignored: %s", item->key, reason.text);
    } else {
        host->loaded_count++;
        sl_objects_catalogue_load(host->catalogue, &message.commit.record);
    }
}

static void node_host_on_ready(void *ctx, bool anew)
{
    struct sl_objects_host *host = ctx;
    const bool is_marked = host->marked != UINT64_MAX;
    /* By a release that stored no number, or the store lost it: this node knew a catalogue. */
    const bool forgets = !is_marked && (host->loaded_count > 0 || host->node->membership.term != 0);
    sl_objects_catalogue_set_numbers(host->catalogue, is_marked ? host->marked : 0, forgets);
    if (!is_marked && !forgets) {
        mark(host, 0);
    }
    sl_log_info("objects: this node hosts the catalogue, elected by the metadata store (term "
                "%" PRIu64 ")",
                host->term);
    sl_objects_membership_move(host->node, host->log.options.key.value);
    node_host_arm(host);
}

static void node_host_on_won(void *ctx, uint64_t term)
{
    struct sl_objects_host *host = ctx;
    /* The revisions of a store that lost its records begin anew. Terms of catalogues do not. */
    const uint64_t known = host->node->membership.term >> TERM_SHIFT;
    host->term = term > known ? term : known + 1;
    host->loaded_count = 0;
    host->marked = UINT64_MAX;
    sl_record_log_begin(&host->log, term, open_catalogue(host));
}

static void node_host_on_lost(void *ctx, const char *why)
{
    struct sl_objects_host *host = ctx;
    sl_log_warn("objects: this node does not host the catalogue any more: %s", why);
    close_catalogue(host);
    sl_record_log_end(&host->log);
    sl_objects_membership_move(host->node, "");
}

static void node_host_on_seen(void *ctx, const struct sl_metastore_item *item)
{
    const struct sl_objects_host *host = ctx;
    const char *address = item == NULL ? "" : (const char *)item->value;
    if (!sl_objects_text_is_valid(address, SL_OBJECTS_ADDRESS_BYTES)) {
        sl_log_warn("objects: %s in the metadata store is no address", host->log.options.key.key);
        address = "";
    }
    sl_objects_membership_move(host->node, address);
}

static void node_host_on_trouble(void *ctx, int err, const char *reason)
{
    struct sl_objects_membership *membership = &((struct sl_objects_host *)ctx)->node->membership;
    (void)snprintf(membership->trouble, sizeof membership->trouble, "%s%s",
                   err != 0 ? "the metadata store fails: " : "", reason);
}

static void look(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_host *host = SL_CONTAINER_OF(timer, struct sl_objects_host, look);
    sl_reactor_arm(host->node->reactor, timer, TICK_NS);
    if (host->catalogue != NULL || host->is_leaving || !host->node->membership.is_attached) {
        sl_record_log_tick(&host->log);
    }
}

static void node_host_on_wake(void *ctx)
{
    struct sl_objects_host *host = ctx;
    sl_reactor_arm(host->node->reactor, &host->wake, 0);
}

static void node_host_on_woken(struct sl_timer *timer, uint64_t now_ns)
{
    sl_record_log_run(&SL_CONTAINER_OF(timer, struct sl_objects_host, wake)->log);
}

static void node_host_on_left(void *ctx)
{
    ((struct sl_objects_host *)ctx)->has_left = true;
}

static int open_store(struct sl_objects_host *host, const struct sl_metastore_address *store)
{
    struct sl_record_log_options log = {.key = {.value = sl_transfer_name(host->node->transfer),
                                                .campaigns = true,
                                                .ttl_s = TTL_S,
                                                .poll_ns = POLL_NS,
                                                .now_ns = node_host_on_now,
                                                .won = node_host_on_won,
                                                .lost = node_host_on_lost,
                                                .seen = node_host_on_seen,
                                                .trouble = node_host_on_trouble,
                                                .ctx = host},
                                        .wake = node_host_on_wake,
                                        .loaded = node_host_on_loaded,
                                        .ready = node_host_on_ready,
                                        .send = send_held};
    if (!sl_metastore_address_key(store, SL_OBJECTS_HOST_KEY, "", log.key.key) ||
        !sl_metastore_address_key(store, SL_OBJECTS_RECORD_KEYS, "", log.prefix) ||
        strlen(log.prefix) + RECORD_KEY_BYTES > SL_METASTORE_KEY_BYTES) {
        return SL_ERR_TOO_LARGE; /* the prefix */
    }
    host->metastore = host->node->setup.metastore;
    if (host->metastore == NULL) {
        const int err = sl_remote_metastore_create(host->node->reactor, store, &host->remote);
        if (err != 0) {
            return err;
        }
        host->metastore = sl_remote_metastore_base(host->remote);
    }
    log.key.metastore = host->metastore;
    sl_record_log_init(&host->log, &log);
    host->look.run = look;
    host->wake.run = node_host_on_woken;
    sl_reactor_arm(host->node->reactor, &host->look, 0);
    return 0;
}

/* Public */

int sl_objects_host_create(struct sl_objects *node, const struct sl_metastore_address *store,
                           struct sl_objects_host **out)
{
    struct sl_objects_host *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    made->node = node;
    made->timer.run = node_host_tick;
    sl_list_init(&made->begins);
    const int err = store != NULL ? open_store(made, store) : open_catalogue(made);
    if (err != 0) {
        free(made);
        return err;
    }
    if (store == NULL) {
        node_host_arm(made);
    }
    *out = made;
    return 0;
}

void sl_objects_host_receive(struct sl_objects_host *host, const char *address,
                             const struct sl_objects_message *message)
{
    if (host->metastore == NULL || sl_record_log_leads(&host->log)) {
        sl_objects_catalogue_receive(host->catalogue, address, message, now_ms(host));
        node_host_arm(host);
    } else if (!message->is_answer) {
        sl_objects_link_refuse(host->node->link, address, message, SL_ERR_AGAIN,
                               "this node does not host the catalogue");
    }
}

bool sl_objects_host_leave(struct sl_objects_host *host)
{
    if (host->metastore != NULL && !host->is_leaving) {
        host->is_leaving = true;
        sl_record_log_resign(&host->log, LEAVE_NS, node_host_on_left);
    }
    return host->metastore == NULL || host->has_left;
}

void sl_objects_host_stop(struct sl_objects_host *host)
{
    struct sl_record_log_message *held;
    while ((held = sl_record_log_message_pop(&host->begins, UINT64_MAX)) != NULL) {
        free(held);
    }
    close_catalogue(host);
    if (host->metastore != NULL) {
        sl_record_log_close(&host->log);
        sl_reactor_disarm(host->node->reactor, &host->look);
        sl_reactor_disarm(host->node->reactor, &host->wake);
    }
}

void sl_objects_host_destroy(struct sl_objects_host **host)
{
    struct sl_objects_host *gone = *host;
    *host = NULL;
    if (gone->remote == NULL || sl_remote_metastore_destroy(&gone->remote, END_NS)) {
        free(gone); /* else a thread hangs in a request, which stays until exit */
    }
}

const struct sl_objects_catalogue *sl_objects_host_catalogue(const struct sl_objects_host *host)
{
    return host->catalogue;
}
