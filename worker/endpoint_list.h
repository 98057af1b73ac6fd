/* Where the coordinator may be: endpoints with commas between. Any thread; allocates. */
#ifndef SL_WORKER_ENDPOINT_LIST_H
#define SL_WORKER_ENDPOINT_LIST_H

#include "core/endpoint.h"
#include "core/err.h"

/* *first: the first of the list; *others: those behind it, the caller's to free, NULL: none. On
 * error, reason says what is wrong. Errors: INVALID, NO_MEMORY. */
int sl_endpoint_list_parse(const char *text, struct sl_endpoint *first, struct sl_endpoint **others,
                           uint32_t *other_count, char *reason, size_t reason_bytes);

#endif
