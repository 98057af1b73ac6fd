/* Reads the kernel's files about the host. */
#include "programs/doctor/files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/format.h"
#include "core/text_file.h"

#define PATH_BYTES 1024

bool sl_doctor_files_line(const struct sl_doctor *doctor, char *line, size_t line_bytes,
                          const char *path, ...)
{
    char text[PATH_BYTES], whole[PATH_BYTES + 64];
    SL_FORMAT(text, path);
    (void)snprintf(whole, sizeof whole, "%s%s", doctor->system->root, text);
    return sl_text_file_line(whole, line, line_bytes);
}

void sl_doctor_files_text(const struct sl_doctor *doctor, char *text, size_t text_bytes,
                          const char *path)
{
    char whole[PATH_BYTES];
    (void)snprintf(whole, sizeof whole, "%s%s", doctor->system->root, path);
    (void)sl_text_file_read(whole, text, text_bytes);
}

bool sl_doctor_files_field(const char *text, const char *key, char *value, size_t value_bytes)
{
    const size_t length = strlen(key);
    value[0] = '\0';
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += line[0] == '\n';
        if (strncmp(line, key, length) == 0) {
            line += length + strspn(line + length, " \t");
            (void)snprintf(value, value_bytes, "%.*s", (int)strcspn(line, "\n"), line);
            return true;
        }
    }
    return false;
}

static int files_compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

uint32_t sl_doctor_files_list(const struct sl_doctor *doctor, const char *path,
                              char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most)
{
    char whole[PATH_BYTES];
    (void)snprintf(whole, sizeof whole, "%s%s", doctor->system->root, path);
    DIR *directory = opendir(whole);
    uint32_t count = 0;
    const struct dirent *entry;
    while (directory != NULL && count < most && (entry = readdir(directory)) != NULL) {
        const size_t bytes = strlen(entry->d_name) + 1;
        if (entry->d_name[0] != '.' && bytes <= SL_RDMA_DEVICE_NAME_BYTES) {
            memcpy(names[count++], entry->d_name, bytes);
        }
    }
    if (directory != NULL) {
        (void)closedir(directory);
    }
    qsort(names, count, SL_RDMA_DEVICE_NAME_BYTES, files_compare_names);
    return count;
}

bool sl_doctor_files_link(const struct sl_doctor *doctor, char *name, size_t name_bytes,
                          const char *path, ...)
{
    char text[PATH_BYTES], whole[PATH_BYTES + 64], target[PATH_BYTES];
    SL_FORMAT(text, path);
    (void)snprintf(whole, sizeof whole, "%s%s", doctor->system->root, text);
    const ssize_t bytes = readlink(whole, target, sizeof target - 1);
    target[bytes > 0 ? bytes : 0] = '\0';
    const char *slash = strrchr(target, '/');
    (void)snprintf(name, name_bytes, "%s", slash != NULL ? slash + 1 : target);
    return bytes > 0;
}

bool sl_doctor_files_may(const struct sl_doctor *doctor, uint32_t capability)
{
    char status[4096], text[32];
    sl_doctor_files_text(doctor, status, sizeof status, "/proc/self/status");
    return sl_doctor_files_field(status, "CapEff:", text, sizeof text) &&
           (strtoull(text, NULL, 16) >> capability & 1) != 0;
}

int sl_doctor_files_access(const struct sl_doctor *doctor, const char *path)
{
    char whole[PATH_BYTES];
    (void)snprintf(whole, sizeof whole, "%s%s", doctor->system->root, path);
    return access(whole, R_OK | W_OK) == 0 ? 0 : errno;
}
