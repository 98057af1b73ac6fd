/* Memory of a server for requests and replies, of limited size. admission.c decides who gets it. */
#ifndef SL_PS_SERVER_MEMORY_H
#define SL_PS_SERVER_MEMORY_H

#include "core/pool.h"
#include "net/outbox.h"
#include "ps/server/buffers.h"

struct sl_server_memory {
    struct sl_outbox replies, control;
    struct sl_server_buffers buffers; /* payloads of requests, and replies made in several turns */
    struct sl_pool requests;          /* of struct sl_server_request */
    /* For replies over shared memory, created on first use (shm.c): */
    bool has_shm;
    struct sl_outbox shm_replies;
    struct sl_server_buffers shm_buffers;
};

#endif
