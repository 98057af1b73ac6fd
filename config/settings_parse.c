#include "config/settings_parse.h"

#include <string.h>

#include "config/hosts.h"
#include "config/number.h"
#include "config/settings.h"
#include "core/limits.h"

bool sl_settings_parse_size(const char *text, void *target)
{
    return sl_number_parse_size(text, target);
}

bool sl_settings_parse_congestion_control(const char *text, void *target)
{
    const size_t length = strlen(text);
    if (length >= sizeof((struct sl_settings *)0)->congestion_control ||
        strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") != length) {
        return false;
    }
    memcpy(target, text, length + 1);
    return true;
}

bool sl_settings_parse_task(const char *text, void *target)
{
    uint32_t index = 0;
    const bool is_any = strcmp(text, "any") == 0, is_none = strcmp(text, "none") == 0;
    if (!is_any && !is_none && !sl_number_parse_u32(text, 0, SL_LIMIT_WORKERS - 1, &index)) {
        return false;
    }
    *(int32_t *)target = is_any ? SL_CLIENT_ANY_TASK : is_none ? -1 : (int32_t)index;
    return true;
}

bool sl_settings_parse_places(const char *text, void *target)
{
    struct sl_hosts places = {0};
    int err = sl_hosts_append_list(&places, text, "", NULL);
    sl_hosts_fini(&places);
    *(const char **)target = text;
    return err == 0;
}

bool sl_settings_parse_title(const char *text, void *target)
{
    *(const char **)target = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at < ' ' || *at > '~') {
            return false;
        }
    }
    return text[0] != '\0' && strlen(text) <= 64;
}

bool sl_settings_parse_path(const char *text, void *target)
{
    *(const char **)target = text;
    return text[0] != '\0';
}

bool sl_settings_parse_directory(const char *text, void *target)
{
    return strlen(text) < SL_CHECKPOINT_SETTINGS_PATH_BYTES && sl_settings_parse_path(text, target);
}
