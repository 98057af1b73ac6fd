/* Devices in a tree of files as the kernel shows them; their interface is this machine's "lo". */
#include "bench/rdma_device.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/err.h"
#include "tests/support/unit.h"

static char root[64];

static int set_up(void **state)
{
    (void)snprintf(root, sizeof root, "/tmp/starling-bench-rdma-XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    return remove(path);
}

static int tear_down(void **state)
{
    return nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* A file of one line, with the folders that it is in. */
static void put(const char *device, const char *file, const char *line)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/class/infiniband/%s/%s", root, device, file);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        (void)mkdir(path, 0755);
        *slash = '/';
    }
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    (void)fprintf(stream, "%s\n", line);
    (void)fclose(stream);
}

static void put_roce(const char *device)
{
    put(device, "node_type", "1: CA");
    put(device, "ports/1/state", "4: ACTIVE");
    put(device, "ports/1/gids/0", "fe80:0000:0000:0000:2433:bbff:fe2b:ad9d");
    put(device, "ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f00:0001");
    put(device, "ports/1/gids/2", "0000:0000:0000:0000:0000:ffff:7f00:0001");
    put(device, "ports/1/gid_attrs/types/0", "IB/RoCE v1");
    put(device, "ports/1/gid_attrs/types/1", "IB/RoCE v1");
    put(device, "ports/1/gid_attrs/types/2", "RoCE v2");
    put(device, "ports/1/gid_attrs/ndevs/0", "lo");
}

static struct sl_bench_rdma_device device;
static char reason[512];

static int find(const char *name, const char *address)
{
    return sl_bench_rdma_device_find(root, name, address, &device, reason, sizeof reason);
}

SL_CASE_WITH(find__without_devices, set_up, tear_down)
{
    assert_int_equal(find(NULL, NULL), SL_ERR_NOT_FOUND);
    assert_string_equal(reason, "this machine has no RDMA device");
}

SL_CASE_WITH(find__roce, set_up, tear_down)
{
    put_roce("mlx5_0");
    assert_int_equal(find(NULL, NULL), 0);
    assert_string_equal(device.name, "mlx5_0");
    assert_string_equal(device.address, "127.0.0.1");
    assert_int_equal(device.gid, 2);
}

SL_CASE_WITH(find__takes_the_first_that_is_active, set_up, tear_down)
{
    put_roce("mlx5_1");
    put_roce("mlx5_0");
    put("mlx5_0", "ports/1/state", "1: DOWN");
    assert_int_equal(find(NULL, NULL), 0);
    assert_string_equal(device.name, "mlx5_1");
    assert_int_equal(find("mlx5_0", NULL), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason, "mlx5_0: port 1 is not active"));
    assert_int_equal(find("mlx5_7", NULL), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason, "--device=mlx5_7"));
}

SL_CASE_WITH(find__iwarp_is_not_measured, set_up, tear_down)
{
    put_roce("irdma0");
    put("irdma0", "node_type", "4: RNIC");
    assert_int_equal(find(NULL, "10.9.0.1"), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason, "irdma0: iWARP is not supported"));
}

SL_CASE_WITH(find__address_is_given, set_up, tear_down)
{
    put("rxe0", "node_type", "1: CA");
    put("rxe0", "ports/1/state", "4: ACTIVE");
    assert_int_equal(find(NULL, NULL), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason, "--address"));
    assert_int_equal(find(NULL, "10.9.0.1"), 0);
    assert_string_equal(device.address, "10.9.0.1");
    assert_int_equal(device.gid, -1);
}

SL_CASE_WITH(find__interface_beside_the_device, set_up, tear_down)
{
    put("ib0", "node_type", "1: CA");
    put("ib0", "ports/1/state", "4: ACTIVE");
    put("ib0", "device/net/lo/type", "32");
    assert_int_equal(find("ib0", NULL), 0);
    assert_string_equal(device.address, "127.0.0.1");
    assert_int_equal(device.gid, -1);
}
