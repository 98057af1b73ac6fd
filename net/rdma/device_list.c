#include "net/rdma/device_list.h"

#include <stdio.h>

#include "net/rdma/library.h"

uint32_t sl_rdma_device_list(char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most)
{
    const char *why;
    const struct sl_rdma_library *library = sl_rdma_library_get(&why);
    int count = 0;
    struct ibv_device **list = library == NULL ? NULL : library->get_device_list(&count);
    if (list == NULL) {
        return 0;
    }
    for (int i = 0; i < count && (uint32_t)i < most; i++) {
        (void)snprintf(names[i], SL_RDMA_DEVICE_NAME_BYTES, "%s",
                       library->get_device_name(list[i]));
    }
    library->free_device_list(list);
    return (uint32_t)count;
}
