/* Scores a test file with the newest version of a model that a worker has published, as a server
 * does: ctr_scores CATALOGUE NAME FILE prints the keys of the first example, the AUC, and the mean
 * logistic loss. The file is in the format of Criteo. */
#include <inttypes.h>
#include <math.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "programs/serve/engine/ctr.h"
#include "programs/train/auc.h"
#include "programs/train/reader.h"

enum { TIMEOUT_MS = 60000, ROWS_MAX = 32, TENSORS_MAX = 4096 };

struct scores {
    void *model;
    const struct sl_engine_info *info;
    uint8_t *scratch;
    float labels[ROWS_MAX];
    uint32_t rows;
    struct sl_auc auc;
    double loss;
};

static void open_model(struct scores *scores, const struct sl_view *view)
{
    static struct sl_object_tensor tensors[TENSORS_MAX];
    static uint64_t offsets[TENSORS_MAX];
    struct sl_engine_image image = {
        .tensors = tensors, .offsets = offsets, .note = sl_view_note(view)};
    struct sl_reason reason;
    uint64_t cursor = 0;
    while (image.count < TENSORS_MAX &&
           sl_view_next_tensor(view, &cursor, &tensors[image.count], &offsets[image.count]) == 0) {
        image.bytes = offsets[image.count] + tensors[image.count].bytes;
        image.count++;
    }
    if (sl_engine_ctr.open(&image, ROWS_MAX, &reason, &scores->model) != 0) {
        (void)fprintf(stderr, "ctr_scores: %s\n", reason.text);
        exit(EXIT_FAILURE);
    }
    scores->info = sl_engine_ctr.info(scores->model);
    scores->scratch = aligned_alloc(64, scores->info->scratch_bytes);
    sl_assert(scores->scratch != NULL);
}

static void compute(struct scores *scores)
{
    struct sl_reason reason;
    const float *found = (const void *)(scores->scratch + scores->info->outputs[0].scratch_offset);
    sl_assert(sl_engine_ctr.run(scores->model, scores->scratch, 0, scores->rows, &reason) == 0);
    for (uint32_t i = 0; i < scores->rows; i++) {
        const double p = scores->labels[i] > 0 ? (double)found[i] : 1 - (double)found[i];
        scores->loss -= log(p);
        sl_assert(sl_auc_add(&scores->auc, found[i], scores->labels[i]) == 0);
    }
    scores->rows = 0;
}

static void add(struct scores *scores, const struct sl_reader_row *row)
{
    const struct sl_engine_tensor *keys = &scores->info->inputs[0], *values = &keys[1];
    uint8_t *to = scores->scratch;
    sl_assert(row->feature_count == keys->shape[1]);
    for (uint32_t i = 0; i < row->feature_count && scores->auc.count + scores->rows == 0; i++) {
        printf("key %" PRIu64 "\n", row->keys[i]);
    }
    memcpy(to + keys->scratch_offset + scores->rows * keys->row_bytes, row->keys, keys->row_bytes);
    memcpy(to + values->scratch_offset + scores->rows * values->row_bytes, row->values,
           values->row_bytes);
    scores->labels[scores->rows++] = row->label;
    if (scores->rows == ROWS_MAX) {
        compute(scores);
    }
}

static void score_file(struct scores *scores, const char *path)
{
    const struct sl_reader_options options = {
        .format = &sl_reader_criteo, .paths = &path, .path_count = 1, .share_count = 1};
    const struct sl_reader_row *row;
    struct sl_reader *reader;
    struct sl_reason reason;
    double auc;
    sl_assert(sl_reader_open(&options, &reader, &reason) == 0);
    while (sl_reader_next(reader, &row) == 1) {
        add(scores, row);
    }
    if (scores->rows > 0) {
        compute(scores);
    }
    sl_reader_close(&reader);
    sl_assert(sl_auc_compute(&scores->auc, &auc) == 0);
    printf("auc %.9f loss %.9f rows %zu\n", auc, scores->loss / (double)scores->auc.count,
           scores->auc.count);
}

int main(int argc, char **argv)
{
    struct sl_objects *objects = NULL;
    struct sl_subscription *subscription = NULL;
    struct sl_view *view = NULL;
    struct scores scores = {0};
    sl_assert(argc == 4);
    const struct sl_objects_options options = {
        .struct_size = sizeof options, .catalogue = argv[1], .agent = "off"};
    if (sl_objects_create(&options, &objects) != 0 ||
        sl_subscription_open(objects, argv[2], NULL, TIMEOUT_MS, &subscription) != 0 ||
        sl_view_open(subscription, NULL, TIMEOUT_MS, &view) != 0) {
        (void)fprintf(stderr, "ctr_scores: %s\n", sl_objects_last_error());
        return EXIT_FAILURE;
    }
    sl_auc_init(&scores.auc);
    open_model(&scores, view);
    score_file(&scores, argv[3]);
    sl_engine_ctr.close(&scores.model);
    sl_auc_fini(&scores.auc);
    free(scores.scratch);
    sl_view_close(&view);
    sl_subscription_close(&subscription);
    sl_objects_destroy(&objects);
    return EXIT_SUCCESS;
}
