/* The rails of a route (route.h): opens their lanes, decides which rails carry slices, and reports
 * their state. Owner reactor.
 *
 * Of the types with a similar name, struct sl_rail (rail.h) is a pair of devices, struct
 * sl_transfer_route_rail its lanes and state on one reactor, and struct sl_transfer_rail what users
 * see of it. */
#ifndef SL_NET_TRANSFER_RAILS_H
#define SL_NET_TRANSFER_RAILS_H

#include "net/transfer/route.h"

/* The first call sets the peer's endpoints and rails, which must outlive the route; later calls
 * have no effect. Errors: NO_MEMORY. */
int sl_transfer_rails_create(struct sl_transfer_route *route, const struct sl_endpoint *endpoints,
                             uint32_t endpoint_count, const struct sl_rail *rails,
                             uint32_t rail_count);

/* Returns the rails that carry slices now, as bits: the rails that are up, of the most preferred
 * transport that has any. Rails that were lost a short time ago count only if there are no others.
 * Opens the rails that it looks at. *connects: set to true if none is up yet, but one still
 * connects. */
uint32_t sl_transfer_rails_usable(struct sl_transfer_route *route, bool needs_frames,
                                  bool *connects);

/* Whether frames may be sent. Over RDMA they too would need registered memory, so they would gain
 * nothing. */
bool sl_transfer_rails_carry_frames(const struct sl_transfer_route_rail *rail);

/* Closes all lanes; nothing may be in flight. The next part opens them again, unless their rail is
 * paused. */
void sl_transfer_rails_close(struct sl_transfer_route *route);

/* Updates the state from that of the lanes, and logs a change. reason: why a lane was lost just
 * now; NULL: none was. */
void sl_transfer_rails_update(struct sl_transfer_route *route, struct sl_transfer_route_rail *rail,
                              const char *reason);

/* The peer has refused a lane: its rail is paused. False: no rail can be used until one is opened
 * again. */
bool sl_transfer_rails_refused(struct sl_transfer_route *route, const struct sl_transfer_lane *lane,
                               const char *reason);

/* Writes why the peer has not answered: clauses for each rail that is not up or has not answered.
 */
void sl_transfer_rails_describe(const struct sl_transfer_route *route, char *text,
                                size_t text_bytes);

/* Adds the counters to rails[rail_count]; of two states the worse one counts. */
void sl_transfer_rails_report(const struct sl_transfer_route *route,
                              struct sl_transfer_rail *rails);

#endif
