#include "objects/node/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/array.h"
#include "core/format.h"
#include "core/list.h"
#include "core/log.h"
#include "objects/node/stored.h"
#include "reactor/offload.h"

#define RETRY_NS         SL_CLOCK_NS_PER_S /* until a removal that failed is tried again */
#define TEMPORARY_RECORD "record~"

#define MARK_NAME        "numbers" /* a file with a decimal number */
#define MARK_BYTES       32

struct sl_objects_directory {
    uint64_t marked; /* when it was opened */
    bool is_marked;
    const struct sl_disk *disk;
    char path[SL_DISK_PATH_BYTES];
    int lock; /* the directory, open; -1: not locked */
    struct sl_reactor *reactor;
    struct sl_offload *offload;
    uint32_t job_count;
    struct sl_list failed; /* removals that wait for `retry` */
    struct sl_timer retry;
    bool is_ending;
};

/* Of a part: paths of its folder and files, and the name of its record. */
struct files {
    char folder[SL_DISK_PATH_BYTES], data[SL_DISK_PATH_BYTES], record[SL_DISK_PATH_BYTES];
    char unfinished[SL_DISK_PATH_BYTES], removed[SL_DISK_PATH_BYTES];
    char record_name[64];
};

struct job {
    struct sl_offload_job base;
    struct sl_list_link link; /* of `failed` */
    bool has_failed;          /* and the log says so */
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
    const int stem = (int)(strlen(out->record) - strlen("record"));
    (void)snprintf(out->data, sizeof out->data, "%.*sdata", stem, out->record);
    (void)snprintf(out->unfinished, sizeof out->unfinished, "%.*sdata~", stem, out->record);
    (void)snprintf(out->removed, sizeof out->removed, "%.*sremoved", stem, out->record);
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

static void node_directory_work(struct sl_offload_job *base)
{
    struct job *job = SL_CONTAINER_OF(base, struct job, base);
    job->err = job->files.folder[0] == '\0' ? job->err : job->run(job);
}

static int run_remove(struct job *job);

/* Returns whether the removal is tried again later. */
static bool removal_waits(struct job *job)
{
    struct sl_objects_directory *directory = job->directory;
    if (job->err == 0 && job->has_failed) {
        sl_log_warn("objects: %s is removed now", job->files.data);
    }
    if (job->err == 0 || job->files.folder[0] == '\0') { /* no path: no such file was written */
        return false;
    }
    if (!job->has_failed || directory->is_ending) {
        sl_log_error("objects: a removed version keeps its files: %s; %s", job->reason.text,
                     directory->is_ending
                         ? "remove it again if the next start of this process shows it"
                         : "the removal is tried again each second");
    }
    job->has_failed = true;
    if (!directory->is_ending) {
        sl_list_append(&directory->failed, &job->link);
        sl_reactor_arm(directory->reactor, &directory->retry, RETRY_NS);
    }
    return !directory->is_ending;
}

static void done(struct sl_offload_job *base)
{
    struct job *job = SL_CONTAINER_OF(base, struct job, base);
    if (base->err != 0) {
        job->err = sl_reason_fail(&job->reason, base->err, "%s: no thread for its files",
                                  job->directory->path);
    }
    if (job->run == run_remove && removal_waits(job)) {
        return;
    }
    job->directory->job_count--;
    if (job->done != NULL) {
        job->done(job->ctx, job->err, job->reason.text);
    }
    free(job);
}

/* NULL: no memory. */
static struct job *node_directory_create(struct sl_objects_directory *directory,
                                         int (*run)(struct job *job),
                                         const struct sl_objects_pool_key *key, uint32_t requests,
                                         sl_transfer_done_fn *done_fn, void *ctx)
{
    struct job *job = calloc(1, sizeof *job + requests * sizeof job->requests[0]);
    if (job == NULL) {
        return NULL;
    }
    job->base =
        (struct sl_offload_job){.work = node_directory_work, .done = done, .allocates = true};
    job->directory = directory;
    job->run = run;
    job->done = done_fn;
    job->ctx = ctx;
    job->err = find_files(directory, key, &job->files, &job->reason);
    directory->job_count++;
    return job;
}

static int node_directory_post(struct job *job)
{
    if (job == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    sl_offload_post(job->directory->offload, &job->base);
    return 0;
}

static void retry_removals(struct sl_timer *timer, uint64_t now_ns)
{
    struct sl_objects_directory *directory =
        SL_CONTAINER_OF(timer, struct sl_objects_directory, retry);
    SL_LIST_TAKE (struct job, job, link, &directory->failed) {
        (void)node_directory_post(job);
    }
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

/* Writes and syncs the data under a name that the next start removes. */
static int write_data(const struct job *job, struct sl_reason *reason)
{
    const struct sl_disk *disk = job->directory->disk;
    struct sl_disk_file file = {.disk = NULL};
    int err = ignore(sl_disk_remove(disk, job->files.unfinished, reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err : sl_disk_open(disk, job->files.unfinished, SL_DISK_CREATE, &file, reason);
    err = err != 0 ? err : write_places(&file, job->copy, reason);
    err = err != 0 ? err : sl_disk_sync(&file, reason);
    const int close_err = sl_disk_close(&file, err == 0 ? reason : NULL);
    return err != 0 ? err : close_err;
}

static int check_absent(const struct sl_disk *disk, const char *path, struct sl_reason *reason)
{
    struct sl_disk_file file;
    const int err = sl_disk_open(disk, path, SL_DISK_READ, &file, reason);
    if (err == 0) {
        (void)sl_disk_close(&file, NULL);
        return sl_reason_fail(reason, SL_ERR_EXISTS,
                              "%s is there already; publish under another number, or move the file",
                              path);
    }
    return ignore(err, SL_ERR_NOT_FOUND);
}

static int write_record(struct job *job)
{
    return sl_disk_replace(job->directory->disk, job->files.folder, job->files.record_name,
                           TEMPORARY_RECORD, job->record, job->count, &job->reason);
}

/* The data gets its name when its record is synced: data without a record is not of an unfinished
 * write. Files that are there already stay as they are. */
static int run_write(struct job *job)
{
    const struct sl_disk *disk = job->directory->disk;
    const struct files *files = &job->files;
    const bool is_new = job->count > 0; /* else data that was damaged is replaced */
    struct sl_reason *reason = &job->reason;
    int err = ignore(sl_disk_make_subdir(disk, files->folder, reason), SL_ERR_EXISTS);
    err = err != 0 || !is_new ? err : check_absent(disk, files->removed, reason);
    err = err != 0 || !is_new ? err : check_absent(disk, files->record, reason);
    err = err != 0 || !is_new ? err : check_absent(disk, files->data, reason);
    err = err != 0 ? err : write_data(job, reason);
    err = err != 0 || !is_new ? err : write_record(job);
    err = err != 0 ? err : sl_disk_rename(disk, files->unfinished, files->data, reason);
    err = err != 0 ? err : sl_disk_sync_directory(disk, files->folder, reason);
    err = err != 0 ? err : sl_disk_sync_directory(disk, job->directory->path, reason);
    if (err != 0) {
        (void)sl_disk_remove(disk, files->unfinished, NULL);
        (void)sl_disk_remove_subdir(disk, files->folder, NULL); /* if it is empty */
    }
    return err;
}

int sl_objects_directory_write(struct sl_objects_directory *directory,
                               const struct sl_objects_copy *copy,
                               const struct sl_objects_record *record, sl_transfer_done_fn *done_fn,
                               void *ctx)
{
    const struct sl_objects_pool_key key = {copy->name, copy->version, copy->part};
    struct job *job = node_directory_create(directory, run_write, &key, 0, done_fn, ctx);
    if (job != NULL) {
        job->copy = copy;
    }
    if (job != NULL && record != NULL) {
        job->count = sl_objects_stored_encode(record, copy->part, job->record);
    }
    return node_directory_post(job);
}

static int run_mark(struct job *job)
{
    return sl_disk_replace(job->directory->disk, job->directory->path, MARK_NAME, "numbers~",
                           job->record, job->count, &job->reason);
}

int sl_objects_directory_mark(struct sl_objects_directory *directory, uint64_t number,
                              sl_transfer_done_fn *done_fn, void *ctx)
{
    const struct sl_objects_pool_key key = {MARK_NAME, 1, 0};
    struct job *job = node_directory_create(directory, run_mark, &key, 0, done_fn, ctx);
    if (job != NULL) {
        job->count = (uint32_t)snprintf((char *)job->record, MARK_BYTES, "%" PRIu64 "\n", number);
    }
    return node_directory_post(job);
}

bool sl_objects_directory_marked(const struct sl_objects_directory *directory, uint64_t *number)
{
    *number = directory->marked;
    return directory->is_marked;
}

int sl_objects_directory_commit(struct sl_objects_directory *directory,
                                const struct sl_objects_record *record, uint32_t part,
                                sl_transfer_done_fn *done_fn, void *ctx)
{
    const struct sl_objects_pool_key key = {record->name, record->version, part};
    struct job *job = node_directory_create(directory, write_record, &key, 0, done_fn, ctx);
    if (job != NULL) {
        job->count = sl_objects_stored_encode(record, part, job->record);
    }
    return node_directory_post(job);
}

/* The part counts for nothing, also at the next start, once its record has another name. That goes
 * last, so that no data is left without either. */
static int run_remove(struct job *job)
{
    const struct sl_disk *disk = job->directory->disk;
    const struct files *files = &job->files;
    struct sl_reason *reason = &job->reason;
    int err = ignore(sl_disk_rename(disk, files->record, files->removed, reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err
                   : ignore(sl_disk_sync_directory(disk, files->folder, reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err : ignore(sl_disk_remove(disk, files->data, reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err
                   : ignore(sl_disk_sync_directory(disk, files->folder, reason), SL_ERR_NOT_FOUND);
    err = err != 0 ? err : ignore(sl_disk_remove(disk, files->removed, reason), SL_ERR_NOT_FOUND);
    (void)sl_disk_remove_subdir(disk, files->folder, NULL); /* if it is empty */
    return err;
}

void sl_objects_directory_remove(struct sl_objects_directory *directory,
                                 const struct sl_objects_pool_key *key)
{
    if (node_directory_post(node_directory_create(directory, run_remove, key, 0, NULL, NULL)) !=
        0) {
        sl_log_error("objects: a removed version keeps its files: %s@%" PRIu64
                     ": out of memory; remove it again if the next start of this process shows it",
                     key->name, key->version);
    }
}

/* Read */

static int node_directory_run_read(struct job *job)
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
    struct job *job =
        node_directory_create(directory, node_directory_run_read, key, count, done_fn, ctx);
    if (job != NULL) {
        memcpy(job->requests, requests, count * sizeof requests[0]);
        job->count = count;
    }
    return node_directory_post(job);
}

/* Start */

/* Names of objects and how many of their files, as text. */
struct tally {
    uint32_t files, names, left_out; /* names that have no room in the text */
    char text[768];
};

struct scan {
    const struct sl_objects_directory *directory;
    sl_objects_directory_found_fn *found;
    void *ctx;
    bool removes; /* the second pass: removes the leftovers that the first one has counted */
    struct tally foreign, leftovers;
};

static void count_files(struct tally *tally, const char *name, uint32_t files)
{
    if (files == 0) {
        return;
    }
    tally->files += files;
    tally->names++;
    if (strlen(tally->text) + strlen(name) + 16 >= sizeof tally->text) {
        tally->left_out++;
    } else {
        (void)sl_format_add(tally->text, sizeof tally->text, ", ", "%s %u", name, files);
    }
}

static void log_tally(const struct sl_objects_directory *directory, const struct tally *tally,
                      const char *what)
{
    if (tally->files > 0) {
        sl_log_warn("objects: %s: %u file%s of %u name%s %s: %s%s", directory->path, tally->files,
                    sl_log_plural(tally->files), tally->names, sl_log_plural(tally->names), what,
                    tally->text, tally->left_out > 0 ? ", and others" : "");
    }
}

/* Decodes a record, which must be the one of its place. */
static int decode_record(const struct sl_objects_directory *directory, const char *path,
                         const char *bytes, size_t count, struct sl_objects_message *hold,
                         struct sl_reason *reason)
{
    struct files files;
    int err = sl_objects_stored_decode(bytes, (uint32_t)count, hold, reason);
    if (err != 0) {
        const struct sl_reason why = *reason;
        return sl_reason_fail(reason, err, "%s: %s", path, why.text);
    }
    const struct sl_objects_pool_key key = {hold->name, hold->version, hold->part};
    err = find_files(directory, &key, &files, reason);
    return err == 0 && strcmp(files.record, path) == 0
               ? 0
               : sl_reason_fail(reason, SL_ERR_CORRUPT, "%s is the record of another part", path);
}

static bool has_sibling(const struct sl_disk_names *names, const char *name, size_t stem,
                        const char *suffix)
{
    uint32_t first = 0;
    char wanted[SL_DISK_NAME_BYTES + 16];
    (void)snprintf(wanted, sizeof wanted, "%.*s%s", (int)stem, name, suffix);
    SL_ARRAY_BISECT(first, names->count, i, strcmp(names->items[i].name, wanted) < 0);
    return first < names->count && strcmp(names->items[first].name, wanted) == 0;
}

enum verdict { PART, FOREIGN, LEFTOVER };

/* In the first pass, reports a part. One that is not committed and has no data was not stored. */
static enum verdict judge_record(const struct scan *scan, const char *path, bool has_data)
{
    struct sl_objects_message hold;
    struct sl_reason reason;
    char *bytes = NULL;
    size_t count = 0;
    int err = sl_disk_load(scan->directory->disk, path, SL_OBJECTS_MESSAGE_BYTES, &bytes, &count,
                           &reason);
    err = err != 0 ? err : decode_record(scan->directory, path, bytes, count, &hold, &reason);
    const bool is_leftover = err == 0 && hold.commit.record.time_ms == 0 && !has_data;
    if (err != 0 && !scan->removes) {
        sl_log_error("objects: a stored part is ignored: %s", reason.text);
    } else if (err == 0 && !is_leftover && !scan->removes) {
        scan->found(scan->ctx, &hold);
    }
    free(bytes);
    return err != 0 ? FOREIGN : is_leftover ? LEFTOVER : PART;
}

static enum verdict judge(const struct scan *scan, const struct sl_disk_names *names,
                          const char *name, const char *path)
{
    const char *last = strrchr(name, '.');
    const size_t stem = last != NULL ? (size_t)(last - name) + 1 : 0;
    const char *suffix = name + stem;
    if (stem == 0 || strspn(name, "0123456789.") < stem) {
        return strcmp(name, TEMPORARY_RECORD) == 0 ? LEFTOVER : FOREIGN;
    }
    if (strcmp(suffix, "record") == 0) {
        return judge_record(scan, path, has_sibling(names, name, stem, "data"));
    }
    if (strcmp(suffix, "data") == 0) {
        return has_sibling(names, name, stem, "record")    ? PART
               : has_sibling(names, name, stem, "removed") ? LEFTOVER
                                                           : FOREIGN;
    }
    return strcmp(suffix, "removed") == 0 || strcmp(suffix, "data~") == 0 ? LEFTOVER : FOREIGN;
}

/* Names are sorted: the data of a part that was removed goes before the file that says so. */
static int scan_folder(struct scan *scan, const char *name, struct sl_reason *reason)
{
    const struct sl_disk *disk = scan->directory->disk;
    struct sl_disk_names names;
    char folder[SL_DISK_PATH_BYTES], path[SL_DISK_PATH_BYTES];
    uint32_t counts[LEFTOVER + 1] = {0};
    int err = sl_disk_join(scan->directory->path, name, folder, reason);
    err = err != 0 ? err : sl_disk_list(disk, folder, &names, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < names.count; i++) {
        err = sl_disk_join(folder, names.items[i].name, path, reason);
        const enum verdict verdict =
            err != 0 ? FOREIGN : judge(scan, &names, names.items[i].name, path);
        counts[verdict]++;
        if (err == 0 && verdict == LEFTOVER && scan->removes) {
            err = sl_disk_remove(disk, path, reason);
            err = err != 0 ? err : sl_disk_sync_directory(disk, folder, reason);
        }
    }
    if (scan->removes || names.count == 0) {
        (void)sl_disk_remove_subdir(disk, folder, NULL); /* if it is empty */
    }
    sl_disk_names_fini(&names);
    count_files(&scan->foreign, name, counts[FOREIGN]);
    count_files(&scan->leftovers, name, counts[LEFTOVER]);
    return err;
}

static int scan_folders(struct scan *scan, struct sl_reason *reason)
{
    const struct sl_objects_directory *directory = scan->directory;
    struct sl_disk_names folders;
    uint32_t files = 0;
    int err = sl_disk_list(directory->disk, directory->path, &folders, reason);
    if (err != 0) {
        return err;
    }
    for (uint32_t i = 0; err == 0 && i < folders.count; i++) {
        if (folders.items[i].is_subdir) {
            err = scan_folder(scan, folders.items[i].name, reason);
        } else {
            files += strcmp(folders.items[i].name, MARK_NAME) != 0 &&
                     strcmp(folders.items[i].name, MARK_NAME "~") != 0; /* the next mark's */
        }
    }
    count_files(&scan->foreign, ".", files);
    sl_disk_names_fini(&folders);
    return err;
}

/* What cannot be removed now is left to the next start. */
static int scan(const struct sl_objects_directory *directory, sl_objects_directory_found_fn *found,
                void *ctx, struct sl_reason *reason)
{
    struct scan scan = {.directory = directory, .found = found, .ctx = ctx};
    const int err = scan_folders(&scan, reason);
    log_tally(directory, &scan.foreign, "are not of this version of the program, and stay");
    log_tally(directory, &scan.leftovers,
              "are removed: their write had no answer, or their removal had not ended");
    scan.removes = true;
    if (err == 0 && scan.leftovers.files > 0 && scan_folders(&scan, reason) != 0) {
        sl_log_error("objects: files stay until the next start: %s", reason->text);
    }
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

/* Reads the file with the highest number; without the file, or if it is damaged, the number is not
 * known. */
static void load_mark(struct sl_objects_directory *directory)
{
    char path[SL_DISK_PATH_BYTES], text[MARK_BYTES] = "", *bytes = NULL;
    struct sl_disk_names names;
    size_t count = 0;
    int err = sl_disk_join(directory->path, MARK_NAME, path, NULL);
    err =
        err != 0 ? err : sl_disk_load(directory->disk, path, MARK_BYTES - 1, &bytes, &count, NULL);
    if (err == 0) {
        char *end;
        memcpy(text, bytes, count);
        errno = 0;
        directory->marked = strtoull(text, &end, 10);
        directory->is_marked = errno == 0 && end != text && strcmp(end, "\n") == 0;
    } else if (err == SL_ERR_NOT_FOUND &&
               sl_disk_list(directory->disk, directory->path, &names, NULL) == 0) {
        directory->is_marked = names.count == 0;
        sl_disk_names_fini(&names);
    }
    free(bytes);
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
    made->retry.run = retry_removals;
    sl_list_init(&made->failed);
    (void)snprintf(made->path, sizeof made->path, "%s", path);
    int err = sl_disk_make_directory(made->disk, path, reason);
    err = err != 0 || disk != NULL ? err : lock(made, reason);
    if (err == 0) {
        load_mark(made);
        err = scan(made, found, ctx, reason);
    }
    if (err != 0) {
        free_directory(made);
        return err;
    }
    *out = made;
    return 0;
}

int sl_objects_directory_start(struct sl_objects_directory *directory, struct sl_reactor *reactor)
{
    directory->reactor = reactor;
    return sl_offload_create(reactor, "objects-disk", &directory->offload);
}

void sl_objects_directory_stop(struct sl_objects_directory *directory)
{
    directory->is_ending = true;
    if (directory->reactor != NULL) {
        sl_reactor_disarm(directory->reactor, &directory->retry);
        retry_removals(&directory->retry, 0);
    }
}

bool sl_objects_directory_is_busy(const struct sl_objects_directory *directory)
{
    return directory->job_count > 0;
}

void sl_objects_directory_close(struct sl_objects_directory **directory)
{
    if (*directory != NULL) {
        (*directory)->is_ending = true;
        if ((*directory)->offload != NULL) {
            (void)sl_offload_destroy(&(*directory)->offload, 0);
        }
        free_directory(*directory);
        *directory = NULL;
    }
}
