/* Manifest lists the files of a checkpoint with their sizes and hashes. A checkpoint exists if its
 * manifest does. The file is JSON of exactly this shape ("workers" is optional):
 *
 *     {
 *       "format": "starling checkpoint 1",
 *       "number": 12, "base": 11, "base_id": "…16 hex…", "id": "…16 hex…",
 *       "time": 1769860800, "workers": true, "shard_count": 2,
 *       "files": [
 *         {"name": "shard-0000-of-0002.slc", "shard": 0, "bytes": 100, "hash": "…", "rows": 7},
 *         …one for each shard, ascending…
 *       ],
 *       "hash": "…16 hex…"
 *     }
 *
 * "hash" is the XXH3-64 of all preceding bytes, so that every change is detected. "id" identifies
 * the content (number, base, files), but not the time: all servers write the same id. An
 * incremental names its base's id, so that it is never applied to a later checkpoint of the same
 * number. Pure; any thread; allocates. */
#ifndef SL_PS_CHECKPOINT_MANIFEST_H
#define SL_PS_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/reason.h"

#define SL_CHECKPOINT_NAME_BYTES         32         /* of a shard's file, with NUL */
#define SL_CHECKPOINT_MANIFEST_BYTES_MAX (2U << 20) /* enough for SL_LIMIT_SHARDS files */
#define SL_CHECKPOINT_MANIFEST_NAME      "manifest.json"
#define SL_CHECKPOINT_PART_SUFFIX        ".part" /* of files in progress */

/* A shard's file, as its writer finished it. */
struct sl_checkpoint_entry {
    char name[SL_CHECKPOINT_NAME_BYTES]; /* always sl_checkpoint_file_name of the shard */
    uint32_t shard;
    uint64_t bytes; /* of the file */
    uint64_t hash;  /* that of its end */
    uint64_t rows;  /* of sparse tables */
};

/* Whether some shard had served a worker at its snapshot, so that all agree on whether the job was
 * over. */
enum sl_checkpoint_workers {
    SL_CHECKPOINT_WORKERS_UNKNOWN, /* not recorded: each shard looks at its own file */
    SL_CHECKPOINT_WORKERS_NONE,
    SL_CHECKPOINT_WORKERS_SOME
};

struct sl_checkpoint_manifest {
    uint64_t number;  /* 1 to SL_LIMIT_CHECKPOINT_NUMBER */
    uint64_t base;    /* checkpoint it is based on, below number; 0: it is full */
    uint64_t base_id; /* id of the base; 0: no base */
    uint64_t id;      /* see sl_checkpoint_manifest_id */
    int64_t time_s;   /* Unix time of its start; informational */
    enum sl_checkpoint_workers workers;
    uint32_t shard_count;              /* 1 to SL_LIMIT_SHARDS */
    struct sl_checkpoint_entry *files; /* [shard_count], by shard; owned */
};

/* Writes e.g. "shard-0000-of-0002.slc". */
void sl_checkpoint_file_name(uint32_t shard, uint32_t shard_count,
                             char name[SL_CHECKPOINT_NAME_BYTES]);

/* Returns the `id` of a manifest with these fields. */
uint64_t sl_checkpoint_manifest_id(const struct sl_checkpoint_manifest *manifest);

/* Allocates `files` with their names; everything else is zero. Errors: NO_MEMORY. */
int sl_checkpoint_manifest_init(uint32_t shard_count, struct sl_checkpoint_manifest *out);
void sl_checkpoint_manifest_fini(struct sl_checkpoint_manifest *manifest);

/* Returns the text, allocated, *bytes and a NUL; NULL: no memory. Asserts valid fields and id. */
char *sl_checkpoint_manifest_encode(const struct sl_checkpoint_manifest *manifest, size_t *bytes);

/* Decodes an untrusted manifest, and checks every field. On success *out needs manifest_fini.
 * Errors: CORRUPT (the reason has the field and what is expected), NO_MEMORY. */
int sl_checkpoint_manifest_decode(const char *text, size_t bytes,
                                  struct sl_checkpoint_manifest *out, struct sl_reason *reason);

/* Writes the last bytes of a manifest, with the hash of text[bytes], and a NUL. */
#define SL_CHECKPOINT_SEAL_BYTES 30
void sl_checkpoint_manifest_seal(const char *text, size_t bytes, char to[SL_CHECKPOINT_SEAL_BYTES]);

#endif
