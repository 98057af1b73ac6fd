#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nodes.h"

enum { BLOCK = SL_OBJECTS_BLOCK_BYTES, BYTES = 80 * BLOCK };

/* A holder in a process of its own: reads the address of the catalogue, gets the version, and says
 * so. It is forked before this process has threads. */
static _Noreturn void run_holder(int from, int to)
{
    char address[SL_TRANSFER_NAME_BYTES] = "";
    static uint8_t memory[BYTES];
    if (read(from, address, sizeof address) != sizeof address) {
        _exit(1);
    }
    const struct sl_transfer_options engine = {
        .name = "127.0.0.1:0", .endpoints = "tcp://127.0.0.1:0", .insecure = true};
    const struct sl_objects_options options = {
        .struct_size = sizeof options, .engine = &engine, .catalogue = address};
    const struct sl_object_extent extent = {.base = memory, .bytes = BYTES};
    struct sl_objects *node;
    struct sl_get *get;
    if (sl_objects_create(&options, &node) == 0 &&
        sl_get_start(node, "model", 1, &extent, 1, NODES_TIMEOUT, &get) == 0 &&
        sl_get_wait(get) == 0 && write(to, "", 1) == 1) {
        (void)pause();
    }
    _exit(1);
}

SL_CASE(fetch__replaces_a_holder_that_hangs)
{
    static struct nodes nodes;
    struct sl_get_progress progress;
    char address[SL_TRANSFER_NAME_BYTES] = "", byte;
    int to[2], from[2];
    assert_int_equal(pipe(to), 0);
    assert_int_equal(pipe(from), 0);
    const pid_t holder = fork();
    assert_true(holder >= 0);
    if (holder == 0) {
        run_holder(to[0], from[1]);
    }
    uint8_t *bytes = nodes_bytes(BYTES, 7), *got = calloc(BYTES, 1);
    nodes_init(&nodes, 2, 0);
    (void)nodes_publish(nodes.node[0], "model", SL_ORIGIN_CALLER, bytes, BYTES);
    (void)strncpy(address, sl_objects_address(nodes.node[0]), sizeof address - 1);
    assert_int_equal(write(to[1], address, sizeof address), sizeof address);
    assert_int_equal(read(from[0], &byte, 1), 1);
    nodes_expect(sl_object_wait_held(nodes.node[0], "model", 1, 2, NODES_TIMEOUT));

    /* The plan has one stripe from each of the two. */
    assert_int_equal(kill(holder, SIGSTOP), 0);
    struct sl_get *get = nodes_start(nodes.node[1], "model", 1, got, BYTES, NODES_TIMEOUT);
    nodes_expect(sl_get_wait(get));
    nodes_expect(sl_get_progress(get, &progress));
    assert_true(progress.replaced_parents > 0);
    sl_get_close(&get);
    nodes_expect_bytes(got, BYTES, 7);

    assert_int_equal(kill(holder, SIGKILL), 0);
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    nodes_fini(&nodes);
    (void)close(to[0]);
    (void)close(to[1]);
    (void)close(from[0]);
    (void)close(from[1]);
    free(bytes);
    free(got);
}
