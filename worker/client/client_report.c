#include "worker/client/client_report.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "core/list.h"
#include "core/metrics_process.h"
#include "core/struct_size.h"
#include "net/session/report.h"
#include "worker/client/client_internal.h"
#include "worker/client/client_metrics.h"

#define INTERVAL_NS SL_CLOCK_NS_PER_S
#define RETRY_NS    (SL_CLOCK_NS_PER_S / 16)

/* False: another thread is reading the metrics, and this report is left out. */
static bool add_steps(struct sl_client_io *io, struct sl_report_client *report)
{
    struct sl_cell_copy times = {0};
    if (!sl_client_metrics_step_times(io->options->metrics, &times)) {
        return false;
    }
    report->steps = times.count;
    struct sl_cell_copy last = times;
    sl_cell_copy_since(&last, &io->coordinator.step_time);
    io->coordinator.step_time = times;
    report->step_p99_us = (uint32_t)(sl_cell_quantile_ns(&last, 0.99) / SL_CLOCK_NS_PER_US);
    return true;
}

static void add_requests(const struct sl_client_io *io, struct sl_report_client *report)
{
    for (uint32_t i = 0; i < io->io_count; i++) { /* the client_ios are one array */
        const struct sl_client_io_cells *cells = &io[i].cells;
        const uint32_t clock = (uint32_t)sl_cell_get(&cells->clock);
        for (uint32_t kind = 0; kind < SL_REQUEST_KINDS; kind++) {
            report->requests += sl_cell_get(&cells->requests[kind]);
        }
        report->in_flight += (uint32_t)sl_cell_get(&cells->in_flight);
        report->reconnects += sl_cell_get(&cells->reconnects);
        report->clock = clock > report->clock ? clock : report->clock;
    }
}

#define TRAINING_WORDS (sizeof(struct sl_training) / sizeof(uint64_t))
static_assert(sizeof(struct sl_training) % sizeof(uint64_t) == 0, "it is copied in words");

static int check_training(const struct sl_training *training, struct sl_reason *reason)
{
    const size_t room = sizeof training->metric_name;
    const size_t length = strnlen(training->metric_name, room);
    bool is_printable = length < room;
    for (size_t i = 0; i < length; i++) {
        is_printable &= training->metric_name[i] >= ' ' && training->metric_name[i] <= '~';
    }
    if (!is_printable) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "metric_name: accepted are up to %zu characters of printable ASCII",
                              room - 1);
    }
    return training->samples <= SL_REPORT_COUNTER_MAX
               ? 0
               : sl_reason_fail(reason, SL_ERR_INVALID, "samples: accepted is below 2^63");
}

int sl_client_set_training(struct sl_client *client, const struct sl_training *training)
{
    struct sl_training own;
    struct sl_reason reason;
    int err = sl_struct_size_read(training, &own, sizeof own, "SL_TRAINING_INIT", &reason);
    err = err != 0 ? err : check_training(&own, &reason);
    if (err != 0) {
        return sl_reason_report(err, "training: %s", reason.text);
    }
    own.struct_size = 0;
    for (size_t i = 0; i < TRAINING_WORDS; i++) {
        uint64_t word;
        memcpy(&word, (const char *)&own + i * sizeof word, sizeof word);
        sl_cell_set(&client->io_options.training[i], word);
    }
    return 0;
}

static void add_training(const struct sl_client_io_options *options,
                         struct sl_report_client *report)
{
    static const struct sl_training none;
    struct sl_training *training = &report->training;
    for (size_t i = 0; i < TRAINING_WORDS; i++) {
        const uint64_t word = sl_cell_get(&options->training[i]);
        memcpy((char *)training + i * sizeof word, &word, sizeof word);
    }
    report->has_training = memcmp(training, &none, sizeof none) != 0;
    training->metric_name[sizeof training->metric_name - 1] = '\0'; /* it was being changed */
}

static void send_report(struct sl_client_io *io, uint64_t now_ns)
{
    const char *http = atomic_load_explicit(&io->options->http, memory_order_acquire);
    struct sl_report report = {
        .uptime_ms = (now_ns - io->coordinator.begun_ns) / SL_CLOCK_NS_PER_MS + 1,
        .memory = sl_metrics_process_resident_bytes(),
        .has_client = true,
    };
    struct sl_message message = {.kind = SL_MESSAGE_REPORT};
    (void)snprintf(report.http, sizeof report.http, "%s", http == NULL ? "" : http);
    add_requests(io, &report.client);
    add_training(io->options, &report.client);
    if (add_steps(io, &report.client) &&
        sl_report_encode(&report, &message.report.bytes, &message.report.byte_count) == 0) {
        /* Without a connection, or with a full outbox, the next report is sent instead. */
        (void)sl_session_notify(io->coordinator.session, &message);
        sl_message_fini(&message);
    }
}

static void client_report_on_timer(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_client_io *io = SL_CONTAINER_OF(timer, struct sl_client_io, coordinator.report);
    const bool is_free = sl_session_queue(io->coordinator.session)->count == 0;
    /* Something is unsent, perhaps a heartbeat of the same interval: soon again. */
    sl_reactor_arm(io->reactor, timer, is_free ? INTERVAL_NS : RETRY_NS);
    if (is_free) {
        send_report(io, now_ns);
    }
}

void sl_client_report_start(struct sl_client_io *io, bool wanted)
{
    struct sl_timer *timer = &io->coordinator.report;
    sl_reactor_disarm(io->reactor, timer);
    if (wanted && io->options->metrics != NULL &&
        io->options->hello.role == SL_MESSAGE_ROLE_WORKER) {
        timer->run = client_report_on_timer;
        io->coordinator.begun_ns = io->coordinator.begun_ns == 0 ? sl_reactor_now_ns(io->reactor)
                                                                 : io->coordinator.begun_ns;
        sl_reactor_arm(io->reactor, timer, INTERVAL_NS);
    }
}

void sl_client_report_last(struct sl_client_io *io)
{
    if (sl_timer_armed(&io->coordinator.report) && io->coordinator.session != NULL) {
        send_report(io, sl_reactor_now_ns(io->reactor));
    }
    sl_client_report_start(io, false);
}

void sl_client_report_http(struct sl_client *client, const char *http)
{
    atomic_store_explicit(&client->io_options.http, http, memory_order_release);
}
