/* The request handler of ps-lite's test_benchmark: of each key the first push is kept, later ones
 * are only acknowledged, and a pull is answered from what is kept. So the server moves the bytes
 * that it must, and does no arithmetic.
 *
 * Each server (shard) has keys of its own, which its reactor alone touches. */
#ifndef SL_BENCH_PSLITE_KEEP_H
#define SL_BENCH_PSLITE_KEEP_H

#include <starling_kv.h>

struct sl_bench_pslite_keep;

/* *out is owned by the caller, and outlives the handler. Errors: NO_MEMORY. */
int sl_bench_pslite_keep_create(struct sl_bench_pslite_keep **out);
void sl_bench_pslite_keep_destroy(struct sl_bench_pslite_keep **keep);

/* Its errors, to the sender: NO_MEMORY; NOT_FOUND (a pull of a key that nobody has pushed), INVALID
 * (an array of another length than the first). It tells no lengths. */
struct sl_kv_handler sl_bench_pslite_keep_handler(struct sl_bench_pslite_keep *keep);

#endif
