/* JSON of the transfer engine. Any record of a metadata store, and any NIC priority matrix, is an
 * error with a reason, or gives the same again after it was written. The first byte of the input
 * chooses, the rest is the text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "net/transfer/matrix.h"
#include "net/transfer/record.h"
#include "tests/fuzz/input.h"

#define NAME "10.0.0.2:12345"

static void check_record(const char *text, size_t bytes)
{
    struct sl_transfer_record record, again;
    struct sl_reason reason = {.text = ""};
    char age[SL_TRANSFER_RECORD_AGE_BYTES] = "";
    if (sl_transfer_record_decode(text, bytes, NAME, &record, &reason) != 0) {
        sl_assert(reason.text[0] != '\0');
        return;
    }
    sl_assert(strcmp(record.name, NAME) == 0);
    sl_assert(record.host[0] != '\0');
    sl_assert(record.port > 0);
    sl_assert(record.incarnation > 0);
    sl_assert(record.written_s >= 0);
    sl_transfer_record_age(&record, 1800000000, age);
    sl_assert(age[0] != '\0');
    char *written;
    sl_assert(sl_transfer_record_encode(&record, &written) == 0);
    sl_assert(sl_transfer_record_decode(written, strlen(written), NAME, &again, &reason) == 0);
    sl_assert(strcmp(again.host, record.host) == 0);
    sl_assert(again.port == record.port);
    sl_assert(again.incarnation == record.incarnation);
    sl_assert(again.written_s == record.written_s);
    free(written);
}

/* Some devices, among them names with letters that JSON escapes. */
static void fill_devices(struct sl_devices *devices)
{
    static const char *const NAMES[] = {"mlx5_0", "mlx5_1", "eth0", "e\"\\"};
    memset(devices, 0, sizeof *devices);
    for (uint32_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        (void)snprintf(devices->list[i].name, sizeof devices->list[i].name, "%s", NAMES[i]);
        devices->count++;
    }
}

/* No device is in both lists, or twice. */
static void check_location(const struct sl_matrix *matrix,
                           const struct sl_matrix_location *location)
{
    const struct sl_matrix_list *const lists[] = {&location->preferred, &location->available};
    bool seen[SL_DEVICES_MAX] = {false};
    for (int i = 0; i < 2; i++) {
        sl_assert(lists[i]->count <= matrix->device_count);
        for (uint32_t k = 0; k < lists[i]->count; k++) {
            const uint8_t device = lists[i]->devices[k];
            sl_assert(device < matrix->device_count);
            sl_assert(!seen[device]);
            seen[device] = true;
            sl_assert(sl_matrix_prefers(matrix, location->name, matrix->devices[device]) ==
                      (i == 0));
        }
    }
}

static void check_matrix(const char *text)
{
    static struct sl_devices devices;
    static struct sl_matrix matrix, again;
    struct sl_reason reason = {.text = ""};
    fill_devices(&devices);
    if (sl_matrix_parse(text, "matrix", &devices, &matrix, &reason) != 0) {
        sl_assert(strncmp(reason.text, "matrix: ", 8) == 0);
        return;
    }
    sl_assert(matrix.device_count <= devices.count);
    sl_assert(matrix.location_count <= SL_MATRIX_LOCATIONS_MAX);
    for (uint32_t i = 0; i < matrix.location_count; i++) {
        check_location(&matrix, &matrix.locations[i]);
    }
    char *written;
    sl_assert(sl_matrix_write(&matrix, &written) == 0);
    /* Escapes can make it longer than a text that is accepted. */
    if (strlen(written) <= SL_MATRIX_BYTES_MAX) {
        sl_assert(sl_matrix_parse(written, "again", &devices, &again, &reason) == 0);
        sl_assert(memcmp(&again, &matrix, sizeof matrix) == 0);
    }
    free(written);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    if (byte_count == 0) {
        return 0;
    }
    char *text = malloc(byte_count);
    sl_assert(text != NULL);
    memcpy(text, &bytes[1], byte_count - 1);
    text[byte_count - 1] = '\0';
    if (bytes[0] % 2 == 0) {
        check_record(text, byte_count - 1);
    } else {
        check_matrix(text);
    }
    free(text);
    return 0;
}
