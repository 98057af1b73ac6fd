#include "programs/doctor/nics.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/transfer/matrix.h"
#include "tests/support/unit.h"
#include "tests/unit/programs/doctor/machine.h"

MACHINE_CASE(doctor_nics_check__two_sockets)
{
    machine_add_tree("two-sockets");
    machine_run(sl_doctor_nics_check);
    assert_int_equal(machine_count("nic"), 16);
    machine_expect("nic", 0, SL_DOCTOR_OK, "mlx5_0: up, NUMA node 0, 10.0.0.2");
    machine_expect("nic", 5, SL_DOCTOR_WARNING, "mlx5_5: down");
    machine_expect("nic", 5, SL_DOCTOR_WARNING, "ip link set eth5 up");
    machine_expect("nic", 6, SL_DOCTOR_WARNING, "ip address add");
    machine_expect("nic", 14, SL_DOCTOR_WARNING, "eth6: up, NUMA node 1, no address");
    assert_int_equal(machine.doctor.stopped, 0);
}

MACHINE_CASE(doctor_nics_check__far_from_every_core)
{
    machine_add_tree("two-sockets");
    machine_write("/proc/self/status", "Cpus_allowed_list:\t0-3");
    machine_run(sl_doctor_nics_check);
    machine_expect("nic", 0, SL_DOCTOR_OK, "mlx5_0");
    machine_expect("nic", 4, SL_DOCTOR_WARNING, "mlx5_4: up, NUMA node 1, far from every core");
    machine_expect("nic", 4, SL_DOCTOR_WARNING, "cores of node 1");
}

MACHINE_CASE(doctor_nics_check__none)
{
    machine_add_tree("none");
    machine_run(sl_doctor_nics_check);
    assert_int_equal(machine_count("nic"), 0);
    assert_string_equal(machine.doctor.nic_priority_matrix, "{\"cpu:0\": [[], []]}");
}

static char *run(bool json)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    machine.options.json = json;
    (void)sl_doctor_run(&machine.options, &machine.system, out);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void expect_accepted(const char *matrix)
{
    static struct sl_devices devices;
    static struct sl_matrix parsed;
    struct sl_reason reason = {.text = ""};
    sysfs_tree_read(&machine.tree, &devices);
    assert_int_equal(sl_matrix_parse(matrix, "doctor", &devices, &parsed, &reason), 0);
    assert_int_equal(parsed.location_count, 2);
    assert_int_equal(parsed.device_count,
                     12); /* 16 but for two that are down, two without address */
}

/* The last line of the text, and a member of the JSON, is what the transfer engine accepts. */
MACHINE_CASE(doctor_run__prints_a_matrix_that_is_accepted)
{
    machine_add_tree("two-sockets");
    char *text = run(false);
    const char *at = strstr(text, "\n{");
    assert_non_null(at);
    expect_accepted(at + 1);
    free(text);
    text = run(true);
    json_t *json = json_loads(text, 0, NULL);
    char *matrix = json_dumps(json_object_get(json, "nic_priority_matrix"), 0);
    assert_non_null(matrix);
    expect_accepted(matrix);
    free(matrix);
    free(text);
    json_decref(json);
}
