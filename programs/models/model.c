#include "programs/models/model.h"

#include <stdio.h>

#include "programs/models/loss.h"

void sl_model_sparse_table(struct sl_table_spec *spec, const char *name, uint32_t dim)
{
    *spec =
        (struct sl_table_spec){.struct_size = sizeof *spec, .kind = SL_TABLE_SPARSE, .dim = dim};
    (void)snprintf(spec->name, sizeof spec->name, "%s", name);
}

void sl_model_dense_table(struct sl_table_spec *spec, const char *name, uint64_t length)
{
    *spec = (struct sl_table_spec){
        .struct_size = sizeof *spec, .kind = SL_TABLE_DENSE, .length = length};
    (void)snprintf(spec->name, sizeof spec->name, "%s", name);
}

size_t sl_model_floats(const struct sl_table_spec *spec, const struct sl_batch *batch)
{
    return spec->kind == SL_TABLE_SPARSE ? (size_t)batch->key_count * spec->dim
                                         : (size_t)spec->length;
}

static struct sl_model_example example_of(const struct sl_batch *batch, uint32_t row)
{
    uint32_t start = sl_batch_row_start(batch, row);
    return (struct sl_model_example){
        .features = batch->features + start,
        .values = batch->values + start,
        .count = batch->row_ends[row] - start,
    };
}

double sl_model_train(const struct sl_model *model, const struct sl_model_pass *pass,
                      const struct sl_batch *batch)
{
    double loss = 0;
    for (uint32_t row = 0; row < batch->row_count; row++) {
        struct sl_model_example example = example_of(batch, row);
        float label = batch->labels[row];
        float logit = model->forward(pass, &example);
        loss += sl_loss_logistic(logit, label);
        model->backward(pass, &example, sl_loss_gradient(logit, label));
    }
    return loss;
}

void sl_model_score(const struct sl_model *model, const struct sl_model_pass *pass,
                    const struct sl_batch *batch, float *logits)
{
    for (uint32_t row = 0; row < batch->row_count; row++) {
        struct sl_model_example example = example_of(batch, row);
        logits[row] = model->forward(pass, &example);
    }
}
