/* A factorization machine of degree two (Rendle, Factorization Machines, ICDM 2010):
 *     z = b + sum_i w_i x_i + sum_{i<j} <v_i, v_j> x_i x_j
 * in linear time by his equation 5: the last term is 1/2 sum_f (s_f^2 - sum_i (v_if x_i)^2) with
 * s_f = sum_i v_if x_i. The models fm and deepfm share it. Pure; any thread.
 *
 * w and v are two tables and not one of 1 + k columns: each row has its own first values (zeros and
 * small noise) and each table its own optimizer state; both travel in the same step. */
#ifndef SL_WORKER_TRAIN_FM_H
#define SL_WORKER_TRAIN_FM_H

#include "worker/train/model.h"

/* The first tables of a model that contains a factorization machine. */
enum { SL_FM_WEIGHTS, SL_FM_FACTORS, SL_FM_BIAS, SL_FM_TABLES };

/* Fills the three tables, named "PREFIX/weights" and so on. */
void sl_fm_tables(const struct sl_model_shape *shape, const char *prefix,
                  struct sl_table_spec specs[SL_MODEL_TABLES]);

/* sums[factors] := s_f; returns z. */
float sl_fm_forward(const struct sl_model_pass *pass, const struct sl_model_example *example,
                    float *sums);

/* dz/db = 1, dz/dw_i = x_i, dz/dv_if = x_i (s_f - v_if x_i), times slope, added. */
void sl_fm_backward(const struct sl_model_pass *pass, const struct sl_model_example *example,
                    const float *sums, float slope);

#endif
