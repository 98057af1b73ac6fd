/* Settings are the checked options of an engine, with copies of all strings. Before start. */
#ifndef SL_NET_TRANSFER_SETTINGS_H
#define SL_NET_TRANSFER_SETTINGS_H

#include <starling_transfer.h>

#include "core/secret.h"
#include "net/store/address.h"
#include "net/transfer/matrix.h"
#include "net/transport.h"

struct sl_dpdk_device_list;

#define SL_TRANSFER_SETTINGS_LANES           2
#define SL_TRANSFER_SETTINGS_LANES_MAX       64
#define SL_TRANSFER_SETTINGS_STALL_MS        2000
#define SL_TRANSFER_SETTINGS_ENDPOINTS_MAX   16
#define SL_TRANSFER_SETTINGS_IDLE_NS         (60 * SL_CLOCK_NS_PER_S)
#define SL_TRANSFER_SETTINGS_START_MS        15000 /* above the lease of an older record */
#define SL_TRANSFER_SETTINGS_SLICE_BYTES     (1U << 20)
#define SL_TRANSFER_SETTINGS_SLICE_BYTES_MIN (4U << 10)

struct sl_transfer_settings {
    struct sl_endpoint control; /* of the engine's name; port 0: any */
    /* One for each device; port 0: any, else the first of one for each reactor. First the tcp_count
     * endpoints of TCP, at least one. RDMA: `device` is the name of its device, or "". */
    struct sl_endpoint endpoints[SL_TRANSFER_SETTINGS_ENDPOINTS_MAX];
    uint32_t endpoint_count, tcp_count;
    bool names_endpoints;                 /* the options do */
    struct sl_metastore_address metadata; /* its strings are those of tls */
    struct sl_matrix nics;                /* NIC priority matrix */
    char *matrix;                         /* the same as JSON; NULL: none */
    /* The NICs of the endpoints, by the names of the matrix; "": unknown. */
    char nic_names[SL_TRANSFER_SETTINGS_ENDPOINTS_MAX][SL_DEVICE_NAME_BYTES];
    struct sl_secret secret;
    struct sl_transport_options transport; /* its strings are those below */
    struct sl_transport_tls tls;
    char *rdma_device;                /* NULL: any */
    struct sl_dpdk_device_list *dpdk; /* NULL: none */
    char *congestion_control;         /* NULL: the system's default */
    struct {
        uint32_t count;
        bool polling, pin_cores;
    } reactors;
    uint32_t lanes, slice_bytes, stall_ms, start_timeout_ms;
    uint64_t idle_ns;         /* lanes that are not used for so long are closed */
    uint64_t bytes_per_s_max; /* 0: none */
    bool checksum;
};

/* Errors, with the reason in sl_transfer_last_error: INVALID, REFUSED (open to the network without
 * a secret), UNSUPPORTED, NOT_FOUND (this host has no address), NO_MEMORY. On success *out needs
 * fini. */
int sl_transfer_settings_init(struct sl_transfer_settings *out,
                              const struct sl_transfer_options *options);
void sl_transfer_settings_fini(struct sl_transfer_settings *settings);

/* Returns a bit for each endpoint whose NIC the matrix prefers for memory at this location. */
uint32_t sl_transfer_settings_preferred(const struct sl_transfer_settings *settings,
                                        const char *location);

/* Parses a segment's name, "host:port". Errors: INVALID. */
int sl_transfer_settings_parse_name(const char *name, struct sl_endpoint *out);

/* Returns 0 if the timeout is in range. Errors: INVALID. */
int sl_transfer_settings_check_timeout(uint32_t timeout_ms);

#endif
