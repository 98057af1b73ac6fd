/* The RDMA device of a process and its address: flags of starling-ps and starling-worker, and
 * variables. Some variables belong to other programs, whose cluster scripts set them. Before
 * start. */
#ifndef SL_CONFIG_RDMA_SETTINGS_H
#define SL_CONFIG_RDMA_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "config/cli.h"
#include "core/reason.h"

struct sl_rdma_settings {
    char device[256];   /* comma-separated names; "": any */
    bool has_gid_index; /* else the endpoint's address decides */
    uint32_t gid_index;
    char flaw[320]; /* Problem of another program's variable, which disables RDMA; "": none. */
};

/* As given. */
struct sl_rdma_settings_flags {
    char device[256];
    uint32_t gid_index;                        /* of the flag or STARLING_RDMA_GID_INDEX */
    const char *mc_gid_index, *nccl_gid_index; /* MC_GID_INDEX, NCCL_IB_GID_INDEX; or NULL */
};

/* Parsers for the table of options: config/cli.h, SL_CLI_PARSED. */
bool sl_rdma_settings_parse_device(const char *text, void *device);
#define SL_RDMA_SETTINGS_GID_ACCEPTS "an index of the device's GID table, from 0 to 65535"
bool sl_rdma_settings_parse_gid(const char *text, void *index);

/* Combines the GID indices: a flag decides; variables must agree. -1 in NCCL's counts as unset. A
 * problem of MC_GID_INDEX or NCCL_IB_GID_INDEX is reported in `flaw` only, because they may be
 * meant for another program in a job without RDMA. given: the source of flags->gid_index. */
void sl_rdma_settings_read(const struct sl_rdma_settings_flags *flags,
                           const struct sl_cli_given *given, struct sl_rdma_settings *out);

/* Turns the flaw into an error if RDMA was requested. Errors: INVALID, with the flaw as reason. */
int sl_rdma_settings_check(const struct sl_rdma_settings *settings, bool is_asked,
                           struct sl_reason *reason);

#endif
