#include "reactor/view.h"

#include <stdlib.h>

#include "core/list.h"

struct sl_view_buffer {
    uint64_t taken_ns; /* time of the turn of the first slice */
    _Alignas(max_align_t) uint8_t bytes[];
};

/* Buffer n % 2 has view n. */
struct sl_view {
    struct sl_view_buffer *buffers[2];

    /* Reader: */
    struct sl_mailbox_lane *lane;
    uint64_t requested; /* number of the view that was requested last */

    /* Written by the owner, after the view of that number; 0: none. */
    _Atomic uint64_t published;

    /* Owner: */
    struct sl_reactor *reactor;
    struct sl_reactor_source source; /* added while a view is filled */
    bool is_filling;
    uint32_t slice; /* the next one */
    sl_view_fill_fn *fill;
    void *ctx;
};

static void stop_filling(struct sl_view *view)
{
    if (view->is_filling) {
        sl_reactor_remove_source(view->reactor, &view->source);
        view->is_filling = false;
    }
}

static uint32_t poll_slice(struct sl_reactor_source *source, uint32_t budget)
{
    struct sl_view *view = SL_CONTAINER_OF(source, struct sl_view, source);
    const uint64_t number = atomic_load_explicit(&view->published, memory_order_relaxed) + 1;
    struct sl_view_buffer *into = view->buffers[number % 2];
    if (view->slice == 0) {
        into->taken_ns = sl_reactor_now_ns(view->reactor);
    }
    if (view->fill(view->ctx, into->bytes, view->slice++)) {
        stop_filling(view);
        /* A reader that acquires the number also sees the contents. */
        atomic_store_explicit(&view->published, number, memory_order_release);
    }
    return 1;
}

static bool is_armed(struct sl_reactor_source *source)
{
    return false; /* the next slice is due */
}

/* Mail of the reader. */
static void reactor_view_begin(void *ctx, uint64_t a, uint64_t b)
{
    struct sl_view *view = ctx;
    sl_assert(!view->is_filling);
    view->is_filling = true;
    view->slice = 0;
    sl_reactor_add_source(view->reactor, &view->source);
}

int sl_view_create(struct sl_reactor *reactor, size_t bytes, sl_view_fill_fn *fill, void *ctx,
                   struct sl_view **out)
{
    struct sl_view *view = calloc(1, sizeof *view);
    if (view == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *view = (struct sl_view){
        .reactor = reactor,
        .source = {.name = "view", .poll = poll_slice, .arm = is_armed},
        .fill = fill,
        .ctx = ctx,
    };
    int err = SL_ERR_NO_MEMORY;
    for (uint32_t i = 0; i < 2; i++) {
        view->buffers[i] = calloc(1, sizeof *view->buffers[i] + bytes);
        if (view->buffers[i] == NULL) {
            goto destroy;
        }
    }
    err = sl_mailbox_lane_open(sl_reactor_mailbox(reactor), &view->lane);
    if (err == 0) {
        *out = view;
        return 0;
    }
destroy:
    sl_view_destroy(&view);
    return err;
}

void sl_view_destroy(struct sl_view **view)
{
    if (*view == NULL) {
        return;
    }
    stop_filling(*view);
    sl_mailbox_lane_close(&(*view)->lane);
    free((*view)->buffers[0]);
    free((*view)->buffers[1]);
    free(*view);
    *view = NULL;
}

static uint64_t published(const struct sl_view *view)
{
    return atomic_load_explicit(&view->published, memory_order_acquire);
}

bool sl_view_is_answered(const struct sl_view *view)
{
    return published(view) == view->requested;
}

void sl_view_request(struct sl_view *view)
{
    if (!sl_view_is_answered(view)) {
        return;
    }
    /* A lane with one mail at a time is never full. */
    int err = sl_mailbox_post(view->lane, (struct sl_mail){.run = reactor_view_begin, .ctx = view});
    sl_assert(err == 0);
    view->requested++;
}

const void *sl_view_read(const struct sl_view *view, uint64_t now_ns, uint64_t *age_ns)
{
    const uint64_t number = published(view);
    if (number == 0) {
        return NULL;
    }
    const struct sl_view_buffer *buffer = view->buffers[number % 2];
    *age_ns = now_ns > buffer->taken_ns ? now_ns - buffer->taken_ns : 0;
    return buffer->bytes;
}
