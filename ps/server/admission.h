/* Admission decides which connection gets memory when it is short, and closes connections that hold
 * memory without progress.
 *
 * Memory: half of buffer_bytes_max is for replies (the outbox), half for waiting requests and
 * multi-turn replies (buffers.h).
 * - Outbox: half is left to connections without unsent replies.
 * - Long requests are not read until there is room. They get it in the order of asking, while a
 *   quarter of the buffers is free; while half is free, for a connection with another one in
 *   memory.
 * - Short requests without room, and parked requests beyond half of the buffers, are answered
 *   NO_MEMORY. Parked requests of disconnected clients may use a quarter of that half.
 * - Control messages have their own outbox and wait for room there (control_out.h).
 *
 * Stalled peers: a connection with unsent frames of which nothing was taken for 10 s is closed;
 * after 4 s if others wait for the memory. The transport closes a connection whose incomplete frame
 * makes no progress for 10 s. A frame on a slow link may take SL_SERVER_FRAME_NS in total, from
 * when it has room; the wait for room is unlimited. A closed peer reconnects and continues. */
#ifndef SL_PS_SERVER_ADMISSION_H
#define SL_PS_SERVER_ADMISSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/list.h"
#include "reactor/timer.h"

struct sl_server_host;
struct sl_server_conn;
struct sl_server_request;

struct sl_server_admission {
    struct sl_timer timer;       /* armed while there are connections or memory to return */
    struct sl_list_link *next;   /* connection to check next; NULL: the round is complete */
    struct sl_list sink_waiters; /* connections */
    size_t reply_bytes;          /* of memory.buffers: replies being made or sent */
    bool is_short;               /* a first reply or a long payload found no room */
};

void sl_server_admission_init(struct sl_server_host *host);

/* Lists the connection with the host's, and starts the checks. */
void sl_server_admission_add(struct sl_server_host *host, struct sl_server_conn *conn);

/* Takes it out of the list again. */
void sl_server_admission_remove(struct sl_server_conn *conn);

/* Checks all connections, or as many as one turn allows. */
void sl_server_admission_check(struct sl_server_host *host);

/* Returns memory for a long payload; NULL: none now. */
uint8_t *sl_server_admission_sink(struct sl_server_conn *conn, uint32_t bytes);

/* Reserves outbox room for a reply; NULL: none now. */
uint8_t *sl_server_admission_reserve(struct sl_server_conn *conn, uint32_t bytes);

/* The same for several replies with their headers. */
uint8_t *sl_server_admission_reserve_run(struct sl_server_conn *conn, uint32_t run_bytes,
                                         uint32_t frame_count);

/* The same for the next chunk of a reply; frames that wait behind that reply do not count. */
uint8_t *sl_server_admission_reserve_part(struct sl_server_conn *conn, uint32_t bytes);

/* Allocates memory for a multi-turn reply; false: none now. */
bool sl_server_admission_reply(struct sl_server_request *request);

/* Frees it, if any. */
void sl_server_admission_put_reply(struct sl_server_request *request);

#endif
