/* Requests whose values stand apart from their structure, where the sender may change them. */

#include <string.h>

#include "fixture.h"
#include "tests/support/unit.h"

static const uint64_t keys[] = {3, 9, 4};
static const float gradients[] = {1, 2, 3, 4, 5, 6};

/* Where the values of a request of one section begin. */
static size_t structure_of(const struct shard_request *request)
{
    struct sl_request_section section;
    memcpy(&section, request->payload + sizeof(struct sl_request_prefix), sizeof section);
    return sizeof(struct sl_request_prefix) + sizeof section + sl_request_structure_bytes(&section);
}

/* Takes f->request in, its values in `values`, room for its payload. */
static int begin_out_of_line(struct fixture *f, uint32_t worker, uint8_t *structure,
                             uint8_t *values)
{
    const size_t bytes = structure_of(&f->request);
    struct sl_shard_client caller = {.has_clock = worker != NOBODY,
                                     .worker = worker == NOBODY ? 0 : worker};
    memcpy(structure, f->request.payload, bytes);
    memcpy(values, f->request.payload + bytes, f->request.bytes - bytes);
    return sl_shard_begin_out_of_line(f->shard, &caller, structure, bytes, values,
                                      f->request.bytes - bytes, &f->work, &f->reason);
}

struct places {
    _Alignas(8) uint8_t structure[256];
    _Alignas(8) uint8_t values[16384];
    _Alignas(8) uint8_t moved[16384];
};

CASE(shard_begin_out_of_line__refuses_what_does_not_fit)
{
    struct places places;
    struct sl_shard_client caller = {0};
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, keys, 3, gradients, DIM);
    const size_t bytes = structure_of(&f->request);
    const size_t rest = f->request.bytes - bytes;
    memcpy(places.structure, f->request.payload, bytes);
    for (size_t wrong = 0; wrong <= rest + 8; wrong += 8) {
        int err = sl_shard_begin_out_of_line(f->shard, &caller, places.structure, bytes,
                                             places.values, wrong, &f->work, &f->reason);
        assert_int_equal(err, wrong == rest ? 0 : SL_ERR_PROTOCOL);
    }
    /* The values behind the structure too. */
    assert_int_equal(sl_shard_begin_out_of_line(f->shard, &caller, f->request.payload,
                                                f->request.bytes, places.values, rest, &f->work,
                                                &f->reason),
                     SL_ERR_PROTOCOL);
    /* Nothing to push. */
    shard_request_begin(&f->request, 0);
    shard_request_pull(&f->request, ASP, keys, 3);
    assert_int_equal(begin_out_of_line(f, NOBODY, places.structure, places.values),
                     SL_ERR_PROTOCOL);
    /* Two sections. */
    shard_request_begin(&f->request, 0);
    shard_request_push(&f->request, SL_REQUEST_PUSH, ASP, keys, 3, gradients, DIM);
    shard_request_tick(&f->request);
    assert_int_equal(begin_out_of_line(f, 0, places.structure, places.values), SL_ERR_PROTOCOL);
}

/* What stands apart is the sender's, who changes it while the request waits, the padding too. */
CASE(shard_move_rest__brings_the_values_along)
{
    struct places places;
    const float three[] = {1, 2, 3};
    assert_int_equal(fixture_tick(f, 0, 0), SL_SHARD_DONE);
    shard_request_begin(&f->request, 1);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PUSH_PULL, DENSE, 0, 3, three);
    memset(f->request.payload + f->request.bytes - sizeof(float), 0xee, sizeof(float));
    assert_int_equal(begin_out_of_line(f, 0, places.structure, places.values), 0);
    assert_true(sl_shard_waits(f->shard, &f->work));
    assert_int_equal(fixture_go_on(f), SL_SHARD_PARKED);
    const size_t bytes = sl_shard_rest_bytes(f->shard, &f->work);
    assert_int_equal(bytes, sizeof(struct sl_request_section) + 4 * sizeof(float));
    sl_shard_move_rest(f->shard, &f->work, places.moved);
    memset(places.structure, 0xff, sizeof places.structure);
    memset(places.values, 0xff, sizeof places.values);
    struct sl_shard_request parked = f->work;
    assert_int_equal(fixture_tick(f, 1, 0), SL_SHARD_DONE);
    assert_int_equal(fixture_tick(f, 2, 0), SL_SHARD_DONE);
    f->work = parked;
    assert_int_equal(fixture_go_on(f), SL_SHARD_DONE);
    fixture_tick_all(f, 1);
    fixture_commit(f);
    shard_request_begin(&f->request, 0);
    shard_request_dense(&f->request, SL_REQUEST_DENSE_PULL, DENSE, 0, 4, NULL);
    assert_int_equal(fixture_run(f, NOBODY), SL_SHARD_DONE);
    const float expected[] = {1, 2, 3, 0};
    assert_memory_equal(f->reply, expected, sizeof expected);
}
