#include "programs/serve/http/http_body.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/catalogue/manifest.h"

#define ALIGNMENT 64
#define SPACES    " \t\n\r"

static bool is_signed(uint32_t type)
{
    return type == SL_OBJECT_I8 || type == SL_OBJECT_I16 || type == SL_OBJECT_I32 ||
           type == SL_OBJECT_I64;
}

static bool only_binary(uint32_t type)
{
    return type == SL_OBJECT_F16 || type == SL_OBJECT_BF16;
}

/* Reader of a body. */
struct parser {
    struct sl_http_body *body;
    struct sl_serve_request *request;
    struct sl_bytes taken[SL_SERVE_TENSORS_MAX]; /* text of the N-th array of elements */
    char of[24];                                 /* "", or as "inputs[1].": before a field's name */
    struct sl_reason *reason;
    int err;
};

#define REFUSE(parser, error, ...)                                                                 \
    ((parser)->err = sl_reason_fail((parser)->reason, SL_ERR_##error, __VA_ARGS__))

/* ---- the JSON without elements ---- */

static const char *skip_string(const char *at, const char *end)
{
    for (at++; at < end && *at != '"'; at++) {
        at += *at == '\\';
    }
    return at < end ? at + 1 : end;
}

static const char *skip_array(const char *at, const char *end)
{
    uint64_t depth = 0;
    do {
        depth += *at == '[';
        depth -= *at == ']';
        at++;
    } while (depth > 0 && at < end);
    return at;
}

/* Copies the JSON with [N] in place of the N-th array that is a member `data`. */
static void take_elements(struct parser *parser, const char *text, size_t bytes,
                          struct sl_bytes_writer *json)
{
    static const char name[] = "\"data\"";
    const char *const end = text + bytes;
    const char *rest = text; /* is not copied yet */
    uint32_t count = 0;
    for (const char *at = text, *next; at < end && (size_t)(at - rest) <= SL_HTTP_BODY_JSON_BYTES;
         at = next) {
        next = *at == '"' ? skip_string(at, end) : at + 1;
        if ((size_t)(next - at) != sizeof name - 1 || memcmp(at, name, sizeof name - 1) != 0) {
            continue;
        }
        const char *array = next + strspn(next, SPACES ":");
        if (*array != '[') {
            continue;
        }
        if (count == SL_SERVE_TENSORS_MAX) {
            REFUSE(parser, INVALID, "more than %d tensors have data", SL_SERVE_TENSORS_MAX);
            return;
        }
        char index[8];
        sl_bytes_put(json, rest, (size_t)(array - rest));
        sl_bytes_put(json, index, (size_t)snprintf(index, sizeof index, "[%u]", count));
        rest = next = skip_array(array, end);
        parser->taken[count++] = sl_bytes_over(array, (size_t)(next - array));
    }
    sl_bytes_put(json, rest, (size_t)(end - rest));
    if (json->bad) {
        REFUSE(parser, TOO_LARGE, "the JSON without the data of its tensors has more than %u bytes",
               SL_HTTP_BODY_JSON_BYTES);
    }
}

/* ---- fields ---- */

/* Returns a member; NULL if it is missing, or of another type. JSON_TRUE: either boolean. */
static json_t *member(struct parser *parser, const json_t *object, const char *name, json_type type,
                      bool required)
{
    static const char *const types[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",     [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_TRUE] = "true or false",
    };
    json_t *value = json_object_get(object, name);
    if (value == NULL ? !required
                      : json_typeof(value) == type || (type == JSON_TRUE && json_is_false(value))) {
        return value;
    }
    REFUSE(parser, INVALID, "%s%s is %s: %s is accepted", parser->of, name,
           value == NULL ? "missing" : "of another type", types[type]);
    return NULL;
}

/* Refuses members beside those of a list that ends with NULL: they would have no effect. */
static void refuse_others(struct parser *parser, json_t *object, const char *in,
                          const char *const *accepted)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        uint32_t i = 0;
        while (accepted[i] != NULL && strcmp(accepted[i], key) != 0) {
            i++;
        }
        if (accepted[i] == NULL && parser->err == 0) {
            REFUSE(parser, INVALID, "%s%s%.64s is not supported: it would have no effect",
                   parser->of, in, key);
        }
    }
}

/* Returns the parameters of the object; NULL: it has none. The list names all that are accepted. */
static json_t *parameters_of(struct parser *parser, const json_t *object,
                             const char *const *accepted)
{
    json_t *parameters = member(parser, object, "parameters", JSON_OBJECT, false);
    refuse_others(parser, parameters, "parameters.", accepted);
    return parameters;
}

/* Copies a text of 1 to `bytes` - 1 bytes. */
static void read_text(struct parser *parser, const json_t *text, const char *name, char *to,
                      size_t bytes)
{
    const size_t length = json_string_length(text);
    if (parser->err == 0 && (length == 0 || length >= bytes)) {
        REFUSE(parser, INVALID, "%s%s has 1 to %zu bytes", parser->of, name, bytes - 1);
    } else if (parser->err == 0) {
        memcpy(to, json_string_value(text), length + 1);
    }
}

/* Reads a member that is `least` or more; a missing one is `least`. */
static uint64_t read_count(struct parser *parser, const json_t *object, const char *name,
                           uint64_t least, bool required)
{
    const json_t *number = member(parser, object, name, JSON_INTEGER, required);
    const json_int_t value = number != NULL ? json_integer_value(number) : (json_int_t)least;
    if (parser->err == 0 && value < (json_int_t)least) {
        REFUSE(parser, INVALID, "%s%s is %lld: %llu or more is accepted", parser->of, name,
               (long long)value, (unsigned long long)least);
    }
    return (uint64_t)value;
}

/* Reads the parameters of a tensor in shared memory, if there are any. */
static void read_range(struct parser *parser, const json_t *parameters,
                       struct sl_http_body_range *range)
{
    const json_t *region = member(parser, parameters, "shared_memory_region", JSON_STRING, false);
    const bool has_others = json_object_get(parameters, "shared_memory_offset") != NULL ||
                            json_object_get(parameters, "shared_memory_byte_size") != NULL;
    if (region != NULL) {
        read_text(parser, region, "shared_memory_region", range->region, sizeof range->region);
        range->offset = read_count(parser, parameters, "shared_memory_offset", 0, false);
        range->bytes = read_count(parser, parameters, "shared_memory_byte_size", 0, true);
    } else if (has_others && parser->err == 0) {
        REFUSE(parser, INVALID, "%sparameters have no shared_memory_region", parser->of);
    }
}

static void read_name(struct parser *parser, const json_t *item, char *to)
{
    const json_t *name = member(parser, item, "name", JSON_STRING, true);
    const size_t length = json_string_length(name);
    if (parser->err == 0 && (length >= SL_SERVE_TENSOR_NAME ||
                             !sl_serve_request_name_is_valid(json_string_value(name)))) {
        REFUSE(parser, INVALID, "%sname has 1 to %d bytes without control characters", parser->of,
               SL_SERVE_TENSOR_NAME - 1);
    } else if (parser->err == 0) {
        memcpy(to, json_string_value(name), length + 1);
    }
}

static void set_shape(struct parser *parser, const char *datatype, const json_t *shape,
                      struct sl_serve_tensor *tensor)
{
    const size_t rank = json_array_size(shape);
    if (strcmp(datatype, "BYTES") == 0) {
        REFUSE(parser, INVALID, "input `%s`: datatype BYTES: no model of this server has strings",
               tensor->name);
    } else if (!sl_serve_request_type(datatype, &tensor->type)) {
        REFUSE(parser, INVALID,
               "input `%s`: datatype `%.32s` is none of BOOL, INT8 to INT64, UINT8 to UINT64, "
               "FP16, BF16, FP32, FP64",
               tensor->name, datatype);
    } else if (rank > SL_OBJECTS_RANK_MAX) {
        REFUSE(parser, INVALID, "input `%s`: shape has more than %d dimensions", tensor->name,
               SL_OBJECTS_RANK_MAX);
    }
    tensor->bytes = sl_objects_type_bytes(tensor->type);
    for (tensor->rank = 0; parser->err == 0 && tensor->rank < rank; tensor->rank++) {
        const json_int_t length =
            json_integer_value(json_array_get(shape, tensor->rank)); /* or 0 */
        tensor->shape[tensor->rank] = (uint64_t)length;
        if (length < 1) {
            REFUSE(parser, INVALID, "input `%s`: shape[%u] is not an integer of 1 or more",
                   tensor->name, tensor->rank);
        } else if (__builtin_mul_overflow(tensor->bytes, (uint64_t)length, &tensor->bytes) ||
                   tensor->bytes > SL_SERVE_BODY_BYTES_MAX) {
            REFUSE(parser, TOO_LARGE, "input `%s`: its shape has more than %llu bytes",
                   tensor->name, SL_SERVE_BODY_BYTES_MAX);
        }
    }
}

/* Sets *elements to the text of data; leaves it as it is if the tensor is elsewhere. */
static void set_source(struct parser *parser, const struct sl_serve_tensor *tensor,
                       const json_t *data, const json_t *binary_bytes,
                       const struct sl_http_body_range *range, struct sl_bytes *elements)
{
    const json_int_t index = json_integer_value(json_array_get(data, 0)); /* of take_elements */
    const bool is_shared = range->region[0] != '\0';
    if ((data != NULL) + (binary_bytes != NULL) + is_shared != 1) {
        REFUSE(parser, INVALID,
               "input `%s` has none of data, binary_data_size and shared_memory_region, or more "
               "than one",
               tensor->name);
    } else if (is_shared) {
        if (range->bytes != tensor->bytes) {
            REFUSE(parser, INVALID,
                   "input `%s`: shared_memory_byte_size is %llu, but its shape and datatype have "
                   "%llu bytes",
                   tensor->name, (unsigned long long)range->bytes,
                   (unsigned long long)tensor->bytes);
        }
    } else if (data == NULL) {
        if (json_integer_value(binary_bytes) != (json_int_t)tensor->bytes) {
            REFUSE(parser, INVALID,
                   "input `%s`: binary_data_size is %lld, but its shape and datatype have %llu "
                   "bytes",
                   tensor->name, (long long)json_integer_value(binary_bytes),
                   (unsigned long long)tensor->bytes);
        }
    } else if (only_binary(tensor->type)) {
        REFUSE(parser, INVALID, "input `%s`: %s is accepted as binary data only", tensor->name,
               sl_serve_request_datatype(tensor->type));
    } else if (index < 0 || index >= SL_SERVE_TENSORS_MAX || parser->taken[index].next == NULL) {
        REFUSE(parser, INVALID, "input `%s`: data is not an array of values", tensor->name);
    } else if (parser->taken[index].left < tensor->bytes / sl_objects_type_bytes(tensor->type)) {
        REFUSE(parser, INVALID, "input `%s`: data has fewer values than its shape", tensor->name);
    } else {
        *elements = parser->taken[index];
        parser->taken[index].next = NULL;
    }
}

static void read_input(struct parser *parser, uint32_t index, json_t *item)
{
    static const char *const accepted[] = {"name", "datatype", "shape", "data", "parameters", NULL};
    static const char *const of_parameters[] = {"binary_data_size", "shared_memory_region",
                                                "shared_memory_offset", "shared_memory_byte_size",
                                                NULL};
    struct sl_http_body_range *range = &parser->body->ranges[index];
    struct sl_serve_request *request = parser->request;
    struct sl_serve_tensor *tensor = &request->inputs[index];
    (void)snprintf(parser->of, sizeof parser->of, "inputs[%u].", index);
    const json_t *parameters = parameters_of(parser, item, of_parameters);
    const json_t *binary = member(parser, parameters, "binary_data_size", JSON_INTEGER, false);
    const json_t *datatype = member(parser, item, "datatype", JSON_STRING, true);
    const json_t *shape = member(parser, item, "shape", JSON_ARRAY, true);
    const json_t *data = member(parser, item, "data", JSON_ARRAY, false);
    read_name(parser, item, tensor->name);
    read_range(parser, parameters, range);
    refuse_others(parser, item, "", accepted);
    for (uint32_t i = 0; parser->err == 0 && i < index; i++) {
        if (strcmp(request->inputs[i].name, tensor->name) == 0) {
            REFUSE(parser, INVALID, "input `%s` is given twice", tensor->name);
        }
    }
    if (parser->err == 0) {
        set_shape(parser, json_string_value(datatype), shape, tensor);
    }
    if (parser->err == 0) {
        set_source(parser, tensor, data, binary, range, &parser->body->elements[index]);
    }
    if (parser->err == 0) {
        parser->body->binary_bytes += binary != NULL ? tensor->bytes : 0;
        tensor->offset = request->input_bytes;
        request->input_bytes += (tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        request->input_count = index + 1;
        if (request->input_bytes > SL_SERVE_BODY_BYTES_MAX) {
            REFUSE(parser, TOO_LARGE, "the inputs have more than %llu bytes",
                   SL_SERVE_BODY_BYTES_MAX);
        }
    }
}

static void read_output(struct parser *parser, uint32_t index, json_t *item)
{
    static const char *const accepted[] = {"name", "parameters", NULL};
    static const char *const of_parameters[] = {"binary_data", "shared_memory_region",
                                                "shared_memory_offset", "shared_memory_byte_size",
                                                NULL};
    struct sl_http_body *body = parser->body;
    struct sl_http_body_output *output = &body->outputs[index];
    (void)snprintf(parser->of, sizeof parser->of, "outputs[%u].", index);
    const json_t *parameters = parameters_of(parser, item, of_parameters);
    const json_t *binary = member(parser, parameters, "binary_data", JSON_TRUE, false);
    read_name(parser, item, output->name);
    read_range(parser, parameters, &output->range);
    refuse_others(parser, item, "", accepted);
    output->binary = binary == NULL ? body->binary_output : json_is_true(binary);
    if (parser->err == 0 && output->range.region[0] != '\0' && json_is_true(binary)) {
        REFUSE(parser, INVALID, "output `%s` is wanted as binary data and in a region",
               output->name);
    }
    for (uint32_t i = 0; parser->err == 0 && i < index; i++) {
        if (strcmp(body->outputs[i].name, output->name) == 0) {
            REFUSE(parser, INVALID, "output `%s` is asked for twice", output->name);
        }
    }
    body->output_count = index + 1;
}

/* The name of the model, which some clients repeat in the body. */
static void check_model(struct parser *parser, const json_t *root)
{
    const json_t *name = member(parser, root, "model_name", JSON_STRING, false);
    if (name != NULL && strcmp(json_string_value(name), parser->request->model) != 0) {
        REFUSE(parser, INVALID, "model_name is not the model of the path, `%s`",
               parser->request->model);
    }
}

/* Parameters of a request for a model that has state. */
static void refuse_sequences(struct parser *parser, const json_t *parameters)
{
    static const char *const names[] = {"sequence_id", "sequence_start", "sequence_end"};
    for (uint32_t i = 0; i < sizeof names / sizeof names[0] && parser->err == 0; i++) {
        if (json_object_get(parameters, names[i]) != NULL) {
            REFUSE(parser, INVALID,
                   "parameters.%s is not supported: no model of this server has state between "
                   "requests",
                   names[i]);
        }
    }
}

static void read_fields(struct parser *parser, json_t *root)
{
    static const char *const accepted[] = {"id",      "model_name", "inputs",
                                           "outputs", "parameters", NULL};
    static const char *const of_parameters[] = {"binary_data_output", "timeout", NULL};
    struct sl_http_body *body = parser->body;
    const json_t *outputs = member(parser, root, "outputs", JSON_ARRAY, false);
    const json_t *id = member(parser, root, "id", JSON_STRING, false);
    const json_t *inputs = member(parser, root, "inputs", JSON_ARRAY, true);
    const size_t input_count = json_array_size(inputs), output_count = json_array_size(outputs);
    check_model(parser, root);
    refuse_sequences(parser, json_object_get(root, "parameters"));
    const json_t *parameters = parameters_of(parser, root, of_parameters);
    body->binary_output =
        json_is_true(member(parser, parameters, "binary_data_output", JSON_TRUE, false));
    body->timeout_us = read_count(parser, parameters, "timeout", 0, false);
    refuse_others(parser, root, "", accepted);
    if (parser->err == 0 &&
        (json_string_length(id) >= sizeof body->id || input_count == 0 ||
         input_count > SL_SERVE_TENSORS_MAX || output_count > SL_SERVE_TENSORS_MAX)) {
        REFUSE(parser, INVALID,
               "accepted are 1 to %d inputs, at most %d outputs, an id of at most %d bytes",
               SL_SERVE_TENSORS_MAX, SL_SERVE_TENSORS_MAX, SL_HTTP_BODY_ID_BYTES - 1);
    } else if (parser->err == 0 && id != NULL) {
        memcpy(body->id, json_string_value(id), json_string_length(id) + 1);
    }
    for (uint32_t i = 0; parser->err == 0 && i < input_count; i++) {
        read_input(parser, i, json_array_get(inputs, i));
    }
    for (uint32_t i = 0; parser->err == 0 && i < output_count; i++) {
        read_output(parser, i, json_array_get(outputs, i));
    }
}

static json_t *http_body_load(struct parser *parser, const char *text, size_t bytes)
{
    json_error_t error;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(root)) {
        REFUSE(parser, INVALID, "the body is not a JSON object: %s",
               root == NULL ? error.text : "an array");
    }
    return root;
}

int sl_http_body_parse(const char *text, size_t bytes, struct sl_http_body *body,
                       struct sl_serve_request *request, struct sl_reason *reason)
{
    char json[SL_HTTP_BODY_JSON_BYTES];
    struct sl_bytes_writer writer = sl_bytes_writer_over(json, sizeof json);
    struct parser parser = {.body = body, .request = request, .reason = reason};
    sl_assert(text[bytes] == '\0');
    *body = (struct sl_http_body){0};
    request->input_count = 0;
    request->input_bytes = 0;
    take_elements(&parser, text, bytes, &writer);
    if (parser.err != 0) {
        return parser.err;
    }
    json_t *root = http_body_load(&parser, json, sizeof json - writer.left);
    if (parser.err == 0) {
        read_fields(&parser, root);
    }
    json_decref(root);
    return parser.err;
}

int sl_http_body_read_option(const char *text, size_t bytes, bool is_parameter, const char *name,
                             bool *value, struct sl_reason *reason)
{
    const char *const accepted[] = {is_parameter ? "parameters" : name, NULL};
    const char *const of_parameters[] = {name, NULL};
    struct parser parser = {.reason = reason};
    json_t *root = bytes == 0 ? NULL : http_body_load(&parser, text, bytes);
    refuse_others(&parser, root, "", accepted);
    const json_t *in = is_parameter ? parameters_of(&parser, root, of_parameters) : root;
    *value = json_is_true(member(&parser, in, name, JSON_TRUE, false));
    json_decref(root);
    return parser.err;
}

struct json_t *sl_http_body_load(const char *text, size_t bytes, struct sl_reason *reason)
{
    struct parser parser = {.reason = reason};
    json_t *root = bytes == 0 ? json_object() : http_body_load(&parser, text, bytes);
    if (parser.err != 0) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

int sl_http_body_read_region(const char *text, size_t bytes, struct sl_http_body_region *region,
                             struct sl_reason *reason)
{
    static const char *const accepted[] = {"key", "offset", "byte_size", NULL};
    struct parser parser = {.reason = reason};
    json_t *root = http_body_load(&parser, text, bytes);
    if (parser.err == 0) {
        const json_t *key = member(&parser, root, "key", JSON_STRING, true);
        read_text(&parser, key, "key", region->key, sizeof region->key);
        region->offset = read_count(&parser, root, "offset", 0, false);
        region->bytes = read_count(&parser, root, "byte_size", 1, true);
        refuse_others(&parser, root, "", accepted);
    }
    json_decref(root);
    return parser.err;
}

/* ---- elements ---- */

/* Values that are not finite: null, as answers have it, and the names that JSON libraries write. */
static size_t read_special(const char *at, double *value)
{
    static const struct {
        const char *name;
        double value;
    } names[] = {{"null", NAN}, {"NaN", NAN}, {"Infinity", INFINITY}, {"-Infinity", -INFINITY}};
    const bool is_name = at[*at == '-'] >= 'A';
    for (size_t i = 0; is_name && i < sizeof names / sizeof names[0]; i++) {
        const size_t length = strlen(names[i].name);
        if (strncmp(at, names[i].name, length) == 0) {
            *value = names[i].value;
            return length;
        }
    }
    return 0;
}

/* Reads one element to `to`; returns its length in the text, 0 if it is no value of the type. */
static size_t read_element(const char *at, uint32_t type, uint8_t *to)
{
    const uint32_t bytes = sl_objects_type_bytes(type);
    if (type == SL_OBJECT_BOOL) {
        *to = *at == 't';
        return strncmp(at, "true", 4) == 0 ? 4 : strncmp(at, "false", 5) == 0 ? 5 : 0;
    }
    const bool is_real = type == SL_OBJECT_F32 || type == SL_OBJECT_F64;
    double value = 0;
    const size_t special = is_real ? read_special(at, &value) : 0;
    const size_t length = special > 0 ? special : strspn(at, "0123456789.-+eE");
    const bool negative = *at == '-';
    char *end = (char *)(uintptr_t)at + special;
    bool fits;
    errno = 0;
    if (is_real) {
        value = special > 0 ? value : strtod(at, &end);
        const float narrow = (float)value;
        memcpy(to, type == SL_OBJECT_F32 ? (const void *)&narrow : &value, bytes);
        fits = special > 0 || (type == SL_OBJECT_F32 ? isfinite(narrow) : isfinite(value));
    } else {
        const int64_t below = negative ? strtoll(at, &end, 10) : 0;
        const uint64_t whole = negative ? (uint64_t)below : strtoull(at, &end, 10);
        memcpy(to, &whole, bytes); /* little-endian: core/bytes.h */
        const uint64_t most = UINT64_MAX >> (64 - 8 * bytes) >> is_signed(type);
        fits =
            errno == 0 && (negative ? is_signed(type) && ~(uint64_t)below <= most : whole <= most);
    }
    return fits && *at != '+' && end == at + length ? length : 0;
}

struct element_reader {
    const char *at; /* its text ends with the bracket of the outermost array */
    const struct sl_serve_tensor *tensor;
    uint8_t *to; /* of the next element */
    uint32_t element_bytes;
};

static bool take(struct element_reader *reader, char expected)
{
    reader->at += strspn(reader->at, SPACES);
    const bool found = *reader->at == expected;
    reader->at += found;
    return found;
}

/* Reads an array of `items` items: arrays, whose length is that of the dimension `dim`, or elements
 * if there is no such dimension. */
static bool read_array(struct element_reader *reader, uint32_t dim, uint64_t items)
{
    const struct sl_serve_tensor *tensor = reader->tensor;
    bool valid = take(reader, '[');
    for (uint64_t i = 0; valid && i < items; i++) {
        valid = i == 0 || take(reader, ',');
        if (valid && dim < tensor->rank) {
            valid = read_array(reader, dim + 1, tensor->shape[dim]);
        } else if (valid) {
            reader->at += strspn(reader->at, SPACES);
            const size_t length = read_element(reader->at, tensor->type, reader->to);
            valid = length > 0;
            reader->at += length;
            reader->to += valid ? reader->element_bytes : 0;
        }
    }
    return valid && take(reader, ']');
}

int sl_http_body_read_elements(const struct sl_http_body *body, struct sl_serve_request *request,
                               struct sl_reason *reason)
{
    for (uint32_t i = 0; i < request->input_count; i++) {
        const struct sl_serve_tensor *tensor = &request->inputs[i];
        const char *text = (const char *)body->elements[i].next;
        if (text == NULL) {
            continue;
        }
        uint8_t *to = request->input + tensor->offset;
        struct element_reader reader = {text, tensor, to, sl_objects_type_bytes(tensor->type)};
        const uint64_t count = tensor->bytes / reader.element_bytes;
        const bool nested = tensor->rank > 1 && text[1 + strspn(text + 1, SPACES)] == '[';
        if (!(nested ? read_array(&reader, 1, tensor->shape[0])
                     : read_array(&reader, tensor->rank, count))) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "input `%s`: data is not an array of %llu values of %s, flat or "
                                  "nested as its shape: see `%.32s` after %llu values",
                                  tensor->name, (unsigned long long)count,
                                  sl_serve_request_datatype(tensor->type), reader.at,
                                  (unsigned long long)(reader.to - to) / reader.element_bytes);
        }
    }
    return 0;
}

void sl_http_body_put_binary(const struct sl_http_body *body, struct sl_serve_request *request,
                             uint64_t at, const void *piece, size_t bytes)
{
    struct sl_bytes from = sl_bytes_over(piece, bytes);
    uint64_t begin = 0; /* of the tensor in the binary data */
    for (uint32_t i = 0; i < request->input_count; i++) {
        const struct sl_serve_tensor *tensor = &request->inputs[i];
        if (body->elements[i].next != NULL || body->ranges[i].region[0] != '\0') {
            continue;
        }
        const uint64_t end = begin + tensor->bytes;
        if (from.left > 0 && at < end) {
            const size_t count = from.left < end - at ? from.left : (size_t)(end - at);
            sl_bytes_copy(&from, request->input + tensor->offset + (at - begin), count);
            at += count;
        }
        begin = end;
    }
    sl_assert(from.left == 0);
}

/* ---- the answer ---- */

static void http_body_put_text(FILE *file, const char *text)
{
    json_t *string = json_string(text); /* NULL: not UTF-8 */
    (void)json_dumpf(string, file, JSON_ENCODE_ANY);
    json_decref(string);
}

static void put_element(FILE *file, uint32_t type, const uint8_t *at)
{
    const uint32_t unused_bits = 64 - 8 * sl_objects_type_bytes(type);
    uint64_t bits = 0;
    float f32;
    double f64;
    memcpy(&bits, at, sl_objects_type_bytes(type));
    memcpy(&f32, &bits, sizeof f32);
    memcpy(&f64, &bits, sizeof f64);
    if (type == SL_OBJECT_BOOL) {
        (void)fputs(bits != 0 ? "true" : "false", file);
    } else if (type == SL_OBJECT_F32) {
        (void)(isfinite(f32) ? fprintf(file, "%.9g", (double)f32) : fputs("null", file));
    } else if (type == SL_OBJECT_F64) {
        (void)(isfinite(f64) ? fprintf(file, "%.17g", f64) : fputs("null", file));
    } else if (is_signed(type)) {
        (void)fprintf(file, "%lld", (long long)(bits << unused_bits) >> unused_bits);
    } else {
        (void)fprintf(file, "%llu", (unsigned long long)bits);
    }
}

/* Which output the i-th one of the answer is, as the caller wants it; NULL: all are wanted. */
static const struct sl_http_body_output *http_body_wanted(const struct sl_http_body *body,
                                                          uint32_t i)
{
    return body->output_count == 0 ? NULL : &body->outputs[i];
}

static bool http_body_is_shared(const struct sl_http_body_output *wanted)
{
    return wanted != NULL && wanted->range.region[0] != '\0';
}

/* Whether the i-th output follows the JSON. */
static bool http_body_is_binary(const struct sl_http_body *body, uint32_t i,
                                const struct sl_serve_tensor *tensor)
{
    const struct sl_http_body_output *wanted = http_body_wanted(body, i);
    return !http_body_is_shared(wanted) &&
           (only_binary(tensor->type) || (wanted == NULL ? body->binary_output : wanted->binary));
}

const struct sl_serve_tensor *sl_http_body_find_output(const struct sl_http_body *body,
                                                       const struct sl_serve_request *request,
                                                       uint32_t i)
{
    const struct sl_http_body_output *wanted = http_body_wanted(body, i);
    const struct sl_serve_tensor *tensor = &request->answer.outputs[wanted == NULL ? i : 0];
    const struct sl_serve_tensor *end = request->answer.outputs + request->answer.output_count;
    while (wanted != NULL && tensor < end && strcmp(tensor->name, wanted->name) != 0) {
        tensor++;
    }
    return tensor < end && sl_serve_request_datatype(tensor->type) != NULL ? tensor : NULL;
}

static void put_output(FILE *file, const struct sl_http_body *body, uint32_t index,
                       const struct sl_serve_tensor *tensor, const uint8_t *output)
{
    const uint32_t element_bytes = sl_objects_type_bytes(tensor->type);
    (void)fputs("{\"name\":", file);
    http_body_put_text(file, tensor->name);
    (void)fprintf(file, ",\"datatype\":\"%s\",\"shape\":[",
                  sl_serve_request_datatype(tensor->type));
    for (uint32_t i = 0; i < tensor->rank; i++) {
        (void)fprintf(file, "%s%llu", i == 0 ? "" : ",", (unsigned long long)tensor->shape[i]);
    }
    if (http_body_is_shared(
            http_body_wanted(body, index))) { /* clients know where; some expect no parameters */
        (void)fputs("]}", file);
        return;
    }
    if (http_body_is_binary(body, index, tensor)) {
        (void)fprintf(file, "],\"parameters\":{\"binary_data_size\":%llu}}",
                      (unsigned long long)tensor->bytes);
        return;
    }
    (void)fputs("],\"data\":[", file);
    for (uint64_t at = 0; at + element_bytes <= tensor->bytes; at += element_bytes) {
        (void)(at == 0 ? 0 : fputc(',', file));
        put_element(file, tensor->type, output + tensor->offset + at);
    }
    (void)fputs("]}", file);
}

static void put_answer(FILE *file, const struct sl_http_body *body,
                       const struct sl_serve_request *request, uint32_t count)
{
    (void)fputs("{\"model_name\":", file);
    http_body_put_text(file, request->model);
    (void)fprintf(file, ",\"model_version\":\"%llu\"", (unsigned long long)request->answer.version);
    if (body->id[0] != '\0') {
        (void)fputs(",\"id\":", file);
        http_body_put_text(file, body->id);
    }
    (void)fprintf(
        file, ",\"parameters\":{\"queue_us\":%u,\"load_us\":%u,\"compute_us\":%u},\"outputs\":[",
        request->answer.queue_us, request->answer.load_us, request->answer.compute_us);
    for (uint32_t i = 0; i < count; i++) {
        (void)(i == 0 ? 0 : fputc(',', file));
        put_output(file, body, i, sl_http_body_find_output(body, request, i),
                   request->answer.output);
    }
    (void)fputs("]}", file);
}

/* The bytes of the outputs that follow the JSON. */
static size_t sum_binary(const struct sl_http_body *body, const struct sl_serve_request *request,
                         uint32_t count)
{
    size_t sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_serve_tensor *tensor = sl_http_body_find_output(body, request, i);
        sum += http_body_is_binary(body, i, tensor) ? tensor->bytes : 0;
    }
    return sum;
}

static void append_binary(const struct sl_http_body *body, const struct sl_serve_request *request,
                          uint32_t count, struct sl_bytes_writer *writer)
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_serve_tensor *tensor = sl_http_body_find_output(body, request, i);
        if (http_body_is_binary(body, i, tensor)) {
            sl_bytes_put(writer, request->answer.output + tensor->offset, tensor->bytes);
        }
    }
}

int sl_http_body_answer(const struct sl_http_body *body, const struct sl_serve_request *request,
                        char **out, size_t *out_bytes, size_t *json_bytes, struct sl_reason *reason)
{
    const uint32_t count =
        body->output_count == 0 ? request->answer.output_count : body->output_count;
    for (uint32_t i = 0; i < count; i++) {
        if (sl_http_body_find_output(body, request, i) == NULL) {
            return body->output_count == 0
                       ? sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                                        "output `%s` has a datatype that the protocol lacks",
                                        request->answer.outputs[i].name)
                       : sl_reason_fail(reason, SL_ERR_INVALID,
                                        "output `%s`: the model has no such output",
                                        body->outputs[i].name);
        }
    }
    char *json = NULL, *text = NULL;
    size_t end = 0;
    const size_t binary = sum_binary(body, request, count);
    FILE *file = open_memstream(&json, &end);
    if (file != NULL) {
        put_answer(file, body, request, count);
        const bool failed = ferror(file) != 0;
        text = fclose(file) == 0 && !failed ? realloc(json, end + binary) : NULL;
    }
    if (text == NULL) {
        free(json);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the answer");
    }
    struct sl_bytes_writer writer = sl_bytes_writer_over(text + end, binary);
    append_binary(body, request, count, &writer);
    *out = text;
    *out_bytes = end + binary;
    *json_bytes = binary > 0 ? end : 0;
    return 0;
}
