#include "net/dpdk/module/memif_arguments.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_PATH "/run/memif.sock"

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

/* False: it is no number of 32 bits. */
static bool read_id(const char *value, size_t bytes, uint32_t *out)
{
    uint64_t id = 0;
    bool is_number = bytes > 0;
    for (size_t i = 0; i < bytes && is_number; i++) {
        is_number = value[i] >= '0' && value[i] <= '9';
        id = 10 * id + (uint64_t)(value[i] - '0');
        is_number = is_number && id <= UINT32_MAX;
    }
    *out = (uint32_t)id;
    return is_number;
}

static const char *read_word(const char *word, size_t bytes, struct sl_module_memif_arguments *out)
{
    struct sl_module_memif_address *address = &out->address;
    const char *value = value_of(word, bytes, "socket");
    if (value != NULL) {
        const size_t value_bytes = bytes - (size_t)(value - word);
        (void)snprintf(address->path, sizeof address->path, "%.*s", (int)value_bytes, value);
        return value_bytes > 0 && value_bytes < sizeof address->path - 1
                   ? NULL
                   : "socket= has from 1 to 106 characters";
    }
    if ((value = value_of(word, bytes, "socket-abstract")) != NULL) {
        address->is_abstract = !begins(value, "no");
        return NULL;
    }
    if ((value = value_of(word, bytes, "role")) != NULL) {
        out->is_server = begins(value, "server") || begins(value, "master");
    } else if ((value = value_of(word, bytes, "id")) != NULL) {
        if (!read_id(value, bytes - (size_t)(value - word), &out->id)) {
            return "id= is a number from 0 to 4294967295";
        }
    } else if ((value = value_of(word, bytes, "zero-copy")) != NULL && begins(value, "yes")) {
        return "zero-copy=yes is not taken: the driver loses packets with their peer";
    }
    const size_t used = strlen(out->tail);
    if (used + bytes + 2 > sizeof out->tail) {
        return "they are too long";
    }
    (void)snprintf(out->tail + used, sizeof out->tail - used, "%.*s,", (int)bytes, word);
    return NULL;
}

const char *sl_module_memif_arguments_read(const char *text, struct sl_module_memif_arguments *out)
{
    *out =
        (struct sl_module_memif_arguments){.address = {.path = DEFAULT_PATH, .is_abstract = true}};
    const char *wrong = NULL;
    while (*text != '\0' && wrong == NULL) {
        const size_t bytes = strcspn(text, ",");
        wrong = read_word(text, bytes, out);
        text += bytes + (text[bytes] == ',');
    }
    return wrong;
}
