#include "net/store/etcd_json.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

/* gRPC status codes. */
#define CODE_DEADLINE        4
#define CODE_NOT_FOUND       5
#define CODE_REFUSED         7
#define CODE_EXHAUSTED       8
#define CODE_UNAVAILABLE     14
#define CODE_UNAUTHENTICATED 16

/* Length of the Base64 text of `bytes` bytes, without a NUL. */
static size_t base64_length(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Requests */

static json_t *bytes_json(const uint8_t *bytes, size_t count)
{
    char *text = malloc(base64_length(count) + 1);
    if (text == NULL) {
        return NULL;
    }
    (void)EVP_EncodeBlock((unsigned char *)text, bytes, (int)count);
    json_t *out = json_string(text);
    free(text);
    return out;
}

static json_t *key_json(const char *key)
{
    return bytes_json((const uint8_t *)key, strlen(key));
}

/* The end of the range of keys with this prefix, exclusive. */
static json_t *behind_json(const char *prefix)
{
    char behind[SL_METASTORE_KEY_BYTES];
    size_t length = strlen(prefix);
    sl_assert(length > 0);
    memcpy(behind, prefix, length);
    behind[length - 1]++; /* keys are ASCII */
    return bytes_json((const uint8_t *)behind, length);
}

static json_t *number_json(uint64_t number)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%" PRIu64, number);
    return json_string(text);
}

static json_t *range_json(const struct sl_metastore_request *ask, const char *after)
{
    if (!ask->is_prefix) {
        return json_pack("{so}", "key", key_json(ask->key));
    }
    /* Starts after `after`: appending a NUL gives the next possible key. */
    json_t *from =
        after == NULL ? key_json(ask->key) : bytes_json((const uint8_t *)after, strlen(after) + 1);
    return json_pack("{so so so}", "key", from, "range_end", behind_json(ask->key), "limit",
                     number_json(SL_ETCD_JSON_PAGE));
}

static json_t *change_json(const struct sl_metastore_change *change)
{
    if (change->removes && change->is_prefix) {
        return json_pack("{s{so so}}", "request_delete_range", "key", key_json(change->key),
                         "range_end", behind_json(change->key));
    }
    if (change->removes) {
        return json_pack("{s{so}}", "request_delete_range", "key", key_json(change->key));
    }
    return json_pack("{s{so so so}}", "request_put", "key", key_json(change->key), "value",
                     bytes_json(change->value, change->value_bytes), "lease",
                     number_json(change->lease));
}

static json_t *guard_json(const struct sl_metastore_request *ask)
{
    const bool is_absent = ask->guard == SL_METASTORE_ABSENT;
    json_t *guard =
        json_pack("[{so ss ss so}]", "key", key_json(ask->key), "target", "CREATE", "result",
                  "EQUAL", "create_revision", number_json(is_absent ? 0 : ask->revision));
    if (guard == NULL || is_absent || ask->was == NULL) {
        return guard;
    }
    json_t *value = bytes_json((const uint8_t *)ask->was, ask->was_bytes);
    if (json_array_append_new(guard, json_pack("{so ss ss so}", "key", key_json(ask->key), "target",
                                               "VALUE", "result", "EQUAL", "value", value)) != 0) {
        json_decref(guard);
        return NULL;
    }
    return guard;
}

static json_t *write_json(const struct sl_metastore_request *ask)
{
    sl_assert(ask->change_count <= SL_METASTORE_CHANGES_MAX);
    json_t *changes = json_array();
    for (size_t i = 0; i < ask->change_count && changes != NULL; i++) {
        if (json_array_append_new(changes, change_json(&ask->changes[i])) != 0) {
            json_decref(changes);
            changes = NULL;
        }
    }
    if (changes == NULL || ask->guard == SL_METASTORE_ALWAYS) {
        return changes == NULL ? NULL : json_pack("{so}", "success", changes);
    }
    return json_pack("{so so s[{s{so}}]}", "compare", guard_json(ask), "success", changes,
                     "failure", "request_range", "key", key_json(ask->key));
}

static int dump(json_t *request, char **body)
{
    *body = request == NULL ? NULL : json_dumps(request, JSON_COMPACT);
    json_decref(request);
    return *body == NULL ? SL_ERR_NO_MEMORY : 0;
}

int sl_etcd_json_request(const struct sl_metastore_request *ask, const char *after,
                         const char **path, char **body)
{
    switch (ask->kind) {
    case SL_METASTORE_LEASE_GRANT:
        *path = "/v3/lease/grant";
        return dump(json_pack("{so}", "TTL", number_json(ask->ttl_s)), body);
    case SL_METASTORE_LEASE_RENEW:
        *path = "/v3/lease/keepalive";
        return dump(json_pack("{so}", "ID", number_json(ask->lease)), body);
    case SL_METASTORE_LEASE_REVOKE:
        *path = "/v3/lease/revoke";
        return dump(json_pack("{so}", "ID", number_json(ask->lease)), body);
    case SL_METASTORE_READ:
        *path = "/v3/kv/range";
        return dump(range_json(ask, after), body);
    case SL_METASTORE_WRITE:
        *path = "/v3/kv/txn";
        return dump(write_json(ask), body);
    }
    sl_assert(false);
    return SL_ERR_INVALID;
}

int sl_etcd_json_login(const char *user, const char *password, char **body)
{
    return dump(json_pack("{ss ss}", "name", user, "password", password), body);
}

/* Answers */

static int etcd_json_malformed(struct sl_metastore_answer *answer, const char *what)
{
    sl_metastore_answer_fail(answer, SL_ERR_PROTOCOL, "its answer is not etcd's: %s", what);
    return SL_ERR_PROTOCOL;
}

/* Reads an integer or a string of digits; a missing field is 0. */
static bool etcd_json_read_number(const json_t *object, const char *name, uint64_t *out)
{
    const json_t *value = json_object_get(object, name);
    *out = 0;
    if (value == NULL) {
        return true;
    }
    if (json_is_integer(value)) {
        *out = (uint64_t)json_integer_value(value);
        return json_integer_value(value) >= 0;
    }
    const char *text = json_string_value(value);
    if (text == NULL || text[0] < '0' || text[0] > '9') {
        return false;
    }
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0';
}

/* Writes length / 4 * 3 bytes, of which *bytes count. OpenSSL alone also accepts spaces around the
 * text and padding inside it. */
static bool etcd_json_decode(const char *text, size_t length, uint8_t *to, size_t *bytes)
{
    static const char DIGITS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t padding = length - strspn(text, DIGITS);
    *bytes = length / 4 * 3 - padding;
    return length % 4 == 0 && padding <= 2 && strspn(text + length - padding, "=") == padding &&
           EVP_DecodeBlock(to, (const unsigned char *)text, (int)length) >= 0;
}

static bool read_key(const json_t *item, char key[SL_METASTORE_KEY_BYTES])
{
    const json_t *text = json_object_get(item, "key");
    size_t length = text == NULL ? 0 : json_string_length(text);
    size_t bytes;
    uint8_t decoded[SL_METASTORE_KEY_BYTES + 4];
    if (length == 0 || length > base64_length(SL_METASTORE_KEY_BYTES - 1) ||
        !etcd_json_decode(json_string_value(text), length, decoded, &bytes) ||
        bytes >= SL_METASTORE_KEY_BYTES || memchr(decoded, '\0', bytes) != NULL) {
        return false;
    }
    memcpy(key, decoded, bytes);
    key[bytes] = '\0';
    return true;
}

static bool is_asked(const struct sl_metastore_request *ask, const char *key)
{
    return ask->kind == SL_METASTORE_READ && ask->is_prefix
               ? strncmp(key, ask->key, strlen(ask->key)) == 0
               : strcmp(key, ask->key) == 0;
}

static int read_item(const struct sl_metastore_request *ask, const json_t *from,
                     struct sl_metastore_answer *answer)
{
    char key[SL_METASTORE_KEY_BYTES];
    uint64_t created;
    uint64_t lease;
    const json_t *value = json_object_get(from, "value");
    if (!read_key(from, key) || !is_asked(ask, key) || (value != NULL && !json_is_string(value)) ||
        !etcd_json_read_number(from, "create_revision", &created) || created == 0 ||
        !etcd_json_read_number(from, "lease", &lease)) {
        return etcd_json_malformed(answer, "a pair");
    }
    size_t length = value == NULL ? 0 : json_string_length(value);
    if (length > base64_length(SL_METASTORE_VALUE_BYTES_MAX)) {
        sl_metastore_answer_fail(answer, SL_ERR_TOO_LARGE, "the value of %s is too long", key);
        return SL_ERR_TOO_LARGE;
    }
    struct sl_metastore_item *item = sl_metastore_answer_add(answer, length / 4 * 3);
    if (item == NULL) {
        sl_metastore_answer_fail(answer, SL_ERR_NO_MEMORY, "no memory for what it holds");
        return SL_ERR_NO_MEMORY;
    }
    memcpy(item->key, key, sizeof key);
    item->created = created;
    item->lease = lease;
    if (!etcd_json_decode(length == 0 ? "" : json_string_value(value), length, item->value,
                          &item->value_bytes)) {
        return etcd_json_malformed(answer, "a value");
    }
    item->value[item->value_bytes] = '\0';
    return 0;
}

static int etcd_json_read_pairs(const struct sl_metastore_request *ask, const json_t *range,
                                struct sl_metastore_answer *answer)
{
    const json_t *pairs = json_object_get(range, "kvs");
    if (pairs != NULL && (!json_is_array(pairs) || json_array_size(pairs) > SL_ETCD_JSON_PAGE)) {
        return etcd_json_malformed(answer, "kvs");
    }
    for (size_t i = 0; i < json_array_size(pairs); i++) {
        int err = read_item(ask, json_array_get(pairs, i), answer);
        if (err != 0) {
            return err;
        }
        const size_t count = answer->item_count;
        if (count > 1 && strcmp(answer->pairs[count - 2].key, answer->pairs[count - 1].key) >= 0) {
            return etcd_json_malformed(answer, "the order of keys");
        }
    }
    return 0;
}

static int read_range(const struct sl_metastore_request *ask, const json_t *root,
                      struct sl_metastore_answer *answer, bool *more)
{
    const int err = etcd_json_read_pairs(ask, root, answer);
    if (err != 0 || !json_is_true(json_object_get(root, "more"))) {
        return err;
    }
    if (!ask->is_prefix || json_array_size(json_object_get(root, "kvs")) == 0) {
        return etcd_json_malformed(answer, "more");
    }
    *more = true;
    return 0;
}

static int read_write(const struct sl_metastore_request *ask, const json_t *root,
                      struct sl_metastore_answer *answer)
{
    const json_t *responses = json_object_get(root, "responses");
    answer->held = json_is_true(json_object_get(root, "succeeded"));
    if (answer->held) {
        bool is_number =
            etcd_json_read_number(json_object_get(root, "header"), "revision", &answer->revision);
        return is_number && answer->revision != 0 ? 0 : etcd_json_malformed(answer, "revision");
    }
    const json_t *range = json_object_get(json_array_get(responses, 0), "response_range");
    if (ask->guard == SL_METASTORE_ALWAYS || range == NULL) {
        return etcd_json_malformed(answer, "responses");
    }
    return etcd_json_read_pairs(ask, range, answer);
}

static int read_ttl(const json_t *from, struct sl_metastore_answer *answer)
{
    uint64_t ttl_s;
    if (!etcd_json_read_number(from, "TTL", &ttl_s) || ttl_s > UINT32_MAX) {
        return etcd_json_malformed(answer, "TTL");
    }
    answer->ttl_s = (uint32_t)ttl_s;
    return 0;
}

static int read_grant(const json_t *root, struct sl_metastore_answer *answer)
{
    if (!etcd_json_read_number(root, "ID", &answer->lease) || answer->lease == 0) {
        return etcd_json_malformed(answer, "ID");
    }
    int err = read_ttl(root, answer);
    return err == 0 && answer->ttl_s == 0 ? etcd_json_malformed(answer, "TTL") : err;
}

static int read_keep(const json_t *root, struct sl_metastore_answer *answer)
{
    const json_t *result = json_object_get(root, "result");
    if (!json_is_object(result)) {
        return etcd_json_malformed(answer, "result");
    }
    int err = read_ttl(result, answer);
    if (err == 0 && answer->ttl_s == 0) {
        sl_metastore_answer_fail(answer, SL_ERR_NOT_FOUND, "the lease has ended");
        return SL_ERR_NOT_FOUND;
    }
    return err;
}

int sl_etcd_json_answer(const struct sl_metastore_request *ask, const char *body, size_t body_bytes,
                        struct sl_metastore_answer *answer, bool *more)
{
    *more = false;
    json_t *root =
        json_loadb(body, body_bytes, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, NULL);
    int err = 0;
    if (!json_is_object(root)) {
        err = etcd_json_malformed(answer, "no JSON object");
    } else if (ask->kind == SL_METASTORE_LEASE_GRANT) {
        err = read_grant(root, answer);
    } else if (ask->kind == SL_METASTORE_LEASE_RENEW) {
        err = read_keep(root, answer);
    } else if (ask->kind == SL_METASTORE_READ) {
        err = read_range(ask, root, answer, more);
    } else if (ask->kind == SL_METASTORE_WRITE) {
        err = read_write(ask, root, answer);
    }
    json_decref(root);
    return err;
}

/* Failures */

/* Removes control characters from a foreign text. */
static void copy_text(const char *from, char *to, size_t bytes)
{
    size_t used = 0;
    for (; *from != '\0' && used + 1 < bytes; from++) {
        if ((unsigned char)*from >= 0x20 && *from != 0x7f) {
            to[used++] = *from;
        }
    }
    to[used] = '\0';
}

static enum sl_etcd_json_remedy remedy_of(long status, uint64_t code, const char *text, int *err)
{
    /* etcd uses this code for "invalid auth token", but another for "user name is empty". */
    if (code == CODE_UNAUTHENTICATED || status == 401 || strstr(text, "auth token") != NULL ||
        strstr(text, "user name is empty") != NULL) {
        *err = SL_ERR_REFUSED;
        return SL_ETCD_JSON_AUTHENTICATE;
    }
    if (code == CODE_UNAVAILABLE || code == CODE_DEADLINE || code == CODE_EXHAUSTED ||
        status >= 500) {
        *err = SL_ERR_IO;
        return SL_ETCD_JSON_ELSEWHERE;
    }
    *err = code == CODE_NOT_FOUND                  ? SL_ERR_NOT_FOUND
           : code == CODE_REFUSED || status == 403 ? SL_ERR_REFUSED
                                                   : SL_ERR_PROTOCOL;
    return SL_ETCD_JSON_FINAL;
}

enum sl_etcd_json_remedy sl_etcd_json_failure(long status, const char *body, size_t body_bytes,
                                              struct sl_metastore_answer *answer)
{
    json_t *root = json_loadb(body, body_bytes, JSON_DISABLE_EOF_CHECK, NULL);
    const char *said = json_string_value(json_object_get(root, "error"));
    char text[128];
    copy_text(said == NULL ? "" : said, text, sizeof text);
    uint64_t code = 0;
    (void)etcd_json_read_number(root, "code", &code);
    json_decref(root);
    int err;
    enum sl_etcd_json_remedy remedy = remedy_of(status, code, text, &err);
    if (text[0] == '\0') {
        sl_metastore_answer_fail(answer, err, "it answers with status %ld", status);
    } else {
        sl_metastore_answer_fail(answer, err, "%s", text);
    }
    return remedy;
}

int sl_etcd_json_token(const char *body, size_t body_bytes, char *token, size_t token_bytes)
{
    json_t *root = json_loadb(body, body_bytes, JSON_DISABLE_EOF_CHECK, NULL);
    const char *said = json_string_value(json_object_get(root, "token"));
    bool fits = said != NULL && said[0] != '\0' && strlen(said) < token_bytes;
    if (fits) {
        copy_text(said, token, token_bytes);
        fits = strcmp(said, token) == 0;
    }
    json_decref(root);
    return fits ? 0 : SL_ERR_PROTOCOL;
}
