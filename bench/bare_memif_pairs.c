#include <rte_pause.h>
#include <stdlib.h>

#include "bench/bare_memif.h"
#include "bench/touch.h"
#include "core/clock.h"
#include "core/log.h"

static uint64_t now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

static void write_packet(const struct sl_bench_bare *bare, struct rte_mbuf *mbuf, uint32_t index)
{
    uint8_t *packet = rte_pktmbuf_mtod(mbuf, uint8_t *);
    memset(packet, 0, bare->packet_bytes);
    memcpy(packet, &index, sizeof index);
    mbuf->data_len = (uint16_t)bare->packet_bytes;
    mbuf->pkt_len = bare->packet_bytes;
}

static bool is_sound(const struct sl_bench_bare *bare, const struct rte_mbuf *mbuf, uint32_t index)
{
    const uint8_t *packet = rte_pktmbuf_mtod(mbuf, const uint8_t *);
    return mbuf->data_len == bare->packet_bytes &&
           sl_bench_touch_read(packet, bare->packet_bytes) == index;
}

/* What is taken, whole: the other side polls. */
static void send_all(const struct sl_bench_bare_device *device, struct rte_mbuf **mbufs,
                     uint16_t count)
{
    for (uint16_t done = 0; done < count;) {
        done = (uint16_t)(done +
                          rte_eth_tx_burst(device->id, 0, mbufs + done, (uint16_t)(count - done)));
    }
}

/* The answer is written over what was asked. */
void sl_bench_bare_answer(const struct sl_bench_bare *bare,
                          const struct sl_bench_bare_device *device)
{
    struct rte_mbuf *mbufs[SL_BENCH_BARE_BURST];
    for (uint32_t next = 0;;) {
        const uint16_t count = rte_eth_rx_burst(device->id, 0, mbufs, SL_BENCH_BARE_BURST);
        for (uint16_t i = 0; i < count; i++, next++) {
            if (!is_sound(bare, mbufs[i], next)) {
                sl_log_error("not what was asked");
                return;
            }
            write_packet(bare, mbufs[i], next);
        }
        send_all(device, mbufs, count);
    }
}

struct asking {
    const struct sl_bench_bare *bare;
    const struct sl_bench_bare_device *device;
    uint32_t sent, answered;
    uint64_t since_ns; /* of the one that is under way, where it is one */
    struct sl_metric_histogram *latency;
};

static void ask_some(struct asking *asking)
{
    struct rte_mbuf *mbufs[SL_BENCH_BARE_BURST];
    const uint32_t left = asking->bare->depth - (asking->sent - asking->answered);
    const uint16_t count = (uint16_t)(left < SL_BENCH_BARE_BURST ? left : SL_BENCH_BARE_BURST);
    if (count == 0 || rte_pktmbuf_alloc_bulk(asking->device->pool, mbufs, count) != 0) {
        return;
    }
    for (uint16_t i = 0; i < count; i++) {
        write_packet(asking->bare, mbufs[i], asking->sent++);
    }
    send_all(asking->device, mbufs, count);
}

static bool take_answers(struct asking *asking)
{
    struct rte_mbuf *mbufs[SL_BENCH_BARE_BURST];
    const uint16_t count = rte_eth_rx_burst(asking->device->id, 0, mbufs, SL_BENCH_BARE_BURST);
    bool ok = true;
    for (uint16_t i = 0; i < count; i++) {
        ok = ok && is_sound(asking->bare, mbufs[i], asking->answered++);
    }
    rte_pktmbuf_free_bulk(mbufs, count);
    if (count > 0 && asking->bare->part == SL_BENCH_BARE_TRIPS) {
        const uint64_t time_ns = now_ns();
        sl_metric_record(asking->latency, time_ns - asking->since_ns);
        asking->since_ns = time_ns;
    }
    return ok;
}

/* Both tables poll in the same way: what comes is taken, what there is room for is sent. */
static int ask_until(struct asking *asking, uint64_t end_ns)
{
    while (now_ns() < end_ns) {
        for (uint32_t i = 0; i < 16; i++) {
            ask_some(asking);
            if (!take_answers(asking)) {
                sl_log_error("not the answer");
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

int sl_bench_bare_ask(const struct sl_bench_bare *bare, const struct sl_bench_bare_device *device,
                      struct sl_bench_bare_result *out)
{
    struct asking asking = {
        .bare = bare, .device = device, .since_ns = now_ns(), .latency = &out->latency};
    int err = ask_until(&asking, now_ns() + ns_of(bare->warm_up));
    const uint32_t before = asking.answered;
    const uint64_t begin_ns = now_ns();
    sl_metric_init(&out->latency);
    err = err != 0 ? err : ask_until(&asking, begin_ns + ns_of(bare->seconds));
    out->seconds = (double)(now_ns() - begin_ns) / (double)SL_CLOCK_NS_PER_S;
    out->each[0] = asking.answered - before;
    return err != 0 || out->each[0] > 0 ? err : SL_ERR_DEADLINE;
}
