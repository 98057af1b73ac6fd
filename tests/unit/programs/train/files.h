/* Files that a test writes into a folder of its own, which ends with it. */
#ifndef SL_TESTS_UNIT_PROGRAMS_TRAIN_FILES_H
#define SL_TESTS_UNIT_PROGRAMS_TRAIN_FILES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/unit.h"

struct train_files {
    char folder[64];
    char paths[4][96];
    const char *list[4]; /* the same, as readers want them */
    uint32_t count;
};

static inline void train_files_begin(struct train_files *files)
{
    (void)snprintf(files->folder, sizeof files->folder, "/tmp/starling-train-XXXXXX");
    assert_non_null(mkdtemp(files->folder));
    files->count = 0;
}

static inline void train_files_add(struct train_files *files, const void *text, size_t bytes)
{
    char path[sizeof files->paths[0]];
    (void)snprintf(path, sizeof path, "%s/%u", files->folder, files->count);
    memcpy(files->paths[files->count], path, sizeof path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    files->list[files->count] = files->paths[files->count];
    files->count++;
}

static inline void train_files_end(struct train_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        assert_int_equal(unlink(files->paths[i]), 0);
    }
    assert_int_equal(rmdir(files->folder), 0);
}

#endif
