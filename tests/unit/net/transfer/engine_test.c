/* Options, and registered memory. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "net/transport.h"
#include "pair.h"

#define LOCAL .name = "127.0.0.1:0"

static void expect_refused(const struct sl_transfer_options *options, int err, const char *word)
{
    struct sl_transfer *made = NULL;
    const int got = sl_transfer_create(options, &made);
    if (got != err || strstr(sl_transfer_last_error(), word) == NULL) {
        fail_msg("%d, not %d: \"%s\" lacks \"%s\"", got, err, sl_transfer_last_error(), word);
    }
    assert_null(made);
}

SL_CASE(create__refuses_bad_options_with_a_reason)
{
    static const struct {
        struct sl_transfer_options options;
        int err;
        const char *word;
    } cases[] = {
        {{.name = "10.255.255.254:1"}, SL_ERR_REFUSED, "secret"},
        {{LOCAL, .endpoints = "tcp://0.0.0.0:0"}, SL_ERR_INVALID, "0.0.0.0"},
        {{.name = "[::]:0", .insecure = true}, SL_ERR_INVALID, "::"},
        {{.name = "[0:0::0]:0", .insecure = true}, SL_ERR_INVALID, "0:0::0"},
        {{LOCAL, .endpoints = "shm://,tcp://10.255.255.254:0"}, SL_ERR_REFUSED, "10.255.255.254"},
        {{LOCAL, .secret = "short", .secret_bytes = 5}, SL_ERR_INVALID, "secret_bytes 5"},
        {{LOCAL, .metadata = "redis://h:1"}, SL_ERR_UNSUPPORTED, "Redis"},
        {{LOCAL, .metadata = "consul://h:1"}, SL_ERR_INVALID, "unknown scheme"},
        {{LOCAL, .metadata = "etcd://h"}, SL_ERR_INVALID, "host:port"},
        {{LOCAL, .nic_priority_matrix = "[]"}, SL_ERR_INVALID, "nic_priority_matrix: "},
        {{LOCAL, .nic_priority_matrix = "{\"cpu:0\": [[\"no_nic\"], []]}"},
         SL_ERR_INVALID,
         "there is no device \"no_nic\""},
        {{LOCAL, .tls_certificate = "a"}, SL_ERR_INVALID, "tls_key"},
        {{LOCAL, .lanes = 65}, SL_ERR_INVALID, "lanes 65"},
        {{LOCAL, .slice_bytes = 1}, SL_ERR_INVALID, "slice_bytes 1"},
        {{LOCAL, .slice_bytes = 8U << 20}, SL_ERR_INVALID, "slice_bytes"},
        {{LOCAL, .stall_ms = 1}, SL_ERR_INVALID, "stall_ms 1"},
        {{LOCAL, .reactor_count = 257}, SL_ERR_INVALID, "reactor_count 257"},
        {{.name = "nonsense"}, SL_ERR_INVALID, "nonsense"},
        {{.name = "tcp://127.0.0.1:0"}, SL_ERR_INVALID, "without a scheme"},
        {{LOCAL, .endpoints = "ftp://127.0.0.1:0"}, SL_ERR_INVALID, "ftp"},
        {{LOCAL, .endpoints = "tcp://127.0.0.1:0,shm://,shm://"}, SL_ERR_INVALID, "twice"},
        {{LOCAL, .endpoints = "shm://,"}, SL_ERR_INVALID, "endpoints"},
        {{LOCAL, .endpoints = "shm://,tcp://127.0.0.1:0,tcp://0.0.0.0:0"},
         SL_ERR_INVALID,
         "0.0.0.0"},
        {{LOCAL, .endpoints = "tcp://127.0.0.254:0,tcp://127.0.0.1:0,tcp://203.0.113.1:0",
          .insecure = true},
         SL_ERR_NOT_FOUND,
         "203.0.113.1"},
        {{LOCAL, .endpoints =
                     "tcp://127.0.0.1:0,tcp://127.0.0.2:0,tcp://127.0.0.3:0,tcp://127.0.0.4:0,"
                     "tcp://127.0.0.5:0,tcp://127.0.0.6:0,tcp://127.0.0.7:0,tcp://127.0.0.8:0,"
                     "tcp://127.0.0.9:0,tcp://127.0.1.1:0,tcp://127.0.1.2:0,tcp://127.0.1.3:0,"
                     "tcp://127.0.1.4:0,tcp://127.0.1.5:0,tcp://127.0.1.6:0,tcp://127.0.1.7:0,"
                     "tcp://127.0.1.8:0"},
         SL_ERR_TOO_LARGE,
         "endpoints: more than 16"},
        {{LOCAL, .rdma_device = "no_nic"}, SL_ERR_INVALID, "rdma_device no_nic"},
        {{LOCAL, .congestion_control = "0123456789abcdef"}, SL_ERR_INVALID, "congestion_control"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_refused(&cases[i].options, cases[i].err, cases[i].word);
    }
}

SL_CASE(create__refuses_rdma_and_dpdk_that_are_missing)
{
    const char *why = sl_builtin_missing(SL_ENDPOINT_RDMA);
    if (why != NULL) {
        const struct sl_transfer_options rdma = {LOCAL, .endpoints = "shm://,rdma://10.0.0.1:0",
                                                 .insecure = true};
        expect_refused(&rdma, SL_ERR_UNSUPPORTED, why);
    }
    why = sl_builtin_missing(SL_ENDPOINT_DPDK);
    const struct sl_transfer_options dpdk = {LOCAL, .endpoints = "dpdk://10.0.0.1:0,shm://"};
    expect_refused(&dpdk, why != NULL ? SL_ERR_UNSUPPORTED : SL_ERR_INVALID, "dpdk://10.0.0.1");
    if (why == NULL) {
        const struct sl_transfer_options device = {LOCAL, .dpdk_device = "net_null0"};
        expect_refused(&device, SL_ERR_INVALID, "addr=");
    }
}

SL_CASE(create__reports_an_address_in_use)
{
    const struct sl_transfer_options options = {LOCAL};
    struct sl_transfer *first, *second = NULL;
    assert_int_equal(sl_transfer_create(&options, &first), 0);
    const struct sl_transfer_options same = {.name = sl_transfer_name(first)};
    assert_int_equal(sl_transfer_create(&same, &second), SL_ERR_IN_USE);
    assert_null(second);
    sl_transfer_destroy(&first);
    assert_null(first);
}

static struct sl_transfer *transfer;
static uint8_t *memory;

static void setup(void)
{
    const struct sl_transfer_options options = {LOCAL, .reactor_count = 2};
    memory = calloc(1, 1 << 20);
    assert_int_equal(sl_transfer_create(&options, &transfer), 0);
}

static void teardown(void)
{
    sl_transfer_destroy(&transfer);
    free(memory);
}

#define CASE(name) SL_CASE_WITH(name, setup(), teardown())

static int add(size_t offset, size_t bytes, const char *location, unsigned access)
{
    const struct sl_transfer_memory range = {
        .base = memory + offset, .bytes = bytes, .location = location, .access = access};
    return sl_transfer_register(transfer, &range, 1);
}

static int drop(size_t offset)
{
    void *base = memory + offset;
    return sl_transfer_unregister(transfer, &base, 1, PAIR_TIMEOUT_MS);
}

CASE(register__refuses_memory_that_overlaps)
{
    assert_int_equal(add(1000, 1000, NULL, 0), 0);
    assert_int_equal(add(1000, 1000, NULL, 0), SL_ERR_EXISTS);
    assert_int_equal(add(1999, 1, NULL, 0), SL_ERR_EXISTS);
    assert_int_equal(add(0, 1001, NULL, 0), SL_ERR_EXISTS);
    assert_int_equal(add(0, 5000, NULL, 0), SL_ERR_EXISTS);
    assert_non_null(strstr(sl_transfer_last_error(), "overlaps"));
    assert_int_equal(add(0, 1000, NULL, 0), 0);
    assert_int_equal(add(2000, 1, NULL, 0), 0);
    assert_int_equal(drop(1000), 0);
    assert_int_equal(add(1000, 1000, NULL, 0), 0);
}

CASE(register__checks_each_range)
{
    assert_int_equal(add(0, 0, NULL, 0), SL_ERR_INVALID);
    assert_int_equal(add(0, SIZE_MAX, NULL, 0), SL_ERR_INVALID);
    assert_int_equal(add(0, 10, NULL, 4), SL_ERR_INVALID);
    assert_int_equal(add(0, 10, "cuda:0", 0), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(sl_transfer_last_error(), "cuda:0"));
    assert_int_equal(add(0, 10, "cpu:", 0), SL_ERR_INVALID);
    assert_int_equal(add(0, 10, "cpu:x", 0), SL_ERR_INVALID);
    assert_int_equal(add(0, 10, "gpu:1", 0), SL_ERR_INVALID);
    const struct sl_transfer_memory none = {.base = NULL, .bytes = 10};
    assert_int_equal(sl_transfer_register(transfer, &none, 1), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_register(transfer, &none, 0), SL_ERR_INVALID);
    assert_int_equal(add(0, 10, "cpu:0", 0), 0);
    assert_int_equal(add(10, 10, "*", 0), 0);
    assert_string_equal(sl_transfer_last_error(), "");
}

CASE(register__takes_all_or_none)
{
    struct sl_transfer_memory ranges[3] = {{.base = memory, .bytes = 10},
                                           {.base = memory + 10, .bytes = 10},
                                           {.base = memory + 19, .bytes = 10}};
    assert_int_equal(sl_transfer_register(transfer, ranges, 3), SL_ERR_EXISTS);
    assert_int_equal(drop(0), SL_ERR_NOT_FOUND);
    ranges[2].base = memory + 20;
    assert_int_equal(sl_transfer_register(transfer, ranges, 3), 0);
    void *bases[3] = {memory, memory + 1, memory + 20};
    assert_int_equal(sl_transfer_unregister(transfer, bases, 3, PAIR_TIMEOUT_MS), SL_ERR_NOT_FOUND);
    bases[1] = memory;
    assert_int_equal(sl_transfer_unregister(transfer, bases, 3, PAIR_TIMEOUT_MS), SL_ERR_INVALID);
    bases[1] = memory + 10;
    assert_int_equal(sl_transfer_unregister(transfer, bases, 3, 0), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_unregister(transfer, bases, 3, PAIR_TIMEOUT_MS), 0);
}

CASE(register__takes_as_many_ranges_as_the_limit)
{
    enum { COUNT = 4096 };
    struct sl_transfer_memory *ranges = calloc(COUNT, sizeof *ranges);
    for (uint32_t i = 0; i < COUNT; i++) {
        ranges[i].base = memory + (size_t)(i * 7 % COUNT) * 16;
        ranges[i].bytes = 16;
        ranges[i].access = PAIR_ALL;
    }
    assert_int_equal(sl_transfer_register(transfer, ranges, COUNT), 0);
    assert_int_equal(add(COUNT * 16, 1, NULL, 0), SL_ERR_TOO_LARGE);
    /* Peers get them page by page. */
    struct sl_transfer_segment *own;
    uint32_t count = 0;
    struct sl_transfer_buffer *buffers = calloc(COUNT, sizeof *buffers);
    assert_int_equal(
        sl_transfer_segment_open(transfer, sl_transfer_name(transfer), PAIR_TIMEOUT_MS, &own), 0);
    assert_int_equal(sl_transfer_segment_buffers(own, buffers, COUNT, &count), 0);
    assert_int_equal(count, COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(buffers[i].address, (uintptr_t)memory + i * 16);
    }
    sl_transfer_segment_close(&own);
    free(buffers);
    free(ranges);
}

CASE(memory_create__gives_registered_pages)
{
    void *made = NULL;
    assert_int_equal(sl_transfer_memory_create(transfer, 0, -1, 0, &made), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_memory_create(transfer, 10000, -2, 0, &made), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_memory_create(transfer, 10000, -1, PAIR_ALL, &made), 0);
    assert_int_equal((uintptr_t)made % (uintptr_t)sysconf(_SC_PAGESIZE), 0);
    assert_int_equal(((uint8_t *)made)[9999], 0);
    assert_int_equal(sl_transfer_unregister(transfer, &made, 1, PAIR_TIMEOUT_MS), SL_ERR_NOT_FOUND);
    assert_int_equal(sl_transfer_memory_free(transfer, &made, 0), SL_ERR_INVALID);
    assert_int_equal(sl_transfer_memory_free(transfer, &made, PAIR_TIMEOUT_MS), 0);
    assert_null(made);
    made = memory;
    assert_int_equal(add(0, 10, NULL, 0), 0);
    assert_int_equal(sl_transfer_memory_free(transfer, &made, PAIR_TIMEOUT_MS), SL_ERR_NOT_FOUND);
}
