/* What is sent and what is kept add up to the gradients: exactly here, since all values are
 * multiples of 2^-10 below 2^6. */
#include "worker/client/error_feedback.h"

#include <math.h>
#include <pthread.h>

#include "core/hash.h"
#include "core/precision.h"
#include "tests/support/unit.h"

#define DIM    5
#define LENGTH 1000

static const struct sl_table_spec sparse = {.kind = SL_TABLE_SPARSE, .dim = DIM};
static const struct sl_table_spec dense = {.kind = SL_TABLE_DENSE, .length = LENGTH};

struct fixture {
    struct sl_error_feedback *rows; /* two sets of four keys */
    struct sl_error_feedback *elements;
};

static void setup(struct fixture *fixture)
{
    assert_int_equal(sl_error_feedback_bytes_min(&dense), 4 * LENGTH);
    assert_int_equal(
        sl_error_feedback_create(&sparse, 2 * sl_error_feedback_bytes_min(&sparse), &fixture->rows),
        0);
    assert_int_equal(sl_error_feedback_create(&dense, 4 * LENGTH, &fixture->elements), 0);
}

static void teardown(struct fixture *fixture)
{
    sl_error_feedback_destroy(&fixture->rows);
    sl_error_feedback_destroy(&fixture->elements);
    assert_null(fixture->rows);
    sl_error_feedback_destroy(&fixture->rows);
}

#define CASE(name) SL_CASE_USING(name, struct fixture, fixture, setup, teardown)

static float random_gradient(uint64_t *seed)
{
    return (float)((int32_t)(sl_hash_random(seed) % 65535) - 32767) * 0x1p-10F;
}

/* Pushes a row; adds what a server receives to sums[DIM]. */
static void send_row(struct sl_error_feedback *rows, enum sl_precision precision, uint64_t key,
                     const float *gradients, double *sums)
{
    uint8_t row[DIM * sizeof(float)];
    float received[DIM];
    sl_error_feedback_narrow_row(rows, precision, key, gradients, row);
    sl_precision_kernels(SL_PRECISION_SIMD_SCALAR)->widen(precision, row, DIM, received);
    for (uint32_t i = 0; i < DIM; i++) {
        sums[i] += (double)received[i];
    }
}

/* What is left after zeros were pushed fits the precision: it is sent whole. */
static void send_rest(struct sl_error_feedback *rows, enum sl_precision precision, uint64_t key,
                      double *sums)
{
    static const float zeros[DIM];
    for (uint32_t i = 0; i < 4; i++) {
        send_row(rows, precision, key, zeros, sums);
    }
}

CASE(narrow_row__sends_all_of_the_gradients_in_the_end)
{
    for (uint32_t precision = SL_PRECISION_F16; precision < SL_PRECISION_COUNT; precision++) {
        for (uint64_t key = 0; key < 3; key++) {
            double sent[DIM] = {0}, expected[DIM] = {0};
            uint64_t seed = key;
            bool is_exact = true;
            for (uint32_t push = 0; push < 500; push++) {
                float gradients[DIM];
                for (uint32_t i = 0; i < DIM; i++) {
                    gradients[i] = random_gradient(&seed);
                    expected[i] += (double)gradients[i];
                }
                send_row(fixture->rows, precision, key, gradients, sent);
                for (uint32_t i = 0; i < DIM; i++) {
                    is_exact = is_exact && sent[i] == expected[i];
                    assert_true(fabs(sent[i] - expected[i]) <= 0.5);
                }
            }
            assert_false(is_exact);
            send_rest(fixture->rows, precision, key, sent);
            assert_memory_equal(sent, expected, sizeof sent);
        }
    }
}

/* Rows of 256 elements from the start of each range. */
CASE(narrow_range__sends_all_of_the_gradients_in_the_end)
{
    static const struct {
        uint64_t start, count;
    } ranges[] = {{0, LENGTH}, {3, 700}, {999, 1}, {511, 256}};
    static float gradients[LENGTH], received[LENGTH];
    static uint8_t array[LENGTH * sizeof(float)];
    for (uint32_t precision = SL_PRECISION_F16; precision < SL_PRECISION_COUNT; precision++) {
        double sent[LENGTH] = {0}, expected[LENGTH] = {0};
        uint64_t seed = 1;
        for (uint32_t push = 0; push < 44; push++) {
            const uint64_t start = ranges[push < 40 ? push % 4 : 0].start;
            const uint64_t count = ranges[push < 40 ? push % 4 : 0].count;
            for (uint64_t i = 0; i < count; i++) {
                gradients[i] = push < 40 ? random_gradient(&seed) : 0;
                expected[start + i] += (double)gradients[i];
            }
            sl_error_feedback_narrow_range(fixture->elements, precision, start, count, gradients,
                                           array);
            sl_precision_widen_array(precision, array, 0, count, received);
            for (uint64_t i = 0; i < count; i++) {
                sent[start + i] += (double)received[i];
            }
        }
        assert_memory_equal(sent, expected, sizeof sent);
    }
}

/* BF16 sends 1 and keeps 2^-10. */
static const float odd[DIM] = {1 + 0x1p-10F};
static const double one[DIM] = {1}, none[DIM] = {0}, kept[DIM] = {0x1p-10};

static void expect_sent(struct sl_error_feedback *rows, uint64_t key, const float *gradients,
                        const double *expected)
{
    double sent[DIM] = {0};
    send_row(rows, SL_PRECISION_BF16, key, gradients, sent);
    assert_memory_equal(sent, expected, sizeof sent);
}

CASE(narrow_row__loses_the_oldest_key_of_a_full_set)
{
    static const float zeros[DIM];
    struct sl_error_feedback *rows;
    assert_int_equal(sl_error_feedback_create(&sparse, sl_error_feedback_bytes_min(&sparse), &rows),
                     0);
    for (uint64_t key = 0; key < 5; key++) {
        expect_sent(rows, key, odd, one);
    }
    for (uint64_t key = 1; key < 5; key++) {
        expect_sent(rows, key, zeros, kept);
        expect_sent(rows, key, zeros, none);
        expect_sent(rows, key, odd, one);
    }
    expect_sent(rows, 0, zeros, none); /* it was the oldest, and key 1 is now */
    expect_sent(rows, 2, zeros, kept);
    expect_sent(rows, 1, zeros, none);
    sl_error_feedback_destroy(&rows);
}

CASE(narrow_row__keeps_nothing_of_values_that_are_not_finite)
{
    static const float zeros[DIM];
    const float infinite[DIM] = {INFINITY, NAN};
    double sent[DIM] = {0};
    send_row(fixture->rows, SL_PRECISION_BF16, 7, infinite, sent);
    assert_true(isinf(sent[0]) && isnan(sent[1]));
    expect_sent(fixture->rows, 7, zeros, none);
}

enum { THREADS = 4, PUSHES = 100000 };

struct pusher {
    struct sl_error_feedback *rows;
    uint64_t seed;
    double sent[DIM], expected[DIM];
};

static void *run_pusher(void *arg)
{
    struct pusher *pusher = arg;
    for (uint32_t push = 0; push < PUSHES; push++) {
        float gradients[DIM];
        for (uint32_t i = 0; i < DIM; i++) {
            gradients[i] = random_gradient(&pusher->seed);
            pusher->expected[i] += (double)gradients[i];
        }
        send_row(pusher->rows, SL_PRECISION_INT8, 9, gradients, pusher->sent);
    }
    return NULL;
}

CASE(narrow_row__of_several_threads_loses_nothing)
{
    pthread_t threads[THREADS];
    struct pusher pushers[THREADS];
    double sent[DIM] = {0}, expected[DIM] = {0};
    for (uint32_t i = 0; i < THREADS; i++) {
        pushers[i] = (struct pusher){.rows = fixture->rows, .seed = i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_pusher, &pushers[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        for (uint32_t column = 0; column < DIM; column++) {
            sent[column] += pushers[i].sent[column];
            expected[column] += pushers[i].expected[column];
        }
    }
    send_rest(fixture->rows, SL_PRECISION_INT8, 9, sent);
    assert_memory_equal(sent, expected, sizeof sent);
}
