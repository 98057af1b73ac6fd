#include "programs/top/screen.h"

#include <jansson.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/format.h"
#include "programs/top/panel.h"
#include "programs/top/source.h"

#define LINES_MIN   8
#define COLUMNS_MIN 40
#define LATE_S      3
#define HEAD_LINES  6 /* above the rows: job, training, totals, problem, panels, titles */

struct screen {
    struct sl_source *source;
    json_t *state;
    uint64_t interval_ns, fetched_ns, tried_ns; /* of `state`; of the last attempt */
    struct sl_reason problem;                   /* "": the last attempt succeeded */
    uint32_t panel;
    struct sl_panel_order orders[SL_PANEL_COUNT];
    char filter[64];
    bool is_typing, is_paused; /* typing: the filter */
    int first;                 /* row at the top, from 0 */
};

static uint64_t screen_now_ns(void)
{
    return sl_clock_now_ns(sl_clock_system());
}

static void update(struct screen *screen)
{
    json_t *state;
    screen->problem.text[0] = '\0';
    if (sl_source_fetch(screen->source, &state, &screen->problem) == 0) {
        json_decref(screen->state);
        screen->state = state;
        screen->fetched_ns = screen_now_ns();
    }
    screen->tried_ns = screen_now_ns();
}

/* A line, as much of it as fits. */
static void screen_put(int y, int attributes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void screen_put(int y, int attributes, const char *format, ...)
{
    char line[SL_REASON_BYTES + 64];
    SL_FORMAT(line, format);
    (void)attrset(attributes);
    (void)mvaddnstr(y, 0, line, COLS);
}

/* The state of the job, its totals, and why they are not those of now. */
static void draw_head(const struct screen *screen)
{
    struct sl_panel_summary summary;
    sl_panel_summary(screen->state, &summary);
    screen_put(0, A_BOLD, "%s", summary.job);
    screen_put(1, A_NORMAL, "%s", summary.training);
    screen_put(2, A_NORMAL, "%s", summary.totals);
    const json_t *cluster = json_object_get(screen->state, "cluster");
    const char *problem = screen->problem.text;
    const double age = (double)(screen_now_ns() - screen->fetched_ns) / 1e9 +
                       json_number_value(json_object_get(cluster, "age_s"));
    if (screen->is_paused) {
        screen_put(3, A_REVERSE, screen->source == NULL ? "saved state" : "paused");
    } else if (*problem != '\0' || age > LATE_S + (double)screen->interval_ns / 1e9) {
        screen_put(3, A_REVERSE, "%.0fs old: %s", age,
                   *problem != '\0' ? problem : "the coordinator has no newer reports");
    }
    (void)move(4, 0);
    for (uint32_t i = 0; i < SL_PANEL_COUNT; i++) {
        (void)attrset(i == screen->panel ? A_REVERSE : A_NORMAL);
        (void)printw("%u %s", i + 1, sl_panel_title(i, 0));
        (void)attrset(A_NORMAL);
        (void)addstr(" ");
    }
}

static void draw_rows(struct screen *screen)
{
    uint32_t count;
    struct sl_panel_row *rows = sl_panel_rows(
        screen->panel, screen->state, screen->orders[screen->panel], screen->filter, COLS, &count);
    if (rows == NULL) {
        screen_put(HEAD_LINES, A_BOLD, "no memory for the rows");
        return;
    }
    const int room = LINES - HEAD_LINES - 1, last = (int)count > room ? (int)count - room : 0;
    screen->first = screen->first > last ? last : screen->first < 0 ? 0 : screen->first;
    screen_put(HEAD_LINES - 1, A_UNDERLINE, "%s", rows[0].line);
    for (int i = 0; i < room && screen->first + i < (int)count; i++) {
        screen_put(HEAD_LINES + i, A_NORMAL, "%s", rows[1 + screen->first + i].line);
    }
    if (count == 0) {
        screen_put(HEAD_LINES, A_NORMAL,
                   screen->filter[0] != '\0' ? "nothing matches the filter" : "none");
    }
    free(rows);
}

static void draw_foot(const struct screen *screen)
{
    const uint32_t column = screen->orders[screen->panel].column;
    if (screen->is_typing || screen->filter[0] != '\0') {
        screen_put(LINES - 1, A_REVERSE, "filter: %s%s", screen->filter,
                   screen->is_typing ? "_" : "  (/ changes it)");
    } else {
        screen_put(LINES - 1, A_REVERSE, "q quit  s sort: %s  r reverse  / filter  p %s",
                   column == 0 ? "none" : sl_panel_title(screen->panel, column),
                   screen->is_paused ? "continue" : "pause");
    }
}

static void draw(struct screen *screen)
{
    (void)erase();
    if (LINES < LINES_MIN || COLS < COLUMNS_MIN) {
        (void)attrset(A_NORMAL);
        (void)mvprintw(0, 0, "The terminal is smaller than %d x %d.", COLUMNS_MIN, LINES_MIN);
    } else {
        draw_head(screen);
        draw_rows(screen);
        draw_foot(screen);
    }
    (void)refresh();
}

static void type(struct screen *screen, int key)
{
    const size_t used = strlen(screen->filter);
    if (key == '\n' || key == 27) {
        screen->is_typing = false;
    } else if ((key == KEY_BACKSPACE || key == 127 || key == 8) && used > 0) {
        screen->filter[used - 1] = '\0';
    } else if (key >= ' ' && key < 127 && used + 1 < sizeof screen->filter) {
        screen->filter[used] = (char)key;
        screen->filter[used + 1] = '\0';
    }
}

static void press(struct screen *screen, int key)
{
    struct sl_panel_order *order = &screen->orders[screen->panel];
    const int page = LINES - HEAD_LINES - 2;
    if (screen->is_typing) {
        type(screen, key);
    } else if (key >= '1' && key < '1' + SL_PANEL_COUNT) {
        screen->panel = (uint32_t)(key - '1');
        screen->first = 0;
    } else if (key == 's') {
        sl_panel_order_next(screen->panel, order);
    } else if (key == 'r') {
        order->is_descending = !order->is_descending;
    } else if (key == '/') {
        screen->is_typing = true;
        screen->filter[0] = '\0';
    } else if (key == 'p' && screen->source != NULL) {
        screen->is_paused = !screen->is_paused;
    } else if (key == KEY_DOWN || key == KEY_UP) {
        screen->first += key == KEY_DOWN ? 1 : -1;
    } else if (key == KEY_NPAGE || key == KEY_PPAGE) {
        screen->first += key == KEY_NPAGE ? page : -page;
    }
}

void sl_screen_run(struct sl_source *source, json_t *state, uint64_t interval_ns)
{
    struct screen screen = {
        .source = source,
        .state = state,
        .interval_ns = interval_ns,
        .is_paused = source == NULL,
        .fetched_ns = screen_now_ns(),
        .tried_ns = screen_now_ns(),
        .orders = {[SL_PANEL_WORKERS] = {3, true}, [SL_PANEL_KEYS] = {2, true}}};
    (void)initscr();
    (void)cbreak();
    (void)noecho();
    (void)curs_set(0);
    (void)keypad(stdscr, TRUE);
    set_escdelay(50);
    for (int key = ERR; key != 'q' || screen.is_typing; key = getch()) {
        press(&screen, key);
        if (!screen.is_paused && screen_now_ns() >= screen.tried_ns + interval_ns) {
            update(&screen);
        }
        draw(&screen);
        const uint64_t now = screen_now_ns(), due_ns = screen.tried_ns + interval_ns;
        timeout(screen.is_paused ? -1
                : due_ns > now   ? (int)((due_ns - now) / SL_CLOCK_NS_PER_MS) + 1
                                 : 0);
    }
    (void)endwin();
    json_decref(screen.state);
}
