#include "worker/kv/place.h"

#include <stdlib.h>
#include <string.h>

#include "net/session/message_spec.h"
#include "worker/client/step_internal.h"
#include "worker/client/table_opening.h"

/* Limit of the room for all keys in the first step. */
#define ROOM_BYTES_MAX (1U << 20)

struct sl_engine_place {
    uint32_t room;   /* values of each key */
    uint8_t *values; /* [key_count][room] */
    uint64_t *keys;  /* of the second step */
    uint32_t *lens;  /* [key_count] received; then of the second step */
    bool is_second;
};

static uint32_t room_of(const struct sl_engine_call *call)
{
    const uint64_t each =
        ROOM_BYTES_MAX / call->kv->table->spec.dim / call->request.batch.key_count;
    const uint32_t most = each == 0 ? 1 : (uint32_t)each;
    return call->kv->room < 1 ? 1 : call->kv->room < most ? call->kv->room : most;
}

int sl_place_begin(struct sl_engine_call *call)
{
    const struct sl_kv_batch *asked = &call->request.batch;
    const size_t count = asked->key_count, width = call->kv->table->spec.dim;
    const uint32_t room = room_of(call);
    const size_t value_bytes = sl_bytes_pad8(count * room * width);
    int err = sl_table_check_knows(call->kv->table, SL_MESSAGE_SPEC_KNOWS_LENGTHS,
                                   "a pull of unknown lengths");
    if (err != 0) {
        return err;
    }
    struct sl_engine_place *place = calloc(1, sizeof *place);
    uint8_t *memory = malloc(value_bytes + count * (sizeof(uint64_t) + sizeof(uint32_t)));
    if (place == NULL || memory == NULL) {
        free(place);
        free(memory);
        return SL_ERR_NO_MEMORY;
    }
    *place = (struct sl_engine_place){
        .room = room,
        .values = memory,
        .keys = (uint64_t *)(void *)(memory + value_bytes),
        .lens = (uint32_t *)(void *)(memory + value_bytes + count * sizeof(uint64_t)),
    };
    call->place = place;
    struct sl_kv_batch batch = *asked;
    batch.pull = memory;
    batch.value_count = (uint64_t)count * room;
    return sl_step_kv_measure(call->step, call->kv->table, &batch, place->lens);
}

/* Copies the values from the rooms of their keys. */
static void place_copy(const struct sl_engine_call *call, uint8_t *to)
{
    const struct sl_engine_place *place = call->place;
    const size_t width = call->kv->table->spec.dim;
    for (uint32_t i = 0; i < call->request.batch.key_count; i++) {
        memcpy(to, place->values + (size_t)i * place->room * width, place->lens[i] * width);
        to += place->lens[i] * width;
    }
}

bool sl_place_next(struct sl_engine_call *call, struct sl_kv_batch *batch)
{
    struct sl_engine_place *place = call->place;
    const struct sl_kv_batch *asked = &call->request.batch;
    if (place == NULL || place->is_second || call->err != 0) {
        return false;
    }
    place->is_second = true;
    uint64_t total = 0;
    uint32_t longest = 0;
    for (uint32_t i = 0; i < asked->key_count; i++) {
        if (place->lens[i] == 0 && call->kv->zeros) {
            place->lens[i] = 1; /* in its room is 0 */
        }
        total += place->lens[i];
        longest = place->lens[i] > longest ? place->lens[i] : longest;
    }
    void *to = total < SL_LIMIT_DENSE_ELEMENTS
                   ? call->request.place(call->request.ctx, place->lens, total)
                   : NULL;
    if (to == NULL && total > 0) {
        call->err = SL_ERR_NO_MEMORY;
        return false;
    }
    call->kv->room = longest > call->kv->room ? longest : call->kv->room;
    if (longest <= place->room) {
        if (total > 0) {
            place_copy(call, to);
        }
        return false;
    }
    uint32_t count = 0;
    for (uint32_t i = 0; i < asked->key_count; i++) {
        if (place->lens[i] > 0) {
            place->keys[count] = asked->keys[i];
            place->lens[count++] = place->lens[i];
        }
    }
    *batch = (struct sl_kv_batch){.keys = place->keys,
                                  .lens = place->lens,
                                  .key_count = count,
                                  .value_count = total,
                                  .pull = to,
                                  .command = asked->command};
    return true;
}

void sl_place_free(struct sl_engine_call *call)
{
    if (call->place != NULL) {
        free(call->place->values);
        free(call->place);
        call->place = NULL;
    }
}
