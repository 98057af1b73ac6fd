#include "ps/process/listen.h"

#include "core/assert.h"
#include "core/log.h"

#define DOCTOR "`starling-ps doctor` tells what is missing"

static bool process_listen_is_bypass(const struct sl_endpoint *endpoint)
{
    return endpoint->scheme == SL_ENDPOINT_RDMA || endpoint->scheme == SL_ENDPOINT_DPDK;
}

/* True if the data endpoint itself is RDMA or DPDK, so there is no fallback. */
static bool needs_bypass(const struct sl_process_options *options)
{
    return options->kind != SL_PROCESS_SCHEDULER &&
           process_listen_is_bypass(&options->endpoints.data);
}

/* Scheme of the bypass endpoint, or of a data endpoint that is one. */
static enum sl_endpoint_scheme bypass_scheme(const struct sl_process_options *options)
{
    return options->endpoints.has_bypass ? options->endpoints.bypass.scheme
                                         : options->endpoints.data.scheme;
}

/* Returns why it cannot be used here; NULL: no known reason. */
static const char *why_not_bypass(const struct sl_process_options *options)
{
    const enum sl_endpoint_scheme scheme = bypass_scheme(options);
    if (options->tls != NULL) {
        return scheme == SL_ENDPOINT_RDMA ? "there is no TLS over RDMA"
                                          : "there is no TLS over DPDK";
    }
    return sl_builtin_missing(scheme);
}

static void drop_bypass(struct sl_process *process, const char *why)
{
    struct sl_process_options *options = &process->options;
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->endpoints.bypass, text, sizeof text);
    sl_log_warn("%s: %s: workers connect over the other data endpoint%s%s", text, why,
                options->tls != NULL ? "" : "; ", options->tls != NULL ? "" : DOCTOR);
    options->endpoints.has_bypass = false;
}

static void explain_failure(const struct sl_process *process, const char *why)
{
    const struct sl_process_options *options = &process->options;
    char text[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&options->endpoints.data, text, sizeof text);
    sl_log_error("data endpoint %s: %s; %s", text, why,
                 options->tls != NULL ? "name one of tcp" : DOCTOR);
}

int sl_process_listen_check(struct sl_process *process)
{
    struct sl_process_options *options = &process->options;
    options->endpoints.has_bypass =
        options->endpoints.has_bypass && options->kind != SL_PROCESS_SCHEDULER;
    sl_assert(!options->endpoints.has_bypass || options->endpoints.data.scheme == SL_ENDPOINT_TCP);
    sl_assert(!options->endpoints.has_bypass ||
              process_listen_is_bypass(&options->endpoints.bypass));
    const bool wants = options->endpoints.has_bypass || needs_bypass(options);
    const char *why = wants ? why_not_bypass(options) : NULL;
    if (why == NULL) {
        return 0;
    }
    if (options->endpoints.has_bypass) {
        drop_bypass(process, why);
        return 0;
    }
    explain_failure(process, why);
    return SL_ERR_UNSUPPORTED;
}

void sl_process_listen_choose(const struct sl_process *process, struct sl_server_options *server)
{
    const struct sl_process_options *options = &process->options;
    const bool has_shm = options->shm || options->endpoints.data.scheme == SL_ENDPOINT_SHM;
    const bool has_bypass = options->endpoints.has_bypass || needs_bypass(options);
    server->transports.first = sl_builtin_find(SL_ENDPOINT_TCP);
    server->transports.shm = has_shm ? sl_builtin_find(SL_ENDPOINT_SHM) : NULL;
    server->transports.bypass = has_bypass ? sl_builtin_find(bypass_scheme(options)) : NULL;
    server->transports.needs_bypass = needs_bypass(options);
}

void sl_process_listen_created(struct sl_process_core *core, int err)
{
    struct sl_process *process = core->process;
    if (err != 0 && needs_bypass(&process->options)) {
        explain_failure(process, sl_err_name(err));
    } else if (err == 0 && process->options.endpoints.has_bypass &&
               !sl_server_has_bypass(core->server)) {
        drop_bypass(process, "it cannot be used"); /* other cores skip it; none listens yet */
    }
}

/* Listens for local workers over shared memory, at the data endpoint's address, which they know
 * already. */
static void listen_preferred(struct sl_process_core *core)
{
    struct sl_process *process = core->process;
    const struct sl_process_options *options = &process->options;
    if (options->endpoints.data.scheme != SL_ENDPOINT_SHM) {
        if (!options->shm) {
            return;
        }
        struct sl_endpoint preferred = options->endpoints.data;
        preferred.scheme = SL_ENDPOINT_SHM;
        preferred.port = process->bound.data.port;
        int err = sl_server_listen(core->server, &preferred, NULL);
        if (err != 0) {
            char text[SL_LIMIT_ENDPOINT_BYTES];
            sl_endpoint_format(&preferred, text, sizeof text);
            sl_log_warn("%s: %s: workers of this host connect over the network", text,
                        sl_err_name(err));
            return;
        }
    }
    sl_shm_host(process->host);
}

/* The first core chooses the port. */
static int listen_bypass(struct sl_process_core *core, const struct sl_endpoint *endpoint,
                         struct sl_endpoint *bound)
{
    const struct sl_endpoint where = core->index == 0 ? *endpoint : *bound;
    return sl_server_listen(core->server, &where, bound);
}

int sl_process_listen_core(struct sl_process_core *core)
{
    struct sl_process *process = core->process;
    const struct sl_process_options *options = &process->options;
    int err = 0;
    if (needs_bypass(options)) {
        err = listen_bypass(core, &options->endpoints.data, &process->bound.data);
        if (err != 0) {
            explain_failure(process, sl_err_name(err));
        }
    } else if (options->endpoints.has_bypass) {
        const int why = listen_bypass(core, &options->endpoints.bypass, &process->bound.bypass);
        if (why != 0) {
            drop_bypass(process, sl_err_name(why));
        }
    }
    return err;
}

int sl_process_listen(struct sl_process_core *core)
{
    struct sl_process *process = core->process;
    const struct sl_process_options *options = &process->options;
    int err = 0;
    if (options->kind != SL_PROCESS_SERVER) {
        err = sl_server_listen(core->server, &options->endpoints.control, &process->bound.control);
    }
    if (options->kind != SL_PROCESS_SERVER && !needs_bypass(options)) {
        process->bound.data = process->bound.control;
    }
    bool has_more = options->kind == SL_PROCESS_SERVER ||
                    (options->kind == SL_PROCESS_PS &&
                     !sl_endpoint_same(&options->endpoints.control, &options->endpoints.data));
    if (err == 0 && has_more && !needs_bypass(options)) {
        err = sl_server_listen(core->server, &options->endpoints.data, &process->bound.data);
    }
    if (err == 0 && options->kind != SL_PROCESS_SCHEDULER) {
        listen_preferred(core);
    }
    return err;
}
