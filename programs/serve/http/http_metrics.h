/* Metrics of a gateway for Prometheus: of all requests, and of each of SL_HTTP_METRICS_MODELS
 * models; further models are counted together, under the name "". Owner: the reactor of the
 * gateway. Allocates for each model. */
#ifndef SL_SERVE_HTTP_METRICS_H
#define SL_SERVE_HTTP_METRICS_H

#include <stdio.h>

#include "programs/serve/gateway/gateway.h"

#define SL_HTTP_METRICS_MODELS  256
#define SL_HTTP_METRICS_BUCKETS 13 /* of a model's histogram, without the last one */

struct sl_http_metrics_model {
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t results[SL_SERVE_RESULTS];
    uint64_t buckets[SL_HTTP_METRICS_BUCKETS + 1]; /* answered requests, each in one */
    uint64_t us;                                   /* sum of them */
};

/* Zero at first. */
struct sl_http_metrics {
    uint64_t phase_us[3]; /* sums: queue, load, compute */
    struct sl_http_metrics_model *models;
    uint32_t model_count, model_capacity;
    struct sl_http_metrics_model others;
};

/* Counts a request for an inference that was answered. is_known: there is such a model; else a
 * caller could make up names. */
void sl_http_metrics_count(struct sl_http_metrics *metrics, const struct sl_serve_request *request,
                           bool is_known, uint64_t now_ns);

void sl_http_metrics_write(const struct sl_http_metrics *metrics,
                           const struct sl_serve_gateway_stats *stats, uint32_t unloaded_count,
                           FILE *file);

void sl_http_metrics_fini(struct sl_http_metrics *metrics);

#endif
