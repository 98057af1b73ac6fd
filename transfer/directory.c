#include "transfer/directory.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/log.h"
#include "transfer/engine.h"
#include "transfer/error.h"
#include "transfer/listing.h"
#include "transfer/names.h"

/* For a store that hangs while the engine ends. */
#define END_NS               (2 * SL_CLOCK_NS_PER_S)
#define ENDPOINTS_BYTES      4096
#define ENDPOINTS_TEXT_BYTES (SL_LIMIT_ENDPOINT_BYTES + 16)

int sl_transfer_directory_open(struct sl_transfer *transfer)
{
    const struct sl_metastore_address *address = &transfer->settings.metadata;
    if (address->kind == SL_METASTORE_ADDRESS_NONE) {
        return 0;
    }
    const int err = sl_names_create(transfer->reactors[0], address, transfer->setup.metastore,
                                    &transfer->names);
    return err == 0 ? 0
                    : sl_transfer_fail(err, "cannot use the metadata store: %s", sl_err_name(err));
}

void sl_transfer_directory_close(struct sl_transfer *transfer)
{
    if (transfer->names != NULL) {
        sl_names_destroy(&transfer->names, END_NS);
    }
}

/* The engine's own record */

static void done(void *ctx, int err, const char *reason)
{
    sl_transfer_io_answer(ctx, err, "%s", reason);
}

/* For people: as many as fit, separated by commas. */
static void list_endpoints(const struct sl_transfer *transfer, char text[ENDPOINTS_BYTES])
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < transfer->listing->endpoint_count; i++) {
        const char *one = transfer->listing->endpoints[i].endpoint;
        const size_t length = strlen(one) + (used > 0 ? 1 : 0);
        if (used + length < ENDPOINTS_BYTES) {
            (void)snprintf(text + used, ENDPOINTS_BYTES - used, "%s%s", used > 0 ? "," : "", one);
            used += length;
        }
    }
}

static void publish_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct sl_transfer *transfer = io->engine;
    const struct sl_transfer_settings *settings = &transfer->settings;
    char endpoints[ENDPOINTS_BYTES];
    struct sl_endpoint control;
    list_endpoints(transfer, endpoints);
    struct sl_transfer_record record = {.incarnation = transfer->incarnation,
                                        .software = "starling " STARLING_VERSION,
                                        .endpoints = endpoints,
                                        .priority_matrix = settings->matrix};
    const int err = sl_endpoint_parse(transfer->name, &control, NULL);
    if (err != 0) {
        sl_transfer_io_answer(call, err, "name %s: no record can be made of it", transfer->name);
        return;
    }
    record.port = control.port;
    memcpy(record.name, transfer->name, sizeof record.name);
    memcpy(record.host, control.host, sizeof record.host);
    sl_names_publish(transfer->names, &record, settings->start_timeout_ms * SL_CLOCK_NS_PER_MS,
                     done, call);
}

int sl_transfer_directory_publish(struct sl_transfer *transfer)
{
    struct sl_transfer_call call = {.run = publish_here};
    if (transfer->names == NULL) {
        return 0;
    }
    const int err = sl_transfer_io_call(&transfer->ios[0], &call);
    transfer->is_published = err == 0;
    return err == 0
               ? 0
               : sl_transfer_fail(err, "name %s: metadata store: %s", transfer->name, call.text);
}

static void withdraw_here(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    sl_names_withdraw(io->engine->names, END_NS, done, call);
}

void sl_transfer_directory_withdraw(struct sl_transfer *transfer)
{
    struct sl_transfer_call call = {.run = withdraw_here};
    if (transfer->is_published && sl_transfer_io_call(&transfer->ios[0], &call) != 0) {
        sl_log_warn("transfer: the record of %s may stay in the metadata store: %s", transfer->name,
                    call.text);
    }
}

/* Other engines */

int sl_transfer_directory_check(const struct sl_transfer *transfer, const char *name,
                                struct sl_endpoint *out)
{
    if (transfer->names == NULL) {
        return sl_transfer_settings_parse_name(name, out);
    }
    if (name == NULL || name[0] == '\0' || strlen(name) >= SL_LIMIT_ENDPOINT_BYTES) {
        return sl_transfer_fail(SL_ERR_INVALID, "a name has 1 to %d characters",
                                SL_LIMIT_ENDPOINT_BYTES - 1);
    }
    *out = (struct sl_endpoint){.port = 0};
    return 0;
}

int sl_transfer_directory_address(const struct sl_transfer_record *record, struct sl_endpoint *out,
                                  char reason[SL_TRANSFER_REASON_BYTES])
{
    const char *host = record->host;
    char text[ENDPOINTS_TEXT_BYTES];
    (void)snprintf(text, sizeof text, strchr(host, ':') != NULL ? "[%s]:%u" : "%s:%u", host,
                   record->port);
    if (strstr(host, "://") != NULL || sl_endpoint_parse(text, out, NULL) != 0) {
        (void)snprintf(reason, SL_TRANSFER_REASON_BYTES,
                       "metadata store: the record of %.200s has an invalid address, %.200s",
                       record->name, text);
        return SL_ERR_PROTOCOL;
    }
    return 0;
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
