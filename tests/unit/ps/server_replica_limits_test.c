/* A shard and its backup, where there are more clients, or less memory, than one of the two has
 * room for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server_pair.h"

/* At the backup those are away, too, who are connected to the primary: there may be more of them
 * than connections. */
static void replica__a_backup_forgets_nobody_whom_its_primary_knows(void **state)
{
    struct pair *pair = *state;
    pair->stepped.server->options.transport_options.connections_max = 2;
    pair->backup->options.transport_options.connections_max = 1;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_join(&pair->other, &pair->stepped, UINT32_MAX, 8);
    stepped_push(&pair->peer, 1, ASP, 10);
    stepped_push(&pair->other, 2, ASP, 10);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
    assert_int_equal(stepped_reply(&pair->other, 2)->status, 0);
    tell(pair, pair->backup, 2, true, false);
    turns(pair, 5);
    pair->peer.hello.shard = 1;
    assert_true(stepped_again(&pair->peer)->welcome.resumed);
    pair->other.hello.shard = 1;
    assert_true(stepped_again(&pair->other)->welcome.resumed);
}

/* There was none for another shard: there is in another epoch. */
static void replica__a_backup_without_memory_is_none_for_an_epoch(void **state)
{
    struct pair *pair = *state;
    begin(pair, UINT32_MAX);
    stepped_open_table(&pair->peer, ASP, SL_CONSISTENCY_ASP);
    stepped_push(&pair->peer, 1, ASP, 10);
    assert_int_equal(stepped_reply(&pair->peer, 1)->status, 0);
    tell(pair, pair->backup, 2, false, false);
    sl_shard_destroy(&pair->backup->shard);
    pair->backup->replica->is_broken = true;
    tell(pair, pair->stepped.server, 2, true, true);
    stepped_pass(&pair->stepped, STEPPED_LEASE + SL_CLOCK_NS_PER_S);
    assert_int_equal(pair->failed_count, 1);
    tell(pair, pair->backup, 3, false, false);
    tell(pair, pair->stepped.server, 3, true, true);
    stepped_pass(&pair->stepped, STEPPED_LEASE);
    assert_int_equal(pair->in_step_count, 2);
    assert_int_equal(pair->err, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, pair_setup, pair_teardown)
    const struct CMUnitTest tests[] = {
        TEST(replica__a_backup_forgets_nobody_whom_its_primary_knows),
        TEST(replica__a_backup_without_memory_is_none_for_an_epoch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
