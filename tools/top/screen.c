#include "tools/top/screen.h"

#include <jansson.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "tools/top/panel.h"
#include "tools/top/source.h"

#define LINES_MIN   8
#define COLUMNS_MIN 40
#define LATE_S      3
#define HEAD_LINES  5 /* above the rows: job, totals, problem, panels, titles */

struct screen {
    struct sl_source *source;
    json_t *state;
    uint64_t interval_ns, fetched_ns, tried_ns; /* of `state`; of the last attempt */
    struct sl_reason problem;                   /* "": the last attempt succeeded */
    uint32_t panel;
    int columns[SL_PANEL_COUNT]; /* that sort; -1: none */
    bool descending[SL_PANEL_COUNT];
    char filter[64];
    bool is_typing, is_paused; /* typing: the filter */
    int first;                 /* row at the top */
};

static uint64_t now_ns(void)
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
        screen->fetched_ns = now_ns();
    }
    screen->tried_ns = now_ns();
}

static void put(int y, int attributes, const char *text)
{
    char line[SL_PANEL_LINE_BYTES];
    (void)snprintf(line, sizeof line, "%s", text);
    sl_format_clip(line, COLS);
    (void)attrset(attributes);
    (void)mvaddstr(y, 0, line);
}

/* Rows that need attention are bold: no report of late, or a backup serves the shard. */
static int row_attributes(const json_t *row)
{
    const char *serving = json_string_value(json_object_get(row, "serving"));
    const char *name = json_string_value(json_object_get(row, "name"));
    const bool is_moved = serving != NULL && name != NULL && strcmp(serving, name) != 0;
    const bool is_late = json_number_value(json_object_get(row, "age_s")) > LATE_S;
    return is_moved || is_late ? A_BOLD : A_NORMAL;
}

static void draw_rows(struct screen *screen)
{
    const struct sl_panel_choice choice = {screen->columns[screen->panel],
                                           screen->descending[screen->panel], screen->filter};
    struct sl_panel_rows rows;
    if (sl_panel_rows_init(&sl_panels[screen->panel], screen->state, &choice, &rows) != 0) {
        put(HEAD_LINES, A_BOLD, "no memory for the rows");
        return;
    }
    const int room = LINES - HEAD_LINES - 1;
    const int last = (int)rows.count > room ? (int)rows.count - room : 0;
    screen->first = screen->first > last ? last : screen->first < 0 ? 0 : screen->first;
    char line[SL_PANEL_LINE_BYTES];
    sl_panel_line(&rows, -1, COLS, line);
    put(HEAD_LINES - 1, A_UNDERLINE, line);
    for (int i = 0; i < room && screen->first + i < (int)rows.count; i++) {
        sl_panel_line(&rows, screen->first + i, COLS, line);
        put(HEAD_LINES + i, row_attributes(rows.rows[screen->first + i]), line);
    }
    if (rows.count == 0) {
        put(HEAD_LINES, A_NORMAL,
            screen->filter[0] != '\0' ? "nothing matches the filter" : "none");
    }
    sl_panel_rows_fini(&rows);
}

static void draw_panels(const struct screen *screen)
{
    (void)move(3, 0);
    for (uint32_t i = 0; i < SL_PANEL_COUNT; i++) {
        (void)attrset(i == screen->panel ? A_REVERSE : A_NORMAL);
        (void)printw("%u %s", i + 1, sl_panels[i].name);
        (void)attrset(A_NORMAL);
        (void)addstr(" ");
    }
}

static void draw_foot(const struct screen *screen)
{
    const int column = screen->columns[screen->panel];
    char line[SL_PANEL_LINE_BYTES];
    if (screen->is_typing || screen->filter[0] != '\0') {
        (void)snprintf(line, sizeof line, "filter: %s%s", screen->filter,
                       screen->is_typing ? "_" : "  (/ changes it)");
    } else {
        (void)snprintf(line, sizeof line, "q quit  s sort: %s  r reverse  / filter  p %s",
                       column < 0 ? "none" : sl_panels[screen->panel].columns[column].title,
                       screen->is_paused ? "continue" : "pause");
    }
    put(LINES - 1, A_REVERSE, line);
}

static void draw(struct screen *screen)
{
    char job[SL_PANEL_LINE_BYTES], totals[SL_PANEL_LINE_BYTES], line[SL_REASON_BYTES + 64];
    (void)erase();
    (void)attrset(A_NORMAL);
    if (LINES < LINES_MIN || COLS < COLUMNS_MIN) {
        (void)mvprintw(0, 0, "The terminal is smaller than %d x %d.", COLUMNS_MIN, LINES_MIN);
        (void)refresh();
        return;
    }
    sl_panel_summary(screen->state, job, totals);
    put(0, A_BOLD, job);
    put(1, A_NORMAL, totals);
    const json_t *cluster = json_object_get(screen->state, "cluster");
    const double age = (double)(now_ns() - screen->fetched_ns) / 1e9 +
                       json_number_value(json_object_get(cluster, "age_s"));
    if (screen->is_paused) {
        put(2, A_REVERSE, "paused");
    } else if (screen->problem.text[0] != '\0' ||
               age > LATE_S + (double)screen->interval_ns / 1e9) {
        const char *why = screen->problem.text[0] != '\0' ? screen->problem.text
                                                          : "the coordinator has no newer reports";
        (void)snprintf(line, sizeof line, "%.0fs old: %s", age, why);
        put(2, A_REVERSE, line);
    }
    draw_panels(screen);
    draw_rows(screen);
    draw_foot(screen);
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

static void choose_panel(struct screen *screen, uint32_t panel)
{
    screen->panel = panel % SL_PANEL_COUNT;
    screen->first = 0;
}

static void sort_by_next(struct screen *screen)
{
    int *column = &screen->columns[screen->panel];
    const struct sl_panel *panel = &sl_panels[screen->panel];
    ++*column;
    if (*column == SL_PANEL_COLUMNS_MAX || panel->columns[*column].title == NULL) {
        *column = -1;
    }
    screen->descending[screen->panel] = *column >= 0 && !panel->columns[*column].is_left;
}

/* false: quit. */
static bool press(struct screen *screen, int key)
{
    const int page = LINES - HEAD_LINES - 2;
    if (screen->is_typing) {
        type(screen, key);
    } else if (key >= '1' && key < '1' + SL_PANEL_COUNT) {
        choose_panel(screen, (uint32_t)(key - '1'));
    } else if (key == '\t' || key == KEY_RIGHT) {
        choose_panel(screen, screen->panel + 1);
    } else if (key == KEY_LEFT || key == KEY_BTAB) {
        choose_panel(screen, screen->panel + SL_PANEL_COUNT - 1);
    } else if (key == 's') {
        sort_by_next(screen);
    } else if (key == 'r') {
        screen->descending[screen->panel] = !screen->descending[screen->panel];
    } else if (key == '/') {
        screen->is_typing = true;
        screen->filter[0] = '\0';
    } else if (key == 'p') {
        screen->is_paused = !screen->is_paused;
    } else if (key == KEY_DOWN || key == KEY_UP) {
        screen->first += key == KEY_DOWN ? 1 : -1;
    } else if (key == KEY_NPAGE || key == KEY_PPAGE) {
        screen->first += key == KEY_NPAGE ? page : -page;
    }
    return screen->is_typing || key != 'q';
}

void sl_screen_run(struct sl_source *source, json_t *state, uint64_t interval_ns)
{
    struct screen screen = {.source = source,
                            .state = state,
                            .interval_ns = interval_ns,
                            .fetched_ns = now_ns(),
                            .tried_ns = now_ns(),
                            .columns = {-1, 2, -1, 1, -1},
                            .descending = {[SL_PANEL_WORKERS] = true, [SL_PANEL_KEYS] = true}};
    (void)initscr();
    (void)cbreak();
    (void)noecho();
    (void)curs_set(0);
    (void)keypad(stdscr, TRUE);
    set_escdelay(50);
    for (int key = ERR; key == ERR || press(&screen, key); key = getch()) {
        const uint64_t due_ns = screen.tried_ns + screen.interval_ns;
        if (!screen.is_paused && now_ns() >= due_ns) {
            update(&screen);
        }
        draw(&screen);
        const uint64_t now = now_ns(), next_ns = screen.tried_ns + screen.interval_ns;
        timeout(screen.is_paused ? 1000
                : next_ns > now  ? (int)((next_ns - now) / SL_CLOCK_NS_PER_MS) + 1
                                 : 0);
    }
    (void)endwin();
    json_decref(screen.state);
}
