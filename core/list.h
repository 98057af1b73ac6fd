/* Intrusive doubly linked lists with O(1) removal, and SL_CONTAINER_OF: from a member to the struct
 * that contains it. A zeroed link is in no list; a list is initialized before its first use. Single
 * queues and stacks are written out where they are used. One owner. */
#ifndef SL_CORE_LIST_H
#define SL_CORE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define SL_CONTAINER_OF(pointer, type, member)                                                     \
    ((type *)(void *)((char *)(pointer)-offsetof(type, member)))

struct sl_list_link {
    struct sl_list_link *prev, *next;
};

struct sl_list {
    struct sl_list_link head;
};

/* Visits the links from the first to the last. The body may remove the visited link, no other. */
#define SL_LIST_FOREACH(link, list)                                                                \
    for (struct sl_list_link *link = (list)->head.next, *link##_next = link->next;                 \
         link != &(list)->head; link = link##_next, link##_next = link->next)

static inline void sl_list_init(struct sl_list *list)
{
    list->head.prev = list->head.next = &list->head;
}

static inline bool sl_list_empty(const struct sl_list *list)
{
    return list->head.next == &list->head;
}

static inline bool sl_list_linked(const struct sl_list_link *link)
{
    return link->next != NULL;
}

/* Removes the link from its list, if any. */
static inline void sl_list_remove(struct sl_list_link *link)
{
    if (link->next != NULL) {
        link->prev->next = link->next;
        link->next->prev = link->prev;
        link->prev = link->next = NULL;
    }
}

/* Inserts the link before `next`, which may be the head of a list, after removing it from its list.
 */
static inline void sl_list_insert(struct sl_list_link *next, struct sl_list_link *link)
{
    sl_list_remove(link);
    link->prev = next->prev;
    link->next = next;
    next->prev->next = link;
    next->prev = link;
}

/* Appends the link, after removing it from its list. */
static inline void sl_list_append(struct sl_list *list, struct sl_list_link *link)
{
    sl_list_insert(&list->head, link);
}

/* Inserts the link before all others, after removing it from its list. */
static inline void sl_list_prepend(struct sl_list *list, struct sl_list_link *link)
{
    sl_list_remove(link);
    link->prev = &list->head;
    link->next = list->head.next;
    list->head.next->prev = link;
    list->head.next = link;
}

static inline struct sl_list_link *sl_list_first(const struct sl_list *list)
{
    return sl_list_empty(list) ? NULL : list->head.next;
}

/* Removes and returns the first link, or NULL. */
static inline struct sl_list_link *sl_list_pop(struct sl_list *list)
{
    struct sl_list_link *link = sl_list_first(list);
    if (link != NULL) {
        sl_list_remove(link);
    }
    return link;
}

/* The item whose link this is, or NULL. */
static inline void *sl_list_item(struct sl_list_link *link, size_t offset)
{
    return link != NULL ? (char *)link - offset : NULL;
}

static inline struct sl_list_link *sl_list_next(const struct sl_list *list,
                                                const struct sl_list_link *link)
{
    return link->next != &list->head ? link->next : NULL;
}

/* The first item of a list of items `type` by their link `member`, or NULL; POP removes it. */
#define SL_LIST_FIRST(type, member, list)                                                          \
    ((type *)sl_list_item(sl_list_first(list), offsetof(type, member)))
#define SL_LIST_POP(type, member, list)                                                            \
    ((type *)sl_list_item(sl_list_pop(list), offsetof(type, member)))
#define SL_LIST_NEXT(type, item, member, list)                                                     \
    ((item) == NULL                                                                                \
         ? NULL                                                                                    \
         : (type *)sl_list_item(sl_list_next((list), &(item)->member), offsetof(type, member)))

/* Visits the items. EACH: the body may remove the visited item, no other. TAKE: removes each item
 * before its visit, until none is left. */
#define SL_LIST_EACH(type, item, member, list)                                                     \
    for (type *item = SL_LIST_FIRST(type, member, list),                                           \
              *item##_next = SL_LIST_NEXT(type, item, member, list);                               \
         item != NULL; item = item##_next, item##_next = SL_LIST_NEXT(type, item, member, list))
#define SL_LIST_TAKE(type, item, member, list)                                                     \
    for (type * item; (item = SL_LIST_POP(type, member, list)) != NULL;)

/* Moves all links of `from` to the end of `to`. */
static inline void sl_list_append_all(struct sl_list *to, struct sl_list *from)
{
    if (!sl_list_empty(from)) {
        struct sl_list_link *first = from->head.next, *last = from->head.prev;
        first->prev = to->head.prev;
        to->head.prev->next = first;
        last->next = &to->head;
        to->head.prev = last;
        sl_list_init(from);
    }
}

#endif
