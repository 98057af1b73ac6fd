#include <stdlib.h>

#include "core/clock.h"
#include "nodes.h"
#include "objects/node/download.h"
#include "objects/node/node.h"
#include "stranger.h"

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, BYTES = 8 * BLOCK };

/* READs of a block that begin in a second of a clock that moves by 1 ms. */
static uint32_t reads_in_a_second(struct sl_objects_pace *pace, uint64_t from_ns)
{
    uint32_t count = 0;
    for (uint64_t ms = 0; ms < 1000; ms++) {
        const uint64_t now_ns = from_ns + ms * SL_CLOCK_NS_PER_MS;
        for (; now_ns >= pace->due_ns; count++) {
            sl_objects_pace_take(pace, BLOCK, now_ns);
        }
    }
    return count;
}

SL_CASE(pace__keeps_the_rate_and_catches_up_for_20_ms)
{
    struct sl_objects_pace pace = {0};
    sl_objects_pace_set(&pace, 400ULL * BLOCK, SL_CLOCK_NS_PER_S);
    assert_int_equal(reads_in_a_second(&pace, SL_CLOCK_NS_PER_S), 400 + 8);
    assert_in_range(reads_in_a_second(&pace, 2 * SL_CLOCK_NS_PER_S), 399, 401);
    assert_in_range(reads_in_a_second(&pace, 9 * SL_CLOCK_NS_PER_S), 407, 409);
}

SL_CASE(pace__follows_a_change_at_once)
{
    struct sl_objects_pace pace = {0};
    sl_objects_pace_set(&pace, 1, 0);
    assert_int_equal(reads_in_a_second(&pace, 0), 1);
    sl_objects_pace_set(&pace, 10ULL * BLOCK, SL_CLOCK_NS_PER_S);
    assert_in_range(reads_in_a_second(&pace, SL_CLOCK_NS_PER_S), 9, 10);
    sl_objects_pace_set(&pace, 0, 2 * SL_CLOCK_NS_PER_S);
    sl_objects_pace_take(&pace, 100ULL * BLOCK, 2 * SL_CLOCK_NS_PER_S);
    assert_true(pace.due_ns <= 2 * SL_CLOCK_NS_PER_S);
}

static struct sl_objects *create(const char *catalogue, uint64_t rate_bytes)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = catalogue,
                                               .rate_bytes = rate_bytes};
    struct sl_objects *node;
    nodes_expect(sl_objects_create(&options, &node));
    return node;
}

/* Two READs would need a hundred hours. */
SL_CASE(fetch__keeps_to_the_rate_of_its_source)
{
    struct sl_objects *from = create(NULL, 1), *to = create(sl_objects_address(from), 0);
    struct sl_get_progress progress;
    uint8_t *bytes = nodes_bytes(BYTES, 7), *got = calloc(BYTES, 1);
    (void)nodes_publish(from, "model", SL_ORIGIN_CALLER, bytes, BYTES);
    struct sl_get *get = nodes_start(to, "model", 1, got, BYTES, 1500);
    assert_int_equal(sl_get_wait(get), SL_ERR_DEADLINE);
    nodes_expect(sl_get_progress(get, &progress));
    assert_true(progress.verified_bytes <= BLOCK);
    assert_int_equal(progress.replaced_sources, 0);
    sl_get_close(&get);
    sl_objects_destroy(&to);
    sl_objects_destroy(&from);
    free(bytes);
    free(got);
}

static struct stranger stranger; /* two children of the node */

static void expect_answer(const struct sl_objects_message *message, uint64_t rate, int err)
{
    assert_int_equal(stranger_ask(&stranger, message), err);
    assert_int_equal(stranger.answer.have.rate, rate);
}

/* Takes messages until one has this rate: HAVE may be repeated. */
static void expect_have(uint64_t rate)
{
    static struct sl_objects_message message;
    struct sl_transfer_noticed noticed;
    struct sl_reason reason;
    do {
        assert_int_equal(sl_transfer_notice_take(stranger.transfer, NODES_TIMEOUT, &noticed), 0);
        assert_int_equal(sl_objects_message_decode(noticed.text, noticed.bytes, &message, &reason),
                         0);
    } while (message.kind != SL_OBJECTS_HAVE || message.have.rate != rate);
}

SL_CASE(serve__divides_its_rate_among_its_children)
{
    uint8_t *bytes = nodes_bytes(BYTES, 7);
    struct sl_objects *node = create(NULL, 1001);
    (void)nodes_publish(node, "model", SL_ORIGIN_CALLER, bytes, BYTES);
    const struct sl_objects_copy *copy = sl_objects_copy_find(node, "model", 1, 0);
    stranger_init(&stranger, sl_objects_address(node));

    struct sl_objects_message message = {.kind = SL_OBJECTS_WANT,
                                         .name = "model",
                                         .version = 1,
                                         .node = 1,
                                         .digest = copy->info.digest};
    expect_answer(&message, 1001, 0);
    message.node = 2;
    expect_answer(&message, 501, 0);
    expect_have(501);
    stranger_send(&stranger,
                  &(struct sl_objects_message){
                      .kind = SL_OBJECTS_DONE, .name = "model", .version = 1, .node = 1});
    expect_have(1001);
    for (message.node = 3; message.node <= 5; message.node++) {
        expect_answer(&message, (1001 + message.node - 2) / (message.node - 1), 0);
    }
    expect_answer(&message, 0, SL_ERR_AGAIN);

    stranger_fini(&stranger);
    sl_objects_destroy(&node);
    free(bytes);
}

SL_CASE(download__is_patient_with_a_source_that_waits_itself)
{
    struct sl_objects_copy copy = {.info = {.manifest_bytes = 1}};
    struct sl_objects_download download = {
        .copy = &copy, .block_ns = 1, .arrived_ns = SL_CLOCK_NS_PER_S, .flying_count = 1};
    assert_int_equal(sl_objects_download_slow_ns(&download),
                     SL_CLOCK_NS_PER_S + 50 * SL_CLOCK_NS_PER_MS);
    download.flying_count = 0;
    assert_int_equal(sl_objects_download_slow_ns(&download),
                     SL_CLOCK_NS_PER_S + 500 * SL_CLOCK_NS_PER_MS);
    download.pace.rate = 1; /* a block in a hundred hours */
    sl_objects_pace_take(&download.pace, SL_OBJECTS_BLOCK_BYTES, SL_CLOCK_NS_PER_S);
    assert_true(sl_objects_download_slow_ns(&download) > 3600 * SL_CLOCK_NS_PER_S);
}
