#include "programs/serve/http/http_body.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

#define INPUT_BYTES_MAX 4096

static struct sl_serve_request request;
static struct sl_http_body body;
static struct sl_reason reason;
static _Alignas(64) uint8_t input[INPUT_BYTES_MAX];

#define X "\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]}]"

/* Parses the JSON and its elements, for this model. */
static int parse_for(const char *model, const char *json)
{
    memset(&request, 0, sizeof request);
    memcpy(request.model, model, strlen(model));
    memset(input, 0xee, sizeof input);
    reason.text[0] = '\0';
    const int err = sl_http_body_parse(json, strlen(json), &body, &request, &reason);
    if (err != 0) {
        return err;
    }
    assert_true(request.input_bytes <= INPUT_BYTES_MAX);
    request.input = input;
    return sl_http_body_read_elements(&body, &request, &reason);
}

static int parse(const char *json)
{
    return parse_for("", json);
}

static void refused(int err, const char *json, const char *field)
{
    const int got = parse(json);
    if (got != err || strstr(reason.text, field) == NULL) {
        fail_msg("%s: %d, \"%s\" without \"%s\"", json, got, reason.text, field);
    }
}

/* An input "x" with these members. */
static const char *input_of(const char *members)
{
    static char text[512];
    (void)snprintf(text, sizeof text, "{\"inputs\":[{\"name\":\"x\",%s}]}", members);
    return text;
}

SL_CASE(http_body_parse__reads_names_shapes_and_flat_data)
{
    assert_int_equal(parse("{\"id\":\"a\\\"b\", \"inputs\" : [\n"
                           " {\"name\":\"x\",\"shape\":[2,3],\"datatype\":\"FP32\","
                           "\"data\" : [1, -2.5,3e2 , 0.1,4E-1,5]},"
                           " {\"data\":[7],\"datatype\":\"INT64\",\"shape\":[],\"name\":\"n\"}]}"),
                     0);
    assert_string_equal(body.id, "a\"b");
    assert_int_equal(request.input_count, 2);
    assert_int_equal(request.inputs[0].rank, 2);
    assert_int_equal(request.inputs[0].shape[1], 3);
    assert_int_equal(request.inputs[0].bytes, 24);
    assert_int_equal(request.inputs[1].rank, 0);
    assert_int_equal(request.inputs[1].offset, 64);
    assert_int_equal(request.input_bytes, 128);
    const float want[] = {1, -2.5F, 300, 0.1F, 0.4F, 5};
    assert_memory_equal(input, want, sizeof want);
    const int64_t seven = 7;
    assert_memory_equal(input + 64, &seven, sizeof seven);
    assert_int_equal(body.output_count, 0);
    assert_int_equal(body.binary_bytes, 0);
}

SL_CASE(http_body_parse__reads_nested_data)
{
    assert_int_equal(parse(input_of("\"shape\":[2,1,2],\"datatype\":\"UINT8\","
                                    "\"data\":[ [[1,2] ] , [[ 3 ,255]]]")),
                     0);
    assert_memory_equal(input, "\1\2\3\377", 4);
}

SL_CASE(http_body_parse__data_as_a_value_or_escaped_is_no_array_of_elements)
{
    refused(SL_ERR_INVALID, input_of("\"shape\":[1],\"datatype\":\"FP32\",\"d\\u0061ta\":[0]"),
            "`x`: data is not an array of values");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1],\"datatype\":\"FP32\",\"data\":0"),
            "inputs[0].data is of another type: an array is accepted");
    /* Strings with brackets and quotes, and data of another member. */
    assert_int_equal(parse("{\"id\":\"[\\\"data\\\":[\",\"parameters\":{},"
                           "\"inputs\":[{\"name\":\"data\",\"shape\":[1],\"datatype\":\"INT8\","
                           "\"data\":[-8]}]}"),
                     0);
    assert_int_equal((int8_t)input[0], -8);
}

SL_CASE(http_body_parse__refuses_what_is_not_json)
{
    refused(SL_ERR_INVALID, "", "not a JSON object");
    refused(SL_ERR_INVALID, "{", "not a JSON object");
    refused(SL_ERR_INVALID, "\"data\":[", "not a JSON object");
    refused(SL_ERR_INVALID, "{\"inputs\":[{\"name\":\"x\",\"data\" [1]}]}", "not a JSON object");
    refused(SL_ERR_INVALID, "{\"inputs\":[{\"data\":[1],\"data\":[1]}]}", "duplicate");
    refused(SL_ERR_INVALID, "[]", "not a JSON object");
    refused(SL_ERR_INVALID, "{}", "inputs");
    refused(SL_ERR_INVALID, "{\"inputs\":[]}", "inputs");
    refused(SL_ERR_INVALID, "{\"inputs\":{}}", "inputs");
    refused(SL_ERR_INVALID, "{\"inputs\":[1]}", "inputs[0]");
    refused(SL_ERR_INVALID, "{\"id\":1,\"inputs\":[]}", "id");
}

SL_CASE(http_body_parse__names_the_field)
{
    refused(SL_ERR_INVALID, "{\"inputs\":[{\"shape\":[1]}]}", "name");
    refused(SL_ERR_INVALID, "{\"inputs\":[{\"name\":\"\",\"shape\":[1],\"datatype\":\"BOOL\"}]}",
            "inputs[0].name");
    refused(SL_ERR_INVALID,
            "{\"inputs\":[{\"name\":\"a\\u0001\",\"shape\":[1],\"datatype\":\"BOOL\"}]}",
            "inputs[0].name has 1 to 63 bytes without control characters");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1]"), "datatype");
    refused(SL_ERR_INVALID, input_of("\"sjape\":[1],\"datatype\":\"FP32\""),
            "inputs[0].shape is missing");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1],\"datatype\":\"TEXT\",\"data\":[\"a\"]"),
            "`TEXT` is none of BOOL");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1],\"datatype\":\"FP16\",\"data\":[1]"),
            "FP16 is accepted as binary");
    refused(SL_ERR_INVALID, input_of("\"shape\":1,\"datatype\":\"FP32\",\"data\":[1]"), "shape");
    refused(SL_ERR_INVALID,
            input_of("\"shape\":[1,1,1,1,1,1,1,1,1],\"datatype\":\"FP32\",\"data\":[1]"), "shape");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1,0],\"datatype\":\"FP32\",\"data\":[1]"),
            "shape[1]");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1.5],\"datatype\":\"FP32\",\"data\":[1]"),
            "shape[0]");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1],\"datatype\":\"FP32\""), "none of data");
    refused(SL_ERR_INVALID,
            "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]},"
            "{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]}]}",
            "`x` is given twice");
    refused(SL_ERR_INVALID,
            "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]}],"
            "\"outputs\":[{\"name\":\"y\"},{\"name\":\"y\"}]}",
            "`y` is asked for twice");
    refused(SL_ERR_INVALID,
            "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]}],"
            "\"outputs\":[{\"nam\":\"y\"}]}",
            "outputs[0]");
}

SL_CASE(http_body_parse__allocates_nothing_for_a_gigantic_shape)
{
    refused(SL_ERR_TOO_LARGE,
            input_of("\"shape\":[4294967296,4294967296,16],\"datatype\":\"FP32\",\"data\":[1]"),
            "`x`");
    refused(SL_ERR_TOO_LARGE, input_of("\"shape\":[16777217],\"datatype\":\"FP32\",\"data\":[1]"),
            "`x`");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1000],\"datatype\":\"FP32\",\"data\":[1]"),
            "`x`: data has fewer values");
}

SL_CASE(http_body_parse__refuses_values_that_the_type_lacks)
{
    static const struct {
        const char *type, *value, *least;
    } values[] = {
        {"UINT8", "256", "255"},
        {"UINT8", "-1", "0"},
        {"INT8", "-129", "-128"},
        {"INT16", "32768", "32767"},
        {"UINT64", "18446744073709551616", "18446744073709551615"},
        {"INT64", "9223372036854775808", "-9223372036854775808"},
        {"INT32", "1.0", "1"},
        {"INT32", "1e3", "1000"},
        {"FP32", "1e39", "3.4e38"},
        {"FP64", "1e309", "1.7e308"},
        {"FP32", "nan", "NaN"},
        {"FP32", "nul", "null"},
        {"FP32", "-NaN", "0"},
        {"FP32", "Inf", "Infinity"},
        {"FP64", "-Infinit", "-Infinity"},
        {"INT32", "null", "0"},
        {"INT32", "NaN", "0"},
        {"BOOL", "null", "false"},
        {"FP32", "0x10", "16"},
        {"FP32", "+1", "-1"},
        {"FP32", "\"1\"", "1"},
        {"FP32", "true", "1"},
        {"BOOL", "1", "true"},
        {"BOOL", "tru", "false"},
    };
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char members[128];
        (void)snprintf(members, sizeof members, "\"shape\":[1],\"datatype\":\"%s\",\"data\":[%s]",
                       values[i].type, values[i].value);
        refused(SL_ERR_INVALID, input_of(members), values[i].value);
        (void)snprintf(members, sizeof members, "\"shape\":[1],\"datatype\":\"%s\",\"data\":[%s]",
                       values[i].type, values[i].least);
        assert_int_equal(parse(input_of(members)), 0);
    }
}

SL_CASE(http_body_parse__reads_values_that_are_not_finite)
{
    assert_int_equal(parse(input_of("\"shape\":[2,2],\"datatype\":\"FP32\","
                                    "\"data\":[[null, NaN],[Infinity,-Infinity ]]")),
                     0);
    const float *x = (const float *)(const void *)input;
    assert_true(isnan(x[0]) && isnan(x[1]) && x[2] == INFINITY && x[3] == -INFINITY);
    assert_int_equal(parse(input_of("\"shape\":[2],\"datatype\":\"FP64\",\"data\":[null,-1]")), 0);
    const double *y = (const double *)(const void *)input;
    assert_true(isnan(y[0]) && y[1] == -1);
}

SL_CASE(http_body_parse__refuses_members_without_effect)
{
#define WITH(before, in_input, in_output)                                                          \
    "{" before                                                                                     \
    "\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]" in_input     \
    "}],\"outputs\":[{\"name\":\"y\"" in_output "}]}"
    assert_int_equal(parse(WITH("\"parameters\":{\"binary_data_output\":false},",
                                ",\"parameters\":{}", ",\"parameters\":{\"binary_data\":true}")),
                     0);
    refused(SL_ERR_INVALID, WITH("\"priority\":1,", "", ""), "priority is not supported");
    refused(SL_ERR_INVALID, WITH("\"parameters\":{\"sequence_id\":1},", "", ""),
            "parameters.sequence_id is not supported");
    refused(SL_ERR_INVALID, WITH("", ",\"dtype\":1", ""), "inputs[0].dtype is not supported");
    refused(SL_ERR_INVALID, WITH("", ",\"parameters\":{\"shared_memory\":\"a\"}", ""),
            "inputs[0].parameters.shared_memory is not supported");
    refused(SL_ERR_INVALID, WITH("\"parameters\":{\"sequence_end\":true},", "", ""),
            "parameters.sequence_end is not supported");
    refused(SL_ERR_INVALID, WITH("\"parameters\":{\"priority\":1},", "", ""),
            "parameters.priority is not supported");
    refused(SL_ERR_INVALID, WITH("", "", ",\"parameters\":{\"classification\":2}"),
            "outputs[0].parameters.classification is not supported");
    refused(SL_ERR_INVALID, WITH("", "", ",\"datatype\":\"FP32\""),
            "outputs[0].datatype is not supported");
}

SL_CASE(http_body_parse__refuses_data_of_another_shape)
{
    static const char *const data[] = {
        "[1,2,3]",     "[1,2,3,4,5]",         "[[1,2],[3]]",     "[[1,2,3],[4]]",
        "[[1,2]]",     "[[1,2],[3,4],[5,6]]", "[[[1,2],[3,4]]]", "[1,2,[3,4]]",
        "[[1,2],3,4]", "[1,,2,3,4]",          "[1,2,3,4,]",      "[,1,2,3,4]",
        "[1 2,3,4]",   "[[1,2][3,4]]",        "[1,2,3,\"]\"]",
    };
    for (size_t i = 0; i < sizeof data / sizeof data[0]; i++) {
        char members[128];
        (void)snprintf(members, sizeof members,
                       "\"shape\":[2,2],\"datatype\":\"INT32\",\"data\":%s", data[i]);
        assert_int_equal(parse(input_of(members)), SL_ERR_INVALID);
        assert_true(reason.text[0] != '\0');
    }
}

SL_CASE(http_body_parse__limits_the_json_without_data)
{
    const size_t bytes = 2 * SL_HTTP_BODY_JSON_BYTES;
    char *text = malloc(bytes + 1);
    memset(text, ' ', bytes);
    text[0] = '{';
    text[bytes - 1] = '}';
    text[bytes] = '\0';
    refused(SL_ERR_TOO_LARGE, text, "bytes");
    free(text);
}

SL_CASE(http_body_put_binary__takes_pieces_of_any_length)
{
    static const char json[] = "{\"inputs\":["
                               "{\"name\":\"a\",\"shape\":[3],\"datatype\":\"FP16\","
                               "\"parameters\":{\"binary_data_size\":6}},"
                               "{\"name\":\"b\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[9]},"
                               "{\"name\":\"c\",\"shape\":[1,5],\"datatype\":\"UINT8\","
                               "\"parameters\":{\"binary_data_size\":5}}]}";
    const char *bytes = "ABCDEFvwxyz";
    for (size_t piece = 1; piece <= 11; piece++) {
        assert_int_equal(parse(json), 0);
        assert_int_equal(body.binary_bytes, 11);
        for (size_t at = 0; at < 11; at += piece) {
            sl_http_body_put_binary(&body, &request, at, bytes + at,
                                    11 - at < piece ? 11 - at : piece);
        }
        assert_memory_equal(input, "ABCDEF", 6);
        assert_int_equal(input[64], 9);
        assert_memory_equal(input + 128, "vwxyz", 5);
        assert_int_equal(input[133], 0xee);
    }
    refused(SL_ERR_INVALID,
            input_of("\"shape\":[3],\"datatype\":\"FP32\","
                     "\"parameters\":{\"binary_data_size\":11}"),
            "`x`: binary_data_size is 11");
    refused(SL_ERR_INVALID,
            input_of("\"shape\":[1],\"datatype\":\"FP32\",\"data\":[1],"
                     "\"parameters\":{\"binary_data_size\":4}"),
            "more than one");
    refused(SL_ERR_INVALID,
            input_of("\"shape\":[1],\"datatype\":\"FP32\","
                     "\"parameters\":{\"binary_data_size\":\"4\"}"),
            "integer");
}

/* An input in a region, with these parameters. */
static const char *shared_input(const char *parameters)
{
    static char members[384];
    (void)snprintf(members, sizeof members,
                   "\"shape\":[2],\"datatype\":\"FP32\",\"parameters\":{%s}", parameters);
    return input_of(members);
}

#define REGION       "\"shared_memory_region\":\"r\""
#define BYTES(bytes) ",\"shared_memory_byte_size\":" #bytes
#define OFFSET(at)   ",\"shared_memory_offset\":" #at

SL_CASE(http_body_parse__reads_tensors_in_regions)
{
    assert_int_equal(parse(shared_input(REGION BYTES(8))), 0);
    assert_string_equal(body.ranges[0].region, "r");
    assert_int_equal(body.ranges[0].offset, 0);
    assert_int_equal(body.ranges[0].bytes, 8);
    assert_int_equal(body.binary_bytes, 0);
    assert_int_equal(input[0], 0xee); /* the caller reads the region */
    assert_int_equal(parse(shared_input(REGION BYTES(8) OFFSET(9223372036854775807))), 0);
    assert_int_equal(body.ranges[0].offset, INT64_MAX);

    /* Only the second of three inputs is behind the JSON. */
    assert_int_equal(
        parse("{\"inputs\":["
              "{\"name\":\"a\",\"shape\":[4],\"datatype\":\"INT8\",\"parameters\":{" REGION BYTES(
                  4) "}},"
                     "{\"name\":\"b\",\"shape\":[3],\"datatype\":\"INT8\","
                     "\"parameters\":{\"binary_data_size\":3}},"
                     "{\"name\":\"c\",\"shape\":[1],\"datatype\":\"INT8\",\"data\":[7]}],"
                     "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":false," REGION
                         BYTES(12) OFFSET(64) "}}]}"),
        0);
    assert_int_equal(body.binary_bytes, 3);
    sl_http_body_put_binary(&body, &request, 0, "xyz", 3);
    assert_int_equal(input[0], 0xee);
    assert_memory_equal(input + 64, "xyz", 3);
    assert_int_equal(input[128], 7);
    assert_string_equal(body.outputs[0].range.region, "r");
    assert_int_equal(body.outputs[0].range.offset, 64);
    assert_int_equal(body.outputs[0].range.bytes, 12);
}

SL_CASE(http_body_parse__names_what_is_wrong_with_a_region)
{
    refused(SL_ERR_INVALID, shared_input(REGION), "shared_memory_byte_size is missing");
    refused(SL_ERR_INVALID, shared_input("\"shared_memory_offset\":1"),
            "inputs[0].parameters have no shared_memory_region");
    refused(SL_ERR_INVALID, shared_input(REGION BYTES(9)), "`x`: shared_memory_byte_size is 9");
    refused(SL_ERR_INVALID, shared_input(REGION BYTES(-8)), "-8: 0 or more");
    refused(SL_ERR_INVALID, shared_input(REGION BYTES(8) OFFSET(-1)), "-1: 0 or more");
    refused(SL_ERR_INVALID, shared_input(REGION BYTES(8) OFFSET(18446744073709551616)), "");
    refused(SL_ERR_INVALID, shared_input(REGION BYTES(8) ",\"binary_data_size\":8"), "`x`");
    refused(SL_ERR_INVALID, shared_input("\"shared_memory_region\":\"\"" BYTES(8)), "1 to 127");
    refused(SL_ERR_INVALID, shared_input("\"shared_memory_region\":7" BYTES(8)), "a string");
    char members[400], name[161];
    memset(name, 'r', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)snprintf(members, sizeof members, "\"shared_memory_region\":\"%s\"" BYTES(8), name);
    refused(SL_ERR_INVALID, shared_input(members), "1 to 127 bytes");
    refused(
        SL_ERR_INVALID,
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"BOOL\",\"data\":[true]}],"
        "\"outputs\":[{\"name\":\"y\",\"parameters\":{\"binary_data\":true," REGION BYTES(8) "}}]}",
        "output `y` is wanted as binary data and in a region");
}

SL_CASE(http_body_parse__checks_model_timeout_and_strings)
{
#define WITH_X(members) "{" members "," X "}"
    assert_int_equal(parse_for("m", WITH_X("\"model_name\":\"m\"")), 0);
    assert_int_equal(parse_for("n", WITH_X("\"model_name\":\"m\"")), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "model_name is not the model of the path, `n`"));
    assert_int_equal(parse(WITH_X("\"parameters\":{\"timeout\":250000}")), 0);
    assert_int_equal(body.timeout_us, 250000);
    refused(SL_ERR_INVALID, WITH_X("\"parameters\":{\"timeout\":-1}"), "timeout is -1");
    refused(SL_ERR_INVALID, WITH_X("\"parameters\":{\"timeout\":0.5}"), "an integer");
    refused(SL_ERR_INVALID, input_of("\"shape\":[1],\"datatype\":\"BYTES\",\"data\":[\"a\"]"),
            "BYTES: no model of this server has strings");
}

/* Reads a body that registers a region. */
static int read_region(const char *json, struct sl_http_body_region *region)
{
    return sl_http_body_read_region(json, strlen(json), region, &reason);
}

SL_CASE(http_body_read_region__names_the_field)
{
    struct sl_http_body_region region;
    assert_int_equal(read_region("{\"key\":\"/k\",\"offset\":8,\"byte_size\":64}", &region), 0);
    assert_string_equal(region.key, "/k");
    assert_int_equal(region.offset, 8);
    assert_int_equal(region.bytes, 64);
    assert_int_equal(read_region("{\"key\":\"k\",\"byte_size\":64}", &region), 0);
    assert_int_equal(region.offset, 0);
    static const char *const refusals[][2] = {
        {"", "not a JSON object"},
        {"[]", "not a JSON object"},
        {"{\"byte_size\":64}", "key is missing"},
        {"{\"key\":\"\",\"byte_size\":64}", "key has 1 to 255 bytes"},
        {"{\"key\":\"k\"}", "byte_size is missing"},
        {"{\"key\":\"k\",\"byte_size\":0}", "byte_size is 0: 1 or more"},
        {"{\"key\":\"k\",\"byte_size\":1,\"offset\":-1}", "offset is -1"},
        {"{\"key\":\"k\",\"byte_size\":1,\"device_id\":0}", "device_id is not supported"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        assert_int_equal(read_region(refusals[i][0], &region), SL_ERR_INVALID);
        assert_non_null(strstr(reason.text, refusals[i][1]));
    }
}

/* An answer with "y" of FP32 [1,3] and "n" of INT16 [2]. */
static void answered(void)
{
    static _Alignas(64) uint8_t output[128];
    const float y[] = {0.1F, -3, 1e20F};
    const int16_t n[] = {-5, 500};
    memcpy(output, y, sizeof y);
    memcpy(output + 64, n, sizeof n);
    memcpy(request.model, "m\"1", 4);
    request.answer.version = 7;
    request.answer.queue_us = 1;
    request.answer.load_us = 2;
    request.answer.compute_us = 3;
    request.answer.output = output;
    request.answer.output_count = 2;
    request.answer.outputs[0] =
        (struct sl_serve_tensor){"y", SL_OBJECT_F32, 2, {1, 3}, .offset = 0, .bytes = 12};
    request.answer.outputs[1] =
        (struct sl_serve_tensor){"n", SL_OBJECT_I16, 1, {2}, .offset = 64, .bytes = 4};
}

static void answer_is(const char *json, const char *binary, size_t binary_bytes)
{
    char *text;
    size_t bytes, json_bytes;
    assert_int_equal(sl_http_body_answer(&body, &request, &text, &bytes, &json_bytes, &reason), 0);
    assert_int_equal(bytes, strlen(json) + binary_bytes);
    assert_int_equal(json_bytes, binary_bytes == 0 ? 0 : strlen(json));
    assert_memory_equal(text, json, strlen(json));
    assert_memory_equal(text + strlen(json), binary, binary_bytes);
    free(text);
}

#define BEGIN(id)                                                                                  \
    "{\"model_name\":\"m\\\"1\",\"model_version\":\"7\"" id                                        \
    ",\"parameters\":{\"queue_us\":1,\"load_us\":2,\"compute_us\":3},\"outputs\":["

SL_CASE(http_body_answer__has_version_times_and_all_outputs)
{
    assert_int_equal(parse("{\"id\":\"7\"," X "}"), 0);
    answered();
    answer_is(BEGIN(",\"id\":\"7\"") "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,3],"
                                     "\"data\":[0.100000001,-3,1.00000002e+20]},"
                                     "{\"name\":\"n\",\"datatype\":\"INT16\",\"shape\":[2],"
                                     "\"data\":[-5,500]}]}",
              "", 0);
}

SL_CASE(http_body_answer__puts_binary_outputs_behind_the_json)
{
    assert_int_equal(parse("{\"parameters\":{\"binary_data_output\":true},"
                           "\"outputs\":[{\"name\":\"n\"},"
                           "{\"name\":\"y\",\"parameters\":{\"binary_data\":false}}]," X "}"),
                     0);
    answered();
    answer_is(BEGIN("") "{\"name\":\"n\",\"datatype\":\"INT16\",\"shape\":[2],"
                        "\"parameters\":{\"binary_data_size\":4}},"
                        "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,3],"
                        "\"data\":[0.100000001,-3,1.00000002e+20]}]}",
              "\xfb\xff\xf4\x01", 4);
    assert_int_equal(parse("{\"parameters\":{\"binary_data_output\":true}," X "}"), 0);
    answered();
    request.answer.output_count = 1;
    request.answer.outputs[0] = request.answer.outputs[1];
    answer_is(BEGIN("") "{\"name\":\"n\",\"datatype\":\"INT16\",\"shape\":[2],"
                        "\"parameters\":{\"binary_data_size\":4}}]}",
              "\xfb\xff\xf4\x01", 4);
}

SL_CASE(http_body_answer__has_no_values_of_outputs_in_regions)
{
    assert_int_equal(parse("{\"parameters\":{\"binary_data_output\":true},"
                           "\"outputs\":[{\"name\":\"y\",\"parameters\":{" REGION BYTES(16)
                               OFFSET(8) "}},{\"name\":\"n\"}]," X "}"),
                     0);
    answered();
    assert_ptr_equal(sl_http_body_find_output(&body, &request, 0), &request.answer.outputs[0]);
    answer_is(BEGIN("") "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,3]},"
                        "{\"name\":\"n\",\"datatype\":\"INT16\",\"shape\":[2],"
                        "\"parameters\":{\"binary_data_size\":4}}]}",
              "\xfb\xff\xf4\x01", 4);
}

SL_CASE(http_body_answer__refuses_an_output_that_the_model_lacks)
{
    assert_int_equal(parse("{\"outputs\":[{\"name\":\"z\"}]," X "}"), 0);
    answered();
    char *text;
    size_t bytes, json_bytes;
    assert_int_equal(sl_http_body_answer(&body, &request, &text, &bytes, &json_bytes, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "`z`"));
}

SL_CASE(http_body_answer__refuses_a_datatype_that_the_protocol_lacks)
{
    assert_int_equal(parse("{" X "}"), 0);
    answered();
    request.answer.outputs[1].type = SL_OBJECT_F8_E4M3;
    char *text;
    size_t bytes, json_bytes;
    assert_int_equal(sl_http_body_answer(&body, &request, &text, &bytes, &json_bytes, &reason),
                     SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "`n`"));
}

/* The cost is linear: else this test takes hours. */
SL_CASE(http_body_parse__white_space_does_not_stop_the_parser)
{
    static const char head[] = "{\"inputs\":[],\"data\"";
    char *text = malloc(SL_SERVE_BODY_BYTES_MAX + 1);
    assert_non_null(text);
    memset(text, ' ', SL_SERVE_BODY_BYTES_MAX);
    memcpy(text, head, sizeof head - 1);
    text[SL_SERVE_BODY_BYTES_MAX] = '\0';
    refused(SL_ERR_TOO_LARGE, text, "bytes");
    free(text);
}

SL_CASE(http_body_answer__has_null_for_values_that_are_not_finite)
{
    assert_int_equal(parse("{" X "}"), 0);
    answered();
    const float y[] = {__builtin_inff(), __builtin_nanf(""), -0.0F};
    static _Alignas(64) uint8_t output[64];
    memcpy(output, y, sizeof y);
    request.answer.output = output;
    request.answer.output_count = 1;
    answer_is(BEGIN("") "{\"name\":\"y\",\"datatype\":\"FP32\",\"shape\":[1,3],"
                        "\"data\":[null,null,-0]}]}",
              "", 0);
}
