#include "programs/serve/http/http_stats.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/unit.h"

static struct sl_serve_request request;

/* Counts an inference of the model "m" with so many rows. */
static void count(struct sl_http_stats *stats, uint64_t version, uint64_t rows)
{
    (void)snprintf(request.model, sizeof request.model, "m");
    request.input_count = 1;
    request.inputs[0].rank = 2;
    request.inputs[0].shape[0] = rows;
    request.arrived_ns = 1000;
    request.answer.queue_us = 2;
    request.answer.load_us = 3;
    request.answer.compute_us = 4;
    sl_http_stats_count(stats, &request, version, 10, 20, 1500);
}

/* A number of the version's statistics, by the names of its members. */
static json_int_t number(const struct sl_http_stats *stats, uint64_t version, const char *in,
                         const char *of, const char *name)
{
    json_t *all = sl_http_stats_json(stats, "m", version);
    const json_t *from = in == NULL ? all : json_object_get(json_object_get(all, in), of);
    const json_int_t value = json_integer_value(json_object_get(from, name));
    json_decref(all);
    return value;
}

SL_CASE(http_stats_count__sums_times_by_version)
{
    struct sl_http_stats stats = {0};
    count(&stats, 2, 5);
    count(&stats, 1, 1);
    count(&stats, 2, 1);
    request.answer.err = SL_ERR_DEADLINE;
    count(&stats, 2, 7);
    request.answer.err = 0;
    assert_int_equal(number(&stats, 2, NULL, NULL, "inference_count"), 6);
    assert_int_equal(number(&stats, 2, NULL, NULL, "execution_count"), 2);
    assert_true(number(&stats, 2, NULL, NULL, "last_inference") > 0);
    static const struct {
        const char *of;
        json_int_t count, ns;
    } times[] = {
        {"success", 2, 1000},     {"fail", 1, 500},           {"queue", 2, 10000},
        {"compute_input", 2, 20}, {"compute_infer", 2, 8000}, {"compute_output", 2, 40},
        {"cache_hit", 0, 0},
    };
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        assert_int_equal(number(&stats, 2, "inference_stats", times[i].of, "count"),
                         times[i].count);
        assert_int_equal(number(&stats, 2, "inference_stats", times[i].of, "ns"), times[i].ns);
    }
    assert_int_equal(number(&stats, 1, NULL, NULL, "inference_count"), 1);
    assert_int_equal(number(&stats, 3, NULL, NULL, "inference_count"), 0);
    assert_false(sl_http_stats_has(&stats, "m", 3) || sl_http_stats_has(&stats, "l", 2));
    sl_http_stats_fini(&stats);
}

SL_CASE(http_stats_count__keeps_the_versions_and_batch_sizes_of_its_limits)
{
    struct sl_http_stats stats = {0};
    for (uint64_t rows = SL_HTTP_STATS_BATCHES + 10; rows > 0; rows--) {
        count(&stats, 1, rows);
    }
    assert_int_equal(stats.versions[0].batch_count, SL_HTTP_STATS_BATCHES);
    for (uint32_t i = 1; i < SL_HTTP_STATS_BATCHES; i++) {
        assert_true(stats.versions[0].batches[i - 1].rows < stats.versions[0].batches[i].rows);
    }
    for (uint64_t version = 2; version <= SL_HTTP_STATS_MAX; version++) {
        count(&stats, version, 1);
    }
    assert_int_equal(stats.count, SL_HTTP_STATS_MAX);
    stats.versions[6].last_ms = 1; /* the least recently used one */
    count(&stats, 5000, 1);
    assert_int_equal(stats.count, SL_HTTP_STATS_MAX);
    assert_false(sl_http_stats_has(&stats, "m", 7));
    assert_true(sl_http_stats_has(&stats, "m", 1) && sl_http_stats_has(&stats, "m", 5000));
    sl_http_stats_fini(&stats);
}
