#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/log.h"
#include "core/shared.h"

#define PAGE 4096

static struct sl_shared create(size_t bytes, enum sl_shared_access access)
{
    struct sl_shared shared;
    assert_int_equal(sl_shared_create("shared-test", bytes, access, &shared), 0);
    return shared;
}

static void shared_create__is_zero_and_whole_pages(void **state)
{
    (void)state;
    struct sl_shared shared = create(PAGE + 1, SL_SHARED_READ);
    assert_int_equal(shared.bytes, 2 * PAGE);
    assert_int_equal((uintptr_t)shared.base % PAGE, 0);
    for (size_t i = 0; i < shared.bytes; i++) {
        assert_int_equal(shared.base[i], 0);
    }
    sl_shared_destroy(&shared);
    assert_null(shared.base);
    sl_shared_destroy(&shared); /* of nothing: does nothing */
}

static void shared_create__cannot_change_its_size(void **state)
{
    (void)state;
    struct sl_shared shared = create(4 * PAGE, SL_SHARED_WRITE);
    assert_int_not_equal(ftruncate(shared.fd, PAGE), 0);
    assert_int_not_equal(ftruncate(shared.fd, 8 * PAGE), 0);
    assert_int_not_equal(fcntl(shared.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    sl_shared_destroy(&shared);
}

static void shared_create__more_than_there_is(void **state)
{
    (void)state;
    struct sl_shared shared;
    assert_int_equal(sl_shared_create("shared-test", SIZE_MAX, SL_SHARED_READ, &shared),
                     SL_ERR_NO_MEMORY);
    assert_true(sl_shared_create("shared-test", (size_t)1 << 62, SL_SHARED_READ, &shared) < 0);
}

static void shared_find__by_any_part(void **state)
{
    (void)state;
    struct sl_shared one = create(2 * PAGE, SL_SHARED_READ);
    struct sl_shared two = create(PAGE, SL_SHARED_WRITE);
    assert_ptr_equal(sl_shared_find(one.base, 1)->base, one.base);
    assert_ptr_equal(sl_shared_find(one.base + 5, 2 * PAGE - 5)->base, one.base);
    assert_ptr_equal(sl_shared_find(two.base + PAGE - 1, 1)->base, two.base);
    assert_int_equal(sl_shared_find(two.base, PAGE)->access, SL_SHARED_WRITE);
    const struct sl_shared *beyond = sl_shared_find(one.base + 5, 2 * PAGE);
    assert_null(beyond);
    assert_null(sl_shared_find(one.base, SIZE_MAX));
    assert_null(sl_shared_find(&one, 1));
    const uint8_t *was = one.base;
    sl_shared_destroy(&one);
    assert_null(sl_shared_find(was, 1));
    sl_shared_destroy(&two);
}

static void shared_attach__sees_what_the_maker_writes(void **state)
{
    (void)state;
    struct sl_shared made = create(PAGE, SL_SHARED_READ), seen;
    assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_READ, &seen), 0);
    memcpy(made.base, "words", sizeof "words");
    assert_string_equal((char *)seen.base, "words");
    assert_null(sl_shared_find(seen.base, 1)); /* not made here */
    sl_shared_destroy(&made);
    assert_string_equal((char *)seen.base, "words");
    sl_shared_detach(&seen);
    assert_null(seen.base);
}

static void shared_attach__writes_only_where_it_may(void **state)
{
    (void)state;
    struct sl_shared read_only = create(PAGE, SL_SHARED_READ), both = create(PAGE, SL_SHARED_WRITE);
    struct sl_shared attached;
    int fd = dup(read_only.fd);
    assert_int_equal(sl_shared_attach(fd, PAGE, PAGE, SL_SHARED_WRITE, &attached), SL_ERR_INVALID);
    assert_int_not_equal(fcntl(fd, F_GETFD), -1); /* still ours */
    close(fd);
    assert_int_equal(sl_shared_attach(dup(both.fd), PAGE, PAGE, SL_SHARED_WRITE, &attached), 0);
    attached.base[7] = 7;
    assert_int_equal(both.base[7], 7);
    sl_shared_detach(&attached);
    sl_shared_destroy(&read_only);
    sl_shared_destroy(&both);
}

static void expect_refused(int fd, size_t bytes, size_t bytes_max, int err)
{
    struct sl_shared attached;
    assert_true(fd >= 0);
    assert_int_equal(sl_shared_attach(fd, bytes, bytes_max, SL_SHARED_READ, &attached), err);
    assert_int_equal(close(fd), 0); /* it was left to us */
}

static void shared_attach__refuses_what_it_cannot_trust(void **state)
{
    (void)state;
    struct sl_shared made = create(2 * PAGE, SL_SHARED_READ);
    expect_refused(dup(made.fd), PAGE, 2 * PAGE, SL_ERR_INVALID);
    expect_refused(dup(made.fd), 4 * PAGE, 8 * PAGE, SL_ERR_INVALID);
    expect_refused(dup(made.fd), 2 * PAGE, PAGE, SL_ERR_TOO_LARGE);
    expect_refused(dup(made.fd), 0, PAGE, SL_ERR_INVALID);
    sl_shared_destroy(&made);

    int unsealed = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(unsealed, PAGE), 0);
    expect_refused(unsealed, PAGE, PAGE, SL_ERR_INVALID);
    int sockets[2];
    assert_int_equal(pipe(sockets), 0);
    expect_refused(sockets[0], PAGE, PAGE, SL_ERR_INVALID);
    expect_refused(sockets[1], PAGE, PAGE, SL_ERR_INVALID);
    expect_refused(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), PAGE, PAGE, SL_ERR_INVALID);
}

int main(void)
{
    sl_log_setup(SL_LOG_OFF, "shared-test");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_create__is_zero_and_whole_pages),
        cmocka_unit_test(shared_create__cannot_change_its_size),
        cmocka_unit_test(shared_create__more_than_there_is),
        cmocka_unit_test(shared_find__by_any_part),
        cmocka_unit_test(shared_attach__sees_what_the_maker_writes),
        cmocka_unit_test(shared_attach__writes_only_where_it_may),
        cmocka_unit_test(shared_attach__refuses_what_it_cannot_trust),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
