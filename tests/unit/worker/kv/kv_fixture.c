#include "tests/unit/worker/kv/kv_fixture.h"

#include <stdio.h>
#include <stdlib.h>

bool fixture_manual_progress = false;

const char *fixture_way(uint32_t n)
{
    fixture_manual_progress = n == 1;
    return n == 0 ? "with a thread" : n == 1 ? "driven by its caller" : NULL;
}

struct sl_kv_options fixture_options(const char *name)
{
    static char names[256][16];
    static uint32_t count;
    if (name == NULL) {
        snprintf(names[count % 256], sizeof names[0], "table.%u", count % 10000);
        name = names[count++ % 256];
    }
    return (struct sl_kv_options){
        .name = name, .timeout_ms = TIMEOUT_MS, .manual_progress = fixture_manual_progress};
}

struct sl_kv *fixture_join(const struct sl_cluster *cluster, uint32_t worker,
                           const struct sl_kv_options *options)
{
    char config[512];
    snprintf(config, sizeof config,
             "{\"cluster\": {\"ps\": [\"%s\", \"127.0.0.1:1\"], \"worker\": [\"a:1\", \"b:1\"]}, "
             "\"task\": {\"type\": \"worker\", \"index\": %u}}",
             sl_cluster_coordinator(cluster), worker);
    setenv("TF_CONFIG", config, 1);
    setenv("STARLING_LOG", "off", 0);
    struct sl_kv *kv;
    assert_int_equal(sl_kv_create(options, &kv), 0);
    return kv;
}

struct sl_kv *fixture_table(struct sl_kv *kv, uint32_t value_bytes)
{
    struct sl_kv_options options = fixture_options(NULL);
    options.value_bytes = value_bytes;
    struct sl_kv *table;
    assert_int_equal(sl_kv_open(kv, &options, &table), 0);
    return table;
}

int fixture_setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof *fixture);
    fixture->cluster = sl_cluster_start(&(struct sl_cluster_options){
        .ps_count = PS_COUNT, .shards_of_ps = SHARDS / PS_COUNT, .worker_count = 2});
    struct sl_kv_options options = fixture_options(NULL);
    fixture->kv = fixture_join(fixture->cluster, 0, &options);
    *state = fixture;
    return 0;
}

int fixture_teardown(void **state)
{
    struct fixture *fixture = *state;
    sl_kv_destroy(&fixture->kv);
    sl_cluster_stop(&fixture->cluster);
    free(fixture);
    return 0;
}

void fixture_keys(uint64_t *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        keys[i] = UINT64_MAX / count * i + 1;
    }
}
