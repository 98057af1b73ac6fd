/* What the files of the process share; nobody else includes it. */
#ifndef SL_PS_PROCESS_INTERNAL_H
#define SL_PS_PROCESS_INTERNAL_H

#include "net/control/session.h"
#include "ps/coordinator.h"
#include "ps/process.h"
#include "ps/server.h"

struct sl_process;

/* One reactor, with its server. Its thread's, but for what is set before start. */
struct sl_process_core {
    struct sl_process *process;
    uint32_t index;
    struct sl_reactor *reactor;
    struct sl_server *server;
    struct sl_mailbox_lane *to_core; /* the main thread's */
    struct sl_mailbox_lane *to_main; /* the reactor's */
    struct sl_message_stats stats;   /* written when it stops, read after join */
};

/* The membership: a session with the coordinator. Reactor 0's. */
struct sl_process_link {
    struct sl_transport *transport;
    struct sl_outbox outbox;
    struct sl_session *session;
    bool welcomed;   /* its request for the cluster is under way, or was answered */
    bool registered; /* the answer has come */
    /* What the cluster's answer said; read by the main thread after the mail that reports it. */
    uint32_t first_shard, shard_count;
};

struct sl_process {
    struct sl_process_options options;
    struct sl_process_core *cores;
    struct sl_reactor **reactors;
    struct sl_server **servers;
    uint32_t created_count; /* of reactors */
    uint32_t started_count;
    struct sl_coordinator *coordinator;
    struct sl_process_link link;
    struct sl_endpoint bound_control, bound_data;
    struct sl_mailbox *mailbox; /* the main thread's */
    int signal_fd;
    int signal;              /* that arrived; 0: none */
    uint32_t answers_wanted; /* from cores */
    int result;              /* the first error that a core reported */
};

/* Reports to the main thread that what it asked for is done, or failed. The core's reactor. */
void sl_process_answer(struct sl_process_core *core, int result);

/* Opens the session with the coordinator; sl_process_answer follows when the cluster is known, or
 * with the error, logged. Reactor 0. Errors, without an answer to follow: NO_MEMORY, UNSUPPORTED.
 */
int sl_process_link_open(struct sl_process *process);

/* Says goodbye to the coordinator. Reactor 0. */
void sl_process_link_leave(struct sl_process *process);

/* Frees it, whether it was opened or not. Reactor 0. */
void sl_process_link_close(struct sl_process *process);

#endif
