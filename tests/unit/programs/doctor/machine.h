/* A made-up machine for the doctor's tests: a folder with what the kernel would show. One at a
 * time.
 */
#ifndef SL_TESTS_UNIT_PROGRAMS_DOCTOR_MACHINE_H
#define SL_TESTS_UNIT_PROGRAMS_DOCTOR_MACHINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>

#include "programs/doctor/findings.h"
#include "tests/support/sysfs_tree.h"

struct machine {
    struct sl_doctor doctor;
    struct sl_doctor_options options; /* the doctor's */
    struct sl_doctor_system system;   /* likewise */
    int ring_result;                  /* of probe_ring, with `ring` where that is 0 */
    struct sl_doctor_ring ring;
    const char *missing[SL_ENDPOINT_DPDK + 1]; /* NULL: there is one */
    const char *providers[4];                  /* devices that the libraries know, up to NULL */
    char root[64];
    struct sysfs_tree tree; /* network devices: machine_add_tree */
};

extern struct machine machine;

/* Before and after a case: a new machine of 4 cores where every transport is built in, and
 * whose folder is empty. */
void machine_make(void);
void machine_remove(void);
#define MACHINE_CASE(name) SL_CASE_WITH(name, machine_make(), machine_remove())

/* Writes a line into a file of the machine, whose folders are made. */
void machine_write(const char *path, const char *line);

/* Network devices of a description in tests/support/sysfs. */
void machine_add_tree(const char *description);

/* An RDMA device with one port: "4: ACTIVE", "Ethernet". */
void machine_add_device(const char *name, const char *state, const char *link_layer);
void machine_add_gid(const char *device, uint32_t index, const char *gid, const char *type,
                     const char *netdev);

/* Expects the nth finding, from 0, of a check to be of this verdict, and `words` to be in it; fails
 * where it is not ok and has no advice. Returns it. */
const struct sl_doctor_finding *machine_expect(const char *check, uint32_t nth,
                                               enum sl_doctor_verdict verdict, const char *words);
uint32_t machine_count(const char *check);

/* Runs a check anew: what was found before is forgotten. */
void machine_run(void (*check)(struct sl_doctor *doctor));

#endif
