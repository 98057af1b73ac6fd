/* The engine of models that pool rows of tables: y [N, 4] = (sum of 2 keys, mean of 3 keys), by a
 * graph that adds 1. */
#include "programs/serve/engine/lookup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/precision.h"
#include "onnx_model.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/onnx.h"
#include "tests/support/unit.h"

enum { ROWS = 3, COLUMNS = 5 };

#define FEATURE(rows, first, columns, mode, padding, init)                                         \
    "{\"rows\":\"" rows "\",\"input\":0,\"first\":" first ",\"bags\":1,\"columns\":" columns       \
    ",\"table\":\"t\",\"mode\":\"" mode "\",\"padding\":" padding ",\"init\":" init "}"
#define SUM  FEATURE("a", "0", "2", "sum", "null", "[1,9,0,0]")
#define MEAN FEATURE("b", "2", "3", "mean", "-1", "[1,9,0,0]")

static const uint64_t KEYS[2][2] = {{3, 1ULL << 63}, {4, 7}};
static const float VALUES[2][2][2] = {{{1, 2}, {3, 4}}, {{5, 6}, {7, 8}}};

static struct sl_graph_memory memory;
static struct sl_graph graph;
static struct sl_graph_image of_graph;
static struct sl_object_tensor tensors[8];
static uint64_t offsets[8];
static struct sl_engine_image image;
static struct sl_reason reason;
static void *opened;

static void tear_down(void)
{
    sl_engine_lookup.close(&opened);
    sl_graph_memory_fini(&memory);
}

#define CASE(name) SL_CASE_WITH(name, sl_graph_memory_init(&memory, 64U << 20), tear_down())

static void add(const char *name, uint32_t type, uint32_t columns, const void *data)
{
    const uint32_t i = image.count++;
    tensors[i] = (struct sl_object_tensor){.name = name,
                                           .type = type,
                                           .rank = columns > 0 ? 2 : 1,
                                           .shape = {2, columns},
                                           .data = data};
    offsets[i] = image.bytes;
    image.bytes += 64;
}

/* The image of the model with these features, and of its table, in two shards. */
static void make_image_of(const char *features, uint32_t dim, enum sl_precision precision)
{
    static const uint32_t types[] = {SL_OBJECT_F32, SL_OBJECT_F16, SL_OBJECT_BF16, SL_OBJECT_U8};
    static uint8_t rows[2][2][16];
    const struct sl_precision_kernels *kernels = sl_precision_kernels(SL_PRECISION_SIMD_SCALAR);
    const uint32_t columns = dim + (precision == SL_PRECISION_INT8 ? 4 : 0);
    for (uint32_t i = 0; i < 4; i++) {
        kernels->narrow(precision, VALUES[i / 2][i % 2], 2,
                        rows[i / 2][0] + i % 2 * sl_precision_row_bytes(precision, 2));
    }
    char text[2048];
    struct wire parts = {0}, entry = {0}, attributes = {0};
    const float one = 1;
    (void)snprintf(text, sizeof text, "{\"inputs\":[[\"keys\",%d]],\"features\":[%s]}", COLUMNS,
                   features);
    model_tensor(&parts, "one", FLOAT, DIMS(1), &one, sizeof one);
    model_input(&parts, "a", FLOAT, DIMS(FREE, 2));
    model_input(&parts, "b", FLOAT, DIMS(FREE, 2));
    attribute_int(&attributes, "axis", 1);
    model_node(&parts, "Concat", "join", "a,b", "ab", &attributes);
    model_node(&parts, "Add", "add", "ab,one", "y", NULL);
    model_output(&parts, "y");
    struct wire model = model_finish(&parts, 13);
    wire_text(&entry, 1, SL_GRAPH_IMAGE_LOOKUP_KEY);
    wire_text(&entry, 2, text);
    wire_message(&model, 14, &entry);
    assert_int_equal(sl_onnx_read(model.bytes, model.count, true, NULL, &memory, &graph, &reason),
                     0);
    wire_free(&model);
    assert_int_equal(sl_graph_image_make(&graph, &memory, &of_graph, &reason), 0);
    assert_int_equal(of_graph.count, 2);
    image = (struct sl_engine_image){
        .tensors = tensors, .offsets = offsets, .count = 2, .bytes = of_graph.bytes, .note = ""};
    memcpy(tensors, of_graph.tensors, 2 * sizeof *tensors);
    memcpy(offsets, of_graph.offsets, 2 * sizeof *offsets);
    add("t/keys.0", SL_OBJECT_U64, 0, KEYS[0]);
    add("t/rows.0", types[precision], columns, rows[0]);
    add("t/keys.1", SL_OBJECT_U64, 0, KEYS[1]);
    add("t/rows.1", types[precision], columns, rows[1]);
}

static void make_image(const char *features, uint32_t dim)
{
    make_image_of(features, dim, SL_PRECISION_F32);
}

/* Each precision has all values. */
static void check_run(enum sl_precision precision)
{
    static const int64_t keys[ROWS][COLUMNS] = {
        {3, INT64_MIN, 4, -1, 7}, {7, 8, -1, -1, -1}, {3, 3, -1, 5, 6}};
    static const float wanted[ROWS][4] = {
        {5, 7, 7, 8}, {17, 18, 1, 1}, {3, 5, 10, 10}}; /* an unknown key has (9, 9) */
    static const uint32_t unknown[ROWS] = {0, 1, 2};
    make_image_of(SUM "," MEAN, 2, precision);
    assert_int_equal(sl_engine_lookup.open(&image, ROWS, &reason, &opened), 0);
    const struct sl_engine_info *info = sl_engine_lookup.info(opened);
    assert_int_equal(info->input_count, 1);
    assert_string_equal(info->inputs[0].name, "keys");
    assert_int_equal(info->inputs[0].type, SL_OBJECT_I64);
    assert_int_equal(info->inputs[0].shape[1], COLUMNS);
    assert_int_equal(info->output_count, 2);
    assert_string_equal(info->outputs[1].name, "unknown_keys");
    assert_int_equal(info->layer_count, 1);
    assert_int_equal(info->layers[0].image_end, image.bytes);
    uint8_t *scratch = aligned_alloc(64, info->scratch_bytes);
    assert_non_null(scratch);
    memset(scratch, 0xff, info->scratch_bytes);
    for (uint32_t rows = 1; rows <= ROWS; rows++) {
        memcpy(scratch + info->inputs[0].scratch_offset, keys, rows * sizeof keys[0]);
        assert_int_equal(sl_engine_lookup.run(opened, scratch, 0, rows, &reason), 0);
        assert_memory_equal(scratch + info->outputs[0].scratch_offset, wanted,
                            rows * sizeof wanted[0]);
        assert_memory_equal(scratch + info->outputs[1].scratch_offset, unknown,
                            rows * sizeof unknown[0]);
    }
    free(scratch);
}

CASE(run__pools_rows_as_torch_does)
{
    check_run(SL_PRECISION_F32);
}

CASE(run__widens_f16)
{
    check_run(SL_PRECISION_F16);
}

CASE(run__widens_bf16)
{
    check_run(SL_PRECISION_BF16);
}

CASE(run__widens_int8)
{
    check_run(SL_PRECISION_INT8);
}

CASE(open__names_the_tables)
{
    char names[8], few[2];
    make_image(SUM "," MEAN, 2);
    assert_int_equal(sl_lookup_open_untabled(&image, ROWS, &reason, &opened), 0);
    assert_true(sl_lookup_tables(opened, names, sizeof names));
    assert_string_equal(names, "t");
    assert_false(sl_lookup_tables(opened, few, 1));
}

static void assert_refused(const char *features, uint32_t dim, int err, const char *text)
{
    make_image(features, dim);
    assert_int_equal(sl_engine_lookup.open(&image, ROWS, &reason, &opened), err);
    assert_null(opened);
    if (strstr(reason.text, text) == NULL) {
        fail_msg("%s", reason.text);
    }
}

CASE(open__refuses_other_tables)
{
    assert_refused(SUM "," MEAN, 3, SL_ERR_CORRUPT, "u8 [n, 6]; its rows have another dim");
    make_image(SUM "," MEAN, 2);
    tensors[5].shape[0] = 1; /* a row less than keys */
    assert_int_equal(sl_engine_lookup.open(&image, ROWS, &reason, &opened), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "shard 1 of table t"));
    image.count = 2;
    assert_int_equal(sl_engine_lookup.open(&image, ROWS, &reason, &opened), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "has no table t"));
}

CASE(open__refuses_other_features)
{
    assert_refused("", 2, SL_ERR_TOO_LARGE, "0 features");
    assert_refused(SUM "," FEATURE("c", "0", "1", "sum", "null", "[0,0,0,0]"), 2, SL_ERR_INVALID,
                   "2 features feed 1 inputs");
    assert_refused(SUM "," FEATURE("b", "3", "3", "sum", "null", "[0,0,0,0]"), 2, SL_ERR_INVALID,
                   "feature \"b\": its columns");
    assert_refused(SUM "," FEATURE("b", "3", "2", "max", "null", "[0,0,0,0]"), 2, SL_ERR_INVALID,
                   "feature \"b\": its columns");
    assert_refused(SUM "," FEATURE("b", "3", "2", "sum", "null", "[3,0,-1,0]"), 2, SL_ERR_INVALID,
                   "feature \"b\": init");
}

CASE(open__leaves_other_versions_to_other_engines)
{
    make_image(SUM "," MEAN, 2);
    image.tensors++;
    image.offsets++;
    image.count--;
    assert_int_equal(sl_engine_lookup.open(&image, ROWS, &reason, &opened), SL_ERR_UNSUPPORTED);
    image.count = 0;
    assert_int_equal(sl_engine_lookup.open(&image, ROWS, &reason, &opened), SL_ERR_UNSUPPORTED);
}
