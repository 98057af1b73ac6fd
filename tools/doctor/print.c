/* Prints findings as text or JSON. */
#include <string.h>

#include "tools/doctor/internal.h"

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
}

/* Returns the length of the UTF-8 character (RFC 3629) at text; 0: invalid. Does not read past the
 * NUL. */
static uint32_t utf8_bytes(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    const uint32_t more = at[0] < 0x80 ? 0 : at[0] < 0xe0 ? 1 : at[0] < 0xf0 ? 2 : 3;
    if ((at[0] >= 0x80 && at[0] < 0xc2) || at[0] > 0xf4) {
        return 0;
    }
    for (uint32_t i = 1; i <= more; i++) {
        if ((at[i] & 0xc0U) != 0x80) {
            return 0;
        }
    }
    const bool is_overlong = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    const bool is_surrogate = at[0] == 0xed && at[1] > 0x9f;
    const bool is_beyond = at[0] == 0xf4 && at[1] > 0x8f;
    return is_overlong || is_surrogate || is_beyond ? 0 : more + 1;
}

/* Files and names may have any bytes: each invalid UTF-8 byte becomes U+FFFD. */
static void print_string(const char *text, FILE *out)
{
    (void)fputc('"', out);
    while (*text != '\0') {
        const unsigned char byte = (unsigned char)*text;
        const uint32_t bytes = utf8_bytes(text);
        if (byte == '"' || byte == '\\') {
            (void)fprintf(out, "\\%c", byte);
        } else if (byte < 0x20 || byte == 0x7f) {
            (void)fprintf(out, "\\u%04x", byte);
        } else if (bytes == 0) {
            (void)fprintf(out, "\\ufffd");
        } else {
            (void)fwrite(text, 1, bytes, out);
        }
        text += bytes == 0 ? 1 : bytes;
    }
    (void)fputc('"', out);
}

static void print_member(const char *name, const char *text, FILE *out)
{
    print_string(name, out);
    (void)fprintf(out, ": ");
    print_string(text, out);
}

void sl_doctor_print_json(const struct sl_doctor *doctor, FILE *out)
{
    (void)fprintf(out, "{\"checks\": [");
    for (uint32_t i = 0; i < doctor->count; i++) {
        const struct sl_doctor_finding *finding = &doctor->findings[i];
        (void)fprintf(out, "%s\n  {", i == 0 ? "" : ",");
        print_member("check", finding->check, out);
        (void)fprintf(out, ", ");
        print_member("verdict", verdict_names[finding->verdict], out);
        (void)fprintf(out, ", ");
        print_member("found", finding->found, out);
        (void)fprintf(out, ", ");
        print_member("advice", finding->advice, out);
        (void)fprintf(out, "}");
    }
    (void)fprintf(out, "],\n \"transports\": {");
    for (size_t scheme = 0; scheme < SCHEME_COUNT; scheme++) {
        const uint32_t set = SL_DOCTOR_OF(scheme);
        (void)fprintf(out, "%s\"%s\": {\"asked\": %s, \"runs\": %s}", scheme == 0 ? "" : ", ",
                      scheme_names[scheme],
                      (doctor->options->transports & set) != 0 ? "true" : "false",
                      (doctor->stopped & set) == 0 ? "true" : "false");
    }
    (void)fprintf(out, "}}\n");
}
