#include "config/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest secret and some line ends. */
#define FILE_BYTES_MAX (SL_SECRET_BYTES_MAX + 64)

static int fail_errno(const char *what, const char *path, struct sl_reason *reason)
{
    const int why = errno;
    sl_reason_set(reason, "%s%.200s: %s", what, path, strerror(why));
    return why == ENOENT || why == ENOTDIR ? SL_ERR_NOT_FOUND : SL_ERR_IO;
}

/* Read access would expose the secret to other users; write access would let them replace it. */
static int check_file(int fd, const char *what, const char *path, struct sl_reason *reason)
{
    struct stat status;
    if (fstat(fd, &status) != 0) {
        return fail_errno(what, path, reason);
    }
    if (!S_ISREG(status.st_mode)) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "%s%.200s: is not a regular file", what,
                              path);
    }
    if ((status.st_mode & 077) != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "%s%.200s: other users can access it (mode %04o): chmod 600 it", what,
                              path, (unsigned)(status.st_mode & 07777));
    }
    return 0;
}

int sl_secret_read_file(const char *what, const char *path, void *bytes, size_t bytes_max,
                        size_t *out, struct sl_reason *reason)
{
    /* Do not block on a pipe without a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail_errno(what, path, reason);
    }
    size_t count = 0;
    ssize_t got = 1;
    int err = check_file(fd, what, path, reason);
    while (err == 0 && count < bytes_max && got != 0) {
        got = read(fd, (uint8_t *)bytes + count, bytes_max - count);
        if (got < 0 && errno != EINTR) {
            err = fail_errno(what, path, reason);
        }
        count += got > 0 ? (size_t)got : 0;
    }
    (void)close(fd);
    *out = count;
    return err;
}

static int check_length(const char *path, size_t count, struct sl_reason *reason)
{
    if (count > SL_SECRET_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "secret file %.200s: is too long: a secret has %d to %d bytes", path,
                              SL_SECRET_BYTES_MIN, SL_SECRET_BYTES_MAX);
    }
    if (count < SL_SECRET_BYTES_MIN) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "secret file %.200s: is too short with %zu bytes: a secret has %d to "
                              "%d, such as the output of: openssl rand -hex 32",
                              path, count, SL_SECRET_BYTES_MIN, SL_SECRET_BYTES_MAX);
    }
    return 0;
}

int sl_secret_read(const char *path, struct sl_secret *out, struct sl_reason *reason)
{
    uint8_t bytes[FILE_BYTES_MAX];
    size_t count = 0;
    int err = sl_secret_read_file("secret file ", path, bytes, sizeof bytes, &count, reason);
    if (err == 0) {
        while (count > 0 && (bytes[count - 1] == '\n' || bytes[count - 1] == '\r')) {
            count--;
        }
        err = check_length(path, count, reason);
    }
    if (err == 0) {
        *out = (struct sl_secret){.byte_count = (uint32_t)count};
        memcpy(out->bytes, bytes, count);
    }
    explicit_bzero(bytes, sizeof bytes);
    return err;
}
