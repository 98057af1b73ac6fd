/* The file with the cluster's shared secret, which every process of the job reads. Before start. */
#ifndef SL_CONFIG_SECRET_H
#define SL_CONFIG_SECRET_H

#include <stddef.h>

#include "core/err.h"
#include "core/secret.h"

/* Reads a regular file that nobody but its owner may use (mode & 077 is an error), and cuts the
 * line ends at its end; SL_SECRET_BYTES_MIN to SL_SECRET_BYTES_MAX bytes of any value remain. On
 * error, reason names the file, what is wrong and what helps; it never shows the secret. Errors:
 * NOT_FOUND, IO, INVALID (not a regular file, open to others, too short), TOO_LARGE. */
int sl_secret_read(const char *path, struct sl_secret *out, char *reason, size_t reason_bytes);

#endif
