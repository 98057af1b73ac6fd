/* Scans: each row that exists throughout comes once, whatever happens to the others. */
#include <stdlib.h>
#include <string.h>

#include "core/hash.h"
#include "fixture.h"
#include "ps/shard/state.h"

#define COPY     77
#define KEYS_MAX 3000

struct scan {
    struct sl_request_section section;
    struct sl_request_scan body;
    struct sl_request_scanned head; /* of the last reply */
};

static struct scan scan_of(uint16_t table, uint32_t rows)
{
    return (struct scan){
        .section = {.table_id = table, .count = rows, .bag_count = DIM},
        .body = {.end = UINT64_MAX},
    };
}

/* Asks for the next rows. */
static int scan_next(struct fixture *f, struct scan *scan)
{
    shard_request_begin(&f->request, 0);
    shard_request_scan(&f->request, scan->section, &scan->body);
    memset(f->reply, 0xff, sizeof f->reply);
    const int result = fixture_run(f, NOBODY);
    if (result == SL_SHARD_DONE) {
        memcpy(&scan->head, f->reply, sizeof scan->head);
        scan->section.start = scan->head.next;
        scan->body.copy = scan->head.copy;
    }
    return result;
}

static uint64_t key_at(const struct fixture *f, uint32_t row)
{
    uint64_t key;
    memcpy(&key, f->reply + sizeof(struct sl_request_scanned) + row * sizeof key, sizeof key);
    return key;
}

static struct sl_request_scan_mark mark_at(const struct fixture *f, const struct scan *scan,
                                           uint32_t row)
{
    struct sl_request_scan_mark mark;
    const size_t at = sizeof scan->head + scan->section.count * sizeof(uint64_t);
    memcpy(&mark, f->reply + at + row * sizeof mark, sizeof mark);
    return mark;
}

static float value_at(const struct fixture *f, const struct scan *scan, uint32_t row,
                      uint32_t column)
{
    float value;
    const size_t at =
        sizeof scan->head +
        scan->section.count * (sizeof(uint64_t) + sizeof(struct sl_request_scan_mark));
    memcpy(&value, f->reply + at + (row * scan->section.bag_count + column) * sizeof value,
           sizeof value);
    return value;
}

static void push(struct fixture *f, uint64_t key, float value)
{
    assert_int_equal(fixture_push(f, NOBODY, 0, ASP, key, value), SL_SHARD_DONE);
}

static void erase(struct fixture *f, uint64_t key)
{
    shard_request_begin(&f->request, 0);
    shard_request_erase(&f->request, ASP, &key, 1);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
}

CASE(scan__returns_every_row_once)
{
    uint32_t seen[KEYS_MAX] = {0};
    for (uint64_t key = 0; key < KEYS_MAX; key++) {
        push(f, key, (float)key);
    }
    struct scan scan = scan_of(ASP, 999);
    uint32_t rows = 0;
    do {
        assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
        assert_int_equal(scan.head.width_max, DIM);
        assert_int_equal(scan.head.step, KEYS_MAX);
        for (uint32_t i = 0; i < scan.head.row_count; i++) {
            const uint64_t key = key_at(f, i);
            assert_true(key < KEYS_MAX);
            seen[key]++;
            assert_true(value_at(f, &scan, i, 1) == (float)key);
            assert_int_equal(mark_at(f, &scan, i).count, 1);
            assert_int_equal(mark_at(f, &scan, i).last_step, key + 1);
        }
        rows += scan.head.row_count;
    } while (scan.head.next != UINT64_MAX);
    assert_int_equal(rows, KEYS_MAX);
    for (uint32_t key = 0; key < KEYS_MAX; key++) {
        assert_int_equal(seen[key], 1);
    }
    /* Zeros behind the last row. */
    for (uint32_t i = scan.head.row_count; i < scan.section.count; i++) {
        assert_int_equal(key_at(f, i), 0);
        assert_int_equal(mark_at(f, &scan, i).count, 0);
        assert_true(value_at(f, &scan, i, 0) == 0);
    }
}

/* Most rows go during a scan: the others stay in their records until it has rested for long. Then
 * they move, and the scan cannot go on. */
CASE(scan__the_table_does_not_shrink_meanwhile)
{
    uint32_t seen[KEYS_MAX] = {0};
    struct sl_shard_table *table = f->shard->tables[ASP];
    f->shard->options.copy = COPY;
    for (uint64_t key = 0; key < KEYS_MAX; key++) {
        push(f, key, (float)key);
    }
    struct scan scan = scan_of(ASP, 400);
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    const struct scan rests = scan;
    for (uint64_t key = 0; key < KEYS_MAX; key++) {
        if (key % 10 != 0) {
            erase(f, key);
        }
    }
    push(f, 0, 1.0F);
    assert_int_equal(sl_sparse_table_record_count(table->sparse), KEYS_MAX);
    do {
        assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
        for (uint32_t i = 0; i < scan.head.row_count; i++) {
            seen[key_at(f, i)]++;
        }
    } while (scan.head.next != UINT64_MAX);
    for (uint32_t key = 400; key < KEYS_MAX; key++) {
        assert_int_equal(seen[key], key % 10 == 0);
    }
    assert_true(table->moves.rest > 100000);
    table->moves.rest = 1; /* as after so many pushes */
    for (uint32_t i = 0; i < 20; i++) {
        push(f, 0, 1.0F);
    }
    assert_true(sl_sparse_table_record_count(table->sparse) < KEYS_MAX / 2);
    scan = rests;
    assert_int_equal(scan_next(f, &scan), SL_ERR_CLOSED);
    assert_non_null(strstr(f->reason.text, "the table shrank"));
    scan = scan_of(ASP, KEYS_MAX);
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    assert_int_equal(scan.head.row_count, KEYS_MAX / 10);
}

CASE(scan__filters_rows)
{
    for (uint64_t key = 0; key < 100; key++) {
        push(f, key, 1.0F);
    }
    push(f, 7, 1.0F); /* step 101 */
    push(f, 8, 1.0F);
    struct scan scan = scan_of(ASP, 1000);
    scan.section.command = 2;
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    assert_int_equal(scan.head.row_count, 2);
    scan = scan_of(ASP, 1000);
    scan.body.since = 99;
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    assert_int_equal(scan.head.row_count, 3); /* 7, 8, and 99 of step 100 */
    scan = scan_of(ASP, 1000);
    scan.body.since = 102;
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    assert_int_equal(scan.head.row_count, 0);
    scan = scan_of(ASP, 1000);
    scan.section.start = 90;
    scan.body.end = 95;
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    assert_int_equal(scan.head.row_count, 5);
    assert_int_equal(scan.head.next, 95);
}

CASE(scan__of_strange_cursors_ends)
{
    static const uint64_t starts[] = {100, UINT32_MAX, UINT64_MAX - 1, UINT64_MAX};
    push(f, 1, 1.0F);
    for (uint32_t i = 0; i < sizeof starts / sizeof *starts; i++) {
        struct scan scan = scan_of(ASP, 10);
        scan.section.start = starts[i];
        assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
        assert_int_equal(scan.head.row_count, 0);
        assert_true(scan.head.next == UINT64_MAX);
    }
    struct scan scan = scan_of(ASP, 0); /* no rows are asked for */
    scan.section.bag_count = 0;
    assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
    assert_int_equal(scan.head.next, 0);
    assert_int_equal(scan.head.records, 1);
}

static int scan_begin(struct fixture *f, const struct scan *scan)
{
    const struct sl_shard_client caller = {.has_clock = false};
    shard_request_begin(&f->request, 0);
    shard_request_scan(&f->request, scan->section, &scan->body);
    return sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes, &f->work,
                          &f->reason);
}

CASE(scan__of_another_width_or_copy_is_refused)
{
    push(f, 1, 1.0F);
    struct scan scan = scan_of(ASP, 1);
    scan.section.bag_count = DIM + 1;
    assert_int_equal(scan_begin(f, &scan), SL_ERR_PROTOCOL);
    assert_non_null(strstr(f->reason.text, "a scan of 3 floats a row: accepts 2, or 2 with slots"));
    scan = scan_of(DENSE, 1);
    assert_int_equal(scan_begin(f, &scan), SL_ERR_PROTOCOL);
    scan = scan_of(ASP, 4096);
    scan.section.bag_count = 4000000000U;
    assert_int_equal(scan_begin(f, &scan), SL_ERR_PROTOCOL);
    scan = scan_of(ASP, 4097);
    assert_int_equal(scan_begin(f, &scan), SL_ERR_PROTOCOL);
    scan = scan_of(ASP, 1);
    scan.body.copy = f->shard->options.copy + 1;
    assert_int_equal(scan_next(f, &scan), SL_ERR_CLOSED);
    assert_non_null(strstr(f->reason.text, "another copy of the shard"));
}

/* Rows that are pushed, erased and created between the messages of a scan and its slices. Those
 * that are never erased come exactly once, with both values of one push. */
CASE(scan__returns_rows_once_while_others_come_and_go)
{
    uint64_t seed = 5;
    for (uint32_t round = 0; round < 30; round++) {
        uint32_t seen[KEYS_MAX] = {0};
        for (uint64_t key = 0; key < KEYS_MAX; key++) {
            push(f, key, 1.0F);
        }
        struct scan scan = scan_of(ASP, 1 + (uint32_t)(sl_hash_random(&seed) % 1000));
        do {
            for (uint32_t i = 0; i < 100; i++) {
                const uint64_t key = sl_hash_random(&seed) % (2 * KEYS_MAX);
                if (key % 3 == 0 && sl_hash_random(&seed) % 2 == 0) {
                    erase(f, key);
                } else {
                    push(f, key, 1.0F);
                }
            }
            assert_int_equal(scan_next(f, &scan), SL_SHARD_DONE);
            for (uint32_t i = 0; i < scan.head.row_count; i++) {
                const uint64_t key = key_at(f, i);
                assert_true(key < 2 * KEYS_MAX);
                seen[key % KEYS_MAX] += key < KEYS_MAX;
                assert_true(value_at(f, &scan, i, 0) == value_at(f, &scan, i, 1));
            }
        } while (scan.head.next != UINT64_MAX);
        for (uint32_t key = 0; key < KEYS_MAX; key++) {
            assert_true(key % 3 == 0 || seen[key] == 1);
        }
    }
}
