/* The catalogue and keepers: which of them store a part, and that they hold it after the commit. */
#include "objects/catalogue/catalogue.h"

#include <string.h>

#include "tests/support/unit.h"
#include "tests/unit/objects/catalogue_fixture.h"

/* Nodes 1 to 6 are attached. */
static void setup(void)
{
    known_term = 0;
    begin_catalogue_with(0, 0);
    for (uint64_t node = 1; node <= 6; node++) {
        assert_int_equal(attach(node), 0);
    }
}

#define CASE(name) SL_CASE_WITH(name, setup(), end_catalogue())

static int attach_keeper(uint64_t node)
{
    return ask(node,
               (struct sl_objects_message){
                   .kind = SL_OBJECTS_ATTACH,
                   .attach = {.host = node, .roles = SL_OBJECTS_ROLE_KEEPER, .location = ""}})
        ->err;
}

static struct sl_objects_message begin_stored(uint32_t part)
{
    return (struct sl_objects_message){.kind = SL_OBJECTS_BEGIN,
                                       .name = "llama",
                                       .version = 1,
                                       .part = part,
                                       .part_count = 4,
                                       .begin.origin = SL_ORIGIN_PS};
}

CASE(begin__names_the_keepers_of_a_part)
{
    begin_catalogue_with(2, 0);
    assert_int_equal(attach(1), 0);
    const struct sl_objects_message *refused = ask(1, begin_stored(0));
    assert_int_equal(refused->err, SL_ERR_AGAIN);
    assert_non_null(strstr(refused->text, "no keeper"));
    for (uint64_t node = 2; node <= 4; node++) {
        assert_int_equal(attach_keeper(node), 0);
        const struct sl_objects_message *begun = ask(1, begin_stored(0));
        assert_int_equal(begun->err, 0);
        assert_int_equal(begun->keepers.total, node - 1);
        assert_int_equal(begun->keepers.count, node - 1);
    }
    assert_int_equal(attach_keeper(5), 0);
    static const uint64_t expected[4][3] = {{2, 3, 4}, {3, 4, 5}, {4, 5, 2}, {5, 2, 3}};
    for (uint32_t part = 0; part < 4; part++) {
        const struct sl_objects_message *begun = ask(1, begin_stored(part));
        assert_int_equal(begun->keepers.total, 4);
        assert_int_equal(begun->keepers.count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(begun->keepers.peers[i].node, expected[part][i]);
        }
    }
    assert_string_equal(ask(1, begin_stored(1))->keepers.peers[0].address, "node-3");
}

static struct sl_objects_message commit_part(uint64_t holder, uint32_t part, uint64_t version,
                                             uint64_t epoch)
{
    struct sl_objects_message message = commit_of(holder, "llama", version, epoch, version);
    message.part = part;
    message.part_count = 2;
    return message;
}

/* As for tables: keepers publish parts of a number that node 1 has asked for. A new publication
 * ends commits of the one before, which wait for other parts. */
CASE(begin__by_keepers)
{
    struct sl_objects_message begin = begin_stored(0);
    begin_catalogue_with(0, 0);
    begin.begin.options = SL_OBJECTS_BY_KEEPER | SL_OBJECTS_TAKE_OVER;
    begin.part_count = 2;
    assert_int_equal(attach(1), 0);
    assert_int_equal(attach_keeper(2), 0);
    assert_int_equal(attach_keeper(3), 0);
    uint64_t epochs[2];
    for (uint32_t round = 0; round < 2; round++) {
        struct sl_objects_message first = begin;
        first.part = 0;
        first.version = 0;
        first.part_count = 1;
        begin.version = ask(1, first)->version;
        assert_int_equal(begin.version, round + 1);
        for (begin.part = 0; begin.part < 2; begin.part++) {
            const struct sl_objects_message *begun = ask(1, begin);
            assert_int_equal(begun->err, 0);
            assert_int_equal(begun->keepers.peers[0].node, 2 + begin.part);
            assert_true(begin.part == 0 || begun->epoch == epochs[round]);
            epochs[round] = begun->epoch;
        }
        assert_int_equal(ask(2, commit_part(2, 0, round + 1, epochs[round]))->err, SL_ERR_AGAIN);
    }
    assert_int_equal(ask(3, commit_part(3, 1, 1, epochs[0]))->err, SL_ERR_CLOSED);
    assert_int_equal(ask(1, commit_part(1, 1, 2, epochs[1]))->err, SL_ERR_CLOSED);
    assert_int_equal(ask(3, commit_part(3, 1, 2, epochs[1]))->err, 0);
}

/* Of a part that keepers 2 and 3 have. */
static struct sl_objects_message commit_stored(uint64_t version, uint64_t epoch)
{
    struct sl_objects_message message = commit_of(0, "llama", version, epoch, 1);
    message.commit.record.origin = SL_ORIGIN_PS;
    message.commit.record.keeper_count = 2;
    message.commit.record.keepers[0] = 2;
    message.commit.record.keepers[1] = 3;
    return message;
}

CASE(commit__of_a_stored_part_makes_its_keepers_holders)
{
    uint64_t epoch, version;
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(ask(1, commit_stored(version, epoch))->err, 0);
    assert_int_equal(holders_of("llama"), 2);
    const struct sl_objects_message *news = find(5, "llama", 0);
    assert_int_equal(news->commit.record.parts[0].holder, 0);
    assert_true(news->news.parents[0].node == 2 || news->news.parents[0].node == 3);
    (void)ask(2, of_name(SL_OBJECTS_DROP, "llama", version));
    assert_int_equal(holders_of("llama"), 1);
    (void)ask(3, of_name(SL_OBJECTS_DROP, "llama", version));
    (void)ask(5, of_name(SL_OBJECTS_DROP, "llama", version));
    assert_int_equal(find(5, "llama", version)->err, SL_ERR_NOT_FOUND);
}

CASE(commit__of_a_stored_part_needs_one_keeper_that_is_attached)
{
    uint64_t epoch, version;
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    struct sl_objects_message message = commit_stored(version, epoch);
    message.commit.record.keepers[0] = 98;
    message.commit.record.keepers[1] = 99;
    assert_int_equal(ask(1, message)->err, SL_ERR_CLOSED);
    message.commit.record.keepers[1] = 3;
    assert_int_equal(ask(1, message)->err, 0);
    assert_int_equal(holders_of("llama"), 1);
}

CASE(commit__of_a_part_with_other_bytes_than_before_replaces_it)
{
    struct sl_objects_message message = {
        .kind = SL_OBJECTS_BEGIN, .name = "llama", .version = 1, .part_count = 2};
    const uint64_t epoch = ask(1, message)->epoch;
    struct sl_objects_message first = commit_stored(1, epoch), second = commit_stored(1, epoch);
    first.part_count = second.part_count = 2;
    assert_int_equal(ask(1, first)->err, SL_ERR_AGAIN);
    first.commit.record.parts[0].digest.low = 2;
    first.commit.record.keeper_count = 1;
    const struct sl_objects_message *refused = ask(1, first);
    assert_int_equal(refused->err, SL_ERR_AGAIN);
    assert_non_null(strstr(refused->text, "other bytes"));
    assert_int_equal(ask(1, first)->err, SL_ERR_AGAIN);
    second.part = 1;
    assert_int_equal(ask(1, second)->err, 0);
    assert_int_equal(holders_of("llama"), 1);
}

CASE(begin__names_the_agent_of_the_publishers_host)
{
    struct sl_objects_message agent = {.kind = SL_OBJECTS_ATTACH,
                                       .attach = {.host = 1, /* that of node 1 */
                                                  .roles = SL_OBJECTS_ROLE_AGENT,
                                                  .location = ""}};
    assert_int_equal(ask(9, agent)->err, 0);
    struct sl_objects_message begin = begin_stored(0);
    begin.begin.origin = SL_ORIGIN_HOST;
    const struct sl_objects_message *begun = ask(1, begin);
    assert_int_equal(begun->keepers.count, 1);
    assert_int_equal(begun->keepers.peers[0].node, 9);
    begin.begin.options = SL_OBJECTS_NO_AGENT;
    assert_int_equal(ask(1, begin)->keepers.count, 0);
    begin.begin.options = SL_OBJECTS_TAKE_OVER;
    assert_int_equal(ask(2, begin)->keepers.count, 0); /* another host */
    assert_int_equal(ask(9, begin)->keepers.count, 0); /* the agent itself */
    begin.begin.origin = SL_ORIGIN_CALLER;
    assert_int_equal(ask(1, begin)->keepers.count, 0);
}

/* The agent 9 of node 1's host commits for node 1. */
static struct sl_objects_message put_of(uint64_t version, uint64_t epoch, const uint8_t *image)
{
    struct sl_objects_message put = commit_of(0, "llama", version, epoch, version);
    put.kind = SL_OBJECTS_PUT;
    put.commit.publisher = 1;
    put.timeout_ms = 1000;
    put.commit.record.origin = SL_ORIGIN_HOST;
    put.commit.record.keeper_count = 1;
    put.commit.record.keepers[0] = 9;
    put.commit.image.manifest = put.commit.image.bytes = image;
    return put;
}

CASE(put__commits_for_the_publisher_and_sends_the_image_to_16_followers)
{
    static const uint8_t image[1];
    uint64_t epoch, version;
    assert_int_equal(attach(9), 0);
    for (uint64_t node = 20; node < 40; node++) {
        assert_int_equal(attach(node), 0);
        assert_int_equal(ask(node, of_name(SL_OBJECTS_FOLLOW, "llama", 0))->err, 0);
    }
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    const struct sl_objects_message *answer = ask(9, put_of(version, epoch, image));
    assert_int_equal(answer->err, 0);
    assert_int_equal(answer->commit.record_count, 1);
    assert_true(answer->commit.record.time_ms > 0);
    assert_int_equal(holders_of("llama"), 1);
    uint32_t with = 0;
    for (uint64_t node = 20; node < 40; node++) {
        const struct sl_objects_message *news = received(node);
        assert_non_null(news);
        assert_int_equal(news->kind, SL_OBJECTS_NEWS);
        assert_true(news->commit.image.manifest == NULL || news->commit.image.manifest == image);
        with += news->commit.image.manifest != NULL;
        answer_news(node, news);
    }
    assert_int_equal(with, 16);
    assert_int_equal(ask(9, put_of(version, epoch, image))->err, 0); /* the same again */
}

CASE(put__of_a_publisher_whose_name_was_taken_over_is_refused)
{
    uint64_t epoch, later, version;
    assert_int_equal(attach(9), 0);
    assert_int_equal(begin(1, "llama", 0, &epoch, &version), 0);
    assert_int_equal(begin(2, "llama", SL_OBJECTS_TAKE_OVER, &later, &version), 0);
    assert_int_equal(ask(9, put_of(version, epoch, NULL))->err, SL_ERR_CLOSED);
    assert_int_equal(ask(9, put_of(version, later, NULL))->err, SL_ERR_CLOSED);
}
