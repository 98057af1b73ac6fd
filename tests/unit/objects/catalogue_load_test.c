#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "catalogue_fixture.h"
#include "tests/support/unit.h"

/* CPU time of the catalogue, and of the longest of its answers: ALIVE of a node waits for it. */
static uint64_t all_ns, longest_ns;

static uint64_t cpu_ns(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static const struct sl_objects_message *timed_ask(uint64_t node, struct sl_objects_message message)
{
    const uint64_t from_ns = cpu_ns();
    const struct sl_objects_message *answered = ask(node, message);
    const uint64_t ns = cpu_ns() - from_ns;
    all_ns += ns;
    longest_ns = ns > longest_ns ? ns : longest_ns;
    return answered;
}

static void print_times(const char *what, uint64_t count)
{
    printf("%s: %.2f s, %.0f ns each, the longest answer %.2f ms\n", what, (double)all_ns / 1e9,
           (double)all_ns / (double)count, (double)longest_ns / 1e6);
    all_ns = longest_ns = 0;
}

static void name_of(char name[32], uint32_t index)
{
    (void)snprintf(name, 32, "name-%05u", index);
}

/* Reports all versions of the names that this keeper has. */
static void report(uint64_t keeper, uint32_t names, uint32_t keepers)
{
    uint8_t text[SL_OBJECTS_BATCH_BYTES];
    struct sl_objects_message batch = {.kind = SL_OBJECTS_BATCH, .batch.messages = text};
    char name[32];
    for (uint32_t n = (uint32_t)keeper - 1; n < names; n += keepers) {
        name_of(name, n);
        for (uint64_t v = 1; v <= SL_LIMIT_OBJECTS_VERSIONS; v++) {
            struct sl_objects_message held = commit_of(0, name, v, 1, v);
            held.kind = SL_OBJECTS_HOLD;
            held.name = name;
            held.version = v;
            held.commit.blocks = PART_BLOCKS;
            held.commit.record.time_ms = v;
            held.commit.record.origin = SL_ORIGIN_PS;
            assert_true(sl_objects_message_batch(&batch, text, &held));
            if (batch.batch.bytes > sizeof text - SL_OBJECTS_BATCH_ROOM) {
                assert_int_equal(timed_ask(keeper, batch)->err, 0);
                batch.batch.bytes = 0;
            }
        }
    }
    assert_int_equal(batch.batch.bytes > 0 ? timed_ask(keeper, batch)->err : 0, 0);
}

/* Lists page by page, as sl_object_list does, and expects each version once, in order. */
static void expect_all(uint32_t names)
{
    char name[32] = "", wanted[32];
    uint64_t count = 0, version = 0;
    bool has_more = true;
    while (has_more) {
        const struct sl_objects_message *page = timed_ask(1, list_of("", name, version));
        assert_int_equal(page->err, 0);
        has_more = page->list.more != 0;
        for (uint32_t i = 0; i < page->list.entry_count; i++, count++) {
            version = count % SL_LIMIT_OBJECTS_VERSIONS + 1;
            name_of(wanted, (uint32_t)(count / SL_LIMIT_OBJECTS_VERSIONS));
            assert_string_equal(page->list.entries[i].name, wanted);
            assert_int_equal(page->list.entries[i].version, version);
            assert_int_equal(page->list.entries[i].holders, 1);
        }
        memcpy(name, wanted, sizeof name);
    }
    assert_int_equal(count, (uint64_t)names * SL_LIMIT_OBJECTS_VERSIONS);
}

/* STARLING_TEST_NAMES=65536 fills the catalogue to its limits. */
SL_CASE(restart__lists_all_versions_that_keepers_report)
{
    enum { KEEPERS = 4 };
    const char *text = getenv("STARLING_TEST_NAMES");
    const uint32_t names = text != NULL ? (uint32_t)atoi(text) : 320;
    const uint64_t count = (uint64_t)names * SL_LIMIT_OBJECTS_VERSIONS;
    begin_catalogue(500, 0);
    const size_t before = mallinfo2().uordblks;
    for (uint64_t keeper = 1; keeper <= KEEPERS; keeper++) {
        assert_int_equal(attach(keeper), 0);
        report(keeper, names, KEEPERS);
    }
    print_times("reports", count);
    printf("%.0f bytes for each version\n",
           (double)(mallinfo2().uordblks - before) / (double)count);
    now_ms += LEASE_MS / 3;
    for (uint64_t keeper = 1; keeper <= KEEPERS; keeper++) {
        assert_int_equal(timed_ask(keeper, (struct sl_objects_message){.kind = SL_OBJECTS_ALIVE,
                                                                       .attach.location = ""})
                             ->err,
                         0);
    }
    sl_objects_catalogue_tick(catalogue, now_ms);
    print_times("ALIVE", KEEPERS);
    expect_all(names);
    print_times("list", count);

    /* A keeper ends: its copies go in turns, between which others are answered. */
    char last[32];
    name_of(last, names - 1);
    const struct sl_objects_message detach = {.kind = SL_OBJECTS_DETACH};
    assert_int_equal(timed_ask(KEEPERS, detach)->err, 0);
    print_times("DETACH", 1);
    while (ask(1, list_of(last, "", 0))->list.entry_count > 0) {
        now_ms = sl_objects_catalogue_next_ms(catalogue);
        sl_objects_catalogue_tick(catalogue, now_ms);
        assert_int_equal(alive(1), 0);
    }
    end_catalogue();
}
