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

struct sl_shared {
    uint8_t *base; /* page-aligned; not touched yet, zeros */
    size_t bytes;  /* whole pages */
    int fd;
    enum sl_shared_access access; /* of who attaches */
};

/* bytes: rounded up to whole pages. `name` shows in /proc/PID/maps. Errors: NO_MEMORY, IO. */
int sl_shared_create(const char *name, size_t bytes, enum sl_shared_access access,
                     struct sl_shared *out);

/* Of who created it: unmaps, closes; those who attached keep what they have. */
void sl_shared_destroy(struct sl_shared *shared);

/* The memory of this process, still created, that holds [at, at + bytes); NULL: none does. The
 * result is a copy of its maker's struct, valid while that is. */
const struct sl_shared *sl_shared_find(const void *at, size_t bytes);

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
bool sl_shared_hollow(struct sl_shared *attached);

/* Moves what is attached to where something hollow of the same size and access is, which is
 * detached by that. False: it stays where it is. */
bool sl_shared_move_into(struct sl_shared *attached, struct sl_shared *hollow);

#endif
