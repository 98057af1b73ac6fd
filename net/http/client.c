#include "net/http/client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"

struct sl_http_client {
    CURL *curl;
    size_t body_bytes_max;
    char *body; /* of the last answer; memory is reused */
    size_t body_bytes, body_max;
    bool is_too_large;
    char error[CURL_ERROR_SIZE];
};

static size_t on_body(char *from, size_t size, size_t count, void *ctx)
{
    struct sl_http_client *http = ctx;
    size_t bytes = size * count;
    if (bytes > http->body_bytes_max - http->body_bytes) {
        http->is_too_large = true;
        return 0;
    }
    if (http->body_bytes + bytes > http->body_max) {
        size_t max = 2 * (http->body_bytes + bytes);
        char *grown = realloc(http->body, max);
        if (grown == NULL) {
            return 0;
        }
        http->body = grown;
        http->body_max = max;
    }
    memcpy(http->body + http->body_bytes, from, bytes);
    http->body_bytes += bytes;
    return bytes;
}

/* NULL: no memory. */
static struct curl_slist *make_headers(const struct sl_http_request *request)
{
    struct curl_slist *headers = curl_slist_append(NULL, "Content-Type: application/json");
    struct curl_slist *all = headers;
    if (headers != NULL && request->authorization != NULL && request->authorization[0] != '\0') {
        char *line;
        all = NULL;
        if (asprintf(&line, "Authorization: %s", request->authorization) >= 0) {
            all = curl_slist_append(headers, line);
            free(line);
        }
    }
    if (all == NULL) {
        curl_slist_free_all(headers);
    }
    return all;
}

static void set_request(struct sl_http_client *http, const struct sl_http_request *request)
{
    static const char *const METHODS[] = {[SL_HTTP_GET] = "GET",
                                          [SL_HTTP_PUT] = "PUT",
                                          [SL_HTTP_POST] = "POST",
                                          [SL_HTTP_DELETE] = "DELETE"};
    CURL *curl = http->curl;
    (void)curl_easy_setopt(curl, CURLOPT_URL, request->url);
    if (request->method == SL_HTTP_PUT || request->method == SL_HTTP_POST) {
        (void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body_bytes);
        (void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, request->body);
    } else {
        (void)curl_easy_setopt(curl, CURLOPT_HTTPGET, 1L);
    }
    (void)curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, METHODS[request->method]);
    (void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
}

int sl_http_client_exchange(struct sl_http_client *http, const struct sl_http_request *request,
                            struct sl_http_answer *answer)
{
    sl_assert(request->timeout_ms > 0); /* for curl, 0 means no timeout */
    http->body_bytes = 0;
    http->is_too_large = false;
    http->error[0] = '\0';
    struct curl_slist *headers = make_headers(request);
    if (headers == NULL) {
        (void)snprintf(http->error, sizeof http->error, "no memory for a request");
        return SL_ERR_NO_MEMORY;
    }
    set_request(http, request);
    (void)curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(http->curl);
    (void)curl_easy_setopt(http->curl, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(headers);
    if (code == CURLE_OK) {
        (void)curl_easy_getinfo(http->curl, CURLINFO_RESPONSE_CODE, &answer->status);
        answer->body = http->body_bytes == 0 ? "" : http->body;
        answer->body_bytes = http->body_bytes;
        char *url = NULL;
        (void)curl_easy_getinfo(http->curl, CURLINFO_REDIRECT_URL, &url);
        answer->redirection = url;
        return 0;
    }
    if (http->is_too_large) {
        (void)snprintf(http->error, sizeof http->error, "its answer has more than %zu bytes",
                       http->body_bytes_max);
        return SL_ERR_TOO_LARGE;
    }
    if (http->error[0] == '\0') {
        (void)snprintf(http->error, sizeof http->error, "%s", curl_easy_strerror(code));
    }
    return code == CURLE_OPERATION_TIMEDOUT ? SL_ERR_DEADLINE : SL_ERR_IO;
}

const char *sl_http_client_error(const struct sl_http_client *http)
{
    return http->error;
}

static void set_options(struct sl_http_client *http, const struct sl_http_client_options *options)
{
    CURL *curl = http->curl;
    (void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    (void)curl_easy_setopt(curl, CURLOPT_PROXY, ""); /* ignores http_proxy */
    (void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    (void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, options->tls ? "https" : "http");
    (void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)options->connect_ms);
    (void)curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, http->error);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
    (void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, http);
    if (options->tls && options->authority != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_CAINFO, options->authority);
    }
    if (options->tls && options->certificate != NULL) {
        (void)curl_easy_setopt(curl, CURLOPT_SSLCERT, options->certificate);
        (void)curl_easy_setopt(curl, CURLOPT_SSLKEY, options->key);
    }
}

int sl_http_client_create(const struct sl_http_client_options *options, struct sl_http_client **out)
{
    struct sl_http_client *http = calloc(1, sizeof *http);
    if (http == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    http->body_bytes_max = options->body_bytes_max;
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK ||
        (http->curl = curl_easy_init()) == NULL) {
        free(http);
        return SL_ERR_NO_MEMORY;
    }
    set_options(http, options);
    *out = http;
    return 0;
}

void sl_http_client_destroy(struct sl_http_client **http)
{
    struct sl_http_client *gone = *http;
    *http = NULL;
    curl_easy_cleanup(gone->curl);
    free(gone->body);
    free(gone);
}
