/* What applications ask about a segment: its buffers, its state and rails. */
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/engine.h"
#include "net/transfer/error.h"
#include "net/transfer/rails.h"
#include "net/transfer/segment.h"

struct buffers_call {
    struct sl_transfer_call call;
    const struct sl_transfer_segment *segment;
    struct sl_transfer_buffer *buffers;
    uint32_t room, count;
};

static void copy_buffers(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    struct buffers_call *buffers = SL_CONTAINER_OF(call, struct buffers_call, call);
    const struct sl_transfer_remote *remote = buffers->segment->list.remote;
    buffers->count = remote->count;
    for (uint32_t i = 0; i < remote->count && i < buffers->room; i++) {
        const struct sl_transfer_remote_buffer *from = &remote->buffers[i];
        buffers->buffers[i] = (struct sl_transfer_buffer){
            .address = from->address, .bytes = from->bytes, .access = from->access};
        memcpy(buffers->buffers[i].location, from->location, sizeof from->location);
    }
    sl_transfer_io_answer(call, 0, "copied");
}

int sl_transfer_segment_buffers(struct sl_transfer_segment *segment,
                                struct sl_transfer_buffer *buffers, uint32_t room, uint32_t *count)
{
    sl_assert(segment != NULL);
    sl_assert(count != NULL);
    struct buffers_call copy = {
        .call = {.run = copy_buffers}, .segment = segment, .buffers = buffers, .room = room};
    const int err = sl_transfer_io_call(segment->home, &copy.call);
    if (err == 0) {
        *count = copy.count;
    }
    return err;
}

struct info_call {
    struct sl_transfer_call call;
    struct sl_transfer_segment *segment;
    struct sl_transfer_info *info;
};

static void describe_segment(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct info_call *info = SL_CONTAINER_OF(call, struct info_call, call);
    const struct sl_transfer_segment *segment = info->segment;
    struct sl_transfer_info *out = info->info;
    memset(out, 0, sizeof *out);
    memcpy(out->name, segment->name, sizeof out->name);
    out->state = segment->err != 0            ? SL_TRANSFER_SEGMENT_CLOSED
                 : segment->fences.count != 0 ? SL_TRANSFER_SEGMENT_FENCING
                                              : SL_TRANSFER_SEGMENT_OPEN;
    out->rail_count = segment->offer.rail_count;
    for (uint32_t i = 0; i < out->rail_count; i++) {
        const struct sl_rail *rail = &segment->offer.rails[i];
        (void)snprintf(out->rails[i].local, sizeof out->rails[i].local, "%.250s",
                       rail->scheme == SL_ENDPOINT_SHM
                           ? "shared memory"
                           : segment->engine->ios[0].devices[rail->device].endpoint.host);
        sl_endpoint_format(&segment->offer.endpoints[rail->remote], out->rails[i].remote,
                           sizeof out->rails[i].remote);
    }
    sl_transfer_io_answer(call, 0, "described");
}

static void report_rails(struct sl_transfer_io *io, struct sl_transfer_call *call)
{
    const struct info_call *info = SL_CONTAINER_OF(call, struct info_call, call);
    sl_transfer_rails_report(&info->segment->routes[io->index], info->info->rails);
    sl_transfer_io_answer(call, 0, "reported");
}

int sl_transfer_segment_info(struct sl_transfer_segment *segment, struct sl_transfer_info *out)
{
    sl_assert(segment != NULL);
    sl_assert(out != NULL);
    struct info_call info = {.call = {.run = describe_segment}, .segment = segment, .info = out};
    int err = sl_transfer_io_call(segment->home, &info.call);
    info.call.run = report_rails;
    for (uint32_t i = 0; err == 0 && i < segment->engine->settings.reactors.count; i++) {
        err = sl_transfer_io_call(&segment->engine->ios[i], &info.call);
    }
    return err != 0 ? err : sl_transfer_succeed();
}
