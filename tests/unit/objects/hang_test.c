#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nodes.h"

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, BYTES = 80 * BLOCK };

/* A holder in a process of its own: reads the address of the catalogue, gets the version, and says
 * so; early: when it has some of it. It is forked before this process has threads. */
static _Noreturn void run_holder(int from, int to, bool early)
{
    struct sl_get_progress progress = {0};
    char address[SL_TRANSFER_NAME_BYTES] = "";
    static uint8_t memory[BYTES];
    if (read(from, address, sizeof address) != sizeof address) {
        _exit(1);
    }
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options, .engine_options = &engine, .catalogue = address};
    const struct sl_object_extent extent = {.base = memory, .bytes = BYTES};
    struct sl_objects *node;
    struct sl_get *get;
    if (sl_objects_create(&options, &node) == 0 &&
        sl_get_start(node, "model", 1, &extent, 1, NODES_TIMEOUT, &get) == 0) {
        while (early && progress.verified_bytes == 0) {
            (void)sl_get_progress(get, &progress);
        }
        if ((early || sl_get_wait(get) == 0) && write(to, "", 1) == 1) {
            (void)pause();
        }
    }
    _exit(1);
}

/* Starts one, and returns its process and pipes. */
struct holder {
    pid_t process;
    int to, from;
};

static struct holder start_holder(bool early)
{
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    const struct holder holder = {.process = fork(), .to = to[1], .from = from[0]};
    assert_true(holder.process >= 0);
    if (holder.process == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test leaves no stopped process */
        run_holder(to[0], from[1], early);
    }
    (void)close(to[0]);
    (void)close(from[1]);
    return holder;
}

/* Lets it get the version, and stops it when it says so and the catalogue knows the holders. */
static void hang(const struct holder *holder, struct sl_objects *catalogue, uint32_t holders)
{
    char address[SL_TRANSFER_NAME_BYTES] = "", byte;
    (void)strncpy(address, sl_objects_address(catalogue), sizeof address - 1);
    assert_int_equal(write(holder->to, address, sizeof address), sizeof address);
    assert_int_equal(read(holder->from, &byte, 1), 1);
    nodes_expect(sl_object_wait_held(catalogue, "model", 1, holders, NODES_TIMEOUT));
    assert_int_equal(kill(holder->process, SIGSTOP), 0);
}

static void end_holder(const struct holder *holder)
{
    assert_int_equal(kill(holder->process, SIGKILL), 0);
    assert_int_equal(waitpid(holder->process, NULL, 0), holder->process);
    (void)close(holder->to);
    (void)close(holder->from);
}

SL_CASE(fetch__replaces_a_holder_that_hangs)
{
    static struct nodes nodes;
    struct sl_get_progress progress;
    const struct holder holder = start_holder(false);
    uint8_t *bytes = nodes_bytes(BYTES, 7), *got = calloc(BYTES, 1);
    nodes_init(&nodes, 2, 0);
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, bytes, BYTES);

    /* The plan has one stripe from each of the two. */
    hang(&holder, nodes.node[0], 2);
    struct sl_get *get = nodes_start(nodes.node[1], "model", 1, got, BYTES, NODES_TIMEOUT);
    nodes_expect(sl_get_wait(get));
    nodes_expect(sl_get_progress(get, &progress));
    assert_true(progress.replaced_sources > 0);
    sl_get_close(&get);
    nodes_expect_bytes(got, BYTES, 7);

    end_holder(&holder);
    nodes_fini(&nodes);
    free(bytes);
    free(got);
}

/* A publication waits for them. */
SL_CASE(withdraw__of_slots_that_a_hanging_process_reads_frees_them_in_time)
{
    enum { OTHER = 200 * BLOCK }; /* the pool has 256 slots */
    static struct nodes nodes;
    const struct holder holder = start_holder(true);
    uint8_t *bytes = nodes_bytes(OTHER, 7);
    nodes_init(&nodes, 1, 1 << 20);
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_HOST, bytes, BYTES);
    hang(&holder, nodes.node[0], 1);
    nodes_expect(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT));
    assert_int_equal(sl_object_withdraw(nodes.node[0], "model", 1, NODES_TIMEOUT),
                     SL_ERR_NOT_FOUND);
    (void)nodes_publish(nodes.node[0], "other", SL_ORIGIN_HOST, bytes, OTHER);
    end_holder(&holder);
    nodes_fini(&nodes);
    free(bytes);
}
