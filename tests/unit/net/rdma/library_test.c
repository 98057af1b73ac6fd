#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include "net/rdma/library.h"
#include "tests/support/unit.h"

#define MEMBERS (sizeof(struct sl_rdma_library) / sizeof(void *))
#define THREADS 4

static void *get_in_thread(void *arg)
{
    const char *why = NULL;
    *(const struct sl_rdma_library **)arg = sl_rdma_library_get(&why);
    return NULL;
}

/* First of all here, so that all of them find it not open. */
SL_CASE(get__is_the_same_for_all_threads)
{
    pthread_t threads[THREADS];
    const struct sl_rdma_library *found[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, get_in_thread, &found[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_ptr_equal(found[i], found[0]);
    }
}

SL_CASE(get__is_whole_or_says_why)
{
    const char *why = NULL;
    const struct sl_rdma_library *library = sl_rdma_library_get(&why);
    if (library == NULL) {
        assert_non_null(why);
        assert_true(strstr(why, "libibverbs.so.1") != NULL ||
                    strstr(why, "librdmacm.so.1") != NULL);
        return;
    }
    assert_null(why);
    void *functions[MEMBERS];
    memcpy(functions, library, sizeof functions);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_non_null(functions[i]);
        for (uint32_t j = 0; j < i; j++) {
            assert_ptr_not_equal(functions[i], functions[j]);
        }
    }
}

struct versioned {
    const char *file, *name, *version;
    size_t offset;
};

/* libibverbs keeps functions of an older binary interface under the same names. */
SL_CASE(get__takes_the_versions_that_linking_would)
{
    static const struct versioned functions[] = {
        {"libibverbs.so.1", "ibv_reg_mr", "IBVERBS_1.1", offsetof(struct sl_rdma_library, reg_mr)},
        {"libibverbs.so.1", "ibv_create_cq", "IBVERBS_1.1",
         offsetof(struct sl_rdma_library, create_cq)},
        {"libibverbs.so.1", "ibv_get_device_list", "IBVERBS_1.1",
         offsetof(struct sl_rdma_library, get_device_list)},
        {"libibverbs.so.1", "ibv_query_port", "IBVERBS_1.1",
         offsetof(struct sl_rdma_library, query_port)},
        {"librdmacm.so.1", "rdma_create_qp", "RDMACM_1.0",
         offsetof(struct sl_rdma_library, create_qp)},
    };
    const char *why = NULL;
    const struct sl_rdma_library *library = sl_rdma_library_get(&why);
    if (library == NULL) {
        skip();
    }
    for (uint32_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *handle = dlopen(functions[i].file, RTLD_NOW | RTLD_LOCAL);
        assert_non_null(handle);
        void *wanted = dlvsym(handle, functions[i].name, functions[i].version);
        void *taken;
        memcpy(&taken, (const char *)library + functions[i].offset, sizeof taken);
        assert_non_null(wanted);
        assert_ptr_equal(taken, wanted);
        dlclose(handle);
    }
}

/* Where no device is, that is what they say. */
SL_CASE(get__can_be_called)
{
    const char *why = NULL;
    const struct sl_rdma_library *library = sl_rdma_library_get(&why);
    if (library == NULL) {
        skip();
    }
    assert_string_equal(library->wc_status_str(IBV_WC_SUCCESS), "success");
    assert_non_null(library->event_type_str(IBV_EVENT_DEVICE_FATAL));
    assert_string_equal(library->event_str(RDMA_CM_EVENT_REJECTED), "RDMA_CM_EVENT_REJECTED");
}
