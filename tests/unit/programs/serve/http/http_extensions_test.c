/* Extensions of the protocol: configuration, statistics, traces, the log, shared memory, and
 * compressed bodies. */
#include "programs/serve/http/http_routes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "core/log.h"
#include "http_fixture.h"
#include "programs/serve/http/http_regions.h"

#define INFER "POST /v2/models/echo/infer"

/* ---- configuration, statistics ---- */

CASE(http_models__configuration)
{
    static const char config[] =
        "{\"name\":\"echo\",\"backend\":\"starling\",\"max_batch_size\":4,\"input\":["
        "{\"name\":\"x\",\"data_type\":\"TYPE_FP32\",\"dims\":[2]},"
        "{\"name\":\"n\",\"data_type\":\"TYPE_BOOL\",\"dims\":[1],\"reshape\":{\"shape\":[]}}],"
        "\"output\":[],\"model_transaction_policy\":{\"decoupled\":false},\"dynamic_batching\":{}}";
    check(f, "GET /v2/models/echo/config", "", "", 200, config);
    check(f, "GET /v2/models/echo/versions/3/config", "", "", 200, config);
    check(f, "GET /v2/models/echo/versions/8/config", "", "", 404, "it has: 3 7");
    check(f, "GET /v2/models/none/config", "", "", 404, "unknown");
    check(f, "POST /v2/models/echo/config", "", "", 405, "Allow: GET, HEAD");
}

CASE(http_models__statistics)
{
#define NO_TIME         "{\"count\":0,\"ns\":0}"
#define TIME(count, ns) "{\"count\":" #count ",\"ns\":" #ns "}"
    ask(f, "GET /v2/models/echo/stats", "", "");
    expect(f, 200,
           "{\"model_stats\":[{\"name\":\"echo\",\"version\":\"3\",\"last_inference\":0,"
           "\"inference_count\":0,\"execution_count\":0,\"inference_stats\":{\"success\":" NO_TIME);
    expect(f, 200, "\"version\":\"7\"");
    for (int i = 0; i < 2; i++) {
        check(f, INFER, "", X, 200, "");
    }
    ask(f, "POST /v2/models/echo/versions/3/infer", "",
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[3],\"datatype\":\"INT8\",\"data\":[1,2,3]}]}");
    check(f, "GET /v2/models/echo/versions/7/stats", "", "", 200, "\"inference_count\":2,");
    assert_null(strstr(f->answer, "\"version\":\"3\""));
    expect(f, 200, "\"execution_count\":2,");
    expect(f, 200, "\"success\":" TIME(2, 0) ",\"fail\":" NO_TIME ",\"queue\":" TIME(2, 60000));
    expect(f, 200,
           "\"compute_infer\":" TIME(2, 60000) ",\"compute_output\":" TIME(
               2, 0) ",\"cache_hit\":" NO_TIME ",\"cache_miss\":" NO_TIME "},\"batch_stats\":["
                     "{\"batch_size\":1,\"compute_input\":" TIME(2, 0) ",\"compute_infer\":" TIME(
                         2, 60000));
    check(f, "GET /v2/models/echo/versions/3/stats", "", "", 200, "\"inference_count\":3,");
    expect(f, 200, "\"batch_stats\":[{\"batch_size\":3,");
    check(f, "GET /v2/models/echo/versions/8/stats", "", "", 404, "has no version 8");
    check(f, "GET /v2/models/none/stats", "", "", 404, "model `none` is unknown");

    ask(f, "POST /v2/models/late/infer", "", X);            /* its version is the newest */
    ask(f, "POST /v2/models/echo/versions/8/infer", "", X); /* there is none: not counted */
    ask(f, "POST /v2/models/none/infer", "", X);
    check(f, "GET /v2/models/stats", "", "", 200, "\"name\":\"echo\",\"version\":\"3\"");
    expect(f, 200, "\"name\":\"echo\",\"version\":\"7\"");
    expect(f, 200, "\"name\":\"team/model\",\"version\":\"1\"");
    assert_null(strstr(f->answer, "\"version\":\"8\""));
    assert_null(strstr(f->answer, "none"));
    check(f, "GET /v2/models/late/stats", "", "", 200, "\"fail\":" TIME(1, 0));
}

/* ---- traces, log ---- */

CASE(http_control__traces_stay_off)
{
    static const char off[] = "{\"trace_file\":\"\",\"trace_level\":[\"OFF\"],";
    check(f, "GET /v2/trace/setting", "", "", 200, off);
    check(f, "GET /v2/models/echo/trace/setting", "", "", 200, off);
    check(f, "GET /v2/models/none/trace/setting", "", "", 404, "none");
    check(f, "POST /v2/trace/setting", "", "", 200, off);
    check(f, "POST /v2/trace/setting", "", "{\"trace_level\":[\"OFF\"]}", 200, off);
    check(f, "POST /v2/trace/setting", "", "{\"trace_level\":\"OFF\"}", 200, off);
    check(f, "POST /v2/models/echo/trace/setting", "", "{\"trace_rate\":null}", 200, off);
    ask(f, "POST /v2/trace/setting", "", "{\"trace_level\":[\"TIMESTAMPS\"]}");
    expect(f, 400, "trace_level: there are no traces here");
    check(f, "POST /v2/trace/setting", "", "{\"trace_file\":\"/etc/x\"}", 400, "trace_file");
    check(f, "POST /v2/trace/setting", "", "[]", 400, "not a JSON object");
}

CASE(http_control__the_log_level_is_set)
{
    sl_log_redirect(SL_LOG_INFO, NULL, NULL);
    check(f, "GET /v2/logging", "", "", 200,
          "{\"log_file\":\"\",\"log_info\":true,\"log_warning\":true,\"log_error\":true,"
          "\"log_verbose_level\":0,\"log_format\":\"default\"}");
    static const struct {
        const char *body;
        enum sl_log_level level;
    } steps[] = {
        {"{\"log_verbose_level\":1}", SL_LOG_DEBUG},
        {"{\"log_verbose_level\":0}", SL_LOG_INFO},
        {"{\"log_info\":false,\"log_warning\":false}", SL_LOG_ERROR},
        {"", SL_LOG_ERROR},
        {"{\"log_error\":false}", SL_LOG_OFF},
        {"{\"log_warning\":true,\"log_info\":false}", SL_LOG_WARN},
        {"{\"log_verbose_level\":3,\"log_file\":\"\",\"log_format\":\"default\"}", SL_LOG_DEBUG},
        {"{\"log_verbose_level\":0,\"log_info\":false}", SL_LOG_WARN},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        check(f, "POST /v2/logging", "", steps[i].body, 200, "\"log_warning\"");
        assert_true(sl_log_enabled(steps[i].level) || steps[i].level == SL_LOG_OFF);
        assert_false(steps[i].level > SL_LOG_DEBUG && sl_log_enabled(steps[i].level - 1));
    }
    ask(f, "POST /v2/logging", "", "{\"log_info\":true,\"log_error\":false}");
    expect(f, 400, "log_error is off and log_info is on");
    check(f, "POST /v2/logging", "", "{\"log_file\":\"/tmp/x\"}", 400, "log_file cannot be set so");
    check(f, "POST /v2/logging", "", "{\"log_verbose_level\":-1}", 400, "log_verbose_level");
    check(f, "POST /v2/logging", "", "{\"log_info\":1}", 400, "log_info");
    check(f, "POST /v2/logging", "", "{\"log_level\":1}", 400, "log_level");
    assert_true(sl_log_enabled(SL_LOG_WARN) && !sl_log_enabled(SL_LOG_INFO));
    sl_log_redirect(SL_LOG_INFO, NULL, NULL);
}

/* ---- shared memory ---- */

struct memory {
    char key[64];
    int fd;
};

static struct memory memory_make(size_t bytes)
{
    static unsigned made;
    struct memory memory;
    (void)snprintf(memory.key, sizeof memory.key, "/starling-test-%d-%u", (int)getpid(), made++);
    memory.fd = shm_open(memory.key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(memory.fd >= 0);
    assert_int_equal(ftruncate(memory.fd, (off_t)bytes), 0);
    return memory;
}

static void memory_drop(struct memory *memory)
{
    (void)shm_unlink(memory->key);
    assert_int_equal(close(memory->fd), 0);
}

/* Registers the memory as the region "r". */
static void add_region(struct fixture *f, const char *key, size_t offset, size_t bytes, int status,
                       const char *words)
{
    char body[400];
    (void)snprintf(body, sizeof body, "{\"key\":\"%s\",\"offset\":%zu,\"byte_size\":%zu}", key,
                   offset, bytes);
    check(f, "POST /v2/systemsharedmemory/region/r/register", "", body, status, words);
}

#define SHARED(offset, bytes)                                                                      \
    "\"shared_memory_region\":\"r\",\"shared_memory_offset\":" #offset                             \
    ",\"shared_memory_byte_size\":" #bytes

/* 8 bytes from offset 4 of the region, and back to offset 16. */
#define BY_REGION                                                                                  \
    "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,8],\"datatype\":\"UINT8\",\"parameters\":{" SHARED( \
        4, 8) "}}],\"outputs\":[{\"name\":\"x\",\"parameters\":{" SHARED(16, 8) "}}]}"

CASE(http_regions__tensors_go_through_shared_memory)
{
    struct memory memory = memory_make(128);
    char got[8];
    check(f, INFER, "", BY_REGION, 400, "region `r` is not registered");
    add_region(f, memory.key, 100, 24, 200, "");
    ask(f, "GET /v2/systemsharedmemory/status", "", "");
    char status[200];
    (void)snprintf(status, sizeof status,
                   "[{\"name\":\"r\",\"key\":\"%s\",\"offset\":100,\"byte_size\":24}]", memory.key);
    expect(f, 200, status);
    check(f, "GET /v2/systemsharedmemory/region/r/status", "", "", 200, status);
    check(f, "GET /v2/systemsharedmemory/region/q/status", "", "", 404, "region `q`");
    assert_int_equal(pwrite(memory.fd, "ABCDEFGH", 8, 104), 8);
    check(f, INFER, "", BY_REGION, 200,
          "\"outputs\":[{\"name\":\"x\",\"datatype\":\"UINT8\",\"shape\":[1,8]}]");
    assert_int_equal(pread(memory.fd, got, 8, 116), 8);
    assert_memory_equal(got, "ABCDEFGH", 8);

    add_region(f, memory.key, 0, 24, 400, "region `r` is registered already");
    check(f, "POST /v2/systemsharedmemory/region/r/unregister", "", "", 200, "");
    check(f, "POST /v2/systemsharedmemory/region/r/unregister", "", "", 200, "");
    check(f, "GET /v2/systemsharedmemory/status", "", "", 200, "[]");
    add_region(f, memory.key, 0, 24, 200, "");
    check(f, "POST /v2/systemsharedmemory/unregister", "", "", 200, "");
    check(f, INFER, "", BY_REGION, 400, "region `r` is not registered");
    memory_drop(&memory);
}

CASE(http_regions__ranges_beyond_the_region_are_refused)
{
    struct memory memory = memory_make(64);
    add_region(f, memory.key, 0, 16, 200, "");
    check(f, INFER, "", BY_REGION, 400, "region `r` has 16 bytes: offset 16 and 8 bytes");
    ask(f, INFER, "",
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"UINT8\",\"parameters\":{" SHARED(
            9223372036854775807, 1) "}}]}");
    expect(f, 400, "region `r` has 16 bytes");
    ask(f, INFER, "",
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[2],\"datatype\":\"UINT8\",\"data\":[1,2]}],"
        "\"outputs\":[{\"name\":\"x\",\"parameters\":{" SHARED(0, 1) "}}]}");
    expect(f, 400, "output `x` has 2 bytes: its shared_memory_byte_size in region `r` is 1");
    ask(f, INFER, "",
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1],\"datatype\":\"UINT8\",\"data\":[1]}],"
        "\"outputs\":[{\"name\":\"y\",\"parameters\":{" SHARED(0, 1) "}}]}");
    expect(f, 400, "output `y`");
    memory_drop(&memory);
}

/* No access of the gateway may end it by SIGBUS. */
CASE(http_regions__memory_that_shrinks_or_is_unlinked_is_an_error)
{
    struct memory memory = memory_make(64);
    add_region(f, memory.key, 0, 64, 200, "");
    check(f, INFER, "", BY_REGION, 200, "");
    assert_int_equal(ftruncate(memory.fd, 20), 0); /* the input is there, the output is not */
    check(f, INFER, "", BY_REGION, 400, "region `r`: /dev/shm/starling-test-");
    expect(f, 400, "has 20 bytes, 24 are needed");
    assert_int_equal(ftruncate(memory.fd, 0), 0);
    check(f, INFER, "", BY_REGION, 400, "has 0 bytes, 12 are needed");
    assert_int_equal(ftruncate(memory.fd, 64), 0);
    check(f, INFER, "", BY_REGION, 200, "");
    assert_int_equal(shm_unlink(memory.key), 0);
    check(f, INFER, "", BY_REGION, 400, "was unlinked");
    memory_drop(&memory);
}

CASE(http_regions__only_memory_by_a_plain_name_is_accepted)
{
    struct memory memory = memory_make(64);
    static const char *const keys[] = {"../etc/passwd", "/a/b", ".", "..", "/", "//", "a/", "/.x"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        add_region(f, keys[i], 0, 1, 400, "is not accepted");
    }
    add_region(f, "/starling-test-none", 0, 1, 400, "cannot be opened: No such file");
    add_region(f, memory.key, 1, 64, 400, "has 64 bytes, 65 are needed");
    add_region(f, memory.key, INT64_MAX, INT64_MAX, 400, "more than a file");
    char body[200], path[100], link[100];
    (void)snprintf(path, sizeof path, "/dev/shm%s", memory.key);
    (void)snprintf(link, sizeof link, "/dev/shm%s-link", memory.key);
    assert_int_equal(symlink(path, link), 0);
    (void)snprintf(body, sizeof body, "%s-link", memory.key);
    add_region(f, body, 0, 1, 400, "cannot be opened");
    assert_int_equal(unlink(link), 0);
    assert_int_equal(mkfifo(link, 0600), 0);
    add_region(f, body, 0, 1, 400, "no memory");
    assert_int_equal(unlink(link), 0);
    check(f, "POST /v2/systemsharedmemory/region/r/register", "", "{}", 400, "is missing");
    check(f, "POST /v2/systemsharedmemory/region//register", "", "{}", 404, "");
    char line[256] = "POST /v2/systemsharedmemory/region/";
    memset(line + strlen(line), 'n', 128);
    strncat(line, "/register", sizeof line - strlen(line) - 1);
    check(f, line, "", "{}", 400, "a region's name has at most 127 bytes");
    check(f, "GET /v2/systemsharedmemory/region/%01/status", "", "", 400, "control characters");
    check(f, "GET /v2/systemsharedmemory/region/%FF/status", "", "", 400, "UTF-8");
    memory_drop(&memory);
}

SL_CASE(http_regions_add__is_limited)
{
    struct memory memory = memory_make(8);
    struct sl_http_regions regions = {0};
    struct sl_http_body_region of = {.bytes = 8};
    struct sl_reason reason;
    char name[32];
    (void)snprintf(of.key, sizeof of.key, "%s", memory.key);
    for (uint32_t i = 0; i < SL_HTTP_REGIONS_MAX; i++) {
        (void)snprintf(name, sizeof name, "r%u", i);
        assert_int_equal(sl_http_regions_add(&regions, name, &of, &reason), 0);
    }
    assert_int_equal(sl_http_regions_add(&regions, "one more", &of, &reason), SL_ERR_TOO_LARGE);
    sl_http_regions_remove(&regions, "r7");
    assert_int_equal(sl_http_regions_add(&regions, "one more", &of, &reason), 0);
    assert_int_equal(regions.count, SL_HTTP_REGIONS_MAX);
    sl_http_regions_fini(&regions);
    memory_drop(&memory);
}

CASE(http_control__there_is_no_cuda)
{
    check(f, "GET /v2/cudasharedmemory/status", "", "", 200, "[]");
    check(f, "GET /v2/cudasharedmemory/region/g/status", "", "", 404, "region `g`");
    check(f, "POST /v2/cudasharedmemory/unregister", "", "", 200, "");
    check(f, "POST /v2/cudasharedmemory/region/g/unregister", "", "", 200, "");
    ask(f, "POST /v2/cudasharedmemory/region/g/register", "",
        "{\"raw_handle\":{\"b64\":\"AAAA\"},\"device_id\":0,\"byte_size\":8}");
    expect(f, 400, "region `g`: workers have no GPU");
}

/* ---- compressed bodies ---- */

/* Returns the length of the compressed text. */
static size_t pack(const void *text, size_t count, bool is_gzip, uint8_t *to, size_t room)
{
    z_stream stream = {.next_in = (void *)(uintptr_t)text, .avail_in = (uInt)count};
    stream.next_out = to;
    stream.avail_out = (uInt)room;
    assert_int_equal(
        deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + (is_gzip ? 16 : 0), 8, Z_DEFAULT_STRATEGY),
        Z_OK);
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(deflateEnd(&stream), Z_OK);
    return stream.total_out;
}

/* Decodes the body of the answer in place. */
static void unpack(struct fixture *f, bool is_gzip)
{
    static char text[8192];
    const char *length = strstr(f->answer, "\r\nContent-Length:");
    z_stream stream = {.next_in = (void *)f->body,
                       .avail_in = (uInt)strtoul(length + 17, NULL, 10),
                       .next_out = (void *)text,
                       .avail_out = sizeof text - 1};
    assert_int_equal(inflateInit2(&stream, MAX_WBITS + (is_gzip ? 16 : 0)), Z_OK);
    assert_int_equal(inflate(&stream, Z_FINISH), Z_STREAM_END);
    assert_int_equal(inflateEnd(&stream), Z_OK);
    text[stream.total_out] = '\0';
    (void)snprintf(f->body, sizeof text, "%s", text);
}

#define BINARY                                                                                     \
    "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,8],\"datatype\":\"UINT8\","                         \
    "\"parameters\":{\"binary_data_size\":8}}]}"

CASE(http_infer__compressed_requests_and_answers)
{
    static const char *const codings[] = {"deflate", "gzip"};
    uint8_t packed[1024];
    char headers[200];
    for (int i = 0; i < 4; i++) {
        const bool is_gzip = i % 2 == 1, is_binary = i >= 2;
        const char *text = is_binary ? BINARY "ABCDEFGH" : X;
        const size_t count = pack(text, strlen(text), is_gzip, packed, sizeof packed);
        int at =
            snprintf(headers, sizeof headers, "Content-Encoding: %s\r\nAccept-Encoding: br, %s\r\n",
                     codings[is_gzip], codings[is_gzip]);
        (void)snprintf(headers + at, sizeof headers - (size_t)at, "%s",
                       is_binary ? "Inference-Header-Content-Length: 94\r\n" : "");
        ask_bytes(f, INFER, headers, packed, count);
        char coding[64];
        (void)snprintf(coding, sizeof coding, "\r\nContent-Encoding: %s\r\n", codings[is_gzip]);
        expect(f, 200, coding);
        unpack(f, is_gzip);
        assert_non_null(strstr(f->body, is_binary ? "\"data\":[65,66,67,68,69,70,71,72]"
                                                  : "\"data\":[1.5,-2]"));
    }
    ask(f, INFER, "Accept-Encoding: gzip;q=0\r\n", X);
    assert_null(strstr(f->answer, "Content-Encoding"));
}

CASE(http_infer__damaged_compressed_bodies)
{
    uint8_t packed[1024];
    const size_t count = pack(X, strlen(X), true, packed, sizeof packed - 1);
    static const char gzip[] = "Content-Encoding: gzip\r\n";
    const struct {
        size_t bytes, change; /* the byte that is another one; its index, or SIZE_MAX */
    } bodies[] = {{count - 1, SIZE_MAX}, {count + 1, SIZE_MAX}, {count, count - 6}, {count, 0},
                  {count, 12},           {0, SIZE_MAX}};
    packed[count] = 0;
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        uint8_t body[1024];
        memcpy(body, packed, count + 1);
        if (bodies[i].change != SIZE_MAX) {
            body[bodies[i].change] ^= 0xff;
        }
        ask_bytes(f, INFER, gzip, body, bodies[i].bytes);
        expect(f, 400, "the body is damaged, cut short or not of its Content-Encoding");
    }
    ask_bytes(f, INFER, "Content-Encoding: deflate\r\n", packed, count);
    expect(f, 400, "damaged");
    ask_bytes(f, INFER, gzip, packed, count);
    expect(f, 200, "");
}

/* 65 MiB of spaces in 65 KB: the body ends at the limit of the route. */
CASE(http_infer__a_short_body_that_becomes_very_long_is_refused)
{
    const size_t count = SL_SERVE_BODY_BYTES_MAX + (1 << 20), room = 200000;
    char *text = malloc(count);
    uint8_t *packed = malloc(room);
    memset(text, ' ', count);
    const size_t bytes = pack(text, count, true, packed, room);
    ask_bytes(f, INFER, "Content-Encoding: gzip\r\n", packed, bytes);
    expect(f, 413, "at most 67108864 bytes");
    const size_t option_bytes = pack(text, 5000, true, packed, room);
    ask_bytes(f, "POST /v2/logging", "Content-Encoding: gzip\r\n", packed, option_bytes);
    expect(f, 413, "at most 4096 bytes");
    free(text);
    free(packed);
}
