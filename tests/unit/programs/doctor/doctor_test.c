#include "tests/support/unit.h"
#include "tests/unit/programs/doctor/machine.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is written, to be freed; and whether all that was asked for can run. */
static char *run(uint32_t transports, bool json, bool *runs)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    machine.options.transports = transports;
    machine.options.json = json;
    *runs = sl_doctor_run(&machine.options, &machine.system, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void expect_run(uint32_t transports, bool expected, const char *words)
{
    bool runs;
    char *text = run(transports, false, &runs);
    if (runs != expected || strstr(text, words) == NULL) {
        fail_msg("\"%s\" is not in: %s", words, text);
    }
    free(text);
}

MACHINE_CASE(doctor_run__is_true_where_what_was_asked_for_can_run)
{
    const uint32_t tcp = SL_DOCTOR_OF(SL_ENDPOINT_TCP), rdma = SL_DOCTOR_OF(SL_ENDPOINT_RDMA);
    machine.missing[SL_ENDPOINT_DPDK] = "not built";
    expect_run(tcp, true, "tcp   can run (asked for)\n");
    expect_run(rdma, false, "rdma  cannot run: rdma device (asked for)\n");
    expect_run(tcp | rdma, false, "tcp   can run (asked for)\n");
    expect_run(tcp, true, "rdma  cannot run: rdma device\n");
    expect_run(SL_DOCTOR_OF(SL_ENDPOINT_DPDK), false,
               "dpdk  cannot run: dpdk plug-in, dpdk device (asked for)\n");
    machine.ring_result = -EPERM;
    expect_run(tcp, false, "tcp   cannot run: io_uring (asked for)\n");
    expect_run(SL_DOCTOR_OF(SL_ENDPOINT_SHM), false, "shm   cannot run: io_uring (asked for)\n");
}

MACHINE_CASE(doctor_run__lines_are_aligned)
{
    bool runs;
    machine_write("/proc/sys/net/ipv4/tcp_congestion_control", "bbr");
    char *text = run(SL_DOCTOR_OF(SL_ENDPOINT_TCP), false, &runs);
    for (const char *line = text; *line != '\n'; line = strchr(line, '\n') + 1) {
        /* "verdict  check          what", or "                        -> what to do" */
        assert_int_equal(line[23], ' ');
        assert_int_not_equal(line[24], ' ');
        assert_true(line[0] != ' ' || strncmp(line + 24, "-> ", 3) == 0);
    }
    assert_non_null(strstr(text, "\nwarning  tcp            congestion control bbr"));
    free(text);
}

/* The first finding, io_uring, on a kernel of this release. */
static void expect_json(const char *release, const char *words)
{
    bool runs;
    const char *check, *verdict, *found;
    int is_asked, can_run;
    machine_write("/proc/sys/kernel/osrelease", release);
    char *text = run(SL_DOCTOR_OF(SL_ENDPOINT_TCP), true, &runs);
    json_t *json = json_loads(text, 0, NULL);
    assert_true(runs);
    assert_int_equal(json_unpack(json_array_get(json_object_get(json, "checks"), 0),
                                 "{s:s, s:s, s:s}", "check", &check, "verdict", &verdict, "found",
                                 &found),
                     0);
    assert_string_equal(check, "io_uring");
    assert_string_equal(verdict, "ok");
    assert_non_null(strstr(found, words));
    assert_int_equal(json_unpack(json, "{s:{s:{s:b, s:b}}}", "transports", "rdma", "asked",
                                 &is_asked, "runs", &can_run),
                     0);
    assert_true(!is_asked && !can_run);
    json_decref(json);
    free(text);
}

MACHINE_CASE(doctor_run__json_is_utf8)
{
    expect_json("6.1 \"quoted\" \\ \x01 gr\xc3\xb6", "Linux 6.1 \"quoted\" \\ \x01 gr\xc3\xb6: ");
    expect_json("6.1 \xc3\xb6 \xff", "Linux 6.1 ?? ?: ");
}

/* Whatever this machine is like, looking at it works. */
MACHINE_CASE(doctor_system_read__this_machine)
{
    bool runs;
    sl_doctor_system_read(&machine.system);
    assert_true(machine.system.cores >= 1);
    char *text = run(SL_DOCTOR_OF(SL_ENDPOINT_TCP), false, &runs);
    assert_non_null(strstr(text, "io_uring"));
    assert_non_null(strstr(text, "rdma library"));
    free(text);
}
