#include "objects/node/host.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "net/store/held_key.h"
#include "net/store/remote_metastore.h"
#include "objects/catalogue/catalogue.h"
#include "objects/node/directory.h"
#include "objects/node/journal.h"
#include "objects/node/node.h"

/* Nodes that knew an earlier catalogue reconnect, and report their copies, in this time. */
#define SETTLE_MS        3000

#define TTL_S            10
#define TICK_NS          (200 * SL_CLOCK_NS_PER_MS)
#define POLL_NS          SL_CLOCK_NS_PER_S
#define LEAVE_NS         (2 * SL_CLOCK_NS_PER_S)
#define END_NS           (2 * SL_CLOCK_NS_PER_S)      /* for a store that hangs */
#define RECORD_KEY_BYTES (SL_OBJECTS_NAME_BYTES + 22) /* NAME@VERSION */
#define TERM_SHIFT       20 /* below a term there is room for epochs of names */

struct sl_objects_host {
    struct sl_objects *node;
    struct sl_objects_catalogue *catalogue; /* NULL: it is not here */
    struct sl_timer timer;                  /* of the catalogue's next tick */

    /* With a metadata store. */
    struct sl_metastore *metastore;     /* NULL: there is none */
    struct sl_remote_metastore *remote; /* NULL: the metastore is the setup's */
    struct sl_held_key key;
    char records[SL_METASTORE_KEY_BYTES];
    struct sl_objects_journal *journal; /* NULL: the key is another node's */
    struct sl_timer look;               /* of the key's next tick */
    uint64_t loaded_count, marked; /* records of earlier hosts; UINT64_MAX: no number was stored */

    /* Without a store, in the directory of this node, if it has one. */
    uint64_t promised, storing, stored; /* numbers of versions */
    bool is_storing;
    struct sl_list held; /* journal.h */

    uint64_t term;
    uint64_t leaving_ns; /* since when; 0: not yet */
    bool has_left;
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

/* A host whose lease may have ended sends nothing: there may be another one. */
static void send_now(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct sl_objects_host *host = ctx;
    struct sl_objects_message sent = *message;
    if (host->metastore == NULL || sl_held_key_holds(&host->key, node_host_on_now(host))) {
        sl_objects_link_send(host->node->link, address, &sent, NULL, NULL);
    }
}

/* Numbers of versions */

static void store_promised(struct sl_objects_host *host);

static void promise_stored(void *ctx, int err, const char *reason)
{
    struct sl_objects_host *host = ctx;
    host->is_storing = false;
    host->stored = err == 0 ? host->storing : host->stored;
    /* After an error all of them fail, and the next BEGIN tries again. */
    sl_objects_journal_release(&host->held, err == 0 ? host->stored : UINT64_MAX, err, reason,
                               send_now, host);
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

static void promised(void *ctx, uint64_t number)
{
    struct sl_objects_host *host = ctx;
    if (host->journal != NULL) {
        sl_objects_journal_mark(host->journal, number);
    } else {
        host->promised = number;
    }
}

/* Without a journal, BEGIN waits until its number is stored. The number may be one that another
 * BEGIN was given, which has failed. */
static void node_host_send(void *ctx, const char *address, const struct sl_objects_message *message)
{
    struct sl_objects_host *host = ctx;
    if (host->journal != NULL) {
        sl_objects_journal_send(host->journal, address, message);
    } else if (message->kind == SL_OBJECTS_BEGIN && message->is_answer && message->err == 0 &&
               host->promised > host->stored && message->version > host->stored) {
        sl_objects_journal_hold(&host->held, host->promised, address, message);
        store_promised(host);
    } else {
        send_now(host, address, message);
    }
}

static void node_host_changed(void *ctx, const char *name, uint64_t version,
                              const struct sl_objects_record *record)
{
    sl_objects_journal_change(((struct sl_objects_host *)ctx)->journal, name, version, record);
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
    if (host->journal != NULL) {
        sl_objects_journal_tick(host->journal);
    }
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
    if (host->journal != NULL) {
        sl_objects_journal_destroy(&host->journal);
    }
}

/* The key */

static void node_host_on_loaded(void *ctx, const struct sl_objects_record *record)
{
    struct sl_objects_host *host = ctx;
    host->loaded_count++;
    sl_objects_catalogue_load(host->catalogue, record);
}

static void on_marked(void *ctx, uint64_t number)
{
    ((struct sl_objects_host *)ctx)->marked = number;
}

static void node_host_on_ready(void *ctx)
{
    struct sl_objects_host *host = ctx;
    if (host->leaving_ns != 0) {
        return;
    }
    const bool is_marked = host->marked != UINT64_MAX;
    /* By a release that stored no number, or the store lost it: this node knew a catalogue. */
    const bool forgets = !is_marked && (host->loaded_count > 0 || host->node->membership.term != 0);
    sl_objects_catalogue_set_numbers(host->catalogue, is_marked ? host->marked : 0, forgets);
    if (!is_marked && !forgets) {
        sl_objects_journal_mark(host->journal, 0);
    }
    sl_log_info("objects: this node hosts the catalogue, elected by the metadata store (term "
                "%" PRIu64 ")",
                host->term);
    sl_objects_membership_move(host->node, host->key.options.value);
    node_host_arm(host);
}

static void node_host_on_failed(void *ctx, const char *why)
{
    struct sl_objects_host *host = ctx;
    sl_held_key_depose(&host->key, why);
}

static void node_host_on_won(void *ctx, uint64_t term)
{
    struct sl_objects_host *host = ctx;
    struct sl_objects_journal_options options = {.metastore = host->metastore,
                                                 .key = host->key.options.key,
                                                 .value = host->key.options.value,
                                                 .lease = sl_held_key_lease(&host->key),
                                                 .term = term,
                                                 .timeout_ns = TTL_S * SL_CLOCK_NS_PER_S / 2,
                                                 .loaded = node_host_on_loaded,
                                                 .marked = on_marked,
                                                 .ready = node_host_on_ready,
                                                 .send = send_now,
                                                 .failed = node_host_on_failed,
                                                 .ctx = host};
    memcpy(options.prefix, host->records, sizeof options.prefix);
    /* The revisions of a store that lost its records begin anew. Terms of catalogues do not. */
    const uint64_t known = host->node->membership.term >> TERM_SHIFT;
    host->term = term > known ? term : known + 1;
    host->loaded_count = 0;
    host->marked = UINT64_MAX;
    int err = open_catalogue(host);
    err = err != 0 ? err : sl_objects_journal_create(&options, &host->journal);
    if (err != 0) {
        sl_held_key_depose(&host->key, sl_err_name(err));
    }
}

static void node_host_on_lost(void *ctx, const char *why)
{
    struct sl_objects_host *host = ctx;
    sl_log_warn("objects: this node does not host the catalogue any more: %s", why);
    close_catalogue(host);
    sl_objects_membership_move(host->node, "");
}

static void node_host_on_seen(void *ctx, const struct sl_metastore_item *item)
{
    const struct sl_objects_host *host = ctx;
    const char *address = item == NULL ? "" : (const char *)item->value;
    if (!sl_objects_text_is_valid(address, SL_OBJECTS_ADDRESS_BYTES)) {
        sl_log_warn("objects: %s in the metadata store is no address", host->key.options.key);
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
    if (host->journal != NULL) {
        sl_objects_journal_tick(host->journal);
    }
    if (host->journal != NULL || !host->node->membership.is_attached) {
        sl_held_key_tick(&host->key, now_ns);
    }
}

static void node_host_on_released(void *ctx, int err, const char *reason)
{
    ((struct sl_objects_host *)ctx)->has_left = true;
}

static int open_store(struct sl_objects_host *host, const struct sl_metastore_address *store)
{
    struct sl_held_key_options key = {.value = sl_transfer_name(host->node->transfer),
                                      .campaigns = true,
                                      .ttl_s = TTL_S,
                                      .poll_ns = POLL_NS,
                                      .now_ns = node_host_on_now,
                                      .won = node_host_on_won,
                                      .lost = node_host_on_lost,
                                      .seen = node_host_on_seen,
                                      .trouble = node_host_on_trouble,
                                      .ctx = host};
    if (!sl_metastore_address_key(store, SL_OBJECTS_HOST_KEY, "", key.key) ||
        !sl_metastore_address_key(store, SL_OBJECTS_RECORD_KEYS, "", host->records) ||
        strlen(host->records) + RECORD_KEY_BYTES > SL_METASTORE_KEY_BYTES) {
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
    key.metastore = host->metastore;
    sl_held_key_init(&host->key, &key);
    host->look.run = look;
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
    sl_list_init(&made->held);
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
    const bool is_held =
        host->metastore == NULL || (sl_held_key_holds(&host->key, node_host_on_now(host)) &&
                                    sl_objects_journal_is_ready(host->journal));
    if (is_held) {
        sl_objects_catalogue_receive(host->catalogue, address, message, now_ms(host));
        node_host_arm(host);
    } else if (!message->is_answer) {
        sl_objects_link_refuse(host->node->link, address, message, SL_ERR_AGAIN,
                               "this node does not host the catalogue");
    }
}

bool sl_objects_host_leave(struct sl_objects_host *host)
{
    const uint64_t now_ns = node_host_on_now(host);
    if (host->metastore == NULL) {
        return true;
    }
    if (host->leaving_ns == 0) {
        host->leaving_ns = now_ns;
        sl_held_key_release(&host->key, node_host_on_released);
    }
    return host->has_left || now_ns - host->leaving_ns >= LEAVE_NS;
}

void sl_objects_host_stop(struct sl_objects_host *host)
{
    sl_objects_journal_release(&host->held, UINT64_MAX, 0, NULL, NULL, NULL);
    close_catalogue(host);
    if (host->metastore != NULL) {
        sl_held_key_drop(&host->key);
        sl_reactor_disarm(host->node->reactor, &host->look);
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
