/* A factorization machine of degree two (Rendle, Factorization Machines, ICDM 2010), shared by the
 * models fm and deepfm: z = b + sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j, in linear time by
 * equation 5: the last term is 1/2 sum_f (s_f^2 - sum_i (v_if x_i)^2) with s_f = sum_i v_if x_i.
 * Pure; any thread.
 *
 * w and v are separate tables, with separate initializers (zeros, small noise) and optimizer state.
 * Both are sent in the same step. */
#ifndef SL_PROGRAMS_MODELS_FM_H
#define SL_PROGRAMS_MODELS_FM_H

#include "programs/models/model.h"

/* The first tables of a model with a factorization machine. */
enum { SL_FM_WEIGHTS, SL_FM_FACTORS, SL_FM_BIAS, SL_FM_TABLES };

/* Fills the three tables, named "PREFIX/weights" and so on. */
void sl_fm_tables(const struct sl_model_shape *shape, const char *prefix,
                  struct sl_table_spec specs[SL_MODEL_TABLES]);

/* Sets the first `factors` floats of the scratch to s_f; returns z. */
float sl_fm_forward(const struct sl_model_pass *pass, const struct sl_model_example *example);

/* Adds slope times dz/db = 1, dz/dw_i = x_i and dz/dv_if = x_i (s_f - v_if x_i) to the
 * gradients; s_f is as left by sl_fm_forward. */
void sl_fm_backward(const struct sl_model_pass *pass, const struct sl_model_example *example,
                    float slope);

#endif
