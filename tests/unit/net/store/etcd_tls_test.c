/* etcds://: the client and a real etcd prove to each other who they are. */
#include <stdio.h>
#include <string.h>

#include "core/clock.h"
#include "net/store/etcd.h"
#include "real_etcd.h"
#include "tests/conformance/authority.h"
#include "tests/support/patience.h"
#include "tests/support/unit.h"

/* A machine that is busy may take long; who is refused need not be waited for. */
#define TIMEOUT       SL_TEST_PATIENCE_NS
#define SHORT_TIMEOUT (2 * SL_CLOCK_NS_PER_S)

static struct real_etcd server;
static bool is_there;

static struct sl_metastore_answer ask(const struct sl_transport_tls *files, bool tls,
                                      uint64_t timeout)
{
    struct sl_metastore_address address = {.etcd = {.server_count = 1, .tls = tls}};
    if (files != NULL) {
        address.authority = files->authority;
        address.certificate = files->certificate;
        address.key = files->key;
    }
    (void)snprintf(address.etcd.servers[0], sizeof address.etcd.servers[0], "127.0.0.1:%u",
                   server.port);
    struct sl_etcd *etcd;
    assert_int_equal(sl_etcd_create(&address, &etcd), 0);
    struct sl_metastore_request read = {
        .kind = SL_METASTORE_READ, .timeout_ns = timeout, .key = "k"};
    sl_etcd_perform(etcd, &read);
    sl_etcd_destroy(&etcd);
    sl_metastore_answer_fini(&read.answer);
    return read.answer;
}

static int start(void **state)
{
    authority_make();
    is_there = real_etcd_start(&server, authority_files(AUTHORITY_NODE));
    if (is_there) { /* until it has come up */
        assert_int_equal(ask(authority_files(AUTHORITY_NODE), true, TIMEOUT).err, 0);
    }
    return 0;
}

static int end(void **state)
{
    if (is_there) {
        real_etcd_stop(&server);
    }
    return 0;
}

static void expect_failure(const struct sl_metastore_answer *answer, const char *why)
{
    assert_true(answer->err == SL_ERR_IO || answer->err == SL_ERR_DEADLINE);
    if (strstr(answer->reason, "127.0.0.1:") == NULL || strstr(answer->reason, why) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", why, answer->reason);
    }
}

SL_CASE(tls__whom_it_trusts)
{
    if (!is_there) {
        skip();
    }
    const struct sl_metastore_answer answer = ask(authority_files(AUTHORITY_NODE), true, TIMEOUT);
    assert_int_equal(answer.err, 0);
    assert_string_equal(answer.reason, "");
}

/* Where the machine is busy, the time may be over before the server has shown its certificate. */
static void expect_disbelief(const struct sl_transport_tls *files)
{
    struct sl_metastore_answer answer;
    int tries = 0;
    do {
        answer = ask(files, true, SHORT_TIMEOUT);
    } while (answer.err != 0 && strstr(answer.reason, "certificate") == NULL && ++tries < 30);
    expect_failure(&answer, "certificate");
}

/* The client does not believe in the server. */
SL_CASE(tls__a_server_of_an_unknown_authority)
{
    if (!is_there) {
        skip();
    }
    expect_disbelief(authority_files(AUTHORITY_STRANGER));
    expect_disbelief(NULL); /* with the system's authorities */
}

/* The server does not believe in the client: it shows one of another authority, an old one, none.
 */
SL_CASE(tls__a_client_that_is_not_trusted)
{
    if (!is_there) {
        skip();
    }
    struct sl_metastore_answer answer =
        ask(authority_files(AUTHORITY_IMPOSTOR), true, SHORT_TIMEOUT);
    expect_failure(&answer, "");
    answer = ask(authority_files(AUTHORITY_EXPIRED), true, SHORT_TIMEOUT);
    expect_failure(&answer, "");
    const struct sl_transport_tls none = {.authority = authority_files(AUTHORITY_NODE)->authority};
    answer = ask(&none, true, SHORT_TIMEOUT);
    expect_failure(&answer, "");
}

SL_CASE(tls__not_spoken_by_the_client)
{
    if (!is_there) {
        skip();
    }
    const struct sl_metastore_answer answer = ask(NULL, false, SHORT_TIMEOUT);
    assert_true(answer.err != 0);
    assert_true(answer.reason[0] != '\0');
}

SL_UNIT_GROUP(start, end);

int main(void)
{
    const int failed = sl_unit_run("etcd_tls", "/etcd_tls_test.c");
    return failed == 0 && !is_there ? 77 : failed; /* skipped */
}
