/* A safetensors file as a full checkpoint that a ps restores. A pair NAME.keys (i64 or u64, [n])
 * and NAME.values (f32 [n][dim]) becomes a sparse table NAME, with NAME.lens (i64 [n]) and flat
 * values (f32 or u8) a KV table, and any other f32 tensor a dense table of its name. What an export
 * with slots adds (export.h) is taken too: with NAME.steps and NAME.counts the table goes on as it
 * was; without them it begins anew with these values, and its optimizer's slots as they are at
 * first.
 *
 * A table is SGD with its defaults, zeros, ASP, unless the file's metadata say otherwise, as
 * exports do, or `with` does: "lr=0.1" of all tables, "NAME:optimizer=adagrad,lr=0.1" of one
 * (spec_text.h). What cannot be a table is refused. Memory: 22 to 43 bytes (half as much again
 * while it grows) for each key of the largest table, to find a key that is there twice, and a few
 * MiB. One thread; blocks. */
#ifndef SL_TOOLS_CKPT_IMPORT_H
#define SL_TOOLS_CKPT_IMPORT_H

#include "ps/checkpoint/writer.h"
#include "tools/ckpt/safetensors.h"

struct sl_import_options {
    const char *path;
    const char *directory; /* made unless it is there; its parent is */
    uint64_t number;       /* 0: the one after the last in the directory */
    uint32_t shard_count;  /* files; the input is read once for each */
    uint32_t compression_level;
    const char *const *with; /* [with_count], the later ones count */
    uint32_t with_count;
};

struct sl_import_result {
    uint64_t number;
    struct sl_import_table *tables; /* [table_count]; result_fini */
    uint32_t table_count;
};

/* Errors: INVALID (what cannot be a table, a word in `with`), NOT_FOUND, EXISTS, CORRUPT,
 * NO_MEMORY, IO; with a reason. No checkpoint is left then. */
int sl_import_run(const struct sl_import_options *options, struct sl_import_result *out,
                  char *reason, size_t reason_bytes);
void sl_import_result_fini(struct sl_import_result *result);

#endif
