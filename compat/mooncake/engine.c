#include "compat/mooncake/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compat/mooncake/batch.h"
#include "compat/mooncake/memory.h"
#include "compat/mooncake/segment.h"

#define SECRET_BYTES_MIN 16
#define SECRET_BYTES_MAX 1024
#define TIMEOUT_S        30
#define TIMEOUT_S_MAX    (SL_TRANSFER_TIMEOUT_MS_MAX / 1000)

/* The environment: what starling-launch sets, and Mooncake's variables */

/* Line ends at its end do not count. Returns 0, or -1 and logs. */
static int read_secret(const char *path, uint8_t bytes[SECRET_BYTES_MAX], size_t *out)
{
    uint8_t file[SECRET_BYTES_MAX + 64];
    struct stat status = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t got =
        fd >= 0 && fstat(fd, &status) == 0 ? read(fd, file, sizeof file) : (ssize_t)-1;
    const int why = errno;
    if (fd >= 0) {
        (void)close(fd);
    }
    size_t count = got > 0 ? (size_t)got : 0;
    while (count > 0 && (file[count - 1] == '\n' || file[count - 1] == '\r')) {
        count--;
    }
    int result = 0;
    if (got < 0) {
        result = sl_mooncake_fail(SL_MOONCAKE_INVALID, "STARLING_SECRET_FILE", "%s: %s", path,
                                  strerror(why));
    } else if ((status.st_mode & 077) != 0) {
        result = sl_mooncake_fail(SL_MOONCAKE_INVALID, "STARLING_SECRET_FILE",
                                  "%s: other users can access it: chmod 600 it", path);
    } else if (count < SECRET_BYTES_MIN || count > SECRET_BYTES_MAX) {
        result = sl_mooncake_fail(SL_MOONCAKE_INVALID, "STARLING_SECRET_FILE",
                                  "%s: it has %zu bytes; a secret has %d to %d", path, count,
                                  SECRET_BYTES_MIN, SECRET_BYTES_MAX);
    } else {
        memcpy(bytes, file, count);
        *out = count;
    }
    explicit_bzero(file, sizeof file);
    return result;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int take_insecure(struct sl_transfer_options *options)
{
    const char *value = variable("STARLING_INSECURE");
    if (value == NULL) {
        return 0;
    }
    options->insecure = strcmp(value, "1") == 0 || strcasecmp(value, "true") == 0;
    return options->insecure || strcmp(value, "0") == 0 || strcasecmp(value, "false") == 0
               ? 0
               : sl_mooncake_fail(SL_MOONCAKE_INVALID, "STARLING_INSECURE",
                                  "%.80s: accepted are 0, 1, true and false", value);
}

static int take_timeout(struct sl_mooncake_engine *engine)
{
    const char *value = variable("MC_TRANSFER_TIMEOUT");
    char *end = NULL;
    const long seconds = value != NULL ? strtol(value, &end, 10) : TIMEOUT_S;
    if (seconds < 1 || seconds > TIMEOUT_S_MAX || (end != NULL && *end != '\0')) {
        return sl_mooncake_fail(SL_MOONCAKE_INVALID, "MC_TRANSFER_TIMEOUT",
                                "%.80s: accepted are seconds, 1 to %d", value, TIMEOUT_S_MAX);
    }
    engine->timeout_ms = (uint32_t)seconds * 1000;
    return 0;
}

/* The engine owns what options point to, but for the environment. */
static int take_environment(struct sl_mooncake_engine *engine)
{
    struct sl_transfer_options *options = &engine->options;
    const char *path = variable("STARLING_SECRET_FILE");
    options->tls_certificate = variable("STARLING_TLS_CERT");
    options->tls_key = variable("STARLING_TLS_KEY");
    options->tls_authority = variable("STARLING_TLS_CA");
    options->tls_peer_name = variable("STARLING_TLS_NAME");
    options->endpoints = variable("MC_FORCE_TCP") != NULL ? "shm://" : NULL; /* and TCP, always */
    int result = take_timeout(engine);
    result = result != 0 ? result : take_insecure(options);
    if (result == 0 && path != NULL) {
        uint8_t *secret = calloc(1, SECRET_BYTES_MAX);
        options->secret = secret;
        result = secret != NULL ? read_secret(path, secret, &options->secret_bytes)
                                : sl_mooncake_fail(SL_MOONCAKE_INVALID, path, "out of memory");
    }
    return result;
}

/* Start and end */

static void engine_free(struct sl_mooncake_engine *engine)
{
    if (engine->options.secret != NULL) {
        explicit_bzero((void *)(uintptr_t)engine->options.secret, SECRET_BYTES_MAX);
    }
    free((void *)(uintptr_t)engine->options.secret);
    free((void *)(uintptr_t)engine->options.name);
    free((void *)(uintptr_t)engine->options.metadata);
    free(engine);
}

/* With P2PHANDSHAKE peers learn the port from the engine: one that is not given, or in use, is any.
 */
static int start(struct sl_mooncake_engine *engine, const char *server_name)
{
    const bool is_p2p = strcasecmp(engine->options.metadata, "P2PHANDSHAKE") == 0;
    char name[SL_TRANSFER_NAME_BYTES];
    int err = sl_mooncake_segment_name(server_name, is_p2p ? "0" : NULL, name) ? 0 : SL_ERR_INVALID;
    if (err == 0) {
        engine->options.name = name;
        err = sl_transfer_create(&engine->options, &engine->transfer);
    }
    if (err == SL_ERR_IN_USE && is_p2p) {
        char *port = strrchr(name, ':');
        (void)sl_mooncake_fail(err, "createTransferEngine", "%s: %s: another port is used", name,
                               sl_transfer_last_error());
        memcpy(port, ":0", sizeof ":0");
        err = sl_transfer_create(&engine->options, &engine->transfer);
    }
    engine->options.name = NULL;
    if (err != 0) {
        return sl_mooncake_fail(SL_MOONCAKE_INVALID, "createTransferEngine", "%s: %s%s",
                                server_name, sl_transfer_last_error(),
                                err == SL_ERR_REFUSED ? " (STARLING_SECRET_FILE names the file of "
                                                        "a secret; STARLING_INSECURE=1)"
                                                      : "");
    }
    engine->options.name = strdup(sl_transfer_name(engine->transfer));
    return engine->options.name != NULL ? 0 : SL_MOONCAKE_INVALID;
}

transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                       const char *local_server_name, const char *ip_or_host_name,
                                       uint64_t rpc_port, int auto_discover)
{
    if (metadata_conn_string == NULL || local_server_name == NULL) {
        (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, "createTransferEngine",
                               "metadata_conn_string or local_server_name is NULL");
        return NULL;
    }
    struct sl_mooncake_engine *engine = calloc(1, sizeof *engine);
    if (engine == NULL) {
        return NULL;
    }
    engine->options.metadata = strdup(metadata_conn_string);
    if (engine->options.metadata == NULL || take_environment(engine) != 0 ||
        start(engine, local_server_name) != 0) {
        sl_transfer_destroy(&engine->transfer);
        engine_free(engine);
        return NULL;
    }
    (void)pthread_mutex_init(&engine->lock, NULL);
    (void)pthread_mutex_init(&engine->memory.lock, NULL);
    return engine;
}

void destroyTransferEngine(transfer_engine_t handle)
{
    struct sl_mooncake_engine *engine = handle;
    if (engine == NULL) {
        return;
    }
    sl_transfer_destroy(&engine->transfer); /* and its batches and segments */
    sl_mooncake_batch_free_all(engine);
    sl_mooncake_segment_free_all(engine);
    free(engine->memory.claims);
    (void)pthread_mutex_destroy(&engine->memory.lock);
    (void)pthread_mutex_destroy(&engine->lock);
    engine_free(engine);
}

int getLocalIpAndPort(transfer_engine_t handle, char *buf_out, size_t buf_len)
{
    const struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL || buf_out == NULL || buf_len == 0) {
        return SL_MOONCAKE_INVALID;
    }
    (void)snprintf(buf_out, buf_len, "%s", sl_transfer_name(engine->transfer));
    return 0;
}

/* Transports */

static bool is_protocol(const char *proto, const char *function)
{
    const bool is_known =
        proto != NULL &&
        (strcmp(proto, "tcp") == 0 || strcmp(proto, "shm") == 0 || strcmp(proto, "rdma") == 0);
    if (!is_known) {
        (void)sl_mooncake_fail(
            SL_MOONCAKE_INVALID, function,
            "protocol %.64s is not supported: tcp, shm and rdma are; there is no "
            "memory of devices",
            proto != NULL ? proto : "NULL");
    }
    return is_known;
}

static bool is_used(struct sl_mooncake_engine *engine)
{
    pthread_mutex_lock(&engine->memory.lock);
    bool used = engine->memory.count > 0;
    pthread_mutex_unlock(&engine->memory.lock);
    pthread_mutex_lock(&engine->lock);
    used = used || engine->segment_count > 0 || engine->batch_count > 0;
    pthread_mutex_unlock(&engine->lock);
    return used;
}

/* At the same address with other endpoints, or else with those that it had. */
static int restart(struct sl_mooncake_engine *engine, const char *endpoints, const char *matrix)
{
    struct sl_transfer_options options = engine->options;
    options.endpoints = endpoints;
    options.nic_priority_matrix = matrix;
    sl_transfer_destroy(&engine->transfer);
    if (sl_transfer_create(&options, &engine->transfer) == 0) {
        return 0;
    }
    (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, "installTransport", "%s", sl_transfer_last_error());
    if (sl_transfer_create(&engine->options, &engine->transfer) != 0) {
        (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, "installTransport", "the engine has ended: %s",
                               sl_transfer_last_error());
    }
    return SL_MOONCAKE_INVALID;
}

transport_t installTransport(transfer_engine_t handle, const char *proto, void **args)
{
    struct sl_mooncake_engine *engine = sl_mooncake_engine(handle, __func__);
    if (engine == NULL || !is_protocol(proto, __func__)) {
        return NULL;
    }
    const char *matrix = args != NULL ? args[0] : NULL;
    const bool is_rdma = strcmp(proto, "rdma") == 0;
    if (!is_rdma && matrix == NULL) {
        return engine;
    }
    if (is_used(engine)) {
        (void)sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__,
                               "%s: install transports before memory is registered and segments "
                               "are opened",
                               proto);
        return NULL;
    }
    const char *endpoints = is_rdma ? "shm://,rdma://0.0.0.0:0" : engine->options.endpoints;
    return restart(engine, endpoints, matrix) == 0 ? engine : NULL;
}

int uninstallTransport(transfer_engine_t handle, const char *proto)
{
    return sl_mooncake_engine(handle, __func__) != NULL && is_protocol(proto, __func__)
               ? 0
               : SL_MOONCAKE_INVALID;
}

/* What has nothing to do, or is not supported */

int discoverTopology(transfer_engine_t handle)
{
    return sl_mooncake_engine(handle, __func__) != NULL ? 0 : SL_MOONCAKE_INVALID;
}

int warmupEfaSegment(transfer_engine_t handle, const char *segment_name)
{
    return sl_mooncake_engine(handle, __func__) != NULL ? 0 : SL_MOONCAKE_INVALID;
}

void enableGracefulShutdown(transfer_engine_t handle)
{
    (void)sl_mooncake_engine(handle, __func__);
}

int getNicLoadStats(transfer_engine_t handle, nic_load_stat_t *stats, size_t *count)
{
    return sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "not supported");
}

int showLinks(transfer_engine_t handle, char *buf_out, size_t buf_len, int json)
{
    return sl_mooncake_fail(SL_MOONCAKE_INVALID, __func__, "not supported");
}
