#include "net/http/server.h"

#include <string.h>

#include "tests/support/unit.h"

static void server_test_end(void *ctx, struct sl_http_call *call)
{
}

static const struct sl_http_handler handler = {
    .connections_max = 1, .call_bytes = sizeof(struct sl_http_call), .end = server_test_end};

static const struct sl_secret no_token;

SL_CASE(server_create__names_what_is_in_use)
{
    struct sl_http_server *server, *other;
    struct sl_http_listen listen = {
        .endpoint = {.host = "127.0.0.1"}, .source = "--http", .token = &no_token};
    struct sl_reason reason;
    assert_int_equal(sl_http_server_create(&listen, &handler, NULL, &server, &reason), 0);
    listen.endpoint.port = sl_http_server_port(server);
    listen.is_default = true; /* in use all the same */
    assert_int_equal(sl_http_server_create(&listen, &handler, NULL, &other, &reason),
                     SL_ERR_IN_USE);
    assert_string_equal(reason.text, "--http: Address already in use");
    sl_http_server_destroy(&server);
}

SL_CASE(server_create__does_without_a_default_address_that_is_missing)
{
    struct sl_http_server *server;
    struct sl_http_listen listen = {
        .endpoint = {.host = "192.0.2.1"}, .source = "--http", .token = &no_token};
    struct sl_reason reason;
    assert_int_not_equal(sl_http_server_create(&listen, &handler, NULL, &server, &reason), 0);
    listen.is_default = true;
    assert_int_equal(sl_http_server_create(&listen, &handler, NULL, &server, &reason), 0);
    assert_null(server);
}

SL_CASE(server_create__names_a_file_that_is_missing)
{
    struct sl_http_server *server;
    const struct sl_http_listen listen = {.endpoint = {.host = "127.0.0.1"},
                                          .source = "--http",
                                          .token = &no_token,
                                          .certificate = "/nowhere.pem",
                                          .key = "/nowhere.key"};
    struct sl_reason reason;
    assert_int_equal(sl_http_server_create(&listen, &handler, NULL, &server, &reason),
                     SL_ERR_INVALID);
    assert_non_null(strstr(reason.text, "/nowhere.pem"));
}
