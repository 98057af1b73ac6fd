#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/err.h"
#include "core/pool.h"
#include "tests/support/unit.h"

SL_CASE(pool_get__exhausted_gives_null_and_recovers)
{
    struct sl_pool pool;
    void *blocks[8];
    assert_int_equal(sl_pool_init(&pool, 100, 8), 0);
    for (size_t i = 0; i < 8; i++) {
        blocks[i] = sl_pool_get(&pool);
        assert_non_null(blocks[i]);
    }
    assert_null(sl_pool_get(&pool));
    assert_int_equal(pool.free_count, 0);
    sl_pool_put(&pool, blocks[5]);
    assert_ptr_equal(sl_pool_get(&pool), blocks[5]);
    assert_null(sl_pool_get(&pool));
    sl_pool_fini(&pool);
}

SL_CASE(pool_get__blocks_are_aligned_and_do_not_overlap)
{
    struct sl_pool pool;
    uint8_t *blocks[16];
    assert_int_equal(sl_pool_init(&pool, 65, 16), 0);
    assert_int_equal(pool.block_bytes, 128);
    for (uint8_t i = 0; i < 16; i++) {
        blocks[i] = sl_pool_get(&pool);
        assert_int_equal((uintptr_t)blocks[i] % 64, 0);
        memset(blocks[i], i, pool.block_bytes);
    }
    for (uint8_t i = 0; i < 16; i++) {
        for (size_t at = 0; at < pool.block_bytes; at++) {
            assert_int_equal(blocks[i][at], i);
        }
    }
    sl_pool_fini(&pool);
}

SL_CASE(pool_init__sizes_that_overflow_are_too_large)
{
    struct sl_pool pool;
    assert_int_equal(sl_pool_init(&pool, SIZE_MAX, 1), SL_ERR_TOO_LARGE);
    assert_int_equal(sl_pool_init(&pool, SIZE_MAX / 2, 4), SL_ERR_TOO_LARGE);
    assert_int_equal(sl_pool_init(&pool, (size_t)1 << 40, UINT32_MAX), SL_ERR_TOO_LARGE);
}

/* Puts `block` in a process of its own; returns the signal that ended it, 0 for none. */
static int put_apart(struct sl_pool *pool, void *block)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        close(STDERR_FILENO);
        sl_pool_put(pool, block);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

SL_CASE(pool_put__a_stranger_is_a_failed_assertion)
{
    struct sl_pool pool;
    assert_int_equal(sl_pool_init(&pool, 64, 4), 0);
    uint8_t *block = sl_pool_get(&pool);
    assert_int_equal(put_apart(&pool, block), 0);
    assert_int_equal(put_apart(&pool, block + 1), SIGABRT);
    assert_int_equal(put_apart(&pool, pool.base + 4 * pool.block_bytes), SIGABRT);
    assert_int_equal(put_apart(&pool, pool.base - 64), SIGABRT);
    sl_pool_put(&pool, block);
    /* The pool is full: a block given back twice is seen in every build. */
    assert_int_equal(put_apart(&pool, block), SIGABRT);
    sl_pool_fini(&pool);
}
