/* Engines of Mooncake's C functions: start, the environment, transports, handles that are none. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "duo.h"
#include "tests/support/free_port.h"
#include "tests/support/unit.h"

#define NAMES 6

static transfer_engine_t create(const char *name)
{
    return createTransferEngine("P2PHANDSHAKE", name, "", 0, 1);
}

SL_CASE(engine__listens_at_a_free_port)
{
    transfer_engine_t engine = create("127.0.0.1");
    char name[64], cut[5];
    assert_non_null(engine);
    assert_int_equal(getLocalIpAndPort(engine, name, sizeof name), 0);
    assert_int_equal(strncmp(name, "127.0.0.1:", 10), 0);
    assert_true(strtol(name + 10, NULL, 10) > 0);
    assert_int_equal(getLocalIpAndPort(engine, cut, sizeof cut), 0);
    assert_string_equal(cut, "127.");
    assert_int_equal(getLocalIpAndPort(engine, NULL, 10), -1);
    assert_int_equal(discoverTopology(engine), 0);
    assert_int_equal(warmupEfaSegment(engine, name), 0);
    assert_int_equal(removeLocalSegment(engine, name), 0);
    assert_int_equal(removeLocalSegment(engine, "127.0.0.1:1"), -1);
    destroyTransferEngine(engine);
}

SL_CASE(engine__takes_the_port_that_it_is_given_or_another_if_it_is_in_use)
{
    char wanted[64], name[64];
    (void)snprintf(wanted, sizeof wanted, "127.0.0.1:%u", free_port());
    transfer_engine_t first = create(wanted);
    transfer_engine_t second = create(wanted);
    assert_non_null(first);
    assert_non_null(second);
    assert_int_equal(getLocalIpAndPort(first, name, sizeof name), 0);
    assert_string_equal(name, wanted);
    assert_int_equal(getLocalIpAndPort(second, name, sizeof name), 0);
    assert_string_not_equal(name, wanted);
    destroyTransferEngine(first);
    destroyTransferEngine(second);
}

SL_CASE(engine__is_refused)
{
    char name[300];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_null(create(NULL));
    assert_null(create(""));
    assert_null(create(name));
    assert_null(create("0.0.0.0"));
    assert_null(createTransferEngine(NULL, "127.0.0.1", "", 0, 1));
    assert_null(createTransferEngine("redis://127.0.0.1:6379", "127.0.0.1:1", "", 0, 1));
    const char *const rows[][2] = {{"MC_TRANSFER_TIMEOUT", "0"},
                                   {"MC_TRANSFER_TIMEOUT", "soon"},
                                   {"MC_TRANSFER_TIMEOUT", "3601"},
                                   {"STARLING_INSECURE", "maybe"},
                                   {"STARLING_SECRET_FILE", "/nonexistent"}};
    for (uint32_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(setenv(rows[i][0], rows[i][1], 1), 0);
        assert_null(create("127.0.0.1"));
        assert_int_equal(unsetenv(rows[i][0]), 0);
    }
}

static void write_secret(const char *path, const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
}

SL_CASE(engine__beyond_loopback_needs_a_secret)
{
    char path[] = "/tmp/starling-test-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_null(create("192.0.2.1")); /* an address of no host */
    assert_int_equal(setenv("STARLING_SECRET_FILE", path, 1), 0);
    write_secret(path, "a secret of the cluster\n", 0644);
    assert_null(create("127.0.0.1"));
    write_secret(path, "short\n", 0600);
    assert_null(create("127.0.0.1"));
    write_secret(path, "a secret of the cluster\n", 0600);
    transfer_engine_t with = create("127.0.0.1"), same = create("127.0.0.1");
    write_secret(path, "another one of the like\n", 0600);
    transfer_engine_t other = create("127.0.0.1");
    char name[64];
    assert_int_equal(getLocalIpAndPort(with, name, sizeof name), 0);
    assert_true(openSegment(same, name) > 0);
    assert_int_equal(openSegment(other, name), -1);
    destroyTransferEngine(with);
    destroyTransferEngine(same);
    destroyTransferEngine(other);
    assert_int_equal(unsetenv("STARLING_SECRET_FILE"), 0);
    assert_int_equal(unlink(path), 0);
}

SL_CASE(engine__starts_anew_with_a_matrix)
{
    char matrix[] = "{\"cpu:0\": [[], []]}", wrong[] = "{", name[64], again[64];
    void *args[] = {matrix, NULL}, *wrong_args[] = {wrong, NULL}, *none[] = {NULL, NULL};
    uint8_t byte = 0;
    transfer_engine_t engine = create("127.0.0.1");
    assert_int_equal(getLocalIpAndPort(engine, name, sizeof name), 0);
    assert_non_null(installTransport(engine, "tcp", NULL));
    assert_non_null(installTransport(engine, "tcp", none));
    assert_non_null(installTransport(engine, "shm", NULL));
    assert_null(installTransport(engine, "tcp", wrong_args));
    assert_non_null(installTransport(engine, "tcp", args));
    assert_int_equal(getLocalIpAndPort(engine, again, sizeof again), 0);
    assert_string_equal(again, name);
    assert_null(installTransport(engine, "nvlink", NULL));
    assert_null(installTransport(engine, NULL, NULL));
    assert_int_equal(uninstallTransport(engine, "tcp"), 0);
    assert_int_equal(uninstallTransport(engine, "nvlink"), -1);
    assert_int_equal(registerLocalMemory(engine, &byte, 1, "*", 1), 0);
    assert_null(installTransport(engine, "tcp", args)); /* too late */
    destroyTransferEngine(engine);
}

SL_CASE(engine__without_a_device_has_no_rdma)
{
    if (access("/sys/class/infiniband", F_OK) == 0) {
        skip();
    }
    struct duo duo;
    transfer_engine_t engine = create("127.0.0.1");
    assert_null(installTransport(engine, "rdma", NULL));
    assert_int_equal(discoverTopology(engine), 0); /* it runs on */
    destroyTransferEngine(engine);
    duo_init(&duo);
    assert_int_equal(duo_move(&duo, OPCODE_WRITE, duo.local, duo.remote, 8), STATUS_COMPLETED);
    duo_fini(&duo);
}

SL_CASE(engine__that_is_none_is_an_error)
{
    char text[8];
    uint8_t byte;
    void *address = &byte;
    int size;
    size_t count = 0;
    struct buffer_entry entry = {.addr = &byte, .length = 1};
    struct transfer_request request = {.opcode = OPCODE_READ};
    struct transfer_status status;
    const notify_msg_t message = {.name = text, .msg = text};
    text[0] = '\0';
    destroyTransferEngine(NULL);
    enableGracefulShutdown(NULL);
    assert_int_equal(getLocalIpAndPort(NULL, text, sizeof text), -1);
    assert_int_equal(discoverTopology(NULL), -1);
    assert_null(installTransport(NULL, "tcp", NULL));
    assert_int_equal(uninstallTransport(NULL, "tcp"), -1);
    assert_int_equal(openSegment(NULL, "127.0.0.1:1"), -1);
    assert_int_equal(openSegmentNoCache(NULL, "127.0.0.1:1"), -1);
    assert_int_equal(closeSegment(NULL, 1), -1);
    assert_int_equal(syncSegmentCache(NULL), -1);
    assert_int_equal(removeLocalSegment(NULL, "127.0.0.1:1"), -1);
    assert_int_equal(warmupEfaSegment(NULL, "127.0.0.1:1"), -1);
    assert_int_equal(registerLocalMemory(NULL, &byte, 1, "*", 1), -1);
    assert_int_equal(unregisterLocalMemory(NULL, &byte), -1);
    assert_int_equal(registerLocalMemoryBatch(NULL, &entry, 1, "*"), -1);
    assert_int_equal(unregisterLocalMemoryBatch(NULL, &address, 1), -1);
    assert_true(allocateBatchID(NULL, 1) == INVALID_BATCH);
    assert_int_equal(submitTransfer(NULL, 1, &request, 1), -1);
    assert_int_equal(submitTransferWithNotify(NULL, 1, &request, 1, message), -1);
    assert_int_equal(getTransferStatus(NULL, 1, 0, &status), -1);
    assert_int_equal(freeBatchID(NULL, 1), -1);
    assert_int_equal(genNotifyInEngine(NULL, 0, message), -1);
    assert_null(getNotifsFromEngine(NULL, &size));
    assert_int_equal(freeNotifsMsgBuf(NULL, 0), 0);
    assert_int_equal(getNicLoadStats(NULL, NULL, &count), -1);
    assert_int_equal(showLinks(NULL, text, sizeof text, 1), -1);
}
