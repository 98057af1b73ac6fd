/* Store keeps parts for their publishers. STORE asks a keeper, or the agent of the publisher's
 * host, for a part: it fetches the part into its pool with the publisher as the source, writes it
 * with a record to its directory if it has one, and answers. Then the publisher commits, and sends
 * STORE again with the record of the commit, which the keeper writes too. Its answer ends the
 * publisher's call: a version that was acknowledged is in the files of each of its keepers.
 *
 * Until the commit nothing is visible: if the publisher ends before, the part is dropped a lease
 * later. A keeper that starts with a part whose commit it has not recorded asks the catalogue
 * first. A record that cannot be written is an error of that STORE, and is written again each
 * second. A part in a directory leaves the pool when others need its room, and is read back on
 * demand; a part without a file stays in the pool until it is retired.
 *
 * Owner: the node's reactor. */
#ifndef SL_OBJECTS_NODE_STORE_H
#define SL_OBJECTS_NODE_STORE_H

#include "objects/catalogue/message.h"

struct sl_objects;
struct sl_objects_copy;

/* Before the node's start: the pool, and the parts in the directory. Errors, with the text in
 * sl_objects_last_error: those of sl_objects_copy_open_pool and sl_objects_directory_open. */
int sl_objects_store_open(struct sl_objects *node);

/* On the reactor from here on. Errors: those of sl_objects_directory_start. */
int sl_objects_store_start(struct sl_objects *node);

/* Drops what is not stored; false: a file is still in use. */
void sl_objects_store_stop(struct sl_objects *node);
bool sl_objects_store_is_over(const struct sl_objects *node);
void sl_objects_store_fini(struct sl_objects *node);

/* A STORE, or a PUT: this node also sends the catalogue the PUT, for a commit in the publisher's
 * name, and records it. If that fails, the publisher sends STORE. */
void sl_objects_store_receive(struct sl_objects *node, const char *address,
                              const struct sl_objects_message *message);

/* A RETIRE. */
void sl_objects_store_retire(struct sl_objects *node, const struct sl_objects_message *message);

/* This node's copies of the version are withdrawn: it is not kept any more. Returns whether it was.
 */
bool sl_objects_store_withdraw(struct sl_objects *node, const char *name, uint64_t version);

/* The publication of the copy has ended: without a commit this node does not store it, either. */
void sl_objects_store_abandon(struct sl_objects *node, const struct sl_objects_copy *copy);

/* Reads the part of a WANT into the pool, if a file has it, and the pool has not. */
void sl_objects_store_load(struct sl_objects *node, const struct sl_objects_message *want);

#endif
