/* Clients of memif that have not been let in: what they may make this process hold. */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "net/dpdk/module/memif_arguments.h"
#include "net/dpdk/module/memif_guest.h"
#include "net/dpdk/module/module.h"
#include "tests/support/unit.h"

#define HELD_MAX 768U /* messages, each with a descriptor, of all clients together */
#define CLIENTS  8U

static void log_nothing(enum sl_log_level level, const char *format, ...)
{
    (void)level;
    (void)format;
}

static const struct sl_dpdk_host host = {.log = log_nothing};
const struct sl_dpdk_host *sl_module_host = &host;

static enum sl_module_memif_fate judge(struct sl_module_memif_guest *guest, uint64_t time_ns)
{
    (void)guest;
    (void)time_ns;
    return SL_MODULE_MEMIF_STAYS;
}

static uint64_t now_ns;

static void look(void)
{
    struct pollfd polled[128];
    nfds_t count = 0;
    (void)sl_module_memif_guest_look(judge, now_ns, polled, &count, 128);
}

static uint32_t descriptors(void)
{
    uint32_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

static struct sl_module_memif_address listen_somewhere(void)
{
    static struct sl_module_memif_address address = {.is_abstract = true};
    int code = 0;
    (void)snprintf(address.path, sizeof address.path, "starling-guests-%ld", (long)getpid());
    assert_non_null(sl_module_memif_guest_listen(&address, &code));
    return address;
}

/* False: the client was turned away. */
static bool say(int client, enum sl_module_memif_kind kind)
{
    struct sl_module_memif_message message = {.fd = -1};
    message.bytes[0] = (uint8_t)kind;
    if (kind == SL_MODULE_MEMIF_ADD_REGION) {
        message.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        assert_true(message.fd >= 0);
    }
    const int sent = sl_module_memif_socket_send(client, &message);
    sl_module_memif_socket_close(&message.fd);
    return sent == 1;
}

static void say_ring(int client, bool is_c2s, uint8_t index)
{
    struct sl_module_memif_message message = {.fd = -1};
    message.bytes[0] = SL_MODULE_MEMIF_ADD_RING;
    message.bytes[2] = is_c2s;
    message.bytes[4] = index;
    assert_int_equal(sl_module_memif_socket_send(client, &message), 1);
    look();
}

/* Reads what it was answered. */
static bool was_turned_away(int client)
{
    struct sl_module_memif_message answer;
    int got = 1;
    while (got > 0) {
        got = sl_module_memif_socket_receive(client, &answer);
    }
    return got < 0;
}

/* Says so many regions, as long as it may; reads what it is answered, so that there is room. */
static void say_regions(int client, uint32_t count)
{
    bool goes_on = say(client, SL_MODULE_MEMIF_INIT);
    for (uint32_t i = 0; goes_on && i < count; i++) {
        struct sl_module_memif_message answer;
        goes_on = say(client, SL_MODULE_MEMIF_ADD_REGION);
        look();
        while (sl_module_memif_socket_receive(client, &answer) > 0) {
        }
    }
}

/* They say without end what a client may say; the process keeps its descriptors. */
SL_CASE(guests__hold_no_more_than_one_may)
{
    const struct sl_module_memif_address address = listen_somewhere();
    int clients[CLIENTS];
    const uint32_t before = descriptors();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        clients[i] = sl_module_memif_socket_dial(&address);
        assert_true(clients[i] >= 0);
        look();
        say_regions(clients[i], 400);
        assert_true(descriptors() <= before + 2 * CLIENTS + HELD_MAX);
    }
    now_ns += 10 * SL_CLOCK_NS_PER_S; /* they have not said all in time */
    look();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        sl_module_memif_socket_close(&clients[i]);
    }
    assert_int_equal(descriptors(), before);
    /* What they held is free for others again. */
    int client = sl_module_memif_socket_dial(&address);
    look();
    say_regions(client, 400);
    assert_true(descriptors() >= before + 400);
    now_ns += 10 * SL_CLOCK_NS_PER_S;
    look();
    sl_module_memif_socket_close(&client);
    assert_int_equal(descriptors(), before);
}

SL_CASE(guest__says_no_more_than_a_client_can_mean)
{
    const struct sl_module_memif_address address = listen_somewhere();
    const uint32_t before = descriptors();
    int client = sl_module_memif_socket_dial(&address);
    look();
    say_regions(client, HELD_MAX + 10);
    assert_int_equal(descriptors(), before + 1); /* it was turned away */
    sl_module_memif_socket_close(&client);
}

/* Those of each way have their own indices; one that comes again, or too early, is none. */
SL_CASE(guest__says_its_rings_in_order)
{
    static const struct {
        struct {
            bool is_c2s;
            uint8_t index;
        } rings[4];
        bool is_good;
    } cases[] = {
        {{{true, 0}, {false, 0}, {true, 1}, {false, 1}}, true},
        {{{true, 0}, {false, 0}, {true, 1}, {true, 0}}, false},
        {{{true, 0}, {false, 0}, {true, 1}, {false, 0}}, false},
        {{{true, 0}, {false, 0}, {true, 1}, {true, 3}}, false},
    };
    const struct sl_module_memif_address address = listen_somewhere();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int client = sl_module_memif_socket_dial(&address);
        look();
        assert_true(say(client, SL_MODULE_MEMIF_INIT));
        look();
        for (uint32_t k = 0; k < 4; k++) {
            assert_false(was_turned_away(client));
            say_ring(client, cases[i].rings[k].is_c2s, cases[i].rings[k].index);
        }
        assert_true(was_turned_away(client) != cases[i].is_good);
        sl_module_memif_socket_close(&client);
        look();
    }
}

SL_CASE(arguments__an_id_is_a_number)
{
    static const char *const wrong[] = {"id=",   "id=x",          "id=1x",
                                        "id=-1", "id=4294967296", "role=client,id= 1"};
    struct sl_module_memif_arguments read;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_non_null(sl_module_memif_arguments_read(wrong[i], &read));
    }
    assert_null(sl_module_memif_arguments_read("role=server,id=4294967295,bsize=2048", &read));
    assert_int_equal(read.id, UINT32_MAX);
    assert_true(read.is_server);
}
