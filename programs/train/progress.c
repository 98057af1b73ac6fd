#include "programs/train/progress.h"

#include <string.h>
#include <unistd.h>

#include "core/clock.h"

#define BAR_CELLS         30
#define TERMINAL_EVERY_NS (200 * SL_CLOCK_NS_PER_MS)
#define FIRST_LINE_NS     (200 * SL_CLOCK_NS_PER_MS) /* soon, to show activity */
#define LINE_EVERY_NS     (5 * SL_CLOCK_NS_PER_S)

void sl_progress_begin(struct sl_progress *progress, FILE *to, bool quiet, uint32_t epochs,
                       uint64_t now_ns)
{
    *progress = (struct sl_progress){.to = quiet ? NULL : to, .epochs = epochs, .begin_ns = now_ns};
    progress->terminal = !quiet && isatty(fileno(to)) == 1;
    progress->next_ns = now_ns + (progress->terminal ? TERMINAL_EVERY_NS : FIRST_LINE_NS);
}

static void format_eta(double seconds, char *text, size_t bytes)
{
    uint64_t whole = seconds < 0 || seconds > 1e9 ? 0 : (uint64_t)(seconds + 0.5);
    if (whole >= 3600) {
        (void)snprintf(text, bytes, "%u:%02u:%02u", (uint32_t)(whole / 3600),
                       (uint32_t)(whole / 60 % 60), (uint32_t)(whole % 60));
    } else {
        (void)snprintf(text, bytes, "%u:%02u", (uint32_t)(whole / 60), (uint32_t)(whole % 60));
    }
}

static void format_bar(double share, char bar[BAR_CELLS + 1])
{
    size_t full = (size_t)(share * BAR_CELLS);
    full = full > BAR_CELLS ? BAR_CELLS : full;
    memset(bar, '=', full);
    memset(bar + full, ' ', BAR_CELLS - full);
    if (full > 0 && full < BAR_CELLS) {
        bar[full - 1] = '>';
    }
    bar[BAR_CELLS] = '\0';
}

void sl_progress_update(struct sl_progress *progress, const struct sl_progress_state *state,
                        uint64_t now_ns)
{
    if (progress->first_ns == 0) {
        progress->first_ns = now_ns;
        progress->first_share = state->share;
    }
    if (progress->to == NULL || now_ns < progress->next_ns) {
        return;
    }
    progress->next_ns = now_ns + (progress->terminal ? TERMINAL_EVERY_NS : LINE_EVERY_NS);
    double seconds = (double)(now_ns - progress->begin_ns) / (double)SL_CLOCK_NS_PER_S;
    double rate = (double)state->rows / seconds;
    char eta[24];
    double since_first = (double)(now_ns - progress->first_ns) / (double)SL_CLOCK_NS_PER_S;
    double done = state->share - progress->first_share;
    format_eta(done > 0 ? since_first * (1 - state->share) / done : 0, eta, sizeof eta);
    if (progress->terminal) {
        char bar[BAR_CELLS + 1];
        format_bar(state->share, bar);
        /* \033[K: clears the end of a longer previous line. */
        (void)fprintf(
            progress->to, "\repoch %u/%u [%s] %3.0f%%  %.0f rows/s  loss %.4f  ETA %s\033[K",
            state->epoch + 1, progress->epochs, bar, 100 * state->share, rate, state->loss, eta);
        progress->drawn = true;
    } else {
        (void)fprintf(progress->to, "epoch %u/%u  %.0f%%  %.0f rows/s  loss %.4f  ETA %s\n",
                      state->epoch + 1, progress->epochs, 100 * state->share, rate, state->loss,
                      eta);
    }
    (void)fflush(progress->to);
}

void sl_progress_end(struct sl_progress *progress)
{
    if (progress->drawn) {
        (void)fputs("\r\033[K", progress->to);
        (void)fflush(progress->to);
        progress->drawn = false;
    }
}
