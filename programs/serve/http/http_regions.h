/* Regions of shared memory that callers have registered: files below /dev/shm, from which inputs
 * are read, and to which outputs are written.
 *
 * A caller may truncate or unlink its file at any time. So the gateway maps none: it copies by
 * pread and pwrite of a descriptor that it keeps, which return an error where an access to a
 * mapping would end the process by SIGBUS. Owner: the reactor of the gateway. A region allocates
 * its entry and a descriptor; there are at most SL_HTTP_REGIONS_MAX regions. */
#ifndef SL_SERVE_HTTP_REGIONS_H
#define SL_SERVE_HTTP_REGIONS_H

#include "core/reason.h"
#include "programs/serve/http/http_body.h"

#define SL_HTTP_REGIONS_MAX 256

struct json_t; /* of jansson */

struct sl_http_region {
    struct sl_http_body_region of; /* as registered */
    char name[SL_HTTP_BODY_REGION_BYTES];
    int fd;
};

/* Zero at first. */
struct sl_http_regions {
    struct sl_http_region *regions;
    uint32_t count, capacity;
};

/* Opens the file. Errors: INVALID (the name is taken; the key is no name of a file below /dev/shm;
 * the file cannot be opened, is none of memory, or is shorter), TOO_LARGE (too many regions). */
int sl_http_regions_add(struct sl_http_regions *regions, const char *name,
                        const struct sl_http_body_region *of, struct sl_reason *reason);

/* "": all of them. No effect if there is no such region. */
void sl_http_regions_remove(struct sl_http_regions *regions, const char *name);

/* The regions as JSON, or the one with this name; "": all. NULL: there is no such region. */
struct json_t *sl_http_regions_json(const struct sl_http_regions *regions, const char *name);

/* Whether the range lies in a region. Errors: INVALID, with the region's name. */
int sl_http_regions_check(const struct sl_http_regions *regions,
                          const struct sl_http_body_range *range, struct sl_reason *reason);

/* Copies all bytes of the range to memory, or `bytes` from memory to its beginning. bytes <=
 * range->bytes. Errors: INVALID, with the region's name: also if the file was unlinked, or has
 * become too short. */
int sl_http_regions_read(const struct sl_http_regions *regions,
                         const struct sl_http_body_range *range, void *to,
                         struct sl_reason *reason);
int sl_http_regions_write(const struct sl_http_regions *regions,
                          const struct sl_http_body_range *range, const void *from, uint64_t bytes,
                          struct sl_reason *reason);

void sl_http_regions_fini(struct sl_http_regions *regions);

#endif
