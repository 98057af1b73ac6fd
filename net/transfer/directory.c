#include "net/transfer/directory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/format.h"
#include "core/log.h"
#include "net/store/remote_metastore.h"
#include "net/transfer/announcement.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"
#include "net/transfer/own_segment_info.h"

/* For a store that hangs while the engine ends. */
#define END_NS               (2 * SL_CLOCK_NS_PER_S)
#define ENDPOINTS_BYTES      4096
#define ENDPOINTS_TEXT_BYTES (SL_LIMIT_ENDPOINT_BYTES + 16)

/* The first reactor's. */
struct sl_transfer_directory {
    struct sl_metastore *metastore;
    struct sl_remote_metastore *remote; /* NULL: the metastore is the setup's */
    struct sl_announcement announcement;
    char *text; /* the announced record; NULL: none */
    bool is_published;
};

int sl_transfer_directory_create(struct sl_transfer *transfer)
{
    const struct sl_metastore_address *address = &transfer->settings.metadata;
    if (address->kind == SL_METASTORE_ADDRESS_NONE) {
        return 0;
    }
    struct sl_transfer_directory *directory = calloc(1, sizeof *directory);
    int err = directory != NULL ? 0 : SL_ERR_NO_MEMORY;
    if (err == 0 && transfer->setup.metastore == NULL) {
        err = sl_remote_metastore_create(transfer->reactors[0], address, &directory->remote);
    }
    if (err != 0) {
        free(directory);
        return sl_transfer_fail(err, "cannot use the metadata store: %s", sl_err_name(err));
    }
    directory->metastore = directory->remote != NULL ? sl_remote_metastore_base(directory->remote)
                                                     : transfer->setup.metastore;
    transfer->directory = directory;
    return 0;
}

void sl_transfer_directory_destroy(struct sl_transfer *transfer)
{
    struct sl_transfer_directory *gone = transfer->directory;
    transfer->directory = NULL;
    if (gone == NULL) {
        return;
    }
    if (gone->text != NULL) {
        sl_announcement_drop(&gone->announcement);
    }
    if (gone->remote != NULL && !sl_remote_metastore_destroy(&gone->remote, END_NS)) {
        return; /* a thread hangs in a request that is part of the directory: it stays until exit */
    }
    free(gone->text);
    free(gone);
}

/* Returns false if the name is empty or too long. */
static bool transfer_directory_make_key(const struct sl_transfer *transfer, const char *name,
                                        char key[SL_METASTORE_KEY_BYTES])
{
    return name[0] != '\0' && strlen(name) < SL_LIMIT_ENDPOINT_BYTES &&
           sl_metastore_address_key(&transfer->settings.metadata, SL_TRANSFER_RECORD_KEY_PREFIX,
                                    name, key);
}

/* The engine's own record */

static void transfer_directory_done(void *ctx, int err, const char *reason)
{
    sl_transfer_io_answer(ctx, err, "%s", reason);
}

/* For people: as many as fit, separated by commas. */
static void list_endpoints(const struct sl_transfer *transfer, char text[ENDPOINTS_BYTES])
{
    text[0] = '\0';
    for (uint32_t i = 0; i < transfer->own_info->endpoint_count; i++) {
        const char *one = transfer->own_info->endpoints[i].endpoint;
        if (strlen(text) + 1 + strlen(one) < ENDPOINTS_BYTES) {
            (void)sl_format_add(text, ENDPOINTS_BYTES, ",", "%s", one);
        }
    }
}

struct publish_call {
    struct sl_transfer_call call;
    char key[SL_METASTORE_KEY_BYTES];
    struct sl_transfer_record record;
};

static void publish_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct publish_call *publish = SL_CONTAINER_OF(call, struct publish_call, call);
    struct sl_transfer_directory *directory = io->engine->directory;
    sl_announcement_start(&directory->announcement, io->reactor, directory->metastore, publish->key,
                          &publish->record, directory->text,
                          io->engine->settings.start_timeout_ms * SL_CLOCK_NS_PER_MS,
                          transfer_directory_done, call);
}

int sl_transfer_directory_publish(struct sl_transfer *transfer)
{
    struct sl_transfer_directory *directory = transfer->directory;
    struct publish_call publish = {.call = {.run = publish_here}};
    struct sl_transfer_record *record = &publish.record;
    struct sl_endpoint control;
    char endpoints[ENDPOINTS_BYTES];
    if (directory == NULL) {
        return 0;
    }
    if (sl_endpoint_parse(transfer->name, &control, NULL) != 0 ||
        !transfer_directory_make_key(transfer, transfer->name, publish.key)) {
        return sl_transfer_fail(SL_ERR_INVALID, "name %s: no record can be made of it",
                                transfer->name);
    }
    list_endpoints(transfer, endpoints);
    *record = (struct sl_transfer_record){.port = control.port,
                                          .incarnation = transfer->incarnation,
                                          .written_s = (int64_t)time(NULL),
                                          .software = "starling " STARLING_VERSION,
                                          .endpoints = endpoints,
                                          .priority_matrix = transfer->settings.matrix};
    memcpy(record->name, transfer->name, sizeof transfer->name);
    memcpy(record->host, control.host, sizeof record->host);
    int err = sl_transfer_record_encode(record, &directory->text);
    if (err != 0) {
        return sl_transfer_fail(err, "name %s: the record cannot be written as JSON",
                                transfer->name);
    }
    if (sl_announcement_is_loopback(record->host) &&
        !sl_metastore_address_is_loopback(&transfer->settings.metadata)) {
        sl_log_warn(
            "%s is in a metadata store that hosts share, but they cannot reach %s: name the "
            "engine by an address of the network",
            record->name, record->host);
    }
    err = sl_transfer_io_call(&transfer->ios[0], &publish.call);
    directory->is_published = err == 0;
    return err == 0 ? 0
                    : sl_transfer_fail(err, "name %s: metadata store: %s", transfer->name,
                                       publish.call.text);
}

static void withdraw_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_announcement_stop(&io->engine->directory->announcement, END_NS, transfer_directory_done,
                         call);
}

void sl_transfer_directory_withdraw(struct sl_transfer *transfer)
{
    const struct sl_transfer_directory *directory = transfer->directory;
    struct sl_transfer_call call = {.run = withdraw_here};
    if (directory != NULL && directory->is_published &&
        sl_transfer_io_call(&transfer->ios[0], &call) != 0) {
        sl_log_warn("transfer: the record of %s may stay in the metadata store: %s", transfer->name,
                    call.text);
    }
}

/* Other engines */

int sl_transfer_directory_check(const struct sl_transfer *transfer, const char *name,
                                struct sl_endpoint *out)
{
    char key[SL_METASTORE_KEY_BYTES];
    if (transfer->directory == NULL) {
        return sl_transfer_settings_parse_name(name, out);
    }
    if (name == NULL || !transfer_directory_make_key(transfer, name, key)) {
        return sl_transfer_fail(SL_ERR_INVALID, "a name has 1 to %d characters",
                                SL_LIMIT_ENDPOINT_BYTES - 1);
    }
    *out = (struct sl_endpoint){.port = 0};
    return 0;
}

static int transfer_directory_fail(struct sl_transfer_lookup *lookup, int err, const char *format,
                                   ...) __attribute__((format(printf, 3, 4)));

static int transfer_directory_fail(struct sl_transfer_lookup *lookup, int err, const char *format,
                                   ...)
{
    char why[SL_TRANSFER_REASON_BYTES];
    SL_FORMAT(why, format);
    (void)snprintf(lookup->reason, sizeof lookup->reason, "name %.200s: metadata store: %.270s",
                   lookup->name, why);
    return err;
}

/* The record comes from outside: its address is checked too. */
static int take_record(struct sl_transfer_lookup *lookup, const struct sl_metastore_item *item)
{
    struct sl_transfer_record *record = &lookup->record;
    struct sl_reason flaw;
    char text[ENDPOINTS_TEXT_BYTES];
    const int err = sl_transfer_record_decode((const char *)item->value, item->value_bytes,
                                              lookup->name, record, &flaw);
    if (err != 0) {
        return transfer_directory_fail(lookup, err, "record %s: %s", lookup->read.key, flaw.text);
    }
    (void)snprintf(text, sizeof text, strchr(record->host, ':') != NULL ? "[%s]:%u" : "%s:%u",
                   record->host, record->port);
    if (strstr(record->host, "://") != NULL ||
        sl_endpoint_parse(text, &lookup->endpoint, NULL) != 0) {
        return transfer_directory_fail(lookup, SL_ERR_PROTOCOL,
                                       "the record has an invalid address, %.200s", text);
    }
    return 0;
}

static void transfer_directory_on_read(void *ctx, struct sl_metastore_request *read)
{
    struct sl_transfer_lookup *lookup = ctx;
    const struct sl_metastore_answer *answer = &read->answer;
    lookup->err =
        answer->err != 0 ? transfer_directory_fail(lookup, answer->err, "%s", answer->reason)
        : answer->item_count == 0
            ? transfer_directory_fail(lookup, SL_ERR_NOT_FOUND, "there is no record %s", read->key)
            : take_record(lookup, &answer->pairs[0]);
    sl_metastore_answer_fini(&read->answer);
    lookup->done(lookup);
}

void sl_transfer_directory_look_up(struct sl_transfer *transfer, struct sl_transfer_lookup *lookup,
                                   uint64_t timeout_ns)
{
    lookup->read = (struct sl_metastore_request){.kind = SL_METASTORE_READ,
                                                 .timeout_ns = timeout_ns,
                                                 .done = transfer_directory_on_read,
                                                 .ctx = lookup};
    (void)transfer_directory_make_key(transfer, lookup->name, lookup->read.key);
    sl_metastore_request(transfer->directory->metastore, &lookup->read);
}

void sl_transfer_directory_explain(const struct sl_transfer_record *record,
                                   char reason[SL_TRANSFER_REASON_BYTES])
{
    char age[SL_TRANSFER_RECORD_AGE_BYTES], text[SL_TRANSFER_REASON_BYTES];
    sl_transfer_record_age(record, (int64_t)time(NULL), age);
    (void)snprintf(text, sizeof text,
                   "%.250s; its record in the metadata store: %.120s port %u, %s", reason,
                   record->host, record->port, age);
    memcpy(reason, text, sizeof text);
}
