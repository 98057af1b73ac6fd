/* Prefetching for the next push: only what may be a push to a sparse table is looked at. */
#include <stddef.h>
#include <string.h>

#include "fixture.h"
#include "ps/shard/push_prefetch.h"

static bool expects(const struct fixture *f, size_t bytes)
{
    const struct sl_shard_push_prefetch ahead =
        sl_shard_push_prefetch_begin(f->shard, f->request.payload, bytes);
    sl_shard_push_prefetch_end(f->shard, &ahead);
    return ahead.is_push;
}

CASE(ahead__takes_pushes_of_sparse_tables)
{
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 7, 1.0F), SL_SHARD_DONE);
    assert_true(expects(f, f->request.bytes)); /* the fixture's last request */
    assert_true(fixture_peek(f, ASP, 7) == 1.0F);
    assert_false(expects(f, f->request.bytes)); /* a pull */
}

CASE(ahead__validates_what_it_reads)
{
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, 7, 1.0F), SL_SHARD_DONE);
    const size_t least =
        sizeof(struct sl_request_prefix) + sizeof(struct sl_request_section) + sizeof(uint64_t);
    assert_true(expects(f, least));
    assert_false(expects(f, least - 1));
    assert_false(sl_shard_push_prefetch_begin(f->shard, NULL, 0).is_push);
    uint8_t *table_id = f->request.payload + sizeof(struct sl_request_prefix) +
                        offsetof(struct sl_request_section, table_id);
    const uint16_t strange[] = {DENSE, SL_LIMIT_TABLES - 1, SL_LIMIT_TABLES, UINT16_MAX};
    for (size_t i = 0; i < 4; i++) {
        memcpy(table_id, &strange[i], sizeof strange[i]);
        assert_false(expects(f, f->request.bytes));
    }
}
