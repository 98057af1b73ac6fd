/* The manifest of a checkpoint: which files it has, and what they must be. A checkpoint exists
 * where its manifest does. It is JSON, of this shape and no other:
 *
 *     {
 *       "format": "starling checkpoint 1",
 *       "number": 12, "base": 11, "base_id": "…16 hex…", "id": "…16 hex…",
 *       "time": 1769860800, "shard_count": 2,
 *       "files": [
 *         {"name": "shard-0000-of-0002.slc", "shard": 0, "bytes": 100, "hash": "…", "rows": 7},
 *         …one for each shard, ascending…
 *       ],
 *       "hash": "…16 hex…"
 *     }
 *
 * "hash" is the XXH3-64 of all bytes before it, so that any change of the file is found. "id" is
 * that of number, base and the files, but not of the time: it is the same whoever writes the
 * manifest, and a checkpoint that adds to another names that one's id, so that it is never put upon
 * one of the same number that came later. Pure functions; any thread; allocate. */
#ifndef SL_PS_CHECKPOINT_MANIFEST_H
#define SL_PS_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "core/err.h"
#include "core/limits.h"

#define SL_CHECKPOINT_NAME_BYTES         32         /* of a shard's file, with its NUL */
#define SL_CHECKPOINT_MANIFEST_BYTES_MAX (2U << 20) /* for SL_LIMIT_SHARDS files, with room */
#define SL_CHECKPOINT_MANIFEST_NAME      "manifest.json"

/* A shard's file, as its writer ended it. */
struct sl_checkpoint_entry {
    char name[SL_CHECKPOINT_NAME_BYTES]; /* sl_checkpoint_file_name of the shard: nothing else */
    uint32_t shard;
    uint64_t bytes; /* of the file */
    uint64_t hash;  /* that its end carries */
    uint64_t rows;  /* rows of sparse tables in it */
};

/* Whether a shard knew a worker when it was cut, so that all agree on whether the job was over. */
enum sl_checkpoint_workers {
    SL_CHECKPOINT_WORKERS_UNKNOWN, /* it does not say: each shard looks at its own file */
    SL_CHECKPOINT_WORKERS_NONE,
    SL_CHECKPOINT_WORKERS_SOME
};

struct sl_checkpoint_manifest {
    uint64_t number;  /* 1 to SL_LIMIT_CHECKPOINT_NUMBER */
    uint64_t base;    /* the one that this adds to, below number; 0: none, it is full */
    uint64_t base_id; /* of that one; 0 when there is none */
    uint64_t id;      /* sl_checkpoint_manifest_id */
    int64_t time_s;   /* Unix time at which it was asked for; for people only */
    enum sl_checkpoint_workers workers;
    uint32_t shard_count;              /* 1 to SL_LIMIT_SHARDS */
    struct sl_checkpoint_entry *files; /* [shard_count], by shard; owned: manifest_fini */
};

/* "shard-0000-of-0002.slc". */
void sl_checkpoint_file_name(uint32_t shard, uint32_t shard_count,
                             char name[SL_CHECKPOINT_NAME_BYTES]);

/* What `id` of a manifest with these fields is. */
uint64_t sl_checkpoint_manifest_id(const struct sl_checkpoint_manifest *manifest);

/* Allocates `files`, named and zeroed otherwise; the rest of *out is zero. Errors: NO_MEMORY. */
int sl_checkpoint_manifest_init(uint32_t shard_count, struct sl_checkpoint_manifest *out);
void sl_checkpoint_manifest_fini(struct sl_checkpoint_manifest *manifest);

/* The text, allocated, *bytes long and followed by a NUL; NULL: no memory. The fields are within
 * their ranges and the id is right (asserted). */
char *sl_checkpoint_manifest_encode(const struct sl_checkpoint_manifest *manifest, size_t *bytes);

/* Reads a manifest from anywhere: checks every field. On success *out needs manifest_fini. Errors:
 * CORRUPT (reason says what is wrong and what is expected), NO_MEMORY. */
int sl_checkpoint_manifest_decode(const char *text, size_t bytes,
                                  struct sl_checkpoint_manifest *out, char *reason,
                                  size_t reason_bytes);

/* Puts the right hash behind text[bytes], which is all before it, in to[SL_CHECKPOINT_SEAL_BYTES]:
 * the manifest's last bytes, and a NUL. */
#define SL_CHECKPOINT_SEAL_BYTES 30
void sl_checkpoint_manifest_seal(const char *text, size_t bytes, char to[SL_CHECKPOINT_SEAL_BYTES]);

#endif
