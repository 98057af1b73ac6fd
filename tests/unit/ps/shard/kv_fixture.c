#include "kv_fixture.h"
#include "tests/support/unit.h"

#include <stdio.h>
#include <string.h>

static uint32_t value_bytes(uint16_t table)
{
    return table == BYTES ? 1 : sizeof(float);
}

void kv_make(struct kv_fixture *f, const struct sl_shard_options *options)
{
    static const char *const names[] = {"floats", "bytes", "rows"};
    assert_int_equal(sl_shard_create(options, &f->shard), 0);
    for (uint16_t id = 0; id < 3; id++) {
        struct sl_table_spec spec = {
            .kind = id == ROWS ? SL_TABLE_SPARSE : SL_TABLE_KV,
            .dim = value_bytes(id),
            .optimizer = sl_optimizer_defaults(SL_OPTIMIZER_SUM),
        };
        (void)snprintf(spec.name, sizeof spec.name, "%s", names[id]);
        assert_int_equal(sl_shard_table_open(f->shard, id, &spec, &f->reason), 0);
    }
}

void kv_setup(struct kv_fixture *f)
{
    f->key_budget = 1000;
    kv_make(f, &(struct sl_shard_options){.count = 1});
}

void kv_teardown(struct kv_fixture *f)
{
    sl_shard_destroy(&f->shard);
}

int kv_begin(struct kv_fixture *f, struct sl_shard_request *work)
{
    const struct sl_shard_client caller = {0};
    f->slices = 0;
    return sl_shard_begin(f->shard, &caller, f->request.payload, f->request.bytes, work,
                          &f->reason);
}

int kv_go_on(struct kv_fixture *f, struct sl_shard_request *work)
{
    int result = SL_SHARD_AGAIN;
    while (result == SL_SHARD_AGAIN) {
        uint32_t spent;
        result = sl_shard_run(f->shard, work, f->reply, f->key_budget, &spent, &f->reason);
        assert_true(result != SL_SHARD_AGAIN || spent > 0);
        f->slices++;
    }
    return result;
}

void kv_request(struct kv_fixture *f, uint16_t table, uint8_t op, const uint64_t *keys,
                uint32_t key_count, const uint32_t *lens, const void *values, uint64_t count)
{
    shard_request_begin(&f->request, 0);
    shard_request_kv(&f->request,
                     (struct sl_request_section){.op = op, .table_id = table, .count = count}, keys,
                     key_count, lens, values, value_bytes(table));
}

void kv_request_piece(struct kv_fixture *f, uint16_t table, uint8_t op, uint64_t key,
                      uint64_t start, uint32_t whole, const void *values, uint64_t count)
{
    const struct sl_request_section section = {
        .op = op, .table_id = table, .bag_count = whole, .start = start, .count = count};
    shard_request_begin(&f->request, 0);
    shard_request_kv(&f->request, section, &key, 1, NULL, values, value_bytes(table));
}

int kv_run_request(struct kv_fixture *f)
{
    const int err = kv_begin(f, &f->work);
    return err != 0 ? err : kv_go_on(f, &f->work);
}

int kv_run(struct kv_fixture *f, uint16_t table, uint8_t op, const uint64_t *keys,
           uint32_t key_count, const uint32_t *lens, const void *values, uint64_t count)
{
    kv_request(f, table, op, keys, key_count, lens, values, count);
    return kv_run_request(f);
}

uint32_t kv_length(struct kv_fixture *f, uint16_t table, uint64_t key)
{
    uint32_t length;
    assert_int_equal(kv_run(f, table, SL_REQUEST_KV_LENGTHS, &key, 1, NULL, NULL, 0),
                     SL_SHARD_DONE);
    memcpy(&length, f->reply, sizeof length);
    return length;
}

struct sl_message_table_stats kv_stats(struct kv_fixture *f, uint16_t table)
{
    struct sl_message message = {.kind = SL_MESSAGE_STATS};
    assert_int_equal(sl_shard_stats(f->shard, &message.stats), 0);
    const struct sl_message_table_stats stats = message.stats.tables[table];
    sl_message_fini(&message);
    return stats;
}
