/* safetensors files: any bytes are read and imported, or refused with a reason; what was imported
 * is a checkpoint that is whole, and what is exported of it can be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/assert.h"
#include "programs/ckpt/export.h"
#include "programs/ckpt/import.h"
#include "tests/fuzz/input.h"

static char directory[64];

/* Every tensor lies in the file, and can be read. */
static void check_tensors(const struct sl_safetensors *file, size_t file_bytes)
{
    struct sl_reason reason;
    for (uint32_t i = 0; i < file->tensors.count; i++) {
        const struct sl_tensor *tensor = &file->tensors.items[i];
        uint8_t byte;
        sl_assert(tensor->at <= file_bytes);
        sl_assert(tensor->bytes <= file_bytes - tensor->at);
        sl_assert(tensor->type == SL_TENSOR_OTHER ||
                  tensor->bytes == tensor->count * sl_tensor_type_bytes(tensor->type));
        if (tensor->bytes > 0) {
            sl_assert(sl_safetensors_read(file, tensor, tensor->bytes - 1, &byte, 1, &reason) == 0);
        }
    }
}

static void remove_all(void)
{
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf '%s'", directory);
    sl_assert(system(command) == 0);
}

/* Takes the checkpoint's folder away again. */
static void forget(uint64_t number, const char *path)
{
    const struct sl_disk *disk = sl_disk_system();
    struct sl_disk_names names;
    char folder[SL_DISK_PATH_BYTES];
    char file[SL_DISK_PATH_BYTES];
    (void)unlink(path);
    sl_assert(sl_checkpoint_directory_path(directory, number, NULL, folder, NULL) == 0);
    sl_assert(sl_disk_list(disk, folder, &names, NULL) == 0);
    for (uint32_t i = 0; i < names.count; i++) {
        sl_assert(sl_disk_join(folder, names.items[i].name, file, NULL) == 0);
        sl_assert(sl_disk_remove(disk, file, NULL) == 0);
    }
    sl_disk_names_fini(&names);
    sl_assert(sl_disk_remove_subdir(disk, folder, NULL) == 0);
}

static void import(const char *path, uint8_t shards)
{
    static const char *const with[] = {"lr=0.5"};
    const struct sl_checkpoint_shard_range all = {0};
    const struct sl_import_options options = {.path = path,
                                              .directory = directory,
                                              .shard_count = 1U + shards % 3U,
                                              .with = with,
                                              .with_count = shards >> 7};
    struct sl_import_result result;
    struct sl_reason reason = {0};
    char out[128];
    if (sl_import_run(&options, &result, &reason) != 0) {
        sl_assert(reason.text[0] != '\0');
        return;
    }
    (void)snprintf(out, sizeof out, "%s/x.%s", directory,
                   (shards & 8) != 0 ? "npz" : "safetensors");
    const struct sl_export_options back = {
        .directory = directory, .number = result.number, .path = out, .slots = (shards & 16) != 0};
    uint64_t number;
    uint32_t tensors;
    sl_assert(sl_checkpoint_directory_verify(sl_disk_system(), directory, result.number, all, NULL,
                                             &reason) == 0);
    int err = sl_export_run(&back, &number, &tensors, &reason);
    /* Two tables may make tensors of one name. */
    sl_assert(err == 0 || err == SL_ERR_EXISTS);
    if (err == 0 && (shards & 8) == 0) {
        struct sl_safetensors file;
        sl_assert(sl_safetensors_open(out, &file, &reason) == 0);
        sl_assert(file.tensors.count == tensors);
        sl_safetensors_close(&file);
    }
    forget(result.number, out);
    sl_import_result_fini(&result);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    if (directory[0] == '\0') {
        /* In memory, where there is such a folder: the disk is synced all the time. */
        (void)snprintf(directory, sizeof directory, "%s/starling-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        sl_assert(mkdtemp(directory) != NULL);
        sl_assert(atexit(remove_all) == 0);
    }
    const uint8_t shards = byte_count > 0 ? bytes[0] : 0;
    const size_t skipped = byte_count > 0;
    struct fuzz_input_file input = fuzz_input_file_open(bytes + skipped, byte_count - skipped);
    struct sl_safetensors file;
    struct sl_reason reason = {0};
    int err = sl_safetensors_open(input.path, &file, &reason);
    if (err != 0) {
        sl_assert(strstr(reason.text, input.path) != NULL);
    } else {
        check_tensors(&file, byte_count - skipped);
        sl_safetensors_close(&file);
        import(input.path, shards);
    }
    fuzz_input_file_close(&input);
    return 0;
}
