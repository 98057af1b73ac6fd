/* What a catalogue does with versions that it does not know: after a restart, or when their keeper
 * was away. */
#include <stdio.h>

#include "core/hash.h"
#include "objects/catalogue/tombstones.h"
#include "tests/support/unit.h"
#include "tests/unit/objects/catalogue_fixture.h"

#define CASE(name) SL_CASE_WITH(name, begin_catalogue_of_six(), end_catalogue())

static struct sl_objects_message hold_with(const struct sl_objects_record *record, uint32_t blocks)
{
    return (struct sl_objects_message){
        .kind = SL_OBJECTS_HOLD,
        .name = record->name,
        .version = record->version,
        .commit = {.blocks = blocks, .record_count = 1, .record = *record}};
}

/* Its texts outlive the answer. */
static struct sl_objects_record record_of(const char *name, uint64_t version)
{
    struct sl_objects_record record = find(2, name, version)->commit.record;
    record.name = name;
    record.note = "";
    return record;
}

CASE(restart__learns_from_nodes_what_they_hold)
{
    uint64_t epoch, version;
    (void)publish(1, "llama");
    const struct sl_objects_record record = record_of("llama", 1);
    begin_catalogue(500, 3000);
    known_term = 1000;
    for (uint64_t node = 1; node <= 4; node++) {
        assert_int_equal(alive(node), SL_ERR_AGAIN);
        assert_int_equal(attach(node), 0);
    }
    assert_int_equal(find(3, "llama", 1)->err, SL_ERR_AGAIN);
    assert_int_equal(begin(2, "llama", 0, &epoch, &version), SL_ERR_AGAIN);
    assert_int_equal(ask(1, commit_of(1, "lama", 1, record.epoch, 1))->err, SL_ERR_AGAIN);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->err, SL_ERR_AGAIN);
    assert_int_equal(ask(4, of_name(SL_OBJECTS_FOLLOW, "llama", 1))->commit.record_count, 0);
    (void)ask(2, hold_with(&record, 1));
    (void)ask(1, hold_with(&record, PART_BLOCKS));
    assert_int_equal(find(3, "llama", 1)->news.parents[0].node, 1);
    const struct sl_objects_message *news = received(3);
    assert_int_equal(news->commit.record.time_ms, record.time_ms);
    assert_null(received(4));
    pass(3000, 4);
    assert_int_equal(find(3, "lama", 1)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(begin(2, "llama", 0, &epoch, &version), SL_ERR_EXISTS);
    assert_int_equal(ask(1, commit_of(1, "llama", 2, record.epoch, 2))->err, 0);
    assert_int_equal(begin(2, "llama", SL_OBJECTS_TAKE_OVER, &epoch, &version), 0);
    assert_true(epoch > record.epoch);
    assert_int_equal(version, 3);
}

/* Records that an earlier catalogue stored: numbers keep their contents and are not used again. A
 * version without a copy is forgotten after a lease. */
CASE(restart__loads_records)
{
    uint64_t epoch, version;
    (void)publish(1, "llama");
    const struct sl_objects_record one = record_of("llama", 1);
    (void)publish(1, "llama");
    const struct sl_objects_record two = record_of("llama", 2);
    begin_catalogue(500, 3000);
    sl_objects_catalogue_load(catalogue, &one);
    sl_objects_catalogue_load(catalogue, &two);
    assert_int_equal(attach(1), 0);
    assert_int_equal(attach(2), 0);
    assert_int_equal(find(2, "llama", 3)->err, SL_ERR_AGAIN);
    pass(300, 2);
    assert_int_equal(find(2, "llama", 3)->err, SL_ERR_AGAIN); /* there was an earlier one */
    hold(1, "llama", 2, PART_BLOCKS);
    pass(2700, 2);
    assert_int_equal(find(2, "llama", 0)->news.parents[0].node, 1);
    assert_int_equal(ask(1, commit_of(1, "llama", 2, two.epoch, 99))->err, SL_ERR_EXISTS);
    pass(LEASE_MS, 2);
    assert_int_equal(find(2, "llama", 2)->err, 0);
    assert_int_equal(find(2, "llama", 1)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(version, 3);
}

CASE(restart__of_a_catalogue_that_nobody_knew_takes_a_moment)
{
    begin_catalogue(500, 3000);
    assert_int_equal(attach(1), 0);
    assert_int_equal(find(1, "llama", 1)->err, SL_ERR_AGAIN);
    assert_int_equal(ask(1, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->err, SL_ERR_AGAIN);
    pass(300, 1);
    assert_int_equal(find(1, "llama", 1)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(ask(1, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->err, 0);
    (void)publish(1, "llama");
}

/* A keeper returns long after the catalogue's start, or its report is late. */
CASE(hold__of_an_unknown_version_restores_it_at_any_time)
{
    (void)publish(1, "llama");
    const struct sl_objects_record record = record_of("llama", 1);
    begin_catalogue(500, 0);
    for (uint64_t node = 1; node <= 6; node++) {
        assert_int_equal(attach(node), 0);
    }
    pass(3 * LEASE_MS, 6);
    (void)ask(3, hold_with(&record, PART_BLOCKS));
    assert_null(received(3));
    assert_int_equal(find(2, "llama", 1)->err, 0);
    assert_int_equal(holders_of("llama"), 1);
}

CASE(hold__of_a_removed_version_is_retired)
{
    (void)publish(1, "llama");
    const struct sl_objects_record record = record_of("llama", 1);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    pass(LEASE_MS, 6);
    while (received(1) != NULL) {
    }
    assert_int_equal(attach(4), 0); /* it was away */
    (void)ask(4, hold_with(&record, PART_BLOCKS));
    const struct sl_objects_message *retired = received(4);
    assert_int_equal(retired->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(retired->version, 1);
    assert_int_equal(retired->digest.low, record.parts[0].digest.low);
    assert_int_equal(find(2, "llama", 1)->err, SL_ERR_NOT_FOUND);
}

CASE(hold__of_a_version_that_was_removed_and_published_again_is_kept)
{
    uint64_t epoch, version;
    (void)publish(1, "llama");
    const struct sl_objects_record record = record_of("llama", 1);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    assert_int_equal(received(1)->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_of(1, "llama", 1, epoch, 1))->err, 0);
    (void)ask(1, of_name(SL_OBJECTS_DROP, "llama", 1));
    assert_int_equal(find(2, "llama", 1)->err, SL_ERR_NOT_FOUND);
    (void)ask(4, hold_with(&record, PART_BLOCKS));
    assert_null(received(4));
    assert_int_equal(find(2, "llama", 1)->err, 0);
}

/* The tombstones of a catalogue are bounded: without its one, a version comes back. */
CASE(hold__of_a_version_that_was_removed_long_ago_restores_it)
{
    (void)publish(1, "llama");
    const struct sl_objects_record record = record_of("llama", 1);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    for (uint32_t i = 0; i < 24 * SL_OBJECTS_TOMBSTONE_ROWS; i++) {
        (void)publish(1, "other");
        assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "other", 0))->err, 0);
        while (received(1) != NULL) {
        }
    }
    (void)ask(4, hold_with(&record, PART_BLOCKS));
    assert_null(received(4));
    assert_int_equal(find(2, "llama", 1)->err, 0);
}

/* Two commits of one number: no file is removed, and readers get the newer one. */
CASE(hold__of_other_bytes_is_found_if_its_commit_is_newer)
{
    (void)publish(1, "llama");
    struct sl_objects_record record = record_of("llama", 1);
    record.parts[0].digest.high++;
    record.time_ms--;
    (void)ask(3, hold_with(&record, PART_BLOCKS));
    assert_null(received(3));
    assert_int_equal(find(2, "llama", 1)->commit.record.parts[0].digest.high, 0);
    record.time_ms += 2;
    record.parts[0].digest.high++;
    (void)ask(3, hold_with(&record, PART_BLOCKS));
    assert_null(received(3));
    assert_null(received(1));
    const struct sl_objects_message *found = find(2, "llama", 1);
    assert_int_equal(found->commit.record.parts[0].digest.high, 2);
    assert_int_equal(found->news.parents[0].node, 3);
}

/* And not before: neither was removed. */
CASE(hold__of_other_bytes_is_retired_with_the_number)
{
    (void)publish(1, "llama");
    struct sl_objects_record record = record_of("llama", 1);
    record.parts[0].digest.high++;
    record.time_ms--;
    (void)ask(3, hold_with(&record, PART_BLOCKS));
    assert_null(received(3));
    assert_int_equal(ask(2, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    (void)ask(3, hold_with(&record, PART_BLOCKS));
    const struct sl_objects_message *retired = received(3);
    assert_int_equal(retired->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(retired->digest.high, record.parts[0].digest.high);
    assert_int_equal(find(2, "llama", 1)->err, SL_ERR_NOT_FOUND);
}

CASE(hold__of_earlier_bytes_does_not_retire_what_the_node_has_now)
{
    uint64_t epoch, version;
    (void)publish(1, "llama");
    const struct sl_objects_record record = record_of("llama", 1);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    assert_int_equal(received(1)->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_of(1, "llama", 1, epoch, 99))->err, 0);
    (void)ask(1, hold_with(&record, PART_BLOCKS));
    assert_null(received(1));
    assert_int_equal(holders_of("llama"), 1);
}

/* The catalogue has another --keep-versions than the one before. */
CASE(retention__is_at_commits_only)
{
    struct sl_objects_record records[5];
    uint64_t epoch, version;
    for (uint32_t i = 0; i < 5; i++) {
        (void)publish(1, "llama");
        records[i] = record_of("llama", i + 1);
        records[i].origin = SL_ORIGIN_PS;
    }
    begin_catalogue(500, 0);
    assert_int_equal(attach(1), 0);
    for (uint32_t i = 0; i < 5; i++) {
        (void)ask(1, hold_with(&records[i], PART_BLOCKS));
    }
    assert_null(received(1));
    assert_int_equal(ask(1, list_of("", "", 0))->list.entry_count, 5);
    assert_int_equal(begin(1, "llama", SL_OBJECTS_TAKE_OVER, &epoch, &version), 0);
    struct sl_objects_message message = commit_of(1, "llama", version, epoch, 6);
    message.commit.record.origin = SL_ORIGIN_HOST;
    assert_int_equal(ask(1, message)->err, 0);
    for (uint64_t i = 3; i > 0; i--) {
        const struct sl_objects_message *retired = received(1);
        assert_int_equal(retired->kind, SL_OBJECTS_RETIRE);
        assert_int_equal(retired->version, i);
    }
    assert_null(received(1));
}

CASE(restart__accepts_a_commit_of_an_epoch_that_is_new_to_it)
{
    uint64_t epoch, version, newer;
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(begin(2, "llama", SL_OBJECTS_TAKE_OVER, &newer, &version), 0);
    begin_catalogue(1, 0);
    assert_int_equal(attach(1), 0);
    assert_int_equal(attach(2), 0);
    assert_int_equal(ask(1, commit_of(1, "llama", 1, epoch, 1))->err, 0);
    assert_int_equal(ask(2, commit_of(2, "llama", 2, newer, 2))->err, 0);
    assert_int_equal(ask(1, commit_of(1, "llama", 3, epoch, 3))->err, SL_ERR_CLOSED);
    assert_int_equal(ask(1, commit_of(1, "llama", 3, UINT64_MAX, 3))->err, SL_ERR_INVALID);
}

/* Reports */

static struct sl_objects_message attach_of(uint64_t node, uint32_t kind, uint32_t roles)
{
    return (struct sl_objects_message){
        .kind = kind, .attach.host = node, .attach.location = "", .attach.roles = roles};
}

CASE(batch__restores_the_versions_that_it_holds)
{
    uint8_t text[SL_OBJECTS_BATCH_BYTES];
    struct sl_objects_message batch = {.kind = SL_OBJECTS_BATCH, .batch.messages = text};
    (void)publish(1, "llama");
    struct sl_objects_record record = record_of("llama", 1);
    begin_catalogue(500, 0);
    assert_int_equal(attach(1), 0);
    for (uint32_t i = 1; i <= 10; i++) {
        record.version = i;
        const struct sl_objects_message item = hold_with(&record, PART_BLOCKS);
        assert_true(sl_objects_message_batch(&batch, text, &item));
    }
    assert_int_equal(ask(1, batch)->err, 0);
    assert_int_equal(find(1, "llama", 0)->commit.record.version, 10);
    const struct sl_objects_message other = of_name(SL_OBJECTS_DROP, "llama", 1);
    assert_true(sl_objects_message_batch(&batch, text, &other));
    assert_int_equal(ask(1, batch)->err, SL_ERR_PROTOCOL);
    batch.batch.bytes--;
    assert_int_equal(ask(1, batch)->err, SL_ERR_PROTOCOL);
}

/* Reports of many versions take longer than settle_ms: until they have come, nothing is missing. */
CASE(restart__waits_for_the_first_reports_of_nodes)
{
    begin_catalogue(500, 3000);
    assert_int_equal(ask(1, attach_of(1, SL_OBJECTS_ATTACH, SL_OBJECTS_ROLE_REPORTS))->err, 0);
    assert_int_equal(attach(2), 0);
    for (uint32_t i = 0; i < 10; i++) {
        now_ms += 3000;
        sl_objects_catalogue_tick(catalogue, now_ms);
        assert_int_equal(ask(1, attach_of(1, SL_OBJECTS_ALIVE, SL_OBJECTS_ROLE_REPORTS))->err, 0);
        assert_int_equal(alive(2), 0);
        assert_int_equal(find(2, "llama", 0)->err, SL_ERR_AGAIN);
    }
    assert_int_equal(alive(1), 0);
    assert_int_equal(find(2, "llama", 0)->err, SL_ERR_NOT_FOUND);
    /* Later ones delay nobody. */
    assert_int_equal(ask(3, attach_of(3, SL_OBJECTS_ATTACH, SL_OBJECTS_ROLE_REPORTS))->err, 0);
    assert_int_equal(find(2, "llama", 0)->err, SL_ERR_NOT_FOUND);
}

CASE(restart__does_not_wait_for_a_node_that_has_ended)
{
    begin_catalogue(500, 3000);
    assert_int_equal(ask(1, attach_of(1, SL_OBJECTS_ATTACH, SL_OBJECTS_ROLE_REPORTS))->err, 0);
    assert_int_equal(attach(2), 0);
    assert_int_equal(ask(1, of_name(SL_OBJECTS_DETACH, "", 0))->err, 0);
    now_ms += 3000;
    assert_int_equal(find(2, "llama", 0)->err, SL_ERR_NOT_FOUND);
}

/* With each ALIVE a node reports SL_OBJECTS_REPORTS_AN_ALIVE of its copies. */
CASE(expiry__of_no_copy_of_a_node_that_has_many)
{
    enum { NAMES = 4 * SL_OBJECTS_REPORTS_AN_ALIVE };
    char name[32];
    uint32_t next = 0;
    for (uint32_t i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof name, "name-%u", i);
        (void)publish(1, name);
    }
    for (uint32_t turn = 0; turn < 24; turn++) {
        now_ms += LEASE_MS / 3;
        for (uint64_t node = 1; node <= 6; node++) {
            assert_int_equal(alive(node), 0);
        }
        for (uint32_t i = 0; i < SL_OBJECTS_REPORTS_AN_ALIVE; i++, next++) {
            (void)snprintf(name, sizeof name, "name-%u", next % NAMES);
            hold(1, name, 1, PART_BLOCKS);
        }
        sl_objects_catalogue_tick(catalogue, now_ms);
    }
    for (uint32_t i = 0; i < NAMES; i++) {
        (void)snprintf(name, sizeof name, "name-%u", i);
        assert_int_equal(find(2, name, 0)->err, 0);
    }
    pass(LEASE_MS * 8, 6); /* without reports */
    assert_int_equal(find(2, name, 0)->err, SL_ERR_NOT_FOUND);
}

/* Numbers */

static uint64_t number_of(uint64_t node, const char *name, uint32_t origin)
{
    const struct sl_objects_message *begun = ask(
        node, (struct sl_objects_message){
                  .kind = SL_OBJECTS_BEGIN, .name = name, .part_count = 1, .begin.origin = origin});
    assert_int_equal(begun->err, 0);
    return begun->version;
}

/* Keepers with a directory may be away, with versions of an earlier catalogue. */
CASE(begin__gives_no_number_of_an_earlier_catalogue)
{
    const uint32_t roles = SL_OBJECTS_ROLE_KEEPER | SL_OBJECTS_ROLE_DISK;
    sl_objects_catalogue_set_numbers(catalogue, 0, true);
    assert_int_equal(ask(7, attach_of(7, SL_OBJECTS_ATTACH, SL_OBJECTS_ROLE_KEEPER))->err, 0);
    assert_int_equal(number_of(1, "memory", SL_ORIGIN_PS), 1);
    assert_int_equal(ask(8, attach_of(8, SL_OBJECTS_ATTACH, roles))->err, 0);
    const uint64_t first = number_of(1, "llama", SL_ORIGIN_PS);
    assert_true(first > 1700000000000);
    assert_int_equal(number_of(1, "llama", SL_ORIGIN_PS), first + 1);
    assert_int_equal(number_of(1, "caller", SL_ORIGIN_CALLER), 1);
    assert_true(number_of(1, "caller", SL_ORIGIN_PS) > 1700000000000); /* it has begun with 1 */
}

CASE(begin__gives_numbers_above_those_that_were_stored)
{
    sl_objects_catalogue_set_numbers(catalogue, 6, false);
    assert_int_equal(number_of(1, "llama", SL_ORIGIN_CALLER), 7);
    assert_int_equal(number_of(1, "llama", SL_ORIGIN_CALLER), 8);
    assert_int_equal(number_of(1, "other", SL_ORIGIN_CALLER), 7);
}
