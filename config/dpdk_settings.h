/* The DPDK devices of a process: the flag --dpdk-device of starling-ps and starling-worker, or the
 * variable STARLING_DPDK_DEVICE. Before start. */
#ifndef SL_CONFIG_DPDK_SETTINGS_H
#define SL_CONFIG_DPDK_SETTINGS_H

#include <stddef.h>

#include "config/cli.h"
#include "core/endpoint_device.h"
#include "core/err.h"

#define SL_DPDK_SETTINGS_DEVICES 64 /* maximum per process */

/* Rows of a table of options (config/cli.h); `list` is a struct sl_cli_list. */
#define SL_DPDK_SETTINGS_OPTIONS(list)                                                             \
    {.kind = SL_CLI_SECTION, .name = "DPDK"},                                                      \
    {                                                                                              \
        .kind = SL_CLI_STRINGS, .name = "dpdk-device", .target = &(list),                          \
        .metavar = "DEVICE?addr=A[/PREFIX]...",                                                    \
        .help = "DPDK device that this process polls, and its address: "                           \
                "0000:3b:00.0?addr=10.0.0.1/24, or, for a virtual device, "                        \
                "net_memif0,role=client,socket=/run/m.sock,socket-abstract=no?addr=10.0.0.2. "     \
                "After the address: &gateway=G, &mtu=N, &queues=N. May be repeated. "              \
                "Default: STARLING_DPDK_DEVICE, several separated by ;."                           \
    }

struct sl_dpdk_settings {
    char text[SL_DPDK_SETTINGS_DEVICES * SL_LIMIT_ENDPOINT_BYTES]; /* ';'-separated; "": none */
    struct sl_endpoint_device first;                               /* if there is one */
};

/* Reads the flags, else the variable. reason: the flag or variable and what is accepted. Errors:
 * INVALID (also a duplicate device), TOO_LARGE. */
int sl_dpdk_settings_read(const struct sl_cli_list *flags, struct sl_dpdk_settings *out,
                          char *reason, size_t reason_bytes);

#endif
