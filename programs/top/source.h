/* Source fetches the state of a job from the HTTP address of one of its servers. If that server
 * redirects to the coordinator, the source continues there. Blocks for at most a few seconds a
 * request. One thread. */
#ifndef SL_TOP_SOURCE_H
#define SL_TOP_SOURCE_H

#include "core/reason.h"

struct json_t;
struct sl_source;

/* All strings stay the caller's. */
struct sl_source_options {
    const char *url;        /* http://HOST:PORT or https://HOST:PORT; http:// may be missing */
    const char *token_file; /* NULL: no token */
    const char *authority;  /* file of certificates, PEM; NULL: the system's */
};

/* Errors: INVALID (URL), NO_MEMORY, those of sl_secret_read. */
int sl_source_create(const struct sl_source_options *options, struct sl_source **out,
                     struct sl_reason *reason);
void sl_source_destroy(struct sl_source **source);

/* Writes the answer to /api/PATH, a new object, of the coordinator if the server redirects there.
 * Errors: as sl_source_fetch. */
int sl_source_get(struct sl_source *source, const char *path, struct json_t **out,
                  struct sl_reason *reason);

/* Writes a new object with the answers "cluster", "slow" and "hot". reason: the URL and why it
 * gives no state. Errors: DEADLINE, IO, TOO_LARGE, NO_MEMORY, INVALID (the answer). */
int sl_source_fetch(struct sl_source *source, struct json_t **out, struct sl_reason *reason);

/* Reads such an object from a file that the live page saved, or that starling-top --json printed.
 * reason: the path and why. Errors: INVALID. */
int sl_source_read(const char *path, struct json_t **out, struct sl_reason *reason);

#endif
