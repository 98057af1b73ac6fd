/* A model is a const type object, one per file. It names its parameter tables and computes an
 * example's logit and, from the derivative of the loss, the gradients of the parameters. Pure: the
 * trainer pulls parameters before and pushes gradients after. Any thread.
 *
 * Parameters of a sparse table are rows[key_count][dim] for the batch's distinct keys; of a dense
 * table, the whole array. Gradients have the same shapes and are sums over the batch's rows. Field
 * i of an example is its feature at position i. */
#ifndef SL_PROGRAMS_MODELS_MODEL_H
#define SL_PROGRAMS_MODELS_MODEL_H

#include "programs/models/batch.h"

#define SL_MODEL_TABLES      8 /* maximum of a model */
#define SL_MODEL_HIDDEN      2 /* hidden layers of the tower */

#define SL_MODEL_FACTORS_MAX 1024
#define SL_MODEL_HIDDEN_MAX  4096
#define SL_MODEL_FIELDS_MAX  4096

struct sl_model_shape {
    uint32_t factors;                 /* columns of an embedding; 1 to SL_MODEL_FACTORS_MAX */
    uint32_t fields;                  /* maximum of features of an example; deepfm only */
    uint32_t hidden[SL_MODEL_HIDDEN]; /* units; deepfm only; 1 to SL_MODEL_HIDDEN_MAX */
    uint64_t seed;                    /* of initial values */
};

/* Features of one example. */
struct sl_model_example {
    const uint32_t *features; /* [count]: index of the feature's row in the batch */
    const float *values;      /* [count] */
    uint32_t count;
};

struct sl_model_pass {
    const struct sl_model_shape *shape;
    const float *params[SL_MODEL_TABLES]; /* in the order of the model's tables */
    float *grads[SL_MODEL_TABLES];        /* added to; not read by forward */
    float *scratch;                       /* from forward to backward of the same example */
};

struct sl_model {
    const char *name;
    float default_lr; /* with Adagrad */
    /* Fills name, kind, dim or length, and initializer of each table; returns the number of tables.
     * The caller sets optimizer and consistency. */
    uint32_t (*tables)(const struct sl_model_shape *shape,
                       struct sl_table_spec specs[SL_MODEL_TABLES]);
    size_t (*scratch_floats)(const struct sl_model_shape *shape);
    /* Returns the example's logit. */
    float (*forward)(const struct sl_model_pass *pass, const struct sl_model_example *example);
    /* Adds `slope` (derivative of the loss by the logit) times the logit's derivatives. */
    void (*backward)(const struct sl_model_pass *pass, const struct sl_model_example *example,
                     float slope);
};

extern const struct sl_model sl_model_lr;
extern const struct sl_model sl_model_fm;
extern const struct sl_model sl_model_deepfm;

/* Fills a table's name, kind, shape and initializer (ZEROS). */
void sl_model_sparse_table(struct sl_table_spec *spec, const char *name, uint32_t dim);
void sl_model_dense_table(struct sl_table_spec *spec, const char *name, uint64_t length);

/* Number of parameters of the table for a batch. */
size_t sl_model_floats(const struct sl_table_spec *spec, const struct sl_batch *batch);

/* Forward and backward over all rows; grads must be zeroed. Returns the sum of the losses. */
double sl_model_train(const struct sl_model *model, const struct sl_model_pass *pass,
                      const struct sl_batch *batch);

/* Forward only: logits[row_count]. */
void sl_model_score(const struct sl_model *model, const struct sl_model_pass *pass,
                    const struct sl_batch *batch, float *logits);

#endif
