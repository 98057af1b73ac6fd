/* Two processes with two rails, in a network of their own: one address is taken away, and given
 * back. For root. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pair.h"
#include "tests/support/veth.h"

#define BYTES (8U << 20)
#define ALIVE "10.77.0.1"
#define LOST  "10.77.1.1"

static const struct sl_transfer_options options = {
    .name = ALIVE ":0",
    .endpoints = "tcp://" ALIVE ":0,tcp://" LOST ":0",
    .stall_ms = 500,
    .insecure = true,
};

static struct {
    char name[SL_TRANSFER_NAME_BYTES];
    uint64_t address;
} target;

static void run(const char *command)
{
    assert_int_equal(system(command), 0);
}

static void serve(int out)
{
    struct sl_transfer *transfer;
    const struct sl_transfer_memory memory = {
        .base = calloc(1, BYTES), .bytes = BYTES, .access = PAIR_ALL};
    if (sl_transfer_create(&options, &transfer) != 0 ||
        sl_transfer_register(transfer, &memory, 1) != 0) {
        _exit(1);
    }
    (void)strncpy(target.name, sl_transfer_name(transfer), sizeof target.name - 1);
    target.address = (uintptr_t)memory.base;
    if (write(out, &target, sizeof target) != sizeof target) {
        _exit(1);
    }
    for (;;) {
        (void)pause();
    }
}

static struct sl_transfer *transfer;
static struct sl_transfer_segment *segment;
static struct sl_transfer_batch *batch;
static uint8_t *local;

static struct sl_transfer_rail rail(const char *address)
{
    struct sl_transfer_info info;
    assert_int_equal(sl_transfer_segment_info(segment, &info), 0);
    assert_int_equal(info.rail_count, 2);
    return info.rails[strcmp(info.rails[0].local, address) == 0 ? 0 : 1];
}

/* Writes and reads everything. */
static void move(uint32_t seed)
{
    struct sl_transfer_request request = {.op = SL_TRANSFER_WRITE,
                                          .local = local,
                                          .segment = segment,
                                          .remote = target.address,
                                          .bytes = BYTES};
    pair_fill(local, BYTES, seed);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sl_transfer_batch_submit(batch, &request, 1, 60000, NULL), 0);
        if (sl_transfer_batch_wait(batch) != 0) {
            fail_msg("%s", sl_transfer_last_error());
        }
        if (i == 0) {
            memset(local, 0, BYTES);
            request.op = SL_TRANSFER_READ;
        }
    }
    pair_expect(local, BYTES, seed);
}

static void move_until(const char *address, enum sl_transfer_rail_state state)
{
    for (uint32_t seed = 0; rail(address).state != state; seed++) {
        move(seed);
    }
}

static void move_until_it_carries(const char *address)
{
    const uint64_t before = rail(address).bytes_read;
    for (uint32_t seed = 0; rail(address).bytes_read == before; seed++) {
        move(seed);
    }
}

SL_CASE(rails__outlive_the_loss_of_an_address)
{
    const char *why = veth_enter();
    int ends[2];
    if (why != NULL || system("ip -V >/dev/null") != 0) {
        print_message("skipped: %s\n", why != NULL ? why : "no ip command (iproute2)");
        skip();
    }
    run("ip link set lo up");
    run("ip address add " ALIVE "/32 dev lo");
    run("ip address add " LOST "/32 dev lo");
    assert_int_equal(pipe(ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        serve(ends[1]);
    }
    assert_int_equal(read(ends[0], &target, sizeof target), sizeof target);
    local = malloc(BYTES);
    const struct sl_transfer_memory memory = {.base = local, .bytes = BYTES};
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(sl_transfer_register(transfer, &memory, 1), 0);
    assert_int_equal(sl_transfer_segment_open(transfer, target.name, PAIR_TIMEOUT_MS, &segment), 0);
    assert_int_equal(sl_transfer_batch_create(transfer, 1, &batch), 0);

    move_until_it_carries(ALIVE);
    move_until_it_carries(LOST);
    run("ip address del " LOST "/32 dev lo");
    move_until(LOST, SL_TRANSFER_RAIL_GONE);
    move_until(ALIVE, SL_TRANSFER_RAIL_UP); /* unless a process stood still, it always was */
    run("ip address add " LOST "/32 dev lo");
    move_until(LOST, SL_TRANSFER_RAIL_UP);
    move_until_it_carries(LOST);

    sl_transfer_destroy(&transfer);
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    free(local);
}
