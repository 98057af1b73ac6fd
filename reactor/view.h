/* A view shows the state of a reactor's objects to one reader thread, without a lock: two buffers,
 * of which the reader sees the complete one while the reactor fills the other. The reader requests
 * a newer view by mail; the reactor fills it in slices, one a turn, and publishes it. Neither
 * waits: a late reactor means an older view, and its reader knows the age.
 *
 * At most one request is open, and only the reader makes one. So no buffer is written while it may
 * be read: the reactor fills the hidden one, and it becomes the hidden one only after the reader,
 * done with it, has sent the next request. Allocates at create only. */
#ifndef SL_REACTOR_VIEW_H
#define SL_REACTOR_VIEW_H

#include "reactor/reactor.h"

struct sl_view;

/* Fills slice 0, 1, 2... of the view at `into`, the caller's struct, which keeps its contents from
 * slice to slice, and from the view before the last one. Returns true with the last slice. The
 * slices of a view show different turns. Owner reactor. */
typedef bool sl_view_fill_fn(void *ctx, void *into, uint32_t slice);

/* Creates a view of `bytes`, zeros at first. Errors: NO_MEMORY, TOO_LARGE (SL_LIMIT_LANES). Any
 * thread. */
int sl_view_create(struct sl_reactor *reactor, size_t bytes, sl_view_fill_fn *fill, void *ctx,
                   struct sl_view **out);

/* The reactor runs no more turns, and the reader has ended. Sets *view to NULL. */
void sl_view_destroy(struct sl_view **view);

/* Requests a newer view, unless an earlier request is open. Ends the use of what sl_view_read has
 * returned. Reader. */
void sl_view_request(struct sl_view *view);

/* Whether no request is open. A reactor that turns answers within a turn for each slice. Reader. */
bool sl_view_is_answered(const struct sl_view *view);

/* Returns the last complete view, valid until the next request; NULL: there is none yet. *age_ns:
 * since its first slice, by the reactor's clock. Reader. */
const void *sl_view_read(const struct sl_view *view, uint64_t now_ns, uint64_t *age_ns);

#endif
