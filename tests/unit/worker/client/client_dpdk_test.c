/* A client whose ps can be reached over DPDK: when it goes that way, and who has its devices. */
#include <stdlib.h>

#include "core/log.h"
#include "net/dpdk/device_list.h"
#include "tests/support/unit.h"
#include "tests/unit/worker/client/client_path.h"
#include "worker/client/client_io_transport.h"

#define DEVICES "net_null0?addr=10.1.0.2/24;net_null1?addr=10.1.1.2"

static void start_dpdk(struct peer_world *world, const char *devices)
{
    path_memory_is_plain = true;
    world->path.scheme = SL_ENDPOINT_DPDK;
    world->path.device = devices;
    for (uint32_t i = 0; i <= NEAR_KEYS; i++) {
        path_keys[i] = i;
    }
    peer_listen_path(world);
    peer_start_with_table(world, -1);
}

PEER_CASE(start__takes_dpdk_to_a_ps_that_has_it)
{
    start_dpdk(world, DEVICES);
    path_expect_way(world, true);
    const struct sl_dpdk_options *options = world->path.options.dpdk;
    assert_non_null(options);
    assert_int_equal(options->device_count, 2);
    assert_string_equal(options->devices[0].name, "net_null0");
    assert_string_equal(options->devices[1].address, "10.1.1.2");
    /* The one reactor with connections has all queues. */
    assert_int_equal(options->devices[0].first_reactor, 0);
    assert_int_equal(options->devices[0].reactors, 1);
    peer_hang_up(world);
    path_expect_way(world, true);
    assert_int_equal(world->data_connections, 2);
}

SL_CASE(client_create__refuses_devices_that_are_wrong)
{
    const struct sl_client_options options = {.struct_size = sizeof options,
                                              .coordinator = "127.0.0.1:1",
                                              .task_index = -1,
                                              .dpdk_device = "net_null0"};
    struct sl_client *client = NULL;
    assert_int_equal(sl_client_create(&options, &client), SL_ERR_INVALID);
    assert_null(client);
}

static uint32_t open_count;

static int open_not(struct sl_reactor *reactor, const struct sl_transport_options *options,
                    struct sl_transport **out)
{
    open_count++;
    return SL_ERR_IO;
}

static const struct sl_transport_ops *find_broken(enum sl_endpoint_scheme scheme)
{
    static struct sl_transport_ops ops;
    ops = *sl_builtin_find(SL_ENDPOINT_TCP);
    ops.open = open_not;
    return scheme == SL_ENDPOINT_DPDK ? &ops : NULL;
}

PEER_CASE(io_transport__of_devices_that_cannot_be_is_not_tried_again)
{
    const struct sl_client_io_options options = {.find_transport = find_broken};
    struct sl_client_io *io = calloc(1, sizeof *io);
    struct sl_transport *transport = NULL;
    assert_non_null(io);
    start_dpdk(world, NULL);
    io->reactor = world->reactors[1];
    io->options = &options;
    open_count = 0;
    assert_int_equal(sl_client_io_transport(io, SL_ENDPOINT_DPDK, &transport), SL_ERR_IO);
    assert_int_equal(sl_client_io_transport(io, SL_ENDPOINT_DPDK, &transport), SL_ERR_IO);
    assert_null(sl_client_io_preferred_transport(io, SL_ENDPOINT_DPDK));
    assert_int_equal(open_count, 1);
    assert_null(transport);
    free(io);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "test");
}
