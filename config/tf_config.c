#include "config/tf_config.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "core/limits.h"

/* Exceeds SL_LIMIT_WORKERS hosts of usual length, and the limits of an environment. */
#define TEXT_BYTES_MAX ((size_t)8 << 20)

struct parser {
    struct sl_reason *reason;
    uint32_t chief_count;
    struct sl_tf_config config;
};

#define refuse(parser, ...)                                                                        \
    sl_reason_fail((parser)->reason, SL_ERR_INVALID, "TF_CONFIG: " __VA_ARGS__)

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

/* Calls `take` for each host of cluster.<job>, which must be an array of strings. */
static int each_host(struct parser *parser, const char *job, const json_t *hosts,
                     int (*take)(struct parser *parser, const char *source, const char *host))
{
    if (!json_is_array(hosts)) {
        return refuse(parser, "\"cluster\".\"%s\" is %s; expected an array of \"host:port\"", job,
                      type_name(hosts));
    }
    char source[64];
    snprintf(source, sizeof source, "TF_CONFIG \"cluster\".\"%s\"", job);
    size_t index;
    const json_t *host;
    json_array_foreach(hosts, index, host)
    {
        if (!json_is_string(host)) {
            return refuse(parser, "\"cluster\".\"%s\"[%zu] is %s; expected \"host:port\"", job,
                          index, type_name(host));
        }
        int err = take(parser, source, json_string_value(host));
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

static int take_ps(struct parser *parser, const char *source, const char *host)
{
    return sl_hosts_append(&parser->config.ps, host, source, parser->reason);
}

static int take_worker(struct parser *parser, const char *source, const char *host)
{
    if (parser->config.worker_count == SL_LIMIT_WORKERS) {
        return sl_reason_fail(parser->reason, SL_ERR_TOO_LARGE, "TF_CONFIG: more than %d workers",
                              SL_LIMIT_WORKERS);
    }
    int err = sl_hosts_check_worker(host, source, parser->reason);
    if (err == 0) {
        parser->config.worker_count++;
    }
    return err;
}

static int take_chief(struct parser *parser, const char *source, const char *host)
{
    if (parser->chief_count == 1) {
        return refuse(parser, "\"cluster\".\"chief\" names more than one host; expected one");
    }
    parser->chief_count = 1;
    return take_worker(parser, source, host);
}

static int parse_cluster(struct parser *parser, const json_t *cluster)
{
    if (!json_is_object(cluster)) {
        return refuse(parser, "\"cluster\" is %s; expected an object", type_name(cluster));
    }
    const char *job;
    json_t *hosts;
    json_object_foreach((json_t *)cluster, job, hosts)
    {
        int err = 0;
        if (strcmp(job, "ps") == 0) {
            err = each_host(parser, job, hosts, take_ps);
        } else if (strcmp(job, "worker") == 0) {
            err = each_host(parser, job, hosts, take_worker);
        } else if (strcmp(job, "chief") == 0) {
            err = each_host(parser, job, hosts, take_chief);
        } else if (strcmp(job, "evaluator") != 0) { /* an evaluator is not part of the cluster */
            err = refuse(parser, "\"cluster\" has a job \"%.40s\"; accepted are ps, worker, chief",
                         job);
        }
        if (err != 0) {
            return err;
        }
    }
    return 0;
}

/* Sets the role, the number of tasks of this type and, for workers, how many precede them. */
static int parse_task_type(struct parser *parser, const char *type, uint32_t *count,
                           uint32_t *first)
{
    const struct sl_tf_config *config = &parser->config;
    *first = 0;
    if (strcmp(type, "ps") == 0) {
        parser->config.role = SL_CLUSTER_PS;
        *count = config->ps.count;
        return 0;
    }
    parser->config.role = SL_CLUSTER_WORKER;
    if (strcmp(type, "chief") == 0) {
        *count = parser->chief_count;
        return 0;
    }
    if (strcmp(type, "worker") == 0) {
        *first = parser->chief_count;
        *count = config->worker_count - parser->chief_count;
        return 0;
    }
    return refuse(parser, "\"task\".\"type\" is \"%.40s\"; accepted are ps, worker, chief", type);
}

static int parse_task(struct parser *parser, const json_t *task)
{
    if (!json_is_object(task)) {
        return refuse(parser, "\"task\" is %s; expected an object", type_name(task));
    }
    const json_t *type = json_object_get(task, "type");
    const json_t *index = json_object_get(task, "index");
    if (!json_is_string(type)) {
        return refuse(parser, "\"task\".\"type\" is %s; expected \"ps\", \"worker\" or \"chief\"",
                      type == NULL ? "missing" : type_name(type));
    }
    if (!json_is_integer(index)) {
        return refuse(parser, "\"task\".\"index\" is %s; expected a whole number",
                      index == NULL ? "missing" : type_name(index));
    }
    uint32_t count = 0, first = 0;
    const char *job = json_string_value(type);
    if (strcmp(job, "evaluator") == 0) {
        parser->config.is_evaluator = true;
        return 0;
    }
    int err = parse_task_type(parser, job, &count, &first);
    if (err != 0) {
        return err;
    }
    const json_int_t value = json_integer_value(index);
    if (value < 0 || value >= (json_int_t)count) {
        return refuse(parser,
                      "\"task\".\"index\" is %" JSON_INTEGER_FORMAT
                      ", but \"cluster\".\"%s\" names %u hosts; accepted is an index into them",
                      value, job, count);
    }
    parser->config.task_index = first + (uint32_t)value;
    parser->config.has_task = true;
    return 0;
}

static int parse_document(struct parser *parser, const json_t *document)
{
    if (!json_is_object(document)) {
        return refuse(parser, "it is %s; expected {\"cluster\": {...}, \"task\": {...}}",
                      type_name(document));
    }
    const json_t *cluster = json_object_get(document, "cluster");
    if (cluster == NULL) {
        return refuse(parser,
                      "\"cluster\" is missing; expected {\"ps\": [...], \"worker\": [...]}");
    }
    int err = parse_cluster(parser, cluster);
    const json_t *task = json_object_get(document, "task");
    return err != 0 || task == NULL ? err : parse_task(parser, task);
}

bool sl_tf_config_is_unset(const char *text)
{
    static const char blanks[] = " \t\r\n";
    const char *at = text == NULL ? "" : text + strspn(text, blanks);
    if (*at == '{') {
        at += 1 + strspn(at + 1, blanks);
        at += *at == '}' ? 1 + strspn(at + 1, blanks) : 0;
        return *at == '\0' && at[-1] != '{';
    }
    return *at == '\0';
}

int sl_tf_config_parse(const char *text, struct sl_tf_config *out, struct sl_reason *reason)
{
    struct parser parser = {.reason = reason};
    const size_t bytes = strnlen(text, TEXT_BYTES_MAX + 1);
    if (bytes > TEXT_BYTES_MAX) {
        return sl_reason_fail(reason, SL_ERR_TOO_LARGE, "TF_CONFIG: longer than %zu bytes",
                              TEXT_BYTES_MAX);
    }
    json_error_t error;
    json_t *document = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    if (document == NULL) {
        return refuse(&parser, "not valid JSON: line %d, column %d: %s", error.line, error.column,
                      error.text);
    }
    int err = parse_document(&parser, document);
    json_decref(document);
    if (err != 0) {
        sl_tf_config_fini(&parser.config);
        return err;
    }
    *out = parser.config;
    return 0;
}

void sl_tf_config_fini(struct sl_tf_config *config)
{
    sl_hosts_fini(&config->ps);
}
