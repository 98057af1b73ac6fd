/* TF_CONFIG of TensorFlow's launchers, in Starling's numbering: the chief, if any, is worker 0, and
 * worker i is then worker i + 1. Unknown members at the top level are skipped, since launchers add
 * some. Before start. */
#ifndef SL_CONFIG_TF_CONFIG_H
#define SL_CONFIG_TF_CONFIG_H

#include <stdbool.h>

#include "config/cluster.h"
#include "config/hosts.h"
#include "core/reason.h"

struct sl_tf_config {
    struct sl_hosts ps;
    uint32_t worker_count; /* with the chief; 0: none named */
    bool has_task;
    bool is_evaluator;         /* has_task is false: an evaluator is no task of the cluster */
    enum sl_cluster_role role; /* of the task */
    uint32_t task_index;       /* Starling's numbering, below the role's count */
};

/* Returns whether the variable says nothing: NULL, "" and "{}", which some launchers set. */
bool sl_tf_config_is_unset(const char *text);

/* reason starts with "TF_CONFIG". Errors: INVALID, TOO_LARGE, NO_MEMORY. */
int sl_tf_config_parse(const char *text, struct sl_tf_config *out, struct sl_reason *reason);
void sl_tf_config_fini(struct sl_tf_config *config);

#endif
