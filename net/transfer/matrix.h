/* Matrix is the NIC priority matrix: for each memory location the network devices that are near to
 * it (preferred) and the others that may be used (available). Its text is Mooncake's JSON:
 *
 *     {"cpu:0": [["mlx5_0"], ["mlx5_1"]], "cpu:1": [["mlx5_1"], ["mlx5_0"]]}
 *
 * Pure. Any thread; only parse and write allocate. */
#ifndef SL_NET_TRANSFER_MATRIX_H
#define SL_NET_TRANSFER_MATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "core/reason.h"
#include "reactor/devices.h"

#define SL_MATRIX_LOCATIONS_MAX  64
#define SL_MATRIX_LOCATION_BYTES 32          /* with NUL */
#define SL_MATRIX_BYTES_MAX      (64U << 10) /* of the JSON text */

/* Devices in the order of the text: most preferred first. */
struct sl_matrix_list {
    uint32_t count;
    uint8_t devices[SL_DEVICES_MAX]; /* indices into sl_matrix.devices */
};

struct sl_matrix_location {
    char name[SL_MATRIX_LOCATION_BYTES];        /* "cpu:0": NUMA node 0 */
    struct sl_matrix_list preferred, available; /* no device twice */
};

struct sl_matrix {
    uint32_t device_count, location_count;
    char devices[SL_DEVICES_MAX][SL_DEVICE_NAME_BYTES];
    struct sl_matrix_location locations[SL_MATRIX_LOCATIONS_MAX];
};

/* Parses a user's text, or a peer's. source: what the reason calls it, a file or an option.
 * devices: those of this host, others are refused; NULL: up to SL_DEVICES_MAX of any. A device that
 * is named again in a location counts where it came first. Errors: INVALID, and the reason names
 * source, location, device and the devices that exist; TOO_LARGE; NO_MEMORY. */
int sl_matrix_parse(const char *text, const char *source, const struct sl_devices *devices,
                    struct sl_matrix *out, struct sl_reason *reason);

/* Makes the matrix of this host: a location for each NUMA node that has cores. A device that is up
 * and has an address is preferred at its own node, and available at the others. */
void sl_matrix_discover(const struct sl_devices *devices, struct sl_matrix *out);

/* *text: JSON with a NUL, one line; the caller frees it. Errors: NO_MEMORY. */
int sl_matrix_write(const struct sl_matrix *matrix, char **text);

/* Whether the device is preferred for memory at this location. Where none is, all are the same. */
bool sl_matrix_prefers(const struct sl_matrix *matrix, const char *location, const char *device);

#endif
