#include "ps/publish/ps_objects.h"

#include <starling_objects.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "objects/node/node.h"
#include "ps/process/state.h"
#include "ps/publish/ps_tables.h"
#include "ps/run_options.h"
#include "reactor/disk.h"
#include "reactor/port.h"

static struct ps_objects {
    struct sl_process_beside beside;
    const struct sl_run *run;
    bool is_keeper; /* a scheduler hosts the catalogue only */
    struct sl_objects *node;
    struct sl_process *process;
    struct sl_port_set *ports; /* to its reactors */
    struct sl_ps_tables_asked asked;
    char directory[SL_CHECKPOINT_SETTINGS_PATH_BYTES + 16];
} ps_objects; /* one in a process */

static int publish_tables(void *ctx, struct sl_objects *node,
                          const struct sl_objects_tables_request *request,
                          struct sl_objects_tables_state *state, struct sl_reason *reason)
{
    struct ps_objects *self = ctx;
    return sl_ps_tables_publish(self->process, self->ports, &self->asked, node, request, state,
                                reason);
}

static int ps_objects_start(struct sl_process_beside *beside, struct sl_process *process)
{
    struct ps_objects *self = SL_CONTAINER_OF(beside, struct ps_objects, beside);
    const struct sl_settings *settings = &self->run->settings;
    const struct sl_objects_settings *objects = &settings->objects;
    struct sl_transfer_options engine;
    sl_security_engine(&settings->security, &engine);
    engine.name = objects->name;
    engine.insecure = settings->insecure;
    if (objects->directory != NULL) { /* which servers of one host share */
        (void)mkdir(objects->directory, 0700);
        (void)sl_disk_make_directory(sl_disk_system(), objects->directory, NULL); /* synced */
        (void)snprintf(self->directory, sizeof self->directory, "%s/ps-%u", objects->directory,
                       process->member.task_index);
    }
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = objects->catalogue,
                                               .agent = "off",
                                               .pool_bytes = objects->memory_bytes,
                                               .rate_bytes = objects->rate_bytes};
    const struct sl_objects_setup setup = {
        .is_keeper = self->is_keeper,
        .directory = objects->directory != NULL ? self->directory : NULL,
        .keep_versions = objects->keep_versions,
        .replicas = settings->replicas,
        .publish_tables = self->is_keeper ? publish_tables : NULL,
        .ctx = self};
    self->process = process;
    int err = sl_port_set_create(process->reactors, process->options.reactors.count, NULL,
                                 sizeof(struct sl_port), &self->ports);
    if (err != 0) {
        sl_log_error("--objects: %s", sl_err_name(err));
        return err;
    }
    err = sl_objects_create_with(&options, &setup, &self->node);
    if (err != 0) {
        sl_port_set_destroy(&self->ports, NULL);
        sl_log_error("--objects=%s: %s", objects->name, sl_objects_last_error());
        return err;
    }
    const char *address = sl_objects_address(self->node);
    const bool is_host = objects->catalogue == NULL || strcmp(objects->catalogue, address) == 0;
    sl_log_info("objects at %s; the catalogue is %s%s", address, is_host ? "here" : "at ",
                is_host ? "" : objects->catalogue);
    return 0;
}

static void ps_objects_stop(struct sl_process_beside *beside)
{
    struct ps_objects *self = SL_CONTAINER_OF(beside, struct ps_objects, beside);
    sl_objects_destroy(&self->node);
    sl_port_set_destroy(&self->ports, NULL);
}

int sl_ps_objects_extend(const struct sl_run *run, struct sl_process_options *options,
                         struct sl_reason *reason)
{
    const struct sl_objects_settings *objects = &run->settings.objects;
    const bool hosts_coordinator =
        options->kind == SL_PROCESS_SCHEDULER ||
        (options->kind == SL_PROCESS_PS && options->task_index == 0 && options->metastore == NULL);
    if (objects->name == NULL) {
        return 0;
    }
    if (objects->catalogue == NULL && !hosts_coordinator) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "--objects=%s needs --catalogue (or STARLING_OBJECTS_CATALOGUE): the "
                              "--objects address of the process that hosts the coordinator",
                              objects->name);
    }
    if (options->memory_bytes_max != 0) {
        if (options->memory_bytes_max <= objects->memory_bytes) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "--objects-memory is %zu bytes, which leaves nothing of the %zu "
                                  "bytes of --memory-limit",
                                  objects->memory_bytes, options->memory_bytes_max);
        }
        options->memory_bytes_max -= objects->memory_bytes;
    }
    ps_objects = (struct ps_objects){.beside = {.start = ps_objects_start, .stop = ps_objects_stop},
                                     .run = run,
                                     .is_keeper = options->kind != SL_PROCESS_SCHEDULER};
    options->beside = &ps_objects.beside;
    return 0;
}
