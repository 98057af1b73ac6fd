#include "programs/doctor/findings.h"

#include <string.h>

#include "core/assert.h"
#include "core/format.h"

struct sl_doctor_finding *sl_doctor_find(struct sl_doctor *doctor, enum sl_doctor_verdict verdict,
                                         uint32_t needed_by, const char *check, const char *format,
                                         ...)
{
    sl_assert(doctor->count < SL_DOCTOR_FINDINGS_MAX);
    struct sl_doctor_finding *finding = &doctor->findings[doctor->count];
    /* The last element is overwritten when the array is full. */
    doctor->count += doctor->count + 1 < SL_DOCTOR_FINDINGS_MAX;
    *finding = (struct sl_doctor_finding){
        .verdict = verdict,
        .needed_by = verdict == SL_DOCTOR_MISSING ? needed_by : 0,
        .check = check,
    };
    doctor->stopped |= finding->needed_by;
    SL_FORMAT(finding->found, format);
    return finding;
}

void sl_doctor_advise(struct sl_doctor_finding *finding, const char *format, ...)
{
    SL_FORMAT(finding->advice, format);
}

bool sl_doctor_check_transport(struct sl_doctor *doctor, enum sl_endpoint_scheme scheme,
                               const char *check, const char *found, const char *advice)
{
    const char *why = doctor->system->missing(scheme);
    if (why == NULL) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, check, "%s", found);
        return true;
    }
    const char *remedy = strstr(why, ": install");
    const int length = remedy == NULL ? (int)strlen(why) : (int)(remedy - why);
    sl_doctor_advise(
        sl_doctor_find(doctor, SL_DOCTOR_MISSING, SL_DOCTOR_OF(scheme), check, "%.*s", length, why),
        "%s", remedy == NULL ? advice : remedy + 2);
    return false;
}
