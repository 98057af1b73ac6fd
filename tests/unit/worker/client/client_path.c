#include "tests/unit/worker/client/client_path.h"

uint64_t path_keys[NEAR_KEYS + 1];
float path_rows[NEAR_KEYS + 4];
bool path_memory_is_plain;

static void pull(struct peer_world *world)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, path_keys, NEAR_KEYS, path_rows), 0);
    assert_int_equal(sl_step_submit(step, 60000), 0);
    peer_expect(world, step, 0, "");
}

void path_expect_way(struct peer_world *world, bool path)
{
    pull(world);
    assert_non_null(world->data);
    assert_ptr_equal(world->data->transport, path ? world->path.transport : world->transport);
    static const char *const names[] = {
        [SL_ENDPOINT_TCP] = "ps/0 shard 0 (tcp://127.0.0.1:",
        [SL_ENDPOINT_SHM] = "ps/0 shard 0 (shm://127.0.0.1:",
        [SL_ENDPOINT_RDMA] = "ps/0 shard 0 (rdma://127.0.0.1:",
        [SL_ENDPOINT_DPDK] = "ps/0 shard 0 (dpdk://127.0.0.1:",
    };
    const char *name = names[path ? world->path.scheme : SL_ENDPOINT_TCP];
    peer_assert_contains(world->client->conns[0].name, name);
}

bool path_is_registered(const struct peer_world *world, const void *base)
{
    for (uint32_t i = 0; i < world->path.registered_count; i++) {
        if (world->path.registered[i].base == base) {
            return true;
        }
    }
    return false;
}

void path_call_io(struct peer_world *world, void (*run)(struct sl_control_op *call), void *memory,
                  size_t bytes)
{
    struct sl_port *port;
    assert_int_equal(sl_port_here(world->client->ports, &port), 0);
    struct sl_control_op call = {
        .io = &world->client->ios[0],
        .run = run,
        .buffer = {.memory = memory, .bytes = bytes, .is_shared = !path_memory_is_plain}};
    sl_control_op_post(&call, port);
    for (int turns = 0; !call.done && turns < PEER_TURNS_MAX; turns++) {
        peer_turn(world);
        sl_port_drain(port);
    }
    assert_true(call.done);
}

struct sl_step *path_submit_pull(struct peer_world *world, float *to, uint32_t key_count)
{
    struct sl_step *step;
    assert_int_equal(sl_step_begin(world->client, 0, &step), 0);
    assert_int_equal(sl_step_pull(step, world->table, path_keys, key_count, to), 0);
    assert_int_equal(sl_step_submit(step, 500), 0);
    return step;
}
