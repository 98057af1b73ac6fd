#include "worker/client/endpoint_list.h"

#include <stdlib.h>
#include <string.h>

/* Parses one endpoint of `length` bytes. */
static int parse_one(const char *text, size_t length, struct sl_endpoint *out,
                     struct sl_reason *reason)
{
    char one[SL_LIMIT_ENDPOINT_BYTES + 16];
    if (length >= sizeof one) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "an endpoint is longer than %zu characters",
                              sizeof one - 1);
    }
    memcpy(one, text, length);
    one[length] = '\0';
    return sl_endpoint_parse(one, out, reason);
}

int sl_endpoint_list_parse(const char *text, struct sl_endpoint *first, struct sl_endpoint **others,
                           uint32_t *other_count, struct sl_reason *reason)
{
    uint32_t commas = 0;
    for (const char *c = text; *c != '\0'; c++) {
        commas += *c == ',' ? 1 : 0;
    }
    if (commas >= SL_LIMIT_PS) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "more than %d endpoints", SL_LIMIT_PS);
    }
    struct sl_endpoint *more = commas == 0 ? NULL : calloc(commas, sizeof *more);
    if (commas != 0 && more == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory");
    }
    int err = 0;
    for (uint32_t i = 0; i <= commas && err == 0; i++) {
        size_t length = strcspn(text, ",");
        err = parse_one(text, length, i == 0 ? first : &more[i - 1], reason);
        if (err == 0 && i > 0 && more[i - 1].scheme != first->scheme) {
            err = sl_reason_fail(reason, SL_ERR_INVALID, "endpoints of several kinds");
        }
        text += length + 1;
    }
    if (err != 0) {
        free(more);
        return err;
    }
    *others = more;
    *other_count = commas;
    return 0;
}
