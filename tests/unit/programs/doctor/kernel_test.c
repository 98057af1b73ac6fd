#include "programs/doctor/checks.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/doctor/machine.h"

#include <errno.h>

static const uint32_t EVERY = SL_DOCTOR_EVERY;

MACHINE_CASE(doctor_kernel_check__features_that_lack_are_named)
{
    machine.ring = (struct sl_doctor_ring){.provided_buffer_rings = true};
    machine_run(sl_doctor_kernel_check);
    machine_expect("io_uring", 0, SL_DOCTOR_WARNING,
                   "without multishot receives, deferred task work");
    machine_expect("io_uring", 0, SL_DOCTOR_WARNING, "Linux 6.1");
    assert_int_equal(machine.doctor.stopped, 0);
}

MACHINE_CASE(doctor_kernel_check__each_refusal_of_io_uring_has_its_advice)
{
    static const struct {
        int result;
        const char *disabled, *words;
    } cases[] = {
        {-EPERM, "2", "sysctl -w kernel.io_uring_disabled=0"},
        {-EPERM, "1", "io_uring_group"},
        {-EPERM, "0", "seccomp"},
        {-ENOSYS, "0", "5.19"},
        {-ENOMEM, "0", "ulimit -l"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        machine_remove();
        machine_make();
        machine.ring_result = cases[i].result;
        machine_write("/proc/sys/kernel/io_uring_disabled", cases[i].disabled);
        machine_run(sl_doctor_kernel_check);
        machine_expect("io_uring", 0, SL_DOCTOR_MISSING, cases[i].words);
        assert_int_equal(machine.doctor.stopped, EVERY);
    }
}

MACHINE_CASE(doctor_kernel_check__few_descriptors_are_a_warning)
{
    machine.system.files_max = 1024;
    machine_run(sl_doctor_kernel_check);
    machine_expect("open files", 0, SL_DOCTOR_WARNING, "1024");
    machine_expect("open files", 0, SL_DOCTOR_WARNING, "LimitNOFILE");
}

MACHINE_CASE(doctor_kernel_check__congestion_control_that_is_not_there_stops_tcp)
{
    machine.options.congestion_control = "cub";
    machine_write("/proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr");
    machine_run(sl_doctor_kernel_check);
    machine_expect("tcp", 0, SL_DOCTOR_MISSING, "reno cubic bbr");
    assert_int_equal(machine.doctor.stopped, SL_DOCTOR_OF(SL_ENDPOINT_TCP));
    machine.options.congestion_control = "cubic";
    machine_run(sl_doctor_kernel_check);
    machine_expect("tcp", 0, SL_DOCTOR_OK, "cubic");
}

MACHINE_CASE(doctor_kernel_check__bbr_is_a_warning_unless_another_is_chosen)
{
    machine_write("/proc/sys/net/ipv4/tcp_congestion_control", "bbr");
    machine_run(sl_doctor_kernel_check);
    machine_expect("tcp", 0, SL_DOCTOR_WARNING, "STARLING_TCP_CONGESTION=cubic");
    machine.options.congestion_control = "reno";
    machine_run(sl_doctor_kernel_check);
    machine_expect("tcp", 0, SL_DOCTOR_OK, "reno");
}

MACHINE_CASE(doctor_kernel_check__no_memory_to_share_stops_shm_only)
{
    machine.system.no_memfd = "Function not implemented";
    machine_run(sl_doctor_kernel_check);
    machine_expect("shm", 0, SL_DOCTOR_MISSING, "Function not implemented");
    assert_int_equal(machine.doctor.stopped, SL_DOCTOR_OF(SL_ENDPOINT_SHM));
    machine.system.no_memfd = NULL;
    machine.system.no_abstract = "Permission denied";
    machine_run(sl_doctor_kernel_check);
    machine_expect("shm", 0, SL_DOCTOR_MISSING, "unix sockets");
}
