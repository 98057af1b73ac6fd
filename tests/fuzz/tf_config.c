/* TF_CONFIG: any text gives a cluster within the limits, or a reason that names the variable. */
#include <stdlib.h>
#include <string.h>

#include "config/tf_config.h"
#include "core/assert.h"
#include "core/limits.h"
#include "tests/fuzz/input.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t byte_count)
{
    char *text = malloc(byte_count + 1);
    sl_assert(text != NULL);
    memcpy(text, bytes, byte_count);
    text[byte_count] = '\0';
    struct sl_tf_config config;
    struct sl_reason reason = {0};
    if (sl_tf_config_parse(text, &config, &reason) != 0) {
        sl_assert(strncmp(reason.text, "TF_CONFIG", 9) == 0);
    } else {
        sl_assert(config.worker_count <= SL_LIMIT_WORKERS);
        sl_assert(config.ps.count <= SL_LIMIT_PS);
        sl_tf_config_fini(&config);
    }
    free(text);
    return 0;
}
