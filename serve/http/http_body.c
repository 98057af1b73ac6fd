#include "serve/http/http_body.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "objects/manifest.h"

#define ALIGNMENT      64
#define SPACES         " \t\n\r"

#define INVALID(...)   sl_reason_fail(reason, SL_ERR_INVALID, __VA_ARGS__)
#define TOO_LARGE(...) sl_reason_fail(reason, SL_ERR_TOO_LARGE, __VA_ARGS__)

/* The range of the integers of each enum sl_object_type. */
static const struct {
    int64_t least;
    uint64_t most;
} ranges[] = {
    [SL_OBJECT_BOOL] = {0, 1},
    [SL_OBJECT_U8] = {0, UINT8_MAX},
    [SL_OBJECT_I8] = {INT8_MIN, INT8_MAX},
    [SL_OBJECT_U16] = {0, UINT16_MAX},
    [SL_OBJECT_I16] = {INT16_MIN, INT16_MAX},
    [SL_OBJECT_U32] = {0, UINT32_MAX},
    [SL_OBJECT_I32] = {INT32_MIN, INT32_MAX},
    [SL_OBJECT_U64] = {0, UINT64_MAX},
    [SL_OBJECT_I64] = {INT64_MIN, INT64_MAX},
};

static bool only_binary(uint32_t type)
{
    return type == SL_OBJECT_F16 || type == SL_OBJECT_BF16;
}

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
static int take_elements(const char *text, size_t bytes, struct sl_bytes *elements,
                         struct sl_bytes_writer *json, struct sl_reason *reason)
{
    static const char name[] = "\"data\"";
    const char *const end = text + bytes;
    uint32_t count = 0;
    for (const char *at = text, *next; at < end; at = next) {
        next = *at == '"' ? skip_string(at, end) : at + 1;
        sl_bytes_put(json, at, (size_t)(next - at));
        const char *array = next + strspn(next, SPACES ":");
        if ((size_t)(next - at) != sizeof name - 1 || memcmp(at, name, sizeof name - 1) != 0 ||
            *array != '[') {
            continue;
        }
        if (count == SL_SERVE_TENSORS_MAX) {
            return INVALID("more than %d tensors have data", SL_SERVE_TENSORS_MAX);
        }
        char index[8];
        sl_bytes_put(json, next, (size_t)(array - next));
        sl_bytes_put(json, index, (size_t)snprintf(index, sizeof index, "[%u]", count));
        next = skip_array(array, end);
        elements[count++] = sl_bytes_over(array, (size_t)(next - array));
    }
    return json->bad ? TOO_LARGE("the JSON without the data of its tensors has more than %u bytes",
                                 SL_HTTP_BODY_JSON_BYTES)
                     : 0;
}

/* ---- fields ---- */

/* An object whose members are read, and the first error. */
struct fields {
    json_t *object;    /* NULL: no members */
    const char *array; /* that it is in; NULL: none */
    uint32_t index;
    struct sl_reason *reason;
    int err;
};

/* Returns a member; NULL if it is missing, or of another type. JSON_TRUE: either boolean. */
static json_t *member(struct fields *fields, const char *name, json_type type, bool required)
{
    static const char *const types[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",     [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_TRUE] = "true or false",
    };
    json_t *value = json_object_get(fields->object, name);
    if (value == NULL ? !required
                      : json_typeof(value) == type || (type == JSON_TRUE && json_is_false(value))) {
        return value;
    }
    char of[32] = "";
    if (fields->array != NULL) {
        (void)snprintf(of, sizeof of, "%s[%u].", fields->array, fields->index);
    }
    fields->err = sl_reason_fail(fields->reason, SL_ERR_INVALID, "%s%s is %s: %s is accepted", of,
                                 name, value == NULL ? "missing" : "of another type", types[type]);
    return NULL;
}

/* The member `parameters`, whose members are optional. */
static struct fields parameters_of(struct fields *fields)
{
    struct fields parameters = *fields;
    parameters.object = member(fields, "parameters", JSON_OBJECT, false);
    return parameters;
}

/* Reads a member `name` of 1 to SL_SERVE_TENSOR_NAME - 1 bytes. */
static int read_name(struct fields *fields, char *to)
{
    struct sl_reason *reason = fields->reason;
    const json_t *name = member(fields, "name", JSON_STRING, true);
    const size_t length = json_string_length(name);
    if (fields->err != 0) {
        return fields->err;
    }
    if (length == 0 || length >= SL_SERVE_TENSOR_NAME) {
        return INVALID("%s[%u].name has 1 to %d bytes", fields->array, fields->index,
                       SL_SERVE_TENSOR_NAME - 1);
    }
    memcpy(to, json_string_value(name), length + 1);
    return 0;
}

static int set_shape(const char *datatype, const json_t *shape, struct sl_serve_tensor *tensor,
                     struct sl_reason *reason)
{
    if (!sl_serve_request_type(datatype, &tensor->type)) {
        return INVALID("input `%s`: datatype `%.32s` is none of BOOL, INT8 to INT64, UINT8 to "
                       "UINT64, FP16, BF16, FP32, FP64",
                       tensor->name, datatype);
    }
    if (json_array_size(shape) > SL_OBJECTS_RANK_MAX) {
        return INVALID("input `%s`: shape has more than %d dimensions", tensor->name,
                       SL_OBJECTS_RANK_MAX);
    }
    tensor->rank = (uint32_t)json_array_size(shape);
    tensor->bytes = sl_objects_type_bytes(tensor->type);
    for (uint32_t i = 0; i < tensor->rank; i++) {
        const json_int_t length = json_integer_value(json_array_get(shape, i)); /* or 0 */
        tensor->shape[i] = (uint64_t)length;
        if (length < 1) {
            return INVALID("input `%s`: shape[%u] is not an integer of 1 or more", tensor->name, i);
        }
        if (__builtin_mul_overflow(tensor->bytes, tensor->shape[i], &tensor->bytes) ||
            tensor->bytes > SL_SERVE_BODY_BYTES_MAX) {
            return TOO_LARGE("input `%s`: its shape has more than %llu bytes", tensor->name,
                             SL_SERVE_BODY_BYTES_MAX);
        }
    }
    return 0;
}

/* Sets *elements to the text of data; leaves it as it is if the tensor is binary. */
static int set_source(const struct sl_serve_tensor *tensor, const json_t *data,
                      const json_t *binary_bytes, struct sl_bytes *taken, struct sl_bytes *elements,
                      struct sl_reason *reason)
{
    if ((data == NULL) == (binary_bytes == NULL)) {
        return INVALID("input `%s` has neither data nor binary_data_size, or both", tensor->name);
    }
    if (data == NULL) {
        return json_integer_value(binary_bytes) == (json_int_t)tensor->bytes
                   ? 0
                   : INVALID("input `%s`: binary_data_size is %lld, but its shape and datatype "
                             "have %llu bytes",
                             tensor->name, (long long)json_integer_value(binary_bytes),
                             (unsigned long long)tensor->bytes);
    }
    if (only_binary(tensor->type)) {
        return INVALID("input `%s`: %s is accepted as binary data only", tensor->name,
                       sl_serve_request_datatype(tensor->type));
    }
    const json_int_t index = json_integer_value(json_array_get(data, 0)); /* of take_elements */
    if (index < 0 || index >= SL_SERVE_TENSORS_MAX || taken[index].next == NULL) {
        return INVALID("input `%s`: data is not an array of values", tensor->name);
    }
    *elements = taken[index];
    taken[index].next = NULL;
    return elements->left >= tensor->bytes / sl_objects_type_bytes(tensor->type)
               ? 0
               : INVALID("input `%s`: data has fewer values than its shape", tensor->name);
}

static int read_input(json_t *item, struct sl_bytes *taken, struct sl_http_body *body,
                      struct sl_serve_request *request, struct sl_reason *reason)
{
    const uint32_t index = request->input_count++;
    struct sl_serve_tensor *tensor = &request->inputs[index];
    struct fields fields = {item, "inputs", index, reason, 0};
    struct fields parameters = parameters_of(&fields);
    const json_t *binary = member(&parameters, "binary_data_size", JSON_INTEGER, false);
    const json_t *datatype = member(&fields, "datatype", JSON_STRING, true);
    const json_t *shape = member(&fields, "shape", JSON_ARRAY, true);
    const json_t *data = member(&fields, "data", JSON_ARRAY, false);
    int err = read_name(&fields, tensor->name);
    for (uint32_t i = 0; err == 0 && i < index; i++) {
        if (strcmp(request->inputs[i].name, tensor->name) == 0) {
            err = INVALID("input `%s` is given twice", tensor->name);
        }
    }
    if ((err = err != 0 ? err : parameters.err) != 0 ||
        (err = set_shape(json_string_value(datatype), shape, tensor, reason)) != 0 ||
        (err = set_source(tensor, data, binary, taken, &body->elements[index], reason)) != 0) {
        return err;
    }
    body->binary_bytes += data == NULL ? tensor->bytes : 0;
    tensor->offset = request->input_bytes;
    request->input_bytes += (tensor->bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return request->input_bytes <= SL_SERVE_BODY_BYTES_MAX
               ? 0
               : TOO_LARGE("the inputs have more than %llu bytes", SL_SERVE_BODY_BYTES_MAX);
}

static int read_output(json_t *item, struct sl_http_body *body, struct sl_reason *reason)
{
    const uint32_t index = body->output_count++;
    struct sl_http_body_output *output = &body->outputs[index];
    struct fields fields = {item, "outputs", index, reason, 0};
    struct fields parameters = parameters_of(&fields);
    const json_t *binary = member(&parameters, "binary_data", JSON_TRUE, false);
    const int err = read_name(&fields, output->name);
    output->binary = binary == NULL ? body->binary_output : json_is_true(binary);
    for (uint32_t i = 0; err == 0 && i < index; i++) {
        if (strcmp(body->outputs[i].name, output->name) == 0) {
            return INVALID("output `%s` is asked for twice", output->name);
        }
    }
    return err != 0 ? err : parameters.err;
}

static int read_fields(json_t *root, struct sl_bytes *taken, struct sl_http_body *body,
                       struct sl_serve_request *request, struct sl_reason *reason)
{
    struct fields fields = {root, NULL, 0, reason, 0};
    struct fields parameters = parameters_of(&fields);
    const json_t *binary = member(&parameters, "binary_data_output", JSON_TRUE, false);
    const json_t *outputs = member(&fields, "outputs", JSON_ARRAY, false);
    const json_t *id = member(&fields, "id", JSON_STRING, false);
    const json_t *inputs = member(&fields, "inputs", JSON_ARRAY, true);
    const size_t input_count = json_array_size(inputs), output_count = json_array_size(outputs);
    int err = fields.err != 0 ? fields.err : parameters.err;
    if (err == 0 && (json_string_length(id) >= sizeof body->id || input_count == 0 ||
                     input_count > SL_SERVE_TENSORS_MAX || output_count > SL_SERVE_TENSORS_MAX)) {
        err = INVALID("accepted are 1 to %d inputs, at most %d outputs, an id of at most %d bytes",
                      SL_SERVE_TENSORS_MAX, SL_SERVE_TENSORS_MAX, SL_HTTP_BODY_ID_BYTES - 1);
    }
    if (err == 0 && id != NULL) {
        memcpy(body->id, json_string_value(id), json_string_length(id) + 1);
    }
    body->binary_output = json_is_true(binary);
    for (size_t i = 0; err == 0 && i < input_count; i++) {
        err = read_input(json_array_get(inputs, i), taken, body, request, reason);
    }
    for (size_t i = 0; err == 0 && i < output_count; i++) {
        err = read_output(json_array_get(outputs, i), body, reason);
    }
    return err;
}

int sl_http_body_parse(const char *text, size_t bytes, struct sl_http_body *body,
                       struct sl_serve_request *request, struct sl_reason *reason)
{
    char json[SL_HTTP_BODY_JSON_BYTES];
    struct sl_bytes_writer writer = sl_bytes_writer_over(json, sizeof json);
    struct sl_bytes taken[SL_SERVE_TENSORS_MAX] = {0};
    sl_assert(text[bytes] == '\0');
    *body = (struct sl_http_body){0};
    request->input_count = 0;
    request->input_bytes = 0;
    int err = take_elements(text, bytes, taken, &writer, reason);
    if (err != 0) {
        return err;
    }
    json_error_t error;
    json_t *root = json_loadb(json, sizeof json - writer.left, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(root)) {
        err = INVALID("the body is not a JSON object: %s", root == NULL ? error.text : "an array");
    } else {
        err = read_fields(root, taken, body, request, reason);
    }
    json_decref(root);
    return err;
}

/* ---- elements ---- */

/* Reads one element to `to`; returns its length in the text, 0 if it is no value of the type. */
static size_t read_element(const char *at, uint32_t type, uint8_t *to)
{
    const uint32_t bytes = sl_objects_type_bytes(type);
    if (type == SL_OBJECT_BOOL) {
        *to = *at == 't';
        return strncmp(at, "true", 4) == 0 ? 4 : strncmp(at, "false", 5) == 0 ? 5 : 0;
    }
    const size_t length = strspn(at, "0123456789.-+eE");
    const bool negative = *at == '-';
    char *end = NULL;
    bool fits;
    errno = 0;
    if (type == SL_OBJECT_F32 || type == SL_OBJECT_F64) {
        const double value = strtod(at, &end);
        const float narrow = (float)value;
        memcpy(to, type == SL_OBJECT_F32 ? (const void *)&narrow : &value, bytes);
        fits = type == SL_OBJECT_F32 ? isfinite(narrow) : isfinite(value);
    } else {
        const int64_t below = negative ? strtoll(at, &end, 10) : 0;
        const uint64_t value = negative ? (uint64_t)below : strtoull(at, &end, 10);
        memcpy(to, &value, bytes); /* little-endian: core/bytes.h */
        fits = errno == 0 && (negative ? below >= ranges[type].least : value <= ranges[type].most);
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
            return INVALID("input `%s`: data is not an array of %llu values of %s, flat or "
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
        if (body->elements[i].next != NULL) {
            continue;
        }
        const uint64_t end = begin + tensor->bytes;
        if (at < end) {
            const size_t count = from.left < end - at ? from.left : (size_t)(end - at);
            sl_bytes_copy(&from, request->input + tensor->offset + (at - begin), count);
            at += count;
        }
        begin = end;
    }
    sl_assert(from.left == 0);
}

/* ---- the answer ---- */

static void put_text(FILE *file, const char *text)
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
    } else if (ranges[type].least < 0) {
        (void)fprintf(file, "%lld", (long long)(bits << unused_bits) >> unused_bits);
    } else {
        (void)fprintf(file, "%llu", (unsigned long long)bits);
    }
}

static void put_output(FILE *file, const struct sl_serve_tensor *tensor, const uint8_t *output,
                       bool binary)
{
    const uint32_t element_bytes = sl_objects_type_bytes(tensor->type);
    (void)fputs("{\"name\":", file);
    put_text(file, tensor->name);
    (void)fprintf(file, ",\"datatype\":\"%s\",\"shape\":[",
                  sl_serve_request_datatype(tensor->type));
    for (uint32_t i = 0; i < tensor->rank; i++) {
        (void)fprintf(file, "%s%llu", i == 0 ? "" : ",", (unsigned long long)tensor->shape[i]);
    }
    if (binary) {
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

/* The i-th output of the answer; NULL: the model has no output of that name. */
static const struct sl_serve_tensor *output_at(const struct sl_http_body *body,
                                               const struct sl_serve_request *request, uint32_t i,
                                               bool *binary)
{
    const bool all = body->output_count == 0;
    const struct sl_serve_tensor *tensor = &request->outputs[all ? i : 0];
    const struct sl_serve_tensor *end = request->outputs + request->output_count;
    while (!all && tensor < end && strcmp(tensor->name, body->outputs[i].name) != 0) {
        tensor++;
    }
    if (tensor == end) {
        return NULL;
    }
    sl_assert(sl_serve_request_datatype(tensor->type) != NULL);
    *binary = only_binary(tensor->type) || (all ? body->binary_output : body->outputs[i].binary);
    return tensor;
}

static void put_answer(FILE *file, const struct sl_http_body *body,
                       const struct sl_serve_request *request, uint32_t count, size_t *json_bytes)
{
    bool binary;
    (void)fputs("{\"model_name\":", file);
    put_text(file, request->model);
    (void)fprintf(file, ",\"model_version\":\"%llu\"",
                  (unsigned long long)request->answered_version);
    if (body->id[0] != '\0') {
        (void)fputs(",\"id\":", file);
        put_text(file, body->id);
    }
    (void)fprintf(
        file, ",\"parameters\":{\"queue_us\":%u,\"load_us\":%u,\"compute_us\":%u},\"outputs\":[",
        request->queue_us, request->load_us, request->compute_us);
    for (uint32_t i = 0; i < count; i++) {
        (void)(i == 0 ? 0 : fputc(',', file));
        const struct sl_serve_tensor *tensor = output_at(body, request, i, &binary);
        put_output(file, tensor, request->output, binary);
    }
    (void)fputs("]}", file);
    const size_t end = (size_t)ftell(file);
    *json_bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_serve_tensor *tensor = output_at(body, request, i, &binary);
        if (binary) {
            *json_bytes = end;
            (void)fwrite(request->output + tensor->offset, 1, tensor->bytes, file);
        }
    }
}

int sl_http_body_answer(const struct sl_http_body *body, const struct sl_serve_request *request,
                        char **out, size_t *out_bytes, size_t *json_bytes, struct sl_reason *reason)
{
    const uint32_t count = body->output_count == 0 ? request->output_count : body->output_count;
    for (uint32_t i = 0; i < count; i++) {
        bool binary;
        if (output_at(body, request, i, &binary) == NULL) {
            return INVALID("output `%s`: the model has no such output", body->outputs[i].name);
        }
    }
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    if (file == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the answer");
    }
    put_answer(file, body, request, count, json_bytes);
    const bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) {
        free(text);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the answer");
    }
    *out = text;
    *out_bytes = bytes;
    return 0;
}
