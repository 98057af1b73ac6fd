/* The logistic loss of a logit z and a label y in {0, 1}, computed without overflow. Pure. */
#ifndef SL_PROGRAMS_MODELS_LOSS_H
#define SL_PROGRAMS_MODELS_LOSS_H

#include <math.h>

/* 1 / (1 + e^-z) */
static inline float sl_loss_sigmoid(float logit)
{
    float small = expf(-fabsf(logit)); /* in (0, 1] */
    return logit >= 0 ? 1 / (1 + small) : small / (1 + small);
}

/* -y log s(z) - (1 - y) log(1 - s(z)) = max(z, 0) - y z + log(1 + e^-|z|) */
static inline double sl_loss_logistic(float logit, float label)
{
    double z = (double)logit;
    return fmax(z, 0) - (double)label * z + log1p(exp(-fabs(z)));
}

/* d loss / d z = s(z) - y */
static inline float sl_loss_gradient(float logit, float label)
{
    return sl_loss_sigmoid(logit) - label;
}

#endif
