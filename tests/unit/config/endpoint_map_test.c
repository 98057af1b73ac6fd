#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/endpoint_map.h"
#include "core/limits.h"
#include "tests/support/unit.h"

static char path[64];

static void make_file(void)
{
    snprintf(path, sizeof path, "/tmp/starling_map_XXXXXX");
    assert_int_equal(close(mkstemp(path)), 0);
}

#define CASE(name) SL_CASE_WITH(name, make_file(), unlink(path))

static void write_file(const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static int read_text(const char *text, size_t bytes, struct sl_endpoint_map *map,
                     struct sl_reason *reason)
{
    write_file(text, bytes);
    return sl_endpoint_map_read(path, map, reason);
}

CASE(endpoint_map_read__takes_lines_blanks_comments_and_crlf)
{
    const char text[] = "# a comment = with an equals sign\n"
                        "\n"
                        "127.0.0.1:3333=127.0.0.1:5555\r\n"
                        "  \t\n"
                        "  [::1]:3334 = rdma://[fe80::1]:5556  \n"
                        "   # indented\n"
                        "ps-2:3333=shm://ps-2:0\n"
                        "ps-3:3333=dpdk://ps-3:9";
    struct sl_endpoint_map map;
    assert_int_equal(read_text(text, sizeof text - 1, &map, NULL), 0);
    assert_int_equal(map.count, 4);
    assert_string_equal(map.entries[0].data.host, "127.0.0.1");
    assert_int_equal(map.entries[0].data.port, 5555);
    assert_int_equal(map.entries[1].control.port, 3334);
    assert_int_equal(map.entries[1].data.scheme, SL_ENDPOINT_RDMA);
    assert_int_equal(map.entries[2].data.port, 0);
    assert_int_equal(map.entries[3].data.scheme, SL_ENDPOINT_DPDK);
    sl_endpoint_map_fini(&map);
}

CASE(endpoint_map_read__refuses_with_file_and_line)
{
    static const struct {
        const char *text;
        int line;
        const char *reason;
    } cases[] = {
        {"a:1=b:2\nc:3\n", 2, "expected control_host:port=data_uri"},
        {"\n\n=b:2\n", 3, "control endpoint"},
        {"a:1=\n", 1, "data endpoint"},
        {"a:1=b\n", 1, "port is missing"},
        {"a:1=b:2=c:3\n", 1, "data endpoint"},
        {"a=b:2\n", 1, "port is missing"},
        {"a:1=http://b:2\n", 1, "unknown scheme"},
        {"rdma://a:1=b:2\n", 1, "is tcp"},
        {"a:0=b:2\n", 1, "1 to 65535"},
        {"a:1=b:0x1\n", 1, "0 to 65535"},
        {"::1:1=b:2\n", 1, "brackets"},
        {"a:1=b:2\na:2=b:3\nA:1=b:4\n", 3, "already in line 1"},
        {"a:1=b:2\n#\na:2=tcp://B:2\n", 3, "already in line 1"},
        {"a:1=b:2 # no comment here\n", 1, "0 to 65535"},
        {"\xff\xfe:1=b:2\n", 1, "neither a name"},
        {"a:1=rdma://b:2,rdma://b:3\n", 1, "accepts one endpoint, or one of rdma and one of tcp"},
        {"a:1=b:2,b:3\n", 1, "accepts one endpoint, or one of rdma and one of tcp"},
        {"a:1=rdma://b:2,shm://b:3\n", 1, "accepts one endpoint, or one of rdma and one of tcp"},
        {"a:1=shm://b:3,rdma://b:2\n", 1, "accepts one endpoint, or one of rdma and one of tcp"},
        {"a:1=rdma://b:2,b:3,b:4\n", 1, "accepts one endpoint, or one of rdma and one of tcp"},
        {"a:1=rdma://b:2,\n", 1, "one of rdma and one of tcp"},
        {"a:1=,b:2\n", 1, "one of rdma and one of tcp"},
        {"a:1=dpdk://b:2,dpdk://b:3\n", 1, "or one of dpdk and one of tcp"},
        {"a:1=dpdk://b:2,rdma://b:3\n", 1, "or one of dpdk and one of tcp"},
        {"a:1=b:3,dpdk://d,x=y?addr=10.0.0.1&port=1,b:4\n", 1, "or one of dpdk and one of tcp"},
        {"a:1=dpdk://d,x=y?addr=10.0.0.1\n", 1, "data endpoint"},
        {"a:1=dpdk://d,x=y\n", 1, "port is missing"},
        {"a:1=dpdk://d?addr=10.0.0.1&port=2\na:2=dpdk://e?addr=10.0.0.1&port=2\n", 2,
         "data endpoint 10.0.0.1:2 is already in line 1"},
        {"a:1=rdma://b:2,b:3\na:2=b:4,rdma://B:2\n", 2, "data endpoint B:2 is already in line 1"},
        {"a:1=rdma://b:2\na:2=b:4,rdma://b:2\n", 2, "already in line 1"},
        {"a:1=rdma://b:2,b:3\na:2=b:3\n", 2, "data endpoint b:3 is already in line 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sl_endpoint_map map = {.count = 4711};
        struct sl_reason reason = {0};
        char begins[128];
        const int err = read_text(cases[i].text, strlen(cases[i].text), &map, &reason);
        snprintf(begins, sizeof begins, "%s:%d: ", path, cases[i].line);
        if (err != SL_ERR_INVALID || strncmp(reason.text, begins, strlen(begins)) != 0 ||
            strstr(reason.text, cases[i].reason) == NULL) {
            fail_msg("case %zu: err %d, reason \"%s\"", i, err, reason.text);
        }
        assert_int_equal(map.count, 4711);
    }
}

CASE(endpoint_map_read__rdma_beside_tcp_is_the_bypass_one)
{
    const char text[] = "a:1=rdma://[::1]:5 , tcp://b:6\n"
                        "a:2=b:7,rdma://b:7\n"
                        "a:3=rdma://b:0,b:0\n"
                        "a:4=rdma://b:8\n"
                        "a:5=b:0,rdma://b:0\n";
    struct sl_endpoint_map map;
    assert_int_equal(read_text(text, sizeof text - 1, &map, NULL), 0);
    assert_int_equal(map.count, 5);
    const struct sl_endpoint_map_entry *entry = &map.entries[0];
    assert_true(entry->has_bypass);
    assert_int_equal(entry->bypass.scheme, SL_ENDPOINT_RDMA);
    assert_string_equal(entry->bypass.host, "::1");
    assert_int_equal(entry->bypass.port, 5);
    assert_int_equal(entry->data.scheme, SL_ENDPOINT_TCP);
    assert_int_equal(entry->data.port, 6);
    entry = &map.entries[1];
    assert_true(entry->has_bypass);
    assert_int_equal(entry->bypass.scheme, SL_ENDPOINT_RDMA);
    assert_int_equal(entry->data.scheme, SL_ENDPOINT_TCP);
    assert_false(map.entries[3].has_bypass);
    assert_int_equal(map.entries[3].data.scheme, SL_ENDPOINT_RDMA);
    sl_endpoint_map_fini(&map);
}

CASE(endpoint_map_read__nul_byte_is_refused)
{
    const char text[] = "a:1=b:2\nc:3=d:4\0evil\n";
    struct sl_endpoint_map map;
    struct sl_reason reason = {0};
    assert_int_equal(read_text(text, sizeof text - 1, &map, &reason), SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, ":2: a NUL byte"));
}

CASE(endpoint_map_read__same_port_0_or_other_scheme_is_no_clash)
{
    const char text[] = "a:1=b:0\na:2=b:0\na:3=tcp://b:9\na:4=rdma://b:9\n";
    struct sl_endpoint_map map;
    assert_int_equal(read_text(text, sizeof text - 1, &map, NULL), 0);
    assert_int_equal(map.count, 4);
    sl_endpoint_map_fini(&map);
}

SL_CASE(endpoint_map_read__missing_file_is_not_found)
{
    struct sl_endpoint_map map;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_map_read("/nonexistent/map", &map, &reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(reason.text, "/nonexistent/map: "));
}

SL_CASE(endpoint_map_read__a_folder_is_an_io_error)
{
    struct sl_endpoint_map map;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_map_read("/tmp", &map, &reason), SL_ERR_IO);
    assert_non_null(strstr(reason.text, "/tmp: "));
}

SL_CASE(endpoint_map_read__endless_file_is_too_large)
{
    struct sl_endpoint_map map;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_map_read("/dev/zero", &map, &reason), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, "larger than 1048576 bytes"));
}

CASE(endpoint_map_read__stops_at_the_limit_of_lines)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 1; i <= SL_LIMIT_PS; i++) {
        fprintf(file, "a:%d=b:%d\n", i, i);
    }
    assert_int_equal(fclose(file), 0);
    struct sl_endpoint_map map;
    struct sl_reason reason = {0};
    assert_int_equal(sl_endpoint_map_read(path, &map, &reason), 0);
    assert_int_equal(map.count, SL_LIMIT_PS);
    sl_endpoint_map_fini(&map);

    file = fopen(path, "a");
    assert_non_null(file);
    fprintf(file, "a:60000=b:60000\n");
    assert_int_equal(fclose(file), 0);
    assert_int_equal(sl_endpoint_map_read(path, &map, &reason), SL_ERR_TOO_LARGE);
    assert_non_null(strstr(reason.text, ":1025: more than 1024"));
}

CASE(endpoint_map_find__ignores_case_but_not_the_port)
{
    const char text[] = "Host:1=b:2\n";
    struct sl_endpoint_map map;
    assert_int_equal(read_text(text, sizeof text - 1, &map, NULL), 0);
    const struct sl_endpoint same = {.host = "hOST", .port = 1};
    const struct sl_endpoint other = {.host = "host", .port = 2};
    assert_ptr_equal(sl_endpoint_map_find(&map, &same), &map.entries[0]);
    assert_null(sl_endpoint_map_find(&map, &other));
    sl_endpoint_map_fini(&map);
}
