/* The endpoint map: any file gives entries that can be written and read again, or a reason. */
#include <string.h>

#include "config/endpoint_map.h"
#include "core/assert.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct fuzz_input_file file = fuzz_input_file_open(bytes, byte_count);
    struct sl_endpoint_map map;
    char reason[512] = "";
    int err = sl_endpoint_map_read(file.path, &map, reason, sizeof reason);
    if (err != 0) {
        sl_assert(strstr(reason, file.path) == reason);
    } else {
        for (uint32_t i = 0; i < map.count; i++) {
            const struct sl_endpoint *control = &map.entries[i].control;
            sl_assert(sl_endpoint_map_find(&map, control) == &map.entries[i].data);
            char text[SL_LIMIT_ENDPOINT_BYTES];
            struct sl_endpoint again;
            sl_endpoint_format(control, text, sizeof text);
            sl_assert(sl_endpoint_parse(text, &again, reason, sizeof reason) == 0);
            sl_assert(again.port == control->port);
            sl_assert(strcmp(again.host, control->host) == 0);
        }
        sl_endpoint_map_fini(&map);
    }
    fuzz_input_file_close(&file);
    return 0;
}
