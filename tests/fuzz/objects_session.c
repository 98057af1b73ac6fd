/* Hostile readers of an agent, over its socket: packets of any bytes, and requests with any members
 * in any order, with and without waiting for the answers. The agent answers or ends the session,
 * and goes on for other ones. The input: a step each. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/base/unix_socket.h"
#include "objects/node/local.h"
#include "objects/node/node.h"
#include "tests/fuzz/input.h"

#define STEPS_MAX  64
#define TIMEOUT_MS 20000

/* One agent, for one input after the other, and a reader that behaves. */
static struct {
    struct sl_objects *node;
    char name[SL_OBJECTS_LOCAL_NAME_BYTES];
    int fd;
} world;

static void call(uint32_t kind, const char *name)
{
    struct sl_objects_session_request request = {.kind = kind, .timeout_ms = TIMEOUT_MS};
    struct sl_objects_session_answer answer;
    struct sl_reason reason;
    int fds[SL_OBJECTS_SESSION_FDS_MAX];
    (void)snprintf(request.name, sizeof request.name, "%s", name);
    sl_assert(sl_objects_local_call(world.fd, &request, &answer, fds, &reason) == 0);
}

static void publish(void)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = "a", .origin = SL_ORIGIN_HOST};
    const struct sl_object_extent extent = {.base = &world, .bytes = sizeof world};
    struct sl_publication *publication;
    uint64_t version;
    sl_assert(sl_publish_begin(world.node, &options, TIMEOUT_MS, &publication) == 0);
    sl_assert(sl_publish_bytes(publication, &extent, 1) == 0);
    sl_assert(sl_publish_commit(publication, TIMEOUT_MS, &version) == 0);
    sl_publish_end(&publication);
}

static void start(void)
{
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options, .engine_options = &engine, .pool_bytes = 4 << 20};
    const struct sl_objects_setup setup = {.agent = world.name};
    struct sl_reason reason;
    int board_fd;
    sl_log_setup(SL_LOG_OFF, "fuzz");
    (void)snprintf(world.name, sizeof world.name, "fuzz-%d", (int)getpid());
    sl_assert(sl_objects_create_with(&options, &setup, &world.node) == 0);
    publish();
    publish();
    sl_assert(sl_objects_local_connect(world.name, "", TIMEOUT_MS, &world.fd, &board_fd, &reason) ==
              0);
    (void)close(board_fd);
    call(SL_OBJECTS_SESSION_FOLLOW, "a");
}

static int connect_raw(void)
{
    struct sockaddr_un address;
    const socklen_t bytes = sl_objects_local_address(world.name, &address);
    const struct timeval wait = {.tv_sec = TIMEOUT_MS / 1000};
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sl_assert(fd >= 0);
    sl_assert(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof wait) == 0);
    sl_assert(connect(fd, (const struct sockaddr *)&address, bytes) == 0);
    return fd;
}

/* The kernel closes the descriptors that come with it. */
static void take_answer(int fd)
{
    struct sl_objects_session_answer answer;
    const ssize_t bytes = recv(fd, &answer, sizeof answer, 0);
    sl_assert(bytes <= 0 || bytes == sizeof answer);
    sl_assert(bytes <= 0 || (answer.err <= 0 && answer.fd_count <= SL_OBJECTS_SESSION_FDS_MAX &&
                             memchr(answer.text, '\0', sizeof answer.text) != NULL));
}

/* Mostly a request that gets beyond the checks. */
static void send_request(int fd, struct sl_bytes *input)
{
    static const char *const names[] = {"a", "b", "", "a b"};
    struct sl_objects_session_request request = {
        .kind = sl_bytes_u8(input) % (SL_OBJECTS_SESSION_CLOSE + 2),
        .timeout_ms = sl_bytes_u8(input) % 4,
        .version = sl_bytes_u8(input) % 4,
        .view = sl_bytes_u8(input) % 4,
        .options = sl_bytes_u8(input),
        .behind_max = sl_bytes_u8(input),
        .image_bytes = sl_bytes_u16(input),
        .stop_count = sl_bytes_u8(input) % (SL_OBJECTS_SESSION_STOPS_MAX + 2)};
    for (uint32_t i = 0; i < request.stop_count && i < SL_OBJECTS_SESSION_STOPS_MAX; i++) {
        request.stops[i] = sl_bytes_u16(input);
    }
    if (request.kind == SL_OBJECTS_SESSION_FOLLOW) {
        (void)snprintf(request.name, sizeof request.name, "%s", names[sl_bytes_u8(input) % 4]);
    }
    if (request.kind == SL_OBJECTS_SESSION_HELLO) {
        request.version = SL_OBJECTS_SESSION_MAGIC;
    }
    (void)sl_unix_socket_send(fd, &request, sizeof request, &fd, sl_bytes_u8(input) == 1 ? 1 : 0);
}

static void send_bytes(int fd, struct sl_bytes *input)
{
    struct sl_objects_session_request request = {0};
    const struct sl_bytes piece = fuzz_input_piece(input, sizeof request);
    if (piece.left > 0) {
        memcpy(&request, piece.next, piece.left);
    }
    (void)send(fd, &request, sl_bytes_u8(input) % 2 == 0 ? sizeof request : piece.left,
               MSG_NOSIGNAL);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct sl_bytes input = sl_bytes_over(bytes, byte_count);
    if (world.node == NULL) {
        start();
    }
    const int fd = connect_raw();
    for (uint32_t i = 0; i < STEPS_MAX && fuzz_input_has_more(&input); i++) {
        const uint8_t step = sl_bytes_u8(&input);
        if (step % 8 == 0) {
            send_bytes(fd, &input);
        } else {
            send_request(fd, &input);
        }
        if (step < 240) {
            take_answer(fd);
        }
    }
    (void)close(fd);
    call(SL_OBJECTS_SESSION_WAIT, "");
    return 0;
}
