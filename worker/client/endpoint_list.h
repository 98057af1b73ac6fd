/* The list of candidate coordinator endpoints, comma-separated. Any thread; allocates. */
#ifndef SL_WORKER_CLIENT_ENDPOINT_LIST_H
#define SL_WORKER_CLIENT_ENDPOINT_LIST_H

#include "core/endpoint.h"
#include "core/reason.h"

/* Parses text into *first and *others (NULL: no others; the caller frees it). Errors, with reason:
 * INVALID, NO_MEMORY. */
int sl_endpoint_list_parse(const char *text, struct sl_endpoint *first, struct sl_endpoint **others,
                           uint32_t *other_count, struct sl_reason *reason);

#endif
