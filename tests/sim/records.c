#include "tests/sim/records.h"

#include <stdlib.h>

#include "core/assert.h"

static struct sl_sim_record *find(struct sl_sim_records *records, enum sl_coordinator_record kind,
                                  uint32_t index)
{
    for (uint32_t i = 0; i < records->count; i++) {
        if (records->records[i].kind == kind && records->records[i].index == index) {
            return &records->records[i];
        }
    }
    if (records->count == records->capacity) {
        records->capacity = 2 * records->capacity + 16;
        records->records = realloc(records->records, records->capacity * sizeof *records->records);
        sl_assert(records->records != NULL);
    }
    records->records[records->count] = (struct sl_sim_record){.kind = kind, .index = index};
    return &records->records[records->count++];
}

void sl_sim_records_fini(struct sl_sim_records *records)
{
    for (uint32_t i = 0; i < records->count; i++) {
        free(records->records[i].value);
    }
    free(records->records);
    *records = (struct sl_sim_records){.records = NULL};
}

void sl_sim_records_note(struct sl_sim_records *records, enum sl_coordinator_record kind,
                         uint32_t index)
{
    if (kind == SL_COORDINATOR_RECORD_ALL) {
        const uint32_t forgotten = records->forgotten + 1;
        sl_sim_records_fini(records);
        records->forgotten = forgotten;
    } else {
        find(records, kind, index)->is_dirty = true;
    }
}

void sl_sim_records_keep(struct sl_sim_records *records, const struct sl_coordinator *coordinator)
{
    for (uint32_t i = 0; i < records->count; i++) {
        struct sl_sim_record *record = &records->records[i];
        if (!record->is_dirty) {
            continue;
        }
        free(record->value);
        record->value = NULL;
        record->is_dirty = false;
        int err = sl_coordinator_record_write(coordinator, record->kind, record->index,
                                              &record->value, &record->value_bytes);
        sl_assert(err == 0);
    }
}

bool sl_sim_records_lack(const struct sl_sim_records *records, enum sl_coordinator_record kind)
{
    bool is_lacking = false;
    for (uint32_t i = 0; i < records->count; i++) {
        is_lacking =
            is_lacking || (records->records[i].kind == kind && records->records[i].is_dirty);
    }
    return is_lacking;
}

static void give_one(struct sl_sim_record *record, enum sl_coordinator_record kind,
                     struct sl_coordinator *coordinator)
{
    if (record->kind != kind) {
        return;
    }
    record->is_dirty = false; /* nobody was told */
    if (record->value != NULL) {
        int err = sl_coordinator_record_read(coordinator, kind, record->index, record->value,
                                             record->value_bytes, NULL);
        sl_assert(err == 0);
    }
}

void sl_sim_records_give(struct sl_sim_records *records, struct sl_coordinator *coordinator,
                         uint64_t now_ns)
{
    for (enum sl_coordinator_record kind = 0; kind < SL_COORDINATOR_RECORD_ALL; kind++) {
        for (uint32_t i = 0; i < records->count; i++) {
            give_one(&records->records[i], kind, coordinator);
        }
    }
    sl_coordinator_record_end(coordinator, now_ns);
}
