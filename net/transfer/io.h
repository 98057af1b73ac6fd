/* The part of an engine that lives on one of its reactors: devices, outgoing frames, the table of
 * registered memory, and the work to be done at the end of a turn. Owner reactor. */
#ifndef SL_NET_TRANSFER_IO_H
#define SL_NET_TRANSFER_IO_H

#include "net/outbox.h"
#include "net/transfer/device.h"
#include "net/transfer/table.h"
#include "reactor/completion.h"

struct sl_port;
struct sl_transfer;

/* Work that is done once at the end of a turn, however often it was asked for. Zero at first. */
struct sl_transfer_work {
    struct sl_list_link link;
    /* Returns true to be called again after a millisecond: it waits for room. */
    bool (*run)(struct sl_transfer_work *work);
};

#define SL_TRANSFER_INBOX_SPARES 4

/* Notices that were not taken yet, oldest first. */
struct sl_transfer_inbox_queue {
    struct sl_list notices;
    uint32_t count;
    struct sl_transfer_inbox *inbox;
    const uint8_t *attached; /* to the notice that was taken last; NULL: nothing */
    uint32_t attached_bytes;
    uint8_t *memory; /* of that; NULL: none */
};

/* inbox.h: notices of peers. */
struct sl_transfer_inbox {
    struct sl_transfer_inbox_queue application;
    struct sl_list takers;  /* calls of the application that wait for one */
    struct sl_list readers; /* inbox.h */
    struct sl_list senders; /* what is known of them */
    uint32_t sender_count;
    uint8_t *spares[SL_TRANSFER_INBOX_SPARES]; /* memory to use again */
    uint32_t spare_count;
};

struct sl_transfer_io {
    struct sl_transfer *engine;
    struct sl_reactor *reactor;
    uint32_t index;
    struct sl_transfer_device devices[SL_TRANSFER_SETTINGS_ENDPOINTS_MAX];
    struct sl_outbox outbox;
    bool has_outbox, has_source;
    struct sl_transfer_table *table;
    void *discard;                  /* receives what a peer sends for a request that was refused */
    struct sl_list leaving;         /* region.h: regions that devices are removing */
    uint64_t guest_count;           /* accepted so far */
    struct sl_transfer_inbox inbox; /* of the first reactor */
    struct sl_list guests;          /* target.h: connections of peers */
    uint32_t asked_count;           /* inbox.h */
    struct sl_list changes;         /* memory.c: they wait until memory is at rest */
    struct sl_transfer_work change_work; /* looks at them */
    /* Of the limit on sent bytes: what may be sent now; below 0: the last slice exceeded it. */
    int64_t tokens;
    uint64_t tokens_ns;   /* when it was counted */
    struct sl_list work;  /* of this turn */
    struct sl_list later; /* after a pause */
    struct sl_timer retry;
    struct sl_reactor_source source;
};

/* Something that another thread wants done on the reactor `io`. Storage of that thread, until it
 * has ended. */
struct sl_transfer_call {
    /* Calls sl_transfer_io_answer, then or later. */
    void (*run)(struct sl_transfer_io *io, struct sl_transfer_call *call);
    struct sl_transfer_io *io;
    struct sl_completion completion;
    int err;
    char text[SL_TRANSFER_REASON_BYTES];

    /* Of the engine's first reactor (async.c), which does not wait. Else zero. */
    struct sl_transfer_async *async;
    void (*ended)(struct sl_transfer_call *call);  /* on the first reactor; may free the call */
    struct sl_list_link link;                      /* not begun yet, or ended */
    void (*finish)(struct sl_transfer_call *call); /* what is left to do there */
    void (*done)(void *ctx, int err, const char *text); /* of the user */
    void *ctx;
};

/* The calling thread's port. A thread that has it once makes all calls that follow. Errors:
 * NO_MEMORY, TOO_LARGE, with the reason in sl_transfer_last_error. */
int sl_transfer_io_port(struct sl_transfer *transfer, struct sl_port **out);

/* Runs call->run on call->io. Errors: AGAIN: the port's lane is full, and nothing has begun. The
 * port's thread. */
int sl_transfer_io_begin(struct sl_port *port, struct sl_transfer_call *call);

/* On the first reactor: runs call->run on call->io; later call->ended runs here. */
void sl_transfer_io_begin_here(struct sl_transfer_call *call);

/* Any thread but a reactor's: runs call->run on the reactor and waits for its answer. Returns its
 * error, with the reason in sl_transfer_last_error. Errors: those of sl_transfer_io_port too. */
int sl_transfer_io_call(struct sl_transfer_io *io, struct sl_transfer_call *call);

/* Ends the call with the error and the reason. On call->io, like sl_transfer_io_end, which leaves
 * both as they are. */
void sl_transfer_io_answer(struct sl_transfer_call *call, int err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void sl_transfer_io_end(struct sl_transfer_call *call);

/* Runs the work at the end of this turn. */
void sl_transfer_io_wake(struct sl_transfer_io *io, struct sl_transfer_work *work);

/* Takes the bytes from this reactor's share of bytes_per_s_max. False: not now, try again later. */
bool sl_transfer_io_may_send(struct sl_transfer_io *io, uint32_t bytes);

/* Run functions of calls. start opens the devices and allocates; errors: NO_MEMORY, UNSUPPORTED.
 * stop closes all connections and frees; nothing may be in progress. */
void sl_transfer_io_start(struct sl_transfer_io *io, struct sl_transfer_call *call);
void sl_transfer_io_stop(struct sl_transfer_io *io, struct sl_transfer_call *call);

#endif
