/* Dropped tables: requests fail and name the table, whatever they were doing; snapshots lack it. */
#include <string.h>

#include "ps/shard/snapshot_internal.h"
#include "snapshot_fixture.h"

static void drop(struct fixture *f, uint32_t table)
{
    assert_true(sl_shard_table_drop(f->shard, table));
    assert_false(sl_shard_table_drop(f->shard, table));
}

static bool free_rows(struct fixture *f)
{
    struct sl_shard_storage storage;
    const bool has = sl_shard_take_dropped(f->shard, &storage);
    if (has) {
        sl_shard_storage_free(&storage);
    }
    return has;
}

static void expect_dropped(struct fixture *f, int result)
{
    assert_int_equal(result, SL_ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, "dropped"));
}

CASE(drop__ends_every_request_of_the_table)
{
    static const uint16_t tables[] = {ASP, SSP, BSP, DENSE};
    const uint64_t key = 1;
    const float one[DIM] = {1, 1};
    for (uint32_t i = 0; i < 4; i++) {
        const size_t bytes = f->shard->memory_bytes;
        drop(f, tables[i]);
        for (uint32_t round = 0; round < 2; round++) { /* before and after the memory is freed */
            shard_request_begin(&f->request, 0);
            if (tables[i] == DENSE) {
                shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, DENSE, 0, 10, NULL);
                expect_dropped(f, fixture_run(f, NOBODY));
                continue;
            }
            shard_request_pull(&f->request, tables[i], &key, 1);
            expect_dropped(f, fixture_run(f, 0));
            shard_request_begin(&f->request, 0);
            shard_request_push(&f->request, SL_REQUEST_PUSH_PULL, tables[i], &key, 1, one, DIM);
            expect_dropped(f, fixture_run(f, NOBODY));
            shard_request_begin(&f->request, 0);
            shard_request_erase(&f->request, tables[i], &key, 1);
            expect_dropped(f, fixture_run(f, NOBODY));
            shard_request_begin(&f->request, 0);
            shard_request_scan(
                &f->request,
                (struct sl_request_section){.table_id = tables[i], .count = 1, .bag_count = DIM},
                &(struct sl_request_scan){.end = UINT64_MAX});
            expect_dropped(f, fixture_run(f, NOBODY));
            assert_int_equal(free_rows(f), round == 0);
        }
        assert_int_equal(free_rows(f), tables[i] == DENSE);
        assert_true(f->shard->memory_bytes < bytes);
    }
}

/* A push between its slices, one that waits in the buffer, and a pull that waits for clocks. */
CASE(drop__ends_requests_in_progress)
{
    fixture_long(f, SL_REQUEST_PUSH, ASP, 0);
    fixture_begin(f, NOBODY);
    (void)snapshot_slice(f, 200, SL_SHARD_AGAIN);
    assert_non_null(f->shard->large.owner);
    drop(f, ASP);
    assert_true(free_rows(f));
    expect_dropped(f, fixture_go_on(f));
    assert_null(f->shard->large.owner);

    fixture_push_all(f, 0, BSP, 7, 1.0F);
    fixture_tick(f, 0, 0);
    float value;
    assert_int_equal(fixture_pull(f, 0, 1, BSP, 7, &value), SL_SHARD_PARKED);
    drop(f, BSP);
    assert_true(sl_shard_take_wakeup(f->shard));
    assert_false(sl_shard_waits(f->shard, &f->work));
    assert_true(free_rows(f));
    assert_int_equal(f->shard->tables[BSP]->buffered_count, 0);
    expect_dropped(f, fixture_go_on(f));
    fixture_tick(f, 1, 0);
    fixture_tick(f, 2, 0);
    fixture_commit(f);
}

CASE(drop__frees_the_id_for_nobody)
{
    struct sl_table_spec spec = f->shard->tables[ASP]->spec;
    drop(f, ASP);
    assert_int_equal(sl_shard_table_open(f->shard, ASP, &spec, &f->reason), SL_ERR_NOT_FOUND);
    assert_non_null(strstr(f->reason.text, spec.name));
    assert_int_equal(sl_shard_table_open(f->shard, 9, &spec, &f->reason), 0); /* a new one */
    spec.name[0] = 'x';
    assert_int_equal(sl_shard_table_note_dropped(f->shard, 10, &spec), 0);
    assert_int_equal(sl_shard_table_open(f->shard, 10, &spec, &f->reason), SL_ERR_NOT_FOUND);
    assert_true(free_rows(f));
    assert_false(free_rows(f)); /* the noted one has no rows */
    const uint64_t key = 1;
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, 10, &key, 1);
    expect_dropped(f, fixture_run(f, NOBODY));
}

/* A push that the primary executed before the drop has no effect at a backup that executes it
 * later. */
CASE(drop__leaves_a_backup_in_sync)
{
    const uint64_t key = 1;
    const float one[DIM] = {1, 1};
    drop(f, ASP);
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, &key, 1, one, DIM);
    shard_request_push(&f->request, SL_REQUEST_PUSH, SSP, &key, 1, one, DIM);
    fixture_begin(f, NOBODY);
    sl_shard_apply_only(&f->work, 2);
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    assert_true(fixture_peek(f, SSP, key) == 1.0F);
}

/* A snapshot that runs keeps the rows; one that begins later lacks the table, and has no base. */
CASE(drop__is_in_later_snapshots)
{
    struct sl_shard_snapshot_base *base;
    struct shard_stream stream = snapshot_of(f->shard, NULL, &base);
    shard_stream_fini(&stream);
    assert_int_equal(sl_shard_snapshot_begin(f->shard, &snapshot_everything), 0);
    drop(f, ASP);
    assert_false(free_rows(f));
    stream = snapshot_finish(f->shard, NULL);
    struct sl_shard *loaded = NULL;
    snapshot_load(&stream, &loaded);
    assert_non_null(loaded->tables[ASP]);
    sl_shard_destroy(&loaded);
    shard_stream_fini(&stream);
    assert_true(free_rows(f));
    assert_false(sl_shard_snapshot_base_holds(f->shard, base, SIZE_MAX));
    stream = snapshot_of(f->shard, base, NULL);
    snapshot_load(&stream, &loaded);
    assert_null(loaded->tables[ASP]);
    assert_non_null(loaded->tables[SSP]);
    sl_shard_destroy(&loaded);
    shard_stream_fini(&stream);
    sl_shard_snapshot_base_destroy(&base);
}
