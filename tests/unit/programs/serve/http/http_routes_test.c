/* The protocol, and access to it. */
#include "programs/serve/http/http_routes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "http_fixture.h"
#include "programs/serve/http/settings.h"

/* ---- the protocol ---- */

CASE(http_routes__server_health_and_metadata)
{
    check(f, "GET /v2", "", "", 200, "\"name\":\"starling-serve\"");
    expect(f, 200, "\"binary_tensor_data\"");
    check(f, "GET /v2/health/live", "", "", 200, "");
    check(f, "GET /v2/health/ready", "", "", 200, "");
    f->gateway.workers = 0;
    check(f, "GET /v2/health/ready", "", "", 503, "no worker");
    check(f, "GET /v2/models/echo/ready", "", "", 503, "Retry-After: 1");
    f->gateway.workers = 1;
    f->gateway.able_workers = 0;
    check(f, "GET /v2/health/ready", "", "", 503, "all are stuck");
    f->gateway.able_workers = 1;
    check(f, "GET /v2/models/echo/ready", "", "", 200, "");
    check(f, "GET /v2/models/echo/versions/7/ready", "", "", 200, "");
    check(f, "GET /v2/models/echo/versions/8/ready", "", "", 404, "it has: 3 7");
    check(f, "GET /v2/models/none/ready", "", "", 404, "unknown");
    ask(f, "GET /v2/models/echo", "", "");
#define DESCRIPTION                                                                                \
    "{\"name\":\"echo\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,2]},"      \
    "{\"name\":\"n\",\"datatype\":\"BOOL\",\"shape\":[-1]}]"
    expect(f, 200, DESCRIPTION ",\"versions\":[\"3\",\"7\"]}");
    check(f, "GET /v2/models/echo/versions/3", "", "", 200, DESCRIPTION "}");
    ask(f, "GET /v2/models/nothing", "", "");
    expect(f, 404, "model ? is unknown"); /* no UTF-8 */
    ask(f, "POST /v2/models/echo/infer", "", X);
    check(f, "GET /metrics", "", "", 200, "text/plain; version=0.0.4");
    expect(f, 200, "\nstarling_serve_requests_total{result=\"answered\"} 5\n");
    expect(f, 200, "\nstarling_serve_phase_seconds_total{phase=\"load\"} 2e-05\n");
}

CASE(http_routes__metrics_of_each_model)
{
    ask(f, "POST /v2/models/echo/infer", "", X);
    ask(f, "POST /v2/models/late/infer", "", X);
    ask(f, "POST /v2/models/none/infer", "", X); /* a name that is made up */
    ask(f, "POST /v2/models/team/model/versions/9/infer", "", X);
    check(f, "GET /metrics", "", "", 200, "# HELP starling_serve_lost_workers_total Workers that ");
    expect(f, 200, "\nstarling_serve_model_requests_total{model=\"echo\",result=\"answered\"} 1\n");
    expect(f, 200, "\nstarling_serve_model_requests_total{model=\"late\",result=\"late\"} 1\n");
    expect(f, 200, "\nstarling_serve_model_requests_total{model=\"\",result=\"invalid\"} 1\n");
    expect(f, 200, "# TYPE starling_serve_model_seconds histogram\n");
    expect(f, 200, "\nstarling_serve_model_seconds_bucket{model=\"echo\",le=\"0.0005\"} 1\n");
    expect(f, 200, "\nstarling_serve_model_seconds_bucket{model=\"echo\",le=\"+Inf\"} 1\n");
    expect(f, 200, "\nstarling_serve_model_seconds_count{model=\"late\"} 0\n");
    assert_null(strstr(f->answer, "none"));
}

CASE(http_routes__infer_with_json)
{
    for (int i = 0; i < 3; i++) { /* on one connection */
        ask(f, "POST /v2/models/echo/infer", "", X);
        expect(f, 200,
               "{\"model_name\":\"echo\",\"model_version\":\"7\",\"id\":\"9\",\"parameters\":"
               "{\"queue_us\":10,\"load_us\":20,\"compute_us\":30},\"outputs\":[{\"name\":\"x\","
               "\"datatype\":\"FP32\",\"shape\":[1,2],\"data\":[1.5,-2]}]}");
    }
    assert_int_equal(f->gateway.last_timeout_ns, SL_CLOCK_NS_PER_S);
    ask(f, "POST /v2/models/echo/versions/3/infer", "Starling-Timeout-Ms: 250\r\n", X);
    expect(f, 200, "\"model_version\":\"3\"");
    assert_int_equal(f->gateway.last_timeout_ns, 250 * SL_CLOCK_NS_PER_MS);
    check(f, "POST /v2/models/team/model/infer", "", X, 200, "\"model_name\":\"team/model\"");
    check(f, "POST /v2/models/team%2Fmodel/infer?a=b", "", X, 200, "\"model_name\":\"team/model\"");
}

CASE(http_routes__infer_with_binary_tensors)
{
    static const char json[] =
        "{\"inputs\":[{\"name\":\"x\",\"shape\":[1,8],\"datatype\":\"UINT8\","
        "\"parameters\":{\"binary_data_size\":8}}],"
        "\"parameters\":{\"binary_data_output\":true}}";
    char headers[64], body[256];
    (void)snprintf(headers, sizeof headers, "Inference-Header-Content-Length: %zu\r\n",
                   strlen(json));
    (void)snprintf(body, sizeof body, "%s%s", json, "ABCDEFGH");
    check(f, "POST /v2/models/echo/infer", headers, body, 200, "application/octet-stream");
    const char *length = strstr(f->answer, "Inference-Header-Content-Length: ");
    assert_non_null(length);
    assert_string_equal(f->body + atoi(length + strlen("Inference-Header-Content-Length: ")),
                        "ABCDEFGH");
    body[strlen(json) + 7] = '\0';
    check(f, "POST /v2/models/echo/infer", headers, body, 400, "7 bytes behind its JSON");
    check(f, "POST /v2/models/echo/infer", "", json, 400, "Inference-Header-Content-Length");
    ask(f, "POST /v2/models/echo/infer", "Inference-Header-Content-Length: 900\r\n", json);
    expect(f, 400, "Inference-Header-Content-Length: 900");
}

CASE(http_routes__infer_in_chunks)
{
    static const char json[] = "{\"inputs\":[{\"name\":\"x\",\"shape\":[8],\"datatype\":\"UINT8\","
                               "\"parameters\":{\"binary_data_size\":8}}]}";
    static const char binary[] = "\1\2\3\4\5\6\7\10\11";
    for (size_t bytes = 7; bytes <= 9; bytes++) {
        char text[512];
        int at = snprintf(text, sizeof text,
                          "POST /v2/models/echo/infer HTTP/1.1\r\nHost: a\r\n"
                          "Inference-Header-Content-Length: %zu\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n",
                          strlen(json));
        for (size_t i = 0; i < strlen(json) + bytes; i++) { /* of one byte each */
            say(f, text, (size_t)at);
            at = snprintf(text, sizeof text, "1\r\n%c\r\n",
                          i < strlen(json) ? json[i] : binary[i - strlen(json)]);
        }
        say(f, text, (size_t)at);
        say(f, "0\r\n\r\n", 5);
        assert_true(hear(f));
        expect(f, bytes == 8 ? 200 : 400,
               bytes == 7   ? "ends before its binary tensors"
               : bytes == 8 ? "\"data\":[1,2,3,4,5,6,7,8]"
                            : "more bytes than its inputs");
    }
}

CASE(http_routes__each_error_has_its_status)
{
    ask(f, "POST /v2/models/echo/infer", "", "{");
    expect(f, 400, "{\"error\":\"the body is not a JSON object");
    check(f, "POST /v2/models/echo/infer", "", "", 400, "not a JSON object");
    check(f, "POST /v2/models/strict/infer", "", X, 400, "input `x` has another type");
    check(f, "POST /v2/models/none/infer", "", X, 404, "");
    check(f, "POST /v2/models/late/infer", "", X, 504, "981 ms for loading");
    check(f, "POST /v2/models/busy/infer", "", X, 503, "Retry-After: 2");
    check(f, "POST /v2/models/damaged/infer", "", X, 503, "block 3");
    check(f, "POST /v2/models/echo/versions/x/infer", "", X, 400, "version `x`");
    check(f, "POST /v2/models/echo/versions/0/infer", "", X, 400, "version `0`");
    static const char *const timeouts[] = {"0", "3600001", "-1", "1s", "", "1e3"};
    for (size_t i = 0; i < sizeof timeouts / sizeof timeouts[0]; i++) {
        char header[64];
        (void)snprintf(header, sizeof header, "Starling-Timeout-Ms: %s\r\n", timeouts[i]);
        check(f, "POST /v2/models/echo/infer", header, X, 400, "Starling-Timeout-Ms");
    }
    check(f, "GET /v2/models/echo/infer", "", "", 405, "Allow: POST");
    check(f, "POST /v2", "", "", 405, "Allow: GET, HEAD");
    check(f, "DELETE /v2/models/echo", "", "", 405, "DELETE");
    check(f, "GET /v3", "", "", 404, "/v3");
    check(f, "GET /v2/models/echo/about", "", "", 404, "no such route: `/about` of model `echo`");
    check(f, "GET /v2/models/team/model/", "", "", 404, "no such route: `/` of model `team/model`");
    ask(f, "GET /v2/models/echo/versions/3/about", "", "");
    expect(f, 404, "no such route: `/about` of a version of model `echo`");
    ask(f, "POST /v2/models/echo/generate/infer", "", X);
    expect(f, 404, "no such route: `/generate` of model `echo`");
    check(f, "POST /v2/models/echo/infer", "Content-Encoding: br\r\n", X, 415,
          "br is not accepted: gzip and deflate are");
}

CASE(http_routes__repository)
{
    static const char unloaded[] =
        "{\"name\":\"echo\",\"version\":\"3\",\"state\":\"UNAVAILABLE\",\"reason\":\"unloaded\"}";
    ask(f, "POST /v2/repository/index", "", "");
    expect(f, 200, "{\"name\":\"echo\",\"version\":\"3\",\"state\":\"READY\",\"reason\":\"\"}");
    for (int i = 0; i < 2; i++) {
        check(f, "POST /v2/repository/models/echo/unload", "", "", 200, "");
        check(f, "POST /v2/models/echo/infer", "", X, 404, "unloaded");
        check(f, "GET /v2/models/echo/ready", "", "", 404, "unloaded");
        ask(f, "POST /v2/repository/index", "", "");
        expect(f, 200, unloaded);
        ask(f, "POST /v2/repository/index", "", "{\"ready\":true}");
        assert_null(strstr(f->answer, "echo"));
        expect(f, 200, "team/model");
    }
    check(f, "POST /v2/repository/models/echo/load", "", "", 200, "");
    check(f, "POST /v2/models/echo/infer", "", X, 200, "");
    check(f, "POST /v2/repository/models/none/unload", "", "", 404, "none");
    check(f, "POST /v2/repository/models/none/load", "", "", 404, "");
}

/* ---- access ---- */

SL_CASE_USING(http_routes__the_token_is_needed, struct fixture, f, set_up, tear_down,
              "0123456789abcdef")
{
    check(f, "GET /v2", "", "", 401, "WWW-Authenticate: Bearer");
    check(f, "POST /v2/models/echo/infer", "Authorization: Basic 0123456789abcdef\r\n", X, 401, "");
    check(f, "GET /v2", "Authorization: Bearer 0123456789abcdeg\r\n", "", 403, "token");
    check(f, "GET /v2", "Authorization: Bearer 0123456789abcde\r\n", "", 403, "token");
    ask(f, "GET /v2", "Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n", "");
    expect(f, 403, "token");
    ask(f, "POST /v2/models/echo/infer", "authorization: bearer 0123456789abcdef\r\n", X);
    expect(f, 200, "");
}

SL_CASE(http_settings__beyond_loopback_need_a_token_or_leave)
{
    struct sl_serve_http_flags flags = {.http.address = "0.0.0.0:80"};
    struct sl_serve_http_settings settings;
    struct sl_reason reason;
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http-token-file"));
    assert_int_equal(sl_serve_http_settings_resolve(&flags, true, &settings, &reason), 0);
    flags.http.address = "here";
    assert_int_equal(sl_serve_http_settings_resolve(&flags, true, &settings, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http here"));

    char path[] = "/tmp/http-token-XXXXXX";
    const int fd = mkstemp(path);
    assert_int_equal(write(fd, "0123456789abcdef\n", 17), 17);
    flags = (struct sl_serve_http_flags){.http.address = "[::]:0", .http.token_file = path};
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason), 0);
    assert_int_equal(settings.http.token.byte_count, 16);
    sl_serve_http_settings_fini(&settings);
    assert_int_equal(fchmod(fd, 0644), 0);
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    flags =
        (struct sl_serve_http_flags){.http.address = "127.0.0.1:0", .certificate = "/nowhere.pem"};
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "--http-tls-key"));
    flags.http.address = "off";
    assert_int_equal(sl_serve_http_settings_resolve(&flags, false, &settings, &reason),
                     SL_ERR_INVALID);
    assert_int_equal(close(fd), 0);
    assert_int_equal(unlink(path), 0);
}
