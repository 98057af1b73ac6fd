#include "objects/node/local.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/limits.h"
#include "net/base/unix_socket.h"
#include "nodes.h"
#include "objects/node/node.h"
#include "objects/reader/mapping.h"

enum { BYTES = 2 * SL_OBJECTS_BLOCK_BYTES + 77 };

static struct nodes nodes;
static struct sl_objects *agent;
static char name[32];
static struct sl_reason reason;
static uint64_t pin_warn_ns;

static void start_agent(void)
{
    static const char *const kept[] = {"kept"};
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = sl_objects_address(nodes.node[0]),
                                               .pool_bytes = 16 << 20};
    const struct sl_objects_setup setup = {
        .agent = name, .keep = kept, .keep_count = 1, .pin_warn_ns = pin_warn_ns};
    nodes_expect(sl_objects_create_with(&options, &setup, &agent));
}

static void setup(void)
{
    (void)snprintf(name, sizeof name, "test-%d", (int)getpid());
    nodes_init(&nodes, 1, 0);
    start_agent();
}

static void teardown(void)
{
    sl_objects_destroy(&agent);
    nodes_fini(&nodes);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static void expect(int err)
{
    if (err != 0) {
        fail_msg("%s: %s", sl_err_name(err), reason.text);
    }
}

static uint64_t publish(const char *object, uint32_t seed)
{
    uint8_t *bytes = nodes_bytes(BYTES, seed);
    const uint64_t version = nodes_publish(nodes.node[0], object, SL_ORIGIN_HOST, bytes, BYTES);
    free(bytes);
    return version;
}

/* A reader: another process would do just this. */
struct reader {
    int fd, board_fd, fds[SL_OBJECTS_SESSION_FDS_MAX];
    struct sl_objects_session_answer answer;
    struct sl_objects_mapping mapping;
};

static struct reader connect_reader(void)
{
    struct reader reader = {0};
    expect(
        sl_objects_local_connect(name, "", NODES_TIMEOUT, &reader.fd, &reader.board_fd, &reason));
    return reader;
}

static void disconnect(struct reader *reader)
{
    (void)close(reader->fd);
    (void)close(reader->board_fd);
}

static int call(struct reader *reader, uint32_t kind, uint64_t version, uint32_t options)
{
    struct sl_objects_session_request request = {
        .kind = kind, .timeout_ms = NODES_TIMEOUT, .version = version, .options = options};
    (void)snprintf(request.name, sizeof request.name, "%s",
                   kind == SL_OBJECTS_SESSION_FOLLOW ? "model" : "");
    return sl_objects_local_call(reader->fd, &request, &reader->answer, reader->fds, &reason);
}

static struct reader follow(void)
{
    struct reader reader = connect_reader();
    expect(call(&reader, SL_OBJECTS_SESSION_FOLLOW, 0, SL_OBJECTS_FOLLOW_FETCH));
    return reader;
}

static void open_view(struct reader *reader)
{
    expect(call(reader, SL_OBJECTS_SESSION_OPEN, 0, 0));
    assert_int_equal(reader->answer.fd_count, 2);
    expect(
        sl_objects_mapping_open(&reader->mapping, reader->fds[0], reader->fds[1], false, &reason));
    (void)close(reader->fds[0]);
    (void)close(reader->fds[1]);
}

static void expect_view(const struct reader *reader, uint32_t seed)
{
    const struct sl_objects_mapping_image *image = &reader->mapping.images[0];
    assert_int_equal(sl_objects_mapping_verified(&reader->mapping), BYTES);
    const uint8_t *memory =
        sl_objects_place_read(image->places, image->place_count, image->image_at, BYTES, NULL);
    assert_non_null(memory);
    nodes_expect_bytes(memory, BYTES, seed);
}

CASE(local__readers_of_an_agent_share_its_memory)
{
    struct reader first = follow(), second = follow();
    (void)publish("model", 5);
    expect(call(&first, SL_OBJECTS_SESSION_WAIT, 0, 0));
    assert_int_equal(first.answer.version, 1);
    open_view(&first);
    open_view(&second);
    expect_view(&first, 5);
    expect_view(&second, 5);
    assert_int_equal(first.mapping.table->slots[0], second.mapping.table->slots[0]);
    sl_objects_mapping_close(&first.mapping);
    sl_objects_mapping_close(&second.mapping);
    disconnect(&first);
    disconnect(&second);
}

CASE(local__a_reader_cannot_write_to_what_it_reads)
{
    struct reader reader = follow();
    (void)publish("model", 5);
    expect(call(&reader, SL_OBJECTS_SESSION_OPEN, 0, 0));
    const int fds[] = {reader.board_fd, reader.fds[0], reader.fds[1]};
    for (uint32_t i = 0; i < 3; i++) {
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0),
                         MAP_FAILED);
        assert_int_equal(pwrite(fds[i], "x", 1, 0), -1);
        assert_int_equal(ftruncate(fds[i], 0), -1);
    }
    (void)close(fds[1]);
    (void)close(fds[2]);
    disconnect(&reader);
}

CASE(local__a_second_agent_of_the_name_does_not_start)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = sl_objects_address(nodes.node[0]),
                                               .pool_bytes = 1 << 20};
    const struct sl_objects_setup second_setup = {.agent = name};
    struct sl_objects *second;
    assert_int_equal(sl_objects_create_with(&options, &second_setup, &second), SL_ERR_IN_USE);
}

CASE(local__a_view_outlives_the_agent)
{
    struct reader reader = follow();
    (void)publish("model", 6);
    open_view(&reader);
    sl_objects_destroy(&agent);
    expect_view(&reader, 6);
    assert_int_equal(call(&reader, SL_OBJECTS_SESSION_WAIT, 1, 0), SL_ERR_CLOSED);
    start_agent();
    struct reader next = follow();
    open_view(&next);
    expect_view(&next, 6);
    expect_view(&reader, 6);
    sl_objects_mapping_close(&reader.mapping);
    sl_objects_mapping_close(&next.mapping);
    disconnect(&reader);
    disconnect(&next);
}

CASE(local__pins_end_with_their_reader)
{
    struct reader other = follow();
    for (uint32_t i = 0; i < 40; i++) { /* 40 versions take 33 MiB; the pool has 16 */
        struct reader reader = follow();
        const uint64_t version = publish("model", i);
        expect(call(&reader, SL_OBJECTS_SESSION_WAIT, version - 1, 0));
        open_view(&reader);
        expect_view(&reader, i);
        sl_objects_mapping_close(&reader.mapping);
        disconnect(&reader);
    }
    open_view(&other);
    expect_view(&other, 39);
    sl_objects_mapping_close(&other.mapping);
    disconnect(&other);
}

CASE(local__keeps_the_newest_version_of_a_name)
{
    struct sl_objects_session_request wait = {.kind = SL_OBJECTS_SESSION_FOLLOW,
                                              .timeout_ms = NODES_TIMEOUT,
                                              .options = SL_OBJECTS_FOLLOW_FETCH,
                                              .name = "kept"};
    struct reader kept = connect_reader(), other = follow();
    (void)publish("kept", 1);
    expect(sl_objects_local_call(kept.fd, &wait, &kept.answer, kept.fds, &reason));
    expect(call(&kept, SL_OBJECTS_SESSION_WAIT, 0, 0));
    for (uint32_t i = 0; i < 40; i++) {
        const uint64_t version = publish("model", i);
        expect(call(&other, SL_OBJECTS_SESSION_WAIT, version - 1, 0));
    }
    nodes_expect(sl_object_withdraw(nodes.node[0], "kept", 1, NODES_TIMEOUT));
    open_view(&kept);
    expect_view(&kept, 1);
    sl_objects_mapping_close(&kept.mapping);
    disconnect(&kept);
    disconnect(&other);
}

CASE(local__the_log_names_a_view_that_is_open_for_long)
{
    char text[4096] = "", expected[64];
    const int log = memfd_create("log", MFD_CLOEXEC), saved = dup(STDERR_FILENO);
    sl_objects_destroy(&agent);
    pin_warn_ns = 1000000;
    start_agent();
    pin_warn_ns = 0;
    struct reader reader = follow();
    (void)publish("model", 1);
    assert_int_equal(dup2(log, STDERR_FILENO), STDERR_FILENO);
    open_view(&reader);
    (void)snprintf(expected, sizeof expected, "process %d has a view of model@1", (int)getpid());
    for (uint32_t i = 0; strstr(text, expected) == NULL && i < NODES_TIMEOUT; i++) {
        (void)usleep(1000);
        (void)!pread(log, text, sizeof text - 1, 0);
    }
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    assert_non_null(strstr(text, expected));
    (void)close(log);
    (void)close(saved);
    sl_objects_mapping_close(&reader.mapping);
    disconnect(&reader);
}

/* A publisher at full rate, and more open views than fit into the pool */

enum { RATE_VERSIONS = 150, RATE_READERS = 6, RATE_VIEWS = 4 };

struct rate_reader {
    pthread_t thread;
    uint32_t opened;
    const char *failed; /* NULL: nothing */
};

/* The byte at every place of version v is v. */
static const char *check_rate_view(const struct reader *reader)
{
    const struct sl_objects_mapping_image *image = &reader->mapping.images[0];
    const uint8_t *memory =
        sl_objects_place_read(image->places, image->place_count, image->image_at, BYTES, NULL);
    for (uint32_t i = 0; i < BYTES; i++) {
        if (memory[i] != (uint8_t)reader->answer.version) {
            return "a view is torn";
        }
    }
    return NULL;
}

/* Opens the newest version in one of several sessions, and checks the views that are open; some
 * sessions end with their view. */
static void *read_at_rate(void *ctx)
{
    struct rate_reader *self = ctx;
    struct reader readers[RATE_VIEWS] = {0};
    struct sl_reason why;
    uint64_t version = 0;
    for (uint32_t i = 0; version < RATE_VERSIONS && self->failed == NULL; i++) {
        struct sl_objects_session_request request = {.kind = SL_OBJECTS_SESSION_FOLLOW,
                                                     .timeout_ms = NODES_TIMEOUT,
                                                     .options = SL_OBJECTS_FOLLOW_FETCH,
                                                     .name = "rate"};
        struct reader *reader = &readers[i % RATE_VIEWS];
        if (reader->fd > 0) {
            self->failed = check_rate_view(reader);
            sl_objects_mapping_close(&reader->mapping);
            disconnect(reader);
            reader->fd = 0;
        }
        int err =
            sl_objects_local_connect(name, "", NODES_TIMEOUT, &reader->fd, &reader->board_fd, &why);
        err = err != 0
                  ? err
                  : sl_objects_local_call(reader->fd, &request, &reader->answer, reader->fds, &why);
        request = (struct sl_objects_session_request){.kind = SL_OBJECTS_SESSION_OPEN,
                                                      .timeout_ms = NODES_TIMEOUT};
        err = err != 0
                  ? err
                  : sl_objects_local_call(reader->fd, &request, &reader->answer, reader->fds, &why);
        if (err == SL_ERR_NO_MEMORY) { /* of the pool */
            disconnect(reader);
            reader->fd = 0;
            continue;
        }
        err = err != 0 ? err
                       : sl_objects_mapping_open(&reader->mapping, reader->fds[0], reader->fds[1],
                                                 false, &why);
        if (err != 0) {
            self->failed = sl_err_name(err);
            return NULL;
        }
        (void)close(reader->fds[0]);
        (void)close(reader->fds[1]);
        self->opened++;
        version = reader->answer.version;
        self->failed = self->failed != NULL ? self->failed : check_rate_view(reader);
    }
    for (uint32_t i = 0; i < RATE_VIEWS; i++) {
        if (readers[i].fd > 0) {
            self->failed = self->failed != NULL ? self->failed : check_rate_view(&readers[i]);
            sl_objects_mapping_close(&readers[i].mapping);
            disconnect(&readers[i]);
        }
    }
    return NULL;
}

CASE(local__views_are_whole_while_a_publisher_runs_at_full_rate)
{
    struct rate_reader readers[RATE_READERS] = {0};
    uint8_t *bytes = malloc(BYTES);
    for (uint32_t i = 0; i < RATE_READERS; i++) {
        assert_int_equal(pthread_create(&readers[i].thread, NULL, read_at_rate, &readers[i]), 0);
    }
    for (uint32_t i = 1; i <= RATE_VERSIONS; i++) {
        memset(bytes, (int)i, BYTES);
        assert_int_equal(nodes_publish(nodes.node[0], "rate", SL_ORIGIN_HOST, bytes, BYTES), i);
    }
    for (uint32_t i = 0; i < RATE_READERS; i++) {
        assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
        if (readers[i].failed != NULL) {
            fail_msg("%s", readers[i].failed);
        }
        assert_true(readers[i].opened > 0);
    }
    free(bytes);
}

/* Hostile processes */

static int connect_raw(void)
{
    struct sockaddr_un address;
    const socklen_t bytes = sl_objects_local_address(name, &address);
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, bytes), 0);
    return fd;
}

/* Until the agent closes. */
static void expect_end(int fd)
{
    struct sl_objects_session_answer answer;
    while (recv(fd, &answer, sizeof answer, 0) > 0) {
    }
    (void)close(fd);
}

CASE(local__what_is_no_request_ends_its_session_alone)
{
    struct sl_objects_session_request request = {.kind = SL_OBJECTS_SESSION_WAIT,
                                                 .timeout_ms = 1000};
    struct reader other = follow();
    int fd = connect_raw();
    (void)send(fd, "mad", 3, MSG_NOSIGNAL);
    expect_end(fd);
    fd = connect_raw(); /* no HELLO */
    (void)send(fd, &request, sizeof request, MSG_NOSIGNAL);
    expect_end(fd);
    fd = connect_raw(); /* with a descriptor */
    request.kind = SL_OBJECTS_SESSION_HELLO;
    (void)sl_unix_socket_send(fd, &request, sizeof request, &fd, 1);
    expect_end(fd);
    struct reader reader = follow(); /* two requests at once */
    request.kind = SL_OBJECTS_SESSION_WAIT;
    (void)send(reader.fd, &request, sizeof request, MSG_NOSIGNAL);
    (void)send(reader.fd, &request, sizeof request, MSG_NOSIGNAL);
    expect_end(reader.fd);
    (void)close(reader.board_fd);
    (void)publish("model", 1);
    expect(call(&other, SL_OBJECTS_SESSION_WAIT, 0, 0));
    disconnect(&other);
}

CASE(local__random_packets_disturb_no_other_session)
{
    struct reader other = follow();
    uint64_t random = 1;
    for (uint32_t i = 0; i < 300; i++) {
        struct reader reader = i % 2 == 0 ? follow() : connect_reader();
        for (uint32_t k = 0; k < 20; k++) {
            struct sl_objects_session_request request;
            uint8_t *to = (uint8_t *)&request;
            for (uint32_t b = 0; b < sizeof request; b++) {
                random = random * 6364136223846793005ULL + 1442695040888963407ULL;
                to[b] = (uint8_t)(random >> 56) & (b % 3 == 0 ? 0xff : 0);
            }
            request.kind = 1 + (uint32_t)(random >> 33) % SL_OBJECTS_SESSION_CLOSE;
            request.timeout_ms = 1 + (uint32_t)(random >> 50) % 5;
            request.version = i % 4;
            request.view = k % 4;
            request.stop_count = (uint32_t)(random >> 40) % 66;
            request.name[sizeof request.name - 1] = '\0';
            (void)send(reader.fd, &request, sizeof request, MSG_NOSIGNAL);
            if (k % 2 == 0) {
                (void)recv(reader.fd, &reader.answer, sizeof reader.answer, MSG_DONTWAIT);
            }
        }
        disconnect(&reader);
    }
    (void)publish("model", 1);
    expect(call(&other, SL_OBJECTS_SESSION_WAIT, 0, 0));
    disconnect(&other);
}

CASE(local__a_reader_that_takes_no_answers_is_ended)
{
    const struct sl_objects_session_request hello = {
        .kind = SL_OBJECTS_SESSION_HELLO, .timeout_ms = 1000, .version = SL_OBJECTS_SESSION_MAGIC};
    const int fd = connect_raw();
    while (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) > 0) {
    }
    (void)close(fd);
    struct reader reader = follow();
    disconnect(&reader);
}

CASE(local__sessions_have_a_limit)
{
    static int fds[SL_LIMIT_OBJECTS_READERS];
    struct sl_objects_session_answer answer;
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_READERS; i++) {
        fds[i] = connect_raw();
    }
    const int more = connect_raw();
    assert_true(recv(more, &answer, sizeof answer, 0) <= 0);
    (void)close(more);
    for (uint32_t i = 0; i < SL_LIMIT_OBJECTS_READERS; i++) {
        (void)close(fds[i]);
    }
    struct reader reader;
    int err;
    do { /* until the agent has seen that they are closed */
        err = sl_objects_local_connect(name, "", NODES_TIMEOUT, &reader.fd, &reader.board_fd,
                                       &reason);
    } while (err == SL_ERR_CLOSED);
    expect(err);
    disconnect(&reader);
}
