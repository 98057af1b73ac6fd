/* What is asked of a store, and answered, in the words of etcd's JSON gateway (etcd 3.4 and later,
 * /v3/; protobuf's JSON: 64-bit numbers are strings, bytes are base64, what is zero is left out).
 * Pure. Any thread; allocates. */
#ifndef SL_PS_METASTORE_ETCD_JSON_H
#define SL_PS_METASTORE_ETCD_JSON_H

#include "ps/metastore/metastore.h"

#define SL_ETCD_JSON_PAGE 256 /* pairs of a READ in one answer; then the next page is asked for */

/* Of an answer with a status other than 200: what may be done about it. */
enum sl_etcd_json_remedy {
    SL_ETCD_JSON_FINAL,
    SL_ETCD_JSON_ELSEWHERE,   /* another server of the cluster may do it, or this one later */
    SL_ETCD_JSON_AUTHENTICATE /* the token is no good, or lacks */
};

/* *path: static storage, "/v3/kv/range". *body: the caller's to free. after: of a READ with
 * is_prefix: the last key of the page before, or NULL. Errors: NO_MEMORY. */
int sl_etcd_json_request(const struct sl_metastore_request *ask, const char *after,
                         const char **path, char **body);

/* Reads the body of an answer with status 200 into answer; pairs are added to those of the pages
 * before. *more: another page follows. Errors, with answer->reason: PROTOCOL, TOO_LARGE, NOT_FOUND
 * (KEEP: the lease has ended), NO_MEMORY. */
int sl_etcd_json_answer(const struct sl_metastore_request *ask, const char *body, size_t body_bytes,
                        struct sl_metastore_answer *answer, bool *more);

/* Reads the body of any other answer: sets answer->err and reason. */
enum sl_etcd_json_remedy sl_etcd_json_failure(long status, const char *body, size_t body_bytes,
                                              struct sl_metastore_answer *answer);

/* The request and the answer of /v3/auth/authenticate. Errors: NO_MEMORY; PROTOCOL (no token, or
 * one that is no header's: longer than token_bytes, or with control characters). */
int sl_etcd_json_login(const char *user, const char *password, char **body);
int sl_etcd_json_token(const char *body, size_t body_bytes, char *token, size_t token_bytes);

#endif
