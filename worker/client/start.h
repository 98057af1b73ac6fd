/* Starts and closes a client without blocking, on reactors and transports supplied from outside: a
 * simulation can then drive clients and reactors from one thread. sl_client_create and
 * sl_client_destroy are blocking wrappers. The starting thread leads the client_ios through the
 * stages (enum sl_client_stage), one control operation each. */
#ifndef SL_WORKER_CLIENT_START_H
#define SL_WORKER_CLIENT_START_H

#include "worker/client/client_internal.h"

/* The environment of a client. Copied; pointed-to objects must outlive the client. */
struct sl_client_setup {
    struct sl_reactor *const *reactors; /* connected; started or stepped by the caller */
    uint32_t reactor_count;
    const struct sl_transport_ops *(*find_transport)(enum sl_endpoint_scheme scheme);
    void *medium;       /* of the transports: net/transport.h */
    const char *host;   /* net/shm/shm.h; NULL or "": no shared memory. Copied */
    uint64_t client_id; /* random: identifies this process */
    struct sl_client_place place;
    /* Reactor 0 serves only the coordinator; the shards use the others. */
    bool control_apart;
    /* Manual progress: one of the reactors, attached to the calling thread, which alone uses the
     * client and drives this reactor while it waits. Else NULL. */
    struct sl_reactor *driven;
};

/* Checks the options and begins to start the client. Then call sl_start_poll, on this thread, until
 * it returns something else than AGAIN. Errors: INVALID, NO_MEMORY. */
int sl_start_begin(const struct sl_client_options *options, const struct sl_client_setup *setup,
                   struct sl_client **out);

/* Returns AGAIN while starting, 0 when the client is ready, else an error that was logged: then
 * close the client. Never blocks. */
int sl_start_poll(struct sl_client *client);

/* Begins to close a client, also one that failed to start. No step and no control operation may be
 * outstanding. Poll until true, then free. */
void sl_start_close_begin(struct sl_client *client);
bool sl_start_close_poll(struct sl_client *client);
void sl_start_free(struct sl_client **client);

#endif
