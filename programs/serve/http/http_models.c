#include "programs/serve/http/http_models.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/array.h"

/* ---- a description ---- */

void sl_http_models_run_describe(struct sl_serve_call *call)
{
    sl_serve_call_submit(call, SL_SERVE_DESCRIBE);
}

/* The worker's description, without the most rows that the model accepts, which go to *rows_max; 0:
 * the worker does not say. NULL: replied. */
static json_t *read_description(struct sl_serve_call *call, json_int_t *rows_max)
{
    const struct sl_serve_request *request = &call->request;
    const struct sl_serve_tensor *output = &request->answer.outputs[0];
    json_t *all = request->answer.output_count == 1
                      ? json_loadb((const char *)request->answer.output + output->offset,
                                   output->bytes, 0, NULL)
                      : NULL;
    if (!json_is_object(all)) {
        json_decref(all);
        sl_serve_call_fail(call, SL_ERR_CORRUPT, "the worker's description of the model is no JSON",
                           0);
        return NULL;
    }
    *rows_max = json_integer_value(json_object_get(all, "max_batch_size"));
    (void)json_object_del(all, "max_batch_size");
    return all;
}

/* The worker's description has the version that it has opened; that of a model has all. */
void sl_http_models_answer_metadata(struct sl_serve_call *call)
{
    const struct sl_serve_request *request = &call->request;
    const struct sl_object_entry *first;
    const uint64_t count = sl_serve_gateway_versions(call->routes->gateway, request->model, &first);
    json_int_t rows_max;
    json_t *all = read_description(call, &rows_max);
    if (all == NULL) {
        return;
    }
    json_t *versions = json_array();
    for (uint64_t i = 0; i < count && request->version == 0; i++) {
        char number[24];
        (void)snprintf(number, sizeof number, "%llu", (unsigned long long)first[i].version);
        (void)json_array_append_new(versions, json_string(number));
    }
    if (json_array_size(versions) > 0) {
        (void)json_object_set(all, "versions", versions);
    }
    json_decref(versions);
    sl_serve_call_reply_json(call, all);
}

/* Inputs or outputs as the configuration has them: without the dimension of the rows if the model
 * has batches. A tensor without dimensions has one of 1 there, and the shape beside it. */
static json_t *make_tensors(const json_t *tensors, bool has_batches)
{
    json_t *all = json_array(), *tensor;
    size_t i;
    json_array_foreach(tensors, i, tensor)
    {
        char type[40];
        (void)snprintf(type, sizeof type, "TYPE_%.32s",
                       json_string_value(json_object_get(tensor, "datatype")));
        json_t *dims = json_array(), *size;
        size_t j;
        json_array_foreach(json_object_get(tensor, "shape"), j, size)
        {
            (void)(has_batches && j == 0 ? 0 : json_array_append(dims, size));
        }
        json_t *made = json_pack("{s:O*, s:s, s:o}", "name", json_object_get(tensor, "name"),
                                 "data_type", type, "dims", dims);
        if (json_array_size(dims) == 0) {
            (void)json_array_append_new(dims, json_integer(1));
            (void)json_object_set_new(made, "reshape", json_pack("{s:[]}", "shape"));
        }
        (void)json_array_append_new(all, made);
    }
    return all;
}

/* Members of the message ModelConfig of Triton that have a meaning here. */
void sl_http_models_answer_config(struct sl_serve_call *call)
{
    json_int_t rows_max;
    json_t *all = read_description(call, &rows_max);
    if (all == NULL) {
        return;
    }
    json_t *config = json_pack("{s:s, s:O*, s:s, s:I, s:o, s:o, s:{s:b}}", "name",
                               call->request.model, "platform", json_object_get(all, "platform"),
                               "backend", "starling", "max_batch_size", rows_max, "input",
                               make_tensors(json_object_get(all, "inputs"), rows_max > 0), "output",
                               make_tensors(json_object_get(all, "outputs"), rows_max > 0),
                               "model_transaction_policy", "decoupled", 0);
    if (rows_max > 0) { /* workers compute requests together */
        (void)json_object_set_new(config, "dynamic_batching", json_object());
    }
    json_decref(all);
    sl_serve_call_reply_json(call, config);
}

/* ---- statistics ---- */

/* Replies {"model_stats": [...]} with those of the entries. all: of each model the newest version,
 * and those that were used: there may be millions of others. */
static void reply_stats(struct sl_serve_call *call, const struct sl_object_entry *entries,
                        uint64_t count, bool all)
{
    const struct sl_http_stats *stats = &call->routes->stats;
    const uint64_t version = call->request.version;
    const char *comma = "";
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    (void)(file != NULL ? fputs("{\"model_stats\":[", file) : 0);
    for (uint64_t i = 0; file != NULL && i < count; i++) {
        const struct sl_object_entry *entry = &entries[i];
        const bool is_newest = i + 1 == count || strcmp(entries[i + 1].name, entry->name) != 0;
        if (all ? is_newest || sl_http_stats_has(stats, entry->name, entry->version)
                : version == 0 || entry->version == version) {
            json_t *one = sl_http_stats_json(stats, entry->name, entry->version);
            (void)fputs(comma, file);
            (void)json_dumpf(one, file, JSON_COMPACT);
            json_decref(one);
            comma = ",";
        }
    }
    (void)(file != NULL ? fputs("]}", file) : 0);
    sl_serve_call_reply_stream(call, SL_SERVE_CALL_JSON, file, &text, &bytes);
}

/* The list of models; NULL: replied. */
static const struct sl_object_list *models_of(struct sl_serve_call *call)
{
    const struct sl_object_list *list = sl_serve_gateway_models(call->routes->gateway);
    if (list == NULL) {
        sl_serve_call_fail(call, SL_ERR_AGAIN, "the catalogue has not answered yet", 0);
    }
    return list;
}

void sl_http_models_run_stats(struct sl_serve_call *call)
{
    const struct sl_object_entry *first;
    if (models_of(call) != NULL && sl_serve_call_is_known(call)) {
        const uint64_t count =
            sl_serve_gateway_versions(call->routes->gateway, call->request.model, &first);
        reply_stats(call, first, count, false);
    }
}

void sl_http_models_run_all_stats(struct sl_serve_call *call)
{
    const struct sl_object_list *list = models_of(call);
    if (list != NULL) {
        reply_stats(call, list->entries, list->count, true);
    }
}

/* ---- the repository ---- */

static uint32_t find_unloaded(const struct sl_serve_http_routes *routes, const char *model)
{
    uint32_t i = 0;
    while (i < routes->unloaded_count && strcmp(routes->unloaded[i], model) != 0) {
        i++;
    }
    return i;
}

bool sl_http_models_is_unloaded(const struct sl_serve_http_routes *routes, const char *model)
{
    return find_unloaded(routes, model) < routes->unloaded_count;
}

/* Reads the only option of a body. False: replied. */
static bool read_option(struct sl_serve_call *call, bool is_parameter, const char *name,
                        bool *value)
{
    struct sl_reason reason;
    const int err = sl_http_body_read_option(call->text.bytes, call->text.count, is_parameter, name,
                                             value, &reason);
    if (err != 0) {
        sl_serve_call_fail(call, err, reason.text, 0);
    }
    return err == 0;
}

void sl_http_models_run_load(struct sl_serve_call *call)
{
    if (read_option(call, true, NULL, &(bool){false})) {
        sl_serve_call_submit(call, SL_SERVE_LOAD);
    }
}

void sl_http_models_answer_load(struct sl_serve_call *call)
{
    struct sl_serve_http_routes *routes = call->routes;
    const uint32_t i = find_unloaded(routes, call->request.model);
    if (i < routes->unloaded_count) {
        memmove(routes->unloaded[i], routes->unloaded[--routes->unloaded_count],
                sizeof routes->unloaded[i]);
    }
    sl_http_call_reply(&call->http, 200, SL_SERVE_CALL_JSON, NULL, 0);
}

void sl_http_models_run_unload(struct sl_serve_call *call)
{
    struct sl_serve_http_routes *routes = call->routes;
    const char *model = call->request.model;
    bool is_with_dependents; /* clients of the protocol send it; models have none */
    if (!read_option(call, true, "unload_dependents", &is_with_dependents) ||
        !sl_serve_call_is_known(call)) {
        return;
    }
    if (!sl_http_models_is_unloaded(routes, model)) {
        if (!sl_array_make_room(&routes->unloaded, &routes->unloaded_capacity,
                                routes->unloaded_count, sizeof *routes->unloaded)) {
            sl_serve_call_fail(call, SL_ERR_NO_MEMORY, "no memory", 0);
            return;
        }
        memcpy(routes->unloaded[routes->unloaded_count++], model, SL_OBJECTS_NAME_BYTES);
    }
    sl_http_call_reply(&call->http, 200, SL_SERVE_CALL_JSON, NULL, 0);
}

void sl_http_models_run_index(struct sl_serve_call *call)
{
    bool only_ready;
    if (!read_option(call, false, "ready", &only_ready)) {
        return;
    }
    const struct sl_object_list *list = models_of(call);
    if (list == NULL) {
        return;
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes); /* as text: there may be millions of versions */
    (void)(file != NULL ? fputc('[', file) : 0);
    for (uint64_t i = 0, count = 0; file != NULL && i < list->count; i++) {
        const struct sl_object_entry *entry = &list->entries[i];
        const bool is_ready = !sl_http_models_is_unloaded(call->routes, entry->name);
        if (is_ready || !only_ready) {
            json_t *name = json_string(entry->name);
            (void)fputs(count++ == 0 ? "{\"name\":" : ",{\"name\":", file);
            (void)json_dumpf(name, file, JSON_ENCODE_ANY);
            (void)fprintf(file, ",\"version\":\"%llu\",\"state\":\"%s\",\"reason\":\"%s\"}",
                          (unsigned long long)entry->version, is_ready ? "READY" : "UNAVAILABLE",
                          is_ready ? "" : "unloaded");
            json_decref(name);
        }
    }
    (void)(file != NULL ? fputc(']', file) : 0);
    sl_serve_call_reply_stream(call, SL_SERVE_CALL_JSON, file, &text, &bytes);
}
