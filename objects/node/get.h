/* The parts of a get, for tools of this tree: the public functions show the tensors of all parts in
 * one order. Threads of the application, after the get has succeeded. */
#ifndef SL_OBJECTS_NODE_GET_H
#define SL_OBJECTS_NODE_GET_H

#include <starling_objects.h>

/* Returns the part of the tensor that sl_get_next_tensor returns for a cursor of `index`; there is
 * such a tensor. */
uint32_t sl_get_part(const struct sl_get *get, uint64_t index);

#endif
