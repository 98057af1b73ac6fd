/* Reports of members: any bytes are an error, or are encoded and decoded again to the same report.
 */
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/log.h"
#include "net/session/report.h"
#include "tests/fuzz/input.h"

static void check_printable(const char *text)
{
    for (; *text != '\0'; text++) {
        sl_assert(*text >= ' ');
        sl_assert(*text < 0x7f);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    sl_log_setup(SL_LOG_OFF, "fuzz");
    struct sl_report report;
    if (sl_report_decode(bytes, byte_count, &report) != 0) {
        return 0;
    }
    check_printable(report.http);
    uint8_t *first = NULL;
    uint8_t *second = NULL;
    uint32_t first_bytes = 0;
    uint32_t second_bytes = 0;
    struct sl_report again;
    if (sl_report_encode(&report, &first, &first_bytes) == 0) {
        sl_assert(sl_report_decode(first, first_bytes, &again) == 0);
        sl_assert(sl_report_encode(&again, &second, &second_bytes) == 0);
        sl_assert(first_bytes == second_bytes);
        sl_assert(memcmp(first, second, first_bytes) == 0);
        sl_report_fini(&again);
    }
    free(first);
    free(second);
    sl_report_fini(&report);
    return 0;
}
