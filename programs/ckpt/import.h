/* Imports a safetensors file as a full checkpoint for a ps to restore. Tables:
 * - sparse: NAME.keys (i64 or u64, [n]) and NAME.values (f32 [n][dim]);
 * - KV: the same with NAME.lens (i64 [n]) and flat values (f32 or u8);
 * - dense: any other f32 tensor, under its name.
 *
 * The tensors of an export with slots (export.h) are used too. With NAME.steps and NAME.counts the
 * table continues as it was; otherwise it starts anew with these values and initial optimizer
 * slots.
 *
 * A table is SGD with defaults, zeros, ASP, unless the file's metadata (of exports) or `with` say
 * otherwise: "lr=0.1" for all tables, "NAME:optimizer=adagrad,lr=0.1" for one (spec_text.h). Other
 * tensors are refused. Memory, for duplicate keys: 22 to 43 bytes (50 % more while growing) per key
 * of the largest table, and a few MiB. One thread; blocks. */
#ifndef SL_PROGRAMS_CKPT_IMPORT_H
#define SL_PROGRAMS_CKPT_IMPORT_H

#include "core/reason.h"
#include "programs/safetensors/safetensors.h"
#include "ps/checkpoint/writer.h"

struct sl_import_options {
    const char *path;
    const char *directory; /* created if needed, not its parent */
    uint64_t number;       /* 0: the last in the directory + 1 */
    uint32_t shard_count;  /* files; the input is read once for each */
    uint32_t compression_level;
    const char *const *with; /* [with_count], later ones override */
    uint32_t with_count;
};

struct sl_import_result {
    uint64_t number;
    struct sl_import_table *tables; /* [table_count]; result_fini */
    uint32_t table_count;
};

/* Errors: INVALID (a tensor or a word of `with`), NOT_FOUND, EXISTS, CORRUPT, NO_MEMORY, IO; with a
 * reason. Then no checkpoint is left. */
int sl_import_run(const struct sl_import_options *options, struct sl_import_result *out,
                  struct sl_reason *reason);
void sl_import_result_fini(struct sl_import_result *result);

#endif
