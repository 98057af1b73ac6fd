/* The engine of ONNX models: from an image to outputs, and images that are not whole. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "onnx_model.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/onnx.h"
#include "tests/support/unit.h"

static struct sl_graph_memory memory;
static struct sl_graph graph;
static struct sl_graph_image image;
static struct sl_reason reason;
static void *opened;

static void tear_down(void)
{
    sl_engine_graph.close(&opened);
    sl_graph_memory_fini(&memory);
}

static void make_image(struct wire model)
{
    assert_int_equal(sl_onnx_read(model.bytes, model.count, true, NULL, &memory, &graph, &reason),
                     0);
    wire_free(&model);
    assert_int_equal(sl_graph_image_make(&graph, &memory, &image, &reason), 0);
}

static int open_image(uint32_t rows_max)
{
    const struct sl_engine_image of = sl_graph_image_of(&image);
    return sl_engine_graph.open(&of, rows_max, &reason, &opened);
}

#define CASE(name) SL_CASE_WITH(name, sl_graph_memory_init(&memory, 64U << 20), tear_down())

/* A version that deploy has not published: a worker refuses it as deploy does. */
CASE(graph_engine_open__work_is_bounded)
{
    const int64_t half = 1 << 29, whole = 1 << 30;
    struct wire parts = {0}, attributes = {0};
    attribute_ints(&attributes, "kernel_shape", DIMS(whole, whole));
    attribute_ints(&attributes, "pads", DIMS(half, half, half, half));
    attribute_ints(&attributes, "strides", DIMS(whole, whole));
    model_input(&parts, "x", FLOAT, DIMS(FREE, 1, 1, 1));
    model_node(&parts, "MaxPool", "pool", "x", "y", &attributes);
    model_output(&parts, "y");
    make_image(model_finish(&parts, 13));
    assert_int_equal(open_image(1), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, "node \"pool\" (MaxPool)"));
    assert_non_null(strstr(reason.text, "at most 1e+13 are accepted"));
}

CASE(graph_image_make__order_of_use)
{
    make_image(model_mlp());
    assert_int_equal(image.count, 4);
    assert_string_equal(image.tensors[0].name, ".graph");
    assert_string_equal(image.tensors[1].name, "w1");
    assert_string_equal(image.tensors[2].name, "b1");
    assert_string_equal(image.tensors[3].name, "w2");
    assert_null(image.groups[0]);
    assert_string_equal(image.groups[1], "first");
    assert_null(image.groups[2]);
    assert_string_equal(image.groups[3], "second");
    for (uint32_t i = 0; i < image.count; i++) {
        assert_int_equal(image.offsets[i] % 64, 0);
    }
    assert_int_equal(image.bytes, image.offsets[3] + 32 * 10 * 4);
}

/* y = max(x w1 + b1, 0) w2 of one row. */
static void compute(const float *x, float *y)
{
    const float *w1 = image.tensors[1].data, *b1 = image.tensors[2].data;
    const float *w2 = image.tensors[3].data;
    memset(y, 0, 10 * sizeof *y);
    for (uint32_t j = 0; j < 32; j++) {
        double h = b1[j];
        for (uint32_t i = 0; i < 16; i++) {
            h += (double)x[i] * w1[i * 32 + j];
        }
        for (uint32_t i = 0; i < 10 && h > 0; i++) {
            y[i] += (float)(h * w2[j * 10 + i]);
        }
    }
}

CASE(graph_run__mlp)
{
    make_image(model_mlp());
    assert_int_equal(open_image(4), 0);
    const struct sl_engine_info *info = sl_engine_graph.info(opened);
    assert_int_equal(info->layer_count, 2);
    assert_int_equal(info->layers[1].image_end, image.bytes);
    assert_string_equal(info->inputs[0].name, "x");
    assert_int_equal(info->inputs[0].shape[0], 0);
    assert_int_equal(info->inputs[0].shape[1], 16);
    assert_int_equal(info->inputs[0].row_bytes, 64);
    assert_string_equal(info->outputs[0].name, "y");
    assert_int_equal(info->outputs[0].row_bytes, 40);
    uint8_t *scratch = aligned_alloc(64, info->scratch_bytes);
    assert_non_null(scratch);
    for (uint32_t rows = 1; rows <= 4; rows++) {
        float x[4 * 16], y[10];
        for (uint32_t i = 0; i < rows * 16; i++) {
            x[i] = sinf((float)(i + rows));
        }
        memcpy(scratch + info->inputs[0].scratch_offset, x, rows * info->inputs[0].row_bytes);
        assert_int_equal(sl_engine_graph.run(opened, scratch, 0, rows, &reason), 0);
        assert_int_equal(sl_engine_graph.run(opened, scratch, 1, rows, &reason), 0);
        const float *got = (const float *)(scratch + info->outputs[0].scratch_offset);
        for (uint32_t row = 0; row < rows; row++) {
            compute(x + row * 16, y);
            for (uint32_t i = 0; i < 10; i++) {
                assert_true(fabsf(got[row * 10 + i] - y[i]) < 1e-4F);
            }
        }
    }
    free(scratch);
}

CASE(graph_open__image_that_is_not_whole)
{
    make_image(model_mlp());
    image.count--;
    assert_int_equal(open_image(4), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "\"w2\""));
    image.count++;
    image.tensors[1].shape[0]++;
    assert_int_equal(open_image(4), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "\"w1\""));
    image.tensors[1].shape[0]--;
    image.tensors[2].type = SL_OBJECT_I32;
    assert_int_equal(open_image(4), SL_ERR_CORRUPT);
    assert_non_null(strstr(reason.text, "\"b1\""));
    image.tensors[2].type = SL_OBJECT_F32;
    image.tensors[0].name = "graph";
    assert_int_equal(open_image(4), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(reason.text, "\".graph\""));
    image.tensors[0].name = ".graph";
    assert_int_equal(open_image(4), 0);
}

CASE(graph_open__fixed_rows)
{
    struct wire parts = {0};
    model_input(&parts, "x", FLOAT, DIMS(4, 16));
    model_output(&parts, "y");
    model_node(&parts, "Relu", "n", "x", "y", NULL);
    make_image(model_finish(&parts, 13));
    assert_int_equal(open_image(3), SL_ERR_TOO_LARGE);
    assert_int_equal(open_image(32), 0);
    assert_int_equal(sl_engine_graph.info(opened)->fixed_rows, 4);
    assert_int_equal(sl_engine_graph.info(opened)->inputs[0].shape[0], 4);
    assert_int_equal(sl_engine_graph.info(opened)->scratch_bytes, 4 * 64);
}
