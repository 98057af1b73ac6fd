/* The RDMA device of a process and its address: flags of starling-ps and starling-worker, and
 * variables. Some variables belong to other programs, whose cluster scripts set them. Before
 * start. */
#ifndef SL_CONFIG_RDMA_SETTINGS_H
#define SL_CONFIG_RDMA_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/cli.h"
#include "core/err.h"

/* Values of the flags; NULL: not given. */
struct sl_rdma_settings_flags {
    const char *device, *gid_index;
};

/* Rows of a table of options (config/cli.h); `flags` is a struct sl_rdma_settings_flags. */
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
    char device[256];   /* comma-separated names; "": any */
    bool has_gid_index; /* else the endpoint's address decides */
    uint32_t gid_index;
    char flaw[320]; /* Problem of another program's variable, which disables RDMA; "": none. */
};

/* Reads the flags, else the environment: STARLING_RDMA_DEVICE; STARLING_RDMA_GID_INDEX,
 * MC_GID_INDEX and NCCL_IB_GID_INDEX, which must agree. Empty variables, and -1 in NCCL's, count as
 * unset. A problem of MC_GID_INDEX or NCCL_IB_GID_INDEX is reported in `flaw` only, because they
 * may be meant for another program in a job without RDMA. reason: the flag or variable and what is
 * accepted. Errors: INVALID. */
int sl_rdma_settings_read(const struct sl_rdma_settings_flags *flags, struct sl_rdma_settings *out,
                          char *reason, size_t reason_bytes);

/* Turns the flaw into an error if RDMA was requested. Errors: INVALID, with the flaw as reason. */
int sl_rdma_settings_check(const struct sl_rdma_settings *settings, bool is_asked, char *reason,
                           size_t reason_bytes);

#endif
