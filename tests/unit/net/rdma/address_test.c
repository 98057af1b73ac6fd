/* Devices are folders made for the test; the network interfaces that they are of are this machine's
 * loopback, or none. */

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/log.h"
#include "net/rdma/address.h"
#include "tests/support/unit.h"

static char root[64];
static struct sl_rdma *rdma;

static void write_file(const char *device, const char *file, const char *line)
{
    char path[512];
    snprintf(path, sizeof path, "%s/class/infiniband/%s/%s", root, device, file);
    for (char *at = path + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(path, 0700);
        *at = '/';
    }
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fprintf(stream, "%s\n", line);
    assert_int_equal(fclose(stream), 0);
}

static void make_device(const char *device, const char *interface)
{
    write_file(device, "node_type", "1: CA");
    write_file(device, "device/numa_node", "0");
    write_file(device, "ports/1/gids/0", "fe80:0000:0000:0000:5054:00ff:fe12:3456");
    write_file(device, "ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a09:0001");
    write_file(device, "ports/1/gids/2", "fd09:0000:0000:0000:0000:0000:0000:0001");
    write_file(device, "ports/1/gids/3", "0000:0000:0000:0000:0000:0000:0000:0000");
    write_file(device, "ports/1/gid_attrs/ndevs/0", interface);
    write_file(device, "ports/1/gid_attrs/ndevs/1", interface);
}

static void set_up(void)
{
    snprintf(root, sizeof root, "/tmp/rdma_address_XXXXXX");
    assert_non_null(mkdtemp(root));
    make_device("near0", "lo");
    sl_rdma_address_set_root(root);
    rdma = calloc(1, sizeof *rdma);
    assert_non_null(rdma);
}

static void tear_down(void)
{
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", root);
    assert_int_equal(system(command), 0);
    free(rdma);
}

static void set_options(const char *devices, int gid_index)
{
    snprintf(rdma->options.devices, sizeof rdma->options.devices, "%s", devices);
    rdma->options.has_gid_index = gid_index >= 0;
    rdma->options.gid_index = (uint32_t)gid_index;
}

static struct sockaddr_storage address_of(const char *text)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&address;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&address;
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
    } else {
        assert_int_equal(inet_pton(AF_INET6, text, &v6->sin6_addr), 1);
        v6->sin6_family = AF_INET6;
    }
    return address;
}

/* The address that is chosen, "" for none; the error, by its name. */
static const char *choose(const char *host)
{
    static char text[INET6_ADDRSTRLEN];
    struct sl_endpoint endpoint = {.scheme = SL_ENDPOINT_RDMA};
    snprintf(endpoint.host, sizeof endpoint.host, "%s", host);
    struct sockaddr_storage to = address_of(host), from;
    int err = sl_rdma_address_choose(rdma, &endpoint, &to, &from);
    if (err != 0) {
        return sl_err_name(err);
    }
    text[0] = '\0';
    if (from.ss_family == AF_INET) {
        inet_ntop(AF_INET, &((struct sockaddr_in *)&from)->sin_addr, text, sizeof text);
    } else if (from.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&from)->sin6_addr, text, sizeof text);
    }
    return text;
}

#define CASE(name) SL_CASE_WITH(name, set_up(), tear_down())

CASE(check__names_must_be_devices)
{
    static const char *const good[] = {"", "near0", "near0,", " near0, near0"};
    static const char *const bad[] = {"far0", "near0,far0", "../infiniband/near0", "."};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        set_options(good[i], -1);
        assert_int_equal(sl_rdma_address_check(rdma), 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        set_options(bad[i], -1);
        assert_int_equal(sl_rdma_address_check(rdma), SL_ERR_INVALID);
    }
}

CASE(choose__one_device_is_the_systems_to_find)
{
    assert_string_equal(choose("127.0.0.1"), "");
    assert_string_equal(choose("10.9.0.7"), "");
    assert_string_equal(choose("0.0.0.0"), "");
}

CASE(choose__several_devices_of_the_same_network)
{
    make_device("near1", "lo");
    make_device("other0", "no-such-interface");
    assert_string_equal(choose("127.0.0.1"), "127.0.0.1");
    assert_int_equal(rdma->next_nic, 1);
    assert_string_equal(choose("127.0.0.1"), "127.0.0.1");
    assert_int_equal(rdma->next_nic, 2);
    assert_string_equal(choose("203.0.113.9"), ""); /* of no device's network: by the routes */
    assert_string_equal(choose("0.0.0.0"), "");
}

CASE(choose__a_device_by_its_name)
{
    make_device("other0", "no-such-interface");
    set_options("near0", -1);
    assert_string_equal(choose("203.0.113.9"), "127.0.0.1");
    assert_string_equal(choose("0.0.0.0"), "127.0.0.1");
    set_options("other0", -1);
    assert_string_equal(choose("127.0.0.1"), sl_err_name(SL_ERR_NOT_FOUND));
    set_options("other0,near0", -1);
    assert_string_equal(choose("127.0.0.1"), "127.0.0.1");
}

CASE(check__iwarp_is_refused)
{
    make_device("warp0", "lo");
    write_file("warp0", "node_type", "4: RNIC");
    set_options("near0,warp0", -1);
    assert_int_equal(sl_rdma_address_check(rdma), SL_ERR_UNSUPPORTED);
}

/* The iWARP device is not counted: one device is left, which the system finds. */
CASE(choose__iwarp_is_skipped)
{
    make_device("a0", "lo");
    write_file("a0", "node_type", "4: RNIC");
    assert_string_equal(choose("127.0.0.1"), "");
    set_options("", 1);
    assert_string_equal(choose("10.9.0.7"), "10.9.0.1"); /* of near0 */
    assert_int_equal(rdma->next_nic, 0);
}

CASE(choose__a_gid_by_its_index)
{
    set_options("near0", 1);
    assert_string_equal(choose("10.9.0.7"), "10.9.0.1");
    assert_string_equal(choose("fd09::7"), sl_err_name(SL_ERR_INVALID));
    set_options("", 2);
    assert_string_equal(choose("fd09::7"), "fd09::1");
    set_options("near0", 3); /* empty */
    assert_string_equal(choose("fd09::7"), sl_err_name(SL_ERR_INVALID));
    set_options("near0", 4);
    assert_string_equal(choose("fd09::7"), sl_err_name(SL_ERR_INVALID));
}

CASE(choose__without_any_device)
{
    sl_rdma_address_set_root("/nonexistent");
    assert_string_equal(choose("127.0.0.1"), "");
    set_options("", 0);
    assert_string_equal(choose("127.0.0.1"), sl_err_name(SL_ERR_INVALID));
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "rdma_address");
}
