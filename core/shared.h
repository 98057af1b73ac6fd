/* Creates memory that other processes of the host can map, and maps memory of others. The memory is
 * a memfd, sealed against a change of size, so that its creator cannot make an access fault. A
 * process can find its own shared memory by address. Any thread; takes a lock: not on the data
 * path. */
#ifndef SL_CORE_SHARED_H
#define SL_CORE_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

enum sl_shared_access {
    SL_SHARED_READ, /* peers only read (sealed against writes), the creator writes */
    SL_SHARED_WRITE /* peers write too */
};

struct sl_shared_hold; /* the creator's state of its memory: pinned, revoked */

struct sl_shared {
    uint8_t *base; /* page-aligned; initially untouched zeros */
    size_t bytes;  /* whole pages */
    int fd;
    enum sl_shared_access access; /* of peers */
    struct sl_shared_hold *hold;  /* of the creator; NULL: attached memory */
};

/* Creates memory of `bytes`, rounded up to whole pages. `name` appears in /proc/PID/maps. Errors:
 * NO_MEMORY, IO. */
int sl_shared_create(const char *name, size_t bytes, enum sl_shared_access access,
                     struct sl_shared *out);

/* By the creator: unmaps and closes the memory. Peers keep their mappings. */
void sl_shared_destroy(struct sl_shared *shared);
/* The same, but leaves the memory mapped at its base: the caller unmaps it. */
void sl_shared_keep(struct sl_shared *shared);

/* Returns the memory, created by this process and not revoked, that holds [at, at + bytes); NULL:
 * none. The result is a copy of the creator's struct, valid until destroy. */
const struct sl_shared *sl_shared_find(const void *at, size_t bytes);

/* Revoking memory that a peer may still write.
 *
 * No process can remove a mapping of another process. Revoking instead gives the creator other
 * pages, at the same address and with the same contents: later writes of the peer go to pages that
 * the creator does not see. Other threads may read and write the memory meanwhile. */

/* Revokes created WRITE memory, and gives the creator its own copy of [at, at + bytes). From then
 * on sl_shared_find skips the whole memory, and peers' writes appear only at sl_shared_at_peers.
 * Errors: UNSUPPORTED (a device has pinned the pages), NO_MEMORY: peers' writes still appear. */
int sl_shared_revoke(const struct sl_shared *shared, const void *at, size_t bytes);
bool sl_shared_is_revoked(const struct sl_shared *shared);

/* Excludes the created memory that holds [at, at + bytes) from revoking: a device reads or writes
 * its pages, so they must not be replaced. Memory that was not created here is ignored. */
void sl_shared_pin(const void *at, size_t bytes);

/* Whether peers may be asked to write to the memory: WRITE memory that can be, but is not,
 * revoked. */
bool sl_shared_may_land(const struct sl_shared *shared);

/* The memory as peers see it: its base, or another address once it is revoked. */
uint8_t *sl_shared_at_peers(const struct sl_shared *shared);

/* Limits of all attached memory of a process: peers must not exhaust its address space, which
 * untouched memory needs too, or its number of mappings. */
#define SL_SHARED_ATTACHED_BYTES_MAX (64ULL << 40)
#define SL_SHARED_ATTACHED_MAX       32000U

/* Maps memory of another process, after checking that it is sealed against shrinking, has
 * exactly `bytes`, and that `bytes` is at most bytes_max. On success takes over and closes the
 * descriptor (out->fd is -1). Errors: INVALID (not sealed, another size, not a memfd),
 * TOO_LARGE, NO_MEMORY. */
int sl_shared_attach(int fd, size_t bytes, size_t bytes_max, enum sl_shared_access access,
                     struct sl_shared *out);
void sl_shared_detach(struct sl_shared *shared);

/* Replaces attached memory by an empty placeholder at the same address: zeros private to this
 * process, with the same access. The placeholder must still be detached. False: no memory. */
bool sl_shared_unmap_in_place(struct sl_shared *attached);

/* Moves attached memory to the address of a placeholder with the same size and access, and detaches
 * the placeholder. False: nothing has moved. */
bool sl_shared_move_into(struct sl_shared *attached, struct sl_shared *placeholder);

/* Splits a placeholder: the first `bytes` (whole pages, less than all) stay, *rest gets the others.
 * False: the limit of attachments is reached. */
bool sl_shared_split(struct sl_shared *placeholder, size_t bytes, struct sl_shared *rest);

/* Joins two placeholders with the same access if the second begins at the end of the first; the
 * first then covers both. False: they are not adjacent, differ in access, or the second is
 * empty. */
bool sl_shared_join(struct sl_shared *first, struct sl_shared *second);

#endif
