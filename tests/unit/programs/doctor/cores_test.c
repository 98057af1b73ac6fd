#include "programs/doctor/checks.h"
#include "programs/doctor/quota.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/doctor/machine.h"

#define CLOCK "/sys/devices/system/clocksource/clocksource0"

MACHINE_CASE(doctor_cores_check__more_reactors_than_cores)
{
    machine.options.reactors = 5;
    machine_run(sl_doctor_cores_check);
    machine_expect("cores", 0, SL_DOCTOR_WARNING, "4, for 5 reactors, not pinned");
    machine_expect("cores", 0, SL_DOCTOR_WARNING, "--reactors 4");
    assert_int_equal(machine.doctor.stopped, 0);
}

MACHINE_CASE(doctor_cores_check__polling_leaves_a_core)
{
    machine.options.polling = true;
    machine.options.pin = true;
    machine_run(sl_doctor_cores_check);
    machine_expect("cores", 0, SL_DOCTOR_WARNING, "pinned, polling");
    machine_expect("cores", 0, SL_DOCTOR_WARNING, "--reactors 3");
    machine.options.reactors = 3;
    machine_run(sl_doctor_cores_check);
    machine_expect("cores", 0, SL_DOCTOR_OK, "");
}

MACHINE_CASE(doctor_cores_check__quota_of_a_container)
{
    machine_write("/proc/self/cgroup", "0::/");
    machine_write("/sys/fs/cgroup/cpu.max", "250000 100000");
    machine_run(sl_doctor_cores_check);
    machine_expect("cpu quota", 0, SL_DOCTOR_WARNING, "2.5 cores for 4 reactors");
    machine_expect("cpu quota", 0, SL_DOCTOR_WARNING, "--reactors 2");
}

MACHINE_CASE(doctor_quota__is_the_least_of_all_groups_above)
{
    assert_true(sl_doctor_quota(&machine.doctor) == UINT64_MAX);
    machine_write("/proc/self/cgroup", "0::/a/b/c");
    machine_write("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000");
    assert_true(sl_doctor_quota(&machine.doctor) == UINT64_MAX);
    machine_write("/sys/fs/cgroup/a/cpu.max", "800000 100000");
    assert_int_equal(sl_doctor_quota(&machine.doctor), 8000);
    machine_write("/sys/fs/cgroup/a/b/cpu.max", "50000 100000");
    assert_int_equal(sl_doctor_quota(&machine.doctor), 500);
}

MACHINE_CASE(doctor_quota__of_version_1)
{
    machine_write("/proc/self/cgroup", "9:cpuset:/x\n4:cpu,cpuacct:/docker/1\n0::/");
    machine_write("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "-1");
    machine_write("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_period_us", "100000");
    assert_true(sl_doctor_quota(&machine.doctor) == UINT64_MAX);
    machine_write("/sys/fs/cgroup/cpu/docker/1/cpu.cfs_quota_us", "300000");
    assert_int_equal(sl_doctor_quota(&machine.doctor), 3000);
    /* Seen from inside, the group is the top. */
    machine_write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/2");
    machine_write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000");
    machine_write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000");
    assert_int_equal(sl_doctor_quota(&machine.doctor), 2000);
}

MACHINE_CASE(doctor_quota__rubbish_is_no_quota)
{
    machine_write("/proc/self/cgroup", "::::\n:\nrubbish\n0::relative");
    machine_write("/sys/fs/cgroup/cpu.max", "100000 0");
    assert_true(sl_doctor_quota(&machine.doctor) == UINT64_MAX);
}

MACHINE_CASE(doctor_cores_check__several_nodes_ask_for_pinning)
{
    machine_write("/sys/devices/system/node/online", "0-1");
    machine_run(sl_doctor_cores_check);
    machine_expect("numa", 0, SL_DOCTOR_WARNING, "--pin-cores");
    machine.options.pin = true;
    machine_run(sl_doctor_cores_check);
    machine_expect("numa", 0, SL_DOCTOR_OK, "nodes 0-1");
}

MACHINE_CASE(doctor_cores_check__slow_clocks)
{
    machine_write(CLOCK "/current_clocksource", "hpet ");
    machine_write(CLOCK "/available_clocksource", "tsc hpet acpi_pm");
    machine_run(sl_doctor_cores_check);
    machine_expect("clock", 0, SL_DOCTOR_WARNING, "echo tsc");
    machine_write(CLOCK "/available_clocksource", "hpet acpi_pm");
    machine_run(sl_doctor_cores_check);
    machine_expect("clock", 0, SL_DOCTOR_WARNING, "dmesg");
    machine_write(CLOCK "/current_clocksource", "kvm-clock");
    machine_run(sl_doctor_cores_check);
    machine_expect("clock", 0, SL_DOCTOR_OK, "kvm-clock");
}

MACHINE_CASE(doctor_cores_check__pages)
{
    machine_write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]");
    machine_write("/proc/meminfo", "MemTotal: 1 kB\nHugePages_Total:      8\nHugePages_Free:  0");
    machine_run(sl_doctor_cores_check);
    machine_expect("huge pages", 0, SL_DOCTOR_WARNING, "transparent_hugepage");
    machine_write("/proc/meminfo", "HugePages_Free:  8");
    machine_run(sl_doctor_cores_check);
    machine_expect("huge pages", 0, SL_DOCTOR_OK, "8 reserved");
    machine_write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
    machine_run(sl_doctor_cores_check);
    machine_expect("huge pages", 0, SL_DOCTOR_OK, "transparent, and 8 reserved");
}

MACHINE_CASE(doctor_cores_check__pages_of_a_server)
{
    machine_write("/proc/77/comm", "starling-ps");
    machine_write("/proc/77/smaps_rollup", "Rss: 1 kB\nAnonymous:  1048576 kB\nAnonHugePages: "
                                           "1024000 kB");
    machine_write("/proc/78/comm", "another");
    machine_write("/proc/78/smaps_rollup", "Anonymous:  1048576 kB\nAnonHugePages: 0 kB");
    machine_write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never");
    machine_run(sl_doctor_cores_check);
    machine_expect("huge pages", 0, SL_DOCTOR_OK, "transparent");
    machine_write("/proc/77/smaps_rollup", "Anonymous:  1048576 kB\nAnonHugePages: 262144 kB");
    machine_run(sl_doctor_cores_check);
    machine_expect("huge pages", 1, SL_DOCTOR_WARNING,
                   "server 77: 768 of 1024 MiB are on ordinary pages");
}
