/* Tables of a job as versions. sl_publish_tables asks the catalogue for a number and for the
 * keepers, and each of them for a part (TABLES): the rows of its shards. Each keeper is a server of
 * the job (ps/publish), which reads them on an offload thread, stores them as its own keeper, and
 * commits its part. */
#ifndef SL_OBJECTS_NODE_PUBLISH_TABLES_H
#define SL_OBJECTS_NODE_PUBLISH_TABLES_H

#include "objects/catalogue/message.h"

struct sl_objects;
struct sl_objects_call;
struct sl_offload;
struct sl_publication;
struct sl_publish_options;

/* Of a server. Owner: the node's reactor. */
struct sl_objects_tables {
    struct sl_offload *offload; /* NULL: nothing was asked for yet */
    uint32_t job_count;
    struct sl_objects_call *closing; /* waits for the last job */
    bool is_closing;
};

/* A request to a server. */
struct sl_objects_tables_request {
    char name[SL_OBJECTS_NAME_BYTES], note[SL_OBJECTS_NOTE_BYTES];
    char tables[SL_OBJECTS_TABLES_BYTES]; /* with commas between them; "": only for *state */
    uint64_t version, epoch;
    uint32_t part, part_count; /* as many as servers */
    uint32_t iterations;       /* of BSP that all rows have */
    uint64_t deadline_ns;
};

/* Of a server. */
struct sl_objects_tables_state {
    uint32_t iterations;          /* of BSP: the most that one of its shards has applied */
    uint32_t shards, shard_count; /* its own ones, of all of the job */
};

/* A first part of a version of tables, which the publisher adds itself: such as a model that reads
 * the tables. */
struct sl_objects_tables_own {
    int (*add)(void *ctx, struct sl_publication *publication); /* its tensors; at each try */
    void *ctx;
};

/* sl_publish_tables with such a part; own: NULL: none. Memory of its tensors: until the call
 * returns. Errors: those of `add` and of sl_publish_commit too. */
int sl_objects_tables_publish(struct sl_objects *objects, const struct sl_publish_options *options,
                              const char *tables, const struct sl_objects_tables_own *own,
                              uint32_t timeout_ms, uint64_t *version);

/* TABLES: the hook of the setup runs on the offload thread, one request after another. */
void sl_objects_tables_receive(struct sl_objects *node, const char *address,
                               const struct sl_objects_message *message);

/* The thread of the hook. Begins the publication of the part, whose tensors the hook adds. Errors:
 * NO_MEMORY. */
int sl_objects_tables_begin(struct sl_objects *node,
                            const struct sl_objects_tables_request *request,
                            struct sl_publication **out);

/* The thread of the hook. Commits, and waits for the parts of the other servers. Errors: those of
 * sl_publish_commit. */
int sl_objects_tables_commit(struct sl_objects *node,
                             const struct sl_objects_tables_request *request,
                             struct sl_publication *publication);

/* A thread of the application, at the end of the node: waits until no hook runs. */
void sl_objects_tables_close(struct sl_objects *node);

#endif
