/* The key-value interface is played here: what is begun completes when it is waited for. */
#include "bench/pslite_arrays.h"
#include "bench/pslite_worker.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

enum { SERVERS = 2, CALLS_MAX = 64 };

struct sl_kv {
    struct sl_kv_call calls[CALLS_MAX]; /* the first has timestamp 1 */
    uint64_t keys[CALLS_MAX];
    uint32_t begun, waited, most_under_way;
    uint32_t fails_at;   /* the call of this number cannot begin; 0: all can */
    uint32_t ends_badly; /* that of this number fails when it is waited for */
};

uint32_t sl_kv_server_count(const struct sl_kv *kv)
{
    return SERVERS;
}

void sl_kv_server_range(const struct sl_kv *kv, uint32_t server, uint64_t *first, uint64_t *last)
{
    *first = server * 1000;
    *last = server * 1000 + 999;
}

int sl_kv_begin(struct sl_kv *kv, const struct sl_kv_call *call, uint64_t *timestamp)
{
    if (kv->begun + 1 == kv->fails_at) {
        return SL_ERR_NO_MEMORY;
    }
    assert_true(kv->begun < CALLS_MAX);
    kv->calls[kv->begun] = *call;
    kv->keys[kv->begun] = call->batch.keys[0];
    *timestamp = ++kv->begun;
    if (kv->begun - kv->waited > kv->most_under_way) {
        kv->most_under_way = kv->begun - kv->waited;
    }
    return 0;
}

int sl_kv_wait(struct sl_kv *kv, uint64_t timestamp)
{
    assert_true(timestamp <= kv->begun);
    kv->waited++;
    return timestamp == kv->ends_badly ? SL_ERR_CLOSED : 0;
}

void sl_kv_error(struct sl_kv *kv, uint64_t timestamp, char *text, size_t text_bytes)
{
    (void)strncpy(text, "the server is gone", text_bytes);
}

static struct sl_bench_pslite_load load_of(uint64_t len, enum sl_bench_pslite_handler handler)
{
    struct sl_bench_pslite_load load = sl_bench_pslite_options_defaults();
    load.len = len;
    load.keys_per_server = 3;
    load.handler = handler;
    return load;
}

struct setting {
    struct sl_kv kv;
    struct sl_bench_pslite_arrays arrays;
    uint8_t *memory;
};

static void open_setting(struct setting *setting, uint64_t len,
                         enum sl_bench_pslite_handler handler)
{
    const struct sl_bench_pslite_load load = load_of(len, handler);
    *setting = (struct setting){0};
    setting->memory = calloc(1, sl_bench_pslite_arrays_bytes(len, 3 * SERVERS));
    assert_non_null(setting->memory);
    assert_int_equal(
        sl_bench_pslite_arrays_init(&setting->arrays, &setting->kv, &load, 100, setting->memory),
        0);
}

static void close_setting(struct setting *setting)
{
    sl_bench_pslite_arrays_fini(&setting->arrays);
    free(setting->memory);
}

SL_CASE(round__has_all_keys_under_way)
{
    struct setting setting;
    open_setting(&setting, 5000, SL_BENCH_PSLITE_KEEP);
    assert_int_equal(sl_bench_pslite_arrays_round(&setting.arrays, SL_BENCH_PSLITE_PUSH_PULL), 0);
    const struct sl_kv *kv = &setting.kv;
    assert_int_equal(kv->begun, 6);
    assert_int_equal(kv->waited, 6);
    assert_int_equal(kv->most_under_way, 6);
    static const uint64_t keys[] = {100, 1100, 101, 1101, 102, 1102};
    assert_memory_equal(kv->keys, keys, sizeof keys);
    for (uint32_t i = 0; i < 6; i++) {
        const struct sl_kv_batch *batch = &kv->calls[i].batch;
        assert_int_equal(batch->value_count, 5000);
        assert_ptr_equal(batch->push, setting.memory + i * 8192);
        assert_ptr_equal(batch->pull, batch->push);
        assert_false(kv->calls[i].copy_inputs);
    }
    close_setting(&setting);
}

SL_CASE(round__pushes_or_pulls_only)
{
    struct setting setting;
    open_setting(&setting, 64, SL_BENCH_PSLITE_SUM);
    assert_int_equal(sl_bench_pslite_arrays_round(&setting.arrays, SL_BENCH_PSLITE_PUSH), 0);
    assert_non_null(setting.kv.calls[0].batch.push);
    assert_null(setting.kv.calls[0].batch.pull);
    assert_int_equal(setting.kv.calls[0].batch.value_count, 16);
    assert_int_equal(sl_bench_pslite_arrays_round(&setting.arrays, SL_BENCH_PSLITE_PULL), 0);
    assert_null(setting.kv.calls[6].batch.push);
    assert_non_null(setting.kv.calls[6].batch.pull);
    close_setting(&setting);
}

SL_CASE(round__what_was_begun_is_waited_for)
{
    struct setting setting;
    open_setting(&setting, 64, SL_BENCH_PSLITE_KEEP);
    setting.kv.fails_at = 4;
    assert_int_equal(sl_bench_pslite_arrays_round(&setting.arrays, SL_BENCH_PSLITE_PUSH),
                     SL_ERR_NO_MEMORY);
    assert_int_equal(setting.kv.waited, 3);
    setting.kv = (struct sl_kv){.ends_badly = 2};
    assert_int_equal(sl_bench_pslite_arrays_round(&setting.arrays, SL_BENCH_PSLITE_PUSH),
                     SL_ERR_CLOSED);
    assert_int_equal(setting.kv.waited, 6);
    close_setting(&setting);
}

SL_CASE(first__and_blocking_go_one_by_one)
{
    struct setting setting;
    open_setting(&setting, 64, SL_BENCH_PSLITE_KEEP);
    assert_int_equal(sl_bench_pslite_arrays_first(&setting.arrays), 0);
    assert_int_equal(setting.kv.begun, 6);
    assert_int_equal(setting.kv.most_under_way, 1);
    assert_int_equal(sl_bench_pslite_arrays_blocking(&setting.arrays, SL_BENCH_PSLITE_PULL), 0);
    assert_int_equal(setting.kv.begun, 6 + SERVERS);
    assert_int_equal(setting.kv.most_under_way, 1);
    assert_int_equal(setting.kv.keys[7], 1100);
    close_setting(&setting);
}

SL_CASE(note__keeps_the_last)
{
    static struct sl_bench_pslite_found found;
    for (uint32_t i = 0; i < SL_BENCH_PSLITE_REPORTS_MAX + 2; i++) {
        sl_bench_pslite_worker_note(&found, i, 2 * i);
    }
    assert_int_equal(found.report_count, SL_BENCH_PSLITE_REPORTS_MAX);
    assert_float_equal(found.goodput[0], 2, 0);
    assert_float_equal(found.key_us[SL_BENCH_PSLITE_REPORTS_MAX - 1],
                       2 * (SL_BENCH_PSLITE_REPORTS_MAX + 1), 0);
}

/* Of the worker's file, which these tests do not run. */
int sl_kv_create(const struct sl_kv_options *options, struct sl_kv **out)
{
    return SL_ERR_UNSUPPORTED;
}

const char *sl_last_error(void)
{
    return "";
}

void sl_kv_destroy(struct sl_kv **kv)
{
    *kv = NULL;
}

int sl_kv_buffer_create(struct sl_kv *kv, size_t bytes, void **out)
{
    return SL_ERR_NO_MEMORY;
}

void sl_kv_buffer_free(struct sl_kv *kv, void **buffer)
{
    *buffer = NULL;
}

uint32_t sl_kv_rank(const struct sl_kv *kv)
{
    return 0;
}
