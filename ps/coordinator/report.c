#include "ps/coordinator/report.h"

#include "core/clock.h"
#include "net/session/report.h"

#define REPORTS_A_SECOND 2000 /* of all members */
#define PAUSE_NS         (SL_CLOCK_NS_PER_S / 2)

static uint32_t bytes_max(const struct sl_coordinator_member *member)
{
    return sl_coordinator_is_ps(member) ? SL_REPORT_BYTES_MAX : SL_REPORT_BASE_BYTES;
}

/* Whether the rates of the member and of all members allow one more report now. A member may send
 * two in a short time: its last one follows soon after another. */
static bool is_due(struct sl_coordinator *coordinator, const struct sl_coordinator_member *member,
                   uint64_t now_ns)
{
    const uint64_t second = now_ns / SL_CLOCK_NS_PER_S;
    if (coordinator->reports.second != second) {
        coordinator->reports.second = second;
        coordinator->reports.count = 0;
    }
    return (member->reported_before_ns == 0 || now_ns - member->reported_before_ns >= PAUSE_NS) &&
           coordinator->reports.count < REPORTS_A_SECOND;
}

void sl_coordinator_report_take(struct sl_coordinator *coordinator,
                                struct sl_coordinator_member *member,
                                const struct sl_message_report *report, uint64_t now_ns)
{
    struct sl_coordinator_report_cells *cells = coordinator->options.report_cells;
    if (coordinator->options.report == NULL) {
        return; /* the member should not have sent it */
    }
    sl_cell_add(&cells->received, 1);
    if (report->byte_count > bytes_max(member)) {
        sl_cell_add(&cells->too_long, 1);
    } else if (!is_due(coordinator, member, now_ns)) {
        sl_cell_add(&cells->too_frequent, 1);
    } else {
        member->reported_before_ns = member->reported_ns;
        member->reported_ns = now_ns;
        coordinator->reports.count++;
        if (!coordinator->options.report(coordinator->options.ctx, &member->hello, report)) {
            sl_cell_add(&cells->no_room, 1);
        }
    }
}
