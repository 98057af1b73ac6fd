#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/log.h"
#include "core/shared.h"
#include "tests/support/unit.h"

#define PAGE 4096

static struct sl_shared create(size_t bytes, enum sl_shared_access access)
{
    struct sl_shared shared;
    assert_int_equal(sl_shared_create("shared-test", bytes, access, &shared), 0);
    return shared;
}

SL_CASE(shared_create__cannot_change_its_size)
{
    struct sl_shared shared = create(4 * PAGE, SL_SHARED_WRITE);
    assert_int_not_equal(ftruncate(shared.fd, PAGE), 0);
    assert_int_not_equal(ftruncate(shared.fd, 8 * PAGE), 0);
    assert_int_not_equal(fcntl(shared.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    sl_shared_destroy(&shared);
}

SL_CASE(shared_create__more_than_there_is)
{
    struct sl_shared shared;
    assert_int_equal(sl_shared_create("shared-test", SIZE_MAX, SL_SHARED_READ, &shared),
                     SL_ERR_NO_MEMORY);
    assert_true(sl_shared_create("shared-test", (size_t)1 << 62, SL_SHARED_READ, &shared) < 0);
}

/* The system kills who makes a file longer than this; it is an error like any other here. */
SL_CASE(shared_create__beyond_the_limit_on_files)
{
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit little = {.rlim_cur = PAGE, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    struct sl_shared shared;
    assert_int_equal(sl_shared_create("shared-test", 2 * PAGE, SL_SHARED_READ, &shared), SL_ERR_IO);
    shared = create(PAGE, SL_SHARED_READ);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    sl_shared_destroy(&shared);
}

SL_CASE(shared_find__by_any_part)
{
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

SL_CASE(shared_attach__sees_what_the_maker_writes)
{
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

SL_CASE(shared_attach__writes_only_where_it_may)
{
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

SL_CASE(shared_attach__refuses_what_it_cannot_trust)
{
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

/* The system has about twice as many for all purposes. */
SL_CASE(shared_attach__leaves_mappings_to_others)
{
    static struct sl_shared attached[SL_SHARED_ATTACHED_MAX];
    struct sl_shared made = create(PAGE, SL_SHARED_READ), more;
    for (uint32_t i = 0; i < SL_SHARED_ATTACHED_MAX; i++) {
        assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_READ, &attached[i]),
                         0);
    }
    expect_refused(dup(made.fd), PAGE, PAGE, SL_ERR_NO_MEMORY);
    sl_shared_detach(&attached[7]);
    assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_READ, &more), 0);
    assert_true(sl_shared_unmap_in_place(&attached[8]));
    assert_true(sl_shared_move_into(&more, &attached[8])); /* one less */
    assert_null(attached[8].base);
    assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_READ, &attached[8]), 0);
    expect_refused(dup(made.fd), PAGE, PAGE, SL_ERR_NO_MEMORY);
    for (uint32_t i = 0; i < SL_SHARED_ATTACHED_MAX; i++) {
        sl_shared_detach(&attached[i]);
    }
    sl_shared_detach(&more);
    sl_shared_destroy(&made);
}

SL_CASE(shared_hollow__is_there_and_holds_nothing)
{
    struct sl_shared made = create(PAGE, SL_SHARED_WRITE), seen, fresh;
    assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_WRITE, &seen), 0);
    uint8_t *at = seen.base;
    at[3] = 3;
    assert_true(sl_shared_unmap_in_place(&seen));
    assert_int_equal(at[3], 0);
    at[3] = 4;
    assert_int_equal(made.base[3], 3);
    assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_WRITE, &fresh), 0);
    assert_true(sl_shared_move_into(&fresh, &seen));
    assert_ptr_equal(fresh.base, at);
    at[4] = 5;
    assert_int_equal(made.base[3], 3);
    assert_int_equal(made.base[4], 5);
    sl_shared_detach(&fresh);
    sl_shared_detach(&seen); /* of nothing: does nothing */
    sl_shared_destroy(&made);
}

/* As another process has it. */
static struct sl_shared attach_again(const struct sl_shared *shared)
{
    struct sl_shared attached;
    const int fd = dup(shared->fd);
    assert_true(fd >= 0);
    assert_int_equal(sl_shared_attach(fd, shared->bytes, shared->bytes, SL_SHARED_WRITE, &attached),
                     0);
    return attached;
}

SL_CASE(shared_revoke__late_writes_do_not_show)
{
    struct sl_shared shared = create(8 * PAGE, SL_SHARED_WRITE);
    struct sl_shared late = attach_again(&shared);
    memset(shared.base, 1, shared.bytes);
    assert_true(sl_shared_may_land(&shared));
    assert_ptr_equal(sl_shared_at_peers(&shared), shared.base);
    uint8_t *const at = shared.base + PAGE + 100;
    memset(late.base + PAGE + 100, 2, 2 * PAGE);
    assert_int_equal(sl_shared_revoke(&shared, at, 3 * PAGE), 0);
    memset(late.base + PAGE + 100, 3, 3 * PAGE);
    for (uint32_t i = 0; i < 3 * PAGE; i++) {
        assert_int_equal(at[i], i < 2 * PAGE ? 2 : 1);
        assert_int_equal(sl_shared_at_peers(&shared)[PAGE + 100 + i], 3);
    }
    assert_int_equal(at[-1], 1);
    assert_int_equal(at[3 * PAGE], 1);
    assert_false(sl_shared_may_land(&shared));
    assert_true(sl_shared_is_revoked(&shared));
    assert_null(sl_shared_find(at, 1));
    /* What the creator writes is its own, also beyond what was revoked. */
    memset(shared.base, 4, shared.bytes);
    assert_int_equal(late.base[0], 1);
    assert_int_equal(late.base[7 * PAGE], 1);
    /* Of another peer, later. */
    assert_int_equal(sl_shared_revoke(&shared, shared.base + 7 * PAGE, PAGE), 0);
    late.base[7 * PAGE] = 5;
    assert_int_equal(shared.base[7 * PAGE], 4);
    sl_shared_detach(&late);
    sl_shared_destroy(&shared);
}

struct writer {
    uint8_t *at; /* in a page that is revoked for the sake of its other bytes */
    atomic_bool begun, ends;
    uint64_t count;
};

static void *write_on(void *ctx)
{
    struct writer *writer = ctx;
    while (!writer->ends) {
        uint64_t seen;
        memcpy(&seen, writer->at, sizeof seen);
        if (seen != writer->count) {
            return writer->at;
        }
        seen = ++writer->count;
        memcpy(writer->at, &seen, sizeof seen);
        writer->begun = true;
    }
    return NULL;
}

/* Another thread's writes beside it are not lost, whenever they come. */
SL_CASE(shared_revoke__other_threads_go_on)
{
    for (uint32_t i = 0; i < 100; i++) {
        struct sl_shared shared = create(4 * PAGE, SL_SHARED_WRITE);
        struct writer writer = {.at = shared.base + 2 * PAGE + 64};
        void *wrong;
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, write_on, &writer), 0);
        while (!writer.begun) {
            sched_yield();
        }
        assert_int_equal(sl_shared_revoke(&shared, shared.base + PAGE, PAGE + 64), 0);
        writer.ends = true;
        assert_int_equal(pthread_join(thread, &wrong), 0);
        assert_null(wrong);
        sl_shared_destroy(&shared);
    }
}

/* A device would go on with the old pages. */
SL_CASE(shared_revoke__not_of_what_a_device_has)
{
    struct sl_shared shared = create(4 * PAGE, SL_SHARED_WRITE);
    uint8_t elsewhere[8];
    sl_shared_pin(elsewhere, sizeof elsewhere);
    assert_true(sl_shared_may_land(&shared));
    sl_shared_pin(shared.base + PAGE, PAGE);
    assert_false(sl_shared_may_land(&shared));
    assert_int_equal(sl_shared_revoke(&shared, shared.base, PAGE), SL_ERR_UNSUPPORTED);
    assert_ptr_equal(sl_shared_at_peers(&shared), shared.base);
    assert_non_null(sl_shared_find(shared.base, PAGE));
    sl_shared_destroy(&shared);
}

/* A part of it takes something else; the rest stays, and both are one again. */
SL_CASE(shared_split__and_join)
{
    struct sl_shared made = create(PAGE, SL_SHARED_WRITE);
    struct sl_shared big = create(3 * PAGE, SL_SHARED_WRITE), range, rest, fresh;
    assert_int_equal(sl_shared_attach(dup(big.fd), 3 * PAGE, 3 * PAGE, SL_SHARED_WRITE, &range), 0);
    assert_true(sl_shared_unmap_in_place(&range));
    uint8_t *at = range.base;
    assert_true(sl_shared_split(&range, PAGE, &rest));
    assert_int_equal(range.bytes, PAGE);
    assert_ptr_equal(rest.base, at + PAGE);
    assert_int_equal(rest.bytes, 2 * PAGE);
    assert_int_equal(sl_shared_attach(dup(made.fd), PAGE, PAGE, SL_SHARED_WRITE, &fresh), 0);
    assert_true(sl_shared_move_into(&fresh, &range));
    at[0] = 7;
    at[PAGE] = 8;
    assert_int_equal(made.base[0], 7);
    assert_false(sl_shared_join(&rest, &fresh)); /* the other way round */
    assert_true(sl_shared_unmap_in_place(&fresh));
    assert_true(sl_shared_join(&fresh, &rest));
    assert_int_equal(fresh.bytes, 3 * PAGE);
    assert_null(rest.base);
    sl_shared_detach(&fresh);
    sl_shared_destroy(&big);
    sl_shared_destroy(&made);
}

SL_UNIT_SETUP()
{
    sl_log_setup(SL_LOG_OFF, "shared-test");
}
