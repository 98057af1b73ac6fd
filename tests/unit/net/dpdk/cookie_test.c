#include "net/dpdk/cookie.h"
#include "tests/support/unit.h"

/* Appendix A of the paper, and its reference implementation's table, for the lengths where the last
 * word has none, one, and all but one of its bytes. */
SL_CASE(cookie_hash__is_siphash)
{
    uint8_t key[16], text[16];
    for (uint8_t i = 0; i < 16; i++) {
        key[i] = text[i] = i;
    }
    assert_int_equal(sl_dpdk_cookie_hash(key, text, 0), 0x726fdb47dd0e0e31ULL);
    assert_int_equal(sl_dpdk_cookie_hash(key, text, 1), 0x74f839c593dc67fdULL);
    assert_int_equal(sl_dpdk_cookie_hash(key, text, 8), 0x93f5f5799a932462ULL);
    assert_int_equal(sl_dpdk_cookie_hash(key, text, 15), 0xa129ca6149be45e5ULL);
}
