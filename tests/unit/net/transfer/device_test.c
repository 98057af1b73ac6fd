/* The devices of an engine: options.endpoints. */
#include <stdio.h>
#include <string.h>

#include "net/transfer/engine.h"
#include "net/transfer/own_segment_info.h"
#include "pair.h"

static void expect_endpoint(const struct sl_transfer *transfer, uint32_t index,
                            enum sl_endpoint_scheme scheme, const char *host)
{
    struct sl_endpoint listed;
    assert_true(index < transfer->own_info->endpoint_count);
    const char *text = transfer->own_info->endpoints[index].endpoint;
    assert_int_equal(sl_endpoint_parse(text, &listed, NULL), 0);
    assert_int_equal(listed.scheme, scheme);
    assert_string_equal(listed.host, host);
    assert_int_not_equal(listed.port, 0);
}

SL_CASE(devices__listen_on_each_endpoint)
{
    const struct sl_transfer_options options = {.name = "127.0.0.3:0",
                                                .reactor_count = 2,
                                                .endpoints =
                                                    "shm://,tcp://127.0.0.1:0,tcp://127.0.0.2:0"};
    struct sl_transfer *transfer;
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_int_equal(transfer->own_info->endpoint_count,
                     5); /* shared memory at the first reactor only */
    for (uint32_t i = 0; i < 4; i++) {
        expect_endpoint(transfer, i, SL_ENDPOINT_TCP, i < 2 ? "127.0.0.1" : "127.0.0.2");
    }
    expect_endpoint(transfer, 4, SL_ENDPOINT_SHM, "127.0.0.3");
    assert_int_equal(transfer->ios[0].devices[2].list_index, 4);
    sl_transfer_destroy(&transfer);
}

SL_CASE(devices__connect_from_their_addresses_if_they_are_several)
{
    const struct sl_transfer_options one = {.name = "127.0.0.1:0",
                                            .endpoints = "tcp://127.0.0.2:0"};
    const struct sl_transfer_options two = {.name = "127.0.0.1:0",
                                            .endpoints = "tcp://127.0.0.2:0,tcp://127.0.0.3:0"};
    const struct sl_endpoint peer = {.scheme = SL_ENDPOINT_TCP, .host = "127.0.0.4", .port = 5};
    struct sl_transfer *transfer;
    assert_int_equal(sl_transfer_create(&one, &transfer), 0);
    struct sl_endpoint to = sl_transfer_device_route(&transfer->ios[0].devices[0], &peer);
    assert_true(sl_endpoint_same(&to, &peer));
    assert_string_equal(to.device, "");
    sl_transfer_destroy(&transfer);

    assert_int_equal(sl_transfer_create(&two, &transfer), 0);
    to = sl_transfer_device_route(&transfer->ios[0].devices[1], &peer);
    assert_true(sl_endpoint_same(&to, &peer));
    assert_string_equal(to.device, "127.0.0.3");
    sl_transfer_destroy(&transfer);
}

SL_CASE(devices__use_tcp_beside_shared_memory)
{
    const struct sl_transfer_options options = {.name = "127.0.0.1:0", .endpoints = "shm://"};
    struct pair pair;
    pair_init(&pair, 100000, &options);
    assert_int_equal(pair.there->own_info->endpoint_count, 2);
    expect_endpoint(pair.there, 0, SL_ENDPOINT_TCP, "127.0.0.1");
    pair_fill(pair.remote.base, 100000, 1);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, 100000);
    pair_expect(pair.local.base, 100000, 1);
    pair_fini(&pair);
}

SL_CASE(devices__move_bytes_between_several_addresses)
{
    const struct sl_transfer_options options = {
        .name = "127.0.0.1:0",
        .reactor_count = 2,
        .lanes = 4,
        .endpoints = "tcp://127.0.0.1:0,tcp://127.0.0.2:0,tcp://127.0.0.3:0"};
    enum { BYTES = 10 << 20 };
    struct pair pair;
    pair_init(&pair, BYTES, &options);
    pair_fill(pair.remote.base, BYTES, 1);
    pair_move(&pair, SL_TRANSFER_READ, 0, 0, BYTES);
    pair_expect(pair.local.base, BYTES, 1);
    pair_fill(pair.local.base, BYTES, 2);
    pair_move(&pair, SL_TRANSFER_WRITE, 0, 0, BYTES);
    pair_expect(pair.remote.base, BYTES, 2);
    pair_fini(&pair);
}

/* A network device with an IPv4 address; NULL: this host has none. */
static const struct sl_device *find_nic(const struct sl_devices *devices, const char **address)
{
    for (uint32_t i = 0; i < devices->count; i++) {
        const struct sl_device *device = &devices->list[i];
        for (uint32_t k = 0; k < device->address_count && !device->is_rdma; k++) {
            if (strchr(device->addresses[k], ':') == NULL) {
                *address = device->addresses[k];
                return device;
            }
        }
    }
    return NULL;
}

SL_CASE(devices__are_preferred_as_the_matrix_says)
{
    static struct sl_devices devices;
    static uint8_t memory[2][100];
    const struct sl_transfer_memory ranges[] = {
        {.base = memory[0], .bytes = 100, .location = "cpu:1"},
        {.base = memory[1], .bytes = 100, .location = "cpu:0"}};
    const char *address = "";
    char endpoints[200], matrix[200];
    struct sl_transfer *transfer;
    sl_devices_read_host(&devices);
    const struct sl_device *nic = find_nic(&devices, &address);
    if (nic == NULL) {
        skip();
    }
    (void)snprintf(endpoints, sizeof endpoints, "tcp://127.0.0.1:0,shm://,tcp://%s:0", address);
    (void)snprintf(matrix, sizeof matrix, "{\"cpu:1\": [[\"%s\"], []]}", nic->name);
    const struct sl_transfer_options options = {.name = "127.0.0.1:0",
                                                .endpoints = endpoints,
                                                .nic_priority_matrix = matrix,
                                                .insecure = true};
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
    assert_string_equal(transfer->settings.nic_names[0], "");
    assert_string_equal(transfer->settings.nic_names[1], nic->name);
    assert_int_equal(sl_transfer_register(transfer, ranges, 2), 0);
    assert_int_equal(transfer->registered->by_address[0]->preferred, 2);
    assert_int_equal(transfer->registered->by_address[1]->preferred, 0);
    assert_string_equal(transfer->own_info->endpoints[1].device, nic->name);
    sl_transfer_destroy(&transfer);
}
