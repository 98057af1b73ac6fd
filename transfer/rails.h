/* The rails of a route: opens their lanes, decides which rails carry slices, and reports their
 * state. Owner reactor. */
#ifndef SL_TRANSFER_RAILS_H
#define SL_TRANSFER_RAILS_H

#include "transfer/route.h"

/* Takes the peer's endpoints and rails, which outlive the route and do not change. Errors:
 * NO_MEMORY. */
int sl_transfer_rails_create(struct sl_transfer_route *route, const struct sl_endpoint *endpoints,
                             uint32_t endpoint_count, const struct sl_rail *rails,
                             uint32_t rail_count);

/* Returns the rails that carry slices now, as bits: those that are up of the first scheme that has
 * such, and were not lost a short time ago. Opens the rails that it looks at. *connects: set if a
 * scheme has none yet. */
uint32_t sl_transfer_rails_usable(struct sl_transfer_route *route, bool needs_frames,
                                  bool *connects);

/* Frames over RDMA would need memory that is registered there, as one-sided operations do. */
bool sl_transfer_rails_carry_frames(const struct sl_transfer_route_rail *rail);

uint32_t sl_transfer_rails_in_flight(const struct sl_transfer_route_rail *rail);

/* Closes all lanes, which have nothing in flight. The next part opens them again. */
void sl_transfer_rails_close(struct sl_transfer_route *route);

/* Logs a change of state. reason: of the last lane's end; NULL: none has ended now. */
void sl_transfer_rails_look(struct sl_transfer_route *route, struct sl_transfer_route_rail *rail,
                            const char *reason);

/* The peer has refused a lane, which is opened again later. False: no rail is left meanwhile. */
bool sl_transfer_rails_refused(struct sl_transfer_route *route, const struct sl_transfer_lane *lane,
                               const char *reason);

/* Writes why the peer has not answered: one clause for each rail. */
void sl_transfer_rails_describe(const struct sl_transfer_route *route, char *text,
                                size_t text_bytes);

/* Adds counters and state to rails[rail_count]. */
void sl_transfer_rails_report(const struct sl_transfer_route *route,
                              struct sl_transfer_rail *rails);

#endif
