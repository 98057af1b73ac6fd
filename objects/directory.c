#include "objects/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/log.h"
#include "reactor/offload.h"

struct sl_objects_directory {
    const struct sl_disk *disk;
    char path[SL_DISK_PATH_BYTES];
    int lock; /* the directory, open; -1: not locked */
    struct sl_offload *offload;
    uint32_t job_count;
};

/* Of a part: paths of its folder and files, and the name of its record. */
struct files {
    char folder[SL_DISK_PATH_BYTES], data[SL_DISK_PATH_BYTES], record[SL_DISK_PATH_BYTES];
    char record_name[64];
};

struct job {
    struct sl_offload_job base;
    struct sl_objects_directory *directory;
    int (*run)(struct job *job); /* on the thread */
    sl_transfer_done_fn *done;
    void *ctx;
    int err;
    struct sl_reason reason;
    struct files files;
    const struct sl_objects_copy *copy; /* that is written */
    uint32_t count;                     /* bytes of `record`; or requests */
    uint8_t record[SL_OBJECTS_MESSAGE_BYTES];
    struct sl_transfer_request requests[];
};

/* Paths */

static int find_files(const struct sl_objects_directory *directory,
                      const struct sl_objects_pool_key *key, struct files *out,
                      struct sl_reason *reason)
{
    char escaped[SL_DISK_NAME_BYTES];
    size_t used = 0;
    for (const char *next = key->name; *next != '\0' && used < sizeof escaped; next++) {
        const bool is_plain = *next != '/' && *next != '%' && !(*next == '.' && used == 0);
        used += (size_t)snprintf(escaped + used, sizeof escaped - used, is_plain ? "%c" : "%%%02X",
                                 *next);
    }
    if (used >= sizeof escaped ||
        strlen(directory->path) + used + sizeof out->record_name >= SL_DISK_PATH_BYTES) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: too long for a path in %s", key->name,
                              directory->path);
    }
    (void)snprintf(out->record_name, sizeof out->record_name, "%" PRIu64 ".%u.record", key->version,
                   key->part);
    (void)sl_disk_join(directory->path, escaped, out->folder, reason);
    (void)sl_disk_join(out->folder, out->record_name, out->record, reason);
    (void)snprintf(out->data, sizeof out->data, "%.*sdata",
                   (int)(strlen(out->record) - strlen("record")), out->record);
    return 0;
}

void sl_objects_directory_describe(const struct sl_objects_directory *directory,
                                   const struct sl_objects_pool_key *key, char *to, size_t bytes)
{
    struct files files = {.data = ""};
    struct sl_reason reason;
    (void)find_files(directory, key, &files, &reason);
    (void)snprintf(to, bytes, "%s", files.data);
}

static int ignore(int err, int ignored)
{
    return err == ignored ? 0 : err;
}

/* Jobs */

static void work(struct sl_offload_job *base)
{
    struct job *job = SL_CONTAINER_OF(base, struct job, base);
    job->err = job->err != 0 ? job->err : job->run(job);
}

static void done(struct sl_offload_job *base)
{
    struct job *job = SL_CONTAINER_OF(base, struct job, base);
    if (base->err != 0) {
        job->err = sl_reason_fail(&job->reason, base->err, "%s: no thread for its files",
                                  job->directory->path);
    }
    job->directory->job_count--;
    if (job->done != NULL) {
        job->done(job->ctx, job->err, job->reason.text);
    }
    free(job);
}

/* NULL: no memory. */
static struct job *create(struct sl_objects_directory *directory, int (*run)(struct job *job),
                          const struct sl_objects_pool_key *key, uint32_t requests,
                          sl_transfer_done_fn *done_fn, void *ctx)
{
    struct job *job = calloc(1, sizeof *job + requests * sizeof job->requests[0]);
    if (job == NULL) {
        return NULL;
    }
    job->base = (struct sl_offload_job){.work = work, .done = done, .allocates = true};
    job->directory = directory;
    job->run = run;
    job->done = done_fn;
    job->ctx = ctx;
    job->err = find_files(directory, key, &job->files, &job->reason);
    directory->job_count++;
    return job;
}

static int post(struct job *job)
{
    if (job == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_offload_post(job->directory->offload, &job->base);
    return 0;
}

/* Write */

/* The bytes of all places, and zeros between them. */
static int write_places(struct sl_disk_file *file, const struct sl_objects_copy *copy,
                        struct sl_reason *reason)
{
    static const uint8_t zeros[SL_OBJECTS_BLOCK_BYTES];
    uint64_t offset = 0;
    int err = 0;
    for (uint32_t i = 0; err == 0 && i < copy->place_count; i++) {
        const struct sl_objects_place *place = &copy->places[i];
        err = sl_disk_write(file, zeros, (size_t)(place->offset - offset), reason);
        err = err != 0 ? err : sl_disk_write(file, place->base, (size_t)place->bytes, reason);
        offset = place->offset + place->bytes;
    }
    return err;
}

static int run_write(struct job *job)
{
    const struct sl_disk *disk = job->directory->disk;
    const struct files *files = &job->files;
    struct sl_reason *reason = &job->reason;
    struct sl_disk_file file = {.disk = NULL};
    int err = ignore(sl_disk_make_subdir(disk, files->folder, reason), SL_ERR_EXISTS);
    err = err != 0 ? err : ignore(sl_disk_remove(disk, files->data, reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err : sl_disk_open(disk, files->data, SL_DISK_CREATE, &file, reason);
    err = err != 0 ? err : write_places(&file, job->copy, reason);
    err = err != 0 ? err : sl_disk_sync(&file, reason);
    const int close_err = sl_disk_close(&file, err == 0 ? reason : NULL);
    err = err != 0 ? err : close_err;
    err = err != 0 ? err : sl_disk_sync_directory(disk, files->folder, reason);
    err = err != 0 ? err : sl_disk_sync_directory(disk, job->directory->path, reason);
    if (err != 0) {
        (void)sl_disk_remove(disk, files->data, NULL);
    }
    return err;
}

int sl_objects_directory_write(struct sl_objects_directory *directory,
                               const struct sl_objects_copy *copy, sl_transfer_done_fn *done_fn,
                               void *ctx)
{
    const struct sl_objects_pool_key key = {copy->name, copy->version, copy->part};
    struct job *job = create(directory, run_write, &key, 0, done_fn, ctx);
    if (job != NULL) {
        job->copy = copy;
    }
    return post(job);
}

static int run_commit(struct job *job)
{
    return sl_disk_replace(job->directory->disk, job->files.folder, job->files.record_name,
                           "record~", job->record, job->count, &job->reason);
}

int sl_objects_directory_commit(struct sl_objects_directory *directory,
                                const struct sl_objects_record *record, uint32_t part,
                                sl_transfer_done_fn *done_fn, void *ctx)
{
    const struct sl_objects_message hold = {.kind = SL_OBJECTS_HOLD,
                                            .name = record->name,
                                            .version = record->version,
                                            .part = part,
                                            .record_count = 1,
                                            .record = *record};
    const struct sl_objects_pool_key key = {record->name, record->version, part};
    struct job *job = create(directory, run_commit, &key, 0, done_fn, ctx);
    if (job != NULL) {
        job->count = sl_objects_message_encode(&hold, job->record);
    }
    return post(job);
}

/* The record first: without it the data counts for nothing. */
static int run_remove(struct job *job)
{
    const struct sl_disk *disk = job->directory->disk;
    int err = ignore(sl_disk_remove(disk, job->files.record, &job->reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err
                   : ignore(sl_disk_remove(disk, job->files.data, &job->reason), SL_ERR_NOT_FOUND);
    if (err != 0) {
        sl_log_error("objects: a part stays stored: %s", job->reason.text);
    }
    (void)sl_disk_remove_subdir(disk, job->files.folder, NULL); /* if it is empty */
    return err;
}

void sl_objects_directory_remove(struct sl_objects_directory *directory,
                                 const struct sl_objects_pool_key *key)
{
    (void)post(create(directory, run_remove, key, 0, NULL, NULL));
}

/* Read */

static int run_read(struct job *job)
{
    struct sl_disk_file file = {.disk = NULL};
    int err =
        sl_disk_open(job->directory->disk, job->files.data, SL_DISK_READ, &file, &job->reason);
    for (uint32_t i = 0; err == 0 && i < job->count; i++) {
        const struct sl_transfer_request *request = &job->requests[i];
        size_t got;
        err = sl_disk_read(&file, request->remote, request->local, (size_t)request->bytes, &got,
                           &job->reason);
        if (err == 0 && got < request->bytes) {
            err = sl_reason_fail(&job->reason, SL_ERR_CORRUPT, "%s ends at byte %" PRIu64,
                                 job->files.data, request->remote + got);
        }
    }
    (void)sl_disk_close(&file, NULL);
    return err;
}

int sl_objects_directory_read(struct sl_objects_directory *directory,
                              const struct sl_objects_pool_key *key,
                              const struct sl_transfer_request *requests, uint32_t count,
                              sl_transfer_done_fn *done_fn, void *ctx)
{
    struct job *job = create(directory, run_read, key, count, done_fn, ctx);
    if (job != NULL) {
        memcpy(job->requests, requests, count * sizeof requests[0]);
        job->count = count;
    }
    return post(job);
}

/* Start */

/* The record is one of its place. */
static int check_record(const struct sl_objects_directory *directory, const char *path,
                        const struct sl_objects_message *hold, struct sl_reason *reason)
{
    const struct sl_objects_record *record = &hold->record;
    struct files files;
    if (hold->kind != SL_OBJECTS_HOLD || hold->is_answer || hold->record_count != 1 ||
        record->time_ms == 0 || hold->part >= record->part_count ||
        strcmp(record->name, hold->name) != 0 || record->version != hold->version) {
        return sl_reason_fail(reason, SL_ERR_CORRUPT, "%s is no record of a part", path);
    }
    const struct sl_objects_pool_key key = {record->name, record->version, hold->part};
    const int err = find_files(directory, &key, &files, reason);
    return err == 0 && strcmp(files.record, path) == 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_CORRUPT, "%s is the record of another part", path);
}

static int load_record(const struct sl_objects_directory *directory, const char *path,
                       sl_objects_directory_found_fn *found, void *ctx, struct sl_reason *reason)
{
    struct sl_objects_message hold;
    char *bytes = NULL;
    size_t count = 0;
    int err = sl_disk_load(directory->disk, path, SL_OBJECTS_MESSAGE_BYTES, &bytes, &count, reason);
    err = err != 0 ? err : sl_objects_message_decode(bytes, (uint32_t)count, &hold, reason);
    err = err != 0 ? err : check_record(directory, path, &hold, reason);
    if (err == 0) {
        found(ctx, &hold);
    }
    free(bytes);
    return err;
}

/* Data of a part without record is removed. A record that cannot be used is logged, and stays with
 * its data. Names are sorted: a record is seen before its data. */
static int scan_folder(const struct sl_objects_directory *directory, const char *folder,
                       sl_objects_directory_found_fn *found, void *ctx, struct sl_reason *reason)
{
    struct sl_disk_names names;
    int err = sl_disk_list(directory->disk, folder, &names, reason);
    if (err != 0) {
        return err;
    }
    const char *last = "";
    size_t last_stem = 0;
    for (uint32_t i = names.count; err == 0 && i-- > 0;) {
        const char *name = names.items[i].name, *suffix = strrchr(name, '.');
        const size_t stem = suffix != NULL ? (size_t)(suffix - name) : 0;
        char path[SL_DISK_PATH_BYTES];
        struct sl_reason why;
        err = sl_disk_join(folder, name, path, reason);
        if (err == 0 && strcmp(name + stem, ".record") == 0) {
            last = name;
            last_stem = stem;
            if (load_record(directory, path, found, ctx, &why) != 0) {
                sl_log_error("objects: a stored part is ignored: %s", why.text);
            }
        } else if (err == 0 && strcmp(name + stem, ".data") == 0 &&
                   (stem != last_stem || strncmp(name, last, stem) != 0)) {
            err = sl_disk_remove(directory->disk, path, reason);
        }
    }
    sl_disk_names_fini(&names);
    return err;
}

static int scan(const struct sl_objects_directory *directory, sl_objects_directory_found_fn *found,
                void *ctx, struct sl_reason *reason)
{
    struct sl_disk_names folders;
    char folder[SL_DISK_PATH_BYTES];
    int err = sl_disk_list(directory->disk, directory->path, &folders, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < folders.count; i++) {
        if (folders.items[i].is_subdir) {
            err = sl_disk_join(directory->path, folders.items[i].name, folder, reason);
            err = err != 0 ? err : scan_folder(directory, folder, found, ctx, reason);
        }
    }
    sl_disk_names_fini(&folders);
    return err;
}

/* Locks the machine's own directory until it is closed or the process ends. A file system without
 * locks is accepted. */
static int lock(struct sl_objects_directory *directory, struct sl_reason *reason)
{
    directory->lock = open(directory->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory->lock >= 0 && flock(directory->lock, LOCK_EX | LOCK_NB) != 0 &&
        errno == EWOULDBLOCK) {
        return sl_reason_fail(reason, SL_ERR_EXISTS,
                              "%s: another process stores versions in this directory; end it, or "
                              "publish to its catalogue",
                              directory->path);
    }
    return 0;
}

static void free_directory(struct sl_objects_directory *directory)
{
    if (directory->lock >= 0) {
        (void)close(directory->lock);
    }
    free(directory);
}

int sl_objects_directory_open(const struct sl_disk *disk, const char *path,
                              sl_objects_directory_found_fn *found, void *ctx,
                              struct sl_objects_directory **out, struct sl_reason *reason)
{
    if (strlen(path) >= sizeof(*out)->path) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: the path is too long", path);
    }
    struct sl_objects_directory *made = calloc(1, sizeof *made);
    if (made == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory");
    }
    made->disk = disk != NULL ? disk : sl_disk_system();
    made->lock = -1;
    (void)snprintf(made->path, sizeof made->path, "%s", path);
    int err = ignore(sl_disk_make_subdir(made->disk, path, reason), SL_ERR_EXISTS);
    err = err != 0 || disk != NULL ? err : lock(made, reason);
    err = err != 0 ? err : scan(made, found, ctx, reason);
    if (err != 0) {
        free_directory(made);
        return err;
    }
    *out = made;
    return 0;
}

int sl_objects_directory_start(struct sl_objects_directory *directory, struct sl_reactor *reactor)
{
    return sl_offload_create(reactor, "objects-disk", &directory->offload);
}

bool sl_objects_directory_is_busy(const struct sl_objects_directory *directory)
{
    return directory->job_count > 0;
}

void sl_objects_directory_close(struct sl_objects_directory **directory)
{
    if (*directory != NULL) {
        if ((*directory)->offload != NULL) {
            (void)sl_offload_destroy(&(*directory)->offload, 0);
        }
        free_directory(*directory);
        *directory = NULL;
    }
}
