/* Memory that other processes of this machine can map: a memfd, sealed so that it neither shrinks
 * nor grows, which is what makes it safe to touch whatever its maker does. What a process shares it
 * can find again by address. Any thread; takes a lock: not on the data path. */
#ifndef SL_CORE_SHARED_H
#define SL_CORE_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/err.h"

enum sl_shared_access {
    SL_SHARED_READ, /* who attaches reads only (sealed against it), its maker writes */
    SL_SHARED_WRITE /* who attaches writes too */
};

struct sl_shared_hold; /* what becomes of memory that was created */

struct sl_shared {
    uint8_t *base; /* page-aligned; not touched yet, zeros */
    size_t bytes;  /* whole pages */
    int fd;
    enum sl_shared_access access; /* of who attaches */
    struct sl_shared_hold *hold;  /* of its creator; NULL: it was attached */
};

/* bytes: rounded up to whole pages. `name` shows in /proc/PID/maps. Errors: NO_MEMORY, IO. */
int sl_shared_create(const char *name, size_t bytes, enum sl_shared_access access,
                     struct sl_shared *out);

/* Of who created it: unmaps, closes; those who attached keep what they have. */
void sl_shared_destroy(struct sl_shared *shared);

/* The memory of this process, still created and not revoked, that holds [at, at + bytes); NULL:
 * none does. The result is a copy of its maker's struct, valid while that is. */
const struct sl_shared *sl_shared_find(const void *at, size_t bytes);

/* ---- Taking memory back from a process that may still write it --------------------------------
 * A mapping of another process cannot be taken from it. Revoking gives the creator other pages
 * instead, at the same address and with the same contents: what the other process writes later goes
 * to pages that the creator does not see. Other threads may read and write the memory meanwhile. */

/* [at, at + bytes) of WRITE memory that was created. From now on none of the memory is found by
 * find, and what peers write is at sl_shared_at_peers only. Errors: UNSUPPORTED (a device has
 * pinned the pages), NO_MEMORY: then writes of others still show. */
int sl_shared_revoke(const struct sl_shared *shared, const void *at, size_t bytes);
bool sl_shared_is_revoked(const struct sl_shared *shared);

/* The pages that hold it, wherever it was created, must stay in their place: a device reads or
 * writes them. Such memory cannot be revoked. Memory that nobody created is left alone. */
void sl_shared_pin(const void *at, size_t bytes);

/* Whether peers may be asked to write there: it is WRITE memory that can be revoked, and is not. */
bool sl_shared_may_land(const struct sl_shared *shared);

/* The memory as those who attached it see it: its base, or another address once it is revoked. */
uint8_t *sl_shared_at_peers(const struct sl_shared *shared);

/* A process attaches no more than this at a time: what others lend may take neither its address
 * space, of which memory that is never touched needs as much as any, nor all its mappings. */
#define SL_SHARED_ATTACHED_BYTES_MAX (64ULL << 40)
#define SL_SHARED_ATTACHED_MAX       32000U

/* Maps what another process created, after checking that it is sealed against shrinking, that its
 * size is the one that was said, at most bytes_max. Takes the descriptor over, on success only, and
 * closes it (out->fd is -1).
 * Errors: INVALID (not sealed, another size, not a memfd), TOO_LARGE, NO_MEMORY. */
int sl_shared_attach(int fd, size_t bytes, size_t bytes_max, enum sl_shared_access access,
                     struct sl_shared *out);
void sl_shared_detach(struct sl_shared *shared);

/* What is attached leaves its address to nothing: zeros of this process alone, which can be written
 * where it could be. It still has to be detached. False: no memory. */
bool sl_shared_unmap_in_place(struct sl_shared *attached);

/* Moves what is attached to where something hollow of the same size and access is, which is
 * detached by that. False: it stays where it is. */
bool sl_shared_move_into(struct sl_shared *attached, struct sl_shared *unmap_in_place);

/* Of something hollow, the first `bytes`, whole pages and not all, stay; the rest is *rest. False:
 * no more can be attached. */
bool sl_shared_split(struct sl_shared *unmap_in_place, size_t bytes, struct sl_shared *rest);

/* Where the second begins where the first ends, with the same access, both hollow, the first
 * becomes both. False: they do not touch, or the second is nothing. */
bool sl_shared_join(struct sl_shared *first, struct sl_shared *second);

#endif
