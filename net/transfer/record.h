/* Record describes a segment in a shared metadata store: JSON text with the member names that
 * Mooncake uses. It holds no key, token or secret. Pure. Any thread; allocates. */
#ifndef SL_NET_TRANSFER_RECORD_H
#define SL_NET_TRANSFER_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "core/limits.h"
#include "core/reason.h"

#define SL_TRANSFER_RECORD_KEY_PREFIX "starling/ram/" /* followed by the segment's name */
#define SL_TRANSFER_RECORD_BYTES_MAX  (64U << 10)     /* of the JSON text */
#define SL_TRANSFER_RECORD_AGE_BYTES  64

struct sl_transfer_record {
    char name[SL_LIMIT_ENDPOINT_BYTES]; /* of the segment: "host:port" */
    char host[SL_LIMIT_ENDPOINT_BYTES]; /* of the control endpoint: address or host name */
    uint16_t port;                      /* of the control endpoint, > 0 */
    uint64_t incarnation;               /* > 0 */
    int64_t written_s;                  /* Unix time at which the record was made, >= 0 */
    /* For people: written, never read. NULL: left out. Owned by the caller. */
    const char *software;
    const char *endpoints;       /* comma-separated */
    const char *priority_matrix; /* JSON text */
};

/* *text: JSON with a NUL; the caller frees it. Errors: NO_MEMORY; TOO_LARGE; INVALID: a text is
 * neither UTF-8 nor, for the matrix, JSON. */
int sl_transfer_record_encode(const struct sl_transfer_record *record, char **text);

/* Decodes text[bytes], which comes from the store, as the record of the segment `name`. Unknown
 * members are ignored. Errors: TOO_LARGE (not parsed); PROTOCOL: no JSON, or a member that is
 * missing, of another type, or out of range; NO_MEMORY. The reason names the member. */
int sl_transfer_record_decode(const char *text, size_t bytes, const char *name,
                              struct sl_transfer_record *out, struct sl_reason *reason);

/* Writes how long ago the record was written: "written 3 h ago". For an error about an address that
 * does not answer: a store without leases keeps records of processes that have ended. */
void sl_transfer_record_age(const struct sl_transfer_record *record, int64_t now_s,
                            char age[SL_TRANSFER_RECORD_AGE_BYTES]);

#endif
