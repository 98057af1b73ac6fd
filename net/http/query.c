#include "net/http/query.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_accepted(const char *accepted, const char *name)
{
    const size_t bytes = strlen(name);
    const char *at = accepted;
    while (at != NULL && bytes > 0) {
        const size_t length = strcspn(at, "|");
        if (length == bytes && memcmp(at, name, bytes) == 0) {
            return true;
        }
        at = at[length] == '|' ? at + length + 1 : NULL;
    }
    return false;
}

/* Decodes %XX and "+" in place. False: a wrong %XX, or a control character. */
static bool decode(char *text)
{
    char *to = text;
    for (const char *from = text; *from != '\0'; from++) {
        char value = *from == '+' ? ' ' : *from;
        if (*from == '%') {
            if (!isxdigit((unsigned char)from[1]) || !isxdigit((unsigned char)from[2])) {
                return false;
            }
            const char digits[] = {from[1], from[2], '\0'};
            value = (char)strtoul(digits, NULL, 16);
            from += 2;
        }
        if ((unsigned char)value < 0x20 || value == 0x7f) {
            return false;
        }
        *to++ = value;
    }
    *to = '\0';
    return true;
}

static int add(struct sl_query *query, char *pair, const char *accepted, struct sl_reason *reason)
{
    static char empty[] = "";
    char *equals = strchr(pair, '=');
    char *value = equals != NULL ? equals + 1 : empty;
    if (equals != NULL) {
        *equals = '\0';
    }
    if (!decode(pair) || !is_accepted(accepted, pair)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "parameter \"%.64s\": accepted here: %s",
                              pair, accepted != NULL ? accepted : "no parameter");
    }
    if (!decode(value)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "parameter %s: %%XX with two hexadecimal digits is accepted, and no "
                              "control characters",
                              pair);
    }
    if (sl_query_get(query, pair) != NULL || query->count == SL_QUERY_PARAMETERS_MAX) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "parameter %s: one is accepted", pair);
    }
    query->parameters[query->count++] = (struct sl_query_parameter){.name = pair, .value = value};
    return 0;
}

int sl_query_parse(const char *text, const char *accepted, struct sl_query *out,
                   struct sl_reason *reason)
{
    const size_t bytes = text != NULL ? strlen(text) : 0;
    out->count = 0;
    if (bytes >= sizeof out->text) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "the query is too long: less than %d bytes "
                              "are accepted",
                              SL_QUERY_BYTES_MAX);
    }
    memcpy(out->text, bytes > 0 ? text : "", bytes + 1);
    int err = 0;
    for (char *pair = out->text; err == 0 && pair != NULL && *pair != '\0';) {
        char *next = strchr(pair, '&');
        if (next != NULL) {
            *next++ = '\0';
        }
        err = add(out, pair, accepted, reason);
        pair = next;
    }
    return err;
}

const char *sl_query_get(const struct sl_query *query, const char *name)
{
    for (unsigned i = 0; i < query->count; i++) {
        if (strcmp(query->parameters[i].name, name) == 0) {
            return query->parameters[i].value;
        }
    }
    return NULL;
}
