#include <rte_bus_vdev.h>
#include <rte_dev.h>
#include <rte_errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bare_memif.h"
#include "core/log.h"

/* As the plug-in has them. */
#define DESCRIPTORS 1024U
#define PACKETS     4096U
#define CACHE       256U

#define MEMORY_MB   512
#define TEXT_BYTES  512

static bool has_huge_pages(void)
{
    unsigned long count = 0;
    FILE *file = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
    if (file != NULL) {
        if (fscanf(file, "%lu", &count) != 1) {
            count = 0;
        }
        (void)fclose(file);
    }
    return count >= MEMORY_MB / 2;
}

/* Huge pages where they are, as the plug-in does. */
static int start_eal(int core)
{
    char lcores[64], memory[32];
    char name[] = "bare", quiet[] = "--log-level=*:error", no_pci[] = "--no-pci";
    char telemetry[] = "--no-telemetry", in_memory[] = "--in-memory", size[] = "-m";
    char no_huge[] = "--no-huge", no_shared[] = "--no-shconf";
    char *arguments[16] = {name, quiet, no_pci, telemetry, lcores};
    int count = 5;
    (void)snprintf(lcores, sizeof lcores, "--lcores=0@%d", core);
    (void)snprintf(memory, sizeof memory, "%d", MEMORY_MB);
    if (has_huge_pages()) {
        arguments[count++] = in_memory;
    } else {
        arguments[count++] = no_huge;
        arguments[count++] = no_shared;
        arguments[count++] = size;
        arguments[count++] = memory;
    }
    if (rte_eal_init(count, arguments) < 0) {
        sl_log_error("DPDK does not start: %s", rte_strerror(rte_errno));
        return SL_ERR_IO;
    }
    return 0;
}

static int refuse(const char *name, const char *what, int code)
{
    sl_log_error("%s: %s: %s", name, what, rte_strerror(code));
    return SL_ERR_IO;
}

static int make(const struct sl_bench_bare *bare, bool is_server, uint32_t which, const char *name,
                uint16_t *id)
{
    char arguments[TEXT_BYTES];
    const uint32_t room = bare->packet_bytes > 2048 ? (bare->packet_bytes + 511) / 512 * 512 : 2048;
    (void)snprintf(arguments, sizeof arguments,
                   "role=%s,id=%u,bsize=%u,socket=%s/bare,socket-abstract=no",
                   is_server ? "server" : "client", which, room, bare->folder);
    const int code = rte_eal_hotplug_add("vdev", name, arguments);
    if (code != 0 || rte_eth_dev_get_port_by_name(name, id) != 0) {
        return refuse(name, "cannot be made", -code);
    }
    return 0;
}

static int open_one(const struct sl_bench_bare *bare, bool is_server, uint32_t which,
                    struct sl_bench_bare_device *out)
{
    char name[32], pool[32];
    const struct rte_eth_conf conf = {0};
    const uint32_t room = bare->packet_bytes > 2048 ? bare->packet_bytes : 2048;
    (void)snprintf(name, sizeof name, "net_memif%u", which);
    (void)snprintf(pool, sizeof pool, "pool%u", which);
    out->pool = rte_pktmbuf_pool_create_by_ops(pool, PACKETS, CACHE, 0,
                                               (uint16_t)(RTE_PKTMBUF_HEADROOM + room),
                                               SOCKET_ID_ANY, "ring_sp_sc");
    if (out->pool == NULL) {
        sl_log_error("no memory for packets: %s", rte_strerror(rte_errno));
        return SL_ERR_NO_MEMORY;
    }
    if (make(bare, is_server, which, name, &out->id) != 0) {
        return SL_ERR_IO;
    }
    int code = rte_eth_dev_configure(out->id, 1, 1, &conf);
    code = code != 0 ? code : rte_eth_tx_queue_setup(out->id, 0, DESCRIPTORS, 0, NULL);
    code = code != 0 ? code : rte_eth_rx_queue_setup(out->id, 0, DESCRIPTORS, 0, NULL, out->pool);
    code = code != 0 ? code : rte_eth_dev_start(out->id);
    return code != 0 ? refuse(name, "does not start", -code) : 0;
}

int sl_bench_bare_open(const struct sl_bench_bare *bare, bool is_server,
                       struct sl_bench_bare_device *devices)
{
    int err = start_eal(is_server ? bare->server_core : bare->client_core);
    for (uint32_t i = 0; err == 0 && i < bare->senders; i++) {
        err = open_one(bare, is_server, i, &devices[i]);
    }
    return err;
}

bool sl_bench_bare_is_up(const struct sl_bench_bare_device *device)
{
    struct rte_eth_link link = {0};
    return rte_eth_link_get_nowait(device->id, &link) == 0 && link.link_status == RTE_ETH_LINK_UP;
}
