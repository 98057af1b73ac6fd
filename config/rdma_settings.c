#include "config/rdma_settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/env.h"

/* Beyond the GID table of any device. */
#define GID_INDEX_MAX UINT16_MAX

static const char *value_of(const char *name)
{
    const char *value = getenv(name);
    return value == NULL || value[0] == '\0' ? NULL : value;
}

/* Returns true for "name" or "name,name" with characters of kernel device names. */
static bool is_device_list(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    if (strlen(text) >= sizeof((struct sl_rdma_settings *)0)->device) {
        return false;
    }
    for (;;) {
        const size_t length = strspn(text, letters);
        if (length == 0) {
            return false;
        }
        if (text[length] == '\0') {
            return true;
        }
        if (text[length] != ',') {
            return false;
        }
        text += length + 1;
    }
}

static int read_device(const char *source, const char *value, struct sl_rdma_settings *out,
                       char *reason, size_t reason_bytes)
{
    if (!is_device_list(value)) {
        (void)snprintf(reason, reason_bytes,
                       "%s=%.80s: accepts the names of RDMA devices with commas between, such as "
                       "mlx5_0 or mlx5_0,mlx5_1",
                       source, value);
        return SL_ERR_INVALID;
    }
    memcpy(out->device, value, strlen(value) + 1);
    return 0;
}

static int read_gid(const char *source, const char *value, uint32_t *out, char *reason,
                    size_t reason_bytes)
{
    if (!sl_env_parse_u32(value, 0, GID_INDEX_MAX, out)) {
        (void)snprintf(reason, reason_bytes,
                       "%s=%.80s: accepts an index of the device's GID table, from 0 to %d", source,
                       value, GID_INDEX_MAX);
        return SL_ERR_INVALID;
    }
    return 0;
}

static bool is_own(const char *name)
{
    return strncmp(name, "STARLING_", 9) == 0;
}

/* On a flaw RDMA is off: without an index the address would decide, against the variables'
 * intent. */
static int read_gid_variables(struct sl_rdma_settings *out, char *reason, size_t reason_bytes)
{
    static const char *const names[] = {"STARLING_RDMA_GID_INDEX", "MC_GID_INDEX",
                                        "NCCL_IB_GID_INDEX"};
    const char *first = NULL;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = value_of(names[i]);
        const bool is_automatic =
            value != NULL && strcmp(names[i], "NCCL_IB_GID_INDEX") == 0 && strcmp(value, "-1") == 0;
        if (value == NULL || is_automatic) {
            continue;
        }
        uint32_t gid;
        int err = is_own(names[i]) ? read_gid(names[i], value, &gid, reason, reason_bytes)
                                   : read_gid(names[i], value, &gid, out->flaw, sizeof out->flaw);
        if (err != 0) {
            return is_own(names[i]) ? err : 0;
        }
        if (first != NULL && gid != out->gid_index) {
            (void)snprintf(out->flaw, sizeof out->flaw,
                           "%s is %u, but %s is %u; they must agree, unless --rdma-gid-index says "
                           "which counts",
                           first, out->gid_index, names[i], gid);
            return 0;
        }
        first = first == NULL ? names[i] : first;
        out->has_gid_index = true;
        out->gid_index = gid;
    }
    return 0;
}

int sl_rdma_settings_read(const struct sl_rdma_settings_flags *flags, struct sl_rdma_settings *out,
                          char *reason, size_t reason_bytes)
{
    struct sl_rdma_settings settings = {0};
    const char *variable = value_of("STARLING_RDMA_DEVICE");
    int err = 0;
    if (flags->device != NULL) {
        err = read_device("--rdma-device", flags->device, &settings, reason, reason_bytes);
    } else if (variable != NULL) {
        err = read_device("STARLING_RDMA_DEVICE", variable, &settings, reason, reason_bytes);
    }
    if (err == 0) {
        err = flags->gid_index != NULL ? read_gid("--rdma-gid-index", flags->gid_index,
                                                  &settings.gid_index, reason, reason_bytes)
                                       : read_gid_variables(&settings, reason, reason_bytes);
    }
    settings.has_gid_index |= flags->gid_index != NULL;
    if (err == 0) {
        *out = settings;
    }
    return err;
}

int sl_rdma_settings_check(const struct sl_rdma_settings *settings, bool is_asked, char *reason,
                           size_t reason_bytes)
{
    if (!is_asked || settings->flaw[0] == '\0') {
        return 0;
    }
    (void)snprintf(reason, reason_bytes, "%s", settings->flaw);
    return SL_ERR_INVALID;
}
