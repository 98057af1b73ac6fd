/* Over shared memory a peer can write anything at any moment. It can end its own connection by it,
 * and nothing else. */
#include "shm_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/log.h"

#define RANDOM_ROUNDS 3000
#define OTHER_USER    65534

static struct world *world;
static struct peer *bystander;

static int open_world(void **state)
{
    world = world_open(2, NULL);
    node_set_policy(&world->nodes[0], (struct policy){.echo = true});
    bystander = peer_connect(&world->nodes[1], &world->nodes[0].bound);
    WAIT_UNTIL(bystander->open && world->nodes[0].peer_count == 1);
    return 0;
}

static void bystander_is_served(void)
{
    uint32_t sizes[] = {10, 3000, 100000}, before = bystander->received;
    peer_send_from_test(bystander, sizes, 3);
    WAIT_UNTIL(bystander->received == before + 3);
    assert_int_equal(bystander->closed, 0);
}

static int close_world(void **state)
{
    bystander_is_served();
    world_close(world);
    return 0;
}

static const struct sl_endpoint *server_endpoint(void)
{
    return &world->nodes[0].bound;
}

/* The transport refuses the sender of this message, and the layer above is not notified. */
static void expect_turned_away(struct shm_raw *raw)
{
    uint32_t before = world->nodes[0].peer_count;
    assert_int_equal(shm_raw_await_end(raw), 0);
    assert_int_equal(world->nodes[0].peer_count, before);
    shm_raw_close(raw);
}

static int make_memory(size_t bytes, int seals)
{
    int fd = memfd_create("mad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
}

static void expect_hello_refused(struct sl_shm_ctrl_msg hello, size_t bytes, int fd)
{
    struct shm_raw raw = shm_raw_dial(server_endpoint());
    shm_raw_say(&raw, &hello, bytes, &fd, fd >= 0 ? 1 : 0);
    expect_turned_away(&raw);
    if (fd >= 0) {
        close(fd);
    }
}

static struct sl_shm_ctrl_msg right_hello(void)
{
    return (struct sl_shm_ctrl_msg){.magic = SL_SHM_CTRL_MSG_MAGIC,
                                    .version = SL_SHM_CTRL_MSG_VERSION,
                                    .kind = SL_SHM_CTRL_MSG_HELLO,
                                    .bytes = sizeof(struct sl_shm_segment)};
}

SL_CASE(hello__of_something_else)
{
    const size_t bytes = sizeof(struct sl_shm_segment);
    struct sl_shm_ctrl_msg bad = right_hello();
    bad.magic++;
    expect_hello_refused(bad, sizeof bad, make_memory(bytes, F_SEAL_SHRINK));
    bad = right_hello();
    bad.version++;
    expect_hello_refused(bad, sizeof bad, make_memory(bytes, F_SEAL_SHRINK));
    for (uint16_t kind = 0; kind < 9; kind++) {
        bad = right_hello();
        bad.kind = kind;
        expect_hello_refused(bad, sizeof bad, -1); /* also a hello without memory */
    }
    expect_hello_refused(right_hello(), sizeof bad - 1, make_memory(bytes, F_SEAL_SHRINK));
    expect_hello_refused(right_hello(), 1, -1);
}

SL_CASE(hello__with_memory_that_cannot_be_trusted)
{
    const size_t bytes = sizeof(struct sl_shm_segment);
    struct sl_shm_ctrl_msg hello = right_hello();
    expect_hello_refused(hello, sizeof hello, make_memory(bytes, F_SEAL_GROW));
    expect_hello_refused(hello, sizeof hello, make_memory(bytes / 2, F_SEAL_SHRINK));
    expect_hello_refused(hello, sizeof hello, make_memory(bytes, F_SEAL_SHRINK | F_SEAL_WRITE));
    hello.bytes = 4096;
    expect_hello_refused(hello, sizeof hello, make_memory(4096, F_SEAL_SHRINK));
    hello.bytes = UINT64_MAX;
    expect_hello_refused(hello, sizeof hello, make_memory(bytes, F_SEAL_SHRINK));
    hello.bytes = 0;
    expect_hello_refused(hello, sizeof hello, make_memory(bytes, F_SEAL_SHRINK));
}

static uint32_t count_fds(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* What comes along unasked is closed again. */
SL_CASE(hello__with_more_descriptors_than_one)
{
    uint32_t before = count_fds();
    int fds[6];
    for (uint32_t i = 0; i < 6; i++) {
        fds[i] = make_memory(sizeof(struct sl_shm_segment), F_SEAL_SHRINK);
    }
    for (uint32_t count = 2; count <= 6; count++) {
        struct shm_raw raw = shm_raw_dial(server_endpoint());
        struct sl_shm_ctrl_msg hello = right_hello();
        assert_true(shm_raw_say(&raw, &hello, sizeof hello, fds, count));
        expect_turned_away(&raw);
    }
    for (uint32_t i = 0; i < 6; i++) {
        close(fds[i]);
    }
    bystander_is_served();
    WAIT_UNTIL(count_fds() == before);
}

SL_CASE(hello__and_the_peer_is_gone)
{
    int fd = make_memory(sizeof(struct sl_shm_segment), F_SEAL_SHRINK);
    struct sl_shm_ctrl_msg hello = right_hello();
    for (uint32_t i = 0; i < 50; i++) {
        struct shm_raw raw = shm_raw_dial(server_endpoint());
        shm_raw_say(&raw, &hello, sizeof hello, &fd, i % 2);
        shm_raw_close(&raw);
    }
    close(fd);
}

/* Nobody waits for ever for one that says nothing. */
SL_CASE(hello__that_never_comes)
{
    struct sl_transport_options options = {.peer_timeout_ms = 20000};
    struct world *frozen = world_open_with_frozen_clock(1, &options);
    struct shm_raw raw = shm_raw_dial(&frozen->nodes[0].bound);
    struct sl_shm_ctrl_msg note;
    while (recv(raw.fd, &note, sizeof note, MSG_DONTWAIT) < 0 && errno == EAGAIN) {
        world_pass(frozen, 1000);
    }
    assert_int_equal(frozen->nodes[0].peer_count, 0);
    shm_raw_close(&raw);
    world_close(frozen);
}

/* Runs in another process, as another user, `play` on the address; its result is the status. */
static int as_other_user(int (*play)(int fd, const struct sockaddr_un *address, socklen_t bytes))
{
    struct sockaddr_un address;
    socklen_t bytes;
    sl_shm_socket_address(server_endpoint(), &address, &bytes);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (setgid(OTHER_USER) != 0 || setuid(OTHER_USER) != 0) {
            _exit(2);
        }
        _exit(play(fd, &address, bytes));
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int connect_and_hear_nothing(int fd, const struct sockaddr_un *address, socklen_t bytes)
{
    if (connect(fd, (const struct sockaddr *)address, bytes) != 0) {
        return 3;
    }
    struct sl_shm_ctrl_msg hello = right_hello();
    (void)send(fd, &hello, sizeof hello, MSG_NOSIGNAL);
    return recv(fd, &hello, sizeof hello, 0) <= 0 ? 0 : 4;
}

SL_CASE(another_user__is_turned_away)
{
    if (geteuid() != 0) {
        skip();
    }
    uint32_t before = world->nodes[0].peer_count;
    assert_int_equal(as_other_user(connect_and_hear_nothing), 0);
    assert_int_equal(world->nodes[0].peer_count, before);
}

/* Who has taken the name that one of us was to listen on. */
SL_CASE(another_user__is_not_connected_to)
{
    if (geteuid() != 0) {
        skip();
    }
    struct sl_endpoint taken = {.scheme = SL_ENDPOINT_SHM, .port = 7};
    snprintf(taken.host, sizeof taken.host, "taken-%d", (int)getpid());
    struct sockaddr_un address;
    socklen_t bytes;
    sl_shm_socket_address(&taken, &address, &bytes);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_other = setgid(OTHER_USER) == 0 && setuid(OTHER_USER) == 0;
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        bool listens = bind(fd, (struct sockaddr *)&address, bytes) == 0 && listen(fd, 5) == 0;
        (void)!write(ready[1], is_other && listens ? "y" : "n", 1);
        pause();
        _exit(0);
    }
    char answer;
    assert_int_equal(read(ready[0], &answer, 1), 1);
    assert_int_equal(answer, 'y');
    struct peer *peer = peer_connect(&world->nodes[1], &taken);
    WAIT_UNTIL(peer->closed == 1);
    assert_int_equal(peer->close_err, SL_ERR_REFUSED);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ready[0]);
    close(ready[1]);
}

static struct peer *last_accepted(uint32_t before)
{
    struct peer *peer = node_peer(&world->nodes[0], before);
    WAIT_UNTIL(peer->open);
    return peer;
}

/* A right frame, answered; then this one, and the end. */
static void expect_refused(const struct sl_shm_slot *bad, int err)
{
    uint32_t before = world->nodes[0].peer_count;
    struct shm_raw raw = shm_raw_connect(server_endpoint());
    struct peer *accepted = last_accepted(before);
    struct sl_shm_slot good = shm_raw_slot(1, 40);
    shm_raw_publish(&raw, &good);
    WAIT_UNTIL(sl_shm_slot_ready(&raw.segment->rings[1][0], 0));
    assert_memory_equal(raw.segment->rings[1][0].inlined, content_of(1, 40), 40);
    shm_raw_publish(&raw, bad);
    WAIT_UNTIL(accepted->closed == 1);
    assert_int_equal(accepted->close_err, err);
    assert_int_equal(accepted->received, 1);
    shm_raw_await_end(&raw);
    shm_raw_close(&raw);
}

static struct sl_shm_slot slot_of_pieces(uint8_t count, uint32_t payload_bytes)
{
    struct sl_shm_slot slot = shm_raw_slot(2, 0);
    memcpy(slot.header, &payload_bytes, sizeof payload_bytes);
    slot.kind = SL_SHM_PIECES;
    slot.piece_count = count;
    return slot;
}

static void expect_piece_refused(struct sl_shm_piece piece)
{
    struct sl_shm_slot bad = slot_of_pieces(1, piece.bytes);
    bad.pieces[0] = piece;
    expect_refused(&bad, SL_ERR_PROTOCOL);
}

SL_CASE(slot__that_is_no_frame)
{
    struct sl_shm_slot bad = shm_raw_slot(2, 40);
    bad.header[4]++;
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = shm_raw_slot(2, 40);
    bad.kind = 3;
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = shm_raw_slot(2, 40);
    bad.header[offsetof(struct sl_frame, version)]++;
    bad.header[1] = 0x70; /* long, and of another version */
    expect_refused(&bad, SL_ERR_VERSION);
    bad = slot_of_pieces(1, SL_LIMIT_FRAME_PAYLOAD_BYTES + 1);
    expect_refused(&bad, SL_ERR_TOO_LARGE);
    bad = shm_raw_slot(2, 0);
    bad.header[0] = SL_SHM_INLINE_BYTES + 1;
    expect_refused(&bad, SL_ERR_PROTOCOL);
}

SL_CASE(slot__whose_pieces_do_not_fit)
{
    const struct sl_shm_piece good = {.region = SL_SHM_REGION_ARENA, .bytes = 400};
    struct sl_shm_slot bad = slot_of_pieces(0, 400);
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = slot_of_pieces(3, 400);
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = slot_of_pieces(2, 400);
    bad.pieces[0] = good; /* and the second is empty */
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad.pieces[1] = good;
    expect_refused(&bad, SL_ERR_PROTOCOL);
    bad = slot_of_pieces(1, 401);
    bad.pieces[0] = good;
    expect_refused(&bad, SL_ERR_PROTOCOL);
}

SL_CASE(slot__whose_pieces_lie_nowhere)
{
    const uint32_t regions[] = {0,
                                255,
                                256,
                                12345678,
                                SL_SHM_REGION_YOURS,
                                SL_SHM_REGION_YOURS | 7,
                                SL_SHM_REGION_YOURS | 300,
                                UINT32_MAX - 1};
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
        expect_piece_refused((struct sl_shm_piece){.region = regions[i], .bytes = 100});
    }
    const uint64_t offsets[] = {SL_SHM_ARENA_BYTES - 99, SL_SHM_ARENA_BYTES, UINT64_MAX,
                                UINT64_MAX - 99, 1ULL << 63};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        expect_piece_refused((struct sl_shm_piece){
            .offset = offsets[i], .region = SL_SHM_REGION_ARENA, .bytes = 100});
    }
}

SL_CASE(slot__whose_answer_would_land_nowhere)
{
    const uint32_t regions[] = {0, 255, 256, SL_SHM_REGION_YOURS, SL_SHM_REGION_ARENA};
    for (size_t i = 0; i < sizeof regions / sizeof regions[0]; i++) {
        struct sl_shm_slot bad = shm_raw_slot(2, 40);
        bad.has_reply_buffer = 1;
        bad.reply_buffer = (struct sl_shm_piece){.region = regions[i], .bytes = 64};
        expect_refused(&bad, SL_ERR_PROTOCOL);
    }
}

SL_CASE(consumed__more_than_was_sent)
{
    uint32_t before = world->nodes[0].peer_count;
    struct shm_raw raw = shm_raw_connect(server_endpoint());
    struct peer *accepted = last_accepted(before);
    sl_shm_side_consume(&raw.segment->sides[0], 1U << 31);
    uint32_t sizes[300] = {0};
    peer_send_from_test(accepted, sizes, 300); /* more than there are slots: it must look */
    WAIT_UNTIL(accepted->closed == 1);
    assert_int_equal(accepted->close_err, SL_ERR_PROTOCOL);
    shm_raw_close(&raw);
}

/* Memory for one-sided operations is not given to a stranger; what he unmaps is nobody's. */
SL_CASE(ask__of_a_stranger)
{
    struct shm_raw raw = shm_raw_connect(server_endpoint());
    struct sl_shm_ctrl_msg answer;
    int fd;
    assert_true(shm_raw_note(
        &raw, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_RMA_UNMAPPED, .bytes = 42}, -1));
    assert_true(shm_raw_note(
        &raw, (struct sl_shm_ctrl_msg){.kind = SL_SHM_CTRL_MSG_RMA_ASK, .bytes = 42}, -1));
    WAIT_UNTIL(sl_shm_ctrl_msg_receive(raw.fd, &answer, &fd) == 0 &&
               answer.kind != SL_SHM_CTRL_MSG_WAKE);
    assert_int_equal(answer.kind, SL_SHM_CTRL_MSG_RMA_WITHDRAW);
    assert_int_equal(answer.bytes, 42);
    assert_int_equal(fd, -1);
    shm_raw_close(&raw);
}

SL_CASE(note__that_cannot_be)
{
    const struct sl_shm_ctrl_msg notes[] = {
        {.kind = 0},
        {.kind = 99},
        {.kind = SL_SHM_CTRL_MSG_ACCEPT},
        {.kind = SL_SHM_CTRL_MSG_HELLO, .bytes = sizeof(struct sl_shm_segment)},
        {.kind = SL_SHM_CTRL_MSG_REGION, .bytes = 4096},
        {.kind = SL_SHM_CTRL_MSG_REGION, .bytes = 8192, .region = 1},
        {.kind = SL_SHM_CTRL_MSG_REGION, .bytes = 4096, .region = SL_SHM_REGION_NAMES},
        {.kind = SL_SHM_CTRL_MSG_REGION, .bytes = 4096, .access = 2},
        {.kind = SL_SHM_CTRL_MSG_WITHDRAW, .region = 3},
        {.kind = SL_SHM_CTRL_MSG_WITHDRAW, .region = UINT32_MAX},
        {.kind = SL_SHM_CTRL_MSG_RMA_GIVE, .bytes = 4096},     /* without memory */
        {.kind = SL_SHM_CTRL_MSG_RMA_GIVE, .bytes = 4096},     /* nobody asked */
        {.kind = SL_SHM_CTRL_MSG_RMA_WITHDRAW, .bytes = 1234}, /* of no operation */
    };
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; i++) {
        uint32_t before = world->nodes[0].peer_count;
        struct shm_raw raw = shm_raw_connect(server_endpoint());
        struct peer *accepted = last_accepted(before);
        bool brings = (i >= 5 && notes[i].kind == SL_SHM_CTRL_MSG_REGION) || i == 11;
        int fd = brings ? make_memory(4096, F_SEAL_SHRINK) : -1;
        assert_true(shm_raw_note(&raw, notes[i], fd));
        WAIT_UNTIL(accepted->closed == 1);
        assert_int_equal(accepted->close_err, SL_ERR_PROTOCOL);
        shm_raw_close(&raw);
        if (fd >= 0) {
            close(fd);
        }
    }
}

static void scribble(uint64_t *seed, void *memory, size_t bytes)
{
    uint8_t *at = memory;
    for (uint64_t count = 1 + sl_hash_random(seed) % 4; count > 0; count--) {
        at[sl_hash_random(seed) % bytes] = (uint8_t)sl_hash_random(seed);
    }
}

static struct sl_shm_slot random_slot(uint64_t *seed, uint32_t number)
{
    struct sl_shm_slot slot = shm_raw_slot(number, (uint32_t)(sl_hash_random(seed) % 70));
    if (sl_hash_random(seed) % 2 == 0) {
        uint32_t bytes = (uint32_t)(sl_hash_random(seed) % 40000);
        slot = slot_of_pieces(1, bytes);
        slot.pieces[0] = (struct sl_shm_piece){.region = (uint32_t)(sl_hash_random(seed) % 3) - 1,
                                               .offset = sl_hash_random(seed) % 9000000,
                                               .bytes = bytes};
    }
    if (sl_hash_random(seed) % 3 != 0) {
        scribble(seed, (uint8_t *)&slot + 4, sizeof slot - 4);
    }
    return slot;
}

static void play_at_random(uint64_t seed)
{
    struct shm_raw raw = shm_raw_connect(server_endpoint());
    int fd = make_memory(65536, F_SEAL_SHRINK);
    for (uint64_t moves = 1 + sl_hash_random(&seed) % 12; moves > 0; moves--) {
        struct sl_shm_ctrl_msg note = {.kind = (uint16_t)(3 + sl_hash_random(&seed) % 9),
                                       .region = (uint32_t)(sl_hash_random(&seed) % 3),
                                       .access = (uint32_t)(sl_hash_random(&seed) % 2),
                                       .bytes = 65536};
        struct sl_shm_slot slot = random_slot(&seed, raw.sent + 1);
        switch (sl_hash_random(&seed) % 6) {
        case 0:
            (void)shm_raw_note(
                &raw, note,
                note.kind == SL_SHM_CTRL_MSG_REGION || note.kind == SL_SHM_CTRL_MSG_RMA_GIVE ? fd
                                                                                             : -1);
            break;
        case 1:
            scribble(&seed, &raw.segment->sides[sl_hash_random(&seed) % 2],
                     sizeof(struct sl_shm_side));
            break;
        case 2:
            scribble(&seed, raw.segment->rings, sizeof raw.segment->rings);
            break;
        default:
            shm_raw_publish(&raw, &slot);
        }
    }
    usleep(sl_hash_random(&seed) % 8 == 0 ? 300 : 0);
    close(fd);
    shm_raw_close(&raw);
}

/* What the peer sends is not what the suite's peers check: this one answers nothing and believes
 * everything. */
static void *believe_sink(void *ctx, struct sl_conn *conn, const struct sl_frame *header)
{
    static _Alignas(64) uint8_t sink[SL_LIMIT_FRAME_PAYLOAD_BYTES];
    return header->request_id % 2 == 0 ? SL_TRANSPORT_IN_PLACE : (void *)sink;
}

static atomic_uint believed, believers;

static void believe_received(void *ctx, struct sl_conn *conn,
                             const struct sl_transport_message *message)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < message->header.payload_bytes; i++) {
        sum += message->payload[i];
    }
    if (conn->reply_buffer != NULL) {
        memset(conn->reply_buffer, (int)sum, conn->reply_buffer_bytes);
    }
    believed++;
    struct sl_frame header = {.type = SL_FRAME_REPLY, .request_id = 1};
    static uint8_t frame[SL_FRAME_HEADER_BYTES];
    sl_frame_encode(&header, frame);
    struct sl_transport_frame answer = {.head = frame, .head_bytes = sizeof frame};
    (void)sl_transport_send_burst(conn, &answer, 1);
    sl_transport_release(conn, message);
}

static void believe_accepted(void *ctx, struct sl_conn *conn)
{
    believers++;
}

static void ignore_cookie(void *ctx, struct sl_conn *conn, void *cookie)
{
}

static void ignore(void *ctx, struct sl_conn *conn)
{
}

static void believe_closed(void *ctx, struct sl_conn *conn, int err)
{
    believers--;
}

static const struct sl_transport_events believing = {.accepted = believe_accepted,
                                                     .sink = believe_sink,
                                                     .received = believe_received,
                                                     .sent = ignore_cookie,
                                                     .writable = ignore,
                                                     .closed = believe_closed};

static void listen_believing(struct node *node, void *ctx)
{
    struct sl_endpoint endpoint = *server_endpoint();
    endpoint.port = 0;
    assert_int_equal(sl_transport_listen(node->transport, &endpoint, &believing, NULL, ctx), 0);
}

SL_CASE(peer__writes_at_random)
{
    uint32_t before = count_fds();
    struct sl_endpoint kept = *server_endpoint(), believing_at;
    node_run(&world->nodes[0], listen_believing, &believing_at);
    world->nodes[0].bound = believing_at;
    /* A busy machine hears less of each round, so it plays more of them. */
    for (uint64_t seed = 1; seed <= RANDOM_ROUNDS || believed <= RANDOM_ROUNDS / 2; seed++) {
        play_at_random(seed);
        if (seed % 250 == 0) {
            bystander_is_served();
        }
    }
    world->nodes[0].bound = kept;
    WAIT_UNTIL(believers == 0);
    assert_true(believed > RANDOM_ROUNDS / 2);
    WAIT_UNTIL(count_fds() == before + 1); /* the second listener */
}

SL_UNIT_GROUP(open_world, close_world);

int main(void)
{
    static struct conformance_target target = {
        .name = "shm mad", .endpoint = "shm://conformance-mad:0", .shakes_hands = true};
    target.ops = sl_builtin_find(SL_ENDPOINT_SHM);
    conformance_target = &target;
    sl_log_setup(SL_LOG_OFF, "shm mad");
    return sl_unit_run("shm mad", __FILE__);
}
