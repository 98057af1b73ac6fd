#include "programs/train/data_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/array.h"

/* Appends "folder/name", or the name. */
static int data_files_append(struct sl_data_files *files, const char *folder, const char *name,
                             size_t length, struct sl_reason *reason)
{
    const size_t room = (folder == NULL ? 0 : strlen(folder) + 1) + length + 1;
    char *path = malloc(room);
    if (path == NULL ||
        !sl_array_make_room(&files->paths, &files->capacity, files->count, sizeof *files->paths)) {
        free(path);
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the names of the files");
    }
    (void)snprintf(path, room, "%s%s%.*s", folder == NULL ? "" : folder, folder == NULL ? "" : "/",
                   (int)length, name);
    files->paths[files->count++] = path;
    return 0;
}

static int is_data(const struct dirent *entry)
{
    return entry->d_name[0] != '_' && entry->d_name[0] != '.';
}

/* In the order of the bytes: alphasort's depends on the locale. */
static int data_files_by_name(const struct dirent **one, const struct dirent **other)
{
    return strcmp((*one)->d_name, (*other)->d_name);
}

static int add_folder(struct sl_data_files *files, const char *folder, struct sl_reason *reason)
{
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, is_data, data_files_by_name);
    if (count < 0) {
        const int why = errno;
        return sl_reason_fail(reason, sl_err_from_errno(why), "%s: %s", folder, strerror(why));
    }
    int err = count > 0 ? 0
                        : sl_reason_fail(reason, SL_ERR_NOT_FOUND,
                                         "%s: the folder has no file whose name begins neither "
                                         "with \"_\" nor with \".\"",
                                         folder);
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        err = err != 0 ? err : data_files_append(files, folder, name, strlen(name), reason);
        free(entries[i]);
    }
    free(entries);
    return err;
}

static int add_one(struct sl_data_files *files, const char *path, struct sl_reason *reason)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode)
               ? add_folder(files, path, reason)
               : data_files_append(files, NULL, path, strlen(path), reason);
}

int sl_data_files_add(struct sl_data_files *files, const char *value, struct sl_reason *reason)
{
    struct stat status;
    if (strchr(value, ',') == NULL || stat(value, &status) == 0) {
        return add_one(files, value, reason);
    }
    char *list = strdup(value), *rest = list, *path;
    int err = list == NULL ? sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory") : 0;
    while (err == 0 && (path = strsep(&rest, ",")) != NULL) {
        err = path[0] != '\0' ? add_one(files, path, reason)
                              : sl_reason_fail(reason, SL_ERR_INVALID,
                                               "\"%s\": a name of the list is empty", value);
    }
    free(list);
    return err;
}

void sl_data_files_fini(struct sl_data_files *files)
{
    for (uint32_t i = 0; i < files->count; i++) {
        free(files->paths[i]);
    }
    free(files->paths);
    *files = (struct sl_data_files){0};
}
