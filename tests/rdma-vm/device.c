/* What the virtual machine's device must offer before a transport is tried on it: a port that is
 * active, memory that registers, and both families of addresses known to rdma_cm. Prints what is
 * not so. */

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#define RESOLVE_MS 5000

static bool check(bool holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "device: %s does not work\n", what);
    }
    return holds;
}

static bool memory_registers(struct ibv_pd *pd)
{
    static char memory[1 << 20];
    struct ibv_mr *mr =
        ibv_reg_mr(pd, memory, sizeof memory,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
    return mr != NULL && ibv_dereg_mr(mr) == 0;
}

static bool device_works(struct ibv_context *context)
{
    struct ibv_port_attr port;
    struct ibv_pd *pd = ibv_alloc_pd(context);
    bool port_works =
        check(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE, "port 1");
    bool memory_works = check(pd != NULL && memory_registers(pd), "registering memory");
    if (pd != NULL) {
        ibv_dealloc_pd(pd);
    }
    return port_works && memory_works;
}

/* Whether rdma_cm comes from the address to the device named in the environment. */
static bool resolves(const char *text, const char *device)
{
    struct addrinfo *address = NULL;
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST};
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = NULL;
    if (channel == NULL || getaddrinfo(text, "9", &hints, &address) != 0 ||
        rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0) {
        return false;
    }
    struct rdma_cm_event *event;
    bool found = rdma_resolve_addr(id, NULL, address->ai_addr, RESOLVE_MS) == 0 &&
                 rdma_get_cm_event(channel, &event) == 0;
    if (found) {
        found = event->event == RDMA_CM_EVENT_ADDR_RESOLVED &&
                strcmp(ibv_get_device_name(id->verbs->device), device) == 0;
        rdma_ack_cm_event(event);
    }
    rdma_destroy_id(id);
    rdma_destroy_event_channel(channel);
    freeaddrinfo(address);
    return found;
}

static struct ibv_context *open_device(const char *name)
{
    struct ibv_context *context = NULL;
    struct ibv_device **devices = ibv_get_device_list(NULL);
    for (struct ibv_device **at = devices; at != NULL && *at != NULL; at++) {
        if (strcmp(ibv_get_device_name(*at), name) == 0) {
            context = ibv_open_device(*at);
        }
    }
    if (devices != NULL) {
        ibv_free_device_list(devices);
    }
    return context;
}

int main(void)
{
    const char *name = getenv("RDMA_DEV"), *ip = getenv("RDMA_IP"), *ip6 = getenv("RDMA_IP6");
    if (name == NULL || ip == NULL || ip6 == NULL) {
        fprintf(stderr, "device: not in a machine of tests/rdma-vm\n");
        return 1;
    }
    struct ibv_context *context = open_device(name);
    if (!check(context != NULL, name)) {
        return 1;
    }
    bool device = device_works(context);
    bool address = check(resolves(ip, name), ip);
    bool address6 = check(resolves(ip6, name), ip6);
    ibv_close_device(context);
    return device && address && address6 ? 0 : 1;
}
