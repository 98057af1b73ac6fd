/* The oracle of the simulation of objects: which contents were published, which node holds which
 * of them, and since when. It judges by that what gets return. The bytes of a part follow from the
 * number of its content. One thread. Allocates. */
#ifndef SL_TESTS_SIM_OBJECTS_ORACLE_H
#define SL_TESTS_SIM_OBJECTS_ORACLE_H

#include "core/hash.h"
#include "core/limits.h"
#include "tests/sim/objects_plan.h"
#include "tests/sim/world.h"
#include "tests/support/memory_disk.h"

/* The bytes of a version that some application has tried to publish. */
struct sl_sim_objects_content {
    uint32_t name;
    uint64_t version; /* 0: not known yet */
    uint64_t bytes[SL_SIM_OBJECTS_PARTS_MAX];
    bool acknowledged; /* a commit of it */
    bool may_go;       /* removed, or replaced */
};

#define SL_SIM_OBJECTS_ALL UINT32_MAX /* parts of a content */

/* A node has a part of a content, or all, as its application knows: it has published or fetched it.
 */
struct sl_sim_objects_holding {
    uint32_t content, part, host;
    bool is_stored;              /* by a keeper */
    uint64_t since_ns, until_ns; /* SL_CLOCK_NEVER: it still does */
};

/* A process that may have had versions of the name has ended; it may be a holder, and the name's
 * publisher, until then. */
struct sl_sim_objects_gone {
    uint32_t name;
    uint32_t publisher; /* host; UINT32_MAX: it has not tried to publish it */
    uint64_t until_ns;
};

/* A version of the catalogue. */
struct sl_sim_objects_known {
    uint32_t name;
    uint64_t version;
    uint32_t origin;
    struct sl_hash_128 digest; /* of its first part */
};

#define SL_SIM_OBJECTS_KNOWN_MAX (SL_SIM_OBJECTS_NAMES_MAX * SL_LIMIT_OBJECTS_VERSIONS)

#define SL_SIM_OBJECTS_GONE_MAX  (SL_SIM_FAULTS_MAX * SL_SIM_OBJECTS_NAMES_MAX)

struct sl_sim_objects_oracle {
    const struct sl_sim_objects_plan *plan;
    const struct sl_sim_network *network;
    struct sl_sim_objects_content *contents; /* [0] is none */
    uint32_t content_count, content_room;
    struct sl_sim_objects_holding *holdings;
    uint32_t holding_count, holding_room;
    uint64_t part_next[SL_SIM_OBJECTS_NAMES_MAX][SL_SIM_OBJECTS_PARTS_MAX];
    uint64_t random;
    /* Of each node: no fault touches it, or has done so for some time, from then on. */
    uint64_t certain_ns[SL_SIM_OBJECTS_NODES_MAX];
    /* Of each process that runs: whether it has tried to publish or fetch the name. */
    bool attempted[SL_SIM_OBJECTS_NODES_MAX][SL_SIM_OBJECTS_NAMES_MAX];
    bool published[SL_SIM_OBJECTS_NODES_MAX][SL_SIM_OBJECTS_NAMES_MAX]; /* it has tried to */
    struct sl_sim_objects_gone gone[SL_SIM_OBJECTS_GONE_MAX];
    uint32_t gone_count;
    uint64_t node_ids[SL_SIM_OBJECTS_NODES_MAX];
    uint32_t removing[SL_SIM_OBJECTS_NAMES_MAX];        /* removes that may still take effect */
    uint32_t commits[SL_SIM_OBJECTS_NAMES_MAX];         /* in progress */
    uint64_t commit_until_ns[SL_SIM_OBJECTS_NAMES_MAX]; /* one may still take effect */
    struct sl_sim_objects_known known[SL_SIM_OBJECTS_KNOWN_MAX]; /* after the host's last step */
    uint32_t known_count;
    struct sl_sim_objects_known *left; /* that the catalogue has removed */
    uint32_t left_count, left_room;
    uint32_t committed, fetched;
    struct sl_sim_breach breach;
};

void sl_sim_objects_oracle_init(struct sl_sim_objects_oracle *oracle,
                                const struct sl_sim_objects_plan *plan,
                                const struct sl_sim_network *network);
void sl_sim_objects_oracle_fini(struct sl_sim_objects_oracle *oracle);

/* A new content with parts of drawn sizes; or, with a version, the one that all parts share. */
uint32_t sl_sim_objects_oracle_content(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                       uint64_t version);

void sl_sim_objects_oracle_fill(uint32_t content, uint32_t part, uint8_t *memory, uint64_t bytes);
bool sl_sim_objects_oracle_matches(uint32_t content, uint32_t part, const uint8_t *memory,
                                   uint64_t bytes);

/* The bytes of all parts of a version of the name, one behind the other: returns the content that
 * they are; 0: a breach, or the simulated process can not say. */
uint32_t sl_sim_objects_oracle_judge(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                     uint32_t name, uint64_t version, const uint8_t *const *parts,
                                     const uint64_t *part_bytes);

/* The commit of the content was acknowledged, under that number. */
void sl_sim_objects_oracle_committed(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                     uint64_t version);

/* The node's application has a part of the content, or has begun to give it up; 0: all. */
void sl_sim_objects_oracle_hold(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                uint32_t part, uint32_t host);
void sl_sim_objects_oracle_drop(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                uint32_t host);

/* The node, which is a keeper, has stored a part of the content. Its process has started, and finds
 * what the one before has stored. */
void sl_sim_objects_oracle_store(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                 uint32_t part, uint64_t node);
void sl_sim_objects_oracle_restart(struct sl_sim_objects_oracle *oracle, uint32_t host);

/* The node's machine starts with that disk: it has each acknowledged part that the node has stored,
 * whole and with a record, unless it was removed since. */
void sl_sim_objects_oracle_judge_files(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                       struct memory_disk *disk);

/* Versions that are found, in a call that began then. */

/* The newest version of the name that certainly exists; 0: none does. */
uint64_t sl_sim_objects_oracle_newest(const struct sl_sim_objects_oracle *oracle, uint32_t name,
                                      uint64_t since_ns);

/* Whether the version, which is not 0, certainly exists, and is held by others than this node. */
bool sl_sim_objects_oracle_exists(const struct sl_sim_objects_oracle *oracle, uint32_t name,
                                  uint64_t version, uint64_t since_ns);

/* No fault touches the node, nor the host of the catalogue. */
bool sl_sim_objects_oracle_is_certain(const struct sl_sim_objects_oracle *oracle, uint32_t host,
                                      uint64_t since_ns);

/* A list shows so many holders of a version of the name. */
void sl_sim_objects_oracle_judge_holders(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                         uint32_t holders, uint64_t since_ns);

/* A begin was refused because that node publishes the name. */
void sl_sim_objects_oracle_judge_publisher(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                           uint32_t host, uint64_t since_ns);

/* A commit of the name begins, or has ended. */
void sl_sim_objects_oracle_commit(struct sl_sim_objects_oracle *oracle, uint32_t name);
void sl_sim_objects_oracle_commit_ended(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                        int err);

/* The catalogue has removed a version, by REMOVE or by retention. newer: later versions of the name
 * that are left, but for those of SL_ORIGIN_CALLER; keep: how many a commit leaves. */
void sl_sim_objects_oracle_left(struct sl_sim_objects_oracle *oracle,
                                const struct sl_sim_objects_known *version, uint32_t newer,
                                uint32_t keep);

/* The version is being removed; 0: all of the name. */
void sl_sim_objects_oracle_remove(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                  uint64_t version);

/* The remove was answered: what is published from now on stays. */
void sl_sim_objects_oracle_removed(struct sl_sim_objects_oracle *oracle, uint32_t name);

/* Whether the version was removed, or may be: readers go back from it. */
bool sl_sim_objects_oracle_may_be_removed(const struct sl_sim_objects_oracle *oracle, uint32_t name,
                                          uint64_t version);

/* The node's process was killed, or has ended. */
void sl_sim_objects_oracle_end(struct sl_sim_objects_oracle *oracle, uint32_t host, bool killed);

/* A fault touches the node until then; it needs some time afterwards. */
void sl_sim_objects_oracle_touch(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                 uint64_t until_ns);

#endif
