/* A report's charts, drawn by gnuplot from a script on its standard input. Every text in it stands
 * in single quotes, in which gnuplot knows only the doubled quote, and carries out nothing. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/report_parts.h"
#include "core/log.h"

#define PATH_BYTES   4096
#define LOG_X_LEAST  8   /* x that spans more is drawn on a logarithmic scale */
#define LOG_Y_LEAST  100 /* so is y */
#define LARGE_LEAST  1e4 /* from here on values are told in thousands, millions, … */
#define CHARTS_MAX   64
#define COLORS       8   /* of gnuplot's; then they come again, dashed */
#define BAR_PIXELS   26  /* of a ratio's bar and the space to the next */
#define CHART_PIXELS 560 /* height without the key */
#define KEY_PIXELS   11  /* of half a line: it has two columns */

extern char **environ;

/* ---- The script ------------------------------------------------------------------------------ */

static void write_quoted(FILE *script, const char *text)
{
    (void)fputc('\'', script);
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)fputc('\'', script);
        }
        (void)fputc((unsigned char)*text < ' ' ? ' ' : *text, script);
    }
    (void)fputc('\'', script);
}

/* As above, of a label at an axis, in which gnuplot looks for a number's format. */
static void write_quoted_label(FILE *script, const char *text)
{
    char doubled[2 * SL_BENCH_NAME_BYTES];
    size_t used = 0;
    for (; *text != '\0' && used + 2 < sizeof doubled; text++) {
        doubled[used++] = *text;
        if (*text == '%') {
            doubled[used++] = '%';
        }
    }
    doubled[used] = '\0';
    write_quoted(script, doubled);
}

static void write_set(FILE *script, const char *setting, const char *text)
{
    (void)fprintf(script, "set %s ", setting);
    write_quoted(script, text);
    (void)fputc('\n', script);
}

static void write_head(FILE *script, const struct sl_bench_report *report, const char *path,
                       const char *title, unsigned height)
{
    char whole[256];
    (void)fprintf(script,
                  "reset\nset encoding utf8\n"
                  "set terminal svg size 960,%u dynamic noenhanced font 'sans,13' "
                  "background rgb 'white'\n"
                  "set grid\nset key outside bottom center vertical maxcols 2 noenhanced\n"
                  "set style fill solid 0.6\n",
                  height);
    (void)snprintf(whole, sizeof whole, "%s: %s", report->benchmark, title);
    write_set(script, "output", path);
    write_set(script, "title", whole);
}

/* gnuplot, with the script as its input. */
static int run_gnuplot(FILE *script)
{
    char *arguments[] = {(char *)"gnuplot", (char *)"-", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    if (fflush(script) != 0 || fseek(script, 0, SEEK_SET) != 0 ||
        posix_spawn_file_actions_init(&actions) != 0) {
        return SL_ERR_IO;
    }
    int failed = posix_spawn_file_actions_adddup2(&actions, fileno(script), STDIN_FILENO);
    failed =
        failed != 0 ? failed : posix_spawnp(&pid, "gnuplot", &actions, NULL, arguments, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) {
        return sl_err_from_errno(failed);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : SL_ERR_IO;
}

/* ---- Curves ---------------------------------------------------------------------------------- */

static bool same_chart(const struct sl_bench_figure *a, const struct sl_bench_figure *b)
{
    return a->on_curve && b->on_curve && strcmp(a->x_name, b->x_name) == 0 &&
           strcmp(a->unit, b->unit) == 0;
}

static bool same_curve(const struct sl_bench_figure *a, const struct sl_bench_figure *b)
{
    return same_chart(a, b) && strcmp(a->name, b->name) == 0 &&
           strcmp(a->quantity, b->quantity) == 0;
}

typedef bool (*alike_fn)(const struct sl_bench_figure *a, const struct sl_bench_figure *b);

/* Whether figure `index` is the first of those that are like it. */
static bool is_first(const struct sl_bench_report *report, uint32_t index, alike_fn alike)
{
    for (uint32_t i = 0; i < index; i++) {
        if (alike(report->figures[i], report->figures[index])) {
            return false;
        }
    }
    return true;
}

struct span {
    double least, most;
};

static void widen(struct span *span, double value)
{
    span->least = fmin(span->least, value);
    span->most = fmax(span->most, value);
}

static bool is_wide(const struct span *span, double least_ratio)
{
    return span->least > 0 && span->most / span->least >= least_ratio;
}

static void write_axes(FILE *script, const struct sl_bench_report *report,
                       const struct sl_bench_figure *first)
{
    struct span x = {INFINITY, -INFINITY};
    struct span y = {INFINITY, -INFINITY};
    for (uint32_t i = 0; i < report->figure_count; i++) {
        const struct sl_bench_figure *figure = report->figures[i];
        if (same_chart(figure, first)) {
            const struct sl_bench_summary summary =
                sl_bench_report_summary(figure->samples, figure->count);
            widen(&x, figure->x);
            widen(&y, summary.low);
            widen(&y, summary.high);
        }
    }
    write_set(script, "xlabel offset 0,0.4", first->x_name);
    write_set(script, "ylabel", first->unit);
    (void)fprintf(script, "set offsets graph 0.03, graph 0.03, 0, 0\nset format y '%s'\n",
                  y.most < LARGE_LEAST ? "%.10g" : "%.1s%c");
    if (is_wide(&x, LOG_X_LEAST)) {
        (void)fprintf(script, "set logscale x\n");
    }
    if (is_wide(&y, LOG_Y_LEAST)) {
        (void)fprintf(script, "set logscale y\n");
    } else {
        (void)fprintf(script, "set yrange [%s:%s]\n", y.least < 0 ? "*" : "0",
                      y.least == 0 && y.most == 0 ? "1" : "*");
    }
}

/* The points of the curve that figure `index` begins, "x low median high". */
static void write_points(FILE *script, const struct sl_bench_report *report, uint32_t index,
                         uint32_t curve)
{
    (void)fprintf(script, "$curve%u << END_OF_DATA\n", curve);
    for (uint32_t i = index; i < report->figure_count; i++) {
        const struct sl_bench_figure *figure = report->figures[i];
        if (same_curve(figure, report->figures[index])) {
            const struct sl_bench_summary summary =
                sl_bench_report_summary(figure->samples, figure->count);
            (void)fprintf(script, "%.9g %.9g %.9g %.9g\n", figure->x, summary.low, summary.median,
                          summary.high);
        }
    }
    (void)fprintf(script, "END_OF_DATA\n");
}

/* Calls `write` for each curve of the chart that figure `index` begins. */
static uint32_t each_curve(FILE *script, const struct sl_bench_report *report, uint32_t index,
                           void (*write)(FILE *script, const struct sl_bench_report *report,
                                         uint32_t index, uint32_t curve))
{
    uint32_t curves = 0;
    for (uint32_t i = index; i < report->figure_count; i++) {
        if (same_chart(report->figures[i], report->figures[index]) &&
            is_first(report, i, same_curve)) {
            write(script, report, i, curves++);
        }
    }
    return curves;
}

static void write_curve(FILE *script, const struct sl_bench_report *report, uint32_t index,
                        uint32_t curve)
{
    const struct sl_bench_figure *figure = report->figures[index];
    char title[SL_BENCH_NAME_BYTES + sizeof figure->quantity + 2];
    (void)snprintf(title, sizeof title, "%s: %s", figure->name, figure->quantity);
    (void)fprintf(script, "%s $curve%u using 1:3:2:4 with yerrorlines lw 2 dt %u title ",
                  curve == 0 ? "plot" : ",", curve, 1 + curve / COLORS);
    write_quoted(script, title);
}

static void write_curves(FILE *script, const struct sl_bench_report *report, uint32_t index,
                         const char *path)
{
    const struct sl_bench_figure *first = report->figures[index];
    char title[128];
    (void)snprintf(title, sizeof title, "%s by %s", first->unit[0] == '\0' ? "counts" : first->unit,
                   first->x_name);
    const uint32_t curves = each_curve(script, report, index, write_points);
    write_head(script, report, path, title, CHART_PIXELS + KEY_PIXELS * curves);
    write_axes(script, report, first);
    (void)each_curve(script, report, index, write_curve);
    (void)fputc('\n', script);
}

/* ---- Ratios and distributions ---------------------------------------------------------------- */

/* A bar for each, from the top; its quartiles, and a mark where the target is. */
static void write_ratios(FILE *script, const struct sl_bench_report *report, const char *path)
{
    write_head(script, report, path, "ratios; | is the target",
               120 + BAR_PIXELS * report->ratio_count);
    (void)fprintf(script,
                  "unset key\nset xrange [0:*]\nset offsets 0, graph 0.05, 0, 0\nset yrange "
                  "[%u.5:-0.5]\nset ytics (",
                  report->ratio_count - 1);
    for (uint32_t i = 0; i < report->ratio_count; i++) {
        (void)fprintf(script, i == 0 ? "" : ", ");
        write_quoted_label(script, report->ratios[i]->name);
        (void)fprintf(script, " %u", i);
    }
    (void)fprintf(script, ")\n$ratios << END_OF_DATA\n");
    for (uint32_t i = 0; i < report->ratio_count; i++) {
        const struct sl_bench_ratio *ratio = report->ratios[i];
        const struct sl_bench_summary summary =
            sl_bench_report_summary(ratio->samples, ratio->count);
        const double target = ratio->least != 0 ? ratio->least : ratio->most;
        (void)fprintf(script, "%u %.9g %.9g %.9g %.9g %d\n", i, summary.low, summary.median,
                      summary.high, target != 0 ? target : (double)NAN,
                      sl_bench_ratio_holds(ratio) ? 0x4daf4a : 0xe41a1c);
    }
    (void)fprintf(script, "END_OF_DATA\n"
                          "plot $ratios using ($3/2):1:(0):3:($1-0.35):($1+0.35):6 with boxxyerror "
                          "lc rgb variable, "
                          "$ratios using 3:1:2:4 with xerrorbars lc rgb 'black' pt 0, "
                          "$ratios using 5:($1-0.42):(0):(0.84) with vectors nohead lw 4 "
                          "lc rgb 'black'\n");
}

/* For each: how often a time is exceeded, as one in so many. */
static void write_spreads(FILE *script, const struct sl_bench_report *report, const char *path)
{
    write_head(script, report, path, "times", CHART_PIXELS + KEY_PIXELS * report->spread_count);
    (void)fprintf(script, "set logscale xy\nset xlabel 'one in ... takes longer' offset 0,0.4\n"
                          "set ylabel 'us'\nset format x '%%.0s%%c'\n");
    for (uint32_t i = 0; i < report->spread_count; i++) {
        const struct sl_bench_spread *spread = report->spreads[i];
        uint64_t before = 0;
        (void)fprintf(script, "$spread%u << END_OF_DATA\n", i);
        for (uint32_t j = 0; j < spread->bucket_count; j++) {
            const struct sl_bench_bucket *bucket = &spread->buckets[j];
            (void)fprintf(script, "%.9g %.9g\n",
                          (double)spread->count / (double)(spread->count - before),
                          (double)bucket->upper / 1e3);
            before += bucket->count;
        }
        (void)fprintf(script, "END_OF_DATA\n");
    }
    for (uint32_t i = 0; i < report->spread_count; i++) {
        (void)fprintf(script, "%s $spread%u using 1:2 with steps lw 2 dt %u title ",
                      i == 0 ? "plot" : ",", i, 1 + i / COLORS);
        write_quoted(script, report->spreads[i]->name);
    }
    (void)fputc('\n', script);
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Letters and digits stay, all else becomes "-". */
static void make_plain(char *name)
{
    for (; *name != '\0'; name++) {
        const bool is_plain = (*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
                              (*name >= '0' && *name <= '9') || *name == '.';
        *name = is_plain ? *name : '-';
    }
}

/* Charts are numbered, so that no two of them have one name. */
struct charts {
    FILE *script;
    const char *directory;
    uint32_t count;
    char paths[CHARTS_MAX][PATH_BYTES];
};

/* Where the next chart goes, or NULL when there are too many. */
static const char *next_path(struct charts *charts, const struct sl_bench_report *report,
                             const char *what)
{
    char name[128];
    if (charts->count == CHARTS_MAX) {
        return NULL;
    }
    (void)snprintf(name, sizeof name, "%s-%u-%s.svg", report->benchmark, charts->count + 1, what);
    make_plain(name);
    char *path = charts->paths[charts->count++];
    (void)snprintf(path, PATH_BYTES, "%s/%s", charts->directory, name);
    return path;
}

static void write_script(struct charts *charts, const struct sl_bench_report *report)
{
    const char *path;
    if (report->ratio_count > 0 && (path = next_path(charts, report, "ratios")) != NULL) {
        write_ratios(charts->script, report, path);
    }
    if (report->spread_count > 0 && (path = next_path(charts, report, "times")) != NULL) {
        write_spreads(charts->script, report, path);
    }
    for (uint32_t i = 0; i < report->figure_count; i++) {
        const struct sl_bench_figure *figure = report->figures[i];
        char what[64];
        (void)snprintf(what, sizeof what, "%s by %s", figure->unit, figure->x_name);
        if (figure->on_curve && is_first(report, i, same_chart) &&
            (path = next_path(charts, report, what)) != NULL) {
            write_curves(charts->script, report, i, path);
        }
    }
    (void)fprintf(charts->script, "unset output\n");
}

static int draw(struct charts *charts, const struct sl_bench_report *report)
{
    write_script(charts, report);
    if (charts->count == 0) {
        sl_log_warn("%s: nothing to draw: no curves, ratios or distributions", charts->directory);
        return 0;
    }
    const int err = run_gnuplot(charts->script);
    if (err != 0) {
        sl_log_error("%s: gnuplot could not draw the charts (its own words stand above): %s",
                     charts->directory, sl_err_name(err));
        return err;
    }
    printf("\n");
    for (uint32_t i = 0; i < charts->count; i++) {
        printf("  chart     %s\n", charts->paths[i]);
    }
    return 0;
}

int sl_bench_report_find_gnuplot(void)
{
    const char *folder = getenv("PATH");
    while (folder != NULL && *folder != '\0') {
        const size_t length = strcspn(folder, ":");
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof path, "%.*s/gnuplot", (int)length, folder);
        if (access(path, X_OK) == 0) {
            return 0;
        }
        folder += length + (folder[length] == ':');
    }
    sl_log_error("--plot needs gnuplot, which is not installed: apt-get install gnuplot-nox");
    return SL_ERR_NOT_FOUND;
}

int sl_bench_report_plot(const struct sl_bench_report *report, const char *directory)
{
    int err = sl_bench_report_find_gnuplot();
    if (err != 0) {
        return err;
    }
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        err = sl_err_from_errno(errno);
        sl_log_error("%s: %s", directory, strerror(errno));
        return err;
    }
    struct charts *charts = sl_bench_report_must_have(calloc(1, sizeof *charts));
    charts->directory = directory;
    charts->script = tmpfile();
    if (charts->script == NULL) {
        err = sl_err_from_errno(errno);
        sl_log_error("no temporary file for gnuplot's script: %s", strerror(errno));
    } else {
        err = draw(charts, report);
        (void)fclose(charts->script);
    }
    free(charts);
    return err;
}
