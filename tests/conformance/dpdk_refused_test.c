/* What cannot be opened is refused with a line that says why, and what to do. Each case has a
 * process of its own, in which DPDK starts. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "conformance.h"
#include "core/log.h"
#include "net/dpdk/dpdk.h"
#include "net/dpdk/module.h"
#include "tests/support/veth.h"

#define NOBODY 65534

static const char *no_network; /* why there is none of our own */

static int open_in_child(const struct sl_dpdk_device *device, int log_fd)
{
    const struct sl_reactor_options wanted = {.name = "refused"};
    const struct sl_dpdk_options dpdk = {.devices = device, .device_count = 1};
    const struct sl_transport_options options = {.dpdk = &dpdk};
    struct sl_reactor *reactor;
    struct sl_transport *transport = NULL;
    (void)dup2(log_fd, STDERR_FILENO);
    (void)dup2(log_fd, STDOUT_FILENO); /* where DPDK says how it is used */
    sl_log_setup(SL_LOG_WARN, "refused");
    if (sl_reactor_create(&wanted, &reactor) != 0 || sl_reactor_attach(reactor) != 0) {
        return 1;
    }
    const int err = sl_transport_open(&sl_dpdk_ops, reactor, &options, &transport);
    if (err == 0) {
        sl_transport_close(&transport);
    }
    return -err;
}

/* The error, and the line, of opening this in a new process. */
static void expect(const struct sl_dpdk_device *device, uid_t user, int err, const char *text)
{
    char line[2048];
    bool found = false;
    int status = 0;
    FILE *lines = tmpfile();
    assert_non_null(lines);
    const pid_t pid = fork();
    if (pid == 0) {
        if (user != 0 && setuid(user) != 0) {
            _exit(1);
        }
        _exit(open_in_child(device, fileno(lines)));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    rewind(lines);
    while (fgets(line, sizeof line, lines) != NULL) {
        if (strstr(line, text) != NULL) {
            found = true;
        } else {
            print_message("%s", line);
        }
    }
    (void)fclose(lines);
    if (!found) {
        fail_msg("no line says \"%s\"", text);
    }
    assert_int_equal(WEXITSTATUS(status), -err);
}

static void skip_without_network(void)
{
    if (no_network != NULL) {
        print_message("skipped: %s\n", no_network);
        skip();
    }
}

SL_CASE(name__unknown)
{
    const struct sl_dpdk_device device = {.name = "net_memif7", .address = "10.0.0.1"};
    expect(&device, 0, SL_ERR_NOT_FOUND, "there is no device net_memif7");
}

SL_CASE(address__bad)
{
    const struct sl_dpdk_device device = {
        .name = "net_null0", .arguments = "no-rx=1", .address = "10.0.0.1/99"};
    expect(&device, 0, SL_ERR_INVALID, "its address is 10.0.0.1/99");
}

SL_CASE(eal_arguments__bad)
{
    const struct sl_dpdk_device device = {
        .name = "net_null0", .arguments = "no-rx=1", .address = "10.0.0.1"};
    assert_int_equal(setenv("STARLING_DPDK_EAL_ARGS", "--no-such-thing", 1), 0);
    expect(&device, 0, SL_ERR_INVALID, "look at STARLING_DPDK_EAL_ARGS");
    assert_int_equal(unsetenv("STARLING_DPDK_EAL_ARGS"), 0);
}

SL_CASE(pci__absent)
{
    const struct sl_dpdk_device device = {.name = "ffff:ff:1f.7", .address = "10.0.0.1"};
    expect(&device, 0, SL_ERR_NOT_FOUND, "this machine has no such PCI device");
}

/* A bridge, which no driver of DPDK takes. */
static bool find_bridge(char name[64])
{
    bool found = false;
    DIR *folder = opendir("/sys/bus/pci/devices");
    for (struct dirent *entry = folder != NULL ? readdir(folder) : NULL; entry != NULL && !found;
         entry = readdir(folder)) {
        char path[400], kind[16] = "";
        (void)snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file != NULL) {
            found = fgets(kind, sizeof kind, file) != NULL && strncmp(kind, "0x06", 4) == 0;
            (void)fclose(file);
        }
        if (found) {
            (void)snprintf(name, 64, "%.63s", entry->d_name);
        }
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return found;
}

SL_CASE(pci__not_bound)
{
    char name[64];
    if (!find_bridge(name)) {
        print_message("skipped: no PCI bridge here\n");
        skip();
    }
    const struct sl_dpdk_device device = {.name = name, .address = "10.0.0.1"};
    expect(&device, 0, SL_ERR_NOT_FOUND, "dpdk-devbind.py --bind=vfio-pci");
}

SL_CASE(interface__absent)
{
    const struct sl_dpdk_device device = {
        .name = "net_af_packet0", .arguments = "iface=nothere", .address = "10.0.0.1"};
    expect(&device, 0, SL_ERR_NOT_FOUND, "no network device \"nothere\"");
}

SL_CASE(permission__missing)
{
    const struct sl_dpdk_device device = {
        .name = "net_af_packet0", .arguments = "iface=lo", .address = "10.0.0.1"};
    expect(&device, geteuid() == 0 ? NOBODY : 0, SL_ERR_NOT_FOUND, "CAP_NET_RAW");
}

SL_CASE(mtu__has_no_room)
{
    skip_without_network();
    const struct sl_dpdk_device device = {.name = "net_af_packet0",
                                          .arguments = "iface=lo,framesz=2048",
                                          .address = "10.0.0.1",
                                          .mtu = 5000};
    expect(&device, 0, SL_ERR_INVALID, "its mtu cannot be 5000");
}

SL_CASE(memif__zero_copy)
{
    const struct sl_dpdk_device device = {
        .name = "net_memif0", .arguments = "role=server,zero-copy=yes", .address = "10.0.0.1"};
    expect(&device, 0, SL_ERR_INVALID, "zero-copy=yes is not taken");
}

SL_CASE(memif__has_no_folder)
{
    const struct sl_dpdk_device device = {
        .name = "net_memif0",
        .arguments = "role=server,socket=/nonexistent/socket,socket-abstract=no",
        .address = "10.0.0.1"};
    expect(&device, 0, SL_ERR_NOT_FOUND, "the socket is a path whose folder exists");
}

/* It opens: the link may come. */
SL_CASE(link__down)
{
    skip_without_network();
    const struct sl_dpdk_device device = {
        .name = "net_af_packet0", .arguments = "iface=lo", .address = "10.0.0.1"};
    expect(&device, 0, SL_OK, "net_af_packet0: its link is down");
}

int main(void)
{
    const char *why;
    no_network = veth_enter();
    if (sl_dpdk_module_ports(&why) == NULL) {
        fprintf(stderr, "skipped: %s\n", why);
        return SKIPPED;
    }
    return sl_unit_run("dpdk refused", __FILE__);
}
