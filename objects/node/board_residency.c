#include "objects/node/board_residency.h"

#include "objects/node/node.h"

void sl_objects_board_residency_cost(struct sl_objects *node)
{
    double read_ns, byte_ns;
    if (node->follows.board.base != NULL) {
        sl_objects_cost_fit(&node->measured.cost, &read_ns, &byte_ns);
        sl_objects_board_set_cost((void *)node->follows.board.base, (uint64_t)read_ns,
                                  (uint64_t)(byte_ns * 1048576));
    }
}

void sl_objects_board_residency_changed(struct sl_objects *node, const char *name)
{
    const struct sl_objects_follow *follow = sl_objects_follow_find(&node->follows, name);
    const struct sl_objects_copy *copy;
    uint64_t bytes = 0;
    if (follow == NULL) {
        return;
    }
    const uint64_t version = sl_objects_board_announced(follow->entry);
    for (uint32_t part = 0; (copy = sl_objects_copy_find(node, name, version, part)) != NULL;
         part++) {
        bytes += sl_objects_copy_beginning(copy);
        if (sl_objects_copy_beginning(copy) < copy->info.bytes) {
            break;
        }
    }
    sl_objects_board_set_resident(follow->entry, bytes);
}
