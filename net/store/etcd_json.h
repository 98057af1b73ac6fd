/* Etcd JSON encodes requests and decodes answers of etcd's JSON gateway (etcd 3.4 and later, /v3/).
 * It uses the JSON form of protobuf: 64-bit numbers are strings, bytes are base64, zero fields are
 * omitted. Pure. Any thread; allocates. */
#ifndef SL_NET_STORE_ETCD_JSON_H
#define SL_NET_STORE_ETCD_JSON_H

#include "net/store/metastore.h"

#define SL_ETCD_JSON_PAGE 256 /* items per page of a READ */

/* Treatment of an answer whose status is not 200. */
enum sl_etcd_json_remedy {
    SL_ETCD_JSON_FINAL,
    SL_ETCD_JSON_ELSEWHERE,   /* try another server, or this one later */
    SL_ETCD_JSON_AUTHENTICATE /* the token is invalid or missing */
};

/* *path: static storage, e.g. "/v3/kv/range". *body: the caller frees it. after: for the next page
 * of a READ with is_prefix, the last key of the page before; else NULL. Errors: NO_MEMORY. */
int sl_etcd_json_request(const struct sl_metastore_request *ask, const char *after,
                         const char **path, char **body);

/* Decodes a body with status 200. Items are appended to those of earlier pages. *more: another page
 * follows; false on errors. Errors, with answer->reason: PROTOCOL, TOO_LARGE, NOT_FOUND
 * (LEASE_RENEW: the lease has ended), NO_MEMORY. */
int sl_etcd_json_answer(const struct sl_metastore_request *ask, const char *body, size_t body_bytes,
                        struct sl_metastore_answer *answer, bool *more);

/* Decodes the body of any other status: sets answer->err and reason. */
enum sl_etcd_json_remedy sl_etcd_json_failure(long status, const char *body, size_t body_bytes,
                                              struct sl_metastore_answer *answer);

/* Encode the request and decode the answer of /v3/auth/authenticate. Errors: NO_MEMORY; PROTOCOL
 * (no token, longer than token_bytes, or control characters, which no header may contain). */
int sl_etcd_json_login(const char *user, const char *password, char **body);
int sl_etcd_json_token(const char *body, size_t body_bytes, char *token, size_t token_bytes);

#endif
