#include "objects/node/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nodes.h"
#include "objects/node/copy.h"
#include "objects/node/pin.h"
#include "objects/node/pool.h"
#include "objects/reader/mapping.h"

static struct nodes nodes;
static uint8_t *bytes;

enum { BYTES = 3 * SL_OBJECTS_BLOCK_BYTES + 5 };

static void setup(void)
{
    nodes_init(&nodes, 2, 0);
    bytes = nodes_bytes(BYTES, 1);
}

static void teardown(void)
{
    nodes_fini(&nodes);
    free(bytes);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static int fds[SL_OBJECTS_SESSION_FDS_MAX];

static int request(struct sl_objects_session *session, uint32_t kind, uint64_t version,
                   struct sl_objects_session_answer *answer)
{
    struct sl_objects_session_request made = {
        .kind = kind, .timeout_ms = NODES_TIMEOUT, .version = version};
    (void)snprintf(made.name, sizeof made.name, "%s",
                   kind == SL_OBJECTS_SESSION_FOLLOW ? "model" : "");
    return sl_objects_session_call(session, &made, answer, fds);
}

static struct sl_objects_session *open_session(uint32_t node)
{
    struct sl_objects_session *session;
    nodes_expect(sl_objects_session_open(nodes.node[node], &session));
    return session;
}

static struct sl_objects_session *follow(uint32_t node, struct sl_objects_session_answer *answer)
{
    struct sl_objects_session *session = open_session(node);
    nodes_expect(request(session, SL_OBJECTS_SESSION_FOLLOW, 0, answer));
    return session;
}

static uint64_t publish(void)
{
    return nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, bytes, BYTES);
}

CASE(session__hello_brings_the_board_read_only)
{
    struct sl_objects_session *session = open_session(1);
    struct sl_objects_session_answer answer;
    nodes_expect(request(session, SL_OBJECTS_SESSION_HELLO, SL_OBJECTS_SESSION_MAGIC, &answer));
    assert_int_equal(answer.fd_count, 1);
    const size_t size = sizeof(struct sl_objects_board);
    assert_ptr_equal(mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0), MAP_FAILED);
    const struct sl_objects_board *board = mmap(NULL, size, PROT_READ, MAP_SHARED, fds[0], 0);
    assert_ptr_not_equal(board, MAP_FAILED);
    (void)close(fds[0]);

    nodes_expect(request(session, SL_OBJECTS_SESSION_FOLLOW, 0, &answer));
    const struct sl_objects_board_entry *entry = &board->entries[answer.board_entry];
    uint64_t time_ns, before_ns = 0;
    assert_int_equal(sl_objects_board_announced(entry), 0);
    for (uint64_t i = 1; i <= SL_OBJECTS_BOARD_COMMITS + 1; i++) {
        (void)publish();
        nodes_expect(request(session, SL_OBJECTS_SESSION_WAIT, i - 1, &answer));
        assert_int_equal(sl_objects_board_announced(entry), i);
        const uint32_t place = (uint32_t)(i - 1) % SL_OBJECTS_BOARD_COMMITS;
        assert_int_equal(sl_objects_board_commit(entry, place, &time_ns), i);
        assert_true(time_ns >= before_ns);
        before_ns = time_ns - 1000000; /* the age is in milliseconds */
    }
    assert_int_equal(sl_objects_board_behind(entry, 30), 3);
    assert_int_equal(sl_objects_board_behind(entry, 0), SL_OBJECTS_BOARD_COMMITS);
    sl_objects_session_close(&session);
    (void)munmap((void *)(uintptr_t)board, size);
}

CASE(session__refuses_a_reader_of_another_version)
{
    struct sl_objects_session *session = open_session(1);
    struct sl_objects_session_answer answer;
    assert_int_equal(request(session, SL_OBJECTS_SESSION_HELLO, 7, &answer), SL_ERR_VERSION);
    sl_objects_session_close(&session);
}

CASE(session__refuses_a_reader_with_another_catalogue)
{
    const struct sl_objects_session_request hello = {.kind = SL_OBJECTS_SESSION_HELLO,
                                                     .timeout_ms = NODES_TIMEOUT,
                                                     .version = SL_OBJECTS_SESSION_MAGIC,
                                                     .name = "10.0.0.1:1"};
    struct sl_objects_session *session = open_session(1);
    struct sl_objects_session_answer answer;
    assert_int_equal(sl_objects_session_call(session, &hello, &answer, fds), SL_ERR_REFUSED);
    sl_objects_session_close(&session);
}

CASE(session__refuses_what_is_no_request)
{
    struct sl_objects_session *session = open_session(1);
    struct sl_objects_session_request bad = {.kind = SL_OBJECTS_SESSION_FOLLOW, .timeout_ms = 1};
    struct sl_objects_session_answer answer;
    assert_int_equal(request(session, 0, 0, &answer), SL_ERR_INVALID);
    assert_int_equal(request(session, SL_OBJECTS_SESSION_CLOSE + 1, 0, &answer), SL_ERR_INVALID);
    assert_int_equal(request(session, SL_OBJECTS_SESSION_WAIT, 0, &answer), SL_ERR_INVALID);
    assert_int_equal(sl_objects_session_call(session, &bad, &answer, fds), SL_ERR_INVALID);
    memset(bad.name, 'a', sizeof bad.name); /* no NUL */
    assert_int_equal(sl_objects_session_call(session, &bad, &answer, fds), SL_ERR_INVALID);
    bad.name[1] = '\0';
    bad.stop_count = SL_OBJECTS_SESSION_STOPS_MAX + 1;
    assert_int_equal(sl_objects_session_call(session, &bad, &answer, fds), SL_ERR_INVALID);
    nodes_expect(request(session, SL_OBJECTS_SESSION_FOLLOW, 0, &answer));
    assert_int_equal(request(session, SL_OBJECTS_SESSION_FOLLOW, 0, &answer), SL_ERR_INVALID);
    sl_objects_session_close(&session);
}

CASE(session__of_one_name_share_what_the_node_follows)
{
    struct sl_objects_session_answer first, second, other;
    struct sl_objects_session *a = follow(1, &first);
    assert_int_equal(first.version, 0);
    (void)publish();
    nodes_expect(request(a, SL_OBJECTS_SESSION_WAIT, 0, &first));
    struct sl_objects_session *b = follow(1, &second);
    assert_int_equal(second.version, 1);
    assert_int_equal(second.board_entry, first.board_entry);
    sl_objects_session_close(&a);
    (void)publish();
    nodes_expect(request(b, SL_OBJECTS_SESSION_WAIT, 1, &second));
    assert_int_equal(second.version, 2);
    struct sl_objects_session_request another = {
        .kind = SL_OBJECTS_SESSION_FOLLOW, .timeout_ms = NODES_TIMEOUT, .name = "another"};
    a = open_session(1);
    nodes_expect(sl_objects_session_call(a, &another, &other, fds));
    assert_int_not_equal(other.board_entry, second.board_entry);
    sl_objects_session_close(&a);
    sl_objects_session_close(&b);
}

CASE(session__wait_ends_by_its_deadline)
{
    struct sl_objects_session_answer answer;
    struct sl_objects_session *session = follow(1, &answer);
    const struct sl_objects_session_request wait = {.kind = SL_OBJECTS_SESSION_WAIT,
                                                    .timeout_ms = 20};
    assert_int_equal(sl_objects_session_call(session, &wait, &answer, fds), SL_ERR_DEADLINE);
    assert_non_null(strstr(sl_objects_last_error(), "model: no version above 0"));
    sl_objects_session_close(&session);
}

/* Views */

static struct sl_objects_session *follow_and_fetch(uint32_t node)
{
    const struct sl_objects_session_request made = {.kind = SL_OBJECTS_SESSION_FOLLOW,
                                                    .timeout_ms = NODES_TIMEOUT,
                                                    .options = SL_OBJECTS_FOLLOW_FETCH,
                                                    .name = "model"};
    struct sl_objects_session *session = open_session(node);
    struct sl_objects_session_answer answer;
    nodes_expect(sl_objects_session_call(session, &made, &answer, fds));
    return session;
}

/* Opens a view, and maps it. Returns its number. */
static uint64_t open_view(struct sl_objects_session *session,
                          const struct sl_objects_session_request *open,
                          struct sl_objects_mapping *mapping)
{
    struct sl_objects_session_request made = *open;
    struct sl_objects_session_answer answer;
    struct sl_reason reason;
    made.kind = SL_OBJECTS_SESSION_OPEN;
    made.timeout_ms = NODES_TIMEOUT;
    nodes_expect(sl_objects_session_call(session, &made, &answer, fds));
    if (sl_objects_mapping_open(mapping, fds[0], answer.fd_count > 1 ? fds[1] : -1, true,
                                &reason) != 0) {
        fail_msg("%s", reason.text);
    }
    assert_int_equal(mapping->table->version, answer.version);
    for (uint32_t i = 0; i < answer.fd_count; i++) {
        (void)close(fds[i]);
    }
    return answer.view;
}

static void expect_view(const struct sl_objects_mapping *mapping, uint32_t seed)
{
    static uint8_t image[BYTES];
    assert_int_equal(mapping->image_count, 1);
    assert_int_equal(sl_objects_mapping_verified(mapping), BYTES);
    const struct sl_objects_mapping_image *of = &mapping->images[0];
    for (uint64_t at = 0; at < BYTES; at += SL_OBJECTS_BLOCK_BYTES) {
        const uint32_t count =
            BYTES - at < SL_OBJECTS_BLOCK_BYTES ? (uint32_t)(BYTES - at) : SL_OBJECTS_BLOCK_BYTES;
        memmove(image + at,
                sl_objects_place_read(of->places, of->place_count, of->image_at + at, count,
                                      image + at),
                count);
    }
    nodes_expect_bytes(image, BYTES, seed);
}

static void close_view(struct sl_objects_session *session, uint64_t view,
                       struct sl_objects_mapping *mapping)
{
    const struct sl_objects_session_request made = {
        .kind = SL_OBJECTS_SESSION_CLOSE, .timeout_ms = NODES_TIMEOUT, .view = view};
    struct sl_objects_session_answer answer;
    sl_objects_mapping_close(mapping);
    nodes_expect(sl_objects_session_call(session, &made, &answer, fds));
    assert_int_equal(sl_objects_session_call(session, &made, &answer, fds), SL_ERR_NOT_FOUND);
}

static uint64_t publish_seed(uint32_t seed)
{
    uint8_t *made = nodes_bytes(BYTES, seed);
    const uint64_t version = nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, made, BYTES);
    free(made);
    return version;
}

CASE(session__opens_the_announced_version)
{
    const struct sl_objects_session_request newest = {0}, none = {.kind = SL_OBJECTS_SESSION_OPEN,
                                                                  .timeout_ms = NODES_TIMEOUT,
                                                                  .version = 7};
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mapping;
    struct sl_objects_session *session = follow(1, &answer);
    (void)publish_seed(3);
    const uint64_t view = open_view(session, &newest, &mapping); /* waits for the first one */
    expect_view(&mapping, 3);
    close_view(session, view, &mapping);
    assert_int_equal(sl_objects_session_call(session, &none, &answer, fds), SL_ERR_NOT_FOUND);
    sl_objects_session_close(&session);
}

CASE(session__fetches_what_it_follows)
{
    const struct sl_objects_session_request newest = {0}, old = {.version = 2};
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mapping;
    struct sl_objects_session *session = follow_and_fetch(1);
    for (uint32_t i = 1; i <= 3; i++) {
        (void)publish_seed(i);
        nodes_expect(request(session, SL_OBJECTS_SESSION_WAIT, i - 1, &answer));
        assert_int_equal(answer.version, i);
    }
    uint64_t view = open_view(session, &newest, &mapping);
    expect_view(&mapping, 3);
    close_view(session, view, &mapping);
    view = open_view(session, &old, &mapping);
    expect_view(&mapping, 2);
    sl_objects_mapping_close(&mapping);
    sl_objects_session_close(&session); /* with the view */
}

CASE(session__open_takes_a_complete_version_that_is_little_behind)
{
    const struct sl_objects_session_request newest = {0}, near = {.behind_max = 1};
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mapping;
    struct sl_objects_session *session = follow(1, &answer);
    for (uint32_t i = 1; i <= 2; i++) {
        (void)publish_seed(i);
        nodes_expect(request(session, SL_OBJECTS_SESSION_WAIT, i - 1, &answer));
        const uint64_t view = open_view(session, i == 1 ? &newest : &near, &mapping);
        assert_int_equal(mapping.table->version, 1);
        close_view(session, view, &mapping);
    }
    const uint64_t view = open_view(session, &newest, &mapping);
    assert_int_equal(mapping.table->version, 2);
    close_view(session, view, &mapping);
    sl_objects_session_close(&session);
}

CASE(session__stream_is_answered_before_all_is_verified)
{
    const struct sl_objects_session_request stream = {
        .options = SL_OBJECTS_OPEN_STREAM, .stop_count = 2, .stops = {100000, BYTES - 1}};
    struct sl_objects_session_request wait = {.kind = SL_OBJECTS_SESSION_WAIT_VIEW,
                                              .timeout_ms = NODES_TIMEOUT};
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mapping;
    struct sl_objects_session *session = follow(1, &answer);
    (void)publish_seed(9);
    wait.view = open_view(session, &stream, &mapping);
    for (wait.image_bytes = 1; wait.image_bytes < BYTES; wait.image_bytes += 100000) {
        nodes_expect(sl_objects_session_call(session, &wait, &answer, fds));
        assert_true(sl_objects_mapping_verified(&mapping) >= wait.image_bytes);
    }
    wait.image_bytes = UINT64_MAX; /* all */
    nodes_expect(sl_objects_session_call(session, &wait, &answer, fds));
    expect_view(&mapping, 9);
    close_view(session, wait.view, &mapping);
    sl_objects_session_close(&session);
}

/* A part without bytes: a table without rows, say. */
CASE(session__stream_of_no_bytes_waits_for_its_manifest)
{
    struct sl_objects_pin *pin = calloc(1, sizeof *pin + sizeof pin->parts[0]);
    struct sl_objects_copy copy = {.info.manifest_bytes = 100, .place_count = 1};
    copy.pooled = calloc(1, sizeof *copy.pooled + sizeof copy.pooled->blocks[0]);
    assert_non_null(pin);
    assert_non_null(copy.pooled);
    copy.fetch = (struct sl_objects_fetch *)&copy; /* one is running */
    pin->part_count = 1;
    pin->parts[0].use.copy = &copy;
    assert_false(sl_objects_pin_is_placed(pin));
    copy.pooled->blocks[0].is_verified = true;
    assert_true(sl_objects_pin_is_placed(pin));
    free(copy.pooled);
    free(pin);
}

CASE(session__reads_end_at_stops)
{
    enum { BLOCK = SL_OBJECTS_BLOCK_BYTES };
    uint64_t stops[] = {1, 5 * BLOCK, 8 * BLOCK + 1};
    const bool behind[] = {true, false, false, true, true, false, false, true, true, false};
    const struct sl_objects_copy copy = {.stops.offsets = stops, .stops.count = 3};
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(sl_objects_copy_stops_behind(&copy, i), behind[i]);
    }
}

CASE(session__view_of_memory_of_the_application)
{
    const struct sl_objects_session_request newest = {0};
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mapping;
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, bytes, BYTES);
    struct sl_objects_session *session = follow(0, &answer);
    const uint64_t view = open_view(session, &newest, &mapping);
    const struct sl_objects_mapping_image *image = &mapping.images[0];
    assert_ptr_equal(
        sl_objects_place_read(image->places, image->place_count, image->image_at, 1, fds), bytes);
    expect_view(&mapping, 1);
    close_view(session, view, &mapping);
    sl_objects_session_close(&session);
}

CASE(session__views_keep_their_bytes_while_others_leave_the_pool)
{
    enum { VIEWS = 20, ROUNDS = 80 }; /* 80 versions of 768 KiB and more; the pool has 64 MiB */
    const struct sl_objects_session_request newest = {0};
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mappings[VIEWS], other;
    struct sl_objects_session *session = follow_and_fetch(1);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const uint64_t version = publish_seed(i);
        nodes_expect(request(session, SL_OBJECTS_SESSION_WAIT, version - 1, &answer));
        const uint64_t view = open_view(session, &newest, i < VIEWS ? &mappings[i] : &other);
        if (i >= VIEWS) {
            expect_view(&other, i);
            close_view(session, view, &other);
        }
    }
    for (uint32_t i = 0; i < VIEWS; i++) {
        expect_view(&mappings[i], i);
        sl_objects_mapping_close(&mappings[i]);
    }
    sl_objects_session_close(&session);
}

CASE(session__has_a_limit_of_views)
{
    const struct sl_objects_session_request newest = {.kind = SL_OBJECTS_SESSION_OPEN,
                                                      .timeout_ms = NODES_TIMEOUT};
    struct sl_objects_session_answer answer;
    struct sl_objects_session *session = follow(0, &answer);
    (void)publish_seed(1);
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < 1000; i++) {
        err = sl_objects_session_call(session, &newest, &answer, fds);
        for (uint32_t k = 0; err == 0 && k < answer.fd_count; k++) {
            (void)close(fds[k]);
        }
    }
    assert_int_equal(err, SL_ERR_TOO_LARGE);
    sl_objects_session_close(&session);
}

CASE(session__names_both_sizes_if_a_version_does_not_fit)
{
    enum { LARGE = 65 << 20 }; /* the pool has 64 MiB */
    const struct sl_objects_session_request newest = {.kind = SL_OBJECTS_SESSION_OPEN,
                                                      .timeout_ms = NODES_TIMEOUT};
    struct sl_objects_session_answer answer;
    uint8_t *large = calloc(LARGE, 1);
    assert_non_null(large);
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, large, LARGE);
    struct sl_objects_session *session = follow(1, &answer);
    assert_int_equal(sl_objects_session_call(session, &newest, &answer, fds), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(sl_objects_last_error(), "68157440"));
    assert_non_null(strstr(sl_objects_last_error(), "67108864"));
    sl_objects_session_close(&session);
    nodes_end(&nodes, 0);
    free(large);
}
