/* Prints findings as text or JSON. */
#include "programs/doctor/print.h"

#include <jansson.h>

static const char *const verdict_names[] = {
    [SL_DOCTOR_OK] = "ok",
    [SL_DOCTOR_WARNING] = "warning",
    [SL_DOCTOR_MISSING] = "missing",
};

static const char *const scheme_names[] = {
    [SL_ENDPOINT_TCP] = "tcp",
    [SL_ENDPOINT_SHM] = "shm",
    [SL_ENDPOINT_RDMA] = "rdma",
    [SL_ENDPOINT_DPDK] = "dpdk",
};
#define SCHEME_COUNT (sizeof scheme_names / sizeof scheme_names[0])

/* "rdma  cannot run: rdma device, memlock (asked for)" */
static void print_transport(const struct sl_doctor *doctor, size_t scheme, FILE *out)
{
    const uint32_t set = SL_DOCTOR_OF(scheme);
    const bool runs = (doctor->stopped & set) == 0;
    (void)fprintf(out, "%-5s %s", scheme_names[scheme], runs ? "can run" : "cannot run");
    const char *before = ": ";
    for (uint32_t i = 0; i < doctor->count; i++) {
        if ((doctor->findings[i].needed_by & set) != 0) {
            (void)fprintf(out, "%s%s", before, doctor->findings[i].check);
            before = ", ";
        }
    }
    (void)fprintf(out, "%s\n", (doctor->options->transports & set) != 0 ? " (asked for)" : "");
}

void sl_doctor_print(const struct sl_doctor *doctor, FILE *out)
{
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct sl_doctor_finding *finding = &doctor->findings[i];
        (void)fprintf(out, "%-8s %-14s %s\n", verdict_names[finding->verdict], finding->check,
                      finding->found);
        if (finding->advice[0] != '\0') {
            (void)fprintf(out, "%-23s -> %s\n", "", finding->advice);
        }
    }
    (void)fprintf(out, "\n");
    for (size_t scheme = 0; scheme < SCHEME_COUNT; scheme++) {
        print_transport(doctor, scheme, out);
    }
    if (doctor->nic_priority_matrix != NULL) {
        (void)fprintf(out, "\nnic_priority_matrix for the transfer engine:\n%s\n",
                      doctor->nic_priority_matrix);
    }
}

/* Files and names may have any bytes: in text that is not UTF-8 each byte above 127 becomes '?'. */
static json_t *text_json(const char *text)
{
    char copy[sizeof((struct sl_doctor_finding *)0)->advice];
    json_t *json = json_string(text);
    if (json != NULL) {
        return json;
    }
    (void)snprintf(copy, sizeof copy, "%s", text);
    for (char *at = copy; *at != '\0'; at++) {
        *at = (unsigned char)*at < 0x80 ? *at : '?';
    }
    return json_string(copy);
}

bool sl_doctor_print_json(const struct sl_doctor *doctor, FILE *out)
{
    json_t *checks = json_array();
    json_t *transports = json_object();
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct sl_doctor_finding *finding = &doctor->findings[i];
        (void)json_array_append_new(
            checks, json_pack("{s:s, s:s, s:o, s:o}", "check", finding->check, "verdict",
                              verdict_names[finding->verdict], "found", text_json(finding->found),
                              "advice", text_json(finding->advice)));
    }
    for (size_t scheme = 0; scheme < SCHEME_COUNT; scheme++) {
        const uint32_t set = SL_DOCTOR_OF(scheme);
        (void)json_object_set_new(transports, scheme_names[scheme],
                                  json_pack("{s:b, s:b}", "asked",
                                            (doctor->options->transports & set) != 0, "runs",
                                            (doctor->stopped & set) == 0));
    }
    const char *matrix = doctor->nic_priority_matrix;
    json_t *all =
        json_pack("{s:o, s:o, s:o*}", "checks", checks, "transports", transports,
                  "nic_priority_matrix", matrix == NULL ? NULL : json_loads(matrix, 0, NULL));
    const bool is_written = all != NULL && json_dumpf(all, out, JSON_INDENT(1)) == 0;
    json_decref(all);
    return is_written && fputc('\n', out) != EOF;
}
