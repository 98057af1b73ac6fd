#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "programs/launch/local.h"
#include "tests/support/unit.h"

SL_CASE(local_free_ports__an_address_of_another_machine_is_an_error)
{
    uint16_t port;
    struct sl_reason reason = {0};
    /* Of RFC 5737, for documentation: nobody has it. */
    assert_int_equal(sl_local_free_ports("192.0.2.1", 1, &port, &reason), SL_ERR_IO);
    assert_non_null(strstr(reason.text, "cannot listen at 192.0.2.1: "));
}

SL_CASE(local_free_ports__more_than_there_are_is_an_error)
{
    static uint16_t ports[65536];
    struct sl_reason reason = {0};
    char address[32];
    /* All ports are held for a moment: of an address that nobody else looks for one at. */
    const unsigned own = (unsigned)getpid();
    snprintf(address, sizeof address, "127.%u.%u.%u", 1 + (own >> 16) % 254, (own >> 8) % 256,
             own % 256);
    /* Whichever is met first: the end of the ports, or of the files that this process may open. */
    const int err = sl_local_free_ports(address, 65536, ports, &reason);
    assert_true(err == SL_ERR_IN_USE || err == SL_ERR_IO);
    assert_non_null(strstr(reason.text, address));
}

SL_CASE(local_free_ports__reserves_them_among_launchers)
{
    uint16_t first[8], second[8];
    struct sl_reason reason;
    assert_int_equal(sl_local_free_ports("127.0.0.1", 8, first, &reason), 0);
    assert_int_equal(sl_local_free_ports("127.0.0.1", 8, second, &reason), 0); /* from the same */
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_not_equal(first[i / 8], second[i % 8]);
    }
}
