#include "programs/doctor/doctor.h"

#include <stdlib.h>

#include "core/assert.h"
#include "programs/doctor/checks.h"
#include "programs/doctor/nics.h"
#include "programs/doctor/print.h"

bool sl_doctor_run(const struct sl_doctor_options *options, const struct sl_doctor_system *system,
                   FILE *out)
{
    sl_assert(options->transports != 0);
    sl_assert((options->transports & ~SL_DOCTOR_EVERY) == 0);
    static struct sl_doctor doctor;
    doctor = (struct sl_doctor){.options = options, .system = system};
    sl_doctor_kernel_check(&doctor);
    sl_doctor_cores_check(&doctor);
    sl_doctor_rdma_check(&doctor);
    sl_doctor_dpdk_check(&doctor);
    sl_doctor_nics_check(&doctor);
    bool runs = (doctor.stopped & options->transports) == 0;
    if (options->json) {
        runs = sl_doctor_print_json(&doctor, out) && runs;
    } else {
        sl_doctor_print(&doctor, out);
    }
    free(doctor.nic_priority_matrix);
    return runs;
}
