#include "net/rdma/reply_buffer.h"

#include <stdlib.h>

#include "net/rdma/send.h"

/* Request ids ascend by one, and far fewer than SL_RDMA_REPLY_BUFFERS requests of a connection
 * are unanswered: the slot of a request is its id modulo that number. A request whose slot is
 * taken goes without a reply buffer. */

#define SPANS_MAX 4U /* ample: a reply buffer is at most one frame long */

/* A request of this side: the peer may write there until it answers. */
struct lent {
    uint64_t request_id;
    void *at; /* NULL: free */
    uint32_t bytes;
};

/* A request of the peer. */
struct remembered {
    uint64_t request_id;
    uint64_t bytes;
    uint32_t count; /* 0: free */
    struct sl_rdma_remote_sge remote_sges[SL_RDMA_REMOTE_SGES];
};

struct sl_rdma_reply_buffers {
    uint32_t lent_count, remembered_count;
    struct lent lent[SL_RDMA_REPLY_BUFFERS];
    struct remembered remembered[SL_RDMA_REPLY_BUFFERS];
};

/* Allocated at first use; most pages are never touched. */
static struct sl_rdma_reply_buffers *get_reply_buffers(struct sl_rdma_conn *conn)
{
    if (conn->send->reply_buffers == NULL) {
        conn->send->reply_buffers = calloc(1, sizeof *conn->send->reply_buffers);
    }
    return conn->send->reply_buffers;
}

/* Requests of this side */

static struct lent *find_lent(const struct sl_rdma_conn *conn, uint64_t request_id)
{
    struct sl_rdma_reply_buffers *reply_buffers = conn->send->reply_buffers;
    if (reply_buffers == NULL || reply_buffers->lent_count == 0) {
        return NULL;
    }
    struct lent *lent = &reply_buffers->lent[request_id % SL_RDMA_REPLY_BUFFERS];
    return lent->at != NULL && lent->request_id == request_id ? lent : NULL;
}

uint8_t sl_rdma_reply_buffer_export(struct sl_rdma_conn *conn, uint64_t request_id, void *at,
                                    uint32_t bytes, struct sl_rdma_remote_sge *remote_sges)
{
    struct sl_rdma_reply_buffers *reply_buffers = get_reply_buffers(conn);
    if (reply_buffers == NULL || (uintptr_t)at % 8 != 0) {
        return 0;
    }
    struct lent *lent = &reply_buffers->lent[request_id % SL_RDMA_REPLY_BUFFERS];
    if (lent->at != NULL) {
        return 0;
    }
    struct sl_rdma_local_sge spans[SPANS_MAX];
    uint32_t count =
        sl_rdma_memory_find(conn->nic, at, bytes, SL_RDMA_USE_REPLY_BUFFER, spans, SPANS_MAX);
    if (count == 0) {
        return 0;
    }
    lent->request_id = request_id;
    lent->at = at;
    lent->bytes = bytes;
    reply_buffers->lent_count++;
    for (uint32_t i = 0; i < count; i++) {
        remote_sges[i] = (struct sl_rdma_remote_sge){
            .at = (uintptr_t)spans[i].at, .key = spans[i].remote_key, .bytes = spans[i].bytes};
    }
    return (uint8_t)count;
}

void sl_rdma_reply_buffer_unexport(struct sl_rdma_conn *conn, uint64_t request_id)
{
    struct lent *lent = find_lent(conn, request_id);
    if (lent != NULL) {
        lent->at = NULL;
        conn->send->reply_buffers->lent_count--;
    }
}

void *sl_rdma_reply_buffer_lent(const struct sl_rdma_conn *conn, uint64_t request_id,
                                uint32_t *bytes)
{
    const struct lent *lent = find_lent(conn, request_id);
    if (lent == NULL) {
        return NULL;
    }
    *bytes = lent->bytes;
    return lent->at;
}

/* Requests of the peer */

static struct remembered *find_remembered(const struct sl_rdma_conn *conn, uint64_t request_id)
{
    struct sl_rdma_reply_buffers *reply_buffers = conn->send->reply_buffers;
    if (reply_buffers == NULL || reply_buffers->remembered_count == 0) {
        return NULL;
    }
    struct remembered *remembered = &reply_buffers->remembered[request_id % SL_RDMA_REPLY_BUFFERS];
    return remembered->count > 0 && remembered->request_id == request_id ? remembered : NULL;
}

void sl_rdma_reply_buffer_remember(struct sl_rdma_conn *conn, uint64_t request_id,
                                   const struct sl_rdma_remote_sge *remote_sges, uint32_t count)
{
    sl_assert(count >= 1);
    sl_assert(count <= SL_RDMA_REMOTE_SGES);
    struct sl_rdma_reply_buffers *reply_buffers = get_reply_buffers(conn);
    if (reply_buffers == NULL) {
        return;
    }
    struct remembered *remembered = &reply_buffers->remembered[request_id % SL_RDMA_REPLY_BUFFERS];
    if (remembered->count > 0) {
        return;
    }
    remembered->request_id = request_id;
    remembered->count = count;
    remembered->bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        remembered->remote_sges[i] = remote_sges[i];
        remembered->bytes += remote_sges[i].bytes;
    }
    reply_buffers->remembered_count++;
}

const struct sl_rdma_remote_sge *sl_rdma_reply_buffer_find(const struct sl_rdma_conn *conn,
                                                           uint64_t request_id, uint32_t bytes,
                                                           uint32_t *count)
{
    const struct remembered *remembered = find_remembered(conn, request_id);
    if (remembered == NULL || remembered->bytes < bytes) {
        return NULL;
    }
    *count = remembered->count;
    return remembered->remote_sges;
}

void sl_rdma_reply_buffer_forget(struct sl_rdma_conn *conn, uint64_t request_id)
{
    struct remembered *remembered = find_remembered(conn, request_id);
    if (remembered != NULL) {
        remembered->count = 0;
        conn->send->reply_buffers->remembered_count--;
    }
}

void sl_rdma_reply_buffer_close(struct sl_rdma_conn *conn)
{
    free(conn->send->reply_buffers);
    conn->send->reply_buffers = NULL;
}
