/* Histograms with bounded relative error (HDR: 32 linear steps in each power of two, so 3 %), for
 * latencies in ns, staleness in steps, sizes in bytes. Written by one thread; read by another only
 * after the writer has stopped, or through a copy that the writer made. No allocation. */
#ifndef SL_CORE_METRIC_H
#define SL_CORE_METRIC_H

#include <stdint.h>

#define SL_METRIC_STEPS   32 /* steps in a power of two */
#define SL_METRIC_BUCKETS (SL_METRIC_STEPS * 60)

struct sl_metric_histogram {
    uint64_t count, sum, min, max;
    uint64_t buckets[SL_METRIC_BUCKETS];
};

void sl_metric_init(struct sl_metric_histogram *histogram);
void sl_metric_record(struct sl_metric_histogram *histogram, uint64_t value);

/* The same `count` times. */
void sl_metric_record_many(struct sl_metric_histogram *histogram, uint64_t value, uint64_t count);

void sl_metric_merge(struct sl_metric_histogram *into, const struct sl_metric_histogram *from);

/* The least recorded value, within the error, that `share` (0 to 1) of all values do not exceed; 0
 * when empty. */
uint64_t sl_metric_quantile(const struct sl_metric_histogram *histogram, double share);

/* Reader of bucket i: the number of values and the greatest value that falls into it. */
uint64_t sl_metric_bucket(const struct sl_metric_histogram *histogram, uint32_t bucket,
                          uint64_t *upper);

#endif
