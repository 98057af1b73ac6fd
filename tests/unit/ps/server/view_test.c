#include "ps/server/view.h"

#include <stdlib.h>

#include "reactor/view.h"
#include "stepped.h"

struct shown {
    struct stepped_two *world;
    struct sl_view *view;
};

static void begin(struct shown *shown, struct stepped_two *world)
{
    *shown = (struct shown){.world = world};
    assert_int_equal(sl_view_create(world->stepped.pair.a.reactor, sizeof(struct sl_server_view),
                                    sl_server_view_fill, &world->stepped.server, &shown->view),
                     0);
}

/* Asks for a view, and returns it. */
static const struct sl_server_view *ask(struct shown *shown)
{
    uint64_t age_ns;
    sl_view_request(shown->view);
    stepped_turns(&shown->world->stepped, 4);
    assert_true(sl_view_is_answered(shown->view));
    return sl_view_read(shown->view, shown->world->stepped.pair.now_ns, &age_ns);
}

TWO_CASE(server_view__shows_what_the_server_did)
{
    struct shown shown;
    begin(&shown, world);
    stepped_join_two(&world->first, &world->second, &world->stepped);
    stepped_push_done(&world->second, 2, 1, 500);
    const struct sl_server_view *view = ask(&shown);
    assert_true(view->stage == SL_SERVER_VIEW_OPEN && view->serves);
    assert_int_equal(view->shard_index, 0);
    assert_int_equal(view->shard.table_count, 2);
    assert_int_equal(view->shard.tables[1].stats.rows, 500);
    assert_int_equal(view->shard.tables[1].stats.pushed_rows, 500);
    assert_int_equal(view->shard.workers[0].clock, 1);
    assert_int_equal(view->shard.workers[1].clock, 0);
    assert_int_equal(view->shard.clock_max - view->shard.clock_min, 1);
    sl_view_destroy(&shown.view);
}

TWO_CASE(server_view__hot_keys_lose_half_of_their_weight_in_a_half_life)
{
    struct shown shown;
    begin(&shown, world);
    stepped_join_client(&world->first, &world->stepped);
    stepped_push_done(&world->first, 2, 0, STEPPED_KEYS);
    const uint64_t sampled = ask(&shown)->shard.tables[0].hot.sampled;
    assert_in_range(sampled, STEPPED_KEYS / 64 * 3 / 4, STEPPED_KEYS / 64 * 5 / 4);
    assert_int_equal(ask(&shown)->shard.tables[0].hot.sampled, sampled);
    stepped_pass(&world->stepped, SL_HOT_KEYS_HALF_NS);
    (void)ask(&shown); /* shows, then halves */
    const uint64_t halved = ask(&shown)->shard.tables[0].hot.sampled;
    assert_int_equal(halved, sampled / 2);
    sl_view_destroy(&shown.view);
}

TWO_CASE(server_view__is_empty_without_a_server)
{
    struct sl_server *none = NULL;
    struct sl_server_view *view = calloc(1, sizeof *view);
    assert_non_null(view);
    assert_true(sl_server_view_fill(&none, view, 0));
    assert_int_equal(view->stage, SL_SERVER_VIEW_NO_SHARD);
    free(view);
}
