#include "net/dpdk/module/memif_arguments.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PATH         "/run/memif.sock"
#define DEFAULT_BUFFER_BYTES 2048U

/* The value of a word `key=value`, or NULL. */
static const char *value_of(const char *word, size_t bytes, const char *key)
{
    const size_t key_bytes = strlen(key);
    const bool is_it =
        bytes > key_bytes && strncmp(word, key, key_bytes) == 0 && word[key_bytes] == '=';
    return is_it ? word + key_bytes + 1 : NULL;
}

static bool begins(const char *value, const char *with)
{
    return strncmp(value, with, strlen(with)) == 0;
}

/* Whether the value is a number of 32 bits; the driver would take anything else for 0. */
static bool is_id(const char *value, size_t bytes)
{
    uint64_t id = 0;
    bool is_number = bytes > 0;
    for (size_t i = 0; i < bytes && is_number; i++) {
        is_number = value[i] >= '0' && value[i] <= '9';
        id = 10 * id + (uint64_t)(value[i] - '0');
        is_number = is_number && id <= UINT32_MAX;
    }
    return is_number;
}

static const char *read_word(const char *word, size_t bytes, struct sl_module_memif_arguments *out)
{
    const char *value = value_of(word, bytes, "socket");
    if (value != NULL) {
        const size_t value_bytes = bytes - (size_t)(value - word);
        (void)snprintf(out->path, sizeof out->path, "%.*s", (int)value_bytes, value);
        return value_bytes > 0 && value_bytes < sizeof out->path - 1
                   ? NULL
                   : "socket= has from 1 to 106 characters";
    }
    if ((value = value_of(word, bytes, "socket-abstract")) != NULL) {
        out->is_abstract = !begins(value, "no");
    } else if ((value = value_of(word, bytes, "role")) != NULL) {
        out->is_server = begins(value, "server") || begins(value, "master");
    } else if ((value = value_of(word, bytes, "bsize")) != NULL) {
        const unsigned long room = strtoul(value, NULL, 10);
        out->buffer_bytes = room > UINT16_MAX ? UINT16_MAX : (uint32_t)room;
    } else if ((value = value_of(word, bytes, "id")) != NULL) {
        return is_id(value, bytes - (size_t)(value - word))
                   ? NULL
                   : "id= is a number from 0 to 4294967295";
    } else if ((value = value_of(word, bytes, "zero-copy")) != NULL && begins(value, "yes")) {
        return "zero-copy=yes is not taken: the driver loses packets with their peer";
    }
    return NULL;
}

const char *sl_module_memif_arguments_read(const char *text, struct sl_module_memif_arguments *out)
{
    *out = (struct sl_module_memif_arguments){
        .path = DEFAULT_PATH, .is_abstract = true, .buffer_bytes = DEFAULT_BUFFER_BYTES};
    const char *wrong = NULL;
    while (text != NULL && *text != '\0' && wrong == NULL) {
        const size_t bytes = strcspn(text, ",");
        wrong = read_word(text, bytes, out);
        text += bytes + (text[bytes] == ',');
    }
    return wrong;
}
