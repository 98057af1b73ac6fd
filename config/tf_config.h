/* TF_CONFIG, as TensorFlow's launchers set it, turned into Starling's numbering: the chief, where
 * there is one, is worker 0, and worker i is worker i + 1. Unknown members at the top are skipped,
 * since launchers add their own. Before start. */
#ifndef SL_CONFIG_TF_CONFIG_H
#define SL_CONFIG_TF_CONFIG_H

#include <stdbool.h>

#include "config/cluster.h"
#include "config/hosts.h"

struct sl_tf_config {
    struct sl_hosts ps;
    uint32_t worker_count; /* chief included; 0 when it names none */
    bool has_task;
    enum sl_cluster_role role; /* of the task */
    uint32_t task_index;       /* in Starling's numbering, below the role's count */
};

/* On error, reason begins "TF_CONFIG". Errors: INVALID, TOO_LARGE, NO_MEMORY. */
int sl_tf_config_parse(const char *text, struct sl_tf_config *out, char *reason,
                       size_t reason_bytes);
void sl_tf_config_fini(struct sl_tf_config *config);

#endif
