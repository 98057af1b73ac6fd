/* The DPDK devices of a process: the flag --dpdk-device of starling-ps and starling-worker, or the
 * variable STARLING_DPDK_DEVICE. Before start. */
#ifndef SL_CONFIG_DPDK_SETTINGS_H
#define SL_CONFIG_DPDK_SETTINGS_H

#include "config/cli.h"
#include "core/endpoint_device.h"
#include "core/reason.h"

#define SL_DPDK_SETTINGS_DEVICES 64 /* maximum per process */

struct sl_dpdk_settings {
    char text[SL_DPDK_SETTINGS_DEVICES * SL_LIMIT_ENDPOINT_BYTES]; /* ';'-separated; "": none */
    struct sl_endpoint_device first;                               /* if there is one */
};

/* Reads the devices; given: their source. reason: the flag or variable and what is accepted.
 * Errors: INVALID (also a duplicate device), TOO_LARGE. */
int sl_dpdk_settings_read(const struct sl_cli_list *devices, const struct sl_cli_given *given,
                          struct sl_dpdk_settings *out, struct sl_reason *reason);

#endif
