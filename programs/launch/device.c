#include "programs/launch/device.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/endpoint_device.h"

#define NUMBER_MAX 1000000U

/* Matches "{task}" or "{task+12}" at `at`. Returns its length or 0; *plus: 12. */
static size_t match(const char *at, const char *name, uint32_t *plus)
{
    const size_t length = strlen(name);
    if (at[0] != '{' || strncmp(at + 1, name, length) != 0) {
        return 0;
    }
    const char *end = at + 1 + length;
    *plus = 0;
    if (*end == '+') {
        const char *digits = end + 1;
        for (end = digits; *end >= '0' && *end <= '9' && *plus < NUMBER_MAX; end++) {
            *plus = *plus * 10 + (uint32_t)(*end - '0');
        }
        if (end == digits) {
            return 0;
        }
    }
    return *end == '}' ? (size_t)(end + 1 - at) : 0;
}

static bool has_worker(const char *pattern)
{
    uint32_t plus;
    for (; *pattern != '\0'; pattern++) {
        if (match(pattern, "worker", &plus) > 0) {
            return true;
        }
    }
    return false;
}

/* False: too long, or an unmatched brace. */
static bool expand(const char *pattern, uint32_t task, uint32_t worker, char *text,
                   size_t text_bytes)
{
    size_t used = 0;
    while (*pattern != '\0') {
        uint32_t plus, index = task;
        size_t length = match(pattern, "task", &plus);
        if (length == 0) {
            length = match(pattern, "worker", &plus);
            index = worker;
        }
        const int bytes = length > 0 ? snprintf(text + used, text_bytes - used, "%u", index + plus)
                                     : snprintf(text + used, text_bytes - used, "%c", *pattern);
        used += (size_t)bytes;
        if (used >= text_bytes || (length == 0 && (*pattern == '{' || *pattern == '}'))) {
            return false;
        }
        pattern += length > 0 ? length : 1;
    }
    return true;
}

static int append_one(const char *flag, const char *pattern, uint32_t task, uint32_t worker,
                      struct sl_words *argv, struct sl_reason *reason)
{
    struct sl_reason why;
    char text[SL_LIMIT_ENDPOINT_BYTES];
    struct sl_endpoint_device device;
    if (!expand(pattern, task, worker, text, sizeof text)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s: \"%.120s\": in braces {task}, {task+N}, {worker} and {worker+N} "
                              "are accepted, and %d bytes in all",
                              flag, pattern, SL_LIMIT_ENDPOINT_BYTES - 1);
    }
    if (sl_endpoint_device_parse(text, false, &device, &why) != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s: %s", flag, why.text);
    }
    int err = sl_words_append(argv, "--dpdk-device");
    return err != 0 ? err : sl_words_append(argv, text);
}

int sl_device_append(const char *flag, const char *patterns, uint32_t task, uint32_t worker_count,
                     struct sl_words *argv, struct sl_reason *reason)
{
    int err = 0;
    while (patterns != NULL && *patterns != '\0' && err == 0) {
        const size_t bytes = strcspn(patterns, ";");
        char *pattern = strndup(patterns, bytes);
        if (pattern == NULL) {
            return SL_ERR_NO_MEMORY;
        }
        const uint32_t count = has_worker(pattern) ? worker_count : bytes > 0 ? 1 : 0;
        for (uint32_t worker = 0; err == 0 && worker < count; worker++) {
            err = append_one(flag, pattern, task, worker, argv, reason);
        }
        free(pattern);
        patterns += bytes + (patterns[bytes] == ';');
    }
    return err;
}
