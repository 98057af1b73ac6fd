#include "programs/serve/http/http_regions.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/array.h"

static const struct sl_http_region *http_regions_find(const struct sl_http_regions *regions,
                                                      const char *name)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        if (strcmp(regions->regions[i].name, name) == 0) {
            return &regions->regions[i];
        }
    }
    return NULL;
}

/* The name of the file below /dev/shm: shm_open skips slashes before it too. */
static const char *file_of(const struct sl_http_body_region *of)
{
    return of->key + strspn(of->key, "/");
}

/* Whether the file is still the region: it has a name, and all bytes up to `end`. */
static int http_regions_look(const struct sl_http_region *region, uint64_t end,
                             struct sl_reason *reason)
{
    struct stat status;
    if (fstat(region->fd, &status) != 0 || !S_ISREG(status.st_mode) || status.st_nlink == 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "region `%s`: /dev/shm/%s was unlinked, or is no memory: register "
                              "the region again",
                              region->name, file_of(&region->of));
    }
    if ((uint64_t)status.st_size < end) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "region `%s`: /dev/shm/%s has %llu bytes, %llu are needed",
                              region->name, file_of(&region->of),
                              (unsigned long long)status.st_size, (unsigned long long)end);
    }
    return 0;
}

static int check_key(const struct sl_http_body_region *of, struct sl_reason *reason)
{
    struct rlimit limit;
    const uint64_t end = of->offset + of->bytes; /* both are at most INT64_MAX */
    const char *file = file_of(of);
    if (file[0] == '\0' || file[0] == '.' || strchr(file, '/') != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "key `%s` is not accepted: it is the name of a file in /dev/shm, "
                              "without `/` in it or `.` before it",
                              of->key);
    }
    if (end > INT64_MAX || (getrlimit(RLIMIT_FSIZE, &limit) == 0 && end > limit.rlim_cur)) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "offset and byte_size of the region are together more than a file "
                              "of this process can have");
    }
    return 0;
}

int sl_http_regions_add(struct sl_http_regions *regions, const char *name,
                        const struct sl_http_body_region *of, struct sl_reason *reason)
{
    struct sl_http_region made = {.of = *of};
    const char *file = file_of(of);
    int err = check_key(of, reason);
    if (err != 0) {
        return err;
    }
    if (http_regions_find(regions, name) != NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "region `%s` is registered already: unregister it first", name);
    }
    if (regions->count == SL_HTTP_REGIONS_MAX ||
        !sl_array_make_room(&regions->regions, &regions->capacity, regions->count,
                            sizeof *regions->regions)) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                              "region `%s`: at most %d regions are accepted", name,
                              SL_HTTP_REGIONS_MAX);
    }
    memcpy(made.name, name, strlen(name) + 1);
    made.fd = shm_open(of->key, O_RDWR | O_NONBLOCK, 0);
    if (made.fd < 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "region `%s`: /dev/shm/%s cannot be opened: %s", name, file,
                              strerror(errno));
    }
    err = http_regions_look(&made, of->offset + of->bytes, reason);
    if (err != 0) {
        (void)close(made.fd);
        return err;
    }
    regions->regions[regions->count++] = made;
    return 0;
}

void sl_http_regions_remove(struct sl_http_regions *regions, const char *name)
{
    for (uint32_t i = regions->count; i-- > 0;) {
        struct sl_http_region *region = &regions->regions[i];
        if (name[0] == '\0' || strcmp(region->name, name) == 0) {
            (void)close(region->fd);
            memmove(region, region + 1, (--regions->count - i) * sizeof *region);
        }
    }
}

struct json_t *sl_http_regions_json(const struct sl_http_regions *regions, const char *name)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < regions->count; i++) {
        const struct sl_http_region *region = &regions->regions[i];
        if (name[0] == '\0' || strcmp(region->name, name) == 0) {
            (void)json_array_append_new(all, json_pack("{s:s, s:s, s:I, s:I}", "name", region->name,
                                                       "key", region->of.key, "offset",
                                                       (json_int_t)region->of.offset, "byte_size",
                                                       (json_int_t)region->of.bytes));
        }
    }
    if (name[0] != '\0' && json_array_size(all) == 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

int sl_http_regions_check(const struct sl_http_regions *regions,
                          const struct sl_http_body_range *range, struct sl_reason *reason)
{
    const struct sl_http_region *region = http_regions_find(regions, range->region);
    if (region == NULL) {
        return sl_reason_fail(reason, SL_ERR_INVALID, "region `%s` is not registered",
                              range->region);
    }
    if (range->offset > region->of.bytes || range->bytes > region->of.bytes - range->offset) {
        return sl_reason_fail(
            reason, SL_ERR_INVALID,
            "region `%s` has %llu bytes: offset %llu and %llu bytes are not in it", region->name,
            (unsigned long long)region->of.bytes, (unsigned long long)range->offset,
            (unsigned long long)range->bytes);
    }
    return 0;
}

/* Finds the region, and the offset of the range in its file. */
static int http_regions_locate(const struct sl_http_regions *regions,
                               const struct sl_http_body_range *range, uint64_t bytes,
                               const struct sl_http_region **region, off_t *at,
                               struct sl_reason *reason)
{
    const int err = sl_http_regions_check(regions, range, reason);
    if (err != 0) {
        return err;
    }
    *region = http_regions_find(regions, range->region);
    *at = (off_t)((*region)->of.offset + range->offset);
    return http_regions_look(*region, (uint64_t)*at + bytes, reason);
}

int sl_http_regions_read(const struct sl_http_regions *regions,
                         const struct sl_http_body_range *range, void *to, struct sl_reason *reason)
{
    const struct sl_http_region *region;
    off_t at;
    int err = http_regions_locate(regions, range, range->bytes, &region, &at, reason);
    for (uint64_t done = 0; err == 0 && done < range->bytes;) {
        const ssize_t count =
            pread(region->fd, (uint8_t *)to + done, range->bytes - done, at + (off_t)done);
        if (count <= 0) { /* 0: it was truncated meanwhile */
            return sl_reason_fail(
                reason, SL_ERR_INVALID, "region `%s`: /dev/shm/%s cannot be read: %s", region->name,
                file_of(&region->of), count == 0 ? "it is too short" : strerror(errno));
        }
        done += (uint64_t)count;
    }
    return err;
}

int sl_http_regions_write(const struct sl_http_regions *regions,
                          const struct sl_http_body_range *range, const void *from, uint64_t bytes,
                          struct sl_reason *reason)
{
    const struct sl_http_region *region;
    off_t at;
    int err = http_regions_locate(regions, range, bytes, &region, &at, reason);
    for (uint64_t done = 0; err == 0 && done < bytes;) {
        const ssize_t count =
            pwrite(region->fd, (const uint8_t *)from + done, bytes - done, at + (off_t)done);
        if (count <= 0) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "region `%s`: /dev/shm/%s cannot be written: %s", region->name,
                                  file_of(&region->of), strerror(errno));
        }
        done += (uint64_t)count;
    }
    return err;
}

void sl_http_regions_fini(struct sl_http_regions *regions)
{
    sl_http_regions_remove(regions, "");
    free(regions->regions);
}
