/* A catalogue, and nodes that are numbers: node n is at "node-n", on host n. */
#ifndef SL_TESTS_UNIT_OBJECTS_CATALOGUE_FIXTURE_H
#define SL_TESTS_UNIT_OBJECTS_CATALOGUE_FIXTURE_H

#include "objects/catalogue/catalogue.h"

#define LEASE_MS 10000

/* The state of the one catalogue of a test. */
extern struct sl_objects_catalogue *catalogue;
extern uint64_t now_ms;
extern uint64_t known_term; /* that attaching nodes know; 0 for a test to begin with */

/* Begins an empty catalogue, after the one before, if any. */
void begin_catalogue(uint64_t term, uint32_t settle_ms);
/* With replicas of parts; keep_versions 0: the default. */
void begin_catalogue_with(uint32_t replicas, uint32_t keep_versions);
/* With nodes 1 to 6 attached. */
void begin_catalogue_of_six(void);
void end_catalogue(void);

/* Sends a message of a node, and returns the answer; NULL: there was none. Every message of the
 * catalogue is encoded and decoded. The answer is valid until the next call. */
const struct sl_objects_message *ask(uint64_t node, struct sl_objects_message message);

/* The same, for requests with few members. `err` of the answer. */
int attach(uint64_t node);
int alive(uint64_t node);
const struct sl_objects_message *find(uint64_t node, const char *name, uint64_t version);
void hold(uint64_t node, const char *name, uint64_t version, uint32_t blocks);

/* BEGIN of the only part; returns err, and sets *epoch and *version. */
int begin(uint64_t node, const char *name, uint32_t options, uint64_t *epoch, uint64_t *version);

/* COMMIT of a part with 3 blocks, one of them its manifest. */
#define PART_BLOCKS 3
struct sl_objects_message commit_of(uint64_t node, const char *name, uint64_t version,
                                    uint64_t epoch, uint64_t digest);

/* BEGIN and COMMIT of the next version with one part; returns its number. */
uint64_t publish(uint64_t node, const char *name);

/* Requests with few members. */
struct sl_objects_message list_of(const char *prefix, const char *name, uint64_t version);
struct sl_objects_message of_name(uint32_t kind, const char *name, uint64_t version);

/* Of the only version of the name. */
uint32_t holders_of(const char *name);

/* The next message that the catalogue sent to a node of its own accord, in order; NULL: none. */
const struct sl_objects_message *received(uint64_t node);
void answer_news(uint64_t node, const struct sl_objects_message *news);

/* Lets time pass, with ticks as the catalogue asks for them. The nodes in [1, live] are alive. */
void pass(uint64_t ms, uint64_t live);

#endif
