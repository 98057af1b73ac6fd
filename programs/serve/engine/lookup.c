#include "programs/serve/engine/lookup.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/format.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/published.h"
#include "ps/optimizer/narrow.h"

#define SCRATCH_MAX (1ULL << 30) /* beside that of the graph */
#define UNKNOWN     "unknown_keys"

struct feature {
    const char *rows; /* input of the graph */
    const char *table;
    uint32_t input, first, bags, columns; /* columns of each bag */
    uint32_t dim;
    bool is_mean, has_padding;
    int64_t padding;
    struct sl_initializer_spec initializer;
    const struct sl_engine_tensor *pooled;
    struct sl_published_table published;
};

struct lookup {
    json_t *json; /* has the names */
    void *graph;  /* of sl_engine_graph */
    const struct sl_engine_info *of_graph;
    struct feature *features;
    uint32_t feature_count, key_input_count;
    struct sl_engine_tensor inputs[SL_LOOKUP_TENSORS_MAX], outputs[SL_LOOKUP_TENSORS_MAX];
    struct sl_engine_layer layer;
    struct sl_engine_info info;
    uint64_t bag_offset, found_offset; /* in the scratch: rows of one bag, and which exist */
};

/* ---- JSON ------------------------------------------------------------------------------------ */

static bool initializer_is_valid(const struct sl_initializer_spec *spec)
{
    const float width = spec->kind == SL_INITIALIZER_UNIFORM ? spec->high - spec->low
                                                             : fabsf(spec->low) + 9 * spec->high;
    return isfinite(spec->low) && isfinite(spec->high) && isfinite(width) &&
           (spec->kind != SL_INITIALIZER_UNIFORM || width > 0) &&
           (spec->kind < SL_INITIALIZER_NORMAL || spec->stddev >= 0);
}

static int read_feature(struct lookup *lookup, json_t *from, struct feature *feature,
                        struct sl_reason *reason)
{
    json_error_t error;
    const char *mode;
    json_t *padding;
    json_int_t input, first, bags, columns, kind, seed;
    double low, high;
    if (json_unpack_ex(from, &error, JSON_STRICT, "{s:s,s:I,s:I,s:I,s:I,s:s,s:s,s:o,s:[I,F,F,I!]}",
                       "rows", &feature->rows, "input", &input, "first", &first, "bags", &bags,
                       "columns", &columns, "table", &feature->table, "mode", &mode, "padding",
                       &padding, "init", &kind, &low, &high, &seed) != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "a feature of the model: %s", error.text);
    }
    const uint64_t room = input >= 0 && input < (json_int_t)lookup->key_input_count
                              ? lookup->inputs[input].shape[1]
                              : 0;
    const bool is_mean = strcmp(mode, "mean") == 0;
    if (first < 0 || bags < 1 || columns < 1 || (uint64_t)first >= room || (uint64_t)bags > room ||
        (uint64_t)columns > (room - (uint64_t)first) / (uint64_t)bags ||
        (!is_mean && strcmp(mode, "sum") != 0) ||
        !(json_is_null(padding) || json_is_integer(padding))) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "feature \"%s\": its columns are not those of an input, its mode is "
                              "neither sum nor mean, or its padding is no key",
                              feature->rows);
    }
    feature->input = (uint32_t)input;
    feature->first = (uint32_t)first;
    feature->bags = (uint32_t)bags;
    feature->columns = (uint32_t)columns;
    feature->is_mean = is_mean;
    feature->has_padding = json_is_integer(padding);
    feature->padding = json_integer_value(padding);
    if (kind < 0 || kind >= SL_INITIALIZER_KIND_COUNT) {
        kind = SL_INITIALIZER_UNIFORM; /* of no width: invalid */
        low = high = 0;
    }
    feature->initializer = (struct sl_initializer_spec){.kind = (enum sl_initializer_kind)kind,
                                                        .seed = (uint64_t)seed};
    feature->initializer.low = (float)low;
    feature->initializer.high = (float)high;
    return initializer_is_valid(&feature->initializer)
               ? 0
               : sl_reason_fail(reason, SL_ERR_INVALID, "feature \"%s\": init is that of no table",
                                feature->rows);
}

static int read_key_inputs(struct lookup *lookup, const json_t *from, struct sl_reason *reason)
{
    if (json_array_size(from) > SL_LOOKUP_TENSORS_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%zu inputs with keys: at most %d",
                              json_array_size(from), SL_LOOKUP_TENSORS_MAX);
    }
    for (uint32_t i = 0; i < json_array_size(from); i++) {
        json_int_t columns = 0;
        struct sl_engine_tensor *input = &lookup->inputs[i];
        *input = (struct sl_engine_tensor){.type = SL_OBJECT_I64, .rank = 2};
        if (json_unpack(json_array_get(from, i), "[s,I!]", &input->name, &columns) != 0 ||
            columns < 1 || columns > SL_LOOKUP_COLUMNS_MAX) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "input %u with keys: not a name and 1 to %d columns", i,
                                  SL_LOOKUP_COLUMNS_MAX);
        }
        input->shape[1] = (uint64_t)columns;
        input->row_bytes = (uint64_t)columns * sizeof(int64_t);
        lookup->key_input_count++;
    }
    return 0;
}

static int read_json(struct lookup *lookup, const struct sl_object_tensor *text,
                     struct sl_reason *reason)
{
    json_error_t error = {.text = "no array"};
    json_t *inputs, *features;
    lookup->json = json_loadb(text->data, text->bytes, JSON_REJECT_DUPLICATES, &error);
    if (lookup->json == NULL || json_unpack_ex(lookup->json, &error, JSON_STRICT, "{s:o,s:o}",
                                               "inputs", &inputs, "features", &features) != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s of the model: %s", text->name,
                              error.text);
    }
    const size_t count = json_array_size(features);
    if (count == 0 || count > SL_LOOKUP_FEATURES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%zu features: accepted are 1 to %d", count,
                              SL_LOOKUP_FEATURES_MAX);
    }
    lookup->features = calloc(count, sizeof *lookup->features);
    if (lookup->features == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to open the model");
    }
    lookup->feature_count = (uint32_t)count;
    int err = read_key_inputs(lookup, inputs, reason);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = read_feature(lookup, json_array_get(features, i), &lookup->features[i], reason);
    }
    return err;
}

/* ---- Open ------------------------------------------------------------------------------------ */

/* The feature whose rows the graph's input takes; NULL: none. */
static struct feature *feature_of(const struct lookup *lookup, const char *input)
{
    for (uint32_t i = 0; i < lookup->feature_count; i++) {
        if (strcmp(lookup->features[i].rows, input) == 0) {
            return &lookup->features[i];
        }
    }
    return NULL;
}

/* Inputs of the graph are those of features, or of requests. */
static int take_graph_inputs(struct lookup *lookup, struct sl_reason *reason)
{
    uint32_t fed = 0, count = lookup->key_input_count;
    for (uint32_t i = 0; i < lookup->of_graph->input_count; i++) {
        const struct sl_engine_tensor *input = &lookup->of_graph->inputs[i];
        struct feature *feature = feature_of(lookup, input->name);
        if (feature == NULL && count == SL_LOOKUP_TENSORS_MAX) {
            return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "the model has more than %d inputs",
                                  SL_LOOKUP_TENSORS_MAX);
        }
        if (feature == NULL) {
            lookup->inputs[count++] = *input;
            continue;
        }
        if (input->type != SL_OBJECT_F32 || input->rank != 2 ||
            input->shape[1] % feature->bags != 0 ||
            input->shape[1] / feature->bags > SL_LOOKUP_DIM_MAX) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "feature \"%s\": the graph's input must be f32 [rows, %u * dim], "
                                  "with a dim up to %d",
                                  input->name, feature->bags, SL_LOOKUP_DIM_MAX);
        }
        feature->pooled = input;
        feature->dim = (uint32_t)(input->shape[1] / feature->bags);
        fed++;
    }
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            if (strcmp(lookup->inputs[i].name, lookup->inputs[j].name) == 0) {
                return sl_reason_fail(reason, SL_ERR_INVALID, "two inputs are named \"%s\"",
                                      lookup->inputs[i].name);
            }
        }
    }
    lookup->info.inputs = lookup->inputs;
    lookup->info.input_count = count;
    return fed == lookup->feature_count
               ? 0
               : sl_reason_fail(reason, SL_ERR_INVALID,
                                "%u features feed %u inputs of the graph: each must feed one of "
                                "its own",
                                lookup->feature_count, fed);
}

static int take_graph_outputs(struct lookup *lookup, struct sl_reason *reason)
{
    const struct sl_engine_info *graph = lookup->of_graph;
    bool fits = graph->output_count < SL_LOOKUP_TENSORS_MAX;
    for (uint32_t i = 0; fits && i < graph->output_count; i++) {
        lookup->outputs[i] = graph->outputs[i];
        fits = strcmp(graph->outputs[i].name, UNKNOWN) != 0;
    }
    lookup->info.outputs = lookup->outputs;
    lookup->info.output_count = graph->output_count + 1;
    return fits ? 0
                : sl_reason_fail(reason, SL_ERR_INVALID,
                                 "the model has an output \"" UNKNOWN "\", or more than %d",
                                 SL_LOOKUP_TENSORS_MAX - 1);
}

/* Returns the offset of so many bytes in the scratch. */
static uint64_t lookup_place(struct lookup *lookup, uint64_t bytes)
{
    const uint64_t at = lookup->info.scratch_bytes;
    lookup->info.scratch_bytes += (bytes + 63) / 64 * 64;
    return at;
}

/* Places what is needed beside the graph's scratch. Counts are bounded, so no sum overflows. */
static int lookup_lay_out(struct lookup *lookup, const struct sl_engine_image *image,
                          uint32_t rows_max, struct sl_reason *reason)
{
    const struct sl_engine_info *graph = lookup->of_graph;
    struct sl_engine_tensor *unknown = &lookup->outputs[graph->output_count];
    lookup->info.fixed_rows = graph->fixed_rows;
    lookup->info.scratch_bytes = 0;
    (void)lookup_place(lookup, graph->scratch_bytes);
    *unknown = (struct sl_engine_tensor){.name = UNKNOWN,
                                         .type = SL_OBJECT_U32,
                                         .rank = 1,
                                         .shape = {graph->fixed_rows},
                                         .row_bytes = sizeof(uint32_t),
                                         .scratch_offset = lookup_place(lookup, 4ULL * rows_max)};
    for (uint32_t i = 0; i < lookup->key_input_count; i++) {
        struct sl_engine_tensor *input = &lookup->inputs[i];
        input->shape[0] = graph->fixed_rows;
        input->scratch_offset = lookup_place(lookup, input->row_bytes * rows_max);
    }
    lookup->found_offset = lookup_place(lookup, SL_LOOKUP_COLUMNS_MAX);
    uint64_t bag_floats = 0;
    for (uint32_t i = 0; i < lookup->feature_count; i++) {
        const struct feature *feature = &lookup->features[i];
        const uint64_t floats = (uint64_t)feature->columns * feature->dim;
        bag_floats = floats > bag_floats ? floats : bag_floats;
        lookup->layer.flops += (double)feature->bags * (double)floats;
    }
    lookup->bag_offset = lookup_place(lookup, bag_floats * sizeof(float));
    for (uint32_t i = 0; i < graph->layer_count; i++) {
        lookup->layer.flops += graph->layers[i].flops;
    }
    lookup->layer.image_end = image->bytes; /* any row may have any key */
    lookup->info.layers = &lookup->layer;
    lookup->info.layer_count = 1;
    return lookup->info.scratch_bytes - graph->scratch_bytes <= SCRATCH_MAX
               ? 0
               : sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                                "the keys of %u rows need more than %llu bytes", rows_max,
                                SCRATCH_MAX);
}

static int lookup_open(struct lookup *lookup, const struct sl_engine_image *image,
                       uint32_t rows_max, bool has_tables, struct sl_reason *reason)
{
    const struct sl_object_tensor *text = image->tensors;
    if (image->count == 0 || strcmp(text->name, SL_GRAPH_IMAGE_LOOKUP) != 0 ||
        text->type != SL_OBJECT_U8 || text->bytes > SL_LOOKUP_TEXT_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                              "the first tensor of the version is not \"" SL_GRAPH_IMAGE_LOOKUP
                              "\" of u8 with at most %u bytes",
                              SL_LOOKUP_TEXT_BYTES_MAX);
    }
    const struct sl_engine_image graph = {.tensors = image->tensors + 1,
                                          .offsets = image->offsets + 1,
                                          .count = image->count - 1,
                                          .bytes = image->bytes,
                                          .note = image->note};
    int err = sl_engine_graph.open(&graph, rows_max, reason, &lookup->graph);
    if (err != 0) { /* also UNSUPPORTED: no other engine computes the version */
        return err == SL_ERR_UNSUPPORTED ? SL_ERR_INVALID : err;
    }
    lookup->of_graph = sl_engine_graph.info(lookup->graph);
    err = read_json(lookup, text, reason);
    err = err != 0 ? err : take_graph_inputs(lookup, reason);
    err = err != 0 ? err : take_graph_outputs(lookup, reason);
    err = err != 0 ? err : lookup_lay_out(lookup, image, rows_max, reason);
    for (uint32_t i = 0; err == 0 && has_tables && i < lookup->feature_count; i++) {
        struct feature *feature = &lookup->features[i];
        err = sl_published_table_find(image, feature->table, feature->dim, &feature->published,
                                      reason);
    }
    return err;
}

static void lookup_close_model(void **model)
{
    struct lookup *lookup = *model;
    *model = NULL;
    if (lookup != NULL) {
        sl_engine_graph.close(&lookup->graph);
        json_decref(lookup->json);
        free(lookup->features);
        free(lookup);
    }
}

static int lookup_open_any(const struct sl_engine_image *image, uint32_t rows_max, bool has_tables,
                           struct sl_reason *reason, void **out)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    int err = lookup == NULL
                  ? sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory to open the model")
                  : lookup_open(lookup, image, rows_max, has_tables, reason);
    void *opened = lookup;
    if (err != 0) {
        lookup_close_model(&opened);
        return err;
    }
    *out = opened;
    return 0;
}

static int lookup_open_model(const struct sl_engine_image *image, uint32_t rows_max,
                             struct sl_reason *reason, void **out)
{
    return lookup_open_any(image, rows_max, true, reason, out);
}

int sl_lookup_open_untabled(const struct sl_engine_image *image, uint32_t rows_max,
                            struct sl_reason *reason, void **model)
{
    return lookup_open_any(image, rows_max, false, reason, model);
}

bool sl_lookup_tables(const void *model, char *names, size_t bytes)
{
    const struct lookup *lookup = model;
    names[0] = '\0';
    for (uint32_t i = 0; i < lookup->feature_count; i++) {
        const char *name = lookup->features[i].table;
        bool is_new = true;
        for (uint32_t j = 0; is_new && j < i; j++) {
            is_new = strcmp(lookup->features[j].table, name) != 0;
        }
        if (is_new && strlen(names) + strlen(name) + 2 > bytes) {
            return false;
        }
        if (is_new) {
            (void)sl_format_add(names, bytes, ",", "%s", name);
        }
    }
    return true;
}

static const struct sl_engine_info *lookup_info_of(const void *model)
{
    return &((const struct lookup *)model)->info;
}

/* ---- Run ------------------------------------------------------------------------------------- */

/* Pools the rows of one bag into out[dim]; returns the number of keys that have no row. */
static uint32_t lookup_pool(const struct feature *feature, const int64_t *keys, float *rows,
                            uint8_t *found, float *out)
{
    const struct sl_published_table *table = &feature->published;
    const uint32_t dim = feature->dim;
    uint32_t count = 0, unknown = 0;
    sl_objects_rows_copy(table->shards, table->shard_count, dim, (const uint64_t *)keys,
                         feature->columns, rows, found);
    memset(out, 0, dim * sizeof *out);
    for (uint32_t i = 0; i < feature->columns; i++) {
        float *row = rows + (uint64_t)i * dim;
        if (feature->has_padding && keys[i] == feature->padding) {
            continue;
        }
        if (!found[i]) {
            sl_narrow_first_row(&feature->initializer, table->shards[0].precision,
                                (uint64_t)keys[i], dim, row);
            unknown++;
        }
        for (uint32_t j = 0; j < dim; j++) {
            out[j] += row[j];
        }
        count++;
    }
    for (uint32_t j = 0; feature->is_mean && count > 1 && j < dim; j++) {
        out[j] /= (float)count;
    }
    return unknown;
}

static int lookup_run_layer(void *model, uint8_t *scratch, uint32_t layer, uint32_t rows,
                            struct sl_reason *reason)
{
    const struct lookup *lookup = model;
    const struct sl_engine_info *graph = lookup->of_graph;
    uint32_t *unknown = (void *)(scratch + lookup->outputs[graph->output_count].scratch_offset);
    sl_assert(layer == 0);
    memset(unknown, 0, rows * sizeof *unknown);
    for (uint32_t i = 0; i < lookup->feature_count; i++) {
        const struct feature *feature = &lookup->features[i];
        const struct sl_engine_tensor *input = &lookup->inputs[feature->input];
        const int64_t *keys = (const void *)(scratch + input->scratch_offset);
        float *out = (void *)(scratch + feature->pooled->scratch_offset);
        for (uint64_t bag = 0; bag < (uint64_t)rows * feature->bags; bag++) {
            const uint64_t row = bag / feature->bags;
            const int64_t *of_bag = keys + row * input->shape[1] + feature->first +
                                    bag % feature->bags * feature->columns;
            unknown[row] += lookup_pool(feature, of_bag, (void *)(scratch + lookup->bag_offset),
                                        scratch + lookup->found_offset, out + bag * feature->dim);
        }
    }
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < graph->layer_count; i++) {
        err = sl_engine_graph.run(lookup->graph, scratch, i, rows, reason);
    }
    return err;
}

const struct sl_engine sl_engine_lookup = {
    .name = "lookup",
    .open = lookup_open_model,
    .info = lookup_info_of,
    .run = lookup_run_layer,
    .close = lookup_close_model,
};
