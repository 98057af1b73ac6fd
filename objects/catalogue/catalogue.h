/* The catalogue knows all names, their versions, and the nodes that have them; it tells nodes from
 * which others they fetch. A pure state machine: messages (message.h) and time go in, messages to
 * nodes come out of options.send. Allocates as names, versions and nodes arrive, within
 * SL_LIMIT_OBJECTS_*. One owner.
 *
 * - **Nodes.** A node sends ATTACH first. Each message renews its lease. A node whose lease has
 * ended is forgotten with its copies; then it gets AGAIN for whatever it asks, and attaches again:
 *   ATTACH, FOLLOW of each name, and a HOLD with its record for each copy. One that ends cleanly
 *   sends DETACH, and is forgotten at once.
 * - **Publishers.** BEGIN makes the node the publisher of its part of the name. Another live node
 *   gets EXISTS, unless it takes over: that begins the next epoch. A commit of an older epoch gets
 *   CLOSED. Epochs of all names are one sequence, which begins at the term of this catalogue.
 * - **Versions.** A version is committed when all its parts are. A part that still waits for others
 *   gets AGAIN: the node sends COMMIT again, at least once a lease, until its deadline. The same
 *   commit again is a success; one with another digest gets EXISTS. A version without any copy is
 *   forgotten. A name without versions and followers keeps its numbers while there is room for
 *   others, and a minute at least.
 * - **Keepers.** With SL_ORIGIN_PS the answer to BEGIN names the keepers that store part k: of n
 *   attached ones, in the order of their ids, number k modulo n and the next options.replicas ones.
 *   Without any it is AGAIN. With SL_ORIGIN_HOST it names the agent of the publisher's host, if
 *   there is one. COMMIT names those that have stored it.
 * - **Copies.** A copy of a part is complete, or fetches. The copy of the publisher is the origin.
 * A node reports its copies in turn (reports.h); one that it has not reported for a lease and two
 * rounds is forgotten at its next ALIVE.
 * - **News.** A follower gets NEWS of each newest version (part 0; it asks for other parts with
 *   FIND), and a fetcher when its parents change. A node has one unanswered NEWS at most; versions
 *   that were committed meanwhile are skipped but for the newest.
 *
 * All state is in memory, and nodes restore it: a HOLD with the record of a committed version that
 * the catalogue does not know adds it again, at any time. Only a commit, and REMOVE, end versions
 * that nodes have. A HOLD of what this catalogue removed is answered with RETIRE, while it has the
 * tombstone (tombstones.h); without one the version comes back. If a node has other bytes under the
 * number of a version, no file goes: the log names both, and the newer commit is found; what then
 * removes the number removes both. In its
 * first moments a new catalogue does not know what nodes hold: BEGIN, COMMIT, LIST, what is not
 * found, and FOLLOW of a name without versions get AGAIN. That takes options.settle_ms, and
 * the time over which nodes return, if a node attaches that knew an earlier catalogue, and a tenth
 * of settle_ms if none does. */
#ifndef SL_OBJECTS_CATALOGUE_CATALOGUE_H
#define SL_OBJECTS_CATALOGUE_CATALOGUE_H

#include "objects/catalogue/message.h"

struct sl_objects_catalogue;

struct sl_objects_catalogue_options {
    uint64_t term; /* > 0, above that of every earlier catalogue: the Unix time in microseconds */
    uint32_t lease_ms;      /* 0: 10,000 */
    uint32_t settle_ms;     /* from creation on; 0: there was no earlier catalogue */
    uint32_t keep_versions; /* of a name, but for SL_ORIGIN_CALLER: older ones are retired; 0: 3 */
    uint32_t replicas;      /* of a part, besides the first one; below SL_OBJECTS_KEEPERS_MAX */
    /* Keepers may have versions that the catalogue does not know of, and that an earlier one
     * numbered: all numbers that it gives are above numbers_above. forgets: earlier numbers are not
     * known; numbers_above is the Unix time in milliseconds at the start, and counts for
     * SL_ORIGIN_PS while a keeper has a directory. */
    uint64_t numbers_above;
    bool forgets;
    uint64_t (*unix_ms)(void *ctx);
    /* Sends a message to the node with this address; keeps nothing of either. A message that cannot
     * be delivered is dropped. */
    void (*send)(void *ctx, const char *address, const struct sl_objects_message *message);
    /* A version was committed (record), or has ended (record NULL). The receiver stores that before
     * it delivers any message that is sent after this call. NULL: nothing is stored. */
    void (*changed)(void *ctx, const char *name, uint64_t version,
                    const struct sl_objects_record *record);
    /* With SL_ORIGIN_PS a number above all before is given: the receiver stores that before it
     * delivers any message that is sent after this call. NULL: nothing is stored. */
    void (*promised)(void *ctx, uint64_t number);
    void *ctx;
};

/* now_ms here and below: a monotonic clock. Errors: NO_MEMORY. */
int sl_objects_catalogue_create(const struct sl_objects_catalogue_options *options, uint64_t now_ms,
                                struct sl_objects_catalogue **out);

/* Sends nothing. Nulls *catalogue. */
void sl_objects_catalogue_destroy(struct sl_objects_catalogue **catalogue);

/* Adds a version that an earlier catalogue stored; before the first message. Without a copy it is
 * forgotten after a lease. */
void sl_objects_catalogue_load(struct sl_objects_catalogue *catalogue,
                               const struct sl_objects_record *record);

/* Before the first message: what earlier catalogues stored of their numbers. */
void sl_objects_catalogue_set_numbers(struct sl_objects_catalogue *catalogue, uint64_t above,
                                      bool forgets);

/* Handles a decoded message from the engine with this address. */
void sl_objects_catalogue_receive(struct sl_objects_catalogue *catalogue, const char *address,
                                  const struct sl_objects_message *message, uint64_t now_ms);

/* Ends leases, plans. Call when next_ms has come. If it did not run for a quarter of a lease,
 * leases end half a lease later: messages that arrived meanwhile are still unread. */
void sl_objects_catalogue_tick(struct sl_objects_catalogue *catalogue, uint64_t now_ms);

/* When tick has something to do; UINT64_MAX: never, before the next message. */
uint64_t sl_objects_catalogue_next_ms(const struct sl_objects_catalogue *catalogue);

#endif
