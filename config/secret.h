/* Reads the file with the cluster's shared secret, the same for all processes of the job. Before
 * start. */
#ifndef SL_CONFIG_SECRET_H
#define SL_CONFIG_SECRET_H

#include <stddef.h>

#include "core/reason.h"
#include "core/secret.h"

/* Reads up to bytes_max bytes of a private file: regular, and mode & 077 is 0. what: begins the
 * reason, such as "secret file ". The caller erases the bytes. Errors: NOT_FOUND, IO, INVALID. */
int sl_secret_read_file(const char *what, const char *path, void *bytes, size_t bytes_max,
                        size_t *out, struct sl_reason *reason);

/* The file must be regular and private (mode & 077 is an error). Line ends at its end are removed;
 * SL_SECRET_BYTES_MIN to SL_SECRET_BYTES_MAX bytes of any value remain. reason: the file, the
 * problem and the remedy, never the secret. Errors: NOT_FOUND, IO, INVALID (not regular, not
 * private, too short), TOO_LARGE. */
int sl_secret_read(const char *path, struct sl_secret *out, struct sl_reason *reason);

#endif
