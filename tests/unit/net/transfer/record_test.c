#include "net/transfer/record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

#define NAME "10.0.0.2:12345"

static const struct sl_transfer_record RECORD = {
    .name = NAME,
    .host = "10.0.0.2",
    .port = 12345,
    .incarnation = 0x9f3c,
    .written_s = 1795402800, /* 2026-11-23 03:00 */
};

#define TEXT                                                                                       \
    "{\"name\":\"10.0.0.2:12345\",\"protocol\":\"starling\",\"ip_or_host_name\":\"10.0.0.2\","     \
    "\"rpc_port\":12345,\"incarnation\":\"9f3c\",\"timestamp\":\"2026-11-23T03:00:00Z\"}"

static struct sl_transfer_record out;
static struct sl_reason reason;

static int decode(const char *text)
{
    reason.text[0] = '\0';
    return sl_transfer_record_decode(text, strlen(text), NAME, &out, &reason);
}

SL_CASE(record_encode__is_as_documented)
{
    char *text;
    assert_int_equal(sl_transfer_record_encode(&RECORD, &text), 0);
    assert_string_equal(text, TEXT);
    assert_int_equal(decode(text), 0);
    assert_memory_equal(&out, &RECORD, sizeof out);
    free(text);
}

SL_CASE(record_encode__members_for_people)
{
    struct sl_transfer_record record = RECORD;
    char *text;
    record.software = "starling 0.1.0";
    record.endpoints = "tcp://10.0.0.2:1,shm://10.0.0.2:2";
    record.priority_matrix = "{\"cpu:0\": [[\"eth0\"], []]}";
    assert_int_equal(sl_transfer_record_encode(&record, &text), 0);
    assert_non_null(strstr(text, "\"endpoints\":[\"tcp://10.0.0.2:1\",\"shm://10.0.0.2:2\"]"));
    assert_non_null(strstr(text, "\"priority_matrix\":{\"cpu:0\":[[\"eth0\"],[]]}"));
    assert_int_equal(decode(text), 0);
    assert_int_equal(out.port, 12345);
    free(text);
    record.software = "\xff";
    assert_int_equal(sl_transfer_record_encode(&record, &text), SL_ERR_INVALID);
    static char endpoints[SL_TRANSFER_RECORD_BYTES_MAX + 1];
    memset(endpoints, 'e', sizeof endpoints - 1);
    record.software = NULL;
    record.endpoints = endpoints;
    assert_int_equal(sl_transfer_record_encode(&record, &text), SL_ERR_TOO_LARGE);
}

/* Every beginning of a record is refused. */
SL_CASE(record_decode__cut)
{
    for (size_t bytes = 0; bytes < sizeof TEXT - 1; bytes++) {
        assert_int_equal(sl_transfer_record_decode(TEXT, bytes, NAME, &out, &reason),
                         SL_ERR_PROTOCOL);
        assert_non_null(strstr(reason.text, "no JSON"));
    }
}

SL_CASE(record_decode__huge)
{
    const size_t bytes = (size_t)SL_TRANSFER_RECORD_BYTES_MAX + 1;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    assert_int_equal(sl_transfer_record_decode(text, bytes, NAME, &out, &reason), SL_ERR_TOO_LARGE);
    memset(text, '[', bytes - 1); /* nested deeper than any stack */
    assert_int_equal(sl_transfer_record_decode(text, bytes - 1, NAME, &out, &reason),
                     SL_ERR_PROTOCOL);
    free(text);
}

/* Replaces one part of a good record, and expects a refusal that names the member. */
static void expect_refusal(const char *part, const char *instead, const char *member)
{
    char text[1024];
    const char *at = strstr(TEXT, part);
    assert_non_null(at);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - TEXT), TEXT, instead,
                   at + strlen(part));
    assert_int_equal(decode(text), SL_ERR_PROTOCOL);
    if (strstr(reason.text, member) == NULL) {
        fail_msg("%s is not in \"%s\"", member, reason.text);
    }
}

SL_CASE(record_decode__members_that_are_wrong)
{
    char name[300];
    expect_refusal("\"starling\"", "\"rdma\"", "protocol");
    expect_refusal("\"protocol\":\"starling\",", "", "protocol");
    expect_refusal("\"10.0.0.2:12345\"", "\"10.0.0.3:12345\"", "name");
    expect_refusal("\"10.0.0.2:12345\"", "7", "name");
    expect_refusal("\"10.0.0.2\"", "[]", "ip_or_host_name");
    expect_refusal("\"10.0.0.2\"", "\"\"", "ip_or_host_name");
    expect_refusal("\"10.0.0.2\"", "\"a\\u0007\"", "ip_or_host_name");
    expect_refusal("\"10.0.0.2\"", "\"a b\"", "ip_or_host_name");
    (void)snprintf(name, sizeof name, "\"%0280d\"", 0);
    expect_refusal("\"10.0.0.2\"", name, "ip_or_host_name");
    expect_refusal("12345,", "\"12345\",", "rpc_port");
    expect_refusal("12345,", "0,", "rpc_port");
    expect_refusal("12345,", "65536,", "rpc_port");
    expect_refusal("12345,", "-1,", "rpc_port");
    expect_refusal("12345,", "1.5,", "rpc_port");
    expect_refusal("\"9f3c\"", "40764", "incarnation");
    expect_refusal("\"9f3c\"", "\"0\"", "incarnation");
    expect_refusal("\"9f3c\"", "\"9f3cg\"", "incarnation");
    expect_refusal("\"9f3c\"", "\"-1\"", "incarnation");
    expect_refusal("\"9f3c\"", "\"00000000000009f3c\"", "incarnation");
    expect_refusal("T03:00:00Z", "", "timestamp");
    expect_refusal("Z\"", "Z \"", "timestamp");
    expect_refusal("2026-11-23", "1926-11-23", "timestamp");
    expect_refusal(TEXT, "[]", "object");
    expect_refusal(TEXT, TEXT "{}", "no JSON");
    expect_refusal("{", "{\"name\":\"10.0.0.2:12345\",", "duplicate");
}

SL_CASE(record_decode__unknown_members)
{
    char text[1024];
    (void)snprintf(text, sizeof text, "{\"x\":[1,{}],%s", &TEXT[1]);
    assert_int_equal(decode(text), 0);
    assert_int_equal(out.incarnation, 0x9f3c);
}

SL_CASE(record_age__units)
{
    static const struct {
        int64_t seconds;
        const char *text;
    } CASES[] = {{-5, " 0 s "},       {0, " 0 s "},    {119, " 119 s "},  {120, " 2 min "},
                 {7199, " 119 min "}, {7200, " 2 h "}, {172800, " 2 d "}, {10000000, " 115 d "}};
    char age[SL_TRANSFER_RECORD_AGE_BYTES];
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        sl_transfer_record_age(&RECORD, RECORD.written_s + CASES[i].seconds, age);
        if (strstr(age, CASES[i].text) == NULL) {
            fail_msg("%s is not in \"%s\"", CASES[i].text, age);
        }
    }
}
