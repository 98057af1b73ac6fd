/* The keys of test_benchmark and their arrays: `keys_per_server` keys in the range of each server,
 * in memory that servers on this machine use where it is; and the rounds over them. One thread, the
 * kv's. */
#ifndef SL_BENCH_PSLITE_ARRAYS_H
#define SL_BENCH_PSLITE_ARRAYS_H

#include <starling_kv.h>

#include "bench/pslite_options.h"
#include "core/err.h"

struct sl_bench_pslite_arrays {
    struct sl_kv *kv;
    uint64_t len, stride; /* bytes of an array; from one to the next */
    uint32_t value_bytes;
    uint32_t server_count, key_count; /* key i belongs to server i % server_count */
    uint64_t *keys, *timestamps;      /* [key_count] */
    uint8_t *memory; /* of sl_kv_buffer_create; pulls go to where pushes are from */
};

/* Joins the job that the environment names, with memory for arrays of `len_max` bytes of all keys,
 * which has been touched. driven: this thread serves the connections. *kv and *memory are the
 * caller's, for sl_bench_pslite_arrays_leave, also after an error. Errors: of the kv. */
int sl_bench_pslite_arrays_join(const char *table, const struct sl_bench_pslite_load *load,
                                uint64_t len_max, bool driven, struct sl_kv **kv, void **memory);
void sl_bench_pslite_arrays_leave(struct sl_kv **kv, void **memory);

/* Bytes that the arrays of so many keys take. */
uint64_t sl_bench_pslite_arrays_bytes(uint64_t len, uint32_t key_count);

/* `first` is the number of the first key in each server's range. memory: at least
 * sl_bench_pslite_arrays_bytes, the caller's, and outlives the arrays. Errors: NO_MEMORY. */
int sl_bench_pslite_arrays_init(struct sl_bench_pslite_arrays *arrays, struct sl_kv *kv,
                                const struct sl_bench_pslite_load *load, uint32_t first,
                                uint8_t *memory);
void sl_bench_pslite_arrays_fini(struct sl_bench_pslite_arrays *arrays);

/* Pushes each once, one after the other, so that all are there. Errors, logged: of the kv. */
int sl_bench_pslite_arrays_first(struct sl_bench_pslite_arrays *arrays);

/* Pushes, pulls, or does both to all of them, all under way at the same time. mode: not
 * PUSH_THEN_PULL. Errors, logged: of the kv. */
int sl_bench_pslite_arrays_round(struct sl_bench_pslite_arrays *arrays,
                                 enum sl_bench_pslite_mode mode);

/* Pushes, or pulls, one key of each server, waiting for each. Errors, logged: of the kv. */
int sl_bench_pslite_arrays_blocking(struct sl_bench_pslite_arrays *arrays,
                                    enum sl_bench_pslite_mode mode);

#endif
