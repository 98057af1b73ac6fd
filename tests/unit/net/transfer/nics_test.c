#include "net/transfer/nics.h"

#include <starling_transfer.h>
#include <string.h>

#include "tests/support/sysfs_tree.h"
#include "tests/support/unit.h"

static struct sl_devices devices;
static struct sl_endpoint nics[SL_TRANSFER_NICS_MAX];

static void use_tree(const char *description)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, description);
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
}

static uint32_t find(const char *names, const char *text)
{
    struct sl_endpoint endpoint;
    assert_int_equal(sl_endpoint_parse(text, &endpoint, NULL), 0);
    return sl_transfer_nics_find(&devices, names, &endpoint, nics);
}

static void expect(uint32_t index, const char *name, const char *text)
{
    char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    sl_endpoint_format(&nics[index], endpoint, sizeof endpoint);
    assert_string_equal(nics[index].device, name);
    assert_string_equal(endpoint, text);
}

/* mlx5_5 is down, and mlx5_6 has a link-local address only. */
SL_CASE(nics_find__all_devices_that_are_up)
{
    use_tree("two-sockets");
    assert_int_equal(find(NULL, "rdma://0.0.0.0:0"), 6);
    expect(0, "mlx5_0", "rdma://10.0.0.2:0");
    expect(5, "mlx5_7", "rdma://10.0.7.2:0");
    assert_int_equal(find("", "rdma://0.0.0.0:0"), 6);
    assert_int_equal(find(NULL, "rdma://[::]:0"), 0);
}

SL_CASE(nics_find__devices_among_the_names)
{
    use_tree("two-sockets");
    assert_int_equal(find("mlx5_3, mlx5_1", "rdma://0.0.0.0:4000"), 2);
    expect(0, "mlx5_1", "rdma://10.0.1.2:4000");
    expect(1, "mlx5_3", "rdma://10.0.3.2:4000");
    assert_int_equal(find("mlx5_1", "rdma://10.0.3.2:4000"), 1);
    expect(0, "", "rdma://10.0.3.2:4000"); /* the transport refuses it */
}

SL_CASE(nics_find__the_device_of_an_address)
{
    use_tree("two-sockets");
    assert_int_equal(find(NULL, "rdma://10.0.4.2:0"), 1);
    expect(0, "mlx5_4", "rdma://10.0.4.2:0");
    assert_int_equal(find(NULL, "rdma://192.0.2.1:0"), 1);
    expect(0, "", "rdma://192.0.2.1:0");
    assert_int_equal(find(NULL, "rdma://host:0"), 1);
    expect(0, "", "rdma://host:0");
}

SL_CASE(nics_check__lists_the_devices_of_the_host)
{
    use_tree("two-sockets");
    assert_int_equal(sl_transfer_nics_check(&devices, "mlx5_0,mlx5_7"), 0);
    assert_int_equal(sl_transfer_nics_check(&devices, "mlx5_0,eth0"), SL_ERR_INVALID);
    assert_non_null(strstr(sl_transfer_last_error(), "eth0"));
    assert_non_null(strstr(sl_transfer_last_error(), "mlx5_0, mlx5_1"));
    assert_null(strstr(sl_transfer_last_error(), "docker0"));
    use_tree("none");
    assert_int_equal(sl_transfer_nics_check(&devices, "mlx5_0"), SL_ERR_INVALID);
    assert_non_null(strstr(sl_transfer_last_error(), "none"));
}

static void expect_name(const struct sl_matrix *matrix, const char *text, const char *device,
                        const char *name)
{
    struct sl_endpoint endpoint;
    char found[SL_DEVICE_NAME_BYTES];
    assert_int_equal(sl_endpoint_parse(text, &endpoint, NULL), 0);
    (void)strncpy(endpoint.device, device, sizeof endpoint.device - 1);
    sl_transfer_nics_name(&devices, matrix, &endpoint, found);
    assert_string_equal(found, name);
}

SL_CASE(nics_name__is_the_one_of_the_matrix)
{
    static struct sl_matrix matrix;
    use_tree("two-sockets");
    const struct sl_device *rdma = sl_devices_find(&devices, "mlx5_4");
    expect_name(&matrix, "tcp://10.0.4.2:0", "", "mlx5_4");
    matrix.device_count = 1;
    memcpy(matrix.devices[0], rdma->netdev, sizeof matrix.devices[0]);
    expect_name(&matrix, "tcp://10.0.4.2:0", "", rdma->netdev);
    expect_name(&matrix, "rdma://10.0.4.2:0", "mlx5_4", "mlx5_4");
    expect_name(&matrix, "shm://10.0.4.2:0", "", "");
    expect_name(&matrix, "tcp://10.99.0.1:0", "", "");
    expect_name(&matrix, "tcp://0.0.0.0:0", "", "");
    expect_name(&matrix, "tcp://host:0", "", "");
}
