/* A client whose ps can be reached over RDMA: when it goes that way, and what lands where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/log.h"
#include "net/dpdk/device_list.h"
#include "tests/support/unit.h"
#include "tests/unit/worker/client/client_path.h"
#include "worker/client/client_io_memory.h"
#include "worker/client/client_io_transport.h"
#include "worker/client/send_arena.h"
#include "worker/client/shard_conn_connect.h"

static void set_rdma(struct peer_world *world)
{
    path_memory_is_plain = true;
    world->path.scheme = SL_ENDPOINT_RDMA;
    for (uint32_t i = 0; i <= NEAR_KEYS; i++) {
        path_keys[i] = i;
    }
}

static void start_rdma(struct peer_world *world)
{
    set_rdma(world);
    peer_listen_path(world);
    peer_start_with_table(world, -1);
}

#define DEVICE "net_null0?addr=10.1.0.2"

SL_CASE(link_find_place__takes_the_nearest)
{
    static const struct sl_transport_tls tls;
    static const struct {
        const char *data, *bypass, *ps_host;
        bool no_rdma, tls;
        const char *path;   /* NULL: none */
        const char *device; /* of DPDK's; NULL: this process has none */
    } cases[] = {
        {"tcp://10.0.0.1:5", "", "", false, false, NULL, NULL},
        {"tcp://10.0.0.1:5", "rdma://fast.example:6", "", false, false, "rdma://fast.example:6",
         NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "far", false, false, "rdma://10.1.0.1:6", NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "here", false, false, "shm://10.0.0.1:5", NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "here", true, true, "shm://10.0.0.1:5", NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "far", true, false, NULL, NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:6", "far", false, true, NULL, NULL},
        {"tcp://10.0.0.1:5", "tcp://10.1.0.1:6", "", false, false, NULL, NULL},
        {"tcp://10.0.0.1:5", "dpdk://10.1.0.1:6", "", false, false, NULL, NULL},
        {"tcp://10.0.0.1:5", "dpdk://10.1.0.1:6", "", true, false, "dpdk://10.1.0.1:6", DEVICE},
        {"tcp://10.0.0.1:5", "dpdk://10.1.0.1:6", "here", false, false, "shm://10.0.0.1:5", DEVICE},
        {"tcp://10.0.0.1:5", "dpdk://10.1.0.1:6", "", false, true, NULL, DEVICE},
        {"dpdk://10.1.0.1:6", "", "here", false, false, NULL, DEVICE},
        {"tcp://10.0.0.1:5", "later://10.1.0.1:6", "", false, false, NULL, NULL},
        {"tcp://10.0.0.1:5", "rdma://10.1.0.1:0", "", false, false, NULL, NULL},
        {"rdma://10.1.0.1:6", "", "here", true, false, NULL, NULL},
        {"rdma://10.1.0.1:6", "rdma://10.1.0.1:7", "here", false, false, NULL, NULL},
        {"shm://10.0.0.1:5", "rdma://10.1.0.1:6", "here", false, false, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct sl_client_io_options options = {.host = "here", .disable_rdma = cases[i].no_rdma};
        options.transport.tls = cases[i].tls ? &tls : NULL;
        assert_int_equal(sl_dpdk_device_list_create(cases[i].device == NULL ? "" : DEVICE, NULL,
                                                    &options.devices, NULL),
                         0);
        struct sl_message_ps ps = {.shard_count = 1};
        snprintf(ps.data_endpoint, sizeof ps.data_endpoint, "%s", cases[i].data);
        snprintf(ps.bypass_endpoint, sizeof ps.bypass_endpoint, "%s", cases[i].bypass);
        snprintf(ps.host, sizeof ps.host, "%s", cases[i].ps_host);
        struct sl_message_placement placement = {.epoch = 1};
        const struct sl_message_cluster cluster = {
            .ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1};
        struct sl_reactor_address place;
        char text[SL_LIMIT_ENDPOINT_BYTES];
        assert_int_equal(sl_shard_conn_find_address(&options, &cluster, 0, &place, NULL), 0);
        sl_endpoint_format(&place.endpoint, text, sizeof text);
        assert_string_equal(text, cases[i].data);
        assert_int_equal(place.has_preferred, cases[i].path != NULL);
        sl_endpoint_format(&place.preferred, text, sizeof text);
        assert_string_equal(place.has_preferred ? text : "",
                            place.has_preferred ? cases[i].path : "");
        sl_dpdk_device_list_destroy(&options.devices);
    }
}

SL_CASE(link_find_place__refuses_dpdk_alone_without_a_device)
{
    const struct sl_client_io_options options = {.disable_rdma = true};
    struct sl_message_ps ps = {.shard_count = 1, .data_endpoint = "dpdk://10.1.0.1:6"};
    struct sl_message_placement placement = {.epoch = 1};
    const struct sl_message_cluster cluster = {
        .ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1};
    struct sl_reactor_address place;
    struct sl_reason reason;
    assert_int_equal(sl_shard_conn_find_address(&options, &cluster, 0, &place, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "dpdk://10.1.0.1:6: this process needs a device"));
    assert_non_null(strstr(reason.text, "--dpdk-device"));
}

SL_CASE(link_find_place__refuses_rdma_alone_with_tls)
{
    static const struct sl_transport_tls tls;
    const struct sl_client_io_options options = {.transport = {.tls = &tls}};
    struct sl_message_ps ps = {.shard_count = 1, .data_endpoint = "rdma://10.1.0.1:6"};
    struct sl_message_placement placement = {.epoch = 1};
    const struct sl_message_cluster cluster = {
        .ps = &ps, .ps_count = 1, .placements = &placement, .shard_count = 1};
    struct sl_reactor_address place;
    struct sl_reason reason;
    assert_int_equal(sl_shard_conn_find_address(&options, &cluster, 0, &place, &reason),
                     SL_ERR_INVALID);
    assert_string_equal(
        reason.text,
        "rdma://10.1.0.1:6: there is no TLS over RDMA: give the server a TCP endpoint too");
}

PEER_CASE(start__takes_rdma_to_a_ps_that_has_it)
{
    world->path.device = "mlx5_0,mlx5_1";
    world->path.gid_index = 3;
    start_rdma(world);
    path_expect_way(world, true);
    assert_string_equal(world->path.options.rdma_device, "mlx5_0,mlx5_1");
    assert_int_equal(world->path.options.rdma_gid_index, 3);
    peer_hang_up(world);
    path_expect_way(world, true);
    assert_int_equal(world->data_connections, 2);
}

SL_CASE(client_create__refuses_device_names_that_are_too_long)
{
    char names[257];
    memset(names, 'm', sizeof names - 1);
    names[sizeof names - 1] = '\0';
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = "127.0.0.1:1",
                                              .task_index = -1,
                                              .rdma_device = names};
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), SL_ERR_INVALID);
    assert_null(client);
}

PEER_CASE(start__takes_no_rdma)
{
    for (int i = 0; i < 3; i++) {
        if (i > 0) {
            peer_again(world);
        }
        world->path.client_wants_none = i == 0;
        world->path.client_wants_tls = i == 1;
        world->path.is_missing = i == 2;
        start_rdma(world);
        path_expect_way(world, false);
        assert_null(world->client->io_options.send_arena); /* nobody would read from there */
    }
}

PEER_CASE(start__takes_rdma_where_there_is_nothing_else)
{
    world->path.is_only = true;
    world->path.client_wants_none = true; /* beside TCP */
    start_rdma(world);
    path_expect_way(world, true);
}

PEER_CASE(start__says_why_there_is_no_rdma)
{
    world->path.is_only = true;
    world->path.is_missing = true;
    set_rdma(world);
    assert_int_equal(peer_start_client(world, -1), SL_ERR_UNSUPPORTED);
    const char *missing = sl_builtin_missing(SL_ENDPOINT_RDMA);
    char text[256];
    snprintf(text, sizeof text, "ps/0 shard 0 (rdma://127.0.0.1:%u): cannot connect: %s",
             world->path.endpoint.port, missing != NULL ? missing : "unsupported");
    peer_assert_contains(world->client->ops[0].text, text);
}

PEER_CASE(link__goes_over_tcp_when_rdma_fails_and_back)
{
    start_rdma(world);
    path_expect_way(world, true);
    peer_ignore_path(world); /* and all its connections */
    path_expect_way(world, false);
    peer_listen_path(world);
    peer_hang_up(world);
    path_expect_way(world, false); /* it has just been refused there */
    /* By and by it is found to be there again, whatever is under way. */
    peer_turns(world, 50000);
    world->manner = PEER_SILENT;
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, path_keys, NEAR_KEYS, path_rows), 0);
    assert_int_equal(sl_step_submit(step, 60000), 0);
    peer_turns(world, 10000);
    world->manner = PEER_CORRECT;
    peer_expect(world, step, 0, "");
    path_expect_way(world, true);
}

PEER_CASE(io_share__registers_all_that_is_sent_and_received)
{
    start_rdma(world);
    const struct sl_client_io *io = &world->client->ios[0];
    assert_true(path_is_registered(world, io->memory.outbox.base));
    assert_true(path_is_registered(world, io->memory.buffers.base));
    assert_true(path_is_registered(world, sl_send_arena_shared(io->options->send_arena)->base));
    assert_int_equal(world->path.registered_count, 3);
    assert_ptr_equal(world->client->conns[0].reactor->path.outbox, &io->memory.outbox);
    /* The caller's, which no other process can map, too. */
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    assert_true(path_is_registered(world, path_rows));
    assert_true(sl_client_io_has_exported(io, SL_ENDPOINT_RDMA, path_rows, NEAR_LENT_BYTES));
    assert_false(sl_client_io_has_exported(io, SL_ENDPOINT_SHM, path_rows, NEAR_LENT_BYTES));
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
    assert_false(path_is_registered(world, path_rows));
}

static bool is_in_buffers(const struct sl_client_io *io, const void *at)
{
    const struct sl_pool *buffers = &io->memory.buffers;
    return (const uint8_t *)at >= buffers->base &&
           (const uint8_t *)at < buffers->base + buffers->block_count * buffers->block_bytes;
}

PEER_CASE(link__asks_for_long_answers_in_memory_that_is_lent)
{
    start_rdma(world);
    peer_expect(world, path_submit_pull(world, path_rows, NEAR_KEYS), 0, "");
    assert_true(is_in_buffers(&world->client->ios[0], world->path.reply_buffer));
    path_call_io(world, sl_client_io_export, path_rows, NEAR_LENT_BYTES);
    peer_expect(world, path_submit_pull(world, path_rows, NEAR_KEYS), 0, "");
    assert_ptr_equal(world->path.reply_buffer, path_rows);
    assert_int_equal(world->path.reply_buffer_bytes, NEAR_KEYS * sizeof *path_rows);
    peer_expect(world, path_submit_pull(world, path_rows, 1000), 0, "");
    assert_ptr_equal(world->path.reply_buffer, path_rows);
    peer_expect(world, path_submit_pull(world, path_rows, 10), 0, "");
    assert_null(world->path.reply_buffer);
    path_call_io(world, sl_client_io_unexport, path_rows, NEAR_LENT_BYTES);
}

/* The device reads long payloads from registered memory only: others are copied into the outbox. */
PEER_CASE(link__copies_long_payloads_that_are_not_registered)
{
    enum { LENGTH = 20000, BYTES = LENGTH * sizeof(float) };
    static float gradients[LENGTH];
    start_rdma(world);
    const struct sl_client_io *io = &world->client->ios[0];
    struct sl_table dense = {.client = world->client, .id = PEER_TABLE};
    dense.spec = (struct sl_table_spec){.name = "d", .kind = SL_TABLE_DENSE, .length = LENGTH};
    for (int is_lent = 0; is_lent < 2; is_lent++) {
        struct sl_step *step;
        if (is_lent) {
            path_call_io(world, sl_client_io_export, gradients, BYTES);
        }
        assert_int_equal(sl_client_io_has_registered(io, SL_ENDPOINT_RDMA, gradients, BYTES),
                         is_lent);
        assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
        assert_int_equal(sl_step_dense_push(step, &dense, 0, LENGTH, gradients), 0);
        assert_int_equal(sl_step_submit(step, 500), 0);
        peer_expect(world, step, 0, "");
        assert_ptr_equal(world->path.payload, is_lent ? gradients : NULL);
    }
    path_call_io(world, sl_client_io_unexport, gradients, BYTES);
    const struct sl_shared *arena = sl_send_arena_shared(io->options->send_arena);
    assert_true(sl_client_io_has_registered(io, SL_ENDPOINT_RDMA, arena->base, BYTES));
}

PEER_CASE(part__keeps_the_connection_where_nothing_was_lent)
{
    start_rdma(world);
    world->manner = PEER_SILENT;
    peer_expect(world, path_submit_pull(world, path_rows, NEAR_KEYS), SL_ERR_DEADLINE,
                "deadline of 500 ms passed");
    world->manner = PEER_CORRECT;
    peer_expect(world, path_submit_pull(world, path_rows, NEAR_KEYS), 0, "");
    assert_int_equal(world->data_connections, 1);
}

static int open_err;
static uint32_t open_count;

static int open_not(struct sl_reactor *reactor, const struct sl_transport_options *options,
                    struct sl_transport **out)
{
    open_count++;
    return open_err;
}

static const struct sl_transport_ops *find_broken(enum sl_endpoint_scheme scheme)
{
    static struct sl_transport_ops ops;
    ops = sl_loop_transport_ops;
    ops.open = open_not;
    return &ops;
}

static uint32_t count_lines(const char *text)
{
    uint32_t count = 0;
    for (; (text = strchr(text, '\n')) != NULL; text++) {
        count++;
    }
    return count;
}

/* Two reactors of a client, of which the first has no shard of this kind, ask some times. The log's
 * lines go to words. */
static void ask_for_rdma(struct peer_world *world, char *words, size_t bytes)
{
    const struct sl_client_io_options options = {.find_transport = find_broken,
                                                 .log_owner = {[SL_ENDPOINT_RDMA] = 2}};
    struct sl_client_io *ios = calloc(3, sizeof *ios);
    int ends[2];
    int old = dup(STDERR_FILENO);
    assert_non_null(ios);
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[1], STDERR_FILENO) >= 0);
    sl_log_setup(SL_LOG_INFO, "test");
    open_count = 0;
    for (uint32_t i = 0; i < 3; i++) {
        ios[i].reactor = world->reactors[1];
        ios[i].index = i;
        ios[i].options = &options;
    }
    for (uint32_t i = 0; i < 9; i++) {
        assert_null(sl_client_io_preferred_transport(&ios[2 - i % 2], SL_ENDPOINT_RDMA));
    }
    sl_log_setup(SL_LOG_OFF, "test");
    assert_true(dup2(old, STDERR_FILENO) >= 0);
    close(old);
    close(ends[1]);
    ssize_t got = read(ends[0], words, bytes - 1);
    words[got > 0 ? got : 0] = '\0';
    close(ends[0]);
    free(ios);
}

/* The system's transport needs a device; one of a test's own needs nothing. */
SL_CASE(io_may_open__what_the_system_has)
{
    struct sl_client_io_options options = {.find_transport = sl_builtin_find};
    assert_int_equal(sl_client_io_may_open(&options, SL_ENDPOINT_RDMA),
                     sl_builtin_missing(SL_ENDPOINT_RDMA) == NULL);
    assert_true(sl_client_io_may_open(&options, SL_ENDPOINT_TCP));
    assert_int_equal(sl_client_io_may_open(&options, SL_ENDPOINT_DPDK),
                     sl_builtin_missing(SL_ENDPOINT_DPDK) == NULL);
    options.find_transport = find_broken;
    assert_true(sl_client_io_may_open(&options, SL_ENDPOINT_RDMA));
}

PEER_CASE(io_path_transport__says_once_what_is_missing)
{
    char words[1024];
    start_rdma(world);
    open_err = SL_ERR_UNSUPPORTED;
    ask_for_rdma(world, words, sizeof words);
    assert_int_equal(count_lines(words), 1);
    assert_int_equal(open_count, 2); /* each reactor has asked once */
    open_err = SL_ERR_NO_MEMORY;
    ask_for_rdma(world, words, sizeof words);
    assert_int_equal(count_lines(words), 1);
    assert_int_equal(open_count, 9); /* there may be some now */
}

/* What does not end where its place does is moved there: nothing is written behind it. */
#define STAGED_KEYS (NEAR_KEYS + 1)

PEER_CASE(link__lets_long_answers_land_before_they_are_scattered)
{
    start_rdma(world);
    const struct sl_client_io *io = &world->client->ios[0];
    assert_int_equal(io->memory.buffers.free_count, 2);
    memset(path_rows, 1, sizeof path_rows);
    struct sl_step *step = path_submit_pull(world, path_rows, STAGED_KEYS);
    peer_turns(world, 3);
    peer_expect(world, step, 0, "");
    assert_true(is_in_buffers(io, world->path.reply_buffer));
    assert_int_equal(world->path.reply_buffer_bytes, (STAGED_KEYS + 1) * sizeof *path_rows);
    assert_int_equal(world->path.network.landed_count, 1);
    assert_true(path_rows[0] == 0 && path_rows[NEAR_KEYS] == 0);
    assert_true(path_rows[NEAR_KEYS + 1] != 0);
    assert_int_equal(io->memory.buffers.free_count, 2);
    /* One buffer is left for what comes without having been asked for there. */
    step = path_submit_pull(world, path_rows, STAGED_KEYS);
    struct sl_step *other = path_submit_pull(world, path_rows, STAGED_KEYS);
    peer_expect(world, step, 0, "");
    peer_expect(world, other, 0, "");
    assert_null(world->path.reply_buffer);
    assert_int_equal(world->path.network.landed_count, 2);
    assert_int_equal(io->memory.buffers.free_count, 2);
    world->manner = PEER_ERROR_WITH_LONG_TEXT;
    peer_expect(world, path_submit_pull(world, path_rows, STAGED_KEYS), SL_ERR_NOT_FOUND,
                "no?table");
    assert_int_equal(io->memory.buffers.free_count, 2);
}

/* Nobody waits for the answer any more, but the shard may still write it: to no caller's memory. */
PEER_CASE(link_forget__leaves_the_buffer_to_the_shard)
{
    start_rdma(world);
    const struct sl_client_io *io = &world->client->ios[0];
    world->manner = PEER_SILENT;
    peer_expect(world, path_submit_pull(world, path_rows, STAGED_KEYS), SL_ERR_DEADLINE,
                "500 ms passed");
    assert_int_equal(io->memory.buffers.free_count, 1);
    assert_int_equal(world->data_connections, 1);
    peer_refuse(world, SL_ERR_DEADLINE);
    peer_turns(world, 100);
    assert_int_equal(io->memory.buffers.free_count, 2);
    assert_int_equal(world->data_connections, 1);
    /* It may not when its connection has ended. */
    peer_expect(world, path_submit_pull(world, path_rows, STAGED_KEYS), SL_ERR_DEADLINE,
                "500 ms passed");
    struct sl_step *step = path_submit_pull(world, path_rows, NEAR_KEYS);
    peer_turns(world, 50);
    peer_hang_up(world);
    assert_int_equal(io->memory.buffers.free_count, 2);
    world->manner = PEER_CORRECT;
    peer_expect(world, step, 0, "");
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
