/* Names of the values of a table's enums, as in flags, logs, errors and files. Constant; any
 * thread. */
#ifndef SL_CORE_TABLE_NAMES_H
#define SL_CORE_TABLE_NAMES_H

#include <starling_table.h>
#include <stdbool.h>

extern const char *const sl_table_names_kind[SL_TABLE_KIND_COUNT];
extern const char *const sl_table_names_optimizer[SL_OPTIMIZER_KIND_COUNT];
extern const char *const sl_table_names_decay[SL_DECAY_KIND_COUNT];
extern const char *const sl_table_names_initializer[SL_INITIALIZER_KIND_COUNT];
extern const char *const sl_table_names_consistency[SL_CONSISTENCY_MODE_COUNT];
extern const char *const sl_table_names_order[SL_POLICY_ORDER_COUNT];
extern const char *const sl_table_names_admission[SL_ADMISSION_KIND_COUNT];
extern const char *const sl_table_names_precision[SL_PRECISION_COUNT];

/* Returns whether the optimizer of a table reads this member of struct sl_optimizer_spec. */
bool sl_table_names_is_read(const struct sl_table_spec *spec, const char *member);

#endif
