/* Reads this host for the doctor. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "net/transport.h"
#include "programs/doctor/doctor.h"
#include "reactor/ring.h"
#include "reactor/topology.h"

/* sl_ring_init reports the features as reactors see them; the system call gives the errno. */
static int probe_ring(struct sl_doctor_ring *out)
{
    struct io_uring_params params = {0};
    long fd = syscall(__NR_io_uring_setup, 1, &params);
    if (fd < 0) {
        return -errno;
    }
    (void)close((int)fd);
    struct sl_ring ring;
    if (sl_ring_init(&ring, 8) != 0) {
        return -ENOSYS;
    }
    *out = (struct sl_doctor_ring){
        .deferred_taskrun = ring.deferred_taskrun,
        .multishot_recv = ring.multishot_recv,
        .provided_buffer_rings = ring.provided_buffer_rings,
    };
    sl_ring_fini(&ring);
    return 0;
}

static const char *why_no_memfd(void)
{
    int fd = memfd_create("starling-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return strerror(errno);
    }
    (void)close(fd);
    return NULL;
}

/* Binding a unix socket without a name assigns an abstract name. */
static const char *why_no_abstract(void)
{
    const struct sockaddr none = {.sa_family = AF_UNIX};
    const char *why = NULL;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, &none, sizeof none.sa_family) != 0) {
        why = strerror(errno);
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return why;
}

static uint64_t hard_limit(__rlimit_resource_t resource)
{
    struct rlimit limit;
    bool has_one = getrlimit(resource, &limit) == 0 && limit.rlim_max != RLIM_INFINITY;
    return has_one ? limit.rlim_max : UINT64_MAX;
}

/* Devices are checked separately. */
static const char *system_missing(enum sl_endpoint_scheme scheme)
{
    return sl_builtin_find(scheme) == NULL ? sl_builtin_missing(scheme) : NULL;
}

void sl_doctor_system_read(struct sl_doctor_system *out)
{
    *out = (struct sl_doctor_system){
        .root = "",
        .cores = sl_topology_core_count(),
        .files_max = hard_limit(RLIMIT_NOFILE),
        .memlock_max = hard_limit(RLIMIT_MEMLOCK),
        .no_memfd = why_no_memfd(),
        .no_abstract = why_no_abstract(),
        .probe_ring = probe_ring,
        .missing = system_missing,
        .rdma_devices = sl_rdma_device_list,
        .read_devices = sl_devices_read_host,
    };
}
