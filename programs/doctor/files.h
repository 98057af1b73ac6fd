/* Files of the host. Paths are relative to the system's root. */
#ifndef SL_PROGRAMS_DOCTOR_FILES_H
#define SL_PROGRAMS_DOCTOR_FILES_H

#include "programs/doctor/findings.h"

/* Reads the first line of a file, without its end; false: unreadable, and *line is "". */
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

#endif
