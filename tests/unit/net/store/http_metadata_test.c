#include "net/store/http_metadata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/clock.h"
#include "real_etcd.h"
#include "tests/support/http_server.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

/* A machine that is busy may take long. */
#define TIMEOUT SL_TEST_PATIENCE_NS

static struct http_server server;

static struct sl_http_metadata *store_of(uint16_t port)
{
    struct sl_metastore_address address = {.kind = SL_METASTORE_ADDRESS_HTTP};
    struct sl_http_metadata *store;
    (void)snprintf(address.url, sizeof address.url, "http://127.0.0.1:%u/metadata", port);
    assert_int_equal(sl_http_metadata_create(&address, &store), 0);
    return store;
}

static struct sl_metastore_request read_of(const char *key)
{
    struct sl_metastore_request ask = {.kind = SL_METASTORE_READ, .timeout_ns = TIMEOUT};
    (void)snprintf(ask.key, sizeof ask.key, "%s", key);
    return ask;
}

/* value NULL: a removal. */
static struct sl_metastore_request write_of(struct sl_metastore_change *change, const char *key,
                                            const char *value)
{
    *change = (struct sl_metastore_change){.removes = value == NULL,
                                           .value = (uint8_t *)(uintptr_t)value,
                                           .value_bytes = value == NULL ? 0 : strlen(value)};
    (void)snprintf(change->key, sizeof change->key, "%s", key);
    return (struct sl_metastore_request){
        .kind = SL_METASTORE_WRITE, .timeout_ns = TIMEOUT, .changes = change, .change_count = 1};
}

static int perform(struct sl_http_metadata *store, struct sl_metastore_request *ask)
{
    sl_metastore_answer_fini(&ask->answer);
    ask->answer = (struct sl_metastore_answer){0};
    sl_http_metadata_perform(store, ask);
    assert_int_equal(ask->answer.err == 0, ask->answer.reason[0] == '\0');
    return ask->answer.err;
}

SL_CASE(http_metadata__reads_and_writes)
{
    static const char KEY[] = "starling/ram/[::1]:1 &?%+x";
    struct sl_metastore_change change;
    http_server_start(&server, NULL, 0);
    struct sl_http_metadata *store = store_of(server.port);
    struct sl_metastore_request read = read_of(KEY);
    assert_int_equal(perform(store, &read), 0);
    assert_int_equal(read.answer.item_count, 0);
    struct sl_metastore_request write = write_of(&change, KEY, "{\"a\":1}");
    assert_int_equal(perform(store, &write), 0);
    assert_true(write.answer.held);
    assert_non_null(strstr(server.last, "PUT /metadata?key=starling%2Fram%2F%5B%3A%3A1%5D%3A1%20"));
    assert_string_equal(http_server_value(&server, KEY), "{\"a\":1}");
    assert_int_equal(perform(store, &read), 0);
    assert_int_equal(read.answer.item_count, 1);
    assert_string_equal(read.answer.pairs[0].key, KEY);
    assert_string_equal((const char *)read.answer.pairs[0].value, "{\"a\":1}");
    assert_int_equal(read.answer.pairs[0].value_bytes, 7);
    sl_metastore_answer_fini(&read.answer);
    struct sl_metastore_request removal = write_of(&change, KEY, NULL);
    for (int i = 0; i < 2; i++) { /* again: it is gone, which is what was asked for */
        assert_int_equal(perform(store, &removal), 0);
        assert_true(removal.answer.held);
    }
    assert_int_equal(server.pair_count, 0);
    sl_http_metadata_destroy(&store);
    http_server_stop(&server);
}

/* Nothing is sent. */
SL_CASE(http_metadata__what_http_cannot_do)
{
    struct sl_metastore_change changes[2];
    http_server_start(&server, NULL, 0);
    struct sl_http_metadata *store = store_of(server.port);
    for (int kind = SL_METASTORE_LEASE_GRANT; kind <= SL_METASTORE_LEASE_REVOKE; kind++) {
        struct sl_metastore_request lease = {.kind = (enum sl_metastore_kind)kind,
                                             .timeout_ns = TIMEOUT};
        assert_int_equal(perform(store, &lease), SL_ERR_UNSUPPORTED);
        assert_non_null(strstr(lease.answer.reason, "lease"));
    }
    struct sl_metastore_request ask = read_of("k");
    ask.is_prefix = true;
    assert_int_equal(perform(store, &ask), SL_ERR_UNSUPPORTED);
    ask = write_of(changes, "k", "v");
    ask.guard = SL_METASTORE_ABSENT;
    assert_int_equal(perform(store, &ask), SL_ERR_UNSUPPORTED);
    assert_non_null(strstr(ask.answer.reason, "compare"));
    ask = write_of(changes, "k", "v");
    ask.change_count = 2;
    assert_int_equal(perform(store, &ask), SL_ERR_UNSUPPORTED);
    ask = write_of(changes, "k", "v");
    changes[0].lease = 7;
    assert_int_equal(perform(store, &ask), SL_ERR_UNSUPPORTED);
    ask = write_of(changes, "k", NULL);
    changes[0].is_prefix = true;
    assert_int_equal(perform(store, &ask), SL_ERR_UNSUPPORTED);
    assert_int_equal(server.asked, 0);
    sl_http_metadata_destroy(&store);
    http_server_stop(&server);
}

SL_CASE(http_metadata__servers_that_misbehave)
{
    static const struct {
        const char *says;
        size_t blanks_max;
        int err;
        const char *words;
    } CASES[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", 0, SL_ERR_IO, "127.0.0.1"},
        {"no HTTP at all\r\n\r\n", 0, SL_ERR_IO, "127.0.0.1"},
        {"", 0, SL_ERR_IO, "127.0.0.1"},
        {"HTTP/1.1 200 OK\r\n\r\n", SIZE_MAX, SL_ERR_TOO_LARGE, "more than"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", SIZE_MAX, SL_ERR_TOO_LARGE,
         "more than"},
        {"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", 0,
         SL_ERR_PROTOCOL, "302"},
        {"HTTP/1.1 400 No\r\nContent-Length: 0\r\n\r\n", 0, SL_ERR_PROTOCOL, "400"},
        {"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", 0, SL_ERR_REFUSED, "401"},
        {"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", 0, SL_ERR_IO, "503"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        http_server_start(&server, CASES[i].says, CASES[i].blanks_max);
        struct sl_http_metadata *store = store_of(server.port);
        struct sl_metastore_request read = read_of("k");
        if (perform(store, &read) != CASES[i].err ||
            strstr(read.answer.reason, CASES[i].words) == NULL) {
            fail_msg("case %zu: %d, %s", i, read.answer.err, read.answer.reason);
        }
        sl_http_metadata_destroy(&store);
        http_server_stop(&server);
    }
}

SL_CASE(http_metadata__nobody_there_and_silence)
{
    http_server_start(&server, NULL, 0);
    const uint16_t port = server.port;
    http_server_stop(&server);
    struct sl_http_metadata *store = store_of(port);
    struct sl_metastore_request read = read_of("k");
    assert_int_equal(perform(store, &read), SL_ERR_IO);
    sl_http_metadata_destroy(&store);
    const int listener = real_etcd_listen(&server.port); /* never accepts */
    store = store_of(server.port);
    read.timeout_ns = 300 * SL_CLOCK_NS_PER_MS;
    assert_int_equal(perform(store, &read), SL_ERR_DEADLINE);
    sl_http_metadata_destroy(&store);
    (void)close(listener);
}

/* Variables that name a proxy are ignored: nobody listens at theirs. */
SL_CASE(http_metadata__proxies)
{
    static const char *const NAMES[] = {"http_proxy", "all_proxy", "ALL_PROXY"};
    http_server_start(&server, NULL, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(setenv(NAMES[i], "http://127.0.0.1:1", 1), 0);
    }
    struct sl_http_metadata *store = store_of(server.port);
    struct sl_metastore_request read = read_of("k");
    assert_int_equal(perform(store, &read), 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(unsetenv(NAMES[i]), 0);
    }
    assert_int_equal(server.asked, 1);
    sl_http_metadata_destroy(&store);
    http_server_stop(&server);
}
