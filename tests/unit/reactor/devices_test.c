#include "tests/support/sysfs_tree.h"
#include "tests/support/unit.h"

static struct sl_devices devices;

static const struct sl_device *device_of(const char *name)
{
    const struct sl_device *device = sl_devices_find(&devices, name);
    assert_non_null(device);
    return device;
}

SL_CASE(devices__two_sockets_with_eight_adapters)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, "two-sockets");
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
    assert_int_equal(devices.node_count, 2);
    assert_int_equal(devices.nodes[1], 1);
    assert_int_equal(devices.count, 16); /* neither docker0 nor lo */
    assert_string_equal(devices.list[0].name, "mlx5_0");
    assert_string_equal(devices.list[8].name, "eth0");
    const struct sl_device *rdma = device_of("mlx5_4");
    assert_true(rdma->is_rdma);
    assert_true(rdma->is_up);
    assert_false(rdma->is_infiniband);
    assert_int_equal(rdma->node, 1);
    assert_string_equal(rdma->netdev, "eth4");
    assert_string_equal(rdma->pci, "0000:92:00.0");
    assert_string_equal(rdma->bridge, "0000:90:01.0");
    assert_string_equal(rdma->bridge, device_of("mlx5_5")->bridge);
    assert_string_not_equal(rdma->bridge, device_of("mlx5_6")->bridge);
    assert_int_equal(rdma->address_count, 1); /* not the link-local one */
    assert_string_equal(rdma->addresses[0], "10.0.4.2");
    const struct sl_device *netdev = device_of("eth4");
    assert_false(netdev->is_rdma);
    assert_int_equal(netdev->node, 1);
    assert_string_equal(netdev->pci, rdma->pci);
    assert_false(device_of("mlx5_5")->is_up);
    assert_false(device_of("eth5")->is_up);
    assert_false(sl_devices_is_reachable(device_of("eth6")));
    assert_true(sl_devices_is_near(&devices, rdma));
}

SL_CASE(devices__one_adapter)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, "one-adapter");
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
    assert_int_equal(devices.node_count, 1);
    assert_int_equal(devices.count, 1); /* ifb0 and ifb1 have neither hardware nor address */
    const struct sl_device *device = device_of("eth0");
    assert_int_equal(device->node, 0); /* the only one, though the kernel says -1 */
    assert_string_equal(device->pci, "0000:00:03.0");
    assert_string_equal(device->bridge, "");
    assert_true(device->is_up);
    assert_int_equal(device->address_count, 2);
}

SL_CASE(devices__none)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, "none");
    sysfs_tree_read(&tree, &devices);
    assert_int_equal(devices.count, 0);
    assert_int_equal(devices.node_count, 1);
    sysfs_tree_remove(&tree);
    sl_devices_read("/nowhere", NULL, &devices);
    assert_int_equal(devices.count, 0);
    assert_int_equal(devices.node_count, 1);
}

SL_CASE(devices__soft_roce_and_infiniband)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, "one-adapter");
    sysfs_tree_write(&tree, "/sys/class/infiniband/rxe0/parent", "eth0");
    sysfs_tree_write(&tree, "/sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE");
    sysfs_tree_write(&tree, "/sys/class/infiniband/ib0/ports/1/state", "2: INIT");
    sysfs_tree_write(&tree, "/sys/class/infiniband/ib0/ports/1/link_layer", "InfiniBand");
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
    assert_int_equal(devices.count, 3);
    const struct sl_device *rxe = device_of("rxe0");
    assert_string_equal(rxe->netdev, "eth0");
    assert_string_equal(rxe->pci, "0000:00:03.0");
    assert_int_equal(rxe->address_count, 2);
    assert_true(rxe->is_up);
    assert_true(sl_devices_is_reachable(device_of("ib0")));
    assert_false(device_of("ib0")->is_up);
}

/* The cores of node 0 are not for this process. */
SL_CASE(devices_is_near__cores_of_other_nodes_only)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, "two-sockets");
    sysfs_tree_write(&tree, "/proc/self/status", "Cpus_allowed_list:\t16-20");
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
    assert_int_equal(devices.node_count, 1);
    assert_int_equal(devices.nodes[0], 1);
    assert_false(sl_devices_is_near(&devices, device_of("mlx5_0")));
    assert_true(sl_devices_is_near(&devices, device_of("mlx5_7")));
}

SL_CASE(devices_names__truncates)
{
    struct sysfs_tree tree;
    char text[20];
    sysfs_tree_make(&tree, "two-sockets");
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
    sl_devices_names(&devices, text, sizeof text);
    assert_string_equal(text, "mlx5_0, mlx5_1, mlx");
}

/* This host: whatever it has can be read. */
SL_CASE(devices_read_host__reads)
{
    sl_devices_read_host(&devices);
    assert_true(devices.node_count > 0);
}
