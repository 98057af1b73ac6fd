/* starling-objects publishes files as versions of objects, fetches them, and shows them. */
#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <starling_objects.h>

#include "config/number.h"
#include "config/reload.h"
#include "config/settings_cli.h"
#include "core/clock.h"
#include "core/end_signals.h"
#include "core/limits.h"
#include "core/log.h"
#include "core/notify.h"
#include "net/store/address.h"
#include "net/tcp/tls.h"
#include "objects/node/node.h"
#include "programs/objects/example.h"
#include "programs/objects/files_in.h"
#include "programs/objects/files_out.h"

#define PROGRAM    "starling-objects"
#define LENGTH(of) (uint32_t)(sizeof(of) / sizeof((of)[0]))
#define POLL_MS    200
#define KEPT_MS    10000 /* then the log says what is waited for */

static struct {
    const char *name, *endpoints, *tables;
    uint64_t timeout_ns;
    size_t rate_bytes;
    bool json, as_bytes, staleness, followers;
    const char *directory, *host;
    bool agent;
    const char *agent_name, *follow, *keep;
    uint64_t pin_warn_ns;
    size_t pool_bytes;
    uint32_t keep_versions, replicas;
    int origin; /* index of "caller|host|ps" */
} flags;

static struct sl_settings settings;

/* Names of --follow or --keep, with commas between them; zero at first. They outlive the node. */
static struct names {
    char *text; /* allocated, for the life of the process */
    const char *items[SL_LIMIT_OBJECTS_FOLLOWS];
    uint32_t count;
} follow, keep;

/* One run of the program. */
struct run {
    const struct command *command;
    struct sl_cli_words words;
    char name[SL_OBJECTS_NAME_BYTES]; /* of words[0], NAME[@V] */
    uint64_t version;                 /* 0: none given */
    uint32_t timeout_ms;
    struct sl_objects *objects;
    struct sl_reason reason;
};

struct command {
    const char *name, *usage, *summary;
    uint32_t words_least, words_most;
    bool takes_version;
    int (*run)(struct run *run);
};

static const struct sl_cli_option options[] = {
    SL_CLI_OPTION(STRING, &flags.name, .name = "name", .metavar = "HOST:PORT",
                  .help = "Where this process listens; port 0: a free one. Default: on loopback if "
                          "the catalogue is there, else this host's address."),
    SL_CLI_OPTION(STRING, &flags.endpoints, .name = "endpoints", .metavar = "URI,...",
                  .help = "Transports, such as tcp://10.0.0.1:0 for TCP alone. Default: shared "
                          "memory, RDMA and TCP."),
    SL_CLI_OPTION(DURATION, &flags.timeout_ns, .name = "timeout", .metavar = "TIME", .least = 0.001,
                  .most = 3600, .preset = "60s",
                  .help = "Deadline of a request, and of all of a get."),
    SL_CLI_OPTION(CHOICE, &flags.origin, .name = "origin", .choices = "caller|host|ps",
                  .help = "Of put: caller: serve from the memory that the files were read into; "
                          "host: from the node's pool, after a copy; ps: keepers store and serve "
                          "them, and put ends."),
    SL_CLI_OPTION(STRING, &flags.directory, .name = "dir", .metavar = "DIR",
                  .help = "Of serve: be a keeper, which stores what is put with --origin ps below "
                          "DIR. DIR is created. With --agent and --catalogue only what is put with "
                          "--origin host is stored."),
    SL_CLI_OPTION(SIZE, &flags.pool_bytes, .name = "pool-memory",
                  .help = "Of serve: memory for the versions that it serves. Default: 1G."),
    SL_CLI_OPTION(BOOL, &flags.agent, .name = "agent",
                  .help = "Of serve: be the agent of this host: processes of this user read "
                          "versions in its memory, which is touched at the start."),
    SL_CLI_OPTION(STRING, &flags.agent_name, .name = "agent-name", .metavar = "NAME",
                  .help = "Of serve --agent: its name, for several agents of one host. Of watch: "
                          "the agent to ask. Default: default."),
    SL_CLI_OPTION(STRING, &flags.follow, .name = "follow", .metavar = "NAME,...",
                  .help = "Of serve --agent: fetch every new version of these names, also before "
                          "the first reader comes."),
    SL_CLI_OPTION(STRING, &flags.keep, .name = "keep", .metavar = "NAME,...",
                  .help = "Of serve --agent: as --follow, and keep the newest version in memory. "
                          "The address is printed when those that exist are there."),
    SL_CLI_OPTION(DURATION, &flags.pin_warn_ns, .name = "pin-warn", .metavar = "TIME", .least = 0,
                  .most = 1e9, .preset = "600s",
                  .help = "Of serve --agent: warn of a view that a process keeps open for so long. "
                          "0: never."),
    SL_CLI_OPTION(STRING, &flags.host, .name = "host", .metavar = "LABEL",
                  .help = "Processes with the same label are on one host. For tests: by default "
                          "the kernel tells."),
    SL_CLI_OPTION(U32, &flags.keep_versions, .name = "keep-versions", .metavar = "N", .least = 1,
                  .most = SL_LIMIT_OBJECTS_VERSIONS,
                  .help = "Of serve, with the catalogue: versions that are kept of a name, but for "
                          "--origin caller. Default: 3."),
    SL_CLI_OPTION(U32, &flags.replicas, .name = "replicas", .metavar = "N", .most = 15,
                  .help = "Of serve, with the catalogue: keepers that store a version besides the "
                          "first one. Default: 0."),
    SL_CLI_OPTION(STRING, &flags.tables, .name = "tables", .metavar = "TABLE,...",
                  .help = "Of put: instead of files, rows of these tables of a job, which its "
                          "servers publish and serve."),
    SL_CLI_OPTION(BOOL, &flags.as_bytes, .name = "bytes",
                  .help = "Of put: .safetensors files are bytes, not tensors."),
    SL_CLI_OPTION(SIZE, &flags.rate_bytes, .name = "rate",
                  .help = "Bytes per second that other processes read here. Default: no limit."),
    SL_CLI_OPTION(BOOL, &flags.staleness, .name = "staleness",
                  .help = "Of watch: read each version, by the agent of this host if there is "
                          "one, and print at the end how far behind the newest it was."),
    SL_CLI_OPTION(BOOL, &flags.followers, .name = "followers",
                  .help = "Of stat: show also who follows the name, and the version in use there."),
    SL_CLI_OPTION(BOOL, &flags.json, .name = "json", .help = "Print a JSON object a line."),
};

/* The text of the library's last error. */
static int objects_main_failed(struct run *run, int err)
{
    const char *text = sl_objects_last_error();
    return sl_reason_fail(&run->reason, err, "%s", text[0] != '\0' ? text : sl_err_name(err));
}

/* ---- Node ------------------------------------------------------------------------------------ */

/* False: --metadata names no etcd, which could name the catalogue. */
static bool parse_store(struct sl_metastore_address *store)
{
    return settings.objects.metadata != NULL &&
           sl_metastore_address_parse(settings.objects.metadata, store, NULL) == 0 &&
           store->kind == SL_METASTORE_ADDRESS_ETCD;
}

/* NULL: on loopback if that is where the catalogue is, else the host's own address. */
static const char *default_name(void)
{
    struct sl_metastore_address store;
    const bool is_local = settings.objects.catalogue == NULL &&
                          (!parse_store(&store) || sl_metastore_address_is_loopback(&store));
    return is_local ? "127.0.0.1:0" : NULL;
}

static int split(const char *flag, const char *text, struct names *out, struct sl_reason *reason)
{
    out->text = strdup(text != NULL ? text : "");
    if (out->text == NULL) {
        return sl_reason_fail(reason, SL_ERR_NO_MEMORY, "no memory for --%s", flag);
    }
    uint32_t count = 0;
    for (char *rest = out->text, *name; (name = strsep(&rest, ",")) != NULL;) {
        if (name[0] != '\0' && count++ < LENGTH(out->items)) {
            out->items[out->count++] = name;
        }
    }
    return count == out->count ? 0
                               : sl_reason_fail(reason, SL_ERR_TOO_LARGE,
                                                "--%s has %u names: accepted are at most %u", flag,
                                                count, LENGTH(out->items));
}

static int make_setup(struct run *run, struct sl_objects_setup *out)
{
    const char *agent = flags.agent_name != NULL ? flags.agent_name : SL_OBJECTS_LOCAL_DEFAULT;
    *out =
        (struct sl_objects_setup){.is_keeper = flags.directory != NULL &&
                                               (!flags.agent || settings.objects.catalogue == NULL),
                                  .agent = flags.agent ? agent : NULL,
                                  .follow = follow.items,
                                  .keep = keep.items,
                                  .pin_warn_ns = flags.pin_warn_ns,
                                  .directory = flags.directory,
                                  .keep_versions = flags.keep_versions,
                                  .replicas = flags.replicas};
    int err = split("follow", flags.follow, &follow, &run->reason);
    err = err != 0 ? err : split("keep", flags.keep, &keep, &run->reason);
    if (err == 0 && follow.count + keep.count > LENGTH(keep.items)) {
        err = sl_reason_fail(&run->reason, SL_ERR_TOO_LARGE,
                             "--follow has %u names and --keep %u: an agent follows at most %u",
                             follow.count, keep.count, LENGTH(keep.items));
    }
    if (err != 0) {
        return err;
    }
    out->follow_count = follow.count;
    out->keep_count = keep.count;
    if (!sl_objects_text_is_valid(agent, SL_OBJECTS_LOCAL_NAME_BYTES) || agent[0] == '\0' ||
        strcmp(agent, SL_OBJECTS_LOCAL_OFF) == 0) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "--agent-name=%s: accepted are 1 to %d characters, not \"%s\"", agent,
                              SL_OBJECTS_LOCAL_NAME_BYTES - 1, SL_OBJECTS_LOCAL_OFF);
    }
    for (uint32_t i = 0; i < follow.count + keep.count; i++) {
        const char *name = i < follow.count ? follow.items[i] : keep.items[i - follow.count];
        if (!sl_objects_name_is_valid(name)) {
            return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                                  "\"%s\" is no name of an object, which has 1 to %d printable "
                                  "characters, no blank and no @",
                                  name, SL_OBJECTS_NAME_BYTES - 1);
        }
    }
    return 0;
}

/* pool_bytes: 0: the default. */
static int objects_main_start_node(struct run *run, uint64_t pool_bytes)
{
    struct sl_transfer_options engine;
    struct sl_objects_setup setup;
    int err = make_setup(run, &setup);
    err = err != 0 ? err : sl_settings_cli_engine(&settings, &engine, &run->reason);
    if (err != 0) {
        return err;
    }
    engine.name = flags.name != NULL ? flags.name : default_name();
    engine.endpoints = flags.endpoints;
    const struct sl_objects_options node = {.struct_size = sizeof node,
                                            .engine_options = &engine,
                                            .catalogue = settings.objects.catalogue,
                                            .agent = flags.agent ? NULL : flags.agent_name,
                                            .host = flags.host,
                                            .pool_bytes = pool_bytes,
                                            .rate_bytes = flags.rate_bytes};
    (void)sl_end_signals_mask(SIG_BLOCK); /* for the node's threads */
    err = sl_objects_create_with(&node, &setup, &run->objects);
    (void)sl_end_signals_mask(SIG_UNBLOCK);
    explicit_bzero(&settings.security, sizeof settings.security);
    return err == 0 ? 0 : objects_main_failed(run, err);
}

/* ---- Output ---------------------------------------------------------------------------------- */

/* Prints the JSON object, if that is what is wanted, or the text. */
static void print(json_t *object, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(json_t *object, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (flags.json) {
        (void)json_dumpf(object, stdout, JSON_COMPACT);
    } else {
        (void)vprintf(format, arguments);
    }
    va_end(arguments);
    (void)printf("\n");
    (void)fflush(stdout);
    json_decref(object);
}

static void print_entry(const struct sl_object_entry *entry, bool is_long)
{
    static const char *const origins[] = {"host", "ps", "caller"};
    const char *origin = origins[entry->origin];
    const time_t seconds = (time_t)(entry->time_ms / 1000);
    char time[32];
    struct tm parts;
    (void)strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &parts));
    json_t *object =
        json_pack("{s:s, s:I, s:I, s:s, s:I, s:I, s:s, s:s}", "name", entry->name, "version",
                  (json_int_t)entry->version, "bytes", (json_int_t)entry->bytes, "time", time,
                  "holders", (json_int_t)entry->holders, "parts", (json_int_t)entry->part_count,
                  "origin", origin, "note", entry->note);
    print(object,
          is_long ? "%s@%" PRIu64 "\n  bytes: %" PRIu64 "\n  holders: %u\n  parts: %u\n"
                    "  origin: %s\n  committed: %s\n  note: %s"
                  : "%s@%" PRIu64 "  %" PRIu64 " bytes, holders: %u, parts: %u, %s, %s  %s",
          entry->name, entry->version, entry->bytes, entry->holders, entry->part_count, origin,
          time, entry->note);
}

/* ---- Commands -------------------------------------------------------------------------------- */

/* Whether the name has no version, or its newest one is in the agent's pool. */
static bool is_kept(struct run *run, const char *name, struct sl_subscription *subscription)
{
    uint64_t version;
    const int err = sl_object_wait_held(run->objects, name, 0, 1, KEPT_MS);
    return err == SL_ERR_NOT_FOUND ||
           (err == 0 && sl_subscription_wait(subscription, 0, KEPT_MS, &version) == 0);
}

/* Waits for the names that an agent keeps. */
static int await_kept(struct run *run)
{
    const struct sl_subscribe_options how = {.struct_size = sizeof how, .follow = true};
    const char *agent = flags.agent_name != NULL ? flags.agent_name : SL_OBJECTS_LOCAL_DEFAULT;
    const struct sl_objects_options reader_options = {.struct_size = sizeof reader_options,
                                                      .agent = agent};
    struct sl_objects *reader = NULL;
    int err = keep.count > 0 ? sl_objects_create(&reader_options, &reader) : 0;
    for (uint32_t i = 0; err == 0 && i < keep.count; i++) {
        struct sl_subscription *subscription = NULL;
        err = sl_subscription_open(reader, keep.items[i], &how, KEPT_MS, &subscription);
        while (err == 0 && !is_kept(run, keep.items[i], subscription)) {
            sl_log_warn("waiting for %s: %s", keep.items[i], sl_objects_last_error());
        }
        sl_subscription_close(&subscription);
    }
    err = err == 0 ? 0 : objects_main_failed(run, err);
    sl_objects_destroy(&reader);
    return err;
}

static int run_serve(struct run *run)
{
    if (settings.objects.catalogue != NULL && flags.directory == NULL && !flags.agent) {
        if (flags.name != NULL && strcmp(flags.name, settings.objects.catalogue) != 0) {
            return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                                  "--name=%s: differs from --catalogue=%s: serve hosts a catalogue "
                                  "itself; or stores versions, with --dir; or is an agent, with "
                                  "--agent",
                                  flags.name, settings.objects.catalogue);
        }
        flags.name = settings.objects.catalogue; /* of a file that all roles share */
        settings.objects.catalogue = NULL;
    }
    flags.agent_name = flags.agent_name != NULL ? flags.agent_name : SL_OBJECTS_LOCAL_DEFAULT;
    int err = objects_main_start_node(run, flags.pool_bytes);
    err = err == 0 && flags.agent ? await_kept(run) : err;
    if (err == 0) {
        const char *address = sl_objects_address(run->objects);
        const sigset_t signals = sl_end_signals_mask(SIG_BLOCK);
        const bool is_elected =
            settings.objects.catalogue == NULL && parse_store(&(struct sl_metastore_address){0});
        print(json_pack("{s:s, s:s, s:s*, s:s*}", "name", address, "catalogue",
                        settings.objects.catalogue != NULL ? settings.objects.catalogue
                        : is_elected                       ? settings.objects.metadata
                                                           : address,
                        "directory", flags.directory, "agent",
                        flags.agent ? flags.agent_name : NULL),
              "%s serves %s%s%s until SIGINT or SIGTERM", address,
              is_elected                           ? "the catalogue, when etcd names it,"
              : settings.objects.catalogue == NULL ? "the catalogue"
              : flags.agent                        ? "readers of this host"
                                                   : "stored versions",
              flags.agent ? " as agent " : "", flags.agent ? flags.agent_name : "");
        (void)sl_notify_send("READY=1\nSTATUS=serves: %s", address);
        (void)sigwait(&signals, &(int){0});
        (void)sl_notify_send("STOPPING=1");
    }
    return err;
}

static int publish(struct run *run, const struct sl_files_in *files, uint64_t *version)
{
    static const enum sl_object_origin origins[] = {SL_ORIGIN_CALLER, SL_ORIGIN_HOST, SL_ORIGIN_PS};
    const struct sl_publish_options publish_options = {
        .struct_size = sizeof publish_options,
        .name = run->name,
        .version = run->version,
        .origin = origins[flags.origin],
        .take_over = true, /* the process that put the version before is not this one */
    };
    struct sl_publication *publication = NULL;
    int err = sl_publish_begin(run->objects, &publish_options, run->timeout_ms, &publication);
    for (uint32_t i = 0; err == 0 && i < files->count; i++) {
        err = sl_publish_tensor(publication, &files->items[i].tensor);
    }
    err = err != 0 ? err : sl_publish_commit(publication, run->timeout_ms, version);
    err = err != 0 ? objects_main_failed(run, err) : 0;
    sl_publish_end(&publication);
    return err;
}

static int put_tables(struct run *run)
{
    const struct sl_publish_options publish_options = {
        .struct_size = sizeof publish_options, .name = run->name, .version = run->version};
    uint64_t version;
    int err = objects_main_start_node(run, 0);
    if (err == 0) {
        err = sl_publish_tables(run->objects, &publish_options, flags.tables, run->timeout_ms,
                                &version);
        err = err != 0 ? objects_main_failed(run, err) : 0;
    }
    if (err == 0) {
        print(json_pack("{s:s, s:I, s:s}", "name", run->name, "version", (json_int_t)version,
                        "tables", flags.tables),
              "%s@%" PRIu64 ": tables %s; the servers serve them", run->name, version,
              flags.tables);
    }
    return err;
}

static int run_put(struct run *run)
{
    if (flags.tables != NULL) {
        return put_tables(run);
    }
    struct sl_files_in files = {0};
    uint64_t version;
    int err = 0;
    for (uint32_t i = 1; err == 0 && i < run->words.count; i++) {
        err = sl_files_in_add(&files, run->words.items[i], flags.as_bytes, &run->reason);
    }
    if (err == 0 && files.count == 0) {
        err = sl_reason_fail(&run->reason, SL_ERR_NOT_FOUND, "%s has no file", run->words.items[1]);
    }
    err = err != 0 ? err : sl_files_in_read(&files, &run->reason);
    /* The pool has the manifest too: names, and a digest of each block. */
    err = err != 0 ? err
                   : objects_main_start_node(run, files.bytes + files.bytes / 8192 +
                                                      512ULL * files.count +
                                                      2ULL * SL_OBJECTS_BLOCK_BYTES);
    err = err != 0 ? err : publish(run, &files, &version);
    if (err == 0) {
        const bool is_stored = flags.origin == 2;
        const char *server = is_stored ? "keepers" : sl_objects_address(run->objects);
        const sigset_t signals = sl_end_signals_mask(SIG_BLOCK);
        print(json_pack("{s:s, s:I, s:I, s:i, s:s}", "name", run->name, "version",
                        (json_int_t)version, "bytes", (json_int_t)files.bytes, "files",
                        (int)files.file_count, "served_by", server),
              "%s@%" PRIu64 ": %" PRIu64 " bytes, %u file%s; %s %s", run->name, version,
              files.bytes, files.file_count, sl_log_plural(files.file_count), server,
              is_stored ? "have stored them" : "serves them until SIGINT or SIGTERM");
        if (!is_stored) {
            (void)sigwait(&signals, &(int){0});
        }
    }
    sl_objects_destroy(&run->objects); /* before the memory */
    sl_files_in_fini(&files);
    return err;
}

/* Lists all versions of a prefix, or those of the name, or its one version that was given. Errors:
 * NOT_FOUND: no such name or version. */
static int objects_main_list(struct run *run, bool is_prefix, struct sl_object_list **out)
{
    int err = objects_main_start_node(run, 0);
    if (err != 0) {
        return err;
    }
    err = sl_object_list(run->objects,
                         is_prefix && run->words.count > 0 ? run->words.items[0] : run->name,
                         run->timeout_ms, out);
    if (err != 0) {
        return objects_main_failed(run, err);
    }
    struct sl_object_list *found = *out;
    uint64_t count = 0, oldest = 0, newest = 0;
    for (uint64_t i = 0; i < found->count; i++) {
        const struct sl_object_entry *entry = &found->entries[i];
        if (is_prefix || strcmp(entry->name, run->name) == 0) {
            oldest = oldest == 0 ? entry->version : oldest;
            newest = entry->version;
            if (run->version == 0 || entry->version == run->version) {
                found->entries[count++] = *entry;
            }
        }
    }
    found->count = count;
    if (count > 0 || is_prefix) {
        return 0;
    }
    return newest == 0 ? sl_reason_fail(&run->reason, SL_ERR_NOT_FOUND,
                                        "the catalogue has no \"%s\"", run->name)
                       : sl_reason_fail(&run->reason, SL_ERR_NOT_FOUND,
                                        "%s has no version %" PRIu64 ": the oldest is %" PRIu64
                                        ", the newest %" PRIu64,
                                        run->name, run->version, oldest, newest);
}

/* Fetches into `base`, and writes the files. */
static int fetch(struct run *run, const struct sl_object_entry *entry, uint8_t *base)
{
    const struct sl_object_extent extent = {.base = base, .bytes = entry->bytes};
    struct sl_get *get = NULL;
    uint32_t files;
    int err =
        sl_get_start(run->objects, run->name, entry->version, &extent, 1, run->timeout_ms, &get);
    err = err != 0 ? err : sl_get_wait(get);
    err = err != 0
              ? objects_main_failed(run, err)
              : sl_files_out_write(get, run->name, base, run->words.items[1], &files, &run->reason);
    sl_get_close(&get);
    sl_objects_destroy(&run->objects); /* before the memory */
    if (err == 0) {
        print(json_pack("{s:s, s:I, s:I, s:i}", "name", run->name, "version",
                        (json_int_t)entry->version, "bytes", (json_int_t)entry->bytes, "files",
                        (int)files),
              "%s@%" PRIu64 ": %" PRIu64 " bytes, %u file%s in %s", run->name, entry->version,
              entry->bytes, files, sl_log_plural(files), run->words.items[1]);
    }
    return err;
}

static int run_get(struct run *run)
{
    struct sl_object_list *found = NULL;
    int err = objects_main_list(run, false, &found);
    if (err == 0) {
        const struct sl_object_entry *newest = &found->entries[found->count - 1];
        uint8_t *base = sl_files_in_map(newest->bytes, &run->reason);
        err = base == NULL ? SL_ERR_NO_MEMORY : fetch(run, newest, base);
        sl_files_in_unmap(base, newest->bytes);
    }
    sl_object_list_free(&found);
    return err;
}

static int objects_main_run_list(struct run *run)
{
    struct sl_object_list *found = NULL;
    const bool is_prefix = run->command->words_least == 0;
    int err = objects_main_list(run, is_prefix, &found);
    for (uint64_t i = 0; err == 0 && i < found->count; i++) {
        print_entry(&found->entries[i], !is_prefix);
    }
    sl_object_list_free(&found);
    return err;
}

/* On the reactor: the texts are valid during the call. */
static void print_followers(void *ctx, const struct sl_objects_message *answer)
{
    struct sl_objects_message *next = ctx;
    next->followers.count = answer->followers.count;
    for (uint32_t i = 0; i < answer->followers.count; i++) {
        const struct sl_objects_follower *of = &answer->followers.nodes[i];
        char host[20];
        (void)snprintf(host, sizeof host, "%016" PRIx64, of->host);
        print(json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "follower", of->address, "host", host,
                        "location", of->location, "in_use", (json_int_t)of->version, "behind",
                        (json_int_t)of->behind, "last_report_ms", (json_int_t)of->age_ms),
              "follower %s\n  host: %s\n  location: %s\n  in use: %" PRIu64 "\n  behind: %" PRIu64
              "\n  last report: %.1f s ago",
              of->address, host, of->location, of->version, of->behind, (double)of->age_ms / 1e3);
        next->followers.after = of->node;
    }
}

static int run_stat(struct run *run)
{
    struct sl_objects_message message = {.kind = SL_OBJECTS_FOLLOWERS, .name = run->name};
    int err = objects_main_run_list(run);
    message.followers.count = flags.followers ? SL_OBJECTS_FOLLOWERS_MAX : 0;
    while (err == 0 && message.followers.count == SL_OBJECTS_FOLLOWERS_MAX) {
        err = sl_objects_ask_and_wait(run->objects, &message, run->timeout_ms, print_followers,
                                      &message);
        err = err != 0 ? objects_main_failed(run, err) : 0;
    }
    return err;
}

static int run_rm(struct run *run)
{
    int err = objects_main_start_node(run, 0);
    if (err == 0) {
        err = sl_object_remove(run->objects, run->name, run->version, run->timeout_ms);
        err = err != 0 ? objects_main_failed(run, err) : 0;
    }
    return err;
}

/* The buckets up to the last one that is not 0. */
static json_t *histogram(const uint64_t *buckets)
{
    json_t *array = json_array();
    uint32_t count = SL_STALENESS_BUCKETS;
    for (; count > 0 && buckets[count - 1] == 0; count--) {
    }
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_integer((json_int_t)buckets[i]));
    }
    return array;
}

static void print_staleness(const char *name, const struct sl_subscription *subscription)
{
    struct sl_staleness s;
    sl_subscription_staleness(subscription, &s);
    print(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:o, s:o, s:o}", "name",
                    name, "version", (json_int_t)s.version, "newest", (json_int_t)s.newest,
                    "behind", (json_int_t)s.behind, "behind_us", (json_int_t)s.behind_us,
                    "measured_us", (json_int_t)s.measured_us, "behind_mean", s.behind_mean,
                    "behind_us_mean", s.behind_us_mean, "opened", (json_int_t)s.opened_count,
                    "skipped", (json_int_t)s.skipped_count, "behind_histogram",
                    histogram(s.behind_histogram), "behind_us_histogram",
                    histogram(s.behind_us_histogram), "visible_us_histogram",
                    histogram(s.visible_us_histogram)),
          "%s@%" PRIu64 ": %.2f versions and %.6f s behind on average, for %.1f s; %" PRIu64
          " versions opened, %" PRIu64 " skipped",
          name, s.version, s.behind_mean, s.behind_us_mean / 1e6, (double)s.measured_us / 1e6,
          s.opened_count, s.skipped_count);
}

/* Prints each newest version until a signal comes. */
static int run_watch(struct run *run)
{
    const struct sl_subscribe_options how = {.struct_size = sizeof how, .follow = flags.staleness};
    struct sl_subscription *subscription = NULL;
    uint64_t version = 0;
    int err = objects_main_start_node(run, 0);
    if (err == 0) {
        err = sl_subscription_open(run->objects, run->name, &how, run->timeout_ms, &subscription);
    }
    const sigset_t signals = sl_end_signals_mask(SIG_BLOCK);
    while (err == 0 && sigtimedwait(&signals, NULL, &(struct timespec){0}) < 0) {
        struct sl_view *view = NULL;
        err = sl_subscription_wait(subscription, version, POLL_MS, &version);
        if (err == 0 && flags.staleness) {
            err = sl_view_open(subscription, NULL, run->timeout_ms, &view);
            version = err == 0 ? sl_view_version(view) : version;
            sl_view_close(&view);
        }
        if (err == 0) {
            print(json_pack("{s:s, s:I}", "name", run->name, "version", (json_int_t)version),
                  "%s@%" PRIu64, run->name, version);
        }
        err = err == SL_ERR_DEADLINE ? 0 : err;
    }
    err = err != 0 && run->objects != NULL ? objects_main_failed(run, err) : err;
    if (subscription != NULL && flags.staleness) {
        print_staleness(run->name, subscription);
    }
    sl_subscription_close(&subscription);
    return err;
}

static const struct command commands[] = {
    {"serve", "",
     "Hosts the catalogue: names, versions and holders; or stores versions; or is an agent.", 0, 0,
     false, run_serve},
    {"put", "NAME[@V] FILE|DIR... | --tables TABLE,...",
     "Publishes files as a version, and serves it until SIGINT or SIGTERM; or tables of a job.", 1,
     UINT32_MAX, true, run_put},
    {"get", "NAME[@V] DIR", "Gets a version, by default the newest, and writes its files.", 2, 2,
     true, run_get},
    {"ls", "[PREFIX]", "Lists the versions of all names that begin with PREFIX.", 0, 1, false,
     objects_main_run_list},
    {"stat", "NAME[@V]", "Describes the versions of a name.", 1, 1, true, run_stat},
    {"rm", "NAME[@V]", "Removes a version, or without V all of the name, at all holders.", 1, 1,
     true, run_rm},
    {"watch", "NAME", "Prints the newest version, then newer ones, until SIGINT or SIGTERM.", 1, 1,
     false, run_watch},
};

/* ---- Command line ---------------------------------------------------------------------------- */

static void print_help(FILE *to)
{
    (void)fprintf(to, PROGRAM ": publishes, gets and lists versions of files.\n\n");
    for (uint32_t i = 0; i < LENGTH(commands); i++) {
        (void)fprintf(to, "  " PROGRAM " %s %s\n      %s\n", commands[i].name, commands[i].usage,
                      commands[i].summary);
    }
    (void)fprintf(to, "  " PROGRAM " example --cmd trainer|inferencer\n"
                      "      The example of Mooncake's P2P store.\n"
                      "\n" PROGRAM " COMMAND --help lists the options.\n");
}

/* Splits NAME[@V]. */
static int take_name(struct run *run)
{
    const char *text = run->words.items[0], *at = strchr(text, '@');
    const size_t length = at == NULL ? strlen(text) : (size_t)(at - text);
    const bool has_version = at != NULL && run->command->takes_version;
    if (length == 0 || length >= sizeof run->name || strcspn(text, " \t\n") < length ||
        (at != NULL &&
         !(has_version && sl_number_parse_u64(at + 1, 1, UINT64_MAX, &run->version)))) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "\"%s\": accepted is a name of 1 to %zu bytes without blanks%s", text,
                              sizeof run->name - 1,
                              run->command->takes_version ? ", then perhaps @ and a version from 1"
                                                          : " and @");
    }
    memcpy(run->name, text, length);
    return 0;
}

/* Parses and checks the words and flags. Returns as sl_cli_parse. */
static int parse(struct run *run, const struct sl_cli *cli, int argc, char **argv)
{
    const struct command *command = run->command;
    int result = sl_cli_parse(cli, argc, argv, &run->reason);
    if (result != SL_CLI_RUN) {
        return result;
    }
    if (flags.tables != NULL && command->run != run_put) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID, "--tables is a flag of put");
    }
    if (command->run == run_put && flags.tables == NULL && run->words.count == 1) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID, "an argument is missing");
    }
    if (flags.tables != NULL && run->words.count > 1) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID, "unexpected argument \"%s\"",
                              run->words.items[1]);
    }
    struct sl_metastore_address store;
    struct sl_reason reason;
    if (settings.objects.metadata != NULL &&
        sl_metastore_address_parse(settings.objects.metadata, &store, &reason) != 0) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID, "--metadata: %s", reason.text);
    }
    if (command->run != run_serve && settings.objects.catalogue == NULL && !parse_store(&store)) {
        return sl_reason_fail(&run->reason, SL_ERR_INVALID,
                              "--catalogue is missing: the address that " PROGRAM
                              " serve has printed; only an etcd in --metadata names it too");
    }
    run->timeout_ms = (uint32_t)((flags.timeout_ns + SL_CLOCK_NS_PER_MS - 1) / SL_CLOCK_NS_PER_MS);
    return command->words_least > 0 ? take_name(run) : 0;
}

static int run_command(const struct command *command, int argc, char **argv)
{
    char program[64];
    struct run run = {.command = command,
                      .words = {.least = command->words_least, .most = command->words_most}};
    const struct sl_cli own = {.program = program,
                               .summary = command->summary,
                               .usage = command->usage,
                               .options = options,
                               .option_count = LENGTH(options),
                               .words = &run.words};
    static struct sl_settings_cli all;
    (void)snprintf(program, sizeof program, PROGRAM " %s", command->name);
    sl_settings_cli_init(SL_PROGRAM_OBJECTS, 1, &own, &settings, &all);
    const int result = parse(&run, &all.cli, argc, argv);
    if (result != SL_CLI_RUN) {
        return sl_cli_exit(&own, result, &run.reason);
    }
    sl_settings_log_setup(&settings, PROGRAM);
    int err = command->run == run_serve
                  ? sl_reload_start(&all.cli, &settings, sl_tcp_tls_reload, &run.reason)
                  : 0;
    err = err != 0 ? err : command->run(&run);
    sl_objects_destroy(&run.objects);
    sl_settings_fini(&settings);
    return sl_cli_end(&own, err, &run.reason);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(basename(argv[0]), "p2p-store-example") == 0) {
        return sl_example_run(argc, argv);
    }
    if (strcmp(name, "example") == 0) {
        return sl_example_run(argc - 1, argv + 1);
    }
    for (uint32_t i = 0; i < LENGTH(commands); i++) {
        if (strcmp(commands[i].name, name) == 0) {
            return run_command(&commands[i], argc - 1, argv + 1);
        }
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help(stdout);
        return EXIT_SUCCESS;
    }
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        (void)printf(PROGRAM " %s\n", STARLING_VERSION);
        return EXIT_SUCCESS;
    }
    if (argc > 1) {
        (void)fprintf(stderr, PROGRAM ": unknown command \"%s\"\n", name);
    }
    print_help(stderr);
    return SL_CLI_EXIT_USAGE;
}
