#include "objects/catalogue/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "objects/catalogue/catalogue_state.h"
#include "tests/support/unit.h"
#include "tests/unit/objects/catalogue_fixture.h"

#define CASE(name) SL_CASE_WITH(name, begin_catalogue_of_six(), end_catalogue())

static bool has_other(const struct sl_objects_message *news, uint64_t node)
{
    for (uint32_t i = 0; i < news->news.other_count; i++) {
        if (news->news.others[i].node == node) {
            return true;
        }
    }
    return false;
}

/* Commits */

CASE(commit__makes_a_version_that_others_find)
{
    assert_int_equal(publish(1, "llama"), 1);
    const struct sl_objects_message *listed = ask(2, list_of("", "", 0));
    assert_int_equal(listed->list.entry_count, 1);
    assert_string_equal(listed->list.entries[0].name, "llama");
    assert_string_equal(listed->list.entries[0].note, "a note");
    assert_int_equal(listed->list.entries[0].bytes, (PART_BLOCKS - 1) * SL_OBJECTS_BLOCK_BYTES);
    assert_int_equal(listed->list.entries[0].holders, 1);
    assert_int_equal(listed->list.entries[0].origin, SL_ORIGIN_CALLER);
    now_ms += 7;
    const struct sl_objects_message *news = find(2, "llama", 0);
    assert_int_equal(news->err, 0);
    assert_int_equal(news->term, 1000);
    assert_int_equal(news->commit.record.version, 1);
    assert_int_equal(news->news.age_ms, 7);
    assert_int_equal(news->news.parent_count, 2);
    assert_int_equal(news->news.parents[0].node, 1);
    assert_string_equal(news->news.parents[1].address, "node-1");
}

CASE(commit__of_several_parts_is_visible_with_the_last_one)
{
    uint64_t epoch = 0;
    for (uint32_t p = 0; p < 3; p++) {
        struct sl_objects_message message = {.kind = SL_OBJECTS_BEGIN,
                                             .name = "llama",
                                             .version = 7,
                                             .part = p,
                                             .part_count = 3,
                                             .begin.options = SL_OBJECTS_TAKE_OVER};
        const struct sl_objects_message *begun = ask(p + 1, message);
        assert_int_equal(begun->err, 0);
        assert_true(p == 0 || begun->epoch == epoch);
        epoch = begun->epoch;
    }
    for (uint32_t p = 0; p < 3; p++) {
        assert_int_equal(find(5, "llama", 7)->err, SL_ERR_NOT_FOUND);
        struct sl_objects_message message = commit_of(p + 1, "llama", 7, epoch, p);
        message.part = p;
        message.part_count = 3;
        const struct sl_objects_message *committed = ask(p + 1, message);
        assert_int_equal(committed->err, p < 2 ? SL_ERR_AGAIN : 0);
        if (p < 2) {
            assert_non_null(strstr(committed->text, p == 0 ? "1 of 3" : "2 of 3"));
        } else {
            assert_int_equal(committed->commit.record.part_count, 3);
            assert_int_equal(committed->commit.record.parts[1].holder, 2);
        }
    }
    struct sl_objects_message again = commit_of(1, "llama", 7, epoch, 0);
    again.part_count = 3;
    assert_int_equal(ask(1, again)->err, 0);
    for (uint32_t p = 0; p < 3; p++) {
        struct sl_objects_message message = of_name(SL_OBJECTS_FIND, "llama", 7);
        message.part = p;
        const struct sl_objects_message *news = ask(5, message);
        assert_int_equal(news->part, p);
        assert_int_equal(news->news.parents[0].node, p + 1);
    }
    struct sl_objects_message beyond = of_name(SL_OBJECTS_FIND, "llama", 7);
    beyond.part = 3;
    assert_int_equal(ask(5, beyond)->err, SL_ERR_INVALID);
}

CASE(commit__again_is_a_success_and_other_bytes_are_refused)
{
    uint64_t epoch, version;
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_of(1, "llama", version, epoch, 11))->err, 0);
    assert_int_equal(ask(1, commit_of(1, "llama", version, epoch, 11))->err, 0);
    const struct sl_objects_message *refused = ask(1, commit_of(1, "llama", version, epoch, 12));
    assert_int_equal(refused->err, SL_ERR_EXISTS);
    assert_non_null(strstr(refused->text, "llama@1"));
    assert_int_equal(holders_of("llama"), 1);
}

CASE(commit__needs_a_holder_that_is_attached)
{
    uint64_t epoch, version;
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_of(99, "llama", version, epoch, 11))->err, SL_ERR_CLOSED);
    assert_int_equal(find(2, "llama", 0)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(ask(1, commit_of(1, "llama", version, epoch, 11))->err, 0);
}

CASE(commit__of_missing_parts_is_forgotten_after_a_lease)
{
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_BEGIN, .name = "llama", .version = 1, .part_count = 2};
    const uint64_t epoch = ask(1, message)->epoch;
    struct sl_objects_message first = commit_of(1, "llama", 1, epoch, 1), second = first;
    first.part_count = second.part_count = 2;
    second.part = 1;
    second.commit.record.parts[0].holder = 2;
    assert_int_equal(ask(1, first)->err, SL_ERR_AGAIN);
    pass(LEASE_MS + 1000, 6);
    assert_int_equal(ask(2, second)->err, SL_ERR_AGAIN);
    assert_int_equal(ask(1, first)->err, 0);
}

/* Publishers */

CASE(drop__by_a_publisher_takes_back_its_part_of_a_version_that_misses_others)
{
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_BEGIN, .name = "llama", .version = 1, .part_count = 2};
    const uint64_t epoch = ask(1, message)->epoch;
    struct sl_objects_message first = commit_of(1, "llama", 1, epoch, 1), second = first;
    first.part_count = second.part_count = 2;
    second.part = 1;
    second.commit.record.parts[0].holder = 2;
    assert_int_equal(ask(1, first)->err, SL_ERR_AGAIN);
    (void)ask(3, of_name(SL_OBJECTS_DROP, "llama", 1));
    (void)ask(1, of_name(SL_OBJECTS_DROP, "llama", 1));
    assert_int_equal(ask(2, second)->err, SL_ERR_AGAIN);
    assert_int_equal(find(5, "llama", 1)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(ask(1, first)->err, 0);
    assert_int_equal(find(5, "llama", 1)->err, 0);
}

CASE(drop__is_of_one_part)
{
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_BEGIN, .name = "llama", .version = 1, .part_count = 2};
    const uint64_t epoch = ask(1, message)->epoch;
    for (uint32_t p = 0; p < 2; p++) {
        struct sl_objects_message part = commit_of(p + 1, "llama", 1, epoch, p);
        part.part = p;
        part.part_count = 2;
        assert_int_equal(ask(p + 1, part)->err, p == 0 ? SL_ERR_AGAIN : 0);
    }
    for (uint32_t p = 0; p < 2; p++) {
        struct sl_objects_message held = of_name(SL_OBJECTS_HOLD, "llama", 1);
        held.part = p;
        held.commit.blocks = PART_BLOCKS;
        (void)ask(3, held);
    }
    struct sl_objects_message dropped = of_name(SL_OBJECTS_DROP, "llama", 1);
    dropped.part = 1;
    (void)ask(3, dropped);
    struct sl_objects_message wanted = of_name(SL_OBJECTS_FIND, "llama", 1);
    assert_int_equal(ask(4, wanted)->news.parents[1].node, 3);
    wanted.part = 1;
    const struct sl_objects_message *news = ask(4, wanted);
    assert_int_equal(news->news.parents[1].node, 2);
    assert_int_equal(news->news.other_count, 0);
}

CASE(begin__of_another_publisher_is_refused_unless_it_takes_over)
{
    uint64_t old_epoch, epoch, version, fenced;
    assert_int_equal(begin(1, "llama", 0, &old_epoch, &fenced), 0);
    assert_int_equal(begin(2, "llama", 0, &epoch, &version), SL_ERR_EXISTS);
    assert_int_equal(begin(2, "llama", SL_OBJECTS_TAKE_OVER, &epoch, &version), 0);
    assert_true(epoch > old_epoch);
    const struct sl_objects_message *refused = ask(1, commit_of(1, "llama", fenced, old_epoch, 1));
    assert_int_equal(refused->err, SL_ERR_CLOSED);
    assert_int_equal(ask(2, commit_of(2, "llama", version, epoch, 2))->err, 0);
    assert_int_equal(begin(1, "llama", 0, &old_epoch, &fenced), SL_ERR_EXISTS);
}

CASE(begin__of_the_same_publisher_keeps_its_epoch)
{
    uint64_t first, second, version;
    assert_int_equal(begin(1, "llama", 0, &first, &version), 0);
    assert_int_equal(begin(1, "llama", SL_OBJECTS_TAKE_OVER, &second, &version), 0);
    assert_int_equal(second, first);
    assert_int_equal(version, 2);
}

CASE(begin__after_the_publisher_has_expired_fences_it)
{
    uint64_t old_epoch, epoch, version;
    assert_int_equal(begin(6, "llama", 0, &old_epoch, &version), 0);
    pass(LEASE_MS + 2000, 5);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_true(epoch > old_epoch);
    assert_int_equal(ask(6, commit_of(6, "llama", 1, old_epoch, 1))->err, SL_ERR_AGAIN);
    assert_int_equal(attach(6), 0);
    assert_int_equal(ask(6, commit_of(6, "llama", 1, old_epoch, 1))->err, SL_ERR_CLOSED);
}

CASE(begin__of_a_new_name_is_refused_if_it_exists)
{
    uint64_t epoch, version;
    (void)publish(1, "llama");
    assert_int_equal(begin(1, "llama", SL_OBJECTS_NEW_NAME, &epoch, &version), SL_ERR_EXISTS);
    assert_int_equal(begin(1, "lama", SL_OBJECTS_NEW_NAME, &epoch, &version), 0);
}

CASE(begin__numbers_versions_of_one_part_only)
{
    assert_int_equal(publish(1, "llama"), 1);
    assert_int_equal(publish(1, "llama"), 2);
    struct sl_objects_message message = {.kind = SL_OBJECTS_BEGIN, .name = "lama", .part_count = 2};
    assert_int_equal(ask(1, message)->err, SL_ERR_INVALID);
}

CASE(begin__ends_at_the_last_number)
{
    uint64_t epoch, version;
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_of(1, "llama", INT64_MAX, epoch, 1))->err, 0);
    struct sl_objects_message message = of_name(SL_OBJECTS_BEGIN, "llama", 0);
    message.part_count = 1;
    const struct sl_objects_message *refused = ask(1, message);
    assert_int_equal(refused->err, SL_ERR_TOO_LARGE);
    assert_non_null(strstr(refused->text, "9223372036854775807"));
    message.version = UINT64_MAX;
    assert_int_equal(ask(1, message)->err, SL_ERR_TOO_LARGE);
    message.version = 7;
    assert_int_equal(ask(1, message)->err, 0);
    assert_int_equal(begin(1, "lama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_of(1, "lama", 1, INT64_MAX, 1))->err, 0);
    assert_int_equal(begin(2, "lama", SL_OBJECTS_TAKE_OVER, &epoch, &version), SL_ERR_TOO_LARGE);
}

/* Copies */

CASE(detach__frees_names_and_copies)
{
    uint64_t epoch, version;
    (void)publish(2, "llama");
    hold(1, "llama", 1, PART_BLOCKS);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), SL_ERR_EXISTS);
    assert_int_equal(ask(2, (struct sl_objects_message){.kind = SL_OBJECTS_DETACH})->err, 0);
    assert_int_equal(holders_of("llama"), 1);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(alive(2), SL_ERR_AGAIN);
    assert_int_equal(ask(1, (struct sl_objects_message){.kind = SL_OBJECTS_DETACH})->err, 0);
    assert_int_equal(find(3, "llama", 1)->err, SL_ERR_NOT_FOUND);
}

CASE(expiry__of_the_last_holder_takes_the_version_with_it)
{
    (void)publish(6, "llama");
    hold(5, "llama", 1, PART_BLOCKS);
    assert_int_equal(holders_of("llama"), 2);
    pass(LEASE_MS / 2, 5);
    hold(5, "llama", 1, PART_BLOCKS);
    pass(LEASE_MS / 2 + 2000, 5);
    assert_int_equal(holders_of("llama"), 1);
    const struct sl_objects_message *news = find(1, "llama", 0);
    assert_int_equal(news->news.parents[0].node, 5);
    assert_false(has_other(news, 6));
    (void)ask(1, of_name(SL_OBJECTS_DROP, "llama", 1));
    pass(LEASE_MS + 2000, 4);
    assert_int_equal(find(1, "llama", 0)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(alive(6), SL_ERR_AGAIN);
}

CASE(expiry__of_a_copy_that_its_node_does_not_report)
{
    (void)publish(6, "llama");
    hold(5, "llama", 1, PART_BLOCKS);
    (void)find(4, "llama", 0);
    pass(LEASE_MS / 2, 6);
    assert_int_equal(attach(5), 0); /* it was cut off, and withdrew its copy meanwhile */
    hold(6, "llama", 1, PART_BLOCKS);
    pass(LEASE_MS - 1000, 6);
    assert_int_equal(holders_of("llama"), 1);
    const struct sl_objects_message *news = find(1, "llama", 0);
    assert_int_equal(news->news.parents[0].node, 6);
    assert_false(has_other(news, 5) || has_other(news, 4));
}

CASE(expiry__of_no_copy_whose_reports_are_read_late)
{
    (void)publish(6, "llama");
    now_ms += 3 * LEASE_MS;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(alive(6), 0);
    }
    hold(6, "llama", 1, PART_BLOCKS);
    assert_int_equal(alive(6), 0);
    assert_int_equal(holders_of("llama"), 1);
    for (uint32_t i = 0; i < 10; i++) { /* it asks for something again and again */
        assert_int_equal(alive(6), 0);
    }
    assert_int_equal(holders_of("llama"), 1);
}

CASE(expiry__is_later_after_the_catalogue_did_not_run)
{
    (void)publish(6, "llama");
    now_ms += 3 * LEASE_MS;
    sl_objects_catalogue_tick(catalogue, now_ms);
    assert_int_equal(alive(6), 0);
    pass(LEASE_MS, 1);
    assert_int_equal(alive(2), SL_ERR_AGAIN);
}

CASE(drop__of_the_only_copy_takes_the_version_with_it)
{
    (void)publish(1, "llama");
    (void)publish(1, "llama");
    (void)ask(1, of_name(SL_OBJECTS_DROP, "llama", 1));
    const struct sl_objects_message *refused = find(2, "llama", 1);
    assert_int_equal(refused->err, SL_ERR_NOT_FOUND);
    assert_int_equal(refused->find.oldest, 2);
    assert_int_equal(refused->find.newest, 2);
}

CASE(hold__makes_a_holder_of_a_fetcher_and_back)
{
    (void)publish(1, "llama");
    (void)find(2, "llama", 1);
    hold(2, "llama", 1, PART_BLOCKS - 1);
    assert_int_equal(holders_of("llama"), 1);
    hold(2, "llama", 1, PART_BLOCKS);
    assert_int_equal(holders_of("llama"), 2);
    hold(2, "llama", 1, PART_BLOCKS - 1);
    assert_int_equal(holders_of("llama"), 1);
}

CASE(remove__retires_all_copies)
{
    (void)publish(1, "llama");
    (void)publish(1, "llama");
    hold(2, "llama", 1, PART_BLOCKS);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    assert_int_equal(received(2)->version, 1);
    assert_int_equal(received(1)->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, SL_ERR_NOT_FOUND);
    assert_int_equal(publish(1, "llama"), 3);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 0))->err, 0);
    assert_int_equal(ask(3, list_of("", "", 0))->list.entry_count, 0);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 0))->err, SL_ERR_NOT_FOUND);
}

static uint32_t count_versions_after(uint32_t published, uint32_t origin)
{
    for (uint32_t i = 0; i < published; i++) {
        uint64_t epoch, version;
        assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
        struct sl_objects_message message = commit_of(1, "llama", version, epoch, i);
        message.commit.record.origin = origin;
        assert_int_equal(ask(1, message)->err, 0);
    }
    return ask(1, list_of("", "", 0))->list.entry_count;
}

CASE(retention__keeps_the_newest_three_versions_of_a_host)
{
    assert_int_equal(count_versions_after(5, SL_ORIGIN_HOST), 3);
    assert_int_equal(received(1)->version, 1);
    assert_int_equal(received(1)->version, 2);
    assert_null(received(1));
    const struct sl_objects_message *refused = find(2, "llama", 1);
    assert_int_equal(refused->find.oldest, 3);
    assert_int_equal(refused->find.newest, 5);
}

CASE(retention__keeps_all_versions_in_memory_of_callers)
{
    assert_int_equal(count_versions_after(5, SL_ORIGIN_CALLER), 5);
}

/* Followers */

CASE(news__tells_followers_of_the_newest_version_only)
{
    assert_int_equal(ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->commit.record_count, 0);
    (void)publish(1, "llama");
    const struct sl_objects_message *news = received(2);
    assert_int_equal(news->commit.record.version, 1);
    assert_int_equal(news->news.parents[0].node, 1);
    (void)publish(1, "llama");
    (void)publish(1, "llama");
    assert_null(received(2));
    answer_news(2, news);
    news = received(2);
    assert_int_equal(news->commit.record.version, 3);
    assert_null(received(2));
    answer_news(2, news);
    assert_null(received(2));
}

CASE(news__goes_to_the_publisher_too)
{
    (void)ask(1, of_name(SL_OBJECTS_FOLLOW, "llama", 0));
    (void)publish(1, "llama");
    assert_int_equal(received(1)->commit.record.version, 1);
}

/* A follower of the newest version is sent RETIRE, without bytes, and asks FOLLOW. */
CASE(remove__of_the_newest_version_is_sent_to_followers)
{
    (void)publish(1, "llama");
    (void)publish(1, "llama");
    assert_int_equal(ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->commit.record.version, 2);
    (void)ask(2, of_name(SL_OBJECTS_DROP, "llama", 2));
    (void)ask(4, of_name(SL_OBJECTS_FOLLOW, "llama", 1));
    (void)ask(4, of_name(SL_OBJECTS_DROP, "llama", 2));
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 1))->err, 0);
    assert_null(received(2));
    assert_int_equal(publish(1, "llama"), 3);
    const struct sl_objects_message *news = received(2);
    assert_int_equal(news->commit.record.version, 3);
    answer_news(2, news);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 3))->err, 0);
    const struct sl_objects_message *retired = received(2);
    while (retired->digest.low != 0) { /* of its copy, which it was about to fetch */
        retired = received(2);
    }
    assert_int_equal(retired->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(retired->version, 3);
    assert_int_equal(ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->commit.record.version, 2);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 0))->err, 0);
    assert_int_equal(ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->commit.record_count, 0);
}

/* It was not attached when the version was removed. */
CASE(follow__of_a_removed_version_is_answered_with_retire)
{
    (void)publish(1, "llama");
    (void)publish(1, "llama");
    assert_int_equal(ask(3, of_name(SL_OBJECTS_REMOVE, "llama", 2))->err, 0);
    assert_int_equal(ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 2))->commit.record_count, 0);
    const struct sl_objects_message *retired = received(2);
    assert_int_equal(retired->kind, SL_OBJECTS_RETIRE);
    assert_int_equal(retired->version, 2);
    (void)ask(4, of_name(SL_OBJECTS_FOLLOW, "llama", 9)); /* of an earlier catalogue */
    assert_null(received(4));
}

CASE(news__is_sent_again_if_it_has_no_answer)
{
    (void)ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 0));
    (void)publish(1, "llama");
    assert_int_equal(received(2)->commit.record.version, 1);
    pass(LEASE_MS, 6);
    assert_int_equal(received(2)->commit.record.version, 1);
}

CASE(news__ends_with_the_subscription)
{
    (void)ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 0));
    (void)ask(2, of_name(SL_OBJECTS_DROP, "llama", 0));
    (void)publish(1, "llama");
    assert_null(received(2));
}

CASE(follow__answers_with_the_newest_version)
{
    (void)publish(1, "llama");
    (void)publish(1, "llama");
    const struct sl_objects_message *news = ask(2, of_name(SL_OBJECTS_FOLLOW, "llama", 1));
    assert_int_equal(news->commit.record.version, 2);
    assert_int_equal(news->news.parents[0].node, 1);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_FOLLOW, "llama", 2))->commit.record_count, 0);
}

/* Nodes that end */

/* Its copies go in turns. */
CASE(detach__of_a_node_with_many_copies_ends_it_at_once)
{
    char name[32];
    uint64_t epoch, version;
    for (uint32_t i = 0; i < SL_CATALOGUE_REMOVALS_MAX; i++) {
        (void)snprintf(name, sizeof name, "name-%u", i);
        (void)publish(3, name);
    }
    (void)publish(3, "llama");
    hold(2, "llama", 1, PART_BLOCKS);
    assert_int_equal(ask(3, of_name(SL_OBJECTS_DETACH, "", 0))->err, 0);
    assert_int_equal(holders_of("llama"), 2); /* the copy that is left */
    const struct sl_objects_message *news = find(4, "llama", 0);
    assert_int_equal(news->news.parents[0].node, 2);
    assert_int_equal(news->news.parents[1].node, 2);
    assert_false(has_other(news, 3));
    assert_int_equal(begin(5, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(5, commit_of(3, "llama", version, epoch, 2))->err, SL_ERR_CLOSED);
    /* It attaches again. */
    assert_int_equal(attach(3), 0);
    hold(3, "llama", 1, PART_BLOCKS);
    pass(LEASE_MS / 10, 6);
    assert_int_equal(ask(1, list_of("", "", 0))->list.entry_count, 1);
    assert_int_equal(holders_of("llama"), 2);
    assert_int_equal(find(5, "llama", 0)->err, 0);
}

CASE(expiry__of_nodes_with_many_copies_ends_all_of_them_at_once)
{
    char name[32];
    uint64_t epoch, version;
    for (uint32_t i = 0; i < 2 * SL_CATALOGUE_REMOVALS_MAX + 2; i++) {
        (void)snprintf(name, sizeof name, "name-%u", i);
        (void)publish(2 + i % 2, name);
    }
    while (begin(1, "name-0", 0, &epoch, &version) == SL_ERR_EXISTS) {
        pass(1, 0);
    }
    assert_int_equal(begin(1, "name-1", 0, &epoch, &version), 0);
}

/* Lists */

CASE(list__has_all_versions_of_a_prefix_in_order)
{
    char name[32], last[32] = "";
    for (uint32_t i = 0; i < 10; i++) {
        (void)snprintf(name, sizeof name, "model-%u", 9 - i);
        (void)publish(1, name);
        (void)publish(1, name);
        (void)publish(1, "other");
    }
    uint32_t count = 0, more = 1;
    uint64_t version = 0;
    while (more != 0) {
        const struct sl_objects_message *listed = ask(1, list_of("model-", last, version));
        for (uint32_t i = 0; i < listed->list.entry_count; i++, count++) {
            (void)snprintf(name, sizeof name, "model-%u", count / 2);
            assert_string_equal(listed->list.entries[i].name, name);
            version = listed->list.entries[i].version;
            assert_int_equal(version, count % 2 + 1);
        }
        memcpy(last, name, sizeof last);
        more = listed->list.more;
    }
    assert_int_equal(count, 20);
}

/* Limits */

static void check_refused(const struct sl_objects_message *answer, const char *limit)
{
    assert_int_equal(answer->err, SL_ERR_TOO_LARGE);
    assert_non_null(strstr(answer->text, limit));
}

CASE(limit__of_names_is_free_again_a_minute_after_their_last_use)
{
    char name[32];
    uint64_t epoch, version;
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_NAMES; i++) {
        (void)snprintf(name, sizeof name, "name-%05u", i);
        assert_int_equal(begin(1, name, 0, &epoch, &version), 0);
    }
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_BEGIN, .name = "another", .part_count = 1};
    check_refused(ask(1, message), "65536 names");
    check_refused(ask(1, of_name(SL_OBJECTS_FOLLOW, "another", 0)), "65536 names");
    pass(80000, 6);
    assert_int_equal(begin(1, "another", 0, &epoch, &version), 0);
}

CASE(limit__of_versions_of_a_name)
{
    uint64_t epoch, version;
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_VERSIONS; i++) {
        (void)publish(1, "llama");
    }
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    check_refused(ask(1, commit_of(1, "llama", version, epoch, 1)), "256 versions");
}

static int commit_host(uint64_t version, uint64_t epoch, uint32_t part_count)
{
    struct sl_objects_message message = commit_of(1, "llama", version, epoch, version);
    message.part_count = part_count;
    message.commit.record.origin = SL_ORIGIN_HOST;
    return ask(1, message)->err;
}

CASE(limit__of_versions_of_a_name_leaves_room_for_a_commit_that_removes_one)
{
    enum { LIMIT = SL_LIMIT_OBJECTS_VERSIONS };
    uint64_t epoch, version;
    begin_catalogue_with(0, LIMIT);
    assert_int_equal(attach(1), 0);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    for (version = 2; version <= LIMIT + 3; version++) {
        assert_int_equal(commit_host(version, epoch, 1), 0);
    }
    assert_int_equal(find(1, "llama", 3)->err, SL_ERR_NOT_FOUND);
    assert_int_equal(find(1, "llama", 4)->err, 0);
    /* One that removes none. */
    assert_int_equal(commit_host(1, epoch, 1), SL_ERR_TOO_LARGE);
    check_refused(ask(1, commit_of(1, "llama", version, epoch, 1)), "256 versions");
    /* Those that wait for other parts do not count. */
    struct sl_objects_message message = {.kind = SL_OBJECTS_BEGIN,
                                         .name = "llama",
                                         .version = version,
                                         .part_count = 2,
                                         .begin.options = SL_OBJECTS_TAKE_OVER};
    epoch = ask(1, message)->epoch;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(commit_host(version + i, epoch, 2), SL_ERR_AGAIN);
    }
    assert_int_equal(find(1, "llama", 4)->err, 0);
}

CASE(limit__of_names_that_a_node_follows)
{
    char name[32];
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_FOLLOWS; i++) {
        (void)snprintf(name, sizeof name, "name-%u", i);
        assert_int_equal(ask(1, of_name(SL_OBJECTS_FOLLOW, name, 0))->err, 0);
    }
    check_refused(ask(1, of_name(SL_OBJECTS_FOLLOW, "another", 0)), "1024 names");
    assert_int_equal(ask(1, of_name(SL_OBJECTS_FOLLOW, name, 0))->err, 0);
}

CASE(limit__of_nodes)
{
    for (uint64_t node = 7; node <= SL_LIMIT_OBJECTS_NODES; node++) {
        assert_int_equal(attach(node), 0);
    }
    check_refused(ask(99999, (struct sl_objects_message){.kind = SL_OBJECTS_ATTACH}),
                  "16384 nodes");
}

/* Confused nodes */

CASE(receive__refuses_nodes_that_did_not_attach_or_are_elsewhere)
{
    uint64_t epoch, version;
    assert_int_equal(begin(9, "llama", 0, &epoch, &version), SL_ERR_AGAIN);
    assert_int_equal(attach(0), SL_ERR_AGAIN);
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_LIST, .list.prefix = "", .name = "", .node = 1};
    sl_objects_catalogue_receive(catalogue, "node-2", &message, now_ms);
    message.kind = SL_OBJECTS_STORE;
    sl_objects_catalogue_receive(catalogue, "node-1", &message, now_ms);
    assert_null(received(1));
}

/* A message of any kind, about few names, versions and nodes. */
static struct sl_objects_message random_message(uint64_t *random, uint64_t node)
{
    static const char *const names[] = {"a", "ab", "b"};
    static const uint32_t kinds[] = {SL_OBJECTS_ATTACH, SL_OBJECTS_ALIVE,    SL_OBJECTS_BEGIN,
                                     SL_OBJECTS_COMMIT, SL_OBJECTS_COMMIT,   SL_OBJECTS_FOLLOW,
                                     SL_OBJECTS_FIND,   SL_OBJECTS_FIND,     SL_OBJECTS_NEWS,
                                     SL_OBJECTS_HOLD,   SL_OBJECTS_HOLD,     SL_OBJECTS_DROP,
                                     SL_OBJECTS_LIST,   SL_OBJECTS_REMOVE,   SL_OBJECTS_DETACH,
                                     SL_OBJECTS_USE,    SL_OBJECTS_FOLLOWERS};
    const char *name = names[sl_hash_random(random) % 3];
    const uint64_t version = sl_hash_random(random) % 6;
    const uint32_t part_count = (uint32_t)(1 + sl_hash_random(random) % 2);
    struct sl_objects_message message = commit_of(
        sl_hash_random(random) % 4 == 0 ? sl_hash_random(random) % 12 : node, name,
        version == 0 ? 1 : version, 1000 + sl_hash_random(random) % 40, sl_hash_random(random) % 2);
    message.kind = kinds[sl_hash_random(random) % (sizeof kinds / sizeof *kinds)];
    message.part_count = part_count;
    message.part = (uint32_t)(sl_hash_random(random) % part_count);
    message.name = name;
    message.version = version;
    message.attach.host = sl_hash_random(random) % 4;
    message.attach.location = message.list.prefix = sl_hash_random(random) % 2 == 0 ? "" : "a";
    message.begin.options = (uint32_t)(sl_hash_random(random) % 4);
    message.commit.blocks = (uint32_t)(sl_hash_random(random) % (PART_BLOCKS + 2));
    message.find.bad[0] = 1 + sl_hash_random(random) % 8;
    message.find.bad_count = (uint32_t)(sl_hash_random(random) % 2);
    if (message.kind == SL_OBJECTS_HOLD) {
        message.version = message.commit.record.version;
        message.commit.record.time_ms = sl_hash_random(random) % 2;
        message.commit.record.part_count = part_count;
        message.commit.record.parts[1] = message.commit.record.parts[0];
        message.commit.record_count = (uint32_t)(sl_hash_random(random) % 2);
    } else if (message.kind == SL_OBJECTS_NEWS) {
        message.is_answer = true;
    }
    return message;
}

static void check_random(uint64_t seed)
{
    uint64_t random = seed;
    begin_catalogue(1000, seed % 2 == 0 ? 0 : 3000);
    for (uint32_t i = 0; i < 4000; i++) {
        const uint64_t node = 1 + sl_hash_random(&random) % 8;
        const struct sl_objects_message *news;
        (void)ask(node, random_message(&random, node));
        while (sl_hash_random(&random) % 4 != 0 && (news = received(node)) != NULL) {
            if (news->kind == SL_OBJECTS_NEWS) {
                answer_news(node, news);
            }
        }
        pass(sl_hash_random(&random) % 64 == 0 ? sl_hash_random(&random) % 8000 : 0, 0);
    }
    pass(2 * LEASE_MS + 80000, 0);
    assert_int_equal(sl_objects_catalogue_next_ms(catalogue), UINT64_MAX); /* nothing is left */
}

SL_CASE(receive__survives_random_messages_and_keeps_nothing)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        check_random(seed);
    }
    end_catalogue();
}
