#include "programs/serve/base/request.h"

#include <string.h>

#include "objects/catalogue/message.h"

/* By enum sl_object_type; the last ones have no name in the protocol. */
static const char *const datatypes[] = {"BOOL",   "UINT8", "INT8",   "UINT16", "INT16",
                                        "UINT32", "INT32", "UINT64", "INT64",  "FP16",
                                        "BF16",   "FP32",  "FP64"};
#define DATATYPE_COUNT (sizeof datatypes / sizeof datatypes[0])

const char *sl_serve_request_datatype(uint32_t type)
{
    return type < DATATYPE_COUNT ? datatypes[type] : NULL;
}

bool sl_serve_request_type(const char *datatype, uint32_t *type)
{
    *type = 0;
    while (*type < DATATYPE_COUNT && strcmp(datatypes[*type], datatype) != 0) {
        ++*type;
    }
    return *type < DATATYPE_COUNT;
}

bool sl_serve_request_name_is_valid(const char *name)
{
    return name[0] != '\0' && sl_objects_text_is_valid(name, SL_SERVE_TENSOR_NAME) &&
           sl_objects_text_is_utf8(name);
}

enum sl_serve_result sl_serve_request_result(int err)
{
    switch (err) {
    case 0:
        return SL_SERVE_ANSWERED;
    case SL_ERR_AGAIN:
        return SL_SERVE_REFUSED;
    case SL_ERR_DEADLINE:
        return SL_SERVE_LATE;
    case SL_ERR_INVALID:
    case SL_ERR_NOT_FOUND:
    case SL_ERR_TOO_LARGE:
        return SL_SERVE_INVALID;
    default:
        return SL_SERVE_FAILED;
    }
}
