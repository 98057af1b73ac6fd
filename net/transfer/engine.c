#include "net/transfer/engine.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/transfer/batch.h"
#include "net/transfer/directory.h"
#include "net/transfer/error.h"
#include "net/transfer/inbox.h"
#include "net/transfer/memory.h"
#include "net/transfer/segment.h"
#include "net/transfer/target.h"
#include "reactor/topology.h"

#define SPIN_US 20

static_assert(SL_TRANSFER_BUFFERS_MAX == SL_LIMIT_TRANSFER_BUFFERS, "the public limit");
static_assert(SL_TRANSFER_SEGMENTS_MAX == SL_LIMIT_TRANSFER_SEGMENTS, "the public limit");
static_assert(SL_TRANSFER_BATCHES_MAX == SL_LIMIT_TRANSFER_BATCHES, "the public limit");
static_assert(SL_TRANSFER_REQUESTS_MAX == SL_LIMIT_TRANSFER_REQUESTS, "the public limit");
static_assert(SL_TRANSFER_NOTICES_MAX == SL_LIMIT_TRANSFER_NOTICES, "the public limit");

/* Reactors */

static int create_reactors(struct sl_transfer *transfer)
{
    const struct sl_transfer_settings *settings = &transfer->settings;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < settings->reactors.count; i++) {
        transfer->ios[i].engine = transfer;
        transfer->ios[i].index = i;
        if (transfer->setup.reactors != NULL) {
            transfer->ios[i].reactor = transfer->reactors[i] = transfer->setup.reactors[i];
            continue;
        }
        struct sl_reactor_options options = {.index = i,
                                             .core = -1,
                                             .polling = settings->reactors.polling,
                                             .spin_us = SPIN_US,
                                             .clock = transfer->setup.clock};
        (void)snprintf(options.name, sizeof options.name, "transfer.%u", i % SL_LIMIT_REACTORS);
        if (settings->reactors.pin_cores && sl_topology_core_for(i, true, &options.core) != 0) {
            sl_log_warn("transfer: reactor %u: no core left to pin it to", i);
            options.core = -1;
        }
        err = sl_reactor_create(&options, &transfer->reactors[i]);
        transfer->ios[i].reactor = transfer->reactors[i];
    }
    return err != 0 || transfer->setup.reactors != NULL
               ? err
               : sl_reactor_connect(transfer->reactors, settings->reactors.count);
}

static void destroy_reactors(struct sl_transfer *transfer)
{
    const bool has_own = transfer->reactors != NULL && transfer->setup.reactors == NULL;
    const uint32_t count = has_own ? transfer->settings.reactors.count : 0;
    for (uint32_t i = 0; i < count; i++) {
        if (transfer->reactors[i] != NULL) {
            sl_reactor_stop(transfer->reactors[i]);
            sl_reactor_join(transfer->reactors[i]);
        }
    }
    if (transfer->ports != NULL) {
        sl_port_set_destroy(&transfer->ports, NULL);
    }
    sl_transfer_directory_destroy(transfer);
    for (uint32_t i = 0; i < count; i++) {
        if (transfer->reactors[i] != NULL) {
            sl_reactor_destroy(&transfer->reactors[i]);
        }
    }
}

static int start_reactors(struct sl_transfer *transfer)
{
    const uint32_t count = transfer->settings.reactors.count;
    int err = create_reactors(transfer);
    if (err == 0 && (err = sl_transfer_directory_create(transfer)) != 0) {
        return err;
    }
    const bool has_own = transfer->setup.reactors == NULL;
    for (uint32_t i = 0; err == 0 && has_own && i < count; i++) {
        err = sl_reactor_start(transfer->reactors[i], NULL, NULL);
    }
    err = err != 0 ? err
                   : sl_port_set_create(transfer->reactors, count, NULL, sizeof(struct sl_port),
                                        &transfer->ports);
    return err == 0 ? 0 : sl_transfer_fail(err, "cannot start I/O threads: %s", sl_err_name(err));
}

/* Calls on all reactors; returns the first error. */
static int call_all(struct sl_transfer *transfer,
                    void (*run)(struct sl_transfer_io *io, struct sl_transfer_call *call))
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < transfer->settings.reactors.count; i++) {
        struct sl_transfer_call call = {.run = run};
        err = sl_transfer_io_call(&transfer->ios[i], &call);
    }
    return err;
}

static void transfer_free(struct sl_transfer *transfer)
{
    if (transfer->ports != NULL) {
        sl_transfer_directory_withdraw(transfer);
        if (transfer->ios[0].has_source) {
            sl_transfer_target_leave(transfer);
        }
        (void)call_all(transfer, sl_transfer_io_stop);
    }
    destroy_reactors(transfer);
    if (transfer->ios != NULL) {
        sl_transfer_inbox_fini(&transfer->ios[0].inbox);
    }
    sl_transfer_memory_fini(transfer);
    sl_transfer_settings_fini(&transfer->settings);
    free(transfer->reactors);
    free(transfer->ios);
    free(transfer->own_info);
    free(transfer);
}

static int start(struct sl_transfer *transfer)
{
    int err = sl_transfer_memory_init(transfer);
    if (err != 0) {
        return sl_transfer_fail(err, "out of memory");
    }
    err = start_reactors(transfer);
    err = err != 0 ? err : call_all(transfer, sl_transfer_io_start);
    err = err != 0 ? err : call_all(transfer, sl_transfer_target_listen);
    struct sl_transfer_call control = {.run = sl_transfer_target_listen_for_control};
    err = err != 0 ? err : sl_transfer_io_call(&transfer->ios[0], &control);
    return err != 0 ? err : sl_transfer_directory_publish(transfer);
}

static int allocate(struct sl_transfer *transfer)
{
    const uint32_t count = transfer->settings.reactors.count;
    transfer->reactors = calloc(count, sizeof(struct sl_reactor *));
    transfer->ios = calloc(count, sizeof *transfer->ios);
    sl_list_init(&transfer->segments);
    sl_list_init(&transfer->batches);
    transfer->incarnation = sl_transfer_setup_random(&transfer->setup);
    return transfer->reactors != NULL && transfer->ios != NULL
               ? 0
               : sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
}

/* Public */

int sl_transfer_create_with(const struct sl_transfer_options *options,
                            const struct sl_transfer_setup *setup, struct sl_transfer **out)
{
    sl_assert(options != NULL);
    sl_assert(out != NULL);
    struct sl_transfer *transfer = calloc(1, sizeof *transfer);
    int err = transfer != NULL ? sl_transfer_settings_init(&transfer->settings, options)
                               : sl_transfer_fail(SL_ERR_NO_MEMORY, "out of memory");
    if (err != 0) {
        free(transfer);
        sl_log_error("transfer: cannot start: %s", sl_transfer_last_error());
        return err;
    }
    if (setup != NULL) {
        transfer->setup = *setup;
        transfer->settings.transport.medium = setup->medium;
    }
    err = allocate(transfer);
    err = err != 0 ? err : start(transfer);
    if (err != 0) {
        char reason[SL_TRANSFER_REASON_BYTES];
        (void)snprintf(reason, sizeof reason, "%s", sl_transfer_last_error());
        sl_log_error("transfer: cannot start: %s", reason);
        transfer_free(transfer);
        return sl_transfer_fail(err, "%s", reason);
    }
    *out = transfer;
    return sl_transfer_succeed();
}

int sl_transfer_create(const struct sl_transfer_options *options, struct sl_transfer **out)
{
    return sl_transfer_create_with(options, NULL, out);
}

void sl_transfer_destroy(struct sl_transfer **transfer)
{
    sl_assert(transfer != NULL);
    struct sl_transfer *gone = *transfer;
    *transfer = NULL;
    if (gone != NULL) {
        sl_transfer_batch_free_all(gone);
        sl_transfer_segment_close_all(gone);
        transfer_free(gone);
    }
}

const char *sl_transfer_name(const struct sl_transfer *transfer)
{
    sl_assert(transfer != NULL);
    return transfer->name;
}
