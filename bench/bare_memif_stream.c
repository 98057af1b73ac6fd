#include <rte_pause.h>
#include <stdlib.h>

#include "bench/bare_memif.h"
#include "bench/touch.h"
#include "core/clock.h"
#include "core/log.h"

/* The head of a packet; what follows of SL_BENCH_BARE_HEAD_BYTES is left as it is. */
struct head {
    uint32_t index, offset, bytes;
};

static uint64_t now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

/* ---- Sending --------------------------------------------------------------------------------- */

struct sender {
    const struct sl_bench_bare_device *device;
    uint8_t *arrays; /* [depth][frame_bytes] */
    uint32_t index, offset;
    struct rte_mbuf *mbufs[SL_BENCH_BARE_BURST]; /* filled, from `done` to `count` not taken */
    uint32_t done, count;
};

static void fill(const struct sl_bench_bare *bare, struct sender *sender, struct rte_mbuf *mbuf)
{
    const uint32_t most = (bare->packet_bytes - SL_BENCH_BARE_HEAD_BYTES) & ~7U;
    const uint32_t left = bare->frame_bytes - sender->offset;
    const uint32_t bytes = left < most ? left : most;
    uint8_t *array = sender->arrays + sender->index % bare->depth * (size_t)bare->frame_bytes;
    uint8_t *packet = rte_pktmbuf_mtod(mbuf, uint8_t *);
    const struct head head = {sender->index, sender->offset, bytes};
    if (sender->offset == 0) {
        sl_bench_touch_write(array, bare->frame_bytes, sender->index);
    }
    memcpy(packet, &head, sizeof head);
    memcpy(packet + SL_BENCH_BARE_HEAD_BYTES, array + sender->offset, bytes);
    mbuf->data_len = (uint16_t)(SL_BENCH_BARE_HEAD_BYTES + bytes);
    mbuf->pkt_len = mbuf->data_len;
    sender->offset += bytes;
    if (sender->offset == bare->frame_bytes) {
        sender->offset = 0;
        sender->index++;
    }
}

static void send_some(const struct sl_bench_bare *bare, struct sender *sender)
{
    if (sender->done == sender->count) {
        sender->done = sender->count = 0;
        if (rte_pktmbuf_alloc_bulk(sender->device->pool, sender->mbufs, SL_BENCH_BARE_BURST) != 0) {
            return;
        }
        while (sender->count < SL_BENCH_BARE_BURST) {
            fill(bare, sender, sender->mbufs[sender->count++]);
        }
    }
    sender->done += rte_eth_tx_burst(sender->device->id, 0, sender->mbufs + sender->done,
                                     (uint16_t)(sender->count - sender->done));
}

void sl_bench_bare_send_stream(const struct sl_bench_bare *bare,
                               const struct sl_bench_bare_device *devices)
{
    static struct sender senders[SL_BENCH_BARE_SENDERS_MAX];
    for (uint32_t i = 0; i < bare->senders; i++) {
        senders[i].device = &devices[i];
        senders[i].arrays = calloc(bare->depth, bare->frame_bytes);
        if (senders[i].arrays == NULL) {
            sl_log_error("no memory to send from");
            return;
        }
    }
    for (;;) {
        for (uint32_t i = 0; i < bare->senders; i++) {
            send_some(bare, &senders[i]);
        }
    }
}

/* ---- Receiving ------------------------------------------------------------------------------- */

struct taker {
    uint8_t *array; /* MOVED */
    uint32_t index, offset;
    uint64_t sum;
    uint64_t frames;
};

/* False: it is not what follows. */
static bool take(const struct sl_bench_bare *bare, struct taker *taker, struct rte_mbuf *mbuf)
{
    const uint8_t *packet = rte_pktmbuf_mtod(mbuf, const uint8_t *);
    const uint8_t *body = packet + SL_BENCH_BARE_HEAD_BYTES;
    struct head head;
    memcpy(&head, packet, sizeof head);
    if (head.index != taker->index || head.offset != taker->offset ||
        mbuf->data_len != SL_BENCH_BARE_HEAD_BYTES + head.bytes) {
        return false;
    }
    if (bare->part == SL_BENCH_BARE_MOVED) {
        memcpy(taker->array + head.offset, body, head.bytes);
    } else {
        taker->sum += sl_bench_touch_read(body, head.bytes);
    }
    taker->offset += head.bytes;
    return true;
}

static bool end_frame(const struct sl_bench_bare *bare, struct taker *taker)
{
    if (bare->part == SL_BENCH_BARE_MOVED) {
        taker->sum = sl_bench_touch_read(taker->array, bare->frame_bytes);
    }
    const bool ok = taker->sum == sl_bench_touch_sum(bare->frame_bytes, taker->index);
    taker->index++;
    taker->offset = 0;
    taker->sum = 0;
    taker->frames++;
    return ok;
}

/* Returns whether all was well. */
static bool take_some(const struct sl_bench_bare *bare, const struct sl_bench_bare_device *device,
                      struct taker *taker)
{
    struct rte_mbuf *mbufs[SL_BENCH_BARE_BURST];
    const uint16_t count = rte_eth_rx_burst(device->id, 0, mbufs, SL_BENCH_BARE_BURST);
    bool ok = true;
    for (uint16_t i = 0; i < count && ok; i++) {
        ok = take(bare, taker, mbufs[i]);
        ok = ok && (taker->offset < bare->frame_bytes || end_frame(bare, taker));
    }
    rte_pktmbuf_free_bulk(mbufs, count);
    return ok;
}

static bool all_began(const struct sl_bench_bare *bare, const struct taker *takers)
{
    for (uint32_t i = 0; i < bare->senders; i++) {
        if (takers[i].frames == 0) {
            return false;
        }
    }
    return true;
}

/* Until the time, or for ever where it is 0 and not all have begun. */
static int take_until(const struct sl_bench_bare *bare, const struct sl_bench_bare_device *devices,
                      struct taker *takers, uint64_t end_ns)
{
    while (end_ns != 0 ? now_ns() < end_ns : !all_began(bare, takers)) {
        for (uint32_t i = 0; i < bare->senders; i++) {
            if (!take_some(bare, &devices[i], &takers[i])) {
                sl_log_error("sender %u: not what was sent", i);
                return SL_ERR_PROTOCOL;
            }
        }
    }
    return 0;
}

static uint64_t ns_of(double seconds)
{
    return (uint64_t)(seconds * (double)SL_CLOCK_NS_PER_S);
}

int sl_bench_bare_take_stream(const struct sl_bench_bare *bare,
                              const struct sl_bench_bare_device *devices,
                              struct sl_bench_bare_result *out)
{
    static struct taker takers[SL_BENCH_BARE_SENDERS_MAX];
    for (uint32_t i = 0; i < bare->senders; i++) {
        takers[i].array = calloc(1, bare->frame_bytes);
        if (takers[i].array == NULL) {
            return SL_ERR_NO_MEMORY;
        }
    }
    int err = take_until(bare, devices, takers, 0);
    err = err != 0 ? err : take_until(bare, devices, takers, now_ns() + ns_of(bare->warm_up));
    const uint64_t begin_ns = now_ns();
    for (uint32_t i = 0; i < bare->senders; i++) {
        out->each[i] = takers[i].frames;
    }
    err = err != 0 ? err : take_until(bare, devices, takers, begin_ns + ns_of(bare->seconds));
    out->seconds = (double)(now_ns() - begin_ns) / (double)SL_CLOCK_NS_PER_S;
    for (uint32_t i = 0; i < bare->senders; i++) {
        out->each[i] = takers[i].frames - out->each[i];
    }
    return err;
}
