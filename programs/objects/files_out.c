#include "programs/objects/files_out.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/end_signals.h"
#include "objects/node/get.h"
#include "programs/objects/files_in.h"

#define SELF        "/proc/self/fd"
#define WRITE_BYTES (16U << 20) /* between two looks for a signal */

/* The file that is being written. */
struct file {
    const char *path;     /* in the object */
    int root, parent, fd; /* of the directory, of the file's own one, of the file; -1: none */
    bool is_unnamed;      /* the file has no name yet: nothing is left if the process is killed */
    char own[SL_OBJECTS_NAME_BYTES + 32]; /* the path, if the object has none */
    char name[NAME_MAX + 1], beside[NAME_MAX + 1];
    json_t *written; /* the paths before, as keys */
};

/* What an object is made of. Loose tensors follow no "file:" tensor of their part. */
struct content {
    bool has_parts;
    bool is_split; /* into a file of each part: it has files, or loose tensors of one name */
    bool is_bytes; /* each part is what sl_publish_bytes makes: one tensor, and no other one */
};

static int files_out_refuse(const struct file *file, int err, struct sl_reason *reason)
{
    return sl_reason_fail(reason, SL_ERR_IO, "cannot write \"%s\": %s", file->path, strerror(err));
}

/* Opens the directory of the path below the root, and sets the file's name. A component of the path
 * is a name: so no path leaves the root, as no symbolic link is followed. */
static int open_parent(struct file *file, struct sl_reason *reason)
{
    const char *from = file->path;
    file->parent = dup(file->root);
    for (;; from += strlen(file->name) + 1) {
        const size_t length = strcspn(from, "/");
        if (length == 0 || length > NAME_MAX || (length == 1 && from[0] == '.') ||
            (length == 2 && from[0] == '.' && from[1] == '.')) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "the object has a file \"%s\": accepted are relative paths "
                                  "without empty parts, \".\" and \"..\"",
                                  file->path);
        }
        memcpy(file->name, from, length);
        file->name[length] = '\0';
        if (from[length] == '\0') {
            return 0;
        }
        if (mkdirat(file->parent, file->name, 0777) != 0 && errno != EEXIST) {
            return files_out_refuse(file, errno, reason);
        }
        const int next =
            openat(file->parent, file->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            return files_out_refuse(file, errno, reason);
        }
        (void)close(file->parent);
        file->parent = next;
    }
}

static int files_out_begin(struct file *file, const char *path, struct sl_reason *reason)
{
    file->path = path;
    int err = open_parent(file, reason);
    if (err != 0) {
        return err;
    }
    if (json_object_get(file->written, path) != NULL) {
        return sl_reason_fail(reason, SL_ERR_EXISTS,
                              "two parts of the object have a file \"%s\": accepted is one", path);
    }
    (void)json_object_set_new_nocheck(file->written, path, json_true());
    (void)snprintf(file->beside, sizeof file->beside, ".%.200s.%d", file->name, (int)getpid());
    (void)unlinkat(file->parent, file->beside, 0); /* of a process that was killed */
    file->fd = access(SELF, X_OK) == 0
                   ? openat(file->parent, ".", O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666)
                   : -1;
    file->is_unnamed = file->fd >= 0;
    if (file->fd < 0) { /* the file system has no files without a name */
        file->fd = openat(file->parent, file->beside,
                          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    }
    return file->fd < 0 ? files_out_refuse(file, errno, reason) : 0;
}

static int files_out_append(struct file *file, const uint8_t *bytes, uint64_t count,
                            struct sl_reason *reason)
{
    for (uint64_t done = 0; done < count;) {
        const size_t step = count - done < WRITE_BYTES ? count - done : WRITE_BYTES;
        const ssize_t put = write(file->fd, bytes + done, step);
        if (put < 0 && errno != EINTR) {
            return files_out_refuse(file, errno, reason);
        }
        done += put < 0 ? 0 : (uint64_t)put;
        const int err = sl_end_signals_check(reason);
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

static bool is_file(const struct sl_object_tensor *tensor)
{
    return strncmp(tensor->name, SL_FILES_IN_PREFIX, strlen(SL_FILES_IN_PREFIX)) == 0;
}

/* Appends the head of a safetensors file with the loose tensors from `cursor` on: of its part, or
 * is_whole: of all parts. */
static int append_head(struct file *file, struct sl_get *get, uint64_t cursor, bool is_whole,
                       struct sl_reason *reason)
{
    struct sl_object_tensor tensor;
    const uint32_t part = sl_get_part(get, cursor);
    uint64_t at, files_out_begin = 0;
    json_t *root = json_object();
    bool good = root != NULL;
    for (uint64_t next = cursor; good && sl_get_next_tensor(get, &next, &tensor, &at) == 0 &&
                                 (is_whole || sl_get_part(get, next - 1) == part) &&
                                 !is_file(&tensor);) {
        json_t *shape = json_array();
        for (uint32_t i = 0; shape != NULL && i < tensor.rank; i++) {
            (void)json_array_append_new(shape, json_integer((json_int_t)tensor.shape[i]));
        }
        const uint64_t end = files_out_begin + tensor.bytes;
        json_t *entry =
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", sl_files_in_type_name(tensor.type), "shape",
                      shape, "data_offsets", (json_int_t)files_out_begin, (json_int_t)end);
        good = json_object_set_new(root, tensor.name, entry) == 0;
        files_out_begin = end;
    }
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for the head of \"%s\"",
                              file->path);
    }
    const uint64_t length = strlen(text), padded = sl_bytes_pad8(length);
    int err = files_out_append(file, (const uint8_t *)&padded, sizeof padded, reason);
    err = err != 0 ? err : files_out_append(file, (const uint8_t *)text, length, reason);
    err = err != 0 ? err
                   : files_out_append(file, (const uint8_t *)"       ", padded - length, reason);
    free(text);
    return err;
}

/* Begins a file for loose tensors: of all parts, or of that of the cursor. */
static int begin_loose(struct file *file, struct sl_get *get, uint64_t cursor, const char *object,
                       const struct content *content, struct sl_reason *reason)
{
    const char *slash = strrchr(object, '/'), *base = slash == NULL ? object : slash + 1;
    char part[16] = "";
    if (content->is_split && content->has_parts) {
        (void)snprintf(part, sizeof part, ".%u", sl_get_part(get, cursor));
    }
    (void)snprintf(file->own, sizeof file->own, "%s%s%s", base, part,
                   content->is_bytes ? "" : ".safetensors");
    const int err = files_out_begin(file, file->own, reason);
    return err != 0 || content->is_bytes
               ? err
               : append_head(file, get, cursor, !content->is_split, reason);
}

/* Gives the file its name if everything went well; else removes it. No effect without a file. */
static int end(struct file *file, int err, struct sl_reason *reason)
{
    if (file->fd >= 0) {
        char self[sizeof SELF + 16];
        (void)snprintf(self, sizeof self, SELF "/%d", file->fd);
        if (err == 0 && file->is_unnamed &&
            linkat(AT_FDCWD, self, file->parent, file->beside, AT_SYMLINK_FOLLOW) != 0) {
            err = files_out_refuse(file, errno, reason);
        }
        if (close(file->fd) != 0 && err == 0) {
            err = files_out_refuse(file, errno, reason);
        }
        if (err == 0 && renameat(file->parent, file->beside, file->parent, file->name) != 0) {
            err = files_out_refuse(file, errno, reason);
        }
        if (err != 0) {
            (void)unlinkat(file->parent, file->beside, 0);
        }
    }
    if (file->parent >= 0) {
        (void)close(file->parent);
    }
    file->fd = file->parent = -1;
    return err;
}

/* Errors: INVALID (a name that a safetensors file cannot have), NO_MEMORY; with a reason. */
static int survey(struct sl_get *get, struct content *content, struct sl_reason *reason)
{
    struct sl_object_tensor tensor;
    json_t *names = json_object();
    const char *bad = NULL;
    bool is_loose = true, repeats = false;
    uint64_t at;
    uint32_t part = 0;
    *content = (struct content){.is_bytes = true};
    for (uint64_t next = 0; bad == NULL && sl_get_next_tensor(get, &next, &tensor, &at) == 0;) {
        const bool is_first = next == 1 || sl_get_part(get, next - 1) != part;
        part = sl_get_part(get, next - 1);
        is_loose = (is_loose || is_first) && !is_file(&tensor);
        content->has_parts |= part > 0;
        content->is_split |= is_file(&tensor);
        content->is_bytes &= is_first && strcmp(tensor.name, "bytes") == 0 &&
                             tensor.type == SL_OBJECT_U8 && tensor.rank == 1;
        if (is_loose) {
            repeats |= json_object_get(names, tensor.name) != NULL;
            bad = strcmp(tensor.name, "__metadata__") == 0 ||
                          json_object_set_new(names, tensor.name, json_true()) != 0
                      ? tensor.name
                      : NULL;
        }
    }
    json_decref(names);
    content->is_split |= repeats && !content->is_bytes;
    return bad == NULL ? 0
                       : sl_reason_fail(reason, SL_ERR_INVALID,
                                        "the object has a tensor \"%s\": a safetensors file "
                                        "cannot have this name, or it is not UTF-8",
                                        bad);
}

static int write_files(struct file *file, struct sl_get *get, const char *name, const uint8_t *base,
                       uint32_t *file_count, struct sl_reason *reason)
{
    struct sl_object_tensor tensor;
    struct content content;
    uint64_t cursor = 0, at = 0;
    uint32_t part = 0;
    int err = survey(get, &content, reason);
    while (err == 0 && sl_get_next_tensor(get, &cursor, &tensor, &at) == 0) {
        const uint32_t of = sl_get_part(get, cursor - 1);
        if (is_file(&tensor) || (content.is_split && of != part)) {
            err = end(file, 0, reason);
        }
        part = of;
        if (err == 0 && file->fd < 0) {
            err = is_file(&tensor)
                      ? files_out_begin(file, tensor.name + strlen(SL_FILES_IN_PREFIX), reason)
                      : begin_loose(file, get, cursor - 1, name, &content, reason);
            ++*file_count;
        }
        err = err != 0 ? err : files_out_append(file, base + at, tensor.bytes, reason);
    }
    return end(file, err, reason);
}

int sl_files_out_write(struct sl_get *get, const char *name, const uint8_t *base,
                       const char *directory, uint32_t *file_count, struct sl_reason *reason)
{
    uint32_t count = 0;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        return sl_reason_fail(reason, SL_ERR_IO, "cannot create %s: %s", directory,
                              strerror(errno));
    }
    struct file file = {.root = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                        .parent = -1,
                        .fd = -1,
                        .written = json_object()};
    if (file.root < 0) {
        json_decref(file.written);
        return sl_reason_fail(reason, SL_ERR_IO, "cannot open %s: %s", directory, strerror(errno));
    }
    sigset_t before;
    (void)pthread_sigmask(SIG_BLOCK, NULL, &before);
    (void)sl_end_signals_mask(SIG_BLOCK);
    const int err = write_files(&file, get, name, base, &count, reason);
    (void)close(file.root);
    json_decref(file.written);
    (void)pthread_sigmask(SIG_SETMASK, &before,
                          NULL); /* a signal that came ends the process here */
    if (err == 0) {
        *file_count = count;
    }
    return err;
}
