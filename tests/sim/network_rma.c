/* One-sided operations of the simulated network, as RDMA has them. An operation leaves its sender,
 * reaches the target's device, and is applied there at times of the seed; no process takes part, so
 * a paused target is read and written too. A WRITE counts as done when the device has it. The
 * target's memory has it a while later, or before a READ or FLUSH of the same connection is
 * answered. What has left may be applied until the target's side of the connection is closed. */
#include <stdlib.h>
#include <string.h>

#include "core/limits.h"
#include "tests/sim/network_internal.h"

#define QUEUE      SL_LIMIT_TRANSFER_SLICES /* operations of one connection */
#define RETRY_NS   (200 * SL_CLOCK_NS_PER_MS)
#define REGION_US  2000   /* to add or remove a region, at most */
#define AGAIN_US   500000 /* until a device tries again to add one, at most */
#define WORD_BYTES 8U
#define LOST       300 /* permille of the operations on their way, when their connection breaks */
#define LEFT_IN_PART                                                                               \
    300 /* permille of the WRITEs that are arriving when the target's side closes */

enum stage {
    QUEUED,  /* the sender's device has not read the memory of a WRITE */
    FLYING,  /* on its way to the target's device */
    PLACING, /* a WRITE that is done, and not in the target's memory */
    OVER     /* at the target: nothing of it comes any more */
};

/* Lives until it is over at the target, and reported or closed at its sender. */
struct sl_sim_op {
    struct sl_sim_op *next;
    struct sl_sim_conn *conn;   /* of its sender; NULL: reported, or closed */
    struct sl_sim_conn *target; /* the target's side; NULL: closed */
    struct sl_transport_rma_op op;
    struct sl_transport_rma_token token;
    enum stage stage;
    uint64_t due_ns;       /* when the stage is over; SL_CLOCK_NEVER in the last one */
    uint64_t completed_ns; /* when to report it */
    int err;
    uint8_t *data; /* of a WRITE that has left, or of a READ that was answered */
};

static struct sl_sim_transport *transport_of(struct sl_transport *transport)
{
    return (struct sl_sim_transport *)transport;
}

/* Regions */

static struct sl_sim_rma_region **find_region(struct sl_sim_transport *transport, uint64_t key)
{
    struct sl_sim_rma_region **at = &transport->regions;
    while (*at != NULL && (*at)->key != key) {
        at = &(*at)->next;
    }
    return at;
}

static uint64_t region_due(struct sl_sim_network *network, uint32_t us_max)
{
    return network->now_ns + SL_CLOCK_NS_PER_US * sl_sim_between(&network->random, 1, us_max);
}

static int region_add(struct sl_transport *base, uint64_t key, void *memory, size_t bytes,
                      unsigned access)
{
    struct sl_sim_transport *transport = transport_of(base);
    struct sl_sim_network *network = transport->host->network;
    if (*find_region(transport, key) != NULL) {
        return SL_ERR_EXISTS;
    }
    struct sl_sim_rma_region *region = calloc(1, sizeof *region);
    sl_assert(region != NULL);
    *region = (struct sl_sim_rma_region){.next = transport->regions,
                                         .key = key,
                                         .base = memory,
                                         .bytes = bytes,
                                         .access = access,
                                         .remote_key = ++network->region_count,
                                         .due_ns = region_due(network, REGION_US)};
    transport->regions = region;
    return 0;
}

/* From now on peers may find it, or not. */
static void region_remove(struct sl_transport *base, uint64_t key)
{
    struct sl_sim_transport *transport = transport_of(base);
    struct sl_sim_rma_region *region = *find_region(transport, key);
    sl_assert(region != NULL && region->is_known && !region->is_leaving);
    region->is_leaving = true;
    region->due_ns = region_due(transport->host->network, REGION_US);
}

static bool holds(const struct sl_sim_rma_region *region, const uint8_t *at, uint64_t bytes)
{
    const uint64_t offset = (uintptr_t)at - (uintptr_t)region->base;
    return offset <= region->bytes && bytes <= region->bytes - offset;
}

static bool is_local(const struct sl_sim_transport *transport, const uint8_t *at, uint64_t bytes)
{
    const struct sl_sim_rma_region *region = transport->regions;
    while (region != NULL && (region->due_ns != SL_CLOCK_NEVER || !holds(region, at, bytes))) {
        region = region->next;
    }
    return region != NULL;
}

/* Bytes of others that are written here */

static uint8_t *remote_of(const struct sl_sim_op *op)
{
    return (uint8_t *)(uintptr_t)(op->token.name + op->op.offset);
}

static void end(struct sl_sim_op *op)
{
    op->stage = OVER;
    op->due_ns = SL_CLOCK_NEVER;
    op->target = NULL;
}

static void place(struct sl_sim_op *op, uint32_t bytes)
{
    memcpy(remote_of(op), op->data, bytes);
    end(op);
}

/* Of the connection's, before this one; all: stop == NULL. */
static void place_earlier(struct sl_sim_network *network, const struct sl_sim_conn *target,
                          const struct sl_sim_op *stop)
{
    for (struct sl_sim_op *op = network->ops; op != stop && op != NULL; op = op->next) {
        if (op->target == target && op->stage == PLACING) {
            place(op, op->op.bytes);
        }
    }
}

static void place_in(struct sl_sim_network *network, const struct sl_sim_rma_region *region)
{
    for (struct sl_sim_op *op = network->ops; op != NULL; op = op->next) {
        if (op->stage == PLACING && holds(region, remote_of(op), op->op.bytes)) {
            place(op, op->op.bytes);
        }
    }
}

static bool fails_by_chance(struct sl_sim_network *network)
{
    const uint32_t permille = network->options.region_fail_permille;
    return permille > 0 && sl_sim_chance(&network->random, permille);
}

uint32_t sl_sim_rma_report_regions(struct sl_sim_transport *transport)
{
    struct sl_sim_network *network = transport->host->network;
    uint32_t count = 0;
    struct sl_sim_rma_region **at = &transport->regions;
    while (*at != NULL) {
        struct sl_sim_rma_region *region = *at;
        const uint64_t key = region->key;
        const bool is_due = region->due_ns <= network->now_ns || transport->host->dead;
        if (region->due_ns == SL_CLOCK_NEVER || !is_due) { /* a dead host's time stands still */
            at = &region->next;
        } else if (region->is_leaving) {
            place_in(network, region);
            *at = region->next;
            free(region);
            sl_transport_rma_report_removed(&transport->base, key, 0);
            at = &transport->regions; /* the upcall may have changed the list */
            count++;
        } else if (fails_by_chance(network)) {
            const bool is_first = !region->is_known;
            region->is_known = true;
            region->due_ns = region_due(network, AGAIN_US);
            if (is_first) {
                sl_transport_rma_report_added(&transport->base, key, NULL, SL_ERR_NO_MEMORY);
            }
            at = &transport->regions;
            count++;
        } else {
            const struct sl_transport_rma_token token = {.name = (uintptr_t)region->base,
                                                         .bytes = region->bytes,
                                                         .remote_key = region->remote_key,
                                                         .access = region->access};
            region->is_known = true;
            region->due_ns = SL_CLOCK_NEVER;
            sl_transport_rma_report_added(&transport->base, key, &token, 0);
            at = &transport->regions;
            count++;
        }
    }
    return count;
}

uint64_t sl_sim_rma_regions_next(const struct sl_sim_transport *transport)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    for (const struct sl_sim_rma_region *at = transport->regions; at != NULL; at = at->next) {
        next_ns = at->due_ns < next_ns ? at->due_ns : next_ns;
    }
    return next_ns;
}

void sl_sim_rma_free_regions(struct sl_sim_transport *transport)
{
    while (transport->regions != NULL) {
        struct sl_sim_rma_region *region = transport->regions;
        transport->regions = region->next;
        free(region);
    }
}

/* Operations */

static int admit(struct sl_conn *base)
{
    ((struct sl_sim_conn *)base)->is_admitted = true;
    return 0;
}

static struct sl_sim_op *op_create(struct sl_sim_conn *conn, const struct sl_transport_rma_op *op)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    const bool is_flush = op->kind == SL_TRANSPORT_RMA_FLUSH;
    const uint32_t sent = op->kind == SL_TRANSPORT_RMA_WRITE ? op->bytes : 0;
    struct sl_sim_op *made = calloc(1, sizeof *made);
    sl_assert(made != NULL);
    *made = (struct sl_sim_op){.conn = conn,
                               .target = conn->peer,
                               .op = *op,
                               .token = *op->token,
                               .completed_ns = SL_CLOCK_NEVER,
                               .err = sl_transport_rma_check(op)};
    made->op.token = &made->token;
    if (made->err == 0 && !is_flush && !is_local(sl_sim_home(conn), op->local, op->bytes)) {
        made->err = SL_ERR_INVALID;
    }
    if (conn->wire_free_ns < network->now_ns) {
        conn->wire_free_ns = network->now_ns;
    }
    conn->wire_free_ns += sent * SL_CLOCK_NS_PER_US / network->options.bytes_per_us;
    made->due_ns = conn->wire_free_ns;
    if (made->err != 0) {
        end(made);
        made->completed_ns = conn->wire_free_ns;
    } else if (made->target == NULL) {
        end(made); /* nobody answers */
    }
    return made;
}

static uint32_t post(struct sl_conn *base, const struct sl_transport_rma_op *ops, uint32_t count)
{
    struct sl_sim_conn *conn = (struct sl_sim_conn *)base;
    struct sl_sim_network *network = sl_sim_network_of(conn);
    const uint32_t room = QUEUE - conn->op_count;
    const uint32_t taken = count < room ? count : room;
    struct sl_sim_op **last = &network->ops;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    for (uint32_t i = 0; i < taken; i++) {
        *last = op_create(conn, &ops[i]);
        network->op_due_ns =
            (*last)->due_ns < network->op_due_ns ? (*last)->due_ns : network->op_due_ns;
        last = &(*last)->next;
    }
    conn->op_count += taken;
    return taken;
}

/* The device of the sender reads the memory of a WRITE. */
static void leave(struct sl_sim_network *network, struct sl_sim_op *op)
{
    struct sl_sim_conn *conn = op->conn;
    if (op->op.kind == SL_TRANSPORT_RMA_WRITE) {
        if (!is_local(sl_sim_home(conn), op->op.local, op->op.bytes)) {
            network->watch.breach(network->watch.ctx,
                                  "memory of a posted WRITE is not in a region any more");
        }
        op->data = malloc(op->op.bytes);
        sl_assert(op->data != NULL);
        memcpy(op->data, op->op.local, op->op.bytes);
    }
    uint64_t arrival_ns = op->due_ns + sl_sim_delay_ns(network);
    if (arrival_ns <= conn->op_arrival_ns) {
        arrival_ns = conn->op_arrival_ns + 1; /* they stay in order */
    }
    op->stage = FLYING;
    op->due_ns = conn->op_arrival_ns = arrival_ns;
}

static bool is_allowed(struct sl_sim_network *network, const struct sl_sim_op *op)
{
    const struct sl_sim_rma_region *region = sl_sim_home(op->target)->regions;
    const bool is_flush = op->op.kind == SL_TRANSPORT_RMA_FLUSH;
    const unsigned needed = op->op.kind == SL_TRANSPORT_RMA_WRITE ? SL_TRANSPORT_RMA_PEERS_WRITE
                                                                  : SL_TRANSPORT_RMA_PEERS_READ;
    while (region != NULL && region->remote_key != op->token.remote_key) {
        region = region->next;
    }
    return region != NULL && op->target->is_admitted &&
           (region->is_leaving ? sl_sim_chance(&network->random, 500)
                               : region->due_ns == SL_CLOCK_NEVER) &&
           (region->access & needed) != 0 &&
           (is_flush || holds(region, remote_of(op), op->op.bytes));
}

/* The target's device refuses it: both sides end. */
static void refuse(struct sl_sim_op *op)
{
    struct sl_sim_conn *conn = op->conn, *target = op->target;
    end(op);
    if (conn != NULL && conn->peer == target) {
        sl_sim_break_pair(conn, 500);
        conn->end_err = SL_ERR_PROTOCOL;
    }
}

/* The target's device has it. */
static void arrive(struct sl_sim_network *network, struct sl_sim_op *op)
{
    struct sl_sim_conn *conn = op->conn;
    if (!is_allowed(network, op)) {
        refuse(op);
        return;
    }
    if (network->watch.operation != NULL) {
        network->watch.operation(network->watch.ctx, op->target->remote,
                                 sl_sim_home(op->target)->host->index, (int)op->op.kind,
                                 op->op.bytes);
    }
    if (conn != NULL && conn->peer == op->target) {
        op->completed_ns = op->due_ns + sl_sim_delay_ns(network);
    }
    if (op->op.kind == SL_TRANSPORT_RMA_WRITE) {
        op->stage = PLACING;
        op->due_ns += SL_CLOCK_NS_PER_US *
                      sl_sim_below(&network->random, network->options.place_us_max + 1ULL);
    } else {
        place_earlier(network, op->target, op);
        if (op->op.kind == SL_TRANSPORT_RMA_READ && op->completed_ns != SL_CLOCK_NEVER) {
            op->completed_ns += op->op.bytes * SL_CLOCK_NS_PER_US / network->options.bytes_per_us;
            op->data = malloc(op->op.bytes);
            sl_assert(op->data != NULL);
            memcpy(op->data, remote_of(op), op->op.bytes);
        }
        end(op);
    }
    if (conn != NULL) {
        sl_sim_break_by_chance(conn);
    }
}

static bool is_held_up(const struct sl_sim_op *op)
{
    return op->stage == FLYING && sl_sim_is_deaf(op->target);
}

static void advance(struct sl_sim_network *network, struct sl_sim_op *op)
{
    if (is_held_up(op)) {
        op->due_ns = network->now_ns + RETRY_NS;
    } else if (op->stage == QUEUED) {
        leave(network, op);
    } else if (op->stage == FLYING) {
        arrive(network, op);
    } else {
        place_earlier(network, op->target, op->next);
    }
}

static void free_gone(struct sl_sim_network *network)
{
    struct sl_sim_op **at = &network->ops;
    while (*at != NULL) {
        struct sl_sim_op *op = *at;
        if (op->conn == NULL && op->stage == OVER) {
            *at = op->next;
            free(op->data);
            free(op);
        } else {
            at = &op->next;
        }
    }
}

void sl_sim_rma_advance(struct sl_sim_network *network)
{
    uint64_t due_ns;
    do {
        due_ns = SL_CLOCK_NEVER;
        for (struct sl_sim_op *op = network->ops; op != NULL; op = op->next) {
            if (op->due_ns <= network->now_ns) {
                advance(network, op);
            }
        }
        for (const struct sl_sim_op *op = network->ops; op != NULL; op = op->next) {
            due_ns = op->due_ns < due_ns ? op->due_ns : due_ns;
        }
    } while (due_ns <= network->now_ns);
    network->op_due_ns = due_ns;
    free_gone(network);
}

/* The answer of a READ, if it has come, reaches local memory. */
static void land(const struct sl_sim_op *op, uint32_t bytes)
{
    struct sl_sim_network *network = sl_sim_network_of(op->conn);
    if (op->op.kind != SL_TRANSPORT_RMA_READ || op->data == NULL) {
        return;
    }
    if (!is_local(sl_sim_home(op->conn), op->op.local, op->op.bytes)) {
        network->watch.breach(network->watch.ctx,
                              "memory of a posted READ is not in a region any more");
    }
    memcpy(op->op.local, op->data, bytes);
}

static struct sl_sim_op *first_of(const struct sl_sim_conn *conn)
{
    struct sl_sim_op *op = conn->op_count > 0 ? sl_sim_network_of(conn)->ops : NULL;
    while (op != NULL && op->conn != conn) {
        op = op->next;
    }
    return op;
}

uint32_t sl_sim_rma_report(struct sl_sim_conn *conn)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    uint32_t count = 0;
    struct sl_sim_op *op;
    while (conn->base.state == SL_CONN_OPEN && (op = first_of(conn)) != NULL &&
           op->completed_ns <= network->now_ns) {
        if (op->err == 0 && sl_sim_is_deaf(conn)) {
            op->completed_ns = network->now_ns + RETRY_NS;
            break;
        }
        land(op, op->op.bytes);
        op->conn = NULL;
        conn->op_count--;
        count++;
        sl_transport_rma_report_completed(&conn->base, op->op.cookie, op->err);
    }
    if (count > 0) {
        free_gone(network);
    }
    return count;
}

uint64_t sl_sim_rma_next(const struct sl_sim_conn *conn)
{
    uint64_t next_ns = SL_CLOCK_NEVER;
    const struct sl_sim_op *op = first_of(conn);
    if (op != NULL) {
        next_ns = op->completed_ns;
    }
    for (; op != NULL; op = op->next) {
        const bool may_complete = op->conn == conn && op->completed_ns == SL_CLOCK_NEVER;
        next_ns = may_complete && op->due_ns < next_ns ? op->due_ns : next_ns;
    }
    return next_ns;
}

void sl_sim_rma_break(struct sl_sim_conn *conn, uint32_t told_us_max)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    const uint64_t late_ns =
        conn->op_count > 0
            ? SL_CLOCK_NS_PER_US * sl_sim_below(&network->random, 2ULL * told_us_max + 1)
            : 0;
    for (struct sl_sim_op *op = network->ops; op != NULL; op = op->next) {
        if (op->conn != conn) {
            continue;
        }
        if (op->completed_ns != SL_CLOCK_NEVER && sl_sim_chance(&network->random, LOST)) {
            op->completed_ns = SL_CLOCK_NEVER;
        }
        if (op->stage == QUEUED || (op->stage == FLYING && sl_sim_chance(&network->random, LOST))) {
            end(op);
        } else if (op->stage == FLYING) {
            op->due_ns += late_ns; /* they stay in order */
        }
    }
}

/* Whole words: nobody sees a part of one. */
static uint32_t words_below(struct sl_sim_network *network, uint32_t bytes)
{
    return WORD_BYTES * sl_sim_below(&network->random, bytes / WORD_BYTES + 1ULL);
}

/* The side that it goes to is closed. */
static void close_target(struct sl_sim_network *network, struct sl_sim_op *op)
{
    const bool is_write = op->op.kind == SL_TRANSPORT_RMA_WRITE;
    if (op->stage == PLACING) {
        place(op, op->op.bytes);
    } else if (op->stage == FLYING && is_write && is_allowed(network, op) && !is_held_up(op) &&
               sl_sim_chance(&network->random, LEFT_IN_PART)) {
        place(op, words_below(network, op->op.bytes));
    } else {
        end(op);
    }
}

void sl_sim_rma_close(struct sl_sim_conn *conn)
{
    struct sl_sim_network *network = sl_sim_network_of(conn);
    for (struct sl_sim_op *op = network->ops; op != NULL; op = op->next) {
        if (op->target == conn) {
            close_target(network, op);
        }
        if (op->conn != conn) {
            continue;
        }
        if (op->completed_ns != SL_CLOCK_NEVER) {
            land(op, words_below(network, op->op.bytes));
        }
        op->conn = NULL;
        if (op->stage == QUEUED || (op->stage == FLYING && op->op.kind != SL_TRANSPORT_RMA_WRITE)) {
            end(op);
        }
    }
    conn->op_count = 0;
    free_gone(network);
}

const struct sl_transport_rma_ops sl_sim_rma_ops = {
    .region_add = region_add, .region_remove = region_remove, .admit = admit, .post = post};
