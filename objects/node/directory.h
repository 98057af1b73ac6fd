/* Directory has the files of a keeper, which the next process of its host finds again:
 * - NAME/VERSION.PART.data: the part as it is stored (manifest.h). In NAME, "/", "%" and a leading
 *   "." are written as %2F, %25 and %2E.
 * - NAME/VERSION.PART.record: until the commit the STORE of its publisher; then the version's
 *   record, as a HOLD. A record is written beside and renamed, the first one before the data has
 *   its name.
 * - VERSION.PART.data~ and record~: being written. VERSION.PART.removed: a record whose data is
 *   being removed. The next start removes these, with a log line; other files stay, with a log
 * line.
 *
 * Files are from outside: a record is checked against its place, and bytes of the data count when
 * they match the digests of the record and of the manifest.
 *
 * Owner: the node's reactor; files are read and written on one offload thread, in order. Allocates.
 */
#ifndef SL_OBJECTS_NODE_DIRECTORY_H
#define SL_OBJECTS_NODE_DIRECTORY_H

#include "net/transfer/async.h"
#include "objects/node/copy.h"
#include "objects/node/pool.h"
#include "reactor/disk.h"

struct sl_objects_directory;

/* A part: one that was committed, or, if the record has no time, one that may have been. The
 * message is a HOLD with record, valid during the call. */
typedef void sl_objects_directory_found_fn(void *ctx, const struct sl_objects_message *hold);

/* Makes the directory if there is none, reports each part, and removes what is incomplete. Blocks:
 * before the node's start. disk NULL: the machine's own, which is locked until close. Errors, with
 * a reason: EXISTS (another process has it), NO_MEMORY, and those of the disk. */
int sl_objects_directory_open(const struct sl_disk *disk, const char *path,
                              sl_objects_directory_found_fn *found, void *ctx,
                              struct sl_objects_directory **out, struct sl_reason *reason);

/* On the reactor, before what follows. Errors: those of sl_offload_create. */
int sl_objects_directory_start(struct sl_objects_directory *directory, struct sl_reactor *reactor);

/* On the reactor: removals that failed are tried once more, then no more. */
void sl_objects_directory_stop(struct sl_objects_directory *directory);

/* On the reactor, if it was started, when nothing is in progress. Nulls *directory. NULL is
 * allowed. */
void sl_objects_directory_close(struct sl_objects_directory **directory);

/* Whether something is in progress. */
bool sl_objects_directory_is_busy(const struct sl_objects_directory *directory);

/* Each calls done, in a later turn but for NO_MEMORY: 0, or an error whose reason names the file.
 */

/* Writes the whole copy, which stays as it is until then, with its record before the commit: EXISTS
 * if there are files of the part. record NULL: replaces the data of a part that has a record. After
 * an error the caller removes what may be left, but not after EXISTS. */
int sl_objects_directory_write(struct sl_objects_directory *directory,
                               const struct sl_objects_copy *copy,
                               const struct sl_objects_record *record, sl_transfer_done_fn *done,
                               void *ctx);

/* Replaces the record. */
int sl_objects_directory_commit(struct sl_objects_directory *directory,
                                const struct sl_objects_record *record, uint32_t part,
                                sl_transfer_done_fn *done, void *ctx);

/* Reads bytes from `remote`, an offset in the data, on to `local`, for each request; done gets
 * CORRUPT if the file ends before. */
int sl_objects_directory_read(struct sl_objects_directory *directory,
                              const struct sl_objects_pool_key *key,
                              const struct sl_transfer_request *requests, uint32_t count,
                              sl_transfer_done_fn *done, void *ctx);

/* Stores the highest number of a version that the catalogue of this node has given. */
int sl_objects_directory_mark(struct sl_objects_directory *directory, uint64_t number,
                              sl_transfer_done_fn *done, void *ctx);

/* The number that was stored when the directory was opened; 0: it was empty. False: it had parts,
 * and no number. */
bool sl_objects_directory_marked(const struct sl_objects_directory *directory, uint64_t *number);

/* In the background. Tries again each second until the files are removed, or the directory stops.
 */
void sl_objects_directory_remove(struct sl_objects_directory *directory,
                                 const struct sl_objects_pool_key *key);

/* "PATH/NAME/VERSION.PART.data", truncated to bytes. */
void sl_objects_directory_describe(const struct sl_objects_directory *directory,
                                   const struct sl_objects_pool_key *key, char *to, size_t bytes);

#endif
