/* The gateway's list of the versions of all objects, from the catalogue: every 2 s, and soon after
 * it was asked for. Owner: the gateway's reactor. */
#ifndef SL_SERVE_VERSION_LIST_H
#define SL_SERVE_VERSION_LIST_H

#include <starling_objects.h>

#include "reactor/offload.h"

#define SL_SERVE_VERSION_LIST_FRESH_NS 100000000ULL

struct sl_serve_version_list {
    struct sl_objects *objects;
    struct sl_reactor *reactor;
    void (*post)(void *ctx, struct sl_offload_job *job);
    void *post_ctx;
    void (*listed)(void *ctx); /* after each attempt */
    void *ctx;
    struct sl_object_list *list;           /* NULL: the catalogue has not answered yet */
    uint64_t listed_ns;                    /* when that was asked for */
    char reason[SL_TRANSFER_REASON_BYTES]; /* why the last attempt failed; "": it did not */
    /* Private */
    struct sl_offload_job job;
    struct sl_object_list *next;
    char next_reason[SL_TRANSFER_REASON_BYTES];
    uint64_t asked_ns;
    bool is_asking, is_stopped;
    struct sl_timer timer;
};

/* The members above `list` are set, the rest is zero. */
void sl_serve_version_list_start(struct sl_serve_version_list *versions);

/* Asks for a list, at most every 100 ms. */
void sl_serve_version_list_refresh(struct sl_serve_version_list *versions);

/* The number of versions of a name, the first of which is *first. */
uint64_t sl_serve_version_list_find(const struct sl_serve_version_list *versions, const char *name,
                                    const struct sl_object_entry **first);

/* No list is asked for any more. False: one still is; `listed` runs when it has come. */
bool sl_serve_version_list_stop(struct sl_serve_version_list *versions);

#endif
