#include "tests/unit/objects/block_model.h"

#include <string.h>

void model_init(struct model *model, uint32_t block_count)
{
    memset(model, 0, sizeof *model);
    model->block_count = block_count;
    const uint32_t first = model_add(model);
    memset(model->nodes[first].held, true, block_count);
    model->nodes[first].held_count = block_count;
}

uint32_t model_add(struct model *model)
{
    struct model_node *node = &model->nodes[model->node_count];
    node->parents[0] = node->parents[1] = MODEL_NOBODY;
    node->next[1] = 1;
    return model->node_count++;
}

bool model_is_complete(const struct model *model, uint32_t node)
{
    return model->nodes[node].held_count == model->block_count;
}

/* The blocks that arrive in a step can be sent on in the next one. */
static struct {
    uint32_t node, block;
} arrived[NODES_MAX];

/* Each parent's edges, as lists: edge 2 * child + stripe. */
static uint32_t first_edge[NODES_MAX], next_edge[2 * NODES_MAX];

static void collect_edges(const struct model *model)
{
    for (uint32_t n = 0; n < model->node_count; n++) {
        first_edge[n] = MODEL_NOBODY;
    }
    for (uint32_t edge = 2 * model->node_count; edge-- > 0;) {
        const uint32_t parent = model->nodes[edge / 2].parents[edge % 2];
        if (parent != MODEL_NOBODY) {
            next_edge[edge] = first_edge[parent];
            first_edge[parent] = edge;
        }
    }
}

static bool can_send(const struct model *model, const struct model_node *parent, uint32_t edge)
{
    const uint32_t block = model->nodes[edge / 2].next[edge % 2];
    return block < model->block_count && parent->held[block];
}

/* The next edge, behind the one that was served last, whose child lacks a block that is here. */
static uint32_t choose_edge(const struct model *model, uint32_t n)
{
    const struct model_node *parent = &model->nodes[n];
    uint32_t before = MODEL_NOBODY;
    for (uint32_t edge = first_edge[n]; edge != MODEL_NOBODY; edge = next_edge[edge]) {
        if (can_send(model, parent, edge)) {
            if (edge > parent->edge) {
                return edge;
            }
            before = before == MODEL_NOBODY ? edge : before;
        }
    }
    return before;
}

void model_step(struct model *model)
{
    uint32_t count = 0;
    collect_edges(model);
    for (uint32_t n = 0; n < model->node_count; n++) {
        const uint32_t edge = choose_edge(model, n);
        if (edge != MODEL_NOBODY) {
            model->nodes[n].edge = edge;
            model->nodes[n].sent++;
            arrived[count].node = edge / 2;
            arrived[count++].block = model->nodes[edge / 2].next[edge % 2];
            model->nodes[edge / 2].next[edge % 2] += 2;
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        struct model_node *node = &model->nodes[arrived[i].node];
        node->held[arrived[i].block] = true;
        node->held_count++;
    }
}
