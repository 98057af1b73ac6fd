/* The structures of a catalogue, and what keeps them consistent. Only catalogue*.c and the
 * simulation may include this header. Memory is bounded by limits.h; each function that adds
 * something returns a limit's error with a reason that names it.
 *
 * A copy is in the sorted list of its part, in one of the part's lists (holders in the order of
 * completion, fetchers in the order of arrival), and in the list of its node, in the order of the
 * last messages about them. */
#ifndef SL_OBJECTS_CATALOGUE_CATALOGUE_STATE_H
#define SL_OBJECTS_CATALOGUE_CATALOGUE_STATE_H

#include "core/key_index.h"
#include "core/list.h"
#include "objects/catalogue/catalogue.h"
#include "objects/catalogue/choose.h"
#include "objects/catalogue/tombstones.h"

/* The first member of what a sorted list has: by name (NULL: none), then by number. */
struct sl_catalogue_key {
    const char *name;
    uint64_t number;
};

#define SL_CATALOGUE_REMOVALS_MAX 16384 /* copies of nodes that end, in one go: some 20 ms */

struct sl_catalogue_sorted {
    struct sl_catalogue_key **items;
    uint32_t count, capacity;
};

struct sl_catalogue_node {
    struct sl_catalogue_key key; /* its id */
    uint64_t host;               /* 0: unknown */
    uint64_t expires_ms;         /* 0: it has ended, and its copies are being removed */
    uint32_t roles;              /* bits, of enum sl_objects_role */
    uint32_t alives;             /* ALIVEs, those within a quarter of a lease counted once */
    uint64_t alive_ms;
    bool is_awaited; /* its first reports, while the catalogue settles */
    struct sl_list_link by_expiry;
    struct sl_list copies, follows;
    uint32_t copy_count, follow_count;
    struct sl_list news;            /* of copies whose NEWS waits */
    struct sl_catalogue_copy *told; /* whose NEWS is unanswered; NULL: none, or forgotten */
    uint32_t told_request;          /* 0: no NEWS is unanswered */
    uint64_t told_ms;
    char location[SL_OBJECTS_LOCATION_BYTES], address[];
};

struct sl_catalogue_object {
    struct sl_catalogue_key key; /* its name */
    struct sl_catalogue_sorted versions;
    struct sl_list follows;
    uint64_t epoch;
    uint64_t *publishers;     /* node ids of this epoch by part; 0: none yet */
    uint32_t publisher_count; /* parts */
    uint64_t last;            /* the highest number of a version, or promised to a publisher */
    uint64_t removed;         /* the highest number of a version that REMOVE has ended */
    uint64_t touched_ms;
    char name[];
};

struct sl_catalogue_follow {
    struct sl_list_link by_node, by_object;
    struct sl_catalogue_node *node;
    struct sl_catalogue_object *object;
    uint64_t version; /* the newest that the node uses or was told of */
    uint64_t in_use;  /* by its readers; 0: none */
};

struct sl_catalogue_part {
    struct sl_objects_part info; /* bytes may be 0; no holder: it is not committed yet */
    struct sl_catalogue_version *version;
    struct sl_catalogue_sorted copies;
    struct sl_list holders, fetchers;
    uint32_t holder_count; /* with the origin, if it is complete */
    struct sl_list_link replan;
    uint64_t planned_ms;
};

struct sl_catalogue_version {
    struct sl_catalogue_key key; /* its number */
    struct sl_catalogue_object *object;
    uint64_t epoch;
    uint64_t time_ms;             /* of the commit; 0: parts are missing */
    struct sl_list_link by_touch; /* while parts are missing, or it was loaded and has no copy */
    uint64_t touched_ms;
    uint32_t origin, part_count;
    struct sl_catalogue_part parts[]; /* [part_count]; then the note, with its NUL */
};

enum sl_catalogue_stage {
    SL_CATALOGUE_PASSIVE, /* it does not fetch, as far as the catalogue knows */
    SL_CATALOGUE_JOINED,  /* fetches; will be planned with those that came at the same time */
    SL_CATALOGUE_PLANNED
};

struct sl_catalogue_copy {
    struct sl_catalogue_key key; /* the node's id */
    struct sl_catalogue_node *node;
    struct sl_catalogue_part *part;
    struct sl_list_link by_part, by_node, news;
    enum sl_catalogue_stage stage;
    uint64_t parents[SL_OBJECTS_STRIPES]; /* nodes with a copy of the part; 0: none */
    uint32_t load;                        /* stripes that others fetch from here */
    uint32_t blocks;                      /* that it has */
    uint32_t turn;                        /* of the sources that it was told */
    uint32_t heard;                       /* node->alives, when a message was about it */
    uint64_t heard_ms;
    bool is_complete;
    bool is_local; /* fetches from another node of its host, which is no load */
    bool is_known; /* a NEWS of it was sent */
};

struct sl_objects_catalogue {
    struct sl_objects_catalogue_options options;
    uint64_t now_ms, created_ms, ticked_ms, expire_from_ms;
    uint64_t epoch;     /* the newest of all names */
    bool is_restart;    /* a node knew an earlier catalogue */
    uint32_t spread_ms; /* nodes return spread over it, as an earlier catalogue has said */
    uint32_t request;
    struct sl_catalogue_sorted nodes, objects;
    struct sl_list by_expiry; /* nodes; first those that have ended */
    struct sl_list by_touch;  /* versions that miss parts, or copies */
    struct sl_list replans;   /* parts */
    uint32_t copy_count, part_count;
    uint32_t awaited_count;               /* nodes */
    uint64_t swept_ms;                    /* when names without versions were forgotten */
    uint64_t promised;                    /* the highest number that was, with SL_ORIGIN_PS */
    const struct sl_objects_message *put; /* while its version is announced; NULL: none */
    uint32_t put_left;                    /* NEWS that may carry its image */
    /* Parts that this catalogue has removed, and those that it has logged as conflicts. */
    struct sl_objects_tombstones removed, conflicts;
    /* Memory of a plan */
    struct {
        struct sl_objects_source *sources;
        struct sl_catalogue_planned {
            struct sl_catalogue_copy *copy;
            uint64_t before[SL_OBJECTS_STRIPES]; /* parents */
        } * batch;
        uint64_t *first_on_host;
        uint32_t source_capacity, batch_capacity, host_capacity;
        struct sl_key_index hosts;
    } plan;
};

/* Index of the first item that is not below the key. */
uint32_t sl_catalogue_position(const struct sl_catalogue_sorted *sorted,
                               struct sl_catalogue_key key);

static inline void *sl_catalogue_item(const struct sl_catalogue_sorted *sorted, uint32_t index)
{
    return sorted->items[index];
}

/* NULL: there is none. */
void *sl_catalogue_find(const struct sl_catalogue_sorted *sorted, const char *name,
                        uint64_t number);

/* Finds or adds, and touches it. Errors: TOO_LARGE (names), NO_MEMORY. */
int sl_catalogue_object_add(struct sl_objects_catalogue *catalogue, const char *name,
                            struct sl_catalogue_object **out, struct sl_reason *reason);

/* Finds or adds the version of the record, whose note is that of the first one. part_count: of the
 * version. Errors: TOO_LARGE (versions of the name, parts of all), NO_MEMORY. */
int sl_catalogue_version_add(struct sl_objects_catalogue *catalogue,
                             struct sl_catalogue_object *object,
                             const struct sl_objects_record *record, uint32_t part_count,
                             struct sl_catalogue_version **out, struct sl_reason *reason);

static inline char *sl_catalogue_version_note(const struct sl_catalogue_version *version)
{
    return (char *)&version->parts[version->part_count];
}

/* Frees the version. retire: it is removed: its parts get tombstones, and holders are sent RETIRE.
 */
void sl_catalogue_version_remove(struct sl_objects_catalogue *catalogue,
                                 struct sl_catalogue_version *version, bool retire);

/* The node shall give up its copy of that part with that digest. */
void sl_catalogue_send_retire(const struct sl_objects_catalogue *catalogue,
                              const struct sl_catalogue_node *node, const char *name,
                              uint64_t number, uint32_t part, struct sl_hash_128 digest);

/* The version was removed, and a follower knows of it. */
void sl_catalogue_send_removed(const struct sl_objects_catalogue *catalogue,
                               const struct sl_catalogue_follow *follow);

/* The newest, or the oldest, version that is committed; NULL: none. */
struct sl_catalogue_version *sl_catalogue_newest(const struct sl_catalogue_object *object);
struct sl_catalogue_version *sl_catalogue_oldest(const struct sl_catalogue_object *object);

/* Finds or adds the node's copy of a part, for a message about it. A new one has no block, and is
 * the last fetcher. Errors: TOO_LARGE (copies), NO_MEMORY. */
int sl_catalogue_copy_add(struct sl_objects_catalogue *catalogue, struct sl_catalogue_part *part,
                          struct sl_catalogue_node *node, struct sl_catalogue_copy **out,
                          struct sl_reason *reason);

/* Counts the load of the parents. */
void sl_catalogue_copy_set_parents(struct sl_catalogue_copy *copy, uint64_t first, uint64_t second,
                                   bool is_local);

/* The node has so many blocks, which makes it a holder if they are all. */
void sl_catalogue_copy_set_blocks(struct sl_catalogue_copy *copy, uint32_t blocks);

/* And the version, if this was its last copy. */
void sl_catalogue_copy_remove(struct sl_objects_catalogue *catalogue,
                              struct sl_catalogue_copy *copy);

/* Errors: TOO_LARGE (nodes), NO_MEMORY. */
int sl_catalogue_node_add(struct sl_objects_catalogue *catalogue, const char *address,
                          const struct sl_objects_message *attach, struct sl_catalogue_node **out,
                          struct sl_reason *reason);

/* The node has ended: it is not found any more, fetches nothing, and is no source. Removes as many
 * of its copies, and returns how many it was; with the last one frees the node. */
uint32_t sl_catalogue_node_remove(struct sl_objects_catalogue *catalogue,
                                  struct sl_catalogue_node *node, uint32_t copies_max);

/* Finds or adds. Errors: TOO_LARGE (names that a node follows), NO_MEMORY. */
int sl_catalogue_follow_add(struct sl_catalogue_object *object, struct sl_catalogue_node *node,
                            struct sl_catalogue_follow **out, struct sl_reason *reason);
void sl_catalogue_follow_remove(struct sl_catalogue_follow *follow);

/* NULL: the node does not follow it. */
struct sl_catalogue_follow *sl_catalogue_follow_find(const struct sl_catalogue_object *object,
                                                     const struct sl_catalogue_node *node);

/* The item of a list. Its texts are the catalogue's. */
struct sl_objects_entry sl_catalogue_entry_of(const struct sl_catalogue_version *version);

/* Lists followers in the order of their nodes, those above `after`; fewer than fit are the last. */
void sl_catalogue_list_followers(const struct sl_objects_catalogue *catalogue,
                                 const struct sl_catalogue_object *object, uint64_t after,
                                 struct sl_objects_message *out);

/* Frees everything. */
void sl_catalogue_clear(struct sl_objects_catalogue *catalogue);

static inline bool sl_catalogue_copy_is_origin(const struct sl_catalogue_copy *copy)
{
    return copy->part->info.holder == copy->key.number;
}

static inline uint32_t sl_catalogue_part_index(const struct sl_catalogue_part *part)
{
    return (uint32_t)(part - part->version->parts);
}

/* Sends a message, with the term and the catalogue's own fields. */
static inline void sl_catalogue_send(const struct sl_objects_catalogue *catalogue,
                                     const char *address, struct sl_objects_message *message)
{
    message->term = catalogue->options.term;
    catalogue->options.send(catalogue->options.ctx, address, message);
}

#endif
