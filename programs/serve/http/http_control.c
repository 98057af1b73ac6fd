#include "programs/serve/http/http_control.h"

#include <jansson.h>
#include <string.h>

#include "core/log.h"

/* ---- the gateway ---- */

void sl_http_control_run_server(struct sl_serve_call *call)
{
    sl_serve_call_reply_json(call,
                             json_pack("{s:s,s:s,s:[s,s,s,s,s,s]}", "name", "starling-serve",
                                       "version", STARLING_VERSION, "extensions",
                                       "binary_tensor_data", "logging", "model_configuration",
                                       "model_repository", "statistics", "system_shared_memory"));
}

void sl_http_control_run_live(struct sl_serve_call *call)
{
    sl_serve_call_reply_json(call, json_pack("{s:b}", "live", 1));
}

void sl_http_control_run_ready(struct sl_serve_call *call)
{
    struct sl_serve_gateway_stats stats;
    sl_serve_gateway_stats(call->routes->gateway, &stats);
    const char *missing = stats.is_draining    ? "the gateway is ending"
                          : !stats.has_models  ? "the catalogue has not answered yet"
                          : stats.workers == 0 ? "no worker has joined"
                          : stats.able_workers == 0
                              ? "no worker answers: all are stuck in computations, or stopped"
                              : NULL;
    if (missing != NULL) {
        sl_serve_call_fail(call, SL_ERR_AGAIN, missing, 0);
    } else {
        sl_serve_call_reply_json(call, json_pack("{s:b}", "ready", 1));
    }
}

void sl_http_control_run_metrics(struct sl_serve_call *call)
{
    struct sl_serve_gateway_stats stats;
    sl_serve_gateway_stats(call->routes->gateway, &stats);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file != NULL) {
        sl_http_metrics_write(&call->routes->metrics, &stats, call->routes->unloaded_count, file);
    }
    sl_serve_call_reply_stream(call, "text/plain; version=0.0.4", file, &text, &bytes);
}

/* ---- traces ---- */

/* A model of the path has to exist. */
static bool has_model(struct sl_serve_call *call)
{
    return call->request.model[0] == '\0' || sl_serve_call_is_known(call);
}

void sl_http_control_run_trace(struct sl_serve_call *call)
{
    if (has_model(call)) {
        sl_serve_call_reply_json(call, json_pack("{s:s, s:[s], s:s, s:s, s:s}", "trace_file", "",
                                                 "trace_level", "OFF", "trace_rate", "1000",
                                                 "trace_count", "-1", "log_frequency", "0"));
    }
}

/* "OFF" or ["OFF"]. */
static bool is_off(const json_t *level)
{
    const json_t *text = json_array_size(level) == 1 ? json_array_get(level, 0) : level;
    return json_is_string(text) && strcmp(json_string_value(text), "OFF") == 0;
}

void sl_http_control_run_trace_set(struct sl_serve_call *call)
{
    json_t *root = has_model(call) ? sl_serve_call_load(call) : NULL, *value;
    const char *name;
    json_object_foreach(root, name, value)
    {
        const bool is_level = strcmp(name, "trace_level") == 0;
        if (call->http.reply.status == 0 && !json_is_null(value) && !(is_level && is_off(value))) {
            sl_http_call_reply_error(&call->http, 400,
                                     "%.64s: there are no traces here: accepted are null, and OFF "
                                     "as trace_level",
                                     name);
        }
    }
    json_decref(root);
    if (call->http.reply.status == 0) {
        sl_http_control_run_trace(call);
    }
}

/* ---- the log ---- */

/* Names of the switches, by level; that of DEBUG is a number. */
static const char *const switches[] = {[SL_LOG_DEBUG] = "log_verbose_level",
                                       [SL_LOG_INFO] = "log_info",
                                       [SL_LOG_WARN] = "log_warning",
                                       [SL_LOG_ERROR] = "log_error"};

void sl_http_control_run_log(struct sl_serve_call *call)
{
    json_t *all = json_pack("{s:s}", "log_file", "");
    for (int i = SL_LOG_INFO; i < SL_LOG_OFF; i++) {
        (void)json_object_set_new(all, switches[i],
                                  json_boolean(sl_log_enabled((enum sl_log_level)i)));
    }
    (void)json_object_set_new(all, switches[SL_LOG_DEBUG],
                              json_integer(sl_log_enabled(SL_LOG_DEBUG)));
    (void)json_object_set_new(all, "log_format", json_string("default"));
    sl_serve_call_reply_json(call, all);
}

/* Whether a member that is no switch is as it is already. */
static bool is_unchanged(const char *name, const json_t *value)
{
    const char *text = json_string_value(value);
    return text != NULL && ((strcmp(name, "log_file") == 0 && text[0] == '\0') ||
                            (strcmp(name, "log_format") == 0 && strcmp(text, "default") == 0));
}

/* Reads a switch. False: it is none of the level, or of another type. */
static bool read_switch(int level, const char *name, const json_t *value, bool *is_on)
{
    const bool is_number = level == SL_LOG_DEBUG;
    *is_on = is_number ? json_integer_value(value) > 0 : json_is_true(value);
    return strcmp(switches[level], name) == 0 &&
           (is_number ? json_is_integer(value) && json_integer_value(value) >= 0
                      : json_is_boolean(value));
}

/* Levels are ordered: a line of one is written if those of all lower ones are. *least: the lowest
 * level that is switched on; *most: the highest that is switched off. False: replied. */
static bool read_switches(struct sl_serve_call *call, json_t *root, int *least, int *most)
{
    const char *name;
    json_t *value;
    *least = SL_LOG_OFF;
    *most = -1;
    json_object_foreach(root, name, value)
    {
        bool is_on = false;
        int level = SL_LOG_DEBUG;
        while (level < SL_LOG_OFF && !read_switch(level, name, value, &is_on)) {
            level++;
        }
        if (level == SL_LOG_OFF && !is_unchanged(name, value)) {
            sl_http_call_reply_error(
                &call->http, 400,
                "%.64s cannot be set so: log_info, log_warning and log_error are true or false, "
                "log_verbose_level is 0 or more, log_file is \"\", log_format is \"default\"",
                name);
            return false;
        }
        *least = level < SL_LOG_OFF && is_on && level < *least ? level : *least;
        *most = level < SL_LOG_OFF && !is_on && level > *most ? level : *most;
    }
    if (*least < *most) {
        sl_http_call_reply_error(&call->http, 400,
                                 "%s is off and %s is on: a level is on only with those above it",
                                 switches[*most], switches[*least]);
    }
    return *least > *most;
}

void sl_http_control_run_log_set(struct sl_serve_call *call)
{
    int least, most, level = SL_LOG_DEBUG;
    json_t *root = sl_serve_call_load(call);
    const bool is_valid = root != NULL && read_switches(call, root, &least, &most);
    json_decref(root);
    if (!is_valid) {
        return;
    }
    while (level < SL_LOG_OFF && !sl_log_enabled((enum sl_log_level)level)) {
        level++;
    }
    level = least < level ? least : level;
    level = most >= level ? most + 1 : level;
    sl_log_redirect((enum sl_log_level)level, NULL, NULL); /* a gateway has no callback */
    sl_http_control_run_log(call);
}

/* ---- shared memory ---- */

static void reply_region(struct sl_serve_call *call, json_t *regions)
{
    if (regions != NULL) {
        sl_serve_call_reply_json(call, regions);
    } else {
        sl_http_call_reply_error(&call->http, 404, "region `%s` is not registered", call->region);
    }
}

void sl_http_control_run_region_status(struct sl_serve_call *call)
{
    reply_region(call, sl_http_regions_json(&call->routes->regions, call->region));
}

void sl_http_control_run_region_add(struct sl_serve_call *call)
{
    struct sl_http_body_region region;
    struct sl_reason reason;
    int err = sl_http_body_read_region(call->text.bytes, call->text.count, &region, &reason);
    err = err != 0 ? err
                   : sl_http_regions_add(&call->routes->regions, call->region, &region, &reason);
    if (err != 0) { /* also too many: the caller has to remove some */
        sl_serve_call_fail(call, SL_ERR_INVALID, reason.text, 0);
    } else {
        sl_http_call_reply(&call->http, 200, SL_SERVE_CALL_JSON, NULL, 0);
    }
}

void sl_http_control_run_region_remove(struct sl_serve_call *call)
{
    sl_http_regions_remove(&call->routes->regions, call->region);
    sl_http_call_reply(&call->http, 200, SL_SERVE_CALL_JSON, NULL, 0);
}

void sl_http_control_run_cuda_status(struct sl_serve_call *call)
{
    reply_region(call, call->region[0] == '\0' ? json_array() : NULL);
}

void sl_http_control_run_cuda_add(struct sl_serve_call *call)
{
    sl_http_call_reply_error(&call->http, 400,
                             "region `%s`: workers have no GPU: register system shared memory",
                             call->region);
}

void sl_http_control_run_cuda_remove(struct sl_serve_call *call)
{
    sl_http_call_reply(&call->http, 200, SL_SERVE_CALL_JSON, NULL, 0);
}
