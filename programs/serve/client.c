#include "programs/serve/client.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli.h"
#include "config/number.h"
#include "config/secret.h"
#include "core/array.h"
#include "core/clock.h"
#include "objects/catalogue/manifest.h"
#include "programs/serve/base/request.h"

#define SLOTS_MAX              1024 /* requests at one time */
#define ROWS_MAX               65536
#define STATUSES               600   /* of HTTP; 0: no answer */
#define DESCRIBE_MS            60000 /* the description of a cold model is read from its storage */

#define FAIL(client, err, ...) sl_reason_fail(&(client)->reason, (err), __VA_ARGS__)

enum mode { ONE, RATE, MAX };

/* A model with a batch size, and the request for it. */
struct model {
    char name[SL_OBJECTS_NAME_BYTES];
    uint32_t rows;
    double weight; /* of the Zipf distribution: the sum up to this model */
    char *body;
    size_t body_bytes;
    struct curl_slist *headers;
};

struct line {
    uint32_t model;
    uint64_t interval_ns;
};

/* A request in progress. */
struct slot {
    CURL *curl; /* NULL: not used yet */
    FILE *out;  /* writes the answer */
    char *answer;
    size_t answer_bytes;
    uint64_t begun_ns;
    uint32_t id, model;
    bool busy;
};

struct client {
    struct {
        const char *address, *list, *token_file, *authority;
        int mode;
        uint32_t concurrency, timeout_ms, request_count;
        double zipf;
        bool json;
    } flags;
    uint64_t random;
    struct line *lines;
    struct model *models;
    uint32_t line_count, line_capacity, model_count, model_capacity;
    char token[SL_SECRET_BYTES_MAX + 32]; /* the header; "": none */
    CURLM *multi;
    struct slot slots[SLOTS_MAX];
    uint32_t slot_count, busy_count;
    double *latencies_ms; /* of answers */
    uint32_t answer_count, statuses[STATUSES];
    double phases_ms[3]; /* sums: queue, load, compute */
    struct sl_reason reason;
};

/* Uniform in [0, 1): splitmix64. */
static double serve_client_draw(struct client *client)
{
    uint64_t x = client->random += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return (double)((x ^ x >> 31) >> 11) * 0x1p-53;
}

/* ---- the list ---- */

/* Finds or adds a model. */
static int find_model(struct client *client, const char *name, uint32_t rows, uint32_t *out)
{
    for (*out = 0; *out < client->model_count; ++*out) {
        const struct model *model = &client->models[*out];
        if (strcmp(model->name, name) == 0 && model->rows == rows) {
            return 0;
        }
    }
    if (!sl_array_make_room(&client->models, &client->model_capacity, *out,
                            sizeof *client->models)) {
        return SL_ERR_NO_MEMORY;
    }
    struct model *model = &client->models[client->model_count++];
    *model = (struct model){.rows = rows, .weight = pow(client->model_count, -client->flags.zipf)};
    model->weight += *out > 0 ? model[-1].weight : 0;
    memcpy(model->name, name, strlen(name) + 1);
    return 0;
}

/* Returns why the line is bad; "": it is not. */
static const char *read_line(struct client *client, const char *text)
{
    char name[SL_OBJECTS_NAME_BYTES], rows_text[16], interval[32], rest[2], *serve_client_end;
    struct line line;
    uint32_t rows;
    if (sscanf(text, " %191[^, \t\r\n] , %15[^, \t\r\n] , %31[^, \t\r\n]%1s", name, rows_text,
               interval, rest) != 3) {
        return "accepted is: model_name, batch_size, send_interval";
    }
    const double seconds = strtod(interval, &serve_client_end);
    if (!sl_number_parse_u32(rows_text, 1, ROWS_MAX, &rows)) {
        return "the batch size is not a number from 1 to 65536";
    }
    if (*serve_client_end != '\0' || !(seconds >= 0 && seconds <= 86400)) {
        return "the interval is not a number of seconds from 0 to 86400";
    }
    line.interval_ns = (uint64_t)(seconds * 1e9);
    if (find_model(client, name, rows, &line.model) != 0 ||
        !sl_array_make_room(&client->lines, &client->line_capacity, client->line_count,
                            sizeof line)) {
        return "no memory";
    }
    client->lines[client->line_count++] = line;
    return "";
}

static int read_list(struct client *client)
{
    FILE *file = fopen(client->flags.list, "re");
    if (file == NULL) {
        return FAIL(client, SL_ERR_NOT_FOUND, "%s: %s", client->flags.list, strerror(errno));
    }
    int err = 0;
    char text[1024];
    for (uint32_t number = 1; err == 0 && fgets(text, sizeof text, file) != NULL; number++) {
        const bool is_blank = text[strspn(text, " \t\r\n")] == '\0';
        const char *why = number == 1 || is_blank ? "" : read_line(client, text);
        if (*why != '\0') {
            err = FAIL(client, SL_ERR_INVALID, "%s:%u: %s", client->flags.list, number, why);
        }
    }
    (void)fclose(file);
    if (err == 0 && client->line_count == 0) {
        err = FAIL(client, SL_ERR_INVALID, "%s has no request below its title line",
                   client->flags.list);
    }
    return err;
}

/* ---- HTTP ---- */

static int serve_client_prepare(struct client *client, struct slot *slot, const char *model,
                                const char *suffix, struct curl_slist *headers, uint32_t timeout_ms)
{
    char url[2048];
    slot->curl = slot->curl != NULL ? slot->curl : curl_easy_init();
    free(slot->answer);
    slot->out = open_memstream(&slot->answer, &slot->answer_bytes);
    char *escaped = slot->curl != NULL ? curl_easy_escape(slot->curl, model, 0) : NULL;
    if (slot->out == NULL || escaped == NULL) {
        return FAIL(client, SL_ERR_NO_MEMORY, "no memory for a request");
    }
    (void)snprintf(url, sizeof url, "%s%s/v2/models/%s%s",
                   strstr(client->flags.address, "://") != NULL ? "" : "http://",
                   client->flags.address, escaped, suffix);
    curl_free(escaped);
    curl_easy_setopt(slot->curl, CURLOPT_URL, url);
    curl_easy_setopt(slot->curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(slot->curl, CURLOPT_WRITEDATA, slot->out);
    curl_easy_setopt(slot->curl, CURLOPT_PRIVATE, slot);
    curl_easy_setopt(slot->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(slot->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms + 1000);
    if (client->flags.authority != NULL) {
        curl_easy_setopt(slot->curl, CURLOPT_CAINFO, client->flags.authority);
    }
    return 0;
}

/* Ends the answer; returns its status, 0: there is none. */
static long serve_client_finish(struct slot *slot, CURLcode code)
{
    long status = 0;
    (void)fclose(slot->out);
    curl_easy_getinfo(slot->curl, CURLINFO_RESPONSE_CODE, &status);
    return code == CURLE_OK && status > 0 && status < STATUSES ? status : 0;
}

static struct curl_slist *make_headers(const struct client *client, uint32_t timeout_ms)
{
    char timeout[64];
    (void)snprintf(timeout, sizeof timeout, "Starling-Timeout-Ms: %u", timeout_ms);
    struct curl_slist *headers = curl_slist_append(curl_slist_append(NULL, timeout), "Expect:");
    return client->token[0] != '\0' ? curl_slist_append(headers, client->token) : headers;
}

/* Completes an input of the description for a request; returns the size of its elements, and sets
 * the number of bytes; 0: this client cannot make it. */
static uint32_t complete_input(json_t *input, uint32_t rows, uint64_t *bytes)
{
    json_t *shape = json_object_get(input, "shape");
    const char *datatype = json_string_value(json_object_get(input, "datatype"));
    uint32_t type;
    const uint32_t element_bytes = datatype != NULL && sl_serve_request_type(datatype, &type)
                                       ? sl_objects_type_bytes(type)
                                       : 0;
    *bytes = element_bytes;
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_int_t length = json_integer_value(json_array_get(shape, i));
        const json_int_t chosen = i == 0 ? rows : length > 0 ? length : 1; /* -1: any */
        (void)json_array_set_new(shape, i, json_integer(chosen));
        if (__builtin_mul_overflow(*bytes, (uint64_t)chosen, bytes) ||
            *bytes > SL_SERVE_BODY_BYTES_MAX) {
            return 0;
        }
    }
    (void)json_object_set_new(input, "parameters",
                              json_pack("{s:I}", "binary_data_size", (json_int_t)*bytes));
    return element_bytes;
}

/* Random bytes: floats in [-1, 1), integers below 100. */
static void put_values(struct client *client, FILE *file, const char *datatype,
                       uint32_t element_bytes, uint64_t bytes)
{
    for (; bytes > 0; bytes -= element_bytes) {
        const double f64 = 2 * serve_client_draw(client) - 1;
        const float f32 = (float)f64;
        const uint64_t whole = datatype[0] == 'B' ? f64 < 0 : (uint64_t)(fabs(f64) * 100);
        const void *value = strcmp(datatype, "FP32") == 0   ? (const void *)&f32
                            : strcmp(datatype, "FP64") == 0 ? (const void *)&f64
                                                            : (const void *)&whole;
        (void)fwrite(value, 1, element_bytes, file);
    }
}

/* Asks for the inputs of a model, and makes its request. */
static int make_request(struct client *client, struct model *model)
{
    struct slot *slot = &client->slots[0];
    struct curl_slist *headers = make_headers(client, DESCRIBE_MS);
    int err = serve_client_prepare(client, slot, model->name, "", headers, DESCRIBE_MS);
    if (err != 0) {
        return err;
    }
    const CURLcode code = curl_easy_perform(slot->curl);
    const long status = serve_client_finish(slot, code);
    curl_slist_free_all(headers);
    json_t *root = status == 200 ? json_loadb(slot->answer, slot->answer_bytes, 0, NULL) : NULL;
    json_t *inputs = json_object_get(root, "inputs");
    const size_t count = json_array_size(inputs);
    FILE *file = open_memstream(&model->body, &model->body_bytes);
    uint32_t sizes[SL_SERVE_TENSORS_MAX];
    uint64_t bytes[SL_SERVE_TENSORS_MAX];
    if (count == 0 || count > SL_SERVE_TENSORS_MAX || file == NULL) {
        return FAIL(client, SL_ERR_INVALID, "%s: model %s: status %ld: %.300s",
                    client->flags.address, model->name, status,
                    code != CURLE_OK ? curl_easy_strerror(code) : slot->answer);
    }
    for (size_t i = 0; i < count; i++) {
        sizes[i] = complete_input(json_array_get(inputs, i), model->rows, &bytes[i]);
        if (sizes[i] == 0) {
            return FAIL(client, SL_ERR_INVALID,
                        "model %s: input %zu is too large, or of a type "
                        "that this client lacks",
                        model->name, i);
        }
    }
    json_t *request =
        json_pack("{s:{s:b},s:O}", "parameters", "binary_data_output", 1, "inputs", inputs);
    char json_bytes[64];
    (void)json_dumpf(request, file, JSON_COMPACT);
    (void)snprintf(json_bytes, sizeof json_bytes, "Inference-Header-Content-Length: %ld",
                   ftell(file));
    model->headers = curl_slist_append(make_headers(client, client->flags.timeout_ms), json_bytes);
    for (size_t i = 0; i < count; i++) {
        const json_t *input = json_array_get(inputs, i);
        put_values(client, file, json_string_value(json_object_get(input, "datatype")), sizes[i],
                   bytes[i]);
    }
    json_decref(request);
    json_decref(root);
    return fclose(file) == 0 ? 0 : FAIL(client, SL_ERR_NO_MEMORY, "no memory for a request");
}

/* ---- requests ---- */

static int begin(struct client *client, uint32_t id)
{
    struct slot *slot = client->slots;
    while (slot->busy) {
        slot++;
    }
    slot->id = id;
    slot->model = client->lines[id % client->line_count].model;
    if (client->flags.zipf > 0) {
        const double at =
            serve_client_draw(client) * client->models[client->model_count - 1].weight;
        for (slot->model = 0; client->models[slot->model].weight <= at;) {
            slot->model++;
        }
    }
    const struct model *model = &client->models[slot->model];
    const int err = serve_client_prepare(client, slot, model->name, "/infer", model->headers,
                                         client->flags.timeout_ms);
    if (err != 0) {
        return err;
    }
    curl_easy_setopt(slot->curl, CURLOPT_POSTFIELDS, model->body);
    curl_easy_setopt(slot->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)model->body_bytes);
    slot->busy = true;
    client->busy_count++;
    slot->begun_ns = sl_clock_now_ns(sl_clock_system());
    (void)curl_multi_add_handle(client->multi, slot->curl);
    return 0;
}

static void serve_client_end(struct client *client, struct slot *slot, CURLcode code)
{
    static const char *const names[] = {"queue_us", "load_us", "compute_us"};
    const double ms = (double)(sl_clock_now_ns(sl_clock_system()) - slot->begun_ns) / 1e6;
    const char *model = client->models[slot->model].name;
    const long status = serve_client_finish(slot, code);
    client->statuses[status]++;
    if (status == 200) { /* the answer begins with JSON */
        json_t *root = json_loadb(slot->answer, slot->answer_bytes, JSON_DISABLE_EOF_CHECK, NULL);
        const json_t *times = json_object_get(root, "parameters");
        for (size_t i = 0; i < 3; i++) {
            client->phases_ms[i] += json_number_value(json_object_get(times, names[i])) / 1e3;
        }
        json_decref(root);
        client->latencies_ms[client->answer_count++] = ms;
    }
    if (!client->flags.json && status == 200) {
        (void)printf("%u %s Latency: %f ms\n", slot->id, model, ms);
    } else if (!client->flags.json) {
        (void)printf("%u %s Error: %ld %.300s\n", slot->id, model, status,
                     code != CURLE_OK ? curl_easy_strerror(code) : slot->answer);
    }
    (void)curl_multi_remove_handle(client->multi, slot->curl);
    slot->busy = false;
    client->busy_count--;
}

static int run(struct client *client)
{
    uint64_t due_ns = sl_clock_now_ns(sl_clock_system());
    for (uint32_t sent = 0; sent < client->flags.request_count || client->busy_count > 0;) {
        const uint64_t now_ns = sl_clock_now_ns(sl_clock_system());
        const bool left =
            sent < client->flags.request_count && client->busy_count < client->slot_count;
        if (left && (client->flags.mode != RATE || now_ns >= due_ns)) {
            due_ns += client->lines[sent % client->line_count].interval_ns;
            const int err = begin(client, sent++);
            if (err != 0) {
                return err;
            }
            continue;
        }
        const uint64_t wait_ns = left ? due_ns - now_ns : SL_CLOCK_NS_PER_S;
        int count;
        (void)curl_multi_poll(client->multi, NULL, 0, (int)(wait_ns / SL_CLOCK_NS_PER_MS), NULL);
        (void)curl_multi_perform(client->multi, &count);
        for (CURLMsg *message; (message = curl_multi_info_read(client->multi, &count)) != NULL;) {
            struct slot *slot;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&slot);
            serve_client_end(client, slot, message->data.result);
        }
    }
    return 0;
}

/* ---- results ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(const struct client *client, double share)
{
    const uint32_t count = client->answer_count;
    const uint32_t rank = (uint32_t)ceil(share * count);
    return count == 0 ? 0 : client->latencies_ms[rank > 0 ? rank - 1 : 0];
}

static void print_results(struct client *client, double seconds)
{
    static const struct {
        const char *name;
        double share;
    } quantiles[] = {
        {"p50_ms", 0.5}, {"p90_ms", 0.9}, {"p99_ms", 0.99}, {"p999_ms", 0.999}, {"max_ms", 1}};
    static const char *const phases[] = {"queue_mean_ms", "load_mean_ms", "compute_mean_ms"};
    const uint32_t count = client->answer_count;
    const double divisor = count > 0 ? count : 1;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += client->latencies_ms[i];
        squares += client->latencies_ms[i] * client->latencies_ms[i];
    }
    const double mean = sum / divisor;
    const double stdev = count > 1 ? sqrt(fmax(squares - mean * sum, 0) / (count - 1)) : 0;
    json_t *errors = json_object();
    json_t *root =
        json_pack("{s:i,s:i,s:o,s:f,s:f,s:f,s:f}", "requests", client->flags.request_count,
                  "answers", count, "errors", errors, "seconds", seconds, "answers_per_s",
                  count / seconds, "mean_ms", mean, "stdev_ms", stdev);
    for (uint32_t status = 0; status < STATUSES; status++) {
        char text[8];
        (void)snprintf(text, sizeof text, "%u", status);
        if (status != 200 && client->statuses[status] > 0) {
            json_object_set_new(errors, text, json_integer(client->statuses[status]));
        }
    }
    qsort(client->latencies_ms, count, sizeof *client->latencies_ms, by_value);
    for (size_t i = 0; i < sizeof quantiles / sizeof quantiles[0]; i++) {
        json_object_set_new(root, quantiles[i].name,
                            json_real(quantile(client, quantiles[i].share)));
    }
    for (size_t i = 0; i < sizeof phases / sizeof phases[0]; i++) {
        json_object_set_new(root, phases[i], json_real(client->phases_ms[i] / divisor));
    }
    if (!client->flags.json) {
        (void)printf("Average Latency: %f (%f)\n", mean, stdev);
    }
    (void)json_dumpf(root, stdout,
                     (client->flags.json ? 0 : JSON_INDENT(2)) | JSON_REAL_PRECISION(9));
    (void)putchar('\n');
    json_decref(root);
}

/* ---- start ---- */

static int read_token(struct client *client)
{
    struct sl_secret token;
    const int err = client->flags.token_file != NULL
                        ? sl_secret_read(client->flags.token_file, &token, &client->reason)
                        : 0;
    if (err == 0 && client->flags.token_file != NULL) {
        (void)snprintf(client->token, sizeof client->token, "Authorization: Bearer %.*s",
                       (int)token.byte_count, (const char *)token.bytes);
        explicit_bzero(&token, sizeof token);
    }
    return err;
}

static int run_list(struct client *client)
{
    int err = read_list(client);
    err = err != 0 ? err : read_token(client);
    for (uint32_t i = 0; err == 0 && i < client->model_count; i++) {
        err = make_request(client, &client->models[i]);
    }
    if (err != 0) {
        return err;
    }
    client->flags.request_count =
        client->flags.request_count > 0 ? client->flags.request_count : client->line_count;
    client->slot_count = client->flags.mode == ONE   ? 1
                         : client->flags.mode == MAX ? client->flags.concurrency
                                                     : SLOTS_MAX;
    client->latencies_ms = calloc(client->flags.request_count, sizeof *client->latencies_ms);
    client->multi = curl_multi_init();
    if (client->latencies_ms == NULL || client->multi == NULL) {
        return FAIL(client, SL_ERR_NO_MEMORY, "no memory");
    }
    (void)curl_multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)client->slot_count);
    const uint64_t begun_ns = sl_clock_now_ns(sl_clock_system());
    err = run(client);
    if (err == 0) {
        print_results(client, (double)(sl_clock_now_ns(sl_clock_system()) - begun_ns) / 1e9);
    }
    return err == 0 && client->answer_count == 0
               ? FAIL(client, SL_ERR_CLOSED, "no request was answered")
               : err;
}

int sl_serve_client_run(int argc, char **argv)
{
    static struct client client = {.random = 1};
    const struct sl_cli_option options[] = {
        SL_CLI_OPTION(CHOICE, &client.flags.mode, .name = "mode", .choices = "one|rate|max",
                      .preset = "one",
                      .help = "When a request is sent. one: after the answer before; rate: at the "
                              "intervals of the list; max: while fewer than --concurrency run."),
        SL_CLI_OPTION(U32, &client.flags.concurrency, .name = "concurrency", .least = 1,
                      .most = SLOTS_MAX, .preset = "16",
                      .help = "Requests at one time, with --mode max."),
        SL_CLI_OPTION(U32, &client.flags.request_count, .name = "requests", .least = 0, .most = 1e8,
                      .help = "Number of requests; the list is repeated. 0: as many as it has."),
        SL_CLI_OPTION(F64, &client.flags.zipf, .name = "zipf", .least = 0, .most = 10,
                      .help = "Draw the models of the list by a Zipf distribution with this "
                              "exponent, the first one most often. 0: as listed."),
        SL_CLI_OPTION(U64, &client.random, .name = "seed", .help = "Of the inputs, and of --zipf."),
        SL_CLI_OPTION(U32, &client.flags.timeout_ms, .name = "timeout-ms", .least = 1,
                      .most = 3600000, .preset = "1000", .help = "Of each request."),
        SL_CLI_OPTION(STRING, &client.flags.token_file, .name = "http-token-file",
                      .metavar = "FILE", .help = "The server's token."),
        SL_CLI_OPTION(STRING, &client.flags.authority, .name = "tls-ca", .metavar = "FILE",
                      .help = "Authority of a server at https://HOST:PORT, PEM."),
        SL_CLI_OPTION(BOOL, &client.flags.json, .name = "json",
                      .help = "Print the results as JSON."),
    };
    struct sl_cli_words words = {
        .least = 2, .most = 2, .missing = "a list and an address are missing, before the flags"};
    const struct sl_cli cli = {.program = "starling-serve client",
                               .summary = "Sends the requests of a list, and prints latencies.",
                               .usage = "request_list.txt HOST:PORT [options]",
                               .words = &words,
                               .options = options,
                               .option_count = sizeof options / sizeof options[0]};
    const int result = sl_cli_parse(&cli, argc, argv, &client.reason);
    if (result != SL_CLI_RUN) {
        return sl_cli_exit(&cli, result, &client.reason);
    }
    client.flags.list = words.items[0];
    client.flags.address = words.items[1];
    (void)curl_global_init(CURL_GLOBAL_DEFAULT);
    return sl_cli_end(&cli, run_list(&client), &client.reason);
}
