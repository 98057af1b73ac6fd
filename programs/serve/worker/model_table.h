/* The models that a worker has, or had, open, and how long each takes to load and to run. A request
 * for the newest version and one for a given version use different entries. Owner: the worker's
 * reactor; while a job has a version or a subscription, see version.h. Allocates for each new
 * model, up to SL_SERVE_MODELS_MAX; then the longest unused one is forgotten. */
#ifndef SL_SERVE_MODEL_TABLE_H
#define SL_SERVE_MODEL_TABLE_H

#include "objects/node/cost.h"
#include "programs/serve/base/message.h"
#include "programs/serve/worker/version.h"

#define SL_SERVE_MODELS_MAX        1024
#define SL_SERVE_SUBSCRIPTIONS_MAX 64

struct sl_serve_model_entry {
    struct sl_list_link link;    /* of all, by last use */
    struct sl_list_link opened;  /* of those that have a version open */
    struct sl_list_link changed; /* of all, by `change` */
    char name[SL_OBJECTS_NAME_BYTES];
    uint64_t wanted; /* the version; 0: the newest */
    struct sl_subscription *subscription;
    struct sl_serve_version *current; /* that answers; NULL: none */
    struct sl_serve_version *newer;   /* takes over when it is complete; NULL: none */
    struct sl_list old;               /* versions to be closed */
    uint32_t waiting;                 /* requests in the queue */
    bool is_opening, is_running;      /* by a job */
    bool runs_complete;               /* all bytes of `current` were there when its job began */
    uint64_t ready_ns;                /* when `current` was opened */
    uint64_t used_ns;
    uint64_t retry_ns;       /* when the next open may begin */
    uint64_t bad;            /* a newer version that cannot be opened; 0: none */
    struct sl_reason reason; /* why the last open or run has failed; "": it has not */
    struct sl_serve_profile profile;
    struct sl_objects_cost runs; /* ns of runs, by rows */
    struct {
        uint64_t change; /* number of the last change */
        uint64_t number, bytes, resident_bytes;
        double read_us, mib_us;
    } reported;
};

struct sl_serve_model_table {
    struct sl_list all, opened, changed;
    uint32_t count, subscription_count;
    uint64_t change_count;
    double flops_per_us; /* of all runs of late */
};

void sl_serve_model_table_init(struct sl_serve_model_table *models);
/* Closes everything: waits for the agent. */
void sl_serve_model_table_fini(struct sl_serve_model_table *models);

/* The entry of the name and version, now the most recently used; a new one if there is none. NULL:
 * no memory, or all are in use. */
struct sl_serve_model_entry *sl_serve_model_table_find(struct sl_serve_model_table *models,
                                                       const char *name, uint64_t wanted);

/* Takes the subscription of the longest unused model if there are too many. The caller closes
 * it. NULL: none. */
struct sl_subscription *sl_serve_model_table_spare(struct sl_serve_model_table *models);

/* A version was opened: the current one, or the one that takes over. */
void sl_serve_model_table_opened(struct sl_serve_model_table *models,
                                 struct sl_serve_model_entry *entry,
                                 struct sl_serve_version *version, uint64_t now_ns);

/* The current version is of no more use: it is to be closed, and the newer one is current, if any.
 */
void sl_serve_model_entry_drop(struct sl_serve_model_entry *entry);

void sl_serve_model_table_change(struct sl_serve_model_table *models,
                                 struct sl_serve_model_entry *entry);

/* Learns from a run of the current version. */
void sl_serve_model_table_learn(struct sl_serve_model_table *models,
                                struct sl_serve_model_entry *entry, uint32_t rows,
                                const struct sl_serve_times *times);

/* Expected ns of a run. */
double sl_serve_model_entry_run_ns(const struct sl_serve_model_entry *entry, uint32_t rows);

/* Expected ns by which loading the missing bytes takes longer than the run. */
double sl_serve_model_entry_exposed_ns(const struct sl_serve_model_entry *entry);

/* Looks what the pool has; notes changes. */
void sl_serve_model_table_look(struct sl_serve_model_table *models);

/* Fills in the models of a LOAD: the oldest changes after `seen`. Returns the last one's number. */
uint64_t sl_serve_model_table_report(const struct sl_serve_model_table *models, uint64_t seen,
                                     struct sl_serve_message *load);

#endif
