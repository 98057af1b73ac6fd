/* What the files of the doctor share: findings, and how the machine's files are read. */
#ifndef SL_TOOLS_DOCTOR_INTERNAL_H
#define SL_TOOLS_DOCTOR_INTERNAL_H

#include "tools/doctor/doctor.h"

enum sl_doctor_verdict { SL_DOCTOR_OK, SL_DOCTOR_WARNING, SL_DOCTOR_MISSING };

struct sl_doctor_finding {
    enum sl_doctor_verdict verdict;
    uint32_t needed_by; /* MISSING: transports that cannot run */
    const char *check;  /* what was looked at, at most 14 letters */
    char found[256];
    char advice[384]; /* "": none */
};

#define SL_DOCTOR_FINDINGS_MAX 256

struct sl_doctor {
    const struct sl_doctor_options *options;
    const struct sl_doctor_system *system;
    uint32_t count;   /* of findings */
    uint32_t stopped; /* transports that cannot run, of all findings */
    struct sl_doctor_finding findings[SL_DOCTOR_FINDINGS_MAX];
    uint32_t gids_said;      /* doctor_gid.c */
    uint32_t endpoints_here; /* of those that were named */
};

/* doctor.c: adds a line. needed_by: transports that need it, which only counts with MISSING. Not
 * NULL: where there is room for no more, the last one is lost, but for what it stops. */
struct sl_doctor_finding *sl_doctor_find(struct sl_doctor *doctor, enum sl_doctor_verdict verdict,
                                         uint32_t needed_by, const char *check, const char *format,
                                         ...) __attribute__((format(printf, 5, 6)));
/* What to do about it. */
void sl_doctor_advise(struct sl_doctor_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* doctor_print.c */
void sl_doctor_print(const struct sl_doctor *doctor, FILE *out);
void sl_doctor_print_json(const struct sl_doctor *doctor, FILE *out);

/* doctor_files.c: paths are below the system's root. The first line of a file, without its end;
 * false where it cannot be read, and *line is "". */
bool sl_doctor_files_line(const struct sl_doctor *doctor, char *line, size_t line_bytes,
                          const char *path, ...) __attribute__((format(printf, 4, 5)));
/* The file, as much of it as there is room for; "" where it cannot be read. */
void sl_doctor_files_text(const struct sl_doctor *doctor, char *text, size_t text_bytes,
                          const char *path);
/* The rest of the first line of `text` that begins with `key`, without the blanks before it. */
bool sl_doctor_files_field(const char *text, const char *key, char *value, size_t value_bytes);
/* The names in a folder, sorted; those that are too long are left out. Returns their number. */
uint32_t sl_doctor_files_list(const struct sl_doctor *doctor, const char *path,
                              char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most);
/* Where a link leads, without the folders before it; false: there is none. */
bool sl_doctor_files_link(const struct sl_doctor *doctor, char *name, size_t name_bytes,
                          const char *path, ...) __attribute__((format(printf, 4, 5)));
/* Whether this process has a privilege, by its number in capabilities(7). */
bool sl_doctor_files_may(const struct sl_doctor *doctor, uint32_t capability);
/* 0, or the errno that opening it for reading and writing gives. */
int sl_doctor_files_access(const struct sl_doctor *doctor, const char *path);

/* The checks, a file each. */
void sl_doctor_kernel_check(struct sl_doctor *doctor); /* io_uring, files, TCP, shared memory */
void sl_doctor_cores_check(struct sl_doctor *doctor);  /* cores, NUMA, clock, huge pages */
void sl_doctor_rdma_check(struct sl_doctor *doctor);   /* libraries, devices, ports, memory */
void sl_doctor_dpdk_check(struct sl_doctor *doctor);   /* the plug-in, memory, devices */

/* doctor_quota.c: what control groups leave of the processor to this process, in thousandths of a
 * core; UINT64_MAX: all of it. */
uint64_t sl_doctor_quota(const struct sl_doctor *doctor);

/* doctor_gid.c: the GIDs of a port, by which RoCE and InfiniBand have addresses. */
struct sl_doctor_port {
    const char *device;
    uint32_t number;
    bool is_ethernet;
    bool is_first; /* of those that are asked for: a chosen index is of this one */
};
void sl_doctor_gid_check(struct sl_doctor *doctor, const struct sl_doctor_port *port);

/* Whether the endpoints that were named are there; after the ports. */
void sl_doctor_gid_check_endpoints(struct sl_doctor *doctor);

#endif
