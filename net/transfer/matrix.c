#include "net/transfer/matrix.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define FORM "accepted is {\"cpu:0\": [[preferred devices], [available devices]], ...}"

struct parser {
    const struct sl_devices *devices;
    struct sl_matrix *matrix;
    struct sl_reason why; /* the reason without the source */
};

/* Returns the device's index in the matrix, and adds it when it is new there. */
static uint8_t matrix_index_of(struct sl_matrix *matrix, const char *device)
{
    uint32_t i = 0;
    while (i < matrix->device_count && strcmp(matrix->devices[i], device) != 0) {
        i++;
    }
    if (i == matrix->device_count) {
        (void)snprintf(matrix->devices[i], sizeof matrix->devices[i], "%s", device);
        matrix->device_count++;
    }
    return (uint8_t)i;
}

static bool has(const struct sl_matrix_list *list, uint8_t device)
{
    return memchr(list->devices, device, list->count) != NULL;
}

/* Adds a device that the location does not have yet. */
static void matrix_add(struct sl_matrix_location *location, struct sl_matrix_list *list,
                       uint8_t device)
{
    if (!has(&location->preferred, device) && !has(&location->available, device)) {
        list->devices[list->count++] = device;
    }
}

static int parse_list(struct parser *parser, const json_t *from,
                      struct sl_matrix_location *location, struct sl_matrix_list *list)
{
    if (!json_is_array(from)) {
        return sl_reason_fail(&parser->why, SL_ERR_INVALID,
                              "location \"%s\" lacks an array of devices; " FORM, location->name);
    }
    for (size_t i = 0; i < json_array_size(from); i++) {
        const char *name = json_string_value(json_array_get(from, i));
        if (name == NULL) {
            return sl_reason_fail(&parser->why, SL_ERR_INVALID,
                                  "location \"%s\": device %zu is no string; " FORM, location->name,
                                  i);
        }
        if (parser->devices == NULL && (name[0] == '\0' || strlen(name) >= SL_DEVICE_NAME_BYTES ||
                                        parser->matrix->device_count == SL_DEVICES_MAX)) {
            return sl_reason_fail(&parser->why, SL_ERR_INVALID,
                                  "location \"%s\": too many devices, or too long a name",
                                  location->name);
        }
        if (parser->devices != NULL && sl_devices_find(parser->devices, name) == NULL) {
            char names[512];
            sl_devices_names(parser->devices, names, sizeof names);
            return sl_reason_fail(
                &parser->why, SL_ERR_INVALID,
                "location \"%s\": there is no device \"%.80s\"; this host has: %s", location->name,
                name, names[0] == '\0' ? "none" : names);
        }
        matrix_add(location, list, matrix_index_of(parser->matrix, name));
    }
    return 0;
}

static int parse_location(struct parser *parser, const char *name, const json_t *lists)
{
    struct sl_matrix *matrix = parser->matrix;
    if (matrix->location_count == SL_MATRIX_LOCATIONS_MAX) {
        return sl_reason_fail(&parser->why, SL_ERR_INVALID, "more than %d locations",
                              SL_MATRIX_LOCATIONS_MAX);
    }
    struct sl_matrix_location *location = &matrix->locations[matrix->location_count];
    if (name[0] == '\0' || strlen(name) >= sizeof location->name) {
        return sl_reason_fail(&parser->why, SL_ERR_INVALID,
                              "location \"%.80s\" has not 1 to %zu characters", name,
                              sizeof location->name - 1);
    }
    memcpy(location->name, name, strlen(name) + 1);
    if (!json_is_array(lists) || json_array_size(lists) != 2) {
        return sl_reason_fail(&parser->why, SL_ERR_INVALID,
                              "location \"%s\" lacks an array of two arrays; " FORM, name);
    }
    int err = parse_list(parser, json_array_get(lists, 0), location, &location->preferred);
    if (err == 0) {
        err = parse_list(parser, json_array_get(lists, 1), location, &location->available);
    }
    matrix->location_count++;
    return err;
}

static int parse_root(struct parser *parser, json_t *root)
{
    const char *name;
    json_t *lists;
    int err = json_is_object(root)
                  ? 0
                  : sl_reason_fail(&parser->why, SL_ERR_INVALID, "no JSON object; " FORM);
    json_object_foreach(root, name, lists)
    {
        if (err == 0) {
            err = parse_location(parser, name, lists);
        }
    }
    return err;
}

int sl_matrix_parse(const char *text, const char *source, const struct sl_devices *devices,
                    struct sl_matrix *out, struct sl_reason *reason)
{
    struct sl_matrix matrix = {0};
    struct parser parser = {.devices = devices, .matrix = &matrix};
    json_error_t error;
    if (strnlen(text, SL_MATRIX_BYTES_MAX + 1) > SL_MATRIX_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "%s: more than %u bytes", source,
                              SL_MATRIX_BYTES_MAX);
    }
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL) {
        const enum json_error_code code = json_error_code(&error);
        return code == json_error_out_of_memory
                   ? sl_reason_fail(reason, SL_ERR_NO_MEMORY, "out of memory")
               : code == json_error_duplicate_key
                   ? sl_reason_fail(reason, SL_ERR_INVALID,
                                    "%s: line %d: a location is repeated: %s", source, error.line,
                                    error.text)
                   : sl_reason_fail(reason, SL_ERR_INVALID, "%s: line %d: no JSON: %s; " FORM,
                                    source, error.line, error.text);
    }
    const int err = parse_root(&parser, root);
    json_decref(root);
    if (err != 0) {
        return sl_reason_fail(reason, err, "%s: %s", source, parser.why.text);
    }
    *out = matrix;
    return 0;
}

void sl_matrix_discover(const struct sl_devices *devices, struct sl_matrix *out)
{
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < devices->node_count; i++) {
        struct sl_matrix_location *location = &out->locations[out->location_count++];
        (void)snprintf(location->name, sizeof location->name, "cpu:%d", devices->nodes[i]);
        for (uint32_t k = 0; k < devices->count; k++) {
            const struct sl_device *device = &devices->list[k];
            if (device->is_up && sl_devices_is_reachable(device)) {
                matrix_add(location,
                           device->node == devices->nodes[i] ? &location->preferred
                                                             : &location->available,
                           matrix_index_of(out, device->name));
            }
        }
    }
}

static json_t *list_json(const struct sl_matrix *matrix, const struct sl_matrix_list *list)
{
    json_t *out = json_array();
    for (uint32_t i = 0; i < list->count && out != NULL; i++) {
        if (json_array_append_new(out, json_string(matrix->devices[list->devices[i]])) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

int sl_matrix_write(const struct sl_matrix *matrix, char **text)
{
    json_t *root = json_object();
    for (uint32_t i = 0; i < matrix->location_count && root != NULL; i++) {
        const struct sl_matrix_location *location = &matrix->locations[i];
        json_t *lists = json_pack("[oo]", list_json(matrix, &location->preferred),
                                  list_json(matrix, &location->available));
        if (json_object_set_new(root, location->name, lists) != 0) {
            json_decref(root);
            root = NULL;
        }
    }
    char *out = root == NULL ? NULL : json_dumps(root, 0);
    json_decref(root);
    if (out == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    *text = out;
    return 0;
}

bool sl_matrix_prefers(const struct sl_matrix *matrix, const char *location, const char *device)
{
    for (uint32_t i = 0; i < matrix->location_count; i++) {
        const struct sl_matrix_list *list = &matrix->locations[i].preferred;
        for (uint32_t k = 0; strcmp(matrix->locations[i].name, location) == 0 && k < list->count;
             k++) {
            if (strcmp(matrix->devices[list->devices[k]], device) == 0) {
                return true;
            }
        }
    }
    return false;
}
