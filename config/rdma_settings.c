#include "config/rdma_settings.h"

#include <stdio.h>
#include <string.h>

#include "config/number.h"

/* Accepts "name" or "name,name" with characters of kernel device names. */
bool sl_rdma_settings_parse_device(const char *text, void *target)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const size_t bytes = strlen(text) + 1;
    if (bytes > sizeof((struct sl_rdma_settings *)0)->device) {
        return false;
    }
    const char *name = text;
    for (;;) {
        const size_t length = strspn(name, letters);
        if (length == 0 || (name[length] != ',' && name[length] != '\0')) {
            return false;
        }
        if (name[length] == '\0') {
            memcpy(target, text, bytes);
            return true;
        }
        name += length + 1;
    }
}

bool sl_rdma_settings_parse_gid(const char *text, void *target)
{
    /* The GID table of no device is longer. */
    return sl_number_parse_u32(text, 0, UINT16_MAX, target);
}

/* Takes the index of another program's variable. On a flaw RDMA is off: without an index the
 * address would decide, against the variable's intent. */
static void take_variable(const char *name, const char *text, const char **first,
                          struct sl_rdma_settings *out)
{
    uint32_t index;
    if (text == NULL || out->flaw[0] != '\0') {
        return;
    }
    if (!sl_rdma_settings_parse_gid(text, &index)) {
        (void)snprintf(out->flaw, sizeof out->flaw, "%s=%.80s: accepts %s", name, text,
                       SL_RDMA_SETTINGS_GID_ACCEPTS);
        return;
    }
    if (*first != NULL && index != out->gid_index) {
        (void)snprintf(out->flaw, sizeof out->flaw,
                       "%s is %u, but %s is %u; they must agree, or --rdma-gid-index decides",
                       *first, out->gid_index, name, index);
        return;
    }
    *first = *first == NULL ? name : *first;
    out->has_gid_index = true;
    out->gid_index = index;
}

void sl_rdma_settings_read(const struct sl_rdma_settings_flags *flags,
                           const struct sl_cli_given *given, struct sl_rdma_settings *out)
{
    /* A file has less precedence than any variable. */
    const char *first = given->from > SL_CLI_FROM_FILE ? given->source : NULL;
    const char *nccl = flags->nccl_gid_index;
    const bool is_flag = given->from == SL_CLI_FROM_FLAG;
    *out = (struct sl_rdma_settings){
        .has_gid_index = given->from != SL_CLI_FROM_DEFAULT,
        .gid_index = flags->gid_index,
    };
    memcpy(out->device, flags->device, sizeof out->device);
    if (!is_flag) {
        take_variable("MC_GID_INDEX", flags->mc_gid_index, &first, out);
        take_variable("NCCL_IB_GID_INDEX", nccl != NULL && strcmp(nccl, "-1") == 0 ? NULL : nccl,
                      &first, out);
    }
}

int sl_rdma_settings_check(const struct sl_rdma_settings *settings, bool is_asked,
                           struct sl_reason *reason)
{
    if (!is_asked || settings->flaw[0] == '\0') {
        return 0;
    }
    return sl_reason_fail(reason, SL_ERR_INVALID, "%s", settings->flaw);
}
