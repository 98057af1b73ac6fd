/* Writes the registry of a process in the text format 0.0.4 of Prometheus: HELP and TYPE once for
 * each family, families and series in alphabetical order. Names get the prefix "starling_", except
 * process_*. Series with the same labels are merged as their kind says, whichever sources they come
 * from. Durations are in seconds, exactly; a histogram has 14 buckets from 8 us to 8.4 s if sources
 * are merged, else its sum and count only. */
#ifndef SL_CORE_METRICS_TEXT_H
#define SL_CORE_METRICS_TEXT_H

#include <stdbool.h>

#include "core/metrics.h"

#define SL_METRICS_TEXT_TYPE "text/plain; version=0.0.4; charset=utf-8" /* Content-Type */

/* one_by_one: series keep the `detail` label of their source, and are not merged over sources.
 * *text: with NUL, freed by the caller; *bytes: without NUL. Takes milliseconds for thousands of
 * series. Any thread but a reactor's. Errors: NO_MEMORY. */
int sl_metrics_text_create(struct sl_metrics *metrics, bool one_by_one, char **text, size_t *bytes);

#endif
