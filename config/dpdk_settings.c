#include "config/dpdk_settings.h"
#include "core/format.h"

#include <string.h>

/* Device names so far, to detect duplicates. */
struct names {
    const struct sl_cli_given *given;
    char items[SL_DPDK_SETTINGS_DEVICES][sizeof((struct sl_endpoint_device *)0)->name];
    uint32_t count;
};

static int add_name(struct names *names, const struct sl_endpoint_device *device,
                    struct sl_reason *reason)
{
    for (uint32_t i = 0; i < names->count; i++) {
        if (strcmp(names->items[i], device->name) == 0) {
            return sl_reason_fail(reason, SL_ERR_INVALID, "%s: %s is named twice; each device once",
                                  names->given->source, device->name);
        }
    }
    if (names->count == SL_DPDK_SETTINGS_DEVICES) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: more than %d devices",
                              names->given->source, SL_DPDK_SETTINGS_DEVICES);
    }
    memcpy(names->items[names->count++], device->name, sizeof device->name);
    return 0;
}

/* Appends one or several ';'-separated devices. */
static int take(struct names *names, const char *text, struct sl_dpdk_settings *out,
                struct sl_reason *reason)
{
    struct sl_reason why;
    struct sl_endpoint_device device;
    int result;
    const char *at = text;
    while ((result = sl_endpoint_device_next(&at, &device, &why)) == 1) {
        int err = add_name(names, &device, reason);
        if (err != 0) {
            return err;
        }
        out->first = names->count == 1 ? device : out->first;
    }
    if (result != 0) {
        sl_reason_set(reason, "%s=%s", names->given->source, why.text);
        return result;
    }
    return sl_format_add(out->text, sizeof out->text, ";", "%s", text)
               ? 0
               : sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: too long", names->given->source);
}

int sl_dpdk_settings_read(const struct sl_cli_list *devices, const struct sl_cli_given *given,
                          struct sl_dpdk_settings *out, struct sl_reason *reason)
{
    struct names names = {.given = given};
    struct sl_dpdk_settings settings = {.text = ""};
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < devices->count; i++) {
        err = take(&names, devices->items[i], &settings, reason);
    }
    if (err == 0) {
        *out = settings;
    }
    return err;
}
