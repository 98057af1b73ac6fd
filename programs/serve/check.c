#include "programs/serve/check.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/cli.h"
#include "core/clock.h"
#include "core/format.h"
#include "objects/catalogue/manifest.h"
#include "programs/serve/base/request.h"
#include "programs/serve/engine/engine.h"
#include "programs/serve/engine/graph_fold.h"
#include "programs/serve/engine/graph_image.h"
#include "programs/serve/engine/graph_plan.h"
#include "programs/serve/engine/lookup.h"
#include "programs/serve/npz.h"
#include "programs/serve/onnx_file.h"

#define LENGTH(of)   (uint32_t)(sizeof(of) / sizeof((of)[0]))
#define ROWS_DEFAULT 32U /* as --batch-max of workers */

static struct {
    const char *inputs, *outputs;
} flags;

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(STRING, &flags.inputs, .name = "inputs", .metavar = "X.npz",
                  .help = "Compute these rows: a file of numpy.savez with an array for each input, "
                          "of its name."),
    SL_CLI_OPTION(STRING, &flags.outputs, .name = "outputs", .metavar = "Y.npz",
                  .help = "Compare with these outputs, for example those of torch: an array for "
                          "each output, of its name. Needs --inputs."),
};

/* A file of arrays. bytes NULL: none. */
struct arrays {
    const char *path;
    void *bytes;
    size_t count;
};

struct check {
    struct sl_graph_memory memory;
    struct sl_graph graph;
    struct sl_graph_image image;
    const struct sl_engine *engine;
    void *model;
    struct arrays inputs, outputs;
    uint32_t rows; /* of the inputs; without any, ROWS_DEFAULT */
    void *scratch;
    struct sl_reason *reason;
};

static int map_arrays(const char *path, struct arrays *arrays, struct sl_reason *reason)
{
    struct stat status;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0) {
        const int system_errno = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return sl_reason_fail(reason, sl_err_from_errno(system_errno), "%s: %s", path,
                              strerror(system_errno));
    }
    const bool is_file = S_ISREG(status.st_mode) && status.st_size > 0;
    const size_t count = is_file ? (size_t)status.st_size : 0;
    void *bytes = is_file ? mmap(NULL, count, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    (void)close(fd);
    if (bytes == MAP_FAILED) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s: not a file with arrays", path);
    }
    *arrays = (struct arrays){.bytes = bytes, .count = count, .path = path};
    return 0;
}

/* Finds the array of a tensor, whose type and shape it has. */
static int find_array(const struct check *check, const struct arrays *arrays,
                      const struct sl_engine_tensor *tensor, struct sl_npz_array *array)
{
    struct sl_reason why;
    const int err = sl_npz_find(arrays->bytes, arrays->count, tensor->name, array, &why);
    if (err != 0) {
        return sl_reason_fail(check->reason, err, "%s: %s", arrays->path, why.text);
    }
    bool fits = array->type == tensor->type && array->rank == tensor->rank && array->shape[0] > 0;
    for (uint32_t i = tensor->shape[0] > 0 ? 0 : 1; fits && i < array->rank; i++) {
        fits = array->shape[i] == tensor->shape[i];
    }
    return fits ? 0
                : sl_reason_fail(check->reason, SL_ERR_INVALID,
                                 "%s: array \"%s\" has not the type and shape of the model's",
                                 arrays->path, tensor->name);
}

/* The rows of the inputs, which are known before the model is opened for so many. */
static int count_rows(struct check *check)
{
    const struct sl_graph *graph = &check->graph;
    const char *name = graph->inputs[0]->name;
    struct sl_npz_array array;
    struct sl_reason why;
    int err = sl_npz_find(check->inputs.bytes, check->inputs.count, name, &array, &why);
    if (err == 0 &&
        (array.rank == 0 || array.shape[0] == 0 || array.shape[0] > SL_GRAPH_PLAN_ROWS_MAX)) {
        err = sl_reason_fail(&why, SL_ERR_INVALID, "array \"%s\": accepted are 1 to %u rows", name,
                             SL_GRAPH_PLAN_ROWS_MAX);
    }
    check->rows = err == 0 ? (uint32_t)array.shape[0] : 0;
    return err == 0 ? 0 : sl_reason_fail(check->reason, err, "%s: %s", flags.inputs, why.text);
}

static int open_model(struct check *check, const char *path)
{
    struct sl_reason why;
    int err = sl_onnx_file_read(path, &check->memory, &check->graph, check->reason);
    if (err != 0) {
        return err;
    }
    err = flags.inputs != NULL ? count_rows(check) : 0;
    if (err != 0) {
        return err;
    }
    err = sl_graph_fold(&check->graph, &check->memory, &why);
    err = err != 0 ? err : sl_graph_image_make(&check->graph, &check->memory, &check->image, &why);
    if (err == 0) {
        const struct sl_engine_image image = sl_graph_image_of(&check->image);
        const bool has_tables = strcmp(image.tensors[0].name, SL_GRAPH_IMAGE_LOOKUP) == 0;
        const uint32_t fixed = check->graph.fixed_rows;
        const uint32_t rows = fixed > check->rows ? fixed : check->rows;
        check->engine = has_tables ? &sl_engine_lookup : &sl_engine_graph;
        err = has_tables ? sl_lookup_open_untabled(&image, rows, &why, &check->model)
                         : check->engine->open(&image, rows, &why, &check->model);
        if (err == 0 && has_tables && flags.inputs != NULL) {
            err =
                sl_reason_fail(&why, SL_ERR_UNSUPPORTED,
                               "the model reads tables of a job: without them nothing is computed");
        }
    }
    return err == 0 ? 0 : sl_reason_fail(check->reason, err, "%s: %s", path, why.text);
}

static void print_tensors(const char *what, const struct sl_engine_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        char shape[SL_OBJECTS_RANK_MAX * 24] = "";
        for (uint32_t j = 0; j < tensors[i].rank; j++) {
            const bool is_free = j == 0 && tensors[i].shape[0] == 0;
            (void)sl_format_add(shape, sizeof shape, ",", is_free ? "rows" : "%" PRIu64,
                                tensors[i].shape[j]);
        }
        (void)printf("%s %s %s [%s]\n", what, tensors[i].name,
                     sl_serve_request_datatype(tensors[i].type), shape);
    }
}

static void print_model(const struct check *check)
{
    const struct sl_engine_info *info = check->engine->info(check->model);
    const uint32_t rows = info->fixed_rows > 0 ? info->fixed_rows : check->rows;
    double flops = 0;
    for (uint32_t i = 0; i < info->layer_count; i++) {
        flops += info->layers[i].flops;
    }
    print_tensors("input", info->inputs, info->input_count);
    print_tensors("output", info->outputs, info->output_count);
    (void)printf("layers %u\n", info->layer_count);
    (void)printf(
        "memory %.1f MB of a pool, and %.1f MB in a worker for %u rows\n",
        (double)((check->image.bytes / SL_OBJECTS_BLOCK_BYTES + 2) * SL_OBJECTS_BLOCK_BYTES) / 1e6,
        (double)info->scratch_bytes / 1e6, rows);
    (void)printf("work %.4g GFLOP a row\n", flops / 1e9);
}

/* Computes the rows. */
static int compute(struct check *check)
{
    const struct sl_engine_info *info = check->engine->info(check->model);
    if (posix_memalign(&check->scratch, 64, info->scratch_bytes) != 0) {
        check->scratch = NULL;
        return sl_reason_fail(check->reason, SL_ERR_NO_MEMORY, "no memory for %u rows",
                              check->rows);
    }
    for (uint32_t i = 0; i < info->input_count; i++) {
        const struct sl_engine_tensor *input = &info->inputs[i];
        struct sl_npz_array array;
        const int err = find_array(check, &check->inputs, input, &array);
        if (err != 0) {
            return err;
        }
        if (array.shape[0] != check->rows) {
            return sl_reason_fail(check->reason, SL_ERR_INVALID,
                                  "%s: array \"%s\" has %" PRIu64 " rows, but \"%s\" has %u",
                                  flags.inputs, input->name, array.shape[0], info->inputs[0].name,
                                  check->rows);
        }
        memcpy((uint8_t *)check->scratch + input->scratch_offset, array.data, array.bytes);
    }
    const uint64_t begin = sl_clock_now_ns(sl_clock_system());
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < info->layer_count; i++) {
        err = check->engine->run(check->model, check->scratch, i, check->rows, check->reason);
    }
    if (err == 0) {
        (void)printf("computed %u row%s in %.1f ms\n", check->rows, check->rows == 1 ? "" : "s",
                     (double)(sl_clock_now_ns(sl_clock_system()) - begin) / 1e6);
    }
    return err;
}

static double read_element(uint32_t type, const uint8_t *data, uint64_t i)
{
    float f;
    int64_t n;
    switch (type) {
    case SL_OBJECT_F32:
        memcpy(&f, data + i * sizeof f, sizeof f);
        return f;
    case SL_OBJECT_I64:
        memcpy(&n, data + i * sizeof n, sizeof n);
        return (double)n;
    default:
        return data[i] != 0;
    }
}

/* Prints, for each output, the greatest difference from its array. */
static int compare(struct check *check)
{
    const struct sl_engine_info *info = check->engine->info(check->model);
    for (uint32_t i = 0; i < info->output_count; i++) {
        const struct sl_engine_tensor *output = &info->outputs[i];
        const uint8_t *got = (const uint8_t *)check->scratch + output->scratch_offset;
        const uint64_t item_bytes = output->type == SL_OBJECT_F32   ? 4
                                    : output->type == SL_OBJECT_I64 ? 8
                                                                    : 1;
        struct sl_npz_array array;
        const int err = find_array(check, &check->outputs, output, &array);
        if (err != 0 || array.shape[0] != check->rows) {
            return err != 0
                       ? err
                       : sl_reason_fail(check->reason, SL_ERR_INVALID,
                                        "%s: array \"%s\" has %" PRIu64 " rows, the inputs %u",
                                        flags.outputs, output->name, array.shape[0], check->rows);
        }
        double most = 0, relative = 0;
        for (uint64_t j = 0; j < array.bytes / item_bytes; j++) {
            const double a = read_element(output->type, got, j);
            const double b = read_element(output->type, array.data, j);
            const double apart = a == b || (isnan(a) && isnan(b)) ? 0 : fabs(a - b);
            const double part = apart / (fabs(b) > 1 ? fabs(b) : 1);
            most = !(apart <= most) ? apart : most; /* NaN stays */
            relative = !(part <= relative) ? part : relative;
        }
        (void)printf("difference %s: at most %.3g, %.3g of values above 1\n", output->name, most,
                     relative);
    }
    return 0;
}

static int run_check(struct check *check, const char *path)
{
    int err = 0;
    if (flags.inputs != NULL) {
        err = map_arrays(flags.inputs, &check->inputs, check->reason);
    }
    if (err == 0 && flags.outputs != NULL) {
        err = map_arrays(flags.outputs, &check->outputs, check->reason);
    }
    err = err != 0 ? err : open_model(check, path);
    if (err != 0) {
        return err;
    }
    print_model(check);
    err = flags.inputs != NULL ? compute(check) : 0;
    return err == 0 && flags.outputs != NULL ? compare(check) : err;
}

static void unmap_arrays(struct arrays *arrays)
{
    if (arrays->bytes != NULL) {
        (void)munmap(arrays->bytes, arrays->count);
    }
}

int sl_serve_check_run(int argc, char **argv)
{
    struct sl_reason reason;
    struct sl_cli_words words = {
        .least = 1, .most = 1, .missing = "a model is missing, before the flags"};
    const struct sl_cli cli = {.program = "starling-serve check",
                               .summary =
                                   "Tells what would be served of an ONNX model, and how far "
                                   "its outputs are from given ones.",
                               .usage = "MODEL.onnx [--inputs X.npz [--outputs Y.npz]]",
                               .options = options,
                               .option_count = LENGTH(options),
                               .words = &words};
    int err = sl_cli_parse(&cli, argc, argv, &reason);
    if (err == SL_CLI_RUN && flags.outputs != NULL && flags.inputs == NULL) {
        err = sl_reason_fail(&reason, SL_ERR_INVALID, "--outputs needs --inputs");
    }
    if (err != SL_CLI_RUN) {
        return sl_cli_exit(&cli, err, &reason);
    }
    struct check check = {.rows = ROWS_DEFAULT, .reason = &reason};
    sl_graph_memory_init(&check.memory, 0);
    err = run_check(&check, words.items[0]);
    if (check.engine != NULL) {
        check.engine->close(&check.model);
    }
    free(check.scratch);
    unmap_arrays(&check.inputs);
    unmap_arrays(&check.outputs);
    sl_graph_memory_fini(&check.memory);
    return sl_cli_end(&cli, err, &reason);
}
