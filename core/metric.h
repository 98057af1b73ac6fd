/* Histograms with a relative error of 3 % (HDR: 32 linear steps per power of two), for latencies in
 * ns, staleness in steps, sizes in bytes. One thread writes; another thread reads only after the
 * writer has stopped, or from a copy made by the writer. No allocation. */
#ifndef SL_CORE_METRIC_H
#define SL_CORE_METRIC_H

#include <stdint.h>

#define SL_METRIC_STEPS   32 /* per power of two */
#define SL_METRIC_BUCKETS (SL_METRIC_STEPS * 60)

struct sl_metric_histogram {
    uint64_t count, sum, min, max;
    uint64_t buckets[SL_METRIC_BUCKETS];
};

void sl_metric_init(struct sl_metric_histogram *histogram);
void sl_metric_record(struct sl_metric_histogram *histogram, uint64_t value);

/* Records the value `count` times. */
void sl_metric_record_many(struct sl_metric_histogram *histogram, uint64_t value, uint64_t count);

void sl_metric_merge(struct sl_metric_histogram *into, const struct sl_metric_histogram *from);

/* The smallest recorded value, within the error, that `share` (0 to 1) of the values do not exceed;
 * 0 if empty. */
uint64_t sl_metric_quantile(const struct sl_metric_histogram *histogram, double share);

/* Returns the number of values in bucket `bucket`; *upper: the largest value of that bucket. */
uint64_t sl_metric_bucket(const struct sl_metric_histogram *histogram, uint32_t bucket,
                          uint64_t *upper);

#endif
