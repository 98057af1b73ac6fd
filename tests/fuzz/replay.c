/* In place of libFuzzer where there is none: runs a target over files and folders of inputs, so
 * that every build replays the corpus as a test. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/input.h"

#define INPUT_BYTES_MAX (4U << 20)

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(INPUT_BYTES_MAX);
    if (file == NULL || bytes == NULL) {
        (void)fprintf(stderr, "%s cannot be read\n", path);
        free(bytes);
        return -1;
    }
    size_t byte_count = fread(bytes, 1, INPUT_BYTES_MAX, file);
    (void)fclose(file);
    /* Its own allocation of just that size: a sanitizer then sees every byte too many. */
    uint8_t *exact = malloc(byte_count == 0 ? 1 : byte_count);
    memcpy(exact, bytes, byte_count);
    free(bytes);
    (void)LLVMFuzzerTestOneInput(exact, byte_count);
    free(exact);
    return 1;
}

/* The number of files replayed, or -1. */
static int replay(const char *path)
{
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return replay_file(path);
    }
    struct dirent **entries;
    int entry_count = scandir(path, &entries, NULL, alphasort);
    int file_count = entry_count < 0 ? -1 : 0;
    for (int i = 0; i < entry_count; i++) {
        char inner[4096];
        (void)snprintf(inner, sizeof inner, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && file_count >= 0) {
            int count = replay(inner);
            file_count = count < 0 ? -1 : file_count + count;
        }
        free(entries[i]);
    }
    if (entry_count >= 0) {
        free(entries);
    }
    return file_count;
}

int main(int argc, char **argv)
{
    int file_count = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0) {
            return EXIT_FAILURE;
        }
        file_count += count;
    }
    (void)printf("%d inputs replayed\n", file_count);
    return file_count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
