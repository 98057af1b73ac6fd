/* Doubly linked lists of requests. Owner reactor. */
#ifndef SL_PS_SERVER_REQUEST_LIST_H
#define SL_PS_SERVER_REQUEST_LIST_H

#include "core/assert.h"
#include "ps/server/internal.h"

/* The request must be in no list. */
static inline void sl_server_request_list_append(struct sl_server_request_list *list,
                                                 struct sl_server_request *request)
{
    sl_assert(request->list == NULL);
    request->list = list;
    request->prev = list->last;
    request->next = NULL;
    if (list->last == NULL) {
        list->first = request;
    } else {
        list->last->next = request;
    }
    list->last = request;
}

static inline void sl_server_request_list_remove(struct sl_server_request *request)
{
    struct sl_server_request_list *list = request->list;
    if (request->prev == NULL) {
        list->first = request->next;
    } else {
        request->prev->next = request->next;
    }
    if (request->next == NULL) {
        list->last = request->prev;
    } else {
        request->next->prev = request->prev;
    }
    request->list = NULL;
}

#endif
