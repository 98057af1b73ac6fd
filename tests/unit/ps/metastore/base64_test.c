#include <string.h>

#include "ps/metastore/base64.h"
#include "tests/support/unit.h"

/* RFC 4648, section 10. */
SL_CASE(encode__vectors)
{
    static const char *const VECTORS[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
    };
    for (size_t i = 0; i < sizeof VECTORS / sizeof VECTORS[0]; i++) {
        const char *plain = VECTORS[i][0];
        char text[16];
        uint8_t back[16];
        size_t bytes = 99;
        sl_base64_encode((const uint8_t *)plain, strlen(plain), text);
        assert_string_equal(text, VECTORS[i][1]);
        assert_int_equal(strlen(text), sl_base64_length(strlen(plain)));
        assert_int_equal(sl_base64_decode(text, strlen(text), back, &bytes), 0);
        assert_int_equal(bytes, strlen(plain));
        assert_memory_equal(back, plain, bytes);
    }
}

SL_CASE(decode__every_byte_comes_back)
{
    uint8_t from[256 + 2];
    for (size_t i = 0; i < sizeof from; i++) {
        from[i] = (uint8_t)(255 - i);
    }
    for (size_t length = 0; length <= sizeof from; length++) {
        char text[400];
        uint8_t back[sizeof from + 2];
        size_t bytes;
        sl_base64_encode(from, length, text);
        assert_int_equal(sl_base64_decode(text, strlen(text), back, &bytes), 0);
        assert_int_equal(bytes, length);
        assert_memory_equal(back, from, length);
    }
}

SL_CASE(decode__what_is_none_is_refused)
{
    static const char *const BAD[] = {
        "Z",    "Zg",     "Zg=",  "Zg==Zg==", "Z===", "====", "Zh==",
        "Zm9=", "Zm9v\n", "Zm 9", "Zm-_",     "=Zm9", "Zg=v",
    };
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) {
        uint8_t back[16];
        size_t bytes;
        assert_int_equal(sl_base64_decode(BAD[i], strlen(BAD[i]), back, &bytes), SL_ERR_PROTOCOL);
    }
}
