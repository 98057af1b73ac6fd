#include "bench/pslite_arrays.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"

#define ALIGNMENT_BYTES 64ULL
#define ERROR_BYTES     256

/* Beyond these arrays begin on pages of their own, as whole tensors do. */
#define PAGED_BYTES     4096ULL

static uint64_t stride_of(uint64_t len)
{
    const uint64_t alignment = len >= PAGED_BYTES ? PAGED_BYTES : ALIGNMENT_BYTES;
    return (len + alignment - 1) / alignment * alignment;
}

uint64_t sl_bench_pslite_arrays_bytes(uint64_t len, uint32_t key_count)
{
    return stride_of(len) * key_count;
}

int sl_bench_pslite_arrays_join(const char *table, const struct sl_bench_pslite_load *load,
                                uint64_t len_max, bool driven, struct sl_kv **kv, void **memory)
{
    const struct sl_kv_options options = {
        .name = table,
        .value_bytes = sl_bench_pslite_options_value_bytes(load->handler),
        .manual_progress = driven,
    };
    *kv = NULL;
    *memory = NULL;
    int err = sl_kv_create(&options, kv);
    if (err != 0) {
        fprintf(stderr, "%s\n", sl_last_error());
        return err;
    }
    const uint64_t bytes =
        sl_bench_pslite_arrays_bytes(len_max, sl_kv_server_count(*kv) * load->keys_per_server);
    err = sl_kv_buffer_create(*kv, bytes, memory);
    if (err == 0) {
        memset(*memory, load->handler == SL_BENCH_PSLITE_SUM ? 0 : 1, bytes); /* sums stay zeros */
    }
    return err;
}

void sl_bench_pslite_arrays_leave(struct sl_kv **kv, void **memory)
{
    if (*memory != NULL) {
        sl_kv_buffer_free(*kv, memory);
    }
    if (*kv != NULL) {
        sl_kv_destroy(kv);
    }
}

int sl_bench_pslite_arrays_init(struct sl_bench_pslite_arrays *arrays, struct sl_kv *kv,
                                const struct sl_bench_pslite_load *load, uint32_t first,
                                uint8_t *memory)
{
    const uint32_t servers = sl_kv_server_count(kv);
    *arrays = (struct sl_bench_pslite_arrays){
        .kv = kv,
        .len = load->len,
        .stride = stride_of(load->len),
        .value_bytes = sl_bench_pslite_options_value_bytes(load->handler),
        .server_count = servers,
        .key_count = servers * load->keys_per_server,
        .memory = memory,
    };
    arrays->keys = calloc(arrays->key_count, sizeof *arrays->keys);
    arrays->timestamps = calloc(arrays->key_count, sizeof *arrays->timestamps);
    if (arrays->keys == NULL || arrays->timestamps == NULL) {
        sl_bench_pslite_arrays_fini(arrays);
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < arrays->key_count; i++) {
        uint64_t first_key;
        uint64_t last_key;
        sl_kv_server_range(kv, i % servers, &first_key, &last_key);
        arrays->keys[i] = first_key + first + i / servers;
    }
    return 0;
}

void sl_bench_pslite_arrays_fini(struct sl_bench_pslite_arrays *arrays)
{
    free(arrays->keys);
    free(arrays->timestamps);
    *arrays = (struct sl_bench_pslite_arrays){0};
}

static int begin(struct sl_bench_pslite_arrays *arrays, uint32_t index,
                 enum sl_bench_pslite_mode mode)
{
    uint8_t *values = arrays->memory + index * arrays->stride;
    const struct sl_kv_call call = {
        .batch =
            {
                .keys = &arrays->keys[index],
                .key_count = 1,
                .value_count = arrays->len / arrays->value_bytes,
                .push = mode == SL_BENCH_PSLITE_PULL ? NULL : values,
                .pull = mode == SL_BENCH_PSLITE_PUSH ? NULL : values,
            },
    };
    const int err = sl_kv_begin(arrays->kv, &call, &arrays->timestamps[index]);
    if (err != 0) {
        sl_log_error("%s of key %llu cannot begin: %s", sl_bench_pslite_mode_name(mode),
                     (unsigned long long)arrays->keys[index], sl_err_name(err));
    }
    return err;
}

static int wait_for(struct sl_bench_pslite_arrays *arrays, uint32_t index,
                    enum sl_bench_pslite_mode mode)
{
    const uint64_t timestamp = arrays->timestamps[index];
    const int err = sl_kv_wait(arrays->kv, timestamp);
    if (err != 0) {
        char text[ERROR_BYTES];
        sl_kv_error(arrays->kv, timestamp, text, sizeof text);
        sl_log_error("%s of key %llu: %s%s%s", sl_bench_pslite_mode_name(mode),
                     (unsigned long long)arrays->keys[index], sl_err_name(err),
                     text[0] == '\0' ? "" : ": ", text);
    }
    return err;
}

static int do_one(struct sl_bench_pslite_arrays *arrays, uint32_t index,
                  enum sl_bench_pslite_mode mode)
{
    const int err = begin(arrays, index, mode);
    return err != 0 ? err : wait_for(arrays, index, mode);
}

int sl_bench_pslite_arrays_first(struct sl_bench_pslite_arrays *arrays)
{
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < arrays->key_count; i++) {
        err = do_one(arrays, i, SL_BENCH_PSLITE_PUSH);
    }
    return err;
}

int sl_bench_pslite_arrays_round(struct sl_bench_pslite_arrays *arrays,
                                 enum sl_bench_pslite_mode mode)
{
    sl_assert(mode != SL_BENCH_PSLITE_PUSH_THEN_PULL);
    uint32_t begun = 0;
    int err = 0;
    while (err == 0 && begun < arrays->key_count) {
        err = begin(arrays, begun, mode);
        begun += err == 0;
    }
    /* All that were begun, whatever has become of the others: the memory is theirs until then. */
    for (uint32_t i = 0; i < begun; i++) {
        const int one = wait_for(arrays, i, mode);
        err = err != 0 ? err : one;
    }
    return err;
}

int sl_bench_pslite_arrays_blocking(struct sl_bench_pslite_arrays *arrays,
                                    enum sl_bench_pslite_mode mode)
{
    int err = 0;
    for (uint32_t server = 0; err == 0 && server < arrays->server_count; server++) {
        err = do_one(arrays, server, mode);
    }
    return err;
}
