/* Models: one file each, a const type object. A model names the tables that it keeps its parameters
 * in, and computes an example's logit and, from the loss's derivative by it, the gradients of the
 * parameters. Pure: what a batch needs is pulled before and pushed after by the trainer.
 *
 * A sparse table's parameters are rows[key_count][dim] for the batch's distinct keys; a dense
 * table's are the whole array. Gradients have the same shapes and are sums over the batch's rows.
 * Field i of an example is its feature at position i. Any thread. */
#ifndef SL_WORKER_TRAIN_MODEL_H
#define SL_WORKER_TRAIN_MODEL_H

#include "worker/train/batch.h"

#define SL_MODEL_TABLES      8 /* the most that a model has */
#define SL_MODEL_HIDDEN      2 /* hidden layers of the tower */

#define SL_MODEL_FACTORS_MAX 1024
#define SL_MODEL_HIDDEN_MAX  4096
#define SL_MODEL_FIELDS_MAX  4096

struct sl_model_shape {
    uint32_t factors;                 /* columns of an embedding; 1 to SL_MODEL_FACTORS_MAX */
    uint32_t fields;                  /* features of an example at most; deepfm only */
    uint32_t hidden[SL_MODEL_HIDDEN]; /* units; deepfm only; 1 to SL_MODEL_HIDDEN_MAX */
    uint64_t seed;                    /* of first values */
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
    float *scratch; /* forward leaves there what backward of the same example needs */
};

struct sl_model {
    const char *name;
    float default_lr; /* with Adagrad */
    /* Fills name, kind, dim or length, and initializer of each table, and returns how many there
     * are; optimizer and consistency are the caller's. */
    uint32_t (*tables)(const struct sl_model_shape *shape,
                       struct sl_table_spec specs[SL_MODEL_TABLES]);
    size_t (*scratch_floats)(const struct sl_model_shape *shape);
    /* The example's logit. */
    float (*forward)(const struct sl_model_pass *pass, const struct sl_model_example *example);
    /* Adds `slope` (the loss's derivative by the logit) times the logit's derivatives. */
    void (*backward)(const struct sl_model_pass *pass, const struct sl_model_example *example,
                     float slope);
};

extern const struct sl_model sl_model_lr;
extern const struct sl_model sl_model_fm;
extern const struct sl_model sl_model_deepfm;

/* Fills a table's name, kind, shape and first values: zeros for kind ZEROS. */
void sl_model_sparse_table(struct sl_table_spec *spec, const char *name, uint32_t dim);
void sl_model_dense_table(struct sl_table_spec *spec, const char *name, uint64_t length);

/* Elements of the table's parameters for a batch. */
size_t sl_model_floats(const struct sl_table_spec *spec, const struct sl_batch *batch);

/* Forward and backward over all rows; grads must hold zeros. Returns the sum of the losses. */
double sl_model_train(const struct sl_model *model, const struct sl_model_pass *pass,
                      const struct sl_batch *batch);

/* Forward alone: logits[row_count]. */
void sl_model_score(const struct sl_model *model, const struct sl_model_pass *pass,
                    const struct sl_batch *batch, float *logits);

#endif
