/* Statistics of inferences, by version of a model, as the extension `statistics` of the Open
 * Inference Protocol has them. Owner: the reactor of the gateway. Allocates for each version and
 * each batch size; at most SL_HTTP_STATS_MAX versions, of which the least recently used one is
 * dropped, and SL_HTTP_STATS_BATCHES batch sizes of each. */
#ifndef SL_SERVE_HTTP_STATS_H
#define SL_SERVE_HTTP_STATS_H

#include "programs/serve/base/request.h"

#define SL_HTTP_STATS_MAX     1024
#define SL_HTTP_STATS_BATCHES 64

struct json_t; /* of jansson */

struct sl_http_stats_time {
    uint64_t count, ns;
};

/* Inputs to the gateway's memory, the computation, outputs to the answer. */
struct sl_http_stats_compute {
    struct sl_http_stats_time input, infer, output;
};

struct sl_http_stats_batch {
    uint64_t rows;
    struct sl_http_stats_compute compute;
};

struct sl_http_stats_version {
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t version;
    uint64_t last_ms; /* since the epoch */
    uint64_t rows;    /* of successful requests */
    struct sl_http_stats_time success, fail, queue;
    struct sl_http_stats_compute compute;
    struct sl_http_stats_batch *batches; /* by rows */
    uint32_t batch_count, batch_capacity;
};

/* Zero at first. */
struct sl_http_stats {
    struct sl_http_stats_version *versions; /* by name and version */
    uint32_t count, capacity;
};

/* Counts an inference that was answered, successfully or not, by this version or for it. Without
 * memory it is not counted. */
void sl_http_stats_count(struct sl_http_stats *stats, const struct sl_serve_request *request,
                         uint64_t version, uint64_t input_ns, uint64_t output_ns, uint64_t now_ns);

/* The statistics of a version as JSON; zeros if it has none. NULL: no memory. */
struct json_t *sl_http_stats_json(const struct sl_http_stats *stats, const char *name,
                                  uint64_t version);

/* Whether something was counted for the version. */
bool sl_http_stats_has(const struct sl_http_stats *stats, const char *name, uint64_t version);

void sl_http_stats_fini(struct sl_http_stats *stats);

#endif
