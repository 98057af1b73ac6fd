#include "core/err.h"
#include "net/conn.h"
#include "net/transport.h"
#include "tests/support/unit.h"

SL_CASE(conn_fail__the_first_failure_counts)
{
    struct sl_conn conn = {.state = SL_CONN_OPEN};
    assert_false(sl_conn_fail(&conn, SL_ERR_PROTOCOL, "it sent no frame"));
    assert_int_equal(conn.state, SL_CONN_CLOSING);
    assert_false(sl_conn_fail(&conn, SL_ERR_DEADLINE, NULL));
    assert_int_equal(conn.failure, SL_ERR_PROTOCOL);
    assert_string_equal(conn.failure_text, "it sent no frame");
    assert_int_equal(conn.state, SL_CONN_CLOSING);
}

static void on_closed(void *ctx, struct sl_conn *conn, int err)
{
    *(int *)ctx += 1;
}

SL_CASE(conn_report_closed__counts_by_reason)
{
    static const struct sl_transport_ops ops = {.scheme = "test"};
    static const struct sl_transport_events events = {.closed = on_closed};
    static const struct {
        int err;
        enum sl_transport_end end;
    } reasons[] = {
        {SL_OK, SL_TRANSPORT_END_DISCONNECTED},
        {SL_ERR_CANCELLED, SL_TRANSPORT_END_DISCONNECTED},
        {SL_ERR_CLOSED, SL_TRANSPORT_END_CLOSED},
        {SL_ERR_DEADLINE, SL_TRANSPORT_END_UNREACHABLE},
        {SL_ERR_PROTOCOL, SL_TRANSPORT_END_PROTOCOL},
        {SL_ERR_NO_MEMORY, SL_TRANSPORT_END_OTHER},
    };
    struct sl_transport_cells cells = {0};
    struct sl_transport transport = {.ops = &ops, .cells = &cells};
    int upcalls = 0;
    uint64_t seen[SL_TRANSPORT_ENDS] = {0};
    for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
        struct sl_conn conn = {.state = SL_CONN_OPEN};
        conn.transport = &transport;
        conn.events = &events;
        conn.ctx = &upcalls;
        sl_conn_report_closed(&conn, reasons[i].err);
        assert_int_equal(upcalls, i + 1);
        assert_int_equal(sl_cell_get(&cells.ends[reasons[i].end]), ++seen[reasons[i].end]);
    }
}
