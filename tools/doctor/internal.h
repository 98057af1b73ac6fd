/* Declarations shared by the doctor's files: findings and access to the host's files. */
#ifndef SL_TOOLS_DOCTOR_INTERNAL_H
#define SL_TOOLS_DOCTOR_INTERNAL_H

#include "tools/doctor/doctor.h"

enum sl_doctor_verdict { SL_DOCTOR_OK, SL_DOCTOR_WARNING, SL_DOCTOR_MISSING };

struct sl_doctor_finding {
    enum sl_doctor_verdict verdict;
    uint32_t needed_by; /* MISSING: transports that cannot run */
    const char *check;  /* name of the check, at most 14 letters */
    char found[256];
    char advice[384]; /* "": none */
};

#define SL_DOCTOR_FINDINGS_MAX 256

struct sl_doctor {
    const struct sl_doctor_options *options;
    const struct sl_doctor_system *system;
    uint32_t count;   /* of findings */
    uint32_t stopped; /* transports that cannot run, by all findings */
    struct sl_doctor_finding findings[SL_DOCTOR_FINDINGS_MAX];
    uint32_t gids_said;      /* gid.c */
    uint32_t endpoints_here; /* endpoints that belong to this host */
};

/* Adds a finding. needed_by: transports that need it, for MISSING only. Never NULL: when the array
 * is full the last finding is replaced, but `stopped` is kept. */
struct sl_doctor_finding *sl_doctor_find(struct sl_doctor *doctor, enum sl_doctor_verdict verdict,
                                         uint32_t needed_by, const char *check, const char *format,
                                         ...) __attribute__((format(printf, 5, 6)));
/* Sets the remedy. */
void sl_doctor_advise(struct sl_doctor_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Checks that this program has the transport. found: the finding if it has; advice: the remedy if
 * the reason contains none. */
bool sl_doctor_check_transport(struct sl_doctor *doctor, enum sl_endpoint_scheme scheme,
                               const char *check, const char *found, const char *advice);

/* print.c */
void sl_doctor_print(const struct sl_doctor *doctor, FILE *out);
/* False: out of memory, or the output failed. */
bool sl_doctor_print_json(const struct sl_doctor *doctor, FILE *out);

/* files.c; paths are relative to the system's root. Reads the first line of a file, without its
 * end; false: unreadable, and *line is "". */
bool sl_doctor_files_line(const struct sl_doctor *doctor, char *line, size_t line_bytes,
                          const char *path, ...) __attribute__((format(printf, 4, 5)));
/* Reads as much of the file as fits; "" if unreadable. */
void sl_doctor_files_text(const struct sl_doctor *doctor, char *text, size_t text_bytes,
                          const char *path);
/* Finds the first line that starts with `key`. value: the rest of it, without leading blanks. */
bool sl_doctor_files_field(const char *text, const char *key, char *value, size_t value_bytes);
/* Lists the names in a directory, sorted, without names that are too long. Returns their number. */
uint32_t sl_doctor_files_list(const struct sl_doctor *doctor, const char *path,
                              char names[][SL_RDMA_DEVICE_NAME_BYTES], uint32_t most);
/* Reads the base name of a link's target; false: no link. */
bool sl_doctor_files_link(const struct sl_doctor *doctor, char *name, size_t name_bytes,
                          const char *path, ...) __attribute__((format(printf, 4, 5)));
/* Returns true if this process has a capability of capabilities(7). */
bool sl_doctor_files_may(const struct sl_doctor *doctor, uint32_t capability);
/* Opens the path for reading and writing. Returns 0 or errno. */
int sl_doctor_files_access(const struct sl_doctor *doctor, const char *path);

/* The checks, one file each. */
void sl_doctor_kernel_check(struct sl_doctor *doctor); /* io_uring, files, TCP, shared memory */
void sl_doctor_cores_check(struct sl_doctor *doctor);  /* cores, NUMA, clock, huge pages */
void sl_doctor_rdma_check(struct sl_doctor *doctor);   /* libraries, devices, ports, memory */
void sl_doctor_dpdk_check(struct sl_doctor *doctor);   /* plug-in, memory, devices */

/* quota.c: returns the CPU quota of the control groups, in 1/1000 core; UINT64_MAX: none. */
uint64_t sl_doctor_quota(const struct sl_doctor *doctor);

/* gid.c: GIDs of a port, the addresses of RoCE and InfiniBand. */
struct sl_doctor_port {
    const char *device;
    uint32_t number;
    bool is_ethernet;
    bool is_first; /* first active port of the requested devices, which rdma_gid_index refers to */
};
void sl_doctor_gid_check(struct sl_doctor *doctor, const struct sl_doctor_port *port);

/* Checks that a named endpoint is on this host; after the ports. */
void sl_doctor_gid_check_endpoints(struct sl_doctor *doctor);

#endif
