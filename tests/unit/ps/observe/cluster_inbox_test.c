#include <stdlib.h>

#include "ps/observe/cluster_inbox.h"
#include "tests/support/unit.h"

static struct sl_cluster_inbox inbox;
static uint8_t content[100000];

static bool push(uint32_t task, uint32_t bytes)
{
    const struct sl_cluster_sender sender = {.role = SL_MESSAGE_ROLE_PS, .task_index = task};
    content[0] = (uint8_t)task;
    return sl_cluster_inbox_push(&inbox, &sender, content, bytes);
}

SL_CASE(cluster_inbox__returns_reports_in_order)
{
    sl_cluster_inbox_init(&inbox);
    assert_null(sl_cluster_inbox_pop(&inbox));
    assert_true(push(1, 10));
    assert_true(push(2, 0));
    struct sl_cluster_mail *mail = sl_cluster_inbox_pop(&inbox);
    assert_int_equal(mail->sender.task_index, 1);
    assert_int_equal(mail->byte_count, 10);
    assert_int_equal(mail->bytes[0], 1);
    free(mail);
    sl_cluster_inbox_fini(&inbox); /* frees the other one */
}

SL_CASE(cluster_inbox__is_bounded_in_reports)
{
    sl_cluster_inbox_init(&inbox);
    for (uint32_t i = 0; i < SL_CLUSTER_INBOX_REPORTS; i++) {
        assert_true(push(i, 1));
    }
    assert_false(push(0, 1));
    free(sl_cluster_inbox_pop(&inbox));
    assert_true(push(0, 1));
    sl_cluster_inbox_fini(&inbox);
}

SL_CASE(cluster_inbox__is_bounded_in_bytes)
{
    sl_cluster_inbox_init(&inbox);
    const uint32_t count = SL_CLUSTER_INBOX_BYTES_MAX / sizeof content;
    for (uint32_t i = 0; i < count; i++) {
        assert_true(push(i, sizeof content));
    }
    assert_false(push(0, sizeof content));
    assert_true(push(0, 1000));
    free(sl_cluster_inbox_pop(&inbox));
    assert_true(push(0, sizeof content));
    sl_cluster_inbox_fini(&inbox);
}
