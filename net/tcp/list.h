/* An intrusive doubly linked list with O(1) removal. A zeroed link is in no list. */
#ifndef SL_NET_TCP_LIST_H
#define SL_NET_TCP_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sl_tcp_link {
    struct sl_tcp_link *prev, *next;
};

struct sl_tcp_list {
    struct sl_tcp_link head;
};

static inline void sl_tcp_list_init(struct sl_tcp_list *list)
{
    list->head.prev = list->head.next = &list->head;
}

static inline bool sl_tcp_list_empty(const struct sl_tcp_list *list)
{
    return list->head.next == &list->head;
}

static inline bool sl_tcp_list_linked(const struct sl_tcp_link *link)
{
    return link->next != NULL;
}

/* Removes the link from its list, if any. */
static inline void sl_tcp_list_remove(struct sl_tcp_link *link)
{
    if (link->next != NULL) {
        link->prev->next = link->next;
        link->next->prev = link->prev;
        link->prev = link->next = NULL;
    }
}

/* Appends the link, after removing it from its list. */
static inline void sl_tcp_list_append(struct sl_tcp_list *list, struct sl_tcp_link *link)
{
    sl_tcp_list_remove(link);
    link->prev = list->head.prev;
    link->next = &list->head;
    list->head.prev->next = link;
    list->head.prev = link;
}

static inline struct sl_tcp_link *sl_tcp_list_first(struct sl_tcp_list *list)
{
    return sl_tcp_list_empty(list) ? NULL : list->head.next;
}

/* Removes and returns the first link, or NULL. */
static inline struct sl_tcp_link *sl_tcp_list_pop(struct sl_tcp_list *list)
{
    struct sl_tcp_link *link = sl_tcp_list_first(list);
    if (link != NULL) {
        sl_tcp_list_remove(link);
    }
    return link;
}

/* Moves all links of `from` to the end of `to`. */
static inline void sl_tcp_list_append_all(struct sl_tcp_list *to, struct sl_tcp_list *from)
{
    if (!sl_tcp_list_empty(from)) {
        struct sl_tcp_link *first = from->head.next, *last = from->head.prev;
        first->prev = to->head.prev;
        to->head.prev->next = first;
        last->next = &to->head;
        to->head.prev = last;
        sl_tcp_list_init(from);
    }
}

#endif
