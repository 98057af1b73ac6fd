/* The endpoint map: any file gives entries that can be written and read again, or a reason. */
#include <string.h>

#include "config/endpoint_map.h"
#include "core/assert.h"
#include "tests/fuzz/input.h"

static void check_endpoint(const struct sl_endpoint *endpoint)
{
    char text[SL_LIMIT_ENDPOINT_BYTES + 16];
    struct sl_endpoint again;
    sl_endpoint_format(endpoint, text, sizeof text);
    sl_assert(sl_endpoint_parse(text, &again, NULL) == 0);
    sl_assert(again.scheme == endpoint->scheme);
    sl_assert(again.port == endpoint->port);
    sl_assert(strcmp(again.host, endpoint->host) == 0);
}

static void check_entry(const struct sl_endpoint_map *map,
                        const struct sl_endpoint_map_entry *entry)
{
    sl_assert(sl_endpoint_map_find(map, &entry->control) == entry);
    check_endpoint(&entry->control);
    check_endpoint(&entry->data);
    if (entry->has_bypass) {
        sl_assert(entry->data.scheme == SL_ENDPOINT_TCP);
        sl_assert(entry->bypass.scheme == SL_ENDPOINT_RDMA ||
                  entry->bypass.scheme == SL_ENDPOINT_DPDK);
        check_endpoint(&entry->bypass);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    struct fuzz_input_file file = fuzz_input_file_open(bytes, byte_count);
    struct sl_endpoint_map map;
    struct sl_reason reason = {0};
    int err = sl_endpoint_map_read(file.path, &map, &reason);
    if (err != 0) {
        sl_assert(strstr(reason.text, file.path) == reason.text);
    } else {
        for (uint32_t i = 0; i < map.count; i++) {
            check_entry(&map, &map.entries[i]);
        }
        sl_endpoint_map_fini(&map);
    }
    fuzz_input_file_close(&file);
    return 0;
}
