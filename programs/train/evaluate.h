/* Scores a test file with the current model on the servers: mean logistic loss and exact AUC. */
#ifndef SL_PROGRAMS_TRAIN_EVALUATE_H
#define SL_PROGRAMS_TRAIN_EVALUATE_H

#include "programs/train/pipeline.h"

/* Reads all test data, so that unusable data ends a job before it trains. Errors, with a reason:
 * those of the reader; INVALID (no row, or all rows of one label: the AUC is undefined). */
int sl_evaluate_check(const struct sl_reader_options *test, struct sl_reason *reason);

/* pipeline_options: not pushing; its report is ignored. Owns the reader. Fills the test fields of
 * *report. Errors, logged: those of the client and the reader; INVALID (the AUC is undefined, or a
 * logit is NaN). */
int sl_evaluate_run(const struct sl_model *model, const struct sl_model_shape *shape,
                    const struct sl_pipeline_options *pipeline_options, struct sl_reader *test,
                    uint32_t batch_rows, struct sl_train_report *report);

#endif
