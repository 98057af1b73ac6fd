/* Figures of a training, which the page of the job and starling-top show (docs/observe.md). */
#ifndef STARLING_TRAINING_H
#define STARLING_TRAINING_H

#include <starling.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Figures of a worker's training, for the page of the job and starling-top. 0: unknown. */
struct sl_training {
    size_t struct_size;  /* SL_TRAINING_INIT sets it */
    float epoch;         /* epochs done, such as 2.5 */
    float epochs;        /* of the whole training */
    uint64_t samples;    /* trained on by this process so far */
    float loss;          /* recent mean */
    float learning_rate; /* of the next push */
    float metric;        /* of test data; metric_name, such as "AUC", or "" */
    char metric_name[20];
};
#define SL_TRAINING_INIT SL_STRUCT_INIT(struct sl_training)

/* Sets the training figures of this worker, which its next report to the coordinator has, at most a
 * second later. Costs some stores: call it after every batch, or when a figure has changed. Errors:
 * INVALID (struct_size; samples of 2^63 or more; a metric_name without NUL, or with other
 * characters than printable ASCII). Any thread, but one at a time; never blocks. */
SL_API int sl_client_set_training(struct sl_client *client, const struct sl_training *training);

#ifdef __cplusplus
}
#endif

#endif
