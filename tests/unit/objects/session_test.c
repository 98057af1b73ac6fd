#include "objects/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nodes.h"

static struct nodes nodes;
static uint8_t *bytes;

enum { BYTES = 3 * SL_OBJECTS_BLOCK_BYTES + 5 };

static int setup(void **state)
{
    nodes_init(&nodes, 2, 0);
    bytes = nodes_bytes(BYTES, 1);
    return 0;
}

static int teardown(void **state)
{
    nodes_fini(&nodes);
    free(bytes);
    return 0;
}

#define CASE(name) SL_CASE_WITH(name, setup, teardown)

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
    assert_int_equal(request(session, SL_OBJECTS_SESSION_RESIDENT + 1, 0, &answer), SL_ERR_INVALID);
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
