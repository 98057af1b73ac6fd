/* Which RDMA device a process uses, and by which of its addresses: flags that starling-ps and
 * starling-worker share, and variables, some of them of other programs, which cluster scripts set
 * anyway. Before start. */
#ifndef SL_CONFIG_RDMA_SETTINGS_H
#define SL_CONFIG_RDMA_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/cli.h"
#include "core/err.h"

/* What the flags said; NULL where they said nothing. */
struct sl_rdma_settings_flags {
    const char *device, *gid_index;
};

/* Rows of a program's table of options (config/cli.h); `flags` is a struct sl_rdma_settings_flags.
 */
#define SL_RDMA_SETTINGS_OPTIONS(flags)                                                            \
    {.kind = SL_CLI_SECTION, .name = "RDMA"},                                                      \
        {.kind = SL_CLI_STRING,                                                                    \
         .name = "rdma-device",                                                                    \
         .target = &(flags).device,                                                                \
         .metavar = "NAME,...",                                                                    \
         .help = "RDMA devices to use, such as mlx5_0. Default: STARLING_RDMA_DEVICE; "            \
                 "else the device of the address that is listened on, or connected to."},          \
    {                                                                                              \
        .kind = SL_CLI_STRING, .name = "rdma-gid-index", .target = &(flags).gid_index,             \
        .metavar = "N",                                                                            \
        .help = "Index in the device's GID table, from 0. Default: "                               \
                "STARLING_RDMA_GID_INDEX, MC_GID_INDEX or NCCL_IB_GID_INDEX; else the "            \
                "GID of the endpoint's address."                                                   \
    }

struct sl_rdma_settings {
    char device[256]; /* names with commas between; "": any */
    uint32_t gid;     /* index + 1; 0: the endpoint's address decides */
    char flaw[320];   /* what is wrong with a variable of other programs, with which there is no
                       * RDMA; "": nothing */
};

/* Flags, else the environment: STARLING_RDMA_DEVICE; STARLING_RDMA_GID_INDEX, MC_GID_INDEX and
 * NCCL_IB_GID_INDEX (where -1 says nothing, as NCCL has it), of which several must agree. A
 * variable that is empty says nothing. On error, reason names the flag or variable and what is
 * accepted. What MC_GID_INDEX and NCCL_IB_GID_INDEX have wrong, or do not agree in, is no error but
 * `flaw`: they may be meant for another program, in a job without RDMA. Errors: INVALID. */
int sl_rdma_settings_read(const struct sl_rdma_settings_flags *flags, struct sl_rdma_settings *out,
                          char *reason, size_t reason_bytes);

/* Where RDMA is asked for, the flaw is an error. Errors: INVALID, with the flaw as the reason. */
int sl_rdma_settings_check(const struct sl_rdma_settings *settings, bool is_asked, char *reason,
                           size_t reason_bytes);

#endif
