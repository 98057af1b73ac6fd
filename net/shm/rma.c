#include "net/shm/rma.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUE     SL_LIMIT_TRANSFER_SLICES /* operations of one connection; a power of two */
#define BUCKETS   256U                     /* of mappings; a power of two */
#define REMOVE_NS SL_CLOCK_NS_PER_S        /* until a peer has unmapped a removed region */

/* Regions of this side */

enum region_state {
    ADDING, /* region_added is due */
    ADDED,
    REMOVING, /* peers have to unmap it */
    REMOVED   /* region_removed is due */
};

struct region {
    struct sl_list_link link; /* of the transport */
    struct sl_list_link due;
    struct sl_shm *shm;
    uint64_t key;
    size_t bytes;
    unsigned access;
    struct sl_shared shared; /* not if LOCAL */
    enum region_state state;
    bool is_lost;          /* a peer that is gone may still have it mapped */
    struct sl_list grants; /* to peers that may have it mapped */
    struct sl_timer timer; /* REMOVING */
};

struct grant {
    struct sl_list_link of_region, of_conn;
    struct region *region;
    struct sl_shm_conn *conn;
};

/* The initiator's state of a connection */

struct mapping {
    struct mapping *next; /* in the bucket */
    uint64_t key;
    struct sl_shared shared;
};

struct op {
    enum sl_transport_rma_kind kind;
    uint32_t bytes, done;
    uint8_t *local;
    uint64_t key, offset;
    void *cookie;
    int err;
};

struct sl_shm_rma {
    bool is_admitted;
    bool is_asking;        /* for the memory of `asked` */
    uint64_t asked;        /* a key */
    struct sl_list grants; /* of regions of this side */
    struct mapping *buckets[BUCKETS];
    uint32_t mapping_count;
    uint64_t mapped_bytes;
    uint32_t head, copied, tail; /* of ops: first not reported, first not copied, end */
    struct op ops[QUEUE];
};

static struct region *shm_rma_find_region(struct sl_shm *shm, uint64_t key)
{
    SL_LIST_EACH (struct region, region, link, &shm->rma_regions) {
        if (region->key == key) {
            return region;
        }
    }
    return NULL;
}

static void make_due(struct region *region, enum region_state state)
{
    region->state = state;
    sl_list_append(&region->shm->rma_due, &region->due);
}

static void drop_grant(struct grant *grant)
{
    struct region *region = grant->region;
    sl_list_remove(&grant->of_region);
    sl_list_remove(&grant->of_conn);
    free(grant);
    if (region->state == REMOVING && sl_list_empty(&region->grants)) {
        make_due(region, REMOVED);
    }
}

static void shm_rma_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct region *region = SL_CONTAINER_OF(timer, struct region, timer);
    region->is_lost = true;
    SL_LIST_EACH (struct grant, grant, of_region, &region->grants) {
        drop_grant(grant);
    }
}

/* Fills region->shared. Peers map whole memory: a part of it, or less access than its seals give,
 * cannot be granted. */
static int find_memory(struct region *region, const uint8_t *base)
{
    const struct sl_shared *shared = sl_shared_find(base, region->bytes);
    const bool is_written = (region->access & SL_TRANSPORT_RMA_PEERS_WRITE) != 0;
    if (shared == NULL || shared->base != base ||
        shared->bytes - region->bytes >= (size_t)sysconf(_SC_PAGESIZE) ||
        shared->access != (is_written ? SL_SHARED_WRITE : SL_SHARED_READ)) {
        return SL_ERR_UNSUPPORTED;
    }
    region->shared = *shared;
    return 0;
}

static int shm_rma_region_add(struct sl_transport *transport, uint64_t key, void *base,
                              size_t bytes, unsigned access)
{
    struct sl_shm *shm = (struct sl_shm *)transport;
    if (shm_rma_find_region(shm, key) != NULL) {
        return SL_ERR_EXISTS;
    }
    if (shm->rma_region_count == SL_LIMIT_TRANSFER_BUFFERS) {
        return SL_ERR_TOO_LARGE;
    }
    struct region *region = calloc(1, sizeof *region);
    if (region == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *region = (struct region){
        .shm = shm, .key = key, .bytes = bytes, .access = access, .timer.run = shm_rma_on_timer};
    const int err = access != SL_TRANSPORT_RMA_LOCAL ? find_memory(region, base) : 0;
    if (err != 0) {
        free(region);
        return err;
    }
    sl_list_init(&region->grants);
    sl_list_append(&shm->rma_regions, &region->link);
    shm->rma_region_count++;
    make_due(region, ADDING);
    return 0;
}

/* A peer that does not read its socket loses its connection. */
static int send_msg(struct sl_shm_conn *conn, struct sl_shm_ctrl_msg msg, int fd)
{
    const int err = sl_shm_ctrl_msg_send(conn, msg, fd);
    return err == SL_ERR_AGAIN ? SL_ERR_DEADLINE : err;
}

static void shm_rma_region_remove(struct sl_transport *transport, uint64_t key)
{
    struct region *region = shm_rma_find_region((struct sl_shm *)transport, key);
    sl_assert(region != NULL);
    sl_assert(region->state == ADDED);
    if (sl_list_empty(&region->grants)) {
        make_due(region, REMOVED);
        return;
    }
    region->state = REMOVING;
    sl_reactor_arm(transport->reactor, &region->timer, REMOVE_NS);
    SL_LIST_EACH (struct grant, grant, of_region, &region->grants) {
        struct sl_shm_conn *conn = grant->conn;
        const struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_RMA_WITHDRAW, .bytes = key};
        const int err = send_msg(conn, msg, -1);
        if (err != 0) {
            sl_shm_fail(conn, err, NULL);
        }
    }
}

static void free_region(struct region *region)
{
    sl_reactor_disarm(region->shm->base.reactor, &region->timer);
    sl_list_remove(&region->link);
    sl_list_remove(&region->due);
    region->shm->rma_region_count--;
    free(region);
}

void sl_shm_rma_report(struct sl_shm *shm)
{
    SL_LIST_TAKE (struct region, region, due, &shm->rma_due) {
        const uint64_t key = region->key;
        if (region->state == ADDING) {
            const struct sl_transport_rma_token token = {
                .name = key, .bytes = region->bytes, .access = region->access};
            region->state = ADDED;
            sl_transport_rma_report_added(&shm->base, key, &token, 0);
        } else {
            const int err = region->is_lost ? SL_ERR_DEADLINE : 0;
            free_region(region);
            sl_transport_rma_report_removed(&shm->base, key, err);
        }
    }
}

void sl_shm_rma_free_all(struct sl_shm *shm)
{
    SL_LIST_EACH (struct region, region, link, &shm->rma_regions) {
        free_region(region);
    }
}

/* The target's end of a connection */

static struct sl_shm_rma *state_of(struct sl_shm_conn *conn)
{
    if (conn->rma == NULL) {
        conn->rma = calloc(1, sizeof *conn->rma);
        if (conn->rma != NULL) {
            sl_list_init(&conn->rma->grants);
        }
    }
    return conn->rma;
}

static int shm_rma_admit(struct sl_conn *base)
{
    struct sl_shm_rma *rma = state_of((struct sl_shm_conn *)base);
    if (rma == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    rma->is_admitted = true;
    return 0;
}

static struct grant *find_grant(const struct sl_shm_conn *conn, uint64_t key)
{
    if (conn->rma == NULL) {
        return NULL;
    }
    SL_LIST_EACH (struct grant, grant, of_conn, &conn->rma->grants) {
        if (grant->region->key == key) {
            return grant;
        }
    }
    return NULL;
}

static int give(struct sl_shm_conn *conn, struct region *region)
{
    struct grant *grant = calloc(1, sizeof *grant);
    if (grant == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    grant->region = region;
    grant->conn = conn;
    sl_list_append(&region->grants, &grant->of_region);
    sl_list_append(&conn->rma->grants, &grant->of_conn);
    const struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_RMA_GIVE,
                                        .access = region->shared.access,
                                        .bytes = region->shared.bytes};
    return send_msg(conn, msg, region->shared.fd);
}

static int take_ask(struct sl_shm_conn *conn, uint64_t key)
{
    if (find_grant(conn, key) != NULL) {
        return SL_ERR_PROTOCOL;
    }
    const bool is_admitted = conn->rma != NULL && conn->rma->is_admitted;
    struct region *region = is_admitted ? shm_rma_find_region(conn->shm, key) : NULL;
    if (region != NULL && region->access != SL_TRANSPORT_RMA_LOCAL && region->state <= ADDED) {
        return give(conn, region);
    }
    const struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_RMA_WITHDRAW, .bytes = key};
    return send_msg(conn, msg, -1);
}

static void take_unmapped(struct sl_shm_conn *conn, uint64_t key)
{
    struct grant *grant = find_grant(conn, key);
    if (grant != NULL) {
        drop_grant(grant);
    }
}

/* The initiator's end: mappings */

static struct mapping **find_mapping(struct sl_shm_rma *rma, uint64_t key)
{
    struct mapping **at = &rma->buckets[key % BUCKETS];
    while (*at != NULL && (*at)->key != key) {
        at = &(*at)->next;
    }
    return at;
}

static void shm_rma_unmap(struct sl_shm_rma *rma, struct mapping **at)
{
    struct mapping *mapping = *at;
    *at = mapping->next;
    rma->mapping_count--;
    rma->mapped_bytes -= mapping->shared.bytes;
    sl_shared_detach(&mapping->shared);
    free(mapping);
}

/* Operations that are not copied yet. */
static void fail_ops(struct sl_shm_conn *conn, uint64_t key, int err)
{
    struct sl_shm_rma *rma = conn->rma;
    for (uint32_t i = rma->copied; i != rma->tail; i++) {
        struct op *op = &rma->ops[i % QUEUE];
        if (op->kind != SL_TRANSPORT_RMA_FLUSH && op->key == key) {
            op->err = op->err != 0 ? op->err : err;
        }
    }
}

static int send_unmapped(struct sl_shm_conn *conn, uint64_t key)
{
    const struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_RMA_UNMAPPED, .bytes = key};
    return send_msg(conn, msg, -1);
}

static int attach(struct sl_shm_rma *rma, const struct sl_shm_ctrl_msg *msg, int fd)
{
    if (rma->mapping_count == SL_LIMIT_TRANSFER_BUFFERS) {
        return SL_ERR_TOO_LARGE;
    }
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (mapping == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    const int err = sl_shared_attach(fd, msg->bytes, SL_SHM_IMPORTED_BYTES - rma->mapped_bytes,
                                     (enum sl_shared_access)msg->access, &mapping->shared);
    if (err != 0) {
        free(mapping);
        return err;
    }
    struct mapping **bucket = &rma->buckets[rma->asked % BUCKETS];
    mapping->key = rma->asked;
    mapping->next = *bucket;
    *bucket = mapping;
    rma->mapping_count++;
    rma->mapped_bytes += mapping->shared.bytes;
    return 0;
}

static int take_give(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    struct sl_shm_rma *rma = conn->rma;
    int err = rma == NULL || !rma->is_asking || msg->access > SL_SHARED_WRITE ? SL_ERR_PROTOCOL : 0;
    if (err == 0) {
        rma->is_asking = false;
        err = attach(rma, msg, fd);
    }
    if (err == 0) {
        return 0;
    }
    close(fd);
    if (err == SL_ERR_PROTOCOL || err == SL_ERR_INVALID) {
        return SL_ERR_PROTOCOL;
    }
    fail_ops(conn, rma->asked, SL_ERR_NO_MEMORY);
    return send_unmapped(conn, rma->asked);
}

static int take_withdraw(struct sl_shm_conn *conn, uint64_t key)
{
    struct sl_shm_rma *rma = conn->rma;
    if (rma == NULL) {
        return SL_ERR_PROTOCOL;
    }
    rma->is_asking = rma->is_asking && rma->asked != key;
    fail_ops(conn, key, SL_ERR_NOT_FOUND);
    struct mapping **at = find_mapping(rma, key);
    if (*at != NULL) {
        shm_rma_unmap(rma, at);
    }
    return send_unmapped(conn, key);
}

int sl_shm_rma_take(struct sl_shm_conn *conn, const struct sl_shm_ctrl_msg *msg, int fd)
{
    conn->busy = conn->ready = true;
    switch (msg->kind) {
    case SL_SHM_CTRL_MSG_RMA_ASK:
        return take_ask(conn, msg->bytes);
    case SL_SHM_CTRL_MSG_RMA_GIVE:
        return take_give(conn, msg, fd);
    case SL_SHM_CTRL_MSG_RMA_WITHDRAW:
        return take_withdraw(conn, msg->bytes);
    default:
        take_unmapped(conn, msg->bytes);
        return 0;
    }
}

/* The initiator's end: operations */

static uint32_t shm_rma_post(struct sl_conn *base, const struct sl_transport_rma_op *ops,
                             uint32_t count)
{
    struct sl_shm_conn *conn = (struct sl_shm_conn *)base;
    struct sl_shm_rma *rma = state_of(conn);
    if (rma == NULL) {
        sl_shm_fail(conn, SL_ERR_NO_MEMORY, "there is no memory for one-sided operations");
        return 0;
    }
    uint32_t taken = 0;
    for (; taken < count && rma->tail - rma->head < QUEUE; taken++) {
        const struct sl_transport_rma_op *op = &ops[taken];
        rma->ops[rma->tail++ % QUEUE] = (struct op){.kind = op->kind,
                                                    .bytes = op->bytes,
                                                    .local = op->local,
                                                    .key = op->token->name,
                                                    .offset = op->offset,
                                                    .cookie = op->cookie,
                                                    .err = sl_transport_rma_check(op)};
    }
    conn->busy = conn->ready = true;
    return taken;
}

static void ask(struct sl_shm_conn *conn, uint64_t key)
{
    struct sl_shm_rma *rma = conn->rma;
    const struct sl_shm_ctrl_msg msg = {.kind = SL_SHM_CTRL_MSG_RMA_ASK, .bytes = key};
    const int err = send_msg(conn, msg, -1);
    if (err != 0) {
        sl_shm_fail(conn, err, NULL);
        return;
    }
    rma->is_asking = true;
    rma->asked = key;
}

/* The token came from the peer: what it says of size and access may be wrong. */
static int check_mapping(const struct op *op, const struct sl_shared *shared)
{
    if (op->offset > shared->bytes || op->bytes > shared->bytes - op->offset) {
        return SL_ERR_INVALID;
    }
    const bool is_allowed = op->kind == SL_TRANSPORT_RMA_READ || shared->access == SL_SHARED_WRITE;
    return is_allowed ? 0 : SL_ERR_REFUSED;
}

/* Returns the bytes copied, at most `bytes_max`; sets op->done or op->err. */
static uint32_t copy(struct op *op, const struct sl_shared *shared, uint32_t bytes_max)
{
    op->err = check_mapping(op, shared);
    if (op->err != 0) {
        return 0;
    }
    const uint32_t left = op->bytes - op->done;
    const uint32_t bytes = left < bytes_max ? left : bytes_max;
    uint8_t *remote = shared->base + op->offset + op->done, *local = op->local + op->done;
    if (op->kind == SL_TRANSPORT_RMA_READ) {
        memcpy(local, remote, bytes);
    } else {
        memcpy(remote, local, bytes);
    }
    op->done += bytes;
    return bytes;
}

/* Copies a slice: other connections may have short frames. */
static uint32_t copy_some(struct sl_shm_conn *conn)
{
    struct sl_shm_rma *rma = conn->rma;
    uint32_t left = SL_SHM_COPY_BYTES;
    while (rma->copied != rma->tail && left > 0) {
        struct op *op = &rma->ops[rma->copied % QUEUE];
        if (op->err == 0 && op->kind != SL_TRANSPORT_RMA_FLUSH) {
            const struct mapping *mapping = *find_mapping(rma, op->key);
            if (mapping == NULL) {
                if (!rma->is_asking) {
                    ask(conn, op->key);
                }
                break;
            }
            left -= copy(op, &mapping->shared, left);
        }
        if (op->err == 0 && op->kind != SL_TRANSPORT_RMA_FLUSH && op->done < op->bytes) {
            break;
        }
        rma->copied++;
    }
    return SL_SHM_COPY_BYTES - left;
}

static bool is_live(const struct sl_shm_conn *conn)
{
    return conn->phase == SL_SHM_LIVE && conn->base.failure == 0 && !conn->end.eof;
}

bool sl_shm_rma_has_copied(const struct sl_shm_conn *conn)
{
    return conn->rma != NULL && conn->rma->head != conn->rma->copied;
}

/* Reports what was copied in earlier turns, if the target had not gone by then. */
static uint32_t report(struct sl_shm_conn *conn)
{
    struct sl_shm_rma *rma = conn->rma;
    const uint32_t end = rma->copied, begin = rma->head;
    if (rma->head != end && !sl_shm_side_stays(sl_shm_peer_side(conn))) {
        sl_shm_fail(conn, SL_ERR_CLOSED, NULL);
    }
    while (rma->head != end && is_live(conn)) {
        const struct op op = rma->ops[rma->head++ % QUEUE];
        sl_transport_rma_report_completed(&conn->base, op.cookie, op.err);
    }
    return rma->head - begin;
}

uint32_t sl_shm_rma_run(struct sl_shm_conn *conn)
{
    struct sl_shm_rma *rma = conn->rma;
    if (rma == NULL || rma->head == rma->tail) {
        return 0;
    }
    uint32_t work = report(conn);
    if (is_live(conn)) {
        work += copy_some(conn) > 0 ? 1 : 0;
    }
    conn->ready =
        conn->ready || rma->head != rma->copied || (rma->copied != rma->tail && !rma->is_asking);
    return work;
}

bool sl_shm_rma_waits(const struct sl_shm_conn *conn)
{
    return conn->rma != NULL && conn->rma->is_asking;
}

bool sl_shm_rma_is_mapped(const struct sl_shm_conn *conn)
{
    return conn->rma != NULL && !sl_list_empty(&conn->rma->grants);
}

void sl_shm_rma_close(struct sl_shm_conn *conn)
{
    struct sl_shm_rma *rma = conn->rma;
    if (rma == NULL) {
        return;
    }
    for (uint32_t i = 0; i < BUCKETS; i++) {
        while (rma->buckets[i] != NULL) {
            shm_rma_unmap(rma, &rma->buckets[i]);
        }
    }
    /* A peer that has left, or has closed its socket, writes no more. */
    const bool is_lost = !conn->end.eof && sl_shm_side_stays(sl_shm_peer_side(conn));
    SL_LIST_EACH (struct grant, grant, of_conn, &rma->grants) {
        grant->region->is_lost = grant->region->is_lost || is_lost;
        drop_grant(grant);
    }
    free(rma);
    conn->rma = NULL;
}

const struct sl_transport_rma_ops sl_shm_rma_ops = {.region_add = shm_rma_region_add,
                                                    .region_remove = shm_rma_region_remove,
                                                    .admit = shm_rma_admit,
                                                    .post = shm_rma_post};
