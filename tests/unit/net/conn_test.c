#include "core/err.h"
#include "net/conn.h"
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
