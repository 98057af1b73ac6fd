#include "programs/serve/worker/batch.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

/* x: FP32 [rows, 3], keys: UINT64 [rows]; out: FP32 [rows, 2], sum: FP64 [rows]. */
static const struct sl_engine_tensor INPUTS[] = {
    {"x", SL_OBJECT_F32, 2, {0, 3}, 12, 0},
    {"keys", SL_OBJECT_U64, 1, {0}, 8, 1024},
};
static const struct sl_engine_tensor OUTPUTS[] = {
    {"out", SL_OBJECT_F32, 2, {0, 2}, 8, 2048},
    {"sum", SL_OBJECT_F64, 1, {0}, 8, 3072},
};
static struct sl_engine_info info = {
    .inputs = INPUTS, .outputs = OUTPUTS, .input_count = 2, .output_count = 2};

static _Alignas(64) uint8_t scratch[4096];
static struct sl_serve_item items[8];
static uint8_t inputs[8][512], outputs[8][512];
static struct sl_serve_batch batch;
static struct sl_list queue;
static struct sl_reason reason;
static int a_model, other_model;

static void set_tensor(struct sl_serve_tensor *tensor, const struct sl_engine_tensor *like,
                       uint64_t rows, uint64_t offset)
{
    *tensor = (struct sl_serve_tensor){
        .type = like->type, .rank = like->rank, .offset = offset, .bytes = like->row_bytes * rows};
    (void)snprintf(tensor->name, sizeof tensor->name, "%s", like->name);
    memcpy(tensor->shape, like->shape, sizeof tensor->shape);
    tensor->shape[0] = rows;
}

/* Inputs in the other order than the model's. */
static struct sl_serve_item *make(uint32_t i, const void *model, uint64_t rows)
{
    struct sl_serve_item *item = &items[i];
    *item = (struct sl_serve_item){
        .model = model, .input = inputs[i], .input_count = 2, .output = outputs[i]};
    set_tensor(&item->inputs[0], &INPUTS[1], rows, 0);
    set_tensor(&item->inputs[1], &INPUTS[0], rows, 256);
    return item;
}

static struct sl_serve_item *add(uint32_t i, const void *model, uint64_t rows)
{
    struct sl_serve_item *item = make(i, model, rows);
    assert_int_equal(sl_serve_batch_check(&info, 8, item, &reason), 0);
    sl_list_append(&queue, &item->link);
    return item;
}

static void refuse(struct sl_serve_item *item, const char *text)
{
    assert_int_equal(sl_serve_batch_check(&info, 8, item, &reason), SL_ERR_INVALID);
    if (strstr(reason.text, text) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", text, reason.text);
    }
}

SL_CASE(batch_check__names_the_tensor)
{
    struct sl_serve_item *item = make(0, &a_model, 4);
    assert_int_equal(sl_serve_batch_check(&info, 8, item, &reason), 0);
    assert_int_equal(item->rows, 4);
    item->input_count = 1;
    refuse(item, "`x` is missing; expected: FP32 [-1, 3]");
    item = make(0, &a_model, 4);
    (void)snprintf(item->inputs[0].name, SL_SERVE_TENSOR_NAME, "x");
    refuse(item, "`x` is there twice");
    (void)snprintf(item->inputs[0].name, SL_SERVE_TENSOR_NAME, "z");
    refuse(item, "`z` is no input of the model");
    item = make(0, &a_model, 4);
    item->inputs[1].type = SL_OBJECT_F64;
    refuse(item, "`x` is FP64 [4, 3]; expected: FP32 [-1, 3]");
    item = make(0, &a_model, 4);
    item->inputs[1].shape[1] = 5;
    refuse(item, "`x` is FP32 [4, 5]; expected: FP32 [-1, 3]");
    item = make(0, &a_model, 4);
    item->inputs[1].rank = 0;
    refuse(item, "`x` is FP32 []");
    item = make(0, &a_model, 4);
    item->inputs[0].shape[0] = 1ULL << 32 | 4;
    refuse(item, "`keys` has 4294967300 rows, `x` has 4");
    refuse(make(0, &a_model, 0), "`x` has 0 rows; accepted are 1 to 8");
    refuse(make(0, &a_model, 9), "`x` has 9 rows; accepted are 1 to 8");
    refuse(make(0, &a_model, 1ULL << 32), "accepted are 1 to 8");
}

SL_CASE(batch_check__of_a_model_with_a_fixed_number_of_rows)
{
    struct sl_engine_tensor fixed[] = {INPUTS[0], INPUTS[1]};
    const struct sl_engine_info before = info;
    fixed[0].shape[0] = fixed[1].shape[0] = info.fixed_rows = 16;
    info.inputs = fixed;
    assert_int_equal(sl_serve_batch_check(&info, 8, make(0, &a_model, 16), &reason), 0);
    refuse(make(0, &a_model, 4), "`x` is FP32 [4, 3]; expected: FP32 [16, 3]");
    info = before;
}

SL_CASE(batch_take__the_oldest_of_one_model_as_long_as_they_fit)
{
    sl_list_init(&queue);
    add(0, &other_model, 1);
    add(1, &a_model, 3);
    add(2, &a_model, 1)->kind = SL_SERVE_DESCRIBE;
    add(3, &a_model, 4);
    add(4, &other_model, 1);
    add(5, &a_model, 2);
    add(6, &a_model, 1);
    sl_serve_batch_take(&queue, &a_model, &info, 8, &batch);
    /* Request 5 does not fit; request 6 would, but may not overtake it. */
    assert_int_equal(batch.item_count, 2);
    assert_int_equal(batch.rows, 7);
    assert_ptr_equal(batch.items[0], &items[1]);
    assert_ptr_equal(batch.items[1], &items[3]);
    sl_serve_batch_take(&queue, &a_model, &info, 8, &batch);
    assert_int_equal(batch.item_count, 2);
    assert_int_equal(batch.rows, 3);
    sl_serve_batch_take(&queue, &a_model, &info, 8, &batch);
    assert_int_equal(batch.item_count, 0);
    sl_serve_batch_take(&queue, &other_model, &info, 8, &batch);
    assert_int_equal(batch.item_count, 2);
    assert_ptr_equal(sl_list_first(&queue), &items[2].link);
}

SL_CASE(batch_take__a_request_that_failed_in_company_runs_alone)
{
    sl_list_init(&queue);
    add(0, &a_model, 1);
    add(1, &a_model, 1)->is_alone = true;
    add(2, &a_model, 1)->is_alone = true;
    for (uint32_t i = 0; i < 3; i++) {
        sl_serve_batch_take(&queue, &a_model, &info, 8, &batch);
        assert_int_equal(batch.item_count, 1);
        assert_ptr_equal(batch.items[0], &items[i]);
    }
}

SL_CASE(batch_gather__rows_lie_one_after_another)
{
    const float *x = (const void *)scratch;
    const uint64_t *keys = (const void *)(scratch + 1024);
    float *out = (void *)(scratch + 2048);
    double *sum = (void *)(scratch + 3072);
    sl_list_init(&queue);
    for (uint32_t i = 0; i < 3; i++) {
        add(i, &a_model, i + 1);
        for (uint32_t j = 0; j < i + 1; j++) {
            ((uint64_t *)(void *)inputs[i])[j] = 100 * i + j;
            for (uint32_t k = 0; k < 3; k++) {
                ((float *)(void *)(inputs[i] + 256))[3 * j + k] = (float)(100 * i + 10 * j + k);
            }
        }
    }
    sl_serve_batch_take(&queue, &a_model, &info, 8, &batch);
    sl_serve_batch_gather(&info, &batch, scratch);
    for (uint32_t row = 0, i = 0, j = 0; row < 6; row++) {
        assert_true(keys[row] == 100 * i + j);
        assert_true(x[3 * row + 2] == (float)(100 * i + 10 * j + 2));
        out[2 * row] = x[3 * row];
        out[2 * row + 1] = -1;
        sum[row] = (double)keys[row];
        j = j == i ? 0 : j + 1;
        i += j == 0;
    }
    sl_serve_batch_scatter(&info, &batch, scratch);
    for (uint32_t i = 0; i < 3; i++) {
        const struct sl_serve_item *item = &items[i];
        assert_int_equal(item->output_count, 2);
        assert_string_equal(item->outputs[1].name, "sum");
        assert_true(item->outputs[0].shape[0] == i + 1 && item->outputs[0].shape[1] == 2);
        assert_true(item->outputs[0].bytes == 8 * (i + 1) && item->outputs[1].offset == 64);
        const float *first = (const void *)outputs[i];
        const double *second = (const void *)(outputs[i] + 64);
        assert_true(first[2 * i] == (float)(100 * i + 10 * i));
        assert_true(second[i] == 100 * i + i);
    }
    assert_true(sl_serve_batch_output_bytes(&info, 1) == 128);
    assert_true(sl_serve_batch_output_bytes(&info, 9) == 256);
}

SL_CASE(batch_describe__as_the_protocol_has_it)
{
    char text[512];
    const size_t length =
        sl_serve_batch_describe(&info, 9, "a \"model\"", 7, "graph", text, sizeof text);
    assert_string_equal(text,
                        "{\"name\":\"a \\\"model\\\"\",\"versions\":[\"7\"],"
                        "\"platform\":\"starling_graph\",\"inputs\":["
                        "{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,3]},"
                        "{\"name\":\"keys\",\"datatype\":\"UINT64\",\"shape\":[-1]}],\"outputs\":["
                        "{\"name\":\"out\",\"datatype\":\"FP32\",\"shape\":[-1,2]},"
                        "{\"name\":\"sum\",\"datatype\":\"FP64\",\"shape\":[-1]}],"
                        "\"max_batch_size\":9}");
    assert_int_equal(length, strlen(text));
    assert_int_equal(sl_serve_batch_describe(&info, 9, "a \"model\"", 7, "graph", text, 10),
                     length);
}
