/* Verifies checkpoints: chains of manifests, file sizes, and every byte. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/assert.h"
#include "core/log.h"
#include "ps/checkpoint/directory_internal.h"
#include "ps/checkpoint/reader.h"

/* Collects findings. The first one is the error and the reason for the caller. */
struct findings {
    const struct sl_checkpoint_report *report;
    int err;
    struct sl_reason *reason;
};

/* why: a text that names the path. */
static void directory_verify_find(struct findings *findings, int err, const char *path,
                                  const char *why)
{
    if (findings->err == 0) {
        findings->err = err;
        sl_reason_set(findings->reason, "%s", why);
    }
    if (findings->report != NULL) {
        findings->report->find(findings->report->ctx, path, why);
    }
}

/* Clips the range to [first, end) of the checkpoint's shards. */
static void resolve_range(struct sl_checkpoint_shard_range range, uint32_t shard_count,
                          uint32_t *first, uint32_t *end)
{
    const uint32_t asked = range.count == 0 ? shard_count : range.count;
    *first = range.count == 0 ? 0 : range.first;
    *end = *first > shard_count || asked > shard_count - *first ? shard_count : *first + asked;
}

static bool range_fits(struct sl_checkpoint_shard_range range, uint32_t shard_count)
{
    return range.count == 0 ||
           (range.first < shard_count && range.count <= shard_count - range.first);
}

/* Files */

static int file_path(const char *directory, const struct sl_checkpoint_manifest *manifest,
                     uint32_t shard, char path[SL_DISK_PATH_BYTES], struct sl_reason *reason)
{
    return sl_checkpoint_directory_path(directory, manifest->number, manifest->files[shard].name,
                                        path, reason);
}

static int check_size(const struct sl_disk *disk, const char *path,
                      const struct sl_checkpoint_entry *entry, struct sl_reason *reason)
{
    struct sl_disk_file file;
    uint64_t bytes;
    int err = sl_disk_open(disk, path, SL_DISK_READ, &file, reason);
    if (err != 0) {
        return err;
    }
    err = sl_disk_size(&file, &bytes, reason);
    (void)sl_disk_close(&file, NULL);
    if (err == 0 && bytes != entry->bytes) {
        err = sl_reason_fail(reason, SL_ERR_CORRUPT,
                             "%s: it has %" PRIu64 " bytes; the manifest says %" PRIu64, path,
                             bytes, entry->bytes);
    }
    return err;
}

/* Reads and checks the whole file. */
static int check_bytes(const struct sl_disk *disk, const char *directory,
                       const struct sl_checkpoint_manifest *manifest, uint32_t shard,
                       struct sl_reason *reason)
{
    struct sl_checkpoint_reader *reader;
    const struct sl_snapshot_block *block;
    int err = sl_checkpoint_reader_open(disk, directory, manifest, shard, SL_CHECKPOINT_ALL_KINDS,
                                        &reader, reason);
    if (err != 0) {
        return err;
    }
    do {
        err = sl_checkpoint_reader_next(reader, &block, reason);
    } while (err == 0 && block != NULL);
    sl_checkpoint_reader_close(&reader);
    return err;
}

/* Checks each file of the range: its size or, if deep, every byte. */
static int directory_verify_check_files(const struct sl_disk *disk, const char *directory,
                                        const struct sl_checkpoint_manifest *manifest,
                                        struct sl_checkpoint_shard_range range, bool deep,
                                        struct findings *findings)
{
    char path[SL_DISK_PATH_BYTES];
    struct sl_reason why;
    uint32_t first;
    uint32_t end;
    resolve_range(range, manifest->shard_count, &first, &end);
    for (uint32_t shard = first; shard < end; shard++) {
        int err = file_path(directory, manifest, shard, path, &why);
        if (err != 0) {
            return sl_reason_fail(findings->reason, err, "%s", why.text);
        }
        err = deep ? check_bytes(disk, directory, manifest, shard, &why)
                   : check_size(disk, path, &manifest->files[shard], &why);
        if (err == SL_ERR_NO_MEMORY) {
            return sl_reason_fail(findings->reason, err, "%s", why.text);
        }
        if (err != 0) {
            directory_verify_find(findings, err, path, why.text);
        }
    }
    return 0;
}

int sl_checkpoint_directory_check_files(const struct sl_disk *disk, const char *directory,
                                        const struct sl_checkpoint_manifest *manifest,
                                        struct sl_checkpoint_shard_range range,
                                        const struct sl_checkpoint_report *report,
                                        struct sl_reason *reason)
{
    struct findings findings = {.report = report, .reason = reason};
    int err = directory_verify_check_files(disk, directory, manifest, range, false, &findings);
    return err != 0 ? err : findings.err;
}

/* Chains */

void sl_checkpoint_chain_fini(struct sl_checkpoint_chain *chain)
{
    for (uint32_t i = 0; i < chain->count; i++) {
        sl_checkpoint_manifest_fini(&chain->items[i]);
    }
    free(chain->items);
    *chain = (struct sl_checkpoint_chain){0};
}

static int chain_add(struct sl_checkpoint_chain *chain, struct sl_checkpoint_manifest *manifest)
{
    struct sl_checkpoint_manifest *items =
        realloc(chain->items, (chain->count + 1) * sizeof *items);
    if (items == NULL) {
        sl_checkpoint_manifest_fini(manifest);
        return SL_ERR_NO_MEMORY;
    }
    chain->items = items;
    items[chain->count++] = *manifest;
    return 0;
}

static void chain_reverse(struct sl_checkpoint_chain *chain)
{
    for (uint32_t i = 0; i < chain->count / 2; i++) {
        struct sl_checkpoint_manifest one = chain->items[i];
        chain->items[i] = chain->items[chain->count - 1 - i];
        chain->items[chain->count - 1 - i] = one;
    }
}

/* True if the manifest is the base of the last one in the chain. */
static bool is_base(const struct sl_checkpoint_chain *chain,
                    const struct sl_checkpoint_manifest *manifest)
{
    return chain->count == 0 || chain->items[chain->count - 1].base_id == manifest->id;
}

static void report_base(struct findings *findings, const char *directory, uint64_t number,
                        uint64_t base, const char *what)
{
    char path[SL_DISK_PATH_BYTES] = "";
    struct sl_reason why;
    (void)sl_checkpoint_directory_path(directory, base, NULL, path, &why);
    sl_reason_set(&why, "%s, the base of checkpoint %" PRIu64 ", %s", path, number, what);
    directory_verify_find(findings, SL_ERR_CORRUPT, path, why.text);
}

/* Adds the next manifest to the chain. Damage is reported as a finding. *on: the chain can
 * continue. Errors: those that end the search. */
static int chain_next(const struct sl_disk *disk, const char *directory, uint64_t number,
                      struct sl_checkpoint_chain *chain, struct findings *findings, bool *on)
{
    char path[SL_DISK_PATH_BYTES] = "";
    struct sl_reason why;
    struct sl_checkpoint_manifest manifest;
    const uint64_t upper = chain->count == 0 ? 0 : chain->items[chain->count - 1].number;
    *on = false;
    int err = sl_checkpoint_directory_manifest(disk, directory, number, &manifest, &why);
    if (err == SL_ERR_NOT_FOUND && upper != 0) {
        report_base(findings, directory, upper, number, "is not there");
        return 0;
    }
    if (err == SL_ERR_NO_MEMORY || err == SL_ERR_NOT_FOUND || err == SL_ERR_TOO_LARGE) {
        return sl_reason_fail(findings->reason, err, "%s", why.text);
    }
    if (err != 0) {
        (void)sl_checkpoint_directory_path(directory, number, SL_CHECKPOINT_MANIFEST_NAME, path,
                                           NULL);
        directory_verify_find(findings, err, path, why.text);
        return 0;
    }
    if (!is_base(chain, &manifest)) {
        report_base(findings, directory, upper, number, "is another one of the same number");
        sl_checkpoint_manifest_fini(&manifest);
        return 0;
    }
    *on = true;
    return chain_add(chain, &manifest);
}

/* Reads the manifests from `number` down to the full one, then reverses them. */
static int read_chain(const struct sl_disk *disk, const char *directory, uint64_t number,
                      struct sl_checkpoint_chain *chain, struct findings *findings)
{
    bool on = true;
    int err = 0;
    while (err == 0 && on && number != 0) {
        if (chain->count == SL_CHECKPOINT_CHAIN_MAX) {
            report_base(findings, directory, chain->items[chain->count - 1].number, number,
                        "is one of a chain that is too long");
            break;
        }
        err = chain_next(disk, directory, number, chain, findings, &on);
        number = err == 0 && on ? chain->items[chain->count - 1].base : 0;
    }
    chain_reverse(chain);
    return err;
}

static int directory_verify_walk(const struct sl_disk *disk, const char *directory, uint64_t number,
                                 struct sl_checkpoint_shard_range range, bool deep,
                                 struct findings *findings, struct sl_checkpoint_chain *chain)
{
    int err = read_chain(disk, directory, number, chain, findings);
    for (uint32_t i = 0; err == 0 && i < chain->count; i++) {
        const struct sl_checkpoint_manifest *manifest = &chain->items[i];
        if (!range_fits(range, manifest->shard_count)) {
            char path[SL_DISK_PATH_BYTES] = "";
            struct sl_reason why;
            (void)sl_checkpoint_directory_path(directory, manifest->number, NULL, path, &why);
            sl_reason_set(&why, "%s: it has %u shard%s; asked for are %u from %u on", path,
                          manifest->shard_count, sl_log_plural(manifest->shard_count), range.count,
                          range.first);
            directory_verify_find(findings, SL_ERR_CORRUPT, path, why.text);
        }
        err = directory_verify_check_files(disk, directory, manifest, range, deep, findings);
    }
    if (err != 0) {
        return err;
    }
    /* A missing file counts as damage. */
    return findings->err == SL_ERR_NOT_FOUND ? SL_ERR_CORRUPT : findings->err;
}

int sl_checkpoint_directory_chain(const struct sl_disk *disk, const char *directory,
                                  uint64_t number, struct sl_checkpoint_shard_range range,
                                  const struct sl_checkpoint_report *report,
                                  struct sl_checkpoint_chain *out, struct sl_reason *reason)
{
    sl_assert(number > 0);
    struct findings findings = {.report = report, .reason = reason};
    struct sl_checkpoint_chain chain = {0};
    int err = directory_verify_walk(disk, directory, number, range, false, &findings, &chain);
    if (err != 0 || out == NULL) {
        sl_checkpoint_chain_fini(&chain);
    } else {
        *out = chain;
    }
    return err;
}

int sl_checkpoint_directory_verify(const struct sl_disk *disk, const char *directory,
                                   uint64_t number, struct sl_checkpoint_shard_range range,
                                   const struct sl_checkpoint_report *report,
                                   struct sl_reason *reason)
{
    sl_assert(number > 0);
    struct findings findings = {.report = report, .reason = reason};
    struct sl_checkpoint_chain chain = {0};
    int err = directory_verify_walk(disk, directory, number, range, true, &findings, &chain);
    sl_checkpoint_chain_fini(&chain);
    return err;
}
