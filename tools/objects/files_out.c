#include "tools/objects/files_out.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/bytes.h"
#include "tools/objects/files_in.h"

/* The file that is being written. */
struct file {
    const char *path;     /* in the object */
    int root, parent, fd; /* of the directory, of the file's own one, of the file; -1: none */
    char only[SL_OBJECTS_NAME_BYTES + 16]; /* the path, if the object has none */
    char name[NAME_MAX + 1], beside[NAME_MAX + 1];
};

static int refuse(const struct file *file, int err, struct sl_reason *reason)
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
            return refuse(file, errno, reason);
        }
        const int next =
            openat(file->parent, file->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (next < 0) {
            return refuse(file, errno, reason);
        }
        (void)close(file->parent);
        file->parent = next;
    }
}

static int begin(struct file *file, const char *path, struct sl_reason *reason)
{
    file->path = path;
    int err = open_parent(file, reason);
    if (err != 0) {
        return err;
    }
    (void)snprintf(file->beside, sizeof file->beside, ".%.200s.%d", file->name, (int)getpid());
    (void)unlinkat(file->parent, file->beside, 0); /* of a process that was killed */
    file->fd = openat(file->parent, file->beside,
                      O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return file->fd < 0 ? refuse(file, errno, reason) : 0;
}

static int append(struct file *file, const uint8_t *bytes, uint64_t count, struct sl_reason *reason)
{
    for (uint64_t done = 0; done < count;) {
        const ssize_t put = write(file->fd, bytes + done, count - done);
        if (put < 0 && errno != EINTR) {
            return refuse(file, errno, reason);
        }
        done += put < 0 ? 0 : (uint64_t)put;
    }
    return 0;
}

/* Appends the head of a safetensors file with all tensors of the get, in their order. */
static int append_head(struct file *file, struct sl_get *get, struct sl_reason *reason)
{
    struct sl_object_tensor tensor;
    uint64_t cursor = 0, at, begin = 0;
    json_t *root = json_object();
    bool good = root != NULL;
    while (good && sl_get_next_tensor(get, &cursor, &tensor, &at) == 0) {
        json_t *shape = json_array();
        for (uint32_t i = 0; shape != NULL && i < tensor.rank; i++) {
            (void)json_array_append_new(shape, json_integer((json_int_t)tensor.shape[i]));
        }
        const uint64_t end = begin + tensor.bytes;
        json_t *entry =
            json_pack("{s:s, s:o, s:[I, I]}", "dtype", sl_files_in_type_name(tensor.type), "shape",
                      shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
        good = json_object_set_new(root, tensor.name, entry) == 0;
        begin = end;
    }
    char *text = good ? json_dumps(root, JSON_COMPACT) : NULL;
    json_decref(root);
    if (text == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory, or a name that is not UTF-8");
    }
    const uint64_t length = strlen(text), padded = sl_bytes_pad8(length);
    int err = append(file, (const uint8_t *)&padded, sizeof padded, reason);
    err = err != 0 ? err : append(file, (const uint8_t *)text, length, reason);
    err = err != 0 ? err : append(file, (const uint8_t *)"       ", padded - length, reason);
    free(text);
    return err;
}

/* An object without files: its bytes, or its tensors, are one. Begins it. */
static int begin_only(struct file *file, struct sl_get *get, const char *object, bool is_bytes,
                      struct sl_reason *reason)
{
    const char *slash = strrchr(object, '/');
    (void)snprintf(file->only, sizeof file->only, "%s%s", slash == NULL ? object : slash + 1,
                   is_bytes ? "" : ".safetensors");
    int err = begin(file, file->only, reason);
    return err != 0 || is_bytes ? err : append_head(file, get, reason);
}

/* Gives the file its name if everything went well; else removes it. No effect without a file. */
static int end(struct file *file, int err, struct sl_reason *reason)
{
    if (file->fd >= 0) {
        if (close(file->fd) != 0 && err == 0) {
            err = refuse(file, errno, reason);
        }
        if (err == 0 && renameat(file->parent, file->beside, file->parent, file->name) != 0) {
            err = refuse(file, errno, reason);
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

int sl_files_out_write(struct sl_get *get, const char *name, const uint8_t *base,
                       const char *directory, uint32_t *file_count, struct sl_reason *reason)
{
    static const char prefix[] = SL_FILES_IN_PREFIX;
    struct sl_object_tensor tensor;
    uint64_t cursor = 0, at = 0;
    uint32_t count = 0;
    if (mkdir(directory, 0777) != 0 && errno != EEXIST) {
        return sl_reason_fail(reason, SL_ERR_IO, "cannot create %s: %s", directory,
                              strerror(errno));
    }
    struct file file = {
        .root = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC), .parent = -1, .fd = -1};
    if (file.root < 0) {
        return sl_reason_fail(reason, SL_ERR_IO, "cannot open %s: %s", directory, strerror(errno));
    }
    int err = 0;
    while (err == 0 && sl_get_next_tensor(get, &cursor, &tensor, &at) == 0) {
        if (strncmp(tensor.name, prefix, strlen(prefix)) == 0) {
            err = end(&file, 0, reason);
            err = err != 0 ? err : begin(&file, tensor.name + strlen(prefix), reason);
            count++;
        } else if (file.fd < 0) {
            err = begin_only(&file, get, name, strcmp(tensor.name, "bytes") == 0, reason);
            count++;
        }
        err = err != 0 ? err : append(&file, base + at, tensor.bytes, reason);
    }
    err = end(&file, err, reason);
    (void)close(file.root);
    if (err == 0) {
        *file_count = count;
    }
    return err;
}
