#include "bench/bare_verbs.h"

#include <arpa/inet.h>
#include <string.h>
#include <unistd.h>

#include "bench/bare_verbs_link.h"
#include "bench/fork.h"
#include "core/assert.h"
#include "core/clock.h"
#include "core/log.h"

#define START_MS     30000
#define SLACK_MS     30000
#define SIGNAL_EVERY 8U /* messages; of READs each */
#define POLL_BATCH   16
#define IS_SEND      (1ULL << 32) /* wr_id of what is sent, and of a READ the push's number too */
#define IS_READ      (1ULL << 33)

/* A push is known by its number: connection * depth + place. */
struct message {
    enum kind { PUSH, ASK, GRANT, WRITTEN, DONE } kind;
    uint32_t number;
    uint64_t at;
    uint32_t key;
    uint32_t unused[11];
};
_Static_assert(sizeof(struct message) == SL_BENCH_VERBS_MESSAGE_BYTES, "");

struct peer_memory {
    uint64_t at;
    uint32_t key; /* at 0: not granted */
};

struct run {
    const struct sl_bench_bare_verbs *verbs;
    struct sl_bench_verbs_side side;
    uint32_t sends;
    bool is_server;
    struct peer_memory granted[SL_BENCH_BARE_VERBS_CONNECTIONS_MAX * SL_BENCH_BARE_VERBS_DEPTH_MAX];

    /* The worker's. */
    uint64_t begin_ns, end_ns; /* pushes are begun between these; then those under way are ended */
    uint64_t begun, counted;
    bool is_done;
};

struct word {
    int err;
    uint16_t port;
    double pushes_per_s;
};

/* ---- What is posted -------------------------------------------------------------------------- */

static uint64_t memory_of(const struct run *run, uint32_t number)
{
    return (uintptr_t)(run->side.memory + (uint64_t)number * run->verbs->bytes);
}

static int post(struct run *run, uint32_t number, struct ibv_send_wr *request)
{
    struct ibv_send_wr *bad;
    const int error = ibv_post_send(run->side.ids[number / run->verbs->depth]->qp, request, &bad);
    if (error != 0) {
        sl_log_error("verbs: the device takes no work: %s", strerror(error));
    }
    return error == 0 ? 0 : SL_ERR_IO;
}

static unsigned flags_of_next(struct run *run)
{
    return ++run->sends % SIGNAL_EVERY == 0 ? IBV_SEND_SIGNALED : 0;
}

/* front: a work request for the same queue pair, posted with it; or NULL. */
static int tell(struct run *run, enum kind kind, uint32_t number, struct ibv_send_wr *front)
{
    struct message message = {.kind = kind, .number = number};
    struct ibv_sge sge = {.addr = (uintptr_t)&message, .length = sizeof message};
    struct ibv_send_wr request = {.wr_id = IS_SEND,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_SEND,
                                  .send_flags = IBV_SEND_INLINE | flags_of_next(run)};
    message.at = memory_of(run, number);
    message.key = run->side.mr->rkey;
    if (front != NULL) {
        front->next = &request;
    }
    return post(run, number, front != NULL ? front : &request);
}

static struct ibv_sge payload_of(const struct run *run, uint32_t number)
{
    return (struct ibv_sge){
        .addr = memory_of(run, number), .length = run->verbs->bytes, .lkey = run->side.mr->lkey};
}

static int read_push(struct run *run, const struct message *message)
{
    struct ibv_sge sge = payload_of(run, message->number);
    struct ibv_send_wr request = {.wr_id = IS_SEND | IS_READ | message->number,
                                  .sg_list = &sge,
                                  .num_sge = 1,
                                  .opcode = IBV_WR_RDMA_READ,
                                  .send_flags = IBV_SEND_SIGNALED};
    request.wr.rdma.remote_addr = message->at;
    request.wr.rdma.rkey = message->key;
    return post(run, message->number, &request);
}

static int write_push(struct run *run, uint32_t number)
{
    struct ibv_sge sge = payload_of(run, number);
    struct ibv_send_wr request = {
        .wr_id = IS_SEND, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
    request.wr.rdma.remote_addr = run->granted[number].at;
    request.wr.rdma.rkey = run->granted[number].key;
    request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    request.imm_data = htonl(number);
    request.send_flags = flags_of_next(run);
    return post(run, number, &request);
}

/* ---- The worker ------------------------------------------------------------------------------ */

static int begin(struct run *run, uint32_t number)
{
    if (run->verbs->way == SL_BENCH_BARE_VERBS_READ) {
        return tell(run, PUSH, number, NULL);
    }
    const bool may_write =
        run->verbs->way == SL_BENCH_BARE_VERBS_GRANTED && run->granted[number].at != 0;
    return may_write ? write_push(run, number) : tell(run, ASK, number, NULL);
}

static int begin_all(struct run *run, const struct sl_bench_common *common)
{
    const uint32_t count = run->verbs->connections * run->verbs->depth;
    int err = 0;
    run->begin_ns = sl_clock_now_ns(sl_clock_system());
    run->end_ns = run->begin_ns + (uint64_t)(common->seconds * (double)SL_CLOCK_NS_PER_S);
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = begin(run, i);
    }
    run->begun = count;
    return err;
}

/* What was begun is ended, and all of it counts: pushes that are read at the same time end in
 * bursts, of which a part would say nothing. */
static int count_push(struct run *run, uint32_t number)
{
    const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
    run->counted++;
    if (now_ns < run->end_ns) {
        run->begun++;
        return begin(run, number);
    }
    run->is_done = run->counted == run->begun;
    run->end_ns = now_ns;
    return 0;
}

/* ---- Both ------------------------------------------------------------------------------------ */

static int heard(struct run *run, const struct message *message)
{
    switch (message->kind) {
    case PUSH:
        return read_push(run, message);
    case ASK:
        return tell(run, GRANT, message->number, NULL);
    case GRANT:
        run->granted[message->number] =
            (struct peer_memory){.at = message->at, .key = message->key};
        return write_push(run, message->number);
    case WRITTEN:
        return tell(run, DONE, message->number, NULL);
    case DONE:
        return count_push(run, message->number);
    }
    return SL_ERR_PROTOCOL;
}

static int received(struct run *run, const struct ibv_wc *wc)
{
    const uint32_t buffer = (uint32_t)wc->wr_id;
    struct message message = {.kind = WRITTEN, .number = ntohl(wc->imm_data)};
    if (wc->opcode != IBV_WC_RECV_RDMA_WITH_IMM) {
        memcpy(&message, run->side.messages + (uint64_t)buffer * sizeof message, sizeof message);
    }
    const int err = sl_bench_verbs_post_receive(&run->side, buffer);
    if (err != 0 || message.number >= run->verbs->connections * run->verbs->depth) {
        return err != 0 ? err : SL_ERR_PROTOCOL;
    }
    return heard(run, &message);
}

static int take(struct run *run, const struct ibv_wc *wc)
{
    if (wc->status != IBV_WC_SUCCESS) {
        sl_log_error("verbs: %s", run->side.library->wc_status_str(wc->status));
        return SL_ERR_IO;
    }
    if ((wc->wr_id & IS_SEND) == 0) {
        return received(run, wc);
    }
    return (wc->wr_id & IS_READ) != 0 ? tell(run, DONE, (uint32_t)wc->wr_id, NULL) : 0;
}

static int drive(struct run *run)
{
    struct ibv_wc seen[POLL_BATCH];
    int err = 0;
    while (err == 0 && !run->is_done) {
        const int count = ibv_poll_cq(run->side.cq, POLL_BATCH, seen);
        for (int i = 0; err == 0 && i < count && !run->is_done; i++) {
            err = take(run, &seen[i]);
        }
    }
    return err;
}

static int open_run(struct run *run, const struct sl_bench_bare_verbs *verbs)
{
    memset(run, 0, sizeof *run);
    run->verbs = verbs;
    return sl_bench_verbs_open(&run->side, verbs->connections,
                               (uint64_t)verbs->connections * verbs->depth * verbs->bytes);
}

static void serve(struct run *run, const struct sl_bench_bare_verbs *verbs, int to)
{
    struct word word = {.err = open_run(run, verbs)};
    if (word.err == 0) {
        word.err = sl_bench_verbs_listen(&run->side, verbs->address, &word.port);
    }
    sl_bench_fork_tell(to, &word, sizeof word);
    if (word.err == 0 && sl_bench_verbs_accept(&run->side) == 0) {
        (void)drive(run);
    }
    _exit(1); /* it is killed, when all is well */
}

static void work(struct run *run, const struct sl_bench_bare_verbs *verbs, uint16_t port,
                 const struct sl_bench_common *common, int to)
{
    struct word word = {.err = open_run(run, verbs)};
    if (word.err == 0) {
        word.err = sl_bench_verbs_connect(&run->side, verbs->address, port);
    }
    word.err = word.err != 0 ? word.err : begin_all(run, common);
    word.err = word.err != 0 ? word.err : drive(run);
    if (word.err == 0) {
        word.pushes_per_s = (double)run->counted * (double)SL_CLOCK_NS_PER_S /
                            (double)(run->end_ns - run->begin_ns);
    }
    sl_bench_fork_tell(to, &word, sizeof word);
    _exit(0);
}

static int hear(struct sl_bench_fork *process, uint64_t timeout_ms, struct word *word)
{
    const int err = sl_bench_fork_hear(process, timeout_ms, word, sizeof *word);
    return err != 0 ? err : word->err;
}

static int run_both(const struct sl_bench_bare_verbs *verbs, const struct sl_bench_common *common,
                    struct word *word)
{
    static struct run run;
    struct sl_bench_fork server = {.from = -1}, worker = {.from = -1};
    const uint64_t lasts_ms = (uint64_t)((common->warm_up + common->seconds) * 1000);
    int to = -1;
    int err = sl_bench_fork_start(&server, common->server_core, &to);
    if (err == 0 && server.pid == 0) {
        serve(&run, verbs, to);
    }
    err = err != 0 ? err : hear(&server, START_MS, word);
    if (err == 0) {
        err = sl_bench_fork_start(&worker, common->client_core, &to);
        if (err == 0 && worker.pid == 0) {
            work(&run, verbs, word->port, common, to);
        }
        err = err != 0 ? err : hear(&worker, lasts_ms + SLACK_MS, word);
    }
    sl_bench_fork_end(&worker);
    sl_bench_fork_end(&server);
    return err;
}

int sl_bench_bare_verbs_run(const struct sl_bench_bare_verbs *verbs,
                            const struct sl_bench_common *common, double *pushes_per_s)
{
    struct word word;
    sl_assert(verbs->bytes > 0);
    sl_assert(verbs->connections >= 1);
    sl_assert(verbs->connections <= SL_BENCH_BARE_VERBS_CONNECTIONS_MAX);
    sl_assert(verbs->depth >= 1);
    sl_assert(verbs->depth <= SL_BENCH_BARE_VERBS_DEPTH_MAX);
    const int err = run_both(verbs, common, &word);
    if (err != 0) {
        sl_log_error("pushes by verbs alone: %s", sl_err_name(err));
    } else {
        *pushes_per_s = word.pushes_per_s;
    }
    return err;
}
