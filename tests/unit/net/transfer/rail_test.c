#include "net/transfer/rail.h"
#include "net/transfer/remote.h"
#include "tests/support/unit.h"

#include <stdlib.h>
#include <string.h>

#define RAILS_MAX 16

static struct sl_transfer_device devices[SL_TRANSFER_SETTINGS_ENDPOINTS_MAX];
static struct sl_endpoint endpoints[8];
static struct sl_rail rails[RAILS_MAX];

static uint32_t parse_all(const char *const *texts)
{
    uint32_t count = 0;
    for (; texts[count] != NULL; count++) {
        if (sl_endpoint_parse(texts[count], &endpoints[count], NULL) != 0) {
            endpoints[count] = (struct sl_endpoint){.port = 0};
        }
    }
    return count;
}

static uint32_t pair(const char *schemes, const char *const *texts)
{
    const uint32_t device_count = (uint32_t)strlen(schemes);
    for (uint32_t i = 0; i < device_count; i++) {
        devices[i] = (struct sl_transfer_device){
            .scheme = schemes[i] == 's'   ? SL_ENDPOINT_SHM
                      : schemes[i] == 'r' ? SL_ENDPOINT_RDMA
                                          : SL_ENDPOINT_TCP,
            .transport = schemes[i] == '-' ? NULL : (struct sl_transport *)&devices};
    }
    return sl_rail_pair(devices, device_count, endpoints, parse_all(texts), rails, RAILS_MAX);
}

static void expect_rail(uint32_t index, uint32_t device, uint32_t remote)
{
    assert_int_equal(rails[index].device, device);
    assert_int_equal(rails[index].remote, remote);
    assert_int_equal(rails[index].scheme, endpoints[remote].scheme);
}

SL_CASE(rail_pair__pairs_devices_of_a_scheme_in_order)
{
    const char *const texts[] = {"tcp://10.0.0.1:1", "tcp://10.0.0.1:2", "tcp://10.1.0.1:3",
                                 "tcp://10.1.0.1:4", NULL};
    assert_int_equal(pair("tt", texts), 2);
    expect_rail(0, 0, 0);
    expect_rail(1, 1, 2);
    assert_int_equal(sl_rail_endpoint(&rails[1], endpoints, 4, 0)->port, 3);
    assert_int_equal(sl_rail_endpoint(&rails[1], endpoints, 4, 1)->port, 4);
    assert_int_equal(sl_rail_endpoint(&rails[1], endpoints, 4, 2)->port, 3);
    assert_int_equal(sl_rail_endpoint(&rails[0], endpoints, 4, 7)->port, 2);
}

SL_CASE(rail_pair__counts_round_on_the_side_with_fewer)
{
    const char *const one[] = {"tcp://10.0.0.1:1", NULL};
    const char *const three[] = {"tcp://10.0.0.1:1", "tcp://10.0.0.2:1", "tcp://10.0.0.3:1", NULL};
    assert_int_equal(pair("tt", one), 2);
    expect_rail(0, 0, 0);
    expect_rail(1, 1, 0);
    assert_int_equal(pair("tt", three), 3);
    expect_rail(0, 0, 0);
    expect_rail(1, 1, 1);
    expect_rail(2, 0, 2);
}

SL_CASE(rail_pair__puts_preferred_schemes_first)
{
    const char *const texts[] = {"tcp://10.0.0.1:1", "rdma://10.0.0.1:2", "bad", "shm://a:5", NULL};
    assert_int_equal(pair("tsr", texts), 3);
    expect_rail(0, 1, 3);
    expect_rail(1, 2, 1);
    expect_rail(2, 0, 0);
    assert_int_equal(pair("t", texts), 1);
    expect_rail(0, 0, 0);
    assert_int_equal(pair("-s", texts), 1);
    expect_rail(0, 1, 3);
    assert_int_equal(pair("-", texts), 0);
}

SL_CASE(rail_near__follows_the_matrices_of_both_sides)
{
    const char *const texts[] = {"tcp://10.0.0.1:1", "tcp://10.0.0.2:1", "tcp://10.0.0.3:1", NULL};
    struct sl_matrix matrix;
    struct sl_reason reason;
    assert_int_equal(pair("tt", texts), 3); /* devices 0, 1, 0 */
    assert_int_equal(sl_rail_near(rails, 3, 0), 0);
    assert_int_equal(sl_rail_near(rails, 3, 1), 5);
    assert_int_equal(sl_rail_near(rails, 3, 2), 2);
    assert_int_equal(sl_matrix_parse("{\"cpu:0\": [[\"a\", \"c\"], [\"b\"]], \"cpu:1\": [[], []]}",
                                     "a peer", NULL, &matrix, &reason),
                     0);
    rails[0].nic[0] = 'a';
    rails[1].nic[0] = 'b';
    assert_int_equal(sl_rail_near_remote(rails, 3, &matrix, "cpu:0"), 1);
    assert_int_equal(sl_rail_near_remote(rails, 3, &matrix, "cpu:1"), 0);
    assert_int_equal(sl_rail_near_remote(rails, 3, &matrix, "cpu:7"), 0);
}

/* The list of buffers */

static struct sl_transfer_remote *remote;

static int add(uint64_t address, uint64_t bytes, uint64_t key)
{
    struct sl_message_buffer item = {.address = address, .bytes = bytes, .key = key};
    for (uint16_t i = 0; i < 3; i++) {
        item.tokens[i].endpoint = (uint16_t)(2 * i);
        item.tokens[i].byte_count = sizeof(struct sl_transport_rma_token);
        item.tokens[i].bytes[0] = (uint8_t)(i + 1);
    }
    item.token_count = 3;
    const struct sl_message_buffers buffers = {.items = &item, .count = 1};
    return sl_transfer_remote_add(&remote, &buffers, endpoints, 4);
}

static void forget(void)
{
    free(remote);
    remote = NULL;
}

#define CASE(name) SL_CASE_WITH(name, , forget())

CASE(remote_find__finds_the_buffer_of_an_address)
{
    assert_null(sl_transfer_remote_find(NULL, 5));
    for (uint64_t i = 100; i > 0; i--) {
        assert_int_equal(add(i * 1000, 500, i), 0);
    }
    assert_int_equal(add(1499, 2, 200), 0); /* overlaps: ignored */
    assert_int_equal(remote->count, 100);
    assert_null(sl_transfer_remote_find(remote, 999));
    assert_int_equal(sl_transfer_remote_find(remote, 1000)->key, 1);
    assert_int_equal(sl_transfer_remote_find(remote, 57900)->key, 57);
    const struct sl_message_buffer_keys keys = {.items = {57, 1}, .count = 2};
    sl_transfer_remote_remove(remote, &keys);
    assert_int_equal(remote->count, 98);
    assert_int_equal(sl_transfer_remote_find(remote, 57900)->key, 56);
    assert_null(sl_transfer_remote_find(remote, 1000));
    struct sl_transfer_remote *copy = sl_transfer_remote_copy(remote);
    assert_int_equal(sl_transfer_remote_find(copy, 57900)->key, 56);
    free(copy);
}

CASE(remote_token__belongs_to_a_device_of_the_peer)
{
    const char *const texts[] = {"rdma://10.0.0.1:1", "rdma://10.0.0.2:1", "rdma://10.0.0.2:2",
                                 "tcp://10.0.0.1:1", NULL};
    assert_int_equal(parse_all(texts), 4);
    assert_int_equal(add(1000, 10, 1), 0); /* tokens of endpoints 0, 2, and of one that is none */
    const struct sl_transfer_remote_buffer *buffer = sl_transfer_remote_find(remote, 1000);
    assert_int_equal(buffer->token_count, 2);
    assert_int_equal(sl_transfer_remote_token(buffer, 0)->name & 0xff, 1);
    assert_int_equal(sl_transfer_remote_token(buffer, 1)->name & 0xff, 2);
    assert_null(sl_transfer_remote_token(buffer, 3));
}

CASE(remote_add__replaces_the_tokens_of_a_buffer)
{
    const char *const texts[] = {"rdma://10.0.0.1:1", "rdma://10.0.0.2:1", NULL};
    assert_int_equal(parse_all(texts), 2);
    assert_int_equal(add(1000, 10, 1), 0);
    assert_int_equal(add(2000, 10, 2), 0);
    struct sl_message_buffer item = {.address = 1000, .bytes = 10, .key = 1};
    const struct sl_message_buffers buffers = {.items = &item, .count = 1};
    assert_int_equal(sl_transfer_remote_add(&remote, &buffers, endpoints, 2), 0);
    assert_int_equal(remote->count, 2);
    assert_int_equal(sl_transfer_remote_find(remote, 1000)->token_count, 0);
    assert_int_equal(sl_transfer_remote_find(remote, 2000)->key, 2);
    assert_int_not_equal(sl_transfer_remote_find(remote, 2000)->token_count, 0);
}
