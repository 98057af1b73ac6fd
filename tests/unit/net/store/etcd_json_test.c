#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net/store/etcd_json.h"
#include "tests/support/unit.h"

static struct sl_metastore_request ask_of(enum sl_metastore_kind kind, const char *key)
{
    struct sl_metastore_request ask = {.kind = kind};
    (void)snprintf(ask.key, sizeof ask.key, "%s", key);
    return ask;
}

static void assert_request(const struct sl_metastore_request *ask, const char *after,
                           const char *path, const char *body)
{
    const char *got_path;
    char *got;
    assert_int_equal(sl_etcd_json_request(ask, after, &got_path, &got), 0);
    assert_string_equal(got_path, path);
    assert_string_equal(got, body);
    free(got);
}

static int answer(const struct sl_metastore_request *ask, const char *body,
                  struct sl_metastore_answer *out, bool *more)
{
    *out = (struct sl_metastore_answer){0};
    return sl_etcd_json_answer(ask, body, strlen(body), out, more);
}

/* Fails with the error, and leaves nothing that is not freed. */
static void assert_bad(const struct sl_metastore_request *ask, const char *body, int err)
{
    struct sl_metastore_answer out;
    bool more;
    int got = answer(ask, body, &out, &more);
    if (got != err) {
        print_error("%s: %d\n", body, got);
    }
    assert_int_equal(got, err);
    assert_int_equal(out.err, err);
    assert_string_not_equal(out.reason, "");
    assert_false(more);
    sl_metastore_answer_fini(&out);
}

SL_CASE(request__leases)
{
    struct sl_metastore_request ask = {.kind = SL_METASTORE_LEASE_GRANT, .ttl_s = 5};
    assert_request(&ask, NULL, "/v3/lease/grant", "{\"TTL\":\"5\"}");
    ask = (struct sl_metastore_request){.kind = SL_METASTORE_LEASE_RENEW,
                                        .lease = 18446744073709551615U};
    assert_request(&ask, NULL, "/v3/lease/keepalive", "{\"ID\":\"18446744073709551615\"}");
    ask = (struct sl_metastore_request){.kind = SL_METASTORE_LEASE_REVOKE, .lease = 7};
    assert_request(&ask, NULL, "/v3/lease/revoke", "{\"ID\":\"7\"}");
}

SL_CASE(request__reads)
{
    struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k1");
    assert_request(&ask, NULL, "/v3/kv/range", "{\"key\":\"azE=\"}");
    ask.is_prefix = true;
    assert_request(&ask, NULL, "/v3/kv/range",
                   "{\"key\":\"azE=\",\"range_end\":\"azI=\",\"limit\":\"256\"}");
    assert_request(&ask, "k11", "/v3/kv/range",
                   "{\"key\":\"azExAA==\",\"range_end\":\"azI=\",\"limit\":\"256\"}");
}

SL_CASE(request__writes)
{
    uint8_t value[] = {0, 255, '"'};
    struct sl_metastore_change changes[] = {
        {.key = "a", .value = value, .value_bytes = 3, .lease = 9},
        {.key = "b", .removes = true},
        {.key = "c/", .removes = true, .is_prefix = true},
    };
    struct sl_metastore_request ask = ask_of(SL_METASTORE_WRITE, "k1");
    ask.changes = changes;
    ask.change_count = 3;
    const char *changed =
        "\"success\":[{\"request_put\":{\"key\":\"YQ==\",\"value\":\"AP8i\",\"lease\":\"9\"}},"
        "{\"request_delete_range\":{\"key\":\"Yg==\"}},"
        "{\"request_delete_range\":{\"key\":\"Yy8=\",\"range_end\":\"YzA=\"}}]";
    char body[1024];
    (void)snprintf(body, sizeof body, "{%s}", changed);
    assert_request(&ask, NULL, "/v3/kv/txn", body);
    static const struct {
        enum sl_metastore_guard guard;
        const char *revision;
    } GUARDS[] = {{SL_METASTORE_ABSENT, "0"}, {SL_METASTORE_CREATED, "12"}};
    ask.revision = 12;
    for (size_t i = 0; i < 2; i++) {
        ask.guard = GUARDS[i].guard;
        (void)snprintf(body, sizeof body,
                       "{\"compare\":[{\"key\":\"azE=\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
                       "\"create_revision\":\"%s\"}],%s,"
                       "\"failure\":[{\"request_range\":{\"key\":\"azE=\"}}]}",
                       GUARDS[i].revision, changed);
        assert_request(&ask, NULL, "/v3/kv/txn", body);
    }
    ask.was = "v1";
    ask.was_bytes = 2;
    ask.change_count = 0;
    assert_request(&ask, NULL, "/v3/kv/txn",
                   "{\"compare\":[{\"key\":\"azE=\",\"target\":\"CREATE\",\"result\":\"EQUAL\","
                   "\"create_revision\":\"12\"},{\"key\":\"azE=\",\"target\":\"VALUE\",\"result\":"
                   "\"EQUAL\",\"value\":\"djE=\"}],\"success\":[],"
                   "\"failure\":[{\"request_range\":{\"key\":\"azE=\"}}]}");
}

SL_CASE(answer__leases)
{
    struct sl_metastore_answer out;
    bool more;
    struct sl_metastore_request ask = {.kind = SL_METASTORE_LEASE_GRANT};
    assert_int_equal(answer(&ask,
                            "{\"header\":{\"revision\":\"1\",\"raft_term\":\"2\"},"
                            "\"ID\":\"2228897002932263941\",\"TTL\":\"5\"}",
                            &out, &more),
                     0);
    assert_int_equal(out.lease, 2228897002932263941);
    assert_int_equal(out.ttl_s, 5);
    ask.kind = SL_METASTORE_LEASE_RENEW;
    assert_int_equal(
        answer(&ask, "{\"result\":{\"header\":{},\"ID\":\"12\",\"TTL\":\"5\"}}\n", &out, &more), 0);
    assert_int_equal(out.ttl_s, 5);
    assert_bad(&ask, "{\"result\":{\"header\":{},\"ID\":\"12345\"}}\n", SL_ERR_NOT_FOUND);
    ask.kind = SL_METASTORE_LEASE_REVOKE;
    assert_int_equal(answer(&ask, "{\"header\":{}}", &out, &more), 0);
}

SL_CASE(answer__read)
{
    struct sl_metastore_answer out;
    bool more;
    struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k1");
    assert_int_equal(answer(&ask, "{\"header\":{\"revision\":\"2\"}}", &out, &more), 0);
    assert_int_equal(out.item_count, 0);
    assert_int_equal(
        answer(&ask,
               "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"2\",\"mod_revision\":\"3\","
               "\"value\":\"djEA\",\"lease\":\"2228897002932263943\"}],\"count\":\"1\"}",
               &out, &more),
        0);
    assert_false(more);
    assert_int_equal(out.item_count, 1);
    assert_string_equal(out.pairs[0].key, "k1");
    assert_int_equal(out.pairs[0].value_bytes, 3);
    assert_memory_equal(out.pairs[0].value, "v1\0", 4);
    assert_int_equal(out.pairs[0].created, 2);
    assert_int_equal(out.pairs[0].lease, 2228897002932263943);
    sl_metastore_answer_fini(&out);
}

/* Pages are added to each other; what has no value has an empty one. */
SL_CASE(answer__pages)
{
    struct sl_metastore_answer out;
    bool more;
    struct sl_metastore_request ask = ask_of(SL_METASTORE_READ, "k");
    ask.is_prefix = true;
    assert_int_equal(answer(&ask,
                            "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":2}],\"more\":true,"
                            "\"count\":\"2\"}",
                            &out, &more),
                     0);
    assert_true(more);
    const char *second = "{\"kvs\":[{\"key\":\"azI=\",\"create_revision\":\"5\",\"value\":\"\"}]}";
    assert_int_equal(sl_etcd_json_answer(&ask, second, strlen(second), &out, &more), 0);
    assert_false(more);
    assert_int_equal(out.item_count, 2);
    assert_string_equal(out.pairs[1].key, "k2");
    assert_int_equal(out.pairs[1].value_bytes, 0);
    sl_metastore_answer_fini(&out);
}

SL_CASE(answer__write)
{
    struct sl_metastore_answer out;
    bool more;
    struct sl_metastore_request ask = ask_of(SL_METASTORE_WRITE, "k1");
    ask.guard = SL_METASTORE_ABSENT;
    assert_int_equal(answer(&ask,
                            "{\"header\":{\"revision\":\"2\"},\"succeeded\":true,\"responses\":"
                            "[{\"response_put\":{\"header\":{\"revision\":\"2\"}}}]}",
                            &out, &more),
                     0);
    assert_true(out.held);
    assert_int_equal(out.revision, 2);
    assert_int_equal(
        answer(
            &ask,
            "{\"header\":{\"revision\":\"2\"},\"responses\":[{\"response_range\":{\"kvs\":["
            "{\"key\":\"azE=\",\"create_revision\":\"2\",\"value\":\"djE=\"}],\"count\":\"1\"}}]}",
            &out, &more),
        0);
    assert_false(out.held);
    assert_int_equal(out.item_count, 1);
    assert_string_equal((char *)out.pairs[0].value, "v1");
    sl_metastore_answer_fini(&out);
    assert_int_equal(
        answer(&ask, "{\"responses\":[{\"response_range\":{\"header\":{}}}]}", &out, &more), 0);
    assert_false(out.held);
    assert_int_equal(out.item_count, 0);
}

SL_CASE(answer__malformed)
{
    struct sl_metastore_request read = ask_of(SL_METASTORE_READ, "k1");
    static const char *const READS[] = {
        "",
        "x",
        "[]",
        "\"kvs\"",
        "{",
        "{\"kvs\":1}",
        "{\"kvs\":{}}",
        "{\"kvs\":[1]}",
        "{\"kvs\":[{}]}",
        "{\"kvs\":[{\"key\":\"azE=\"}]}",                           /* no revision */
        "{\"kvs\":[{\"key\":\"azI=\",\"create_revision\":\"1\"}]}", /* another key */
        "{\"kvs\":[{\"key\":\"azEA\",\"create_revision\":\"1\"}]}", /* a NUL in it */
        ("{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\"},"
         "{\"key\":\"azE=\",\"create_revision\":\"1\"}]}"), /* not in order */
        "{\"kvs\":[{\"key\":\"\",\"create_revision\":\"1\"}]}",
        "{\"kvs\":[{\"key\":\"a\",\"create_revision\":\"1\"}]}",
        "{\"kvs\":[{\"key\":1,\"create_revision\":\"1\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"-1\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":-1}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1x\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":1.5}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"99999999999999999999\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"lease\":\"x\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":7}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"!!!!\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"djE\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"djE=djE=\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"dj==vj==\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"d===\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\" djE=\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"djE=\\n\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"1\",\"value\":\"=djE\"}]}",
        "{\"kvs\":[{\"key\":\"azE=\",\"key\":\"azE=\",\"create_revision\":\"1\"}]}",
        "{\"kvs\":[],\"more\":true}",
    };
    for (size_t i = 0; i < sizeof READS / sizeof READS[0]; i++) {
        assert_bad(&read, READS[i], SL_ERR_PROTOCOL);
    }
    struct sl_metastore_request grant = {.kind = SL_METASTORE_LEASE_GRANT};
    assert_bad(&grant, "{}", SL_ERR_PROTOCOL);
    assert_bad(&grant, "{\"ID\":\"1\"}", SL_ERR_PROTOCOL);
    assert_bad(&grant, "{\"ID\":\"1\",\"TTL\":\"4294967296\"}", SL_ERR_PROTOCOL);
    struct sl_metastore_request keep = {.kind = SL_METASTORE_LEASE_RENEW};
    assert_bad(&keep, "{}", SL_ERR_PROTOCOL);
    assert_bad(&keep, "{\"result\":{\"TTL\":\"x\"}}", SL_ERR_PROTOCOL);
    struct sl_metastore_request write = ask_of(SL_METASTORE_WRITE, "k1");
    write.guard = SL_METASTORE_CREATED;
    assert_bad(&write, "{}", SL_ERR_PROTOCOL);
    assert_bad(&write, "{\"succeeded\":true}", SL_ERR_PROTOCOL);
    assert_bad(&write, "{\"responses\":[]}", SL_ERR_PROTOCOL);
    assert_bad(&write, "{\"responses\":[{\"response_put\":{}}]}", SL_ERR_PROTOCOL);
    write.guard = SL_METASTORE_ALWAYS;
    assert_bad(&write, "{\"responses\":[{\"response_range\":{}}]}", SL_ERR_PROTOCOL);
}

/* However deep, long or cut: an error, and nothing that hurts. */
SL_CASE(answer__any_bytes)
{
    struct sl_metastore_request read = ask_of(SL_METASTORE_READ, "k");
    read.is_prefix = true;
    char *deep = malloc(100001);
    assert_non_null(deep);
    memset(deep, '[', 100000);
    deep[100000] = '\0';
    assert_bad(&read, deep, SL_ERR_PROTOCOL);
    free(deep);
    const char *good =
        "{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"2\",\"value\":\"djE=\"}]}";
    for (size_t length = 0; length < strlen(good); length++) {
        struct sl_metastore_answer out = {0};
        bool more;
        assert_int_equal(sl_etcd_json_answer(&read, good, length, &out, &more), SL_ERR_PROTOCOL);
        sl_metastore_answer_fini(&out);
    }
    for (size_t at = 0; at < strlen(good); at++) {
        char changed[128];
        for (int c = 0; c < 256; c++) {
            memcpy(changed, good, strlen(good));
            changed[at] = (char)c;
            struct sl_metastore_answer out = {0};
            bool more;
            (void)sl_etcd_json_answer(&read, changed, strlen(good), &out, &more);
            sl_metastore_answer_fini(&out);
        }
    }
}

SL_CASE(answer__too_many_pairs)
{
    struct sl_metastore_request read = ask_of(SL_METASTORE_READ, "k");
    read.is_prefix = true;
    enum { BYTES = 64 * (SL_ETCD_JSON_PAGE + 2) };
    char *many = malloc(BYTES);
    assert_non_null(many);
    size_t used = (size_t)snprintf(many, BYTES, "{\"kvs\":[");
    for (int i = 0; i <= SL_ETCD_JSON_PAGE; i++) {
        used +=
            (size_t)snprintf(many + used, BYTES - used,
                             "%s{\"key\":\"azE=\",\"create_revision\":\"2\"}", i == 0 ? "" : ",");
    }
    (void)snprintf(many + used, BYTES - used, "]}");
    assert_bad(&read, many, SL_ERR_PROTOCOL);
    free(many);
}

SL_CASE(failure__remedies)
{
    static const struct {
        long status;
        const char *body;
        enum sl_etcd_json_remedy remedy;
        int err;
        const char *reason;
    } CASES[] = {
        {404, "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}",
         SL_ETCD_JSON_FINAL, SL_ERR_NOT_FOUND, "etcdserver: requested lease not found"},
        {404, "Not Found\n", SL_ETCD_JSON_FINAL, SL_ERR_PROTOCOL, "it answers with status 404"},
        {503, "{\"error\":\"etcdserver: no leader\",\"code\":14}", SL_ETCD_JSON_ELSEWHERE,
         SL_ERR_IO, "etcdserver: no leader"},
        {500, "", SL_ETCD_JSON_ELSEWHERE, SL_ERR_IO, "it answers with status 500"},
        {429, "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}",
         SL_ETCD_JSON_ELSEWHERE, SL_ERR_IO, "etcdserver: mvcc: database space exceeded"},
        {401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}",
         SL_ETCD_JSON_AUTHENTICATE, SL_ERR_REFUSED, "etcdserver: invalid auth token"},
        {400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}",
         SL_ETCD_JSON_AUTHENTICATE, SL_ERR_REFUSED, "etcdserver: user name is empty"},
        {403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}", SL_ETCD_JSON_FINAL,
         SL_ERR_REFUSED, "etcdserver: permission denied"},
        {400, "{\"error\":\"a\\nb\\u001b[2J\",\"code\":3}", SL_ETCD_JSON_FINAL, SL_ERR_PROTOCOL,
         "ab[2J"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct sl_metastore_answer out = {0};
        assert_int_equal(
            sl_etcd_json_failure(CASES[i].status, CASES[i].body, strlen(CASES[i].body), &out),
            CASES[i].remedy);
        assert_int_equal(out.err, CASES[i].err);
        assert_string_equal(out.reason, CASES[i].reason);
    }
}

SL_CASE(token__checked)
{
    char *body;
    assert_int_equal(sl_etcd_json_login("a\"b", "c", &body), 0);
    assert_string_equal(body, "{\"name\":\"a\\\"b\",\"password\":\"c\"}");
    free(body);
    char token[16];
    const char *good = "{\"header\":{},\"token\":\"abc.12\"}";
    assert_int_equal(sl_etcd_json_token(good, strlen(good), token, sizeof token), 0);
    assert_string_equal(token, "abc.12");
    static const char *const BAD[] = {"",
                                      "{}",
                                      "{\"token\":\"\"}",
                                      "{\"token\":1}",
                                      "{\"token\":\"a\\r\\nHost: b\"}",
                                      "{\"token\":\"0123456789abcdef\"}"};
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        assert_int_equal(sl_etcd_json_token(BAD[i], strlen(BAD[i]), token, sizeof token),
                         SL_ERR_PROTOCOL);
    }
}
