/* The oracle of the simulation of objects: which contents were published, which node holds which
 * of them, and since when. It judges by that what gets return. The bytes of a part follow from the
 * number of its content. One thread. Allocates. */
#ifndef SL_TESTS_SIM_OBJECTS_ORACLE_H
#define SL_TESTS_SIM_OBJECTS_ORACLE_H

#include "tests/sim/objects_plan.h"

/* The bytes of a version that some application has tried to publish. */
struct sl_sim_objects_content {
    uint32_t name;
    uint64_t version; /* 0: not known yet */
    uint64_t bytes[SL_SIM_OBJECTS_PARTS_MAX];
    bool acknowledged; /* a commit of it */
};

/* A node has a whole content, as its application knows: it has published or fetched it. */
struct sl_sim_objects_holding {
    uint32_t content, host;
    uint64_t since_ns, until_ns; /* SL_CLOCK_NEVER: it still does */
};

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
    uint32_t published, fetched;
    char breach_of[32], breach[512];
};

void sl_sim_objects_oracle_init(struct sl_sim_objects_oracle *oracle,
                                const struct sl_sim_objects_plan *plan,
                                const struct sl_sim_network *network);
void sl_sim_objects_oracle_fini(struct sl_sim_objects_oracle *oracle);

/* Records the first breach. */
void sl_sim_objects_oracle_fail(struct sl_sim_objects_oracle *oracle, const char *of,
                                const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A new content with parts of drawn sizes; or, with a version, the one that all parts share. */
uint32_t sl_sim_objects_oracle_content(struct sl_sim_objects_oracle *oracle, uint32_t name,
                                       uint64_t version);

void sl_sim_objects_oracle_fill(uint32_t content, uint32_t part, uint8_t *memory, uint64_t bytes);
bool sl_sim_objects_oracle_matches(uint32_t content, uint32_t part, const uint8_t *memory,
                                   uint64_t bytes);

/* The bytes of all parts of a version of the name, one behind the other: returns the content that
 * they are; 0: a breach, or the simulated process can not say. */
uint32_t sl_sim_objects_oracle_judge(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                     uint32_t name, uint64_t version, const uint8_t *const *parts);

/* The commit of the content was acknowledged, under that number. */
void sl_sim_objects_oracle_committed(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                     uint64_t version);

/* The node's application has all of the content (one part of it, if it has published it), or has
 * begun to give it up. */
void sl_sim_objects_oracle_hold(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                uint32_t host);
void sl_sim_objects_oracle_drop(struct sl_sim_objects_oracle *oracle, uint32_t content,
                                uint32_t host);

/* The node's process was killed. */
void sl_sim_objects_oracle_end(struct sl_sim_objects_oracle *oracle, uint32_t host);

/* A fault touches the node until then; it needs some time afterwards. */
void sl_sim_objects_oracle_touch(struct sl_sim_objects_oracle *oracle, uint32_t host,
                                 uint64_t until_ns);

#endif
