/* The leader of the coordinator: under faults by seed, and under single faults. */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "tests/support/unit.h"
#include "tests/unit/ps/coordinator/leader_world.h"

SL_CASE(leader__under_random_faults)
{
    uint32_t told_count = 0;
    uint32_t term_count = 0;
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        struct world world;
        world_make(&world, seed);
        for (uint32_t i = 0; i < STEPS; i++) {
            world_cause_trouble(&world);
            world_step(&world);
        }
        world_heal(&world);
        for (uint32_t i = 0; i < 1500; i++) { /* half a minute */
            world_step(&world);
        }
        assert_int_equal(world_count_leaders(&world), 1);
        assert_non_null(world.members[0].at);
        assert_non_null(world.members[1].at);
        const uint32_t before = world.told_count;
        for (uint32_t i = 0; i < 500; i++) {
            world_step(&world);
        }
        assert_true(world.told_count > before);
        told_count += world.told_count;
        term_count += world.term_count;
        world_end(&world);
    }
    assert_true(told_count > 100 * SEEDS); /* it was not idle */
    assert_true(term_count > 3 * SEEDS);
}

#define CASE(name) SL_CASE_USING(name, struct world, world, world_make, world_end, 2)

/* All of them know the one who leads, and where. */
CASE(leader__all_know_the_leader)
{
    world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        const struct sl_leader_record *known = sl_leader_leader(world->processes[i].leader);
        assert_int_equal(known->term, world->last_term);
        assert_int_equal(world->processes[i].leader_term, world->last_term);
        assert_string_equal(known->endpoint, "tcp://127.0.0.1:1");
        assert_string_equal(known->name, sl_leader_leader(world_holder(world)->leader)->name);
    }
}

/* The revisions of a store that lost its records begin anew: the next leader may have the term of
 * the one before. The others follow it nevertheless. */
CASE(leader__another_one_has_the_same_term)
{
    world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
    const struct process *leader = world_holder(world);
    assert_non_null(leader);
    memory_store_set(world->memory, KEY,
                     "{\"name\":\"ps/9\",\"endpoint\":\"tcp://127.0.0.1:9\",\"id\":\"9\"}");
    assert_int_equal(memory_store_look(world->memory, KEY)->created, world->last_term);
    for (uint32_t i = 0; i < TTL_S * SL_CLOCK_NS_PER_S / STEP; i++) {
        for (uint32_t p = 0; p < PROCESSES; p++) {
            if (&world->processes[p] != leader) {
                sl_leader_tick(world->processes[p].leader);
            }
        }
        (void)memory_store_answer(world->memory);
        world->now_ns += STEP;
    }
    for (uint32_t p = 0; p < PROCESSES; p++) {
        const struct sl_leader_record *known = sl_leader_leader(world->processes[p].leader);
        assert_true(&world->processes[p] == leader || known->id == 9);
    }
    memory_store_set(world->memory, KEY, NULL);
}

/* The store is out of reach: the holder ends by itself, before its lease does; when the store is
 * back somebody goes on. */
CASE(leader__the_metastore_is_away)
{
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 1);
    assert_true(world->told_count > 0);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        memory_store_cut(world->processes[i].metastore, true, false);
    }
    world_run_for(world, TTL_S * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 0);
    world_heal(world);
    world_run_for(world, 10 * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 1);
    assert_int_equal(world->term_count, 2);
}

/* How often the text is in what was logged since stderr went to the file. */
static uint32_t count_logged(FILE *file, const char *text)
{
    char line[512];
    uint32_t count = 0;
    rewind(file);
    while (fgets(line, sizeof line, file) != NULL) {
        count += strstr(line, text) != NULL;
    }
    return count;
}

/* It can be read, and takes nothing: that is said once, and that it is over when it is. */
CASE(leader__the_metastore_is_full)
{
    FILE *file = tmpfile();
    const int old = dup(STDERR_FILENO);
    assert_non_null(file);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        memory_store_fill(world->processes[i].metastore, true);
    }
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    sl_log_setup(SL_LOG_INFO, "test");
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    const uint32_t over_early = count_logged(file, "the cluster store answers again");
    for (uint32_t i = 0; i < PROCESSES; i++) {
        memory_store_fill(world->processes[i].metastore, false);
    }
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    sl_log_setup(SL_LOG_OFF, "test");
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    (void)close(old);
    assert_int_equal(over_early, 0);
    assert_int_equal(count_logged(file, "is out of reach: database space exceeded"), PROCESSES);
    assert_int_equal(count_logged(file, "the cluster store answers again"), PROCESSES);
    assert_int_equal(world_count_leaders(world), 1);
    (void)fclose(file);
}

/* A leader that resigns deletes its key at once, after its records are written. */
CASE(leader__resigns)
{
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    struct process *leader = world_holder(world);
    assert_non_null(leader);
    world_disconnect(world, leader);
    leader->coordinator = NULL;
    sl_leader_resign(leader->leader, false, 60 * SL_CLOCK_NS_PER_S, world_on_resigned, leader);
    world_run_for(world, TTL_S * SL_CLOCK_NS_PER_S - MS);
    assert_true(leader->resigned);
    assert_non_null(world_holder(world)); /* without waiting for the end of the lease */
    assert_ptr_not_equal(world_holder(world), leader);
    world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
    assert_non_null(world->members[1].at);
    sl_leader_destroy(&leader->leader);
}

/* The leader is where the members report to. */
CASE(leader__passes_on_reports)
{
    world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
    const struct member *member = &world->members[1];
    assert_non_null(member->at);
    const struct sl_message message = {.kind = SL_MESSAGE_REPORT};
    sl_coordinator_message(member->at->coordinator, member->peer, &message, world->now_ns);
    assert_int_equal(member->at->report_count, 1);
}

/* The job is over: nothing of it is left. */
CASE(leader__erases)
{
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    assert_true(memory_store_count(world->memory, "jobs/a/state/") > 3);
    struct process *leader = world_holder(world);
    assert_non_null(leader);
    world_end_process(world, leader, true);
    assert_int_equal(memory_store_count(world->memory, "jobs/a/"), 0);
}

/* A client of the store that was not answered asks again: its own claim is in its way. */
CASE(leader__claims_twice)
{
    for (uint32_t i = 0; i < PROCESSES; i++) {
        memory_store_repeat(world->processes[i].metastore, true);
    }
    world_run_for(world, 10 * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 1);
    assert_int_equal(world->term_count, 1);
    assert_true(world->told_count > 0);
}

/* What came while the lease had ended was not sent: an answer that prolongs it then is too late. */
CASE(leader__is_prolonged_too_late)
{
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    struct process *leader = world_holder(world);
    assert_non_null(leader);
    memory_store_hold(leader->metastore, true);
    world_run_for(world, 1 * SL_CLOCK_NS_PER_S); /* it has asked */
    assert_ptr_equal(world_holder(world), leader);
    world->now_ns += 1500 * MS; /* before its next tick */
    memory_store_hold(leader->metastore, false);
    while (memory_store_answer(world->memory)) {
    }
    assert_int_equal(world_count_leaders(world), 0);
    world_run_for(world, 10 * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 1);
}

/* A server of the store was asked first, did not answer, and does it when others have long done it,
 * and more. */
CASE(leader__an_old_write_comes_late)
{
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    struct process *leader = world_holder(world);
    assert_non_null(leader);
    memory_store_remember(leader->metastore);
    world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
    assert_ptr_equal(world_holder(world), leader);
    assert_false(memory_store_play(world->memory));
    world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
    assert_ptr_equal(world_holder(world), leader);
}

/* Somebody else's bytes under our keys: nobody leads, and nobody falls, until they are gone. */
CASE(leader__strange_keys)
{
    static const char *const VALUES[] = {
        "",
        "{}",
        "{\"name\":\"ps/0\",\"endpoint\":\"nowhere\",\"id\":\"1\"}",
        "{\"name\":\"ps/0\",\"endpoint\":\"tcp://a:1\",\"id\":\"x\"}",
    };
    for (size_t i = 0; i < sizeof VALUES / sizeof VALUES[0]; i++) {
        memory_store_set(world->memory, KEY, VALUES[i]);
        world_run_for(world, 5 * SL_CLOCK_NS_PER_S);
        assert_int_equal(world_count_leaders(world), 0);
        assert_int_equal(world->processes[0].leader_term, 0);
        memory_store_set(world->memory, KEY, NULL);
    }
    memory_store_set(world->memory, "jobs/a/state/ps/00007", "{}");
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 0);
    memory_store_set(world->memory, "jobs/a/state/ps/00007", NULL);
    world_run_for(world, 20 * SL_CLOCK_NS_PER_S);
    assert_int_equal(world_count_leaders(world), 1);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
