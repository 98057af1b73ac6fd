/* Query is the part of a request's target behind "?": parameters that a route accepts, decoded.
 * Pure. */
#ifndef SL_NET_HTTP_QUERY_H
#define SL_NET_HTTP_QUERY_H

#include "core/reason.h"

#define SL_QUERY_BYTES_MAX      2048
#define SL_QUERY_PARAMETERS_MAX 8

struct sl_query {
    unsigned count;
    struct sl_query_parameter {
        const char *name, *value; /* in `text` */
    } parameters[SL_QUERY_PARAMETERS_MAX];
    char text[SL_QUERY_BYTES_MAX];
};

/* Parses "a=1&b=2". text: NULL or "": no parameters. accepted: names separated by "|"; NULL: none.
 * reason: the parameter, and what is accepted. Errors: INVALID (a name that is not accepted or is
 * repeated, a wrong %XX, a control character, too long). */
int sl_query_parse(const char *text, const char *accepted, struct sl_query *out,
                   struct sl_reason *reason);

/* Returns the value of a parameter; NULL: not given. */
const char *sl_query_get(const struct sl_query *query, const char *name);

#endif
