/* Requests and replies: what is done for each of them is all in here, and is little, since the one
 * core that makes the load must outrun the one that serves it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/load_internal.h"
#include "bench/now.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/list.h"
#include "core/log.h"

#define BURST                 64
#define REPLIES_A_CLOCK       32 /* replies that share one reading of the clock */
#define BUDGET_US             UINT32_MAX
#define PATIENCE_NS           (20 * SL_CLOCK_NS_PER_S)

/* Longer gradients are sent from one place for all requests, as a second piece; shorter ones lie in
 * every slot, so that a burst is one piece. */
#define INLINE_GRADIENT_BYTES 1024

#define KEYS_OFFSET           SL_BENCH_LOAD_FIXED_BYTES
#define START_OFFSET                                                                               \
    (SL_FRAME_HEADER_BYTES + sizeof(struct sl_request_prefix) +                                    \
     offsetof(struct sl_request_section, start))

/* ---- The shape of a request ------------------------------------------------------------------ */

static bool is_dense(const struct sl_bench_load *load)
{
    return load->options.table.kind == SL_TABLE_DENSE;
}

static uint8_t op_of(const struct sl_bench_load *load)
{
    static const uint8_t ops[2][3] = {
        {SL_REQUEST_PULL, SL_REQUEST_PUSH, SL_REQUEST_PUSH_PULL},
        {SL_REQUEST_DENSE_PULL, SL_REQUEST_DENSE_PUSH, SL_REQUEST_DENSE_PUSH_PULL}};
    return ops[is_dense(load)][load->options.operation];
}

static struct sl_request_section section_of(const struct sl_bench_load *load)
{
    return (struct sl_request_section){
        .op = op_of(load),
        .flags = (uint8_t)(load->options.returned << SL_REQUEST_RETURNED_SHIFT),
        .table_id = load->table_id,
        .key_count = is_dense(load) ? 0 : load->options.keys,
        .count = is_dense(load) ? load->options.keys : 0,
    };
}

/* Small, of both signs, no two columns alike. */
static int make_gradients(struct sl_bench_load *load)
{
    const uint32_t columns = is_dense(load) ? 1 : load->options.table.dim;
    const size_t count = (size_t)load->options.keys * columns;
    load->gradient_bytes = (uint32_t)sl_bytes_pad8(count * sizeof(float));
    load->gradients_apart = load->gradient_bytes > INLINE_GRADIENT_BYTES;
    load->gradients = calloc(1, load->gradient_bytes);
    if (load->gradients == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) {
        load->gradients[i] = (float)(i % 2 == 0 ? 1 : -1) * 0.01F * (float)(1 + i % 13);
    }
    return 0;
}

static void write_slot(const struct sl_bench_load *load, uint8_t *slot)
{
    const struct sl_frame frame = {.payload_bytes = (uint32_t)load->request_bytes,
                                   .type = SL_FRAME_REQUEST,
                                   .budget_us = BUDGET_US};
    const struct sl_request_prefix prefix = {.section_count = 1};
    const struct sl_request_section section = section_of(load);
    sl_frame_encode(&frame, slot);
    memcpy(slot + SL_FRAME_HEADER_BYTES, &prefix, sizeof prefix);
    memcpy(slot + SL_FRAME_HEADER_BYTES + sizeof prefix, &section, sizeof section);
    if (load->gradients != NULL && !load->gradients_apart) {
        memcpy(slot + load->slot_bytes - load->gradient_bytes, load->gradients,
               load->gradient_bytes);
    }
}

static int make_connection(struct sl_bench_load *load, uint32_t index, uint8_t *memory)
{
    struct sl_bench_load_connection *connection = &load->connections[index];
    connection->load = load;
    connection->shard = &load->shards[index % load->shard_count];
    connection->next_id = connection->offered_id = connection->sent_id = 1;
    connection->slots = memory;
    connection->since_ns = calloc(load->slot_count, sizeof *connection->since_ns);
    if (load->reply_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES) {
        connection->reply_buffer = aligned_alloc(64, (load->reply_bytes + 63) / 64 * 64);
    }
    if (connection->since_ns == NULL ||
        (load->reply_bytes > SL_LIMIT_INLINE_PAYLOAD_BYTES && connection->reply_buffer == NULL)) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < load->slot_count; i++) {
        write_slot(load, memory + (size_t)i * load->slot_bytes);
    }
    /* Connections begin at places that are far apart. */
    const uint64_t requests = is_dense(load) ? connection->shard->elements / load->options.keys
                                             : connection->shard->key_count / load->options.keys;
    connection->at = requests * index / load->connection_count % requests * load->options.keys;
    return 0;
}

static int make_connections(struct sl_bench_load *load)
{
    load->slot_count = 2;
    while (load->slot_count < 2 * load->options.depth) {
        load->slot_count *= 2;
    }
    load->connection_count = load->options.connections * load->shard_count;
    const size_t each = (size_t)load->slot_count * load->slot_bytes;
    load->connections = calloc(load->connection_count, sizeof *load->connections);
    load->waiting = calloc(load->connection_count, sizeof(struct sl_bench_load_connection *));
    load->memory = aligned_alloc(64, (load->connection_count * each + 63) / 64 * 64);
    load->captured = malloc(load->reply_bytes + 1);
    if (load->connections == NULL || load->waiting == NULL || load->memory == NULL ||
        load->captured == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < load->connection_count; i++) {
        int err = make_connection(load, i, load->memory + i * each);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

int sl_bench_load_shape(struct sl_bench_load *load)
{
    const struct sl_request_section section = section_of(load);
    const uint32_t dim = load->options.table.dim;
    if (load->options.operation != SL_BENCH_PULL && make_gradients(load) != 0) {
        return SL_ERR_NO_MEMORY;
    }
    load->request_bytes =
        sizeof(struct sl_request_prefix) + sizeof section + sl_request_body_bytes(&section, dim);
    load->reply_bytes = sl_request_reply_bytes(&section, dim);
    load->credit_bytes = sl_request_credit_bytes(load->request_bytes, load->reply_bytes);
    if (load->request_bytes > SL_LIMIT_FRAME_PAYLOAD_BYTES ||
        load->reply_bytes > SL_LIMIT_FRAME_PAYLOAD_BYTES) {
        sl_log_error("a request of %u keys, or its reply, would be longer than %u bytes",
                     load->options.keys, SL_LIMIT_FRAME_PAYLOAD_BYTES);
        return SL_ERR_TOO_LARGE;
    }
    load->slot_bytes = SL_FRAME_HEADER_BYTES + (uint32_t)load->request_bytes -
                       (load->gradients_apart ? load->gradient_bytes : 0);
    return make_connections(load);
}

/* ---- Sending --------------------------------------------------------------------------------- */

static uint64_t due_ns(const struct sl_bench_load *load, uint64_t arrival)
{
    return load->begun_ns + (uint64_t)((double)arrival * load->interval_ns);
}

static bool is_sending(const struct sl_bench_load *load)
{
    return load->phase == SL_BENCH_LOAD_WARMING || load->phase == SL_BENCH_LOAD_MEASURING;
}

void sl_bench_load_wake(struct sl_bench_load_connection *connection)
{
    struct sl_bench_load *load = connection->load;
    if (!connection->waiting) {
        connection->waiting = true;
        load->waiting[load->waiting_count++] = connection;
    }
}

/* The next request: credit is spent, `since` its time. */
static void write_request(struct sl_bench_load_connection *connection, uint64_t since_ns)
{
    struct sl_bench_load *load = connection->load;
    const uint64_t id = connection->next_id++;
    const size_t slot = id & (load->slot_count - 1);
    uint8_t *frame = connection->slots + slot * load->slot_bytes;
    const uint32_t keys = load->options.keys;
    const struct sl_bench_load_shard *shard = connection->shard;
    const uint64_t request_id = sl_frame_id((uint32_t)(shard - load->shards), id);
    memcpy(frame + offsetof(struct sl_frame, request_id), &request_id, sizeof request_id);
    if (shard->keys != NULL) {
        memcpy(frame + KEYS_OFFSET, shard->keys + connection->at, keys * sizeof(uint64_t));
        connection->at += keys;
        connection->at = connection->at == shard->key_count ? 0 : connection->at;
    } else {
        const uint64_t start = shard->first + connection->at;
        memcpy(frame + START_OFFSET, &start, sizeof start);
        connection->at += keys;
        connection->at = connection->at + keys > shard->elements ? 0 : connection->at;
    }
    connection->since_ns[slot] = since_ns;
    connection->under_way++;
    load->under_way++;
}

/* Whether the next request has a slot, and is not one too many. */
static bool has_room(const struct sl_bench_load_connection *connection)
{
    const struct sl_bench_load *load = connection->load;
    const uint64_t id = connection->next_id;
    return connection->under_way < load->options.depth &&
           id - connection->sent_id < load->slot_count &&
           connection->since_ns[id & (load->slot_count - 1)] == 0;
}

static void offer(struct sl_bench_load_connection *connection)
{
    const struct sl_bench_load *load = connection->load;
    struct sl_transport_frame frames[BURST];
    uint32_t count, taken;
    do {
        count = 0;
        for (uint64_t id = connection->offered_id; id < connection->next_id && count < BURST;
             id++) {
            const size_t slot = id & (load->slot_count - 1);
            frames[count++] = (struct sl_transport_frame){
                .head = connection->slots + slot * load->slot_bytes,
                .head_bytes = load->slot_bytes,
                .payload = load->gradients_apart ? load->gradients : NULL,
                .payload_bytes = load->gradients_apart ? load->gradient_bytes : 0,
                .cookie = connection,
            };
        }
        taken = count == 0 ? 0 : sl_transport_send_burst(connection->conn, frames, count);
        connection->offered_id += taken;
    } while (taken == BURST);
}

/* Sends what may go now; what is not yet due, or has no credit, waits for a later wake. */
static void send_due(struct sl_bench_load_connection *connection)
{
    struct sl_bench_load *load = connection->load;
    const bool open_loop = load->interval_ns > 0;
    if (connection->conn == NULL) {
        return;
    }
    while (is_sending(load) && has_room(connection)) {
        uint64_t since_ns = load->now_ns;
        if (open_loop) {
            since_ns = due_ns(load, connection->arrival);
            if (since_ns > load->now_ns) {
                break;
            }
        }
        if (!sl_credit_spend(&connection->credit, load->credit_bytes)) {
            break;
        }
        connection->arrival += load->connection_count;
        write_request(connection, since_ns);
    }
    offer(connection);
}

/* Open loop: wakes the connections whose next request is due. */
static void arrive(struct sl_bench_load *load)
{
    while (due_ns(load, load->arrival) <= load->now_ns) {
        sl_bench_load_wake(&load->connections[load->arrival % load->connection_count]);
        load->arrival++;
    }
}

static struct sl_bench_load *of_source(struct sl_reactor_source *source)
{
    return SL_CONTAINER_OF(source, struct sl_bench_load, source);
}

static void read_clock(struct sl_bench_load *load)
{
    load->now_ns = sl_clock_now_ns(sl_reactor_clock(load->reactor));
    load->replies_at_now = 0;
}

static uint32_t source_poll(struct sl_reactor_source *source, uint32_t budget)
{
    return 0;
}

static void source_flush(struct sl_reactor_source *source)
{
    struct sl_bench_load *load = of_source(source);
    const bool open_loop = load->interval_ns > 0 && is_sending(load);
    sl_reactor_excuse_turn(load->reactor); /* it takes all that has come, as long as that lasts */
    if (load->waiting_count > 0 || open_loop) {
        read_clock(load);
    }
    if (open_loop) {
        arrive(load);
    }
    for (uint32_t i = 0; i < load->waiting_count; i++) {
        load->waiting[i]->waiting = false;
        send_due(load->waiting[i]);
    }
    load->waiting_count = 0;
    load->replies_at_now = REPLIES_A_CLOCK; /* the next turn's first reply reads it anew */
}

/* A load that shall spin does so by never letting the reactor sleep, and only while it runs: idle
 * loads leave the core to others. An open loop always spins, since it must send on time. */
static bool source_arm(struct sl_reactor_source *source)
{
    const struct sl_bench_load *load = of_source(source);
    const bool runs = is_sending(load) || load->phase == SL_BENCH_LOAD_DRAINING;
    return !runs || !(load->options.polling || load->interval_ns > 0);
}

const struct sl_reactor_source sl_bench_load_source = {
    .name = "load", .poll = source_poll, .flush = source_flush, .arm = source_arm};

/* ---- Replies --------------------------------------------------------------------------------- */

static void finish_run(struct sl_bench_load *load)
{
    sl_reactor_disarm(load->reactor, &load->timer);
    load->phase = SL_BENCH_LOAD_IDLE;
    load->result.all_requests = load->replies;
    sl_bench_load_answer(load);
}

/* The reply to a request that is under way, which began at since_ns. */
static void count_reply(struct sl_bench_load *load, uint64_t since_ns)
{
    const bool measuring = load->phase == SL_BENCH_LOAD_MEASURING;
    const uint64_t took_ns = load->now_ns > since_ns ? load->now_ns - since_ns : 0;
    load->replies++;
    load->result.requests += measuring;
    if (load->interval_ns > 0 ? since_ns >= load->window_ns : measuring) {
        sl_metric_record(&load->result.latency, took_ns);
    }
    if (load->under_way == 0 && load->phase == SL_BENCH_LOAD_DRAINING) {
        finish_run(load);
    }
}

static void refused(struct sl_bench_load_connection *connection,
                    const struct sl_transport_message *message)
{
    struct sl_bench_load *load = connection->load;
    const struct sl_frame *header = &message->header;
    if (header->status != 0) {
        const int bytes = header->payload_bytes < 256 ? (int)header->payload_bytes : 256;
        sl_bench_load_fail(load, -(int)header->status, "%s answers: %.*s: %s",
                           connection->conn->peer, bytes, (const char *)message->payload,
                           sl_err_name(-(int)header->status));
    } else {
        sl_bench_load_fail(load, SL_ERR_PROTOCOL,
                           "%s sent a reply of %u bytes to request %llu, where one of %llu bytes "
                           "to a request under way was due",
                           connection->conn->peer, header->payload_bytes,
                           (unsigned long long)header->request_id,
                           (unsigned long long)load->reply_bytes);
    }
}

void sl_bench_load_received(struct sl_bench_load_connection *connection,
                            const struct sl_transport_message *message)
{
    struct sl_bench_load *load = connection->load;
    const struct sl_frame *header = &message->header;
    sl_credit_grant(&connection->credit, header->credit_bytes, header->credit_requests);
    sl_bench_load_wake(connection);
    if (header->type != SL_FRAME_REPLY) {
        return;
    }
    const uint64_t id = sl_frame_number(header->request_id);
    uint64_t *since = &connection->since_ns[id & (load->slot_count - 1)];
    const bool known = connection->next_id - id - 1 < load->slot_count && *since != 0;
    if (header->status != 0 || !known || header->payload_bytes != load->reply_bytes) {
        refused(connection, message);
        return;
    }
    const uint64_t since_ns = *since;
    *since = 0;
    connection->under_way--;
    load->under_way--;
    if (load->phase == SL_BENCH_LOAD_CHECKING) {
        memcpy(load->captured, message->payload, load->reply_bytes);
        load->phase = SL_BENCH_LOAD_IDLE;
        sl_bench_load_answer(load);
        return;
    }
    if (load->replies_at_now++ >= REPLIES_A_CLOCK) {
        read_clock(load);
    }
    count_reply(load, since_ns);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void arm(struct sl_bench_load *load, uint64_t due)
{
    sl_timer_arm(sl_reactor_timers(load->reactor), &load->timer, due);
}

static void begin_window(struct sl_bench_load *load)
{
    read_clock(load);
    load->phase = SL_BENCH_LOAD_MEASURING;
    load->window_ns = load->now_ns;
    load->window_cpu_ns = sl_bench_cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    arm(load, load->now_ns + load->measure_ns);
}

/* Requests that were due and could not be sent: they have waited so long at least. */
static void count_unsent(struct sl_bench_load *load)
{
    for (uint32_t i = 0; i < load->connection_count; i++) {
        uint64_t *arrival = &load->connections[i].arrival;
        uint64_t due;
        while ((due = due_ns(load, *arrival)) < load->now_ns) {
            if (due >= load->window_ns) {
                sl_metric_record(&load->result.latency, load->now_ns - due);
                load->result.unsent++;
            }
            *arrival += load->connection_count;
        }
    }
}

static void end_window(struct sl_bench_load *load)
{
    read_clock(load);
    load->phase = SL_BENCH_LOAD_DRAINING;
    load->result.seconds = sl_bench_seconds(load->now_ns - load->window_ns);
    load->result.cpu_seconds =
        sl_bench_seconds(sl_bench_cpu_ns(CLOCK_THREAD_CPUTIME_ID) - load->window_cpu_ns);
    load->result.keys = load->result.requests * load->options.keys;
    if (load->interval_ns > 0) {
        count_unsent(load);
    }
    if (load->under_way == 0) {
        finish_run(load);
    } else {
        arm(load, load->now_ns + PATIENCE_NS);
    }
}

/* A time without an answer tells nothing: on a busy machine it lasts until there is one. */
static bool is_measured(const struct sl_bench_load *load, uint64_t now_ns)
{
    return load->result.requests > 0 || now_ns - load->window_ns >= PATIENCE_NS;
}

static void phase_over(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_bench_load *load = SL_CONTAINER_OF(timer, struct sl_bench_load, timer);
    switch (load->phase) {
    case SL_BENCH_LOAD_WARMING:
        begin_window(load);
        break;
    case SL_BENCH_LOAD_MEASURING:
        if (is_measured(load, now_ns)) {
            end_window(load);
        } else {
            arm(load, now_ns + load->measure_ns);
        }
        break;
    default:
        sl_bench_load_fail(load, SL_ERR_DEADLINE, "%llu requests have had no answer for %llu s",
                           (unsigned long long)load->under_way, PATIENCE_NS / SL_CLOCK_NS_PER_S);
    }
}

void sl_bench_load_begin_run(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_bench_load *load = ctx;
    if (load->phase != SL_BENCH_LOAD_IDLE) {
        sl_bench_load_answer(load);
        return;
    }
    read_clock(load);
    load->result = (struct sl_bench_load_result){0};
    sl_metric_init(&load->result.latency);
    load->replies = 0;
    load->window_ns = SL_CLOCK_NEVER;
    load->begun_ns = load->now_ns;
    load->interval_ns = load->options.rate > 0 ? (double)SL_CLOCK_NS_PER_S / load->options.rate : 0;
    load->arrival = 0;
    load->timer.run = phase_over;
    load->phase = SL_BENCH_LOAD_WARMING;
    for (uint32_t i = 0; i < load->connection_count; i++) {
        load->connections[i].arrival = i;
        sl_bench_load_wake(&load->connections[i]);
    }
    arm(load, load->now_ns + load->warm_up_ns);
}

void sl_bench_load_check(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_bench_load *load = ctx;
    struct sl_bench_load_connection *connection = &load->connections[a];
    if (load->phase != SL_BENCH_LOAD_IDLE) {
        sl_bench_load_answer(load);
        return;
    }
    const bool has_credit = sl_credit_spend(&connection->credit, load->credit_bytes);
    sl_assert(has_credit); /* the welcome's is enough for one, and nothing else is under way */
    load->phase = SL_BENCH_LOAD_CHECKING;
    read_clock(load);
    write_request(connection, load->now_ns);
    sl_bench_load_wake(connection);
}
