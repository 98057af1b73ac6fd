/* A setup is what a program adds to a plain node: the roles of keeper and agent, a directory; and
 * what a simulation replaces: clock, random numbers, the waiting of application threads.
 * Its engine has one too (net/transfer/setup.h). Zero: a plain node. Texts must outlive the node.
 * Any thread. */
#ifndef SL_OBJECTS_NODE_SETUP_H
#define SL_OBJECTS_NODE_SETUP_H

#include "reactor/completion.h"

struct sl_clock;
struct sl_disk;
struct sl_objects;
struct sl_objects_tables_request;
struct sl_objects_tables_state;
struct sl_metastore;
struct sl_offload_job;
struct sl_reason;

struct sl_objects_setup {
    /* A keeper stores what others publish with SL_ORIGIN_PS. */
    bool is_keeper;
    /* The name under which this node is the agent of its host; NULL: it is none. */
    const char *agent;
    /* Of an agent: names that it follows and fetches from the start; of `keep` it also keeps the
     * newest version in its pool. After pin_warn_ns the log warns of a view that is open (0:
     * never).
     */
    const char *const *follow, *const *keep;
    uint32_t follow_count, keep_count;
    uint64_t pin_warn_ns;
    /* Nodes with the same label are on one host; NULL: with the same boot id of the kernel. */
    const char *host;
    /* Where parts are stored, also for the next process; NULL: in memory only. */
    const char *directory;
    const struct sl_disk *disk; /* that has the directory; NULL: the machine's own */
    bool trusting;              /* digests of blocks are not verified: to measure what they cost */
    /* Of a catalogue on this node: versions that are kept of a name (0: 3), and keepers of a part
     * besides the first one. */
    uint32_t keep_versions, replicas;
    /* Of a server: publishes a part with the rows of its tables (publish_tables.h). On an offload
     * thread; waits. NULL: this node is none. */
    int (*publish_tables)(void *ctx, struct sl_objects *node,
                          const struct sl_objects_tables_request *request,
                          struct sl_objects_tables_state *state, struct sl_reason *reason);
    /* Runs the job of that hook on a thread, then `done` on the node's reactor. NULL: the node
     * starts an offload thread for it. */
    void (*post)(void *ctx, struct sl_offload_job *job);

    /* An agent does not listen for readers, and subscriptions are of this node. */
    bool no_sockets;
    const struct sl_clock *clock;   /* of the engine that the node starts; NULL: the system's */
    struct sl_metastore *metastore; /* instead of the one that the engine names; NULL: that */
    uint64_t (*unix_us)(void *ctx); /* microseconds of Unix time */
    uint64_t (*random)(void *ctx);  /* for the node's id */
    /* Returns when the completion has ended. */
    void (*wait)(void *ctx, struct sl_completion *completion);
    /* Returns after that time, in an application thread. NULL: it sleeps. */
    void (*pause)(void *ctx, uint64_t us);
    void *ctx;
};

#endif
