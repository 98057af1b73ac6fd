#include "net/transfer/matrix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/sysfs_tree.h"
#include "tests/support/unit.h"

static struct sl_devices devices;
static struct sl_matrix matrix;
static struct sl_matrix_list preferred, available;
static struct sl_reason reason;

static void use_tree(const char *description)
{
    struct sysfs_tree tree;
    sysfs_tree_make(&tree, description);
    sysfs_tree_read(&tree, &devices);
    sysfs_tree_remove(&tree);
}

static int parse(const char *text)
{
    reason.text[0] = '\0';
    return sl_matrix_parse(text, "/etc/matrix.json", &devices, &matrix, &reason);
}

static void expect_refusal(const char *text, const char *words)
{
    assert_int_equal(parse(text), SL_ERR_INVALID);
    if (strstr(reason.text, "/etc/matrix.json") == NULL || strstr(reason.text, words) == NULL) {
        fail_msg("\"%s\" is not in \"%s\"", words, reason.text);
    }
}

static const char *device_name(const struct sl_matrix_list *list, uint32_t index)
{
    assert_true(index < list->count);
    return matrix.devices[list->devices[index]];
}

static void find(const char *location)
{
    uint32_t i = 0;
    while (i < matrix.location_count && strcmp(matrix.locations[i].name, location) != 0) {
        i++;
    }
    assert_true(i < matrix.location_count);
    preferred = matrix.locations[i].preferred;
    available = matrix.locations[i].available;
}

SL_CASE(matrix_parse__mooncakes_form)
{
    use_tree("two-sockets");
    assert_int_equal(parse("{\"cpu:0\": [[\"mlx5_1\", \"mlx5_0\"], [\"eth4\"]],"
                           " \"cuda:0\": [[\"mlx5_0\"], []]}"),
                     0);
    assert_int_equal(matrix.location_count, 2);
    find("cpu:0");
    assert_int_equal(preferred.count, 2);
    assert_string_equal(device_name(&preferred, 0), "mlx5_1");
    assert_string_equal(device_name(&preferred, 1), "mlx5_0");
    assert_int_equal(available.count, 1);
    assert_string_equal(device_name(&available, 0), "eth4");
    find("cuda:0");
    assert_string_equal(device_name(&preferred, 0), "mlx5_0");
    assert_int_equal(available.count, 0);
}

SL_CASE(matrix_parse__a_device_counts_where_it_comes_first)
{
    use_tree("two-sockets");
    assert_int_equal(
        parse("{\"cpu:0\": [[\"mlx5_0\", \"mlx5_0\"], [\"mlx5_0\", \"mlx5_1\", \"mlx5_1\"]]}"), 0);
    find("cpu:0");
    assert_int_equal(preferred.count, 1);
    assert_int_equal(available.count, 1);
    assert_string_equal(device_name(&available, 0), "mlx5_1");
}

SL_CASE(matrix_prefers__devices_of_the_location)
{
    use_tree("two-sockets");
    assert_int_equal(
        parse("{\"cpu:1\": [[], []], \"cpu:0\": [[\"eth4\", \"mlx5_0\"], [\"mlx5_1\"]]}"), 0);
    assert_true(sl_matrix_prefers(&matrix, "cpu:0", "eth4"));
    assert_true(sl_matrix_prefers(&matrix, "cpu:0", "mlx5_0"));
    assert_false(sl_matrix_prefers(&matrix, "cpu:0", "mlx5_1"));
    assert_false(sl_matrix_prefers(&matrix, "cpu:0", ""));
    assert_false(sl_matrix_prefers(&matrix, "cpu:1", "mlx5_0"));
    assert_false(sl_matrix_prefers(&matrix, "cpu:2", "mlx5_0"));
    assert_false(sl_matrix_prefers(&matrix, "*", "mlx5_0"));
}

SL_CASE(matrix_parse__refusals)
{
    char text[4096];
    use_tree("two-sockets");
    expect_refusal("", "no JSON");
    expect_refusal("{\"cpu:0\": [[\"mlx5_0\"], [", "no JSON");
    expect_refusal("[]", "no JSON object");
    expect_refusal("{\"cpu:0\": {}}", "\"cpu:0\" lacks an array");
    expect_refusal("{\"cpu:0\": [[\"mlx5_0\"]]}", "\"cpu:0\" lacks an array");
    expect_refusal("{\"cpu:0\": [[\"mlx5_0\"], \"mlx5_1\"]}", "\"cpu:0\" lacks an array");
    expect_refusal("{\"cpu:0\": [[], []], \"cpu:0\": [[], []]}", "repeated");
    expect_refusal("{\"cpu:0\": [[], []], \"cpu:0\": [[], []]}", "cpu:0");
    expect_refusal("{\"cpu:0\": [[7], []]}", "\"cpu:0\"");
    expect_refusal("{\"\": [[], []]}", "location");
    expect_refusal("{\"cpu:0\": [[\"mlx9_0\"], []]}", "\"cpu:0\": there is no device \"mlx9_0\"");
    expect_refusal("{\"cpu:0\": [[\"mlx9_0\"], []]}", "mlx5_0, mlx5_1");
    (void)snprintf(text, sizeof text, "{\"%0200d\": [[], []]}", 0);
    expect_refusal(text, "location");
    size_t used = (size_t)snprintf(text, sizeof text, "{\"x\": [[], []]");
    for (uint32_t i = 0; i < SL_MATRIX_LOCATIONS_MAX; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, ", \"cpu:%u\": [[], []]", i);
    }
    (void)snprintf(text + used, sizeof text - used, "}");
    expect_refusal(text, "locations");
    use_tree("none");
    expect_refusal("{\"cpu:0\": [[\"mlx5_0\"], []]}", "none");
}

SL_CASE(matrix_parse__huge)
{
    const size_t bytes = (size_t)SL_MATRIX_BYTES_MAX + 2;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, '[', bytes - 1);
    text[bytes - 1] = '\0';
    assert_int_equal(parse(text), SL_ERR_TOO_LARGE);
    text[bytes - 2] = '\0';
    assert_int_equal(parse(text), SL_ERR_INVALID);
    free(text);
}

SL_CASE(matrix_discover__two_sockets)
{
    use_tree("two-sockets");
    sl_matrix_discover(&devices, &matrix);
    assert_int_equal(matrix.location_count, 2);
    find("cpu:1");
    /* Of the 4 adapters there, one is down and one has no address. */
    assert_int_equal(preferred.count, 4);
    assert_string_equal(device_name(&preferred, 0), "mlx5_4");
    assert_string_equal(device_name(&preferred, 1), "mlx5_7");
    assert_string_equal(device_name(&preferred, 2), "eth4");
    assert_int_equal(available.count, 8);
    assert_string_equal(device_name(&available, 0), "mlx5_0");
}

/* What is discovered is written as text that parse accepts, and means the same. */
SL_CASE(matrix_write__is_accepted)
{
    static const char *const TREES[] = {"two-sockets", "one-adapter", "none"};
    for (size_t i = 0; i < 3; i++) {
        char *text, *again;
        use_tree(TREES[i]);
        sl_matrix_discover(&devices, &matrix);
        assert_int_equal(sl_matrix_write(&matrix, &text), 0);
        assert_int_equal(parse(text), 0);
        assert_int_equal(sl_matrix_write(&matrix, &again), 0);
        assert_string_equal(text, again);
        free(text);
        free(again);
    }
    use_tree("one-adapter");
    sl_matrix_discover(&devices, &matrix);
    char *text;
    assert_int_equal(sl_matrix_write(&matrix, &text), 0);
    assert_string_equal(text, "{\"cpu:0\": [[\"eth0\"], []]}");
    free(text);
}
