#include "bench/bare_ports.h"

#include <string.h>
#include <unistd.h>

#include "bench/fork.h"
#include "bench/now.h"
#include "core/log.h"
#include "net/dpdk/module.h"
#include "reactor/reactor.h"

#define START_MS   30000
#define SLACK_MS   30000
#define HEAD_BYTES 74U /* as Ethernet, IPv4, UDP and the protocol's header have */

/* The start of each packet. The other bytes of HEAD_BYTES are not written. */
struct head {
    uint64_t index;
    uint32_t offset, bytes;
};

/* One of the two, in its process. */
struct side {
    const struct sl_bench_frames *frames;
    uint32_t payload_bytes, piece_bytes;
    struct sl_dpdk_port *port;
    uint8_t *memory; /* [2 * depth] payloads to send, or one that is received */
    uint64_t index;  /* of the payload, and the offset in it */
    uint32_t offset;
};

struct word {
    int err;
    double bytes_per_s;
};

static int open_side(struct side *side, const struct sl_dpdk_options *options, uint32_t payloads)
{
    const char *why;
    const struct sl_dpdk_port_ops *ops = sl_dpdk_module_ports(&why);
    struct sl_reactor *reactor;
    if (ops == NULL) {
        sl_log_error("%s", why);
        return SL_ERR_UNSUPPORTED;
    }
    int err = sl_bench_frames_allocate((size_t)payloads * side->payload_bytes, &side->memory);
    err = err != 0 ? err
                   : sl_reactor_create(&(struct sl_reactor_options){.name = "ports", .core = -1},
                                       &reactor);
    err = err != 0 ? err : sl_reactor_attach(reactor);
    if (err == 0) {
        err = ops->open((void *)(uintptr_t)options, reactor, &side->port, 1);
    }
    return err < 0 ? err : 0;
}

/* The port's timer looks for the link. */
static void await_link(struct side *side)
{
    while (!side->port->ops->link_is_up(side->port)) {
        (void)sl_reactor_drive_once(side->port->reactor);
    }
}

/* ---- Sending --------------------------------------------------------------------------------- */

static void fill(struct side *side, struct sl_dpdk_packet *packet)
{
    const uint32_t left = side->payload_bytes - side->offset;
    const struct head head = {side->index, side->offset,
                              left < side->piece_bytes ? left : side->piece_bytes};
    uint8_t *payload = side->memory + side->index % (2 * (uint64_t)side->frames->depth) *
                                          (uint64_t)side->payload_bytes;
    if (side->offset == 0) {
        sl_bench_frames_touch(payload, side->payload_bytes, side->index);
    }
    memcpy(packet->bytes, &head, sizeof head);
    memcpy(packet->bytes + HEAD_BYTES, payload + head.offset, head.bytes);
    packet->length = HEAD_BYTES + head.bytes;
    side->offset += head.bytes;
    if (side->offset == side->payload_bytes) {
        side->offset = 0;
        side->index++;
    }
}

static void send_some(struct side *side)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    const struct sl_dpdk_port_ops *ops = side->port->ops;
    const uint32_t count = ops->reserve(side->port, packets, SL_DPDK_BURST);
    for (uint32_t i = 0; i < count; i++) {
        fill(side, &packets[i]);
    }
    for (uint32_t done = 0; done < count;) {
        done += ops->send(side->port, packets + done, count - done);
    }
}

static _Noreturn void send_all(struct side *side, int to)
{
    struct word word = {.err = open_side(side, side->frames->of_client, 2 * side->frames->depth)};
    if (word.err != 0) {
        sl_bench_fork_tell(to, &word, sizeof word);
        _exit(1);
    }
    await_link(side);
    for (;;) {
        send_some(side);
    }
}

/* ---- Receiving ------------------------------------------------------------------------------- */

/* False: it is not what follows. */
static bool take(struct side *side, const struct sl_dpdk_packet *packet)
{
    struct head head;
    memcpy(&head, packet->bytes, sizeof head);
    if (head.index != side->index || head.offset != side->offset ||
        head.bytes > side->payload_bytes - side->offset ||
        packet->length != HEAD_BYTES + head.bytes) {
        return false;
    }
    memcpy(side->memory + side->offset, packet->bytes + HEAD_BYTES, head.bytes);
    side->offset += head.bytes;
    if (side->offset < side->payload_bytes) {
        return true;
    }
    side->offset = 0;
    return sl_bench_frames_is_touched(side->memory, side->payload_bytes, side->index++);
}

static bool take_some(struct side *side)
{
    struct sl_dpdk_packet packets[SL_DPDK_BURST];
    const struct sl_dpdk_port_ops *ops = side->port->ops;
    const uint32_t count = ops->receive(side->port, packets, SL_DPDK_BURST);
    bool ok = true;
    for (uint32_t i = 0; i < count && ok; i++) {
        ok = take(side, &packets[i]);
    }
    ops->release(side->port, packets, count);
    return ok;
}

/* Until `end_ns`, or the first payload. */
static int take_until(struct side *side, uint64_t end_ns)
{
    while (end_ns == 0 ? side->index == 0 : sl_bench_now_ns() < end_ns) {
        if (!take_some(side)) {
            sl_log_error("bare ports: a packet is not what was sent");
            return SL_ERR_PROTOCOL;
        }
    }
    return 0;
}

static _Noreturn void receive(struct side *side, const struct sl_bench_common *common, int to)
{
    struct word word = {.err = open_side(side, side->frames->of_server, 1)};
    sl_bench_fork_tell(to, &word, sizeof word);
    if (word.err != 0) {
        _exit(1);
    }
    await_link(side);
    word.err = take_until(side, 0);
    word.err = word.err != 0 ? word.err
                             : take_until(side, sl_bench_now_ns() + sl_bench_ns(common->warm_up));
    const uint64_t before = side->index, begin_ns = sl_bench_now_ns();
    word.err = word.err != 0 ? word.err : take_until(side, begin_ns + sl_bench_ns(common->seconds));
    word.bytes_per_s = (double)(side->index - before) * side->payload_bytes *
                       (double)SL_CLOCK_NS_PER_S / (double)(sl_bench_now_ns() - begin_ns);
    sl_bench_fork_tell(to, &word, sizeof word);
    _exit(0);
}

/* ---- Both ------------------------------------------------------------------------------------ */

static int hear(struct sl_bench_fork *process, uint64_t timeout_ms, struct word *word)
{
    const int err = sl_bench_fork_hear(process, timeout_ms, word, sizeof *word);
    return err != 0 ? err : word->err;
}

int sl_bench_bare_ports_run(const struct sl_bench_frames *frames, uint32_t packet_bytes,
                            const struct sl_bench_common *common, double *bytes_per_s)
{
    struct side side = {.frames = frames,
                        .payload_bytes = frames->bytes - SL_FRAME_HEADER_BYTES,
                        .piece_bytes = (packet_bytes - HEAD_BYTES) & ~7U};
    struct sl_bench_fork server = {.from = -1}, client = {.from = -1};
    const uint64_t lasts_ms = (uint64_t)((common->warm_up + common->seconds) * 1000);
    struct word word;
    int to = -1;
    int err = sl_bench_fork_start(&server, common->server_core, &to);
    if (err == 0 && server.pid == 0) {
        receive(&side, common, to);
    }
    err = err != 0 ? err : hear(&server, START_MS, &word);
    if (err == 0) {
        err = sl_bench_fork_start(&client, common->client_core, &to);
        if (err == 0 && client.pid == 0) {
            send_all(&side, to);
        }
        err = err != 0 ? err : hear(&server, lasts_ms + SLACK_MS, &word);
    }
    sl_bench_fork_end(&client);
    sl_bench_fork_end(&server);
    *bytes_per_s = word.bytes_per_s;
    return err;
}
