#include "tests/unit/net/rdma/fake.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "net/rdma/liveness.h"
#include "tests/support/unit.h"

/* The functions are not told whose they are. */
static struct rdma_fake *current;

/* As a device does: each page is there afterwards. */
static void touch(uint8_t *at, size_t bytes, bool write)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile uint8_t *pages = (uint8_t *)((uintptr_t)at & ~(page - 1));
    for (; pages < at + bytes; pages += page) {
        uint8_t value = *pages;
        if (write) {
            *pages = value;
        }
    }
}

static struct ibv_mr *fake_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    struct rdma_fake *fake = current;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    assert_ptr_equal(pd, &fake->pd);
    bool writes = (access & (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)) != 0;
    if (writes && fake->read_only != 0 && ((uintptr_t)at & ~(page - 1)) == fake->read_only) {
        errno = EFAULT;
        return NULL;
    }
    if (fake->live_bytes_max != 0 && fake->live_bytes + bytes > fake->live_bytes_max) {
        errno = ENOMEM;
        return NULL;
    }
    uint32_t index = 0;
    while (fake->regions[index].live) {
        index++;
        assert_true(index < RDMA_FAKE_REGIONS);
    }
    fake->registered++;
    fake->live_bytes += bytes;
    fake->regions[index] = (struct rdma_fake_region){
        .mr = {.lkey = fake->registered << 1, .rkey = fake->registered << 1 | 1},
        .at = (uintptr_t)at,
        .bytes = bytes,
        .access = access,
        .live = true};
    touch(at, bytes, writes);
    return &fake->regions[index].mr;
}

static int fake_dereg_mr(struct ibv_mr *mr)
{
    struct rdma_fake_region *region = (struct rdma_fake_region *)mr;
    assert_true(region->live);
    region->live = false;
    current->live_bytes -= region->bytes;
    current->deregistered++;
    return 0;
}

static int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *requests,
                              struct ibv_recv_wr **refused)
{
    struct rdma_fake *fake = current;
    assert_ptr_equal(srq, &fake->srq);
    fake->post_calls++;
    for (struct ibv_recv_wr *request = requests; request != NULL; request = request->next) {
        if (fake->posted_count == fake->post_max) {
            *refused = request;
            return ENOMEM;
        }
        assert_int_equal(request->num_sge, 1);
        assert_int_equal(request->sg_list->length, SL_RDMA_PACKET_BYTES);
        fake->posted[fake->posted_count++] = request->wr_id;
    }
    return 0;
}

static int fake_resize_cq(struct ibv_cq *cq, int entries)
{
    current->resizes++;
    cq->cqe = entries;
    return 0;
}

static uint64_t now_ns(void *ctx)
{
    return ((const struct rdma_fake *)ctx)->now_ns;
}

void rdma_fake_sleep(struct rdma_fake *fake, uint32_t ms)
{
    fake->now_ns += ms * SL_CLOCK_NS_PER_MS;
    (void)sl_reactor_turn(fake->reactor, fake->now_ns);
}

static void make_reactor(struct rdma_fake *fake)
{
    fake->now_ns = SL_CLOCK_NS_PER_S;
    fake->clock = (struct sl_clock){.now_ns = now_ns, .ctx = fake};
    struct sl_reactor_options options = {
        .core = -1, .stepped = true, .clock = &fake->clock, .seed = 1, .name = "fake"};
    assert_int_equal(sl_reactor_create(&options, &fake->reactor), 0);
}

void rdma_fake_init(struct rdma_fake *fake)
{
    memset(fake, 0, sizeof *fake);
    current = fake;
    make_reactor(fake);
    sl_transport_init(&fake->rdma.base, fake->reactor, &(struct sl_transport_options){0});
    fake->rdma.base.cells = &fake->rdma.base.own_cells;
    sl_list_init(&fake->rdma.dirty);
    sl_list_init(&fake->rdma.ready);
    sl_rdma_liveness_open(&fake->rdma);
    fake->library.reg_mr = fake_reg_mr;
    fake->library.dereg_mr = fake_dereg_mr;
    fake->library.resize_cq = fake_resize_cq;
    fake->verbs.device = &fake->device;
    fake->verbs.ops.post_srq_recv = fake_post_srq_recv;
    fake->verbs.async_fd = -1;
    fake->srq.context = &fake->verbs;
    fake->cq.cqe = 1024;
    fake->post_max = RDMA_FAKE_POSTED;
    fake->rdma.library = &fake->library;
    fake->rdma.nics = &fake->nic;
    fake->rdma.options.buffers_max = 1024;
    fake->nic = (struct sl_rdma_nic){.rdma = &fake->rdma,
                                     .verbs = &fake->verbs,
                                     .name = "fake0",
                                     .pd = &fake->pd,
                                     .cq = &fake->cq,
                                     .srq = &fake->srq,
                                     .caps = {.cqe_max = 65536, .resizes = true},
                                     .cq_entries = 1024,
                                     .srq_entries = 2048,
                                     .member = {.wake_fd = -1}};
}

void rdma_fake_fini(struct rdma_fake *fake)
{
    assert_int_equal(fake->registered, fake->deregistered);
    assert_int_equal(fake->live_bytes, 0);
    sl_rdma_liveness_close(&fake->rdma);
    sl_reactor_destroy(&fake->reactor);
    current = NULL;
}

const struct rdma_fake_region *rdma_fake_region_of(const struct rdma_fake *fake, uint32_t key)
{
    for (uint32_t i = 0; i < RDMA_FAKE_REGIONS; i++) {
        const struct rdma_fake_region *region = &fake->regions[i];
        if (region->live && (region->mr.lkey == key || region->mr.rkey == key)) {
            return region;
        }
    }
    return NULL;
}

struct ibv_wc rdma_fake_fill(struct rdma_fake *fake, enum ibv_wc_status status)
{
    assert_true(fake->posted_count > 0);
    struct ibv_wc wc = {.wr_id = fake->posted[0], .status = status};
    fake->posted_count--;
    memmove(fake->posted, fake->posted + 1, fake->posted_count * sizeof fake->posted[0]);
    return wc;
}
