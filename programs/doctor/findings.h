/* Findings of the doctor: what each check has found, and the remedy. */
#ifndef SL_PROGRAMS_DOCTOR_FINDINGS_H
#define SL_PROGRAMS_DOCTOR_FINDINGS_H

#include "programs/doctor/doctor.h"

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
    uint32_t gids_said;        /* gid.c */
    uint32_t endpoints_here;   /* endpoints that belong to this host */
    char *nic_priority_matrix; /* JSON text; NULL: no memory */
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

#endif
