/* Declarations shared by the doctor's files: the checks, and access to the host's files. */
#ifndef SL_TOOLS_DOCTOR_INTERNAL_H
#define SL_TOOLS_DOCTOR_INTERNAL_H

#include "tools/doctor/findings.h"

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
