#include "programs/serve/generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/array.h"
#include "core/hash.h"
#include "objects/catalogue/message.h"
#include "programs/serve/onnx_file.h"

#define LENGTH(of)    (uint32_t)(sizeof(of) / sizeof((of)[0]))
#define PATH_BYTES    4096
#define DIRECTORY_MAX (PATH_BYTES - SL_OBJECTS_NAME_BYTES - 8)
#define CHANGE_MAX    (1.0F / 16) /* of a weight, relative to the template's */

static struct {
    const char *templates, *out;
    uint64_t seed;
} flags = {.seed = 1};

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(STRING, &flags.templates, .name = "templates", .metavar = "DIR",
                  .help = "Where NAME" SL_ONNX_FILE_SUFFIX " is the template of models whose names "
                          "begin with NAME; the longest NAME counts. Required."),
    SL_CLI_OPTION(STRING, &flags.out, .name = "out", .metavar = "DIR",
                  .help = "Where the models are written. DIR is created. Required."),
    SL_CLI_OPTION(U64, &flags.seed, .name = "seed", .metavar = "N",
                  .help = "With the model's name it determines the weights: those of the template, "
                          "each changed by up to 1/16. Default: 1."),
};

struct run {
    char (*names)[SL_OBJECTS_NAME_BYTES]; /* of the models */
    uint32_t count, capacity;
    struct sl_reason reason;
};

/* DIR/NAME.onnx; a directory's path is not too long for that. */
static void make_path(const char *directory, const char *name, uint32_t length,
                      char path[PATH_BYTES])
{
    (void)snprintf(path, PATH_BYTES, "%s/%.*s" SL_ONNX_FILE_SUFFIX, directory, (int)length, name);
}

/* The template is named like the beginning of the model's name. False: there is none. */
static bool find_template(const char *name, char path[PATH_BYTES])
{
    for (uint32_t length = (uint32_t)strlen(name); length > 0; length--) {
        make_path(flags.templates, name, length, path);
        if (access(path, R_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the model of a line: its name, up to a comma; what follows is for other programs. */
static int add_line(struct run *run, const char *file, uint32_t number, char *line)
{
    const char *name = line + strspn(line, " \t");
    char path[PATH_BYTES];
    line[strcspn(line, ",\r\n")] = '\0';
    for (size_t end = strlen(name); end > 0 && strchr(" \t", name[end - 1]) != NULL; end--) {
        line[name - line + (ptrdiff_t)end - 1] = '\0';
    }
    if (!sl_objects_name_is_valid(name) || strchr(name, '/') != NULL) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "%s:%u: \"%s\" is no name of a model, which has 1 to %d printable "
                              "characters, no blank, no @ and no /",
                              file, number, name, SL_OBJECTS_NAME_BYTES - 1);
    }
    for (uint32_t i = 0; i < run->count; i++) {
        if (strcmp(run->names[i], name) == 0) {
            return sl_reason_fail(&run->reason, SL_ERR_INVALID, "%s:%u: \"%s\" is there twice",
                                  file, number, name);
        }
    }
    if (!find_template(name, path)) {
        return sl_reason_fail(&run->reason, SL_ERR_NOT_FOUND,
                              "%s:%u: no template for \"%s\": %s has no file whose name, "
                              "without " SL_ONNX_FILE_SUFFIX ", the model's name begins with",
                              file, number, name, flags.templates);
    }
    if (!sl_array_make_room(&run->names, &run->capacity, run->count, sizeof *run->names)) {
        return sl_reason_fail(&run->reason, SL_ERR_NO_MEMORY, "%s:%u: no memory", file, number);
    }
    (void)snprintf(run->names[run->count++], sizeof *run->names, "%s", name);
    return 0;
}

/* The first line is a title. */
static int read_list(struct run *run, const char *path)
{
    FILE *file = fopen(path, "re");
    char *line = NULL;
    size_t capacity = 0;
    int err = 0;
    if (file == NULL) {
        return sl_reason_fail(&run->reason, sl_err_from_errno(errno), "%s: %s", path,
                              strerror(errno));
    }
    for (uint32_t number = 1; err == 0 && getline(&line, &capacity, file) >= 0; number++) {
        err = number == 1 ? 0 : add_line(run, path, number, line);
    }
    if (err == 0 && ferror(file)) {
        err = sl_reason_fail(&run->reason, SL_ERR_IO, "%s: cannot be read", path);
    } else if (err == 0 && run->count == 0) {
        err = sl_reason_fail(&run->reason, SL_ERR_INVALID,
                             "%s: accepted are a line with a title and lines with names of models",
                             path);
    }
    free(line);
    (void)fclose(file);
    return err;
}

/* Zeros stay zeros, and signs stay, so that variances are positive. */
static void change_weights(const struct sl_graph *graph, const char *name)
{
    uint64_t state = sl_hash_bytes(name, strlen(name), flags.seed);
    for (uint32_t i = 0; i < graph->value_count; i++) {
        const struct sl_graph_value *value = &graph->values[i];
        float *weights = (float *)value->data; /* in memory of ours */
        const uint64_t count = value->kind == SL_GRAPH_WEIGHT ? value->bytes / sizeof *weights : 0;
        for (uint64_t j = 0; j < count; j++) {
            const float random = (float)(sl_hash_random(&state) >> 40) * 0x1p-23F - 1; /* [-1, 1) */
            weights[j] *= 1 + CHANGE_MAX * random;
        }
    }
}

static int generate(struct run *run, const char *name)
{
    char path[PATH_BYTES] = "";
    struct sl_graph_memory memory;
    struct sl_graph graph;
    (void)find_template(name, path);
    int err = sl_onnx_file_read(path, &memory, &graph, &run->reason);
    if (err == 0) {
        change_weights(&graph, name);
        make_path(flags.out, name, (uint32_t)strlen(name), path);
        err = sl_onnx_file_write(path, &graph, &memory, &run->reason);
    }
    sl_graph_memory_fini(&memory);
    return err;
}

static int generate_all(struct run *run, const char *list)
{
    int err = read_list(run, list);
    if (err == 0 && mkdir(flags.out, 0777) != 0 && errno != EEXIST) {
        err = sl_reason_fail(&run->reason, sl_err_from_errno(errno), "%s: %s", flags.out,
                             strerror(errno));
    }
    for (uint32_t i = 0; err == 0 && i < run->count; i++) {
        err = generate(run, run->names[i]);
    }
    if (err == 0) {
        (void)printf("%u model%s in %s\n", run->count, run->count == 1 ? "" : "s", flags.out);
    }
    return err;
}

int sl_serve_generate_run(int argc, char **argv)
{
    struct run run = {0};
    struct sl_cli_words words = {.least = 1, .most = 1, .missing = "the list of models is missing"};
    const struct sl_cli cli = {.program = "starling-serve generate",
                               .summary = "Makes models of templates, with other weights.",
                               .usage = "MODEL_LIST --templates DIR --out DIR",
                               .options = options,
                               .option_count = LENGTH(options),
                               .words = &words};
    int err = sl_cli_parse(&cli, argc, argv, &run.reason);
    if (err == SL_CLI_RUN && (flags.templates == NULL || flags.out == NULL)) {
        err = sl_reason_fail(&run.reason, SL_ERR_INVALID, "%s is missing",
                             flags.templates == NULL ? "--templates" : "--out");
    } else if (err == SL_CLI_RUN &&
               (strlen(flags.templates) > DIRECTORY_MAX || strlen(flags.out) > DIRECTORY_MAX)) {
        err = sl_reason_fail(&run.reason, SL_ERR_INVALID,
                             "paths of directories have at most %d bytes", DIRECTORY_MAX);
    }
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(&cli, err, &run.reason);
    }
    err = generate_all(&run, words.items[0]);
    free(run.names);
    return sl_cli_end(&cli, err, &run.reason);
}
