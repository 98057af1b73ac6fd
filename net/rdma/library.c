#include "net/rdma/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TO_INSTALL                                                                                 \
    "install libibverbs1, librdmacm1 and ibverbs-providers, or what the system calls rdma-core"

struct function {
    const char *name;
    size_t offset;
};

/* Looked up by name: some of these are macros or inline functions in the headers. dlsym without
 * a version finds the default version, as linking would. */
#define FUNCTION(member, function)                                                                 \
    {                                                                                              \
        function, offsetof(struct sl_rdma_library, member)                                         \
    }

static const struct function verbs_functions[] = {
    FUNCTION(get_device_list, "ibv_get_device_list"),
    FUNCTION(free_device_list, "ibv_free_device_list"),
    FUNCTION(get_device_name, "ibv_get_device_name"),
    FUNCTION(open_device, "ibv_open_device"),
    FUNCTION(close_device, "ibv_close_device"),
    FUNCTION(query_device, "ibv_query_device"),
    FUNCTION(query_port, "ibv_query_port"),
    FUNCTION(query_gid, "ibv_query_gid"),
    FUNCTION(alloc_pd, "ibv_alloc_pd"),
    FUNCTION(dealloc_pd, "ibv_dealloc_pd"),
    FUNCTION(reg_mr, "ibv_reg_mr"),
    FUNCTION(dereg_mr, "ibv_dereg_mr"),
    FUNCTION(create_comp_channel, "ibv_create_comp_channel"),
    FUNCTION(destroy_comp_channel, "ibv_destroy_comp_channel"),
    FUNCTION(create_cq, "ibv_create_cq"),
    FUNCTION(resize_cq, "ibv_resize_cq"),
    FUNCTION(destroy_cq, "ibv_destroy_cq"),
    FUNCTION(get_cq_event, "ibv_get_cq_event"),
    FUNCTION(ack_cq_events, "ibv_ack_cq_events"),
    FUNCTION(get_async_event, "ibv_get_async_event"),
    FUNCTION(ack_async_event, "ibv_ack_async_event"),
    FUNCTION(create_srq, "ibv_create_srq"),
    FUNCTION(destroy_srq, "ibv_destroy_srq"),
    FUNCTION(create_plain_qp, "ibv_create_qp"),
    FUNCTION(destroy_plain_qp, "ibv_destroy_qp"),
    FUNCTION(modify_qp, "ibv_modify_qp"),
    FUNCTION(query_qp, "ibv_query_qp"),
    FUNCTION(wc_status_str, "ibv_wc_status_str"),
    FUNCTION(event_type_str, "ibv_event_type_str"),
};

static const struct function cm_functions[] = {
    FUNCTION(create_event_channel, "rdma_create_event_channel"),
    FUNCTION(destroy_event_channel, "rdma_destroy_event_channel"),
    FUNCTION(create_id, "rdma_create_id"),
    FUNCTION(destroy_id, "rdma_destroy_id"),
    FUNCTION(migrate_id, "rdma_migrate_id"),
    FUNCTION(set_option, "rdma_set_option"),
    FUNCTION(bind_addr, "rdma_bind_addr"),
    FUNCTION(listen, "rdma_listen"),
    FUNCTION(resolve_addr, "rdma_resolve_addr"),
    FUNCTION(resolve_route, "rdma_resolve_route"),
    FUNCTION(create_qp, "rdma_create_qp"),
    FUNCTION(destroy_qp, "rdma_destroy_qp"),
    FUNCTION(connect, "rdma_connect"),
    FUNCTION(accept, "rdma_accept"),
    FUNCTION(reject, "rdma_reject"),
    FUNCTION(disconnect, "rdma_disconnect"),
    FUNCTION(init_qp_attr, "rdma_init_qp_attr"),
    FUNCTION(get_cm_event, "rdma_get_cm_event"),
    FUNCTION(ack_cm_event, "rdma_ack_cm_event"),
    FUNCTION(get_src_port, "rdma_get_src_port"),
    FUNCTION(get_devices, "rdma_get_devices"),
    FUNCTION(free_devices, "rdma_free_devices"),
    FUNCTION(event_str, "rdma_event_str"),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

_Static_assert(COUNT(verbs_functions) + COUNT(cm_functions) ==
                   sizeof(struct sl_rdma_library) / sizeof(void (*)(void)),
               "every member is looked up");

static struct sl_rdma_library library;
static char missing[512]; /* "": complete */

static bool open_library(const char *file, const struct function *functions, size_t count)
{
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror(); /* names the file */
        snprintf(missing, sizeof missing, "%s: %s", reason != NULL ? reason : file, TO_INSTALL);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(handle, functions[i].name);
        if (address == NULL) {
            snprintf(missing, sizeof missing, "%s: it is too old, it has no %s", file,
                     functions[i].name);
            return false;
        }
        memcpy((char *)&library + functions[i].offset, &address, sizeof address);
    }
    return true;
}

static void open_both(void)
{
    if (open_library("libibverbs.so.1", verbs_functions, COUNT(verbs_functions))) {
        (void)open_library("librdmacm.so.1", cm_functions, COUNT(cm_functions));
    }
}

const struct sl_rdma_library *sl_rdma_library_get(const char **why)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_both);
    if (missing[0] != '\0') {
        *why = missing;
        return NULL;
    }
    return &library;
}
