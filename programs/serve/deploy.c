#include "programs/serve/deploy.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <starling_objects.h>

#include "config/settings_cli.h"
#include "core/array.h"
#include "core/clock.h"
#include "core/format.h"
#include "core/log.h"
#include "objects/catalogue/manifest.h"
#include "objects/catalogue/message.h"
#include "objects/node/node.h"
#include "objects/node/publish_tables.h"
#include "programs/serve/base/request.h"
#include "programs/serve/engine/engine.h"
#include "programs/serve/engine/graph_fold.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/lookup.h"
#include "programs/serve/onnx_file.h"
#include "programs/serve/saved_model.h"

#define ONNX_NOTE  "onnx"
#define LENGTH(of) (uint32_t)(sizeof(of) / sizeof((of)[0]))

static struct {
    const char *name, *directory;
    uint64_t timeout_ns, to;
    size_t pool_bytes;
} flags;

static struct sl_settings settings;

#define DIRECTORY_OPTION(text)                                                                     \
    SL_CLI_OPTION(STRING, &flags.directory, .name = "dir", .metavar = "DIR", .help = (text))
#define TIMEOUT_OPTION(text)                                                                       \
    SL_CLI_OPTION(DURATION, &flags.timeout_ns, .name = "timeout", .metavar = "TIME",               \
                  .least = 0.001, .most = 3600, .preset = "60s", .help = (text))

static const struct sl_cli_option options[] = {
    DIRECTORY_OPTION("Publish to this directory, from which starling-objects serve --dir DIR "
                     "serves later. No process may use it now. DIR is created."),
    SL_CLI_OPTION(STRING, &flags.name, .name = "name", .metavar = "NAME",
                  .help = "Name of the model. Default: the file's name without its suffix."),
    SL_CLI_OPTION(SIZE, &flags.pool_bytes, .name = "pool-memory",
                  .help = "Refuse models that do not fit into a pool of this size: the agents' "
                          "--pool-memory. Default: no limit; workers refuse them."),
    TIMEOUT_OPTION("Deadline for a model."),
};

static const struct sl_cli_option rollback_options[] = {
    DIRECTORY_OPTION("Change this directory of deploy --dir. No process may use it now."),
    SL_CLI_OPTION(
        U64, &flags.to, .name = "to", .metavar = "VERSION", .least = 1, .most = (double)INT64_MAX,
        .help = "The version that becomes the newest. Default: the one before the newest."),
    TIMEOUT_OPTION("Deadline for each version."),
};

struct file {
    char *path;
    char name[SL_OBJECTS_NAME_BYTES]; /* of the object */
};

struct run {
    struct file *files;
    uint32_t file_count, file_capacity;
    struct sl_objects *objects;
    struct sl_reason reason;
};

/* A model as it will be published. */
struct model {
    struct sl_graph_memory memory;
    struct sl_graph graph;
    struct sl_graph_image image;
    char note[SL_OBJECTS_NOTE_BYTES];     /* of the version: its inputs and outputs */
    char tables[SL_OBJECTS_TABLES_BYTES]; /* whose rows it reads, with commas; "": none */
    uint32_t layer_count;
    double flops; /* of a row */
};

/* The text of the library's last error. */
static int fail_objects(struct run *run, int err, const char *of)
{
    const char *text = sl_objects_last_error();
    return sl_reason_fail(&run->reason, err, "%s: %s", of,
                          text[0] != '\0' ? text : sl_err_name(err));
}

/* ---- Files ----------------------------------------------------------------------------------- */

/* Of an ONNX model, or of one that starling-worker saved; else "". */
static const char *suffix_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    const bool is_known =
        dot != NULL && dot > name &&
        (strcmp(dot, SL_ONNX_FILE_SUFFIX) == 0 || strcmp(dot, SL_SAVED_MODEL_SUFFIX) == 0);
    return is_known ? dot : "";
}

static int add_file(struct run *run, const char *path)
{
    if (!sl_array_make_room(&run->files, &run->file_capacity, run->file_count,
                            sizeof *run->files)) {
        return sl_reason_fail(&run->reason, SL_ERR_NO_MEMORY, "no memory for the list of files");
    }
    struct file *file = &run->files[run->file_count];
    const char *name = flags.name != NULL ? flags.name : basename(path);
    const size_t length = strlen(name) - (flags.name == NULL ? strlen(suffix_of(name)) : 0);
    (void)snprintf(file->name, sizeof file->name, "%.*s", (int)length, name);
    if (length >= sizeof file->name || !sl_objects_name_is_valid(file->name)) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "%s: the name \"%s\" is not accepted: 1 to %d bytes of printable "
                              "UTF-8, no blank and no @",
                              path, name, SL_OBJECTS_NAME_BYTES - 1);
    }
    for (uint32_t i = 0; i < run->file_count; i++) {
        if (strcmp(run->files[i].name, file->name) == 0) {
            return sl_reason_fail(&run->reason, SL_ERR_INVALID, "%s and %s are both named \"%s\"%s",
                                  run->files[i].path, path, file->name,
                                  flags.name != NULL ? ": --name is for one model" : "");
        }
    }
    file->path = strdup(path);
    run->file_count += file->path != NULL;
    return file->path != NULL
               ? 0
               : sl_reason_fail(&run->reason, SL_ERR_NO_MEMORY, "no memory for a path");
}

static int is_model(const struct dirent *entry)
{
    return suffix_of(entry->d_name)[0] != '\0';
}

/* Adds a file, or all models of a directory. */
static int add_path(struct run *run, const char *path)
{
    struct stat status;
    struct dirent **entries;
    if (stat(path, &status) == 0 && !S_ISDIR(status.st_mode)) {
        return add_file(run, path);
    }
    const int count = scandir(path, &entries, is_model, alphasort);
    if (count <= 0) {
        return sl_reason_fail(
            &run->reason, count < 0 ? sl_err_from_errno(errno) : SL_ERR_NOT_FOUND, "%s: %s", path,
            count < 0 ? strerror(errno)
                      : "no file ends with " SL_ONNX_FILE_SUFFIX " or " SL_SAVED_MODEL_SUFFIX);
    }
    int err = 0;
    for (int i = 0; i < count; i++) {
        char *full = NULL;
        if (err == 0 && asprintf(&full, "%s/%s", path, entries[i]->d_name) < 0) {
            err = sl_reason_fail(&run->reason, SL_ERR_NO_MEMORY, "no memory for a path");
        }
        err = err != 0 ? err : add_file(run, full);
        free(full);
        free(entries[i]);
    }
    free(entries);
    return err;
}

/* ---- Models ---------------------------------------------------------------------------------- */

static int deploy_check_name(const char *name, const char *what, uint32_t bytes,
                             struct sl_reason *reason)
{
    return name[0] != '\0' && sl_objects_text_is_valid(name, bytes) && sl_objects_text_is_utf8(name)
               ? 0
               : sl_reason_fail(reason, SL_ERR_UNSUPPORTED,
                                "%s \"%s\": a name has 1 to %u bytes of printable UTF-8", what,
                                name, bytes - 1);
}

static int check_tensors(const struct sl_engine_tensor *tensors, uint32_t count, const char *what,
                         struct sl_reason *reason)
{
    int err = 0;
    if (count > SL_SERVE_TENSORS_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%u %ss: at most %d are served", count,
                              what, SL_SERVE_TENSORS_MAX);
    }
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = deploy_check_name(tensors[i].name, what, SL_SERVE_TENSOR_NAME, reason);
    }
    return err;
}

/* Appends "what NAME TYPE [SHAPE], ..." to the note, as far as it fits. */
static void note_tensors(const struct sl_engine_tensor *tensors, uint32_t count, const char *what,
                         char note[SL_OBJECTS_NOTE_BYTES])
{
    for (uint32_t i = 0; i < count; i++) {
        const struct sl_engine_tensor *tensor = &tensors[i];
        char shape[SL_OBJECTS_RANK_MAX * 24] = "";
        for (uint32_t j = 0; j < tensor->rank; j++) {
            const bool is_free = j == 0 && tensor->shape[0] == 0;
            (void)sl_format_add(shape, sizeof shape, ",", is_free ? "rows" : "%" PRIu64,
                                tensor->shape[j]);
        }
        const size_t before = strlen(note);
        if (!sl_format_add(note, SL_OBJECTS_NOTE_BYTES, i == 0 ? what : ", ", "%s %s [%s]",
                           tensor->name, sl_serve_request_datatype(tensor->type), shape)) {
            note[before] = '\0';
        }
    }
}

/* Opens the model as a worker will. */
static int check(struct model *model, struct sl_reason *reason)
{
    struct sl_engine_image image = sl_graph_image_of(&model->image);
    const uint32_t rows = model->graph.fixed_rows > 0 ? model->graph.fixed_rows : 1;
    void *opened;
    image.note = model->note;
    /* A version takes whole blocks, and one more for its manifest. */
    const uint64_t needed =
        (model->image.bytes / SL_OBJECTS_BLOCK_BYTES + 2) * SL_OBJECTS_BLOCK_BYTES;
    if (flags.pool_bytes > 0 && needed > flags.pool_bytes) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "the model takes %" PRIu64 " bytes of a pool, which has %zu "
                              "(--pool-memory)",
                              needed, flags.pool_bytes);
    }
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < image.count; i++) {
        err = deploy_check_name(image.tensors[i].name, "tensor", SL_OBJECTS_TENSOR_NAME_BYTES,
                                reason);
    }
    const bool is_saved = strcmp(model->note, ONNX_NOTE) != 0;
    const bool has_tables = strcmp(image.tensors[0].name, SL_GRAPH_IMAGE_LOOKUP) == 0;
    const struct sl_engine *engine = is_saved     ? &sl_engine_ctr
                                     : has_tables ? &sl_engine_lookup
                                                  : &sl_engine_graph;
    err = err != 0     ? err
          : has_tables ? sl_lookup_open_untabled(&image, rows, reason, &opened)
                       : engine->open(&image, rows, reason, &opened);
    if (err != 0) {
        return err;
    }
    const struct sl_engine_info *info = engine->info(opened);
    if (has_tables && !sl_lookup_tables(opened, model->tables, sizeof model->tables)) {
        err = sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                             "the names of its tables have more than %d "
                             "characters together",
                             SL_OBJECTS_TABLES_BYTES - 1);
    }
    err = err != 0 ? err : check_tensors(info->inputs, info->input_count, "input", reason);
    err = err != 0 ? err : check_tensors(info->outputs, info->output_count, "output", reason);
    if (!is_saved) {
        note_tensors(info->inputs, info->input_count, ": ", model->note);
        note_tensors(info->outputs, info->output_count, " to ", model->note);
    }
    model->layer_count = info->layer_count;
    for (uint32_t i = 0; i < info->layer_count; i++) {
        model->flops += info->layers[i].flops;
    }
    engine->close(&opened);
    if (err == 0 && has_tables && flags.directory != NULL) {
        err = sl_reason_fail(reason, SL_ERR_INVALID,
                             "the model reads tables of a job (%s): accepted is --catalogue, of a "
                             "job whose servers run with --objects",
                             model->tables);
    }
    return err;
}

static int read_onnx(const struct file *file, struct model *model, struct sl_reason *reason)
{
    struct sl_reason why;
    (void)snprintf(model->note, sizeof model->note, ONNX_NOTE);
    int err = sl_onnx_file_read(file->path, &model->memory, &model->graph, reason);
    if (err != 0) {
        return err;
    }
    err = sl_graph_fold(&model->graph, &model->memory, &why);
    err = err != 0 ? err : sl_graph_image_make(&model->graph, &model->memory, &model->image, &why);
    return err == 0 ? 0 : sl_reason_fail(reason, err, "%s: %s", file->path, why.text);
}

/* Reads and checks a model. In any case free its memory. */
static int prepare(struct run *run, const struct file *file, struct model *model)
{
    struct sl_reason reason;
    *model = (struct model){0};
    int err = strcmp(suffix_of(file->path), SL_SAVED_MODEL_SUFFIX) == 0
                  ? sl_saved_model_read(file->path, &model->memory, &model->image, model->note,
                                        &run->reason)
                  : read_onnx(file, model, &run->reason);
    if (err != 0) {
        return err;
    }
    err = check(model, &reason);
    return err == 0 ? 0 : sl_reason_fail(&run->reason, err, "%s: %s", file->path, reason.text);
}

/* ---- Publish --------------------------------------------------------------------------------- */

/* With --dir this process is the storage, and hosts its catalogue. */
static int start_node(struct run *run)
{
    struct sl_transfer_options engine;
    int err = sl_settings_cli_engine(&settings, &engine, &run->reason);
    if (err != 0) {
        return err;
    }
    const bool is_local = flags.directory != NULL;
    engine.name = is_local ? "127.0.0.1:0" : NULL;
    const struct sl_objects_setup setup = {.is_keeper = is_local, .directory = flags.directory};
    const struct sl_objects_options node = {.struct_size = sizeof node,
                                            .engine_options = &engine,
                                            .catalogue =
                                                is_local ? NULL : settings.objects.catalogue,
                                            .agent = "off"};
    err = sl_objects_create_with(&node, &setup, &run->objects);
    explicit_bzero(&settings.security, sizeof settings.security);
    return err == 0 ? 0 : fail_objects(run, err, "the node cannot start");
}

static int add_image(void *ctx, struct sl_publication *publication)
{
    const struct sl_graph_image *image = ctx;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < image->count; i++) {
        err = image->groups[i] != NULL ? sl_publish_group(publication, image->groups[i]) : 0;
        err = err != 0 ? err : sl_publish_tensor(publication, &image->tensors[i]);
    }
    return err;
}

static uint32_t timeout_ms(void)
{
    return (uint32_t)((flags.timeout_ns + SL_CLOCK_NS_PER_MS - 1) / SL_CLOCK_NS_PER_MS);
}

/* The versions of a name: *first of *count in the list, which the caller frees. */
static int list_versions(struct run *run, const char *name, struct sl_object_list **list,
                         const struct sl_object_entry **first, uint64_t *count)
{
    const int err = sl_object_list(run->objects, name, timeout_ms(), list);
    *count = 0;
    for (uint64_t i = 0; err == 0 && i < (*list)->count; i++) {
        if (strcmp((*list)->entries[i].name, name) == 0 && (*count)++ == 0) {
            *first = &(*list)->entries[i];
        }
    }
    return err == 0 ? 0 : fail_objects(run, err, name);
}

/* Warns of a version with other inputs or outputs: it answers from now on. */
static int compare(struct run *run, const struct file *file, const struct model *model)
{
    struct sl_object_list *list = NULL;
    const struct sl_object_entry *first;
    uint64_t count;
    const int err = list_versions(run, file->name, &list, &first, &count);
    const struct sl_object_entry *newest = count > 0 ? &first[count - 1] : NULL;
    if (newest != NULL && strcmp(newest->note, ONNX_NOTE) != 0 &&
        strcmp(newest->note, model->note) != 0) {
        sl_log_warn("deploy: %s@%" PRIu64
                    " is \"%s\", the new version \"%s\": requests for the old "
                    "one may fail; starling-serve rollback %s goes back",
                    file->name, newest->version, newest->note, model->note, file->name);
    }
    sl_object_list_free(&list);
    return err;
}

static int publish(struct run *run, const struct file *file, struct model *model)
{
    const struct sl_publish_options publish_options = {.struct_size = sizeof publish_options,
                                                       .name = file->name,
                                                       .note = model->note,
                                                       .origin = SL_ORIGIN_PS,
                                                       .take_over = true};
    const struct sl_objects_tables_own own = {.add = add_image, .ctx = &model->image};
    struct sl_publication *publication = NULL;
    uint64_t version = 0;
    int err = compare(run, file, model);
    if (err != 0) {
        return err;
    }
    if (model->tables[0] != '\0') {
        err = sl_objects_tables_publish(run->objects, &publish_options, model->tables, &own,
                                        timeout_ms(), &version);
    } else {
        err = sl_publish_begin(run->objects, &publish_options, timeout_ms(), &publication);
        err = err != 0 ? err : add_image(&model->image, publication);
        err = err != 0 ? err : sl_publish_commit(publication, timeout_ms(), &version);
    }
    err = err != 0 ? fail_objects(run, err, file->path) : 0;
    sl_publish_end(&publication);
    if (err == 0) {
        (void)printf("%s@%" PRIu64 ": %" PRIu64 " bytes, %u layer%s, %.3f GFLOP a row%s%s\n",
                     file->name, version, model->image.bytes, model->layer_count,
                     sl_log_plural(model->layer_count), model->flops / 1e9,
                     model->tables[0] != '\0' ? ", and the tables " : "", model->tables);
        (void)fflush(stdout);
    }
    return err;
}

static int deploy(struct run *run, char **paths, uint32_t count)
{
    struct model model;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < count; i++) {
        err = add_path(run, paths[i]);
    }
    for (uint32_t i = 0; err == 0 && run->file_count > 1 && i < run->file_count; i++) {
        err = prepare(run, &run->files[i], &model);
        sl_graph_memory_fini(&model.memory);
    }
    for (uint32_t i = 0; err == 0 && i < run->file_count; i++) {
        err = prepare(run, &run->files[i], &model);
        err = err != 0 || run->objects != NULL ? err : start_node(run);
        err = err != 0 ? err : publish(run, &run->files[i], &model);
        sl_graph_memory_fini(&model.memory);
    }
    return err;
}

/* ---- Roll back ------------------------------------------------------------------------------- */

/* Removes the versions above one, the newest last, so that none between them is the newest. */
static int roll_back_to(struct run *run, const char *name, const struct sl_object_entry *first,
                        uint64_t count)
{
    const uint64_t newest = first[count - 1].version;
    const uint64_t to = flags.to > 0 ? flags.to : count > 1 ? first[count - 2].version : 0;
    char versions[512] = "";
    bool is_there = false;
    int err = 0;
    for (uint64_t i = 0; i < count; i++) {
        is_there |= first[i].version == to;
        (void)sl_format_add(versions, sizeof versions, ", ", "%" PRIu64, first[i].version);
    }
    if (!is_there || to == newest) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "%s has the version%s %s: accepted is a version below the newest",
                              name, sl_log_plural((uint32_t)count), versions);
    }
    for (uint64_t i = 0; err == 0 && i < count; i++) {
        if (first[i].version > to) {
            err = sl_object_remove(run->objects, name, first[i].version, timeout_ms());
            err = err == SL_ERR_NOT_FOUND ? 0 : err;
        }
    }
    if (err != 0) {
        return fail_objects(run, err, name);
    }
    (void)printf("%s@%" PRIu64 " is the newest version; %" PRIu64 " was\n", name, to, newest);
    return 0;
}

static int roll_back(struct run *run, char **words, uint32_t word_count)
{
    struct sl_object_list *list = NULL;
    const struct sl_object_entry *first = NULL;
    uint64_t count = 0;
    int err = start_node(run);
    err = err != 0 ? err : list_versions(run, words[0], &list, &first, &count);
    if (err == 0) {
        err = count > 0 ? roll_back_to(run, words[0], first, count)
                        : sl_reason_fail(&run->reason, SL_ERR_NOT_FOUND, "no model %s", words[0]);
    }
    sl_object_list_free(&list);
    return err;
}

/* ---- Roles ----------------------------------------------------------------------------------- */

/* A catalogue was given. With --dir only the flag counts. */
static bool is_remote(const struct sl_cli *cli)
{
    const bool is_flag =
        sl_settings_given(cli, &settings.objects.catalogue)->from == SL_CLI_FROM_FLAG;
    return settings.objects.metadata != NULL ||
           (settings.objects.catalogue != NULL && (flags.directory == NULL || is_flag));
}

static int run_role(enum sl_program program, const struct sl_cli *own, int argc, char **argv,
                    int (*run_words)(struct run *run, char **words, uint32_t count))
{
    struct run run = {0};
    static struct sl_settings_cli all;
    sl_settings_cli_init(program, 1, own, &settings, &all);
    int err = sl_cli_parse(&all.cli, argc, argv, &run.reason);
    if (err == SL_CLI_RUN && (flags.directory != NULL) == is_remote(&all.cli)) {
        err = sl_reason_fail(&run.reason, SL_ERR_INVALID,
                             "accepted is one of --catalogue (or --metadata) and --dir");
    }
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(own, err, &run.reason);
    }
    sl_settings_log_setup(&settings, "starling-serve");
    err = run_words(&run, own->words->items, own->words->count);
    sl_objects_destroy(&run.objects);
    for (uint32_t i = 0; i < run.file_count; i++) {
        free(run.files[i].path);
    }
    free(run.files);
    sl_settings_fini(&settings);
    return sl_cli_end(own, err, &run.reason);
}

int sl_serve_deploy_run(int argc, char **argv)
{
    struct sl_cli_words words = {
        .least = 1,
        .most = UINT32_MAX,
        .missing = "a file or a directory with models is missing, before the flags"};
    const struct sl_cli own = {
        .program = "starling-serve deploy",
        .summary = "Publishes models for workers to serve: ONNX models, and those that "
                   "starling-worker --save wrote.",
        .usage = "MODEL.onnx|MODEL.safetensors|DIR... --catalogue HOST:PORT|--dir DIR",
        .options = options,
        .option_count = LENGTH(options),
        .words = &words};
    return run_role(SL_PROGRAM_DEPLOY, &own, argc, argv, deploy);
}

int sl_serve_rollback_run(int argc, char **argv)
{
    struct sl_cli_words words = {
        .least = 1, .most = 1, .missing = "the name of a model is missing, before the flags"};
    const struct sl_cli own = {.program = "starling-serve rollback",
                               .summary = "Removes the newest versions of a model: the one before "
                                          "them answers again.",
                               .usage = "MODEL --catalogue HOST:PORT|--dir DIR",
                               .options = rollback_options,
                               .option_count = LENGTH(rollback_options),
                               .words = &words};
    return run_role(SL_PROGRAM_ROLLBACK, &own, argc, argv, roll_back);
}
