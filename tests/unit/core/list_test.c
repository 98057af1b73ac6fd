#include "core/list.h"
#include "tests/support/unit.h"

struct item {
    int number;
    struct sl_list_link link;
};

static void assert_numbers(const struct sl_list *list, int first, int count)
{
    int seen = 0;
    SL_LIST_FOREACH (link, list) {
        assert_int_equal(SL_CONTAINER_OF(link, struct item, link)->number, first + seen);
        seen++;
    }
    assert_int_equal(seen, count);
}

static void fill(struct sl_list *list, struct item *items, int count)
{
    for (int i = 0; i < count; i++) {
        items[i] = (struct item){.number = i};
        sl_list_append(list, &items[i].link);
    }
}

SL_CASE(list_pop__in_order_until_empty)
{
    struct sl_list list;
    struct item items[3];
    sl_list_init(&list);
    fill(&list, items, 3);
    assert_numbers(&list, 0, 3);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(sl_list_pop(&list), &items[i].link);
        assert_false(sl_list_linked(&items[i].link));
    }
    assert_null(sl_list_pop(&list));
    assert_true(sl_list_empty(&list));
}

SL_CASE(list_prepend__puts_the_link_first)
{
    struct sl_list list;
    struct item items[3];
    sl_list_init(&list);
    fill(&list, items, 3);
    sl_list_prepend(&list, &items[2].link);
    sl_list_prepend(&list, &items[1].link);
    sl_list_prepend(&list, &items[0].link);
    assert_numbers(&list, 0, 3);
}

SL_CASE(list_prepend__reverses)
{
    struct sl_list list;
    struct item items[3];
    sl_list_init(&list);
    for (int i = 2; i >= 0; i--) {
        items[i] = (struct item){.number = i};
        sl_list_prepend(&list, &items[i].link);
    }
    sl_list_prepend(&list, &items[0].link); /* it is first already */
    assert_numbers(&list, 0, 3);
}

SL_CASE(list_append__moves_from_another_list)
{
    struct sl_list list, other;
    struct item items[2];
    sl_list_init(&list);
    sl_list_init(&other);
    fill(&list, items, 2);
    sl_list_append(&other, &items[0].link);
    assert_numbers(&list, 1, 1);
    assert_numbers(&other, 0, 1);
    sl_list_append_all(&other, &list);
    assert_numbers(&other, 0, 2);
    assert_true(sl_list_empty(&list));
}

SL_CASE(list_each__body_may_remove_the_item)
{
    struct sl_list list;
    struct item items[4];
    int seen = 0;
    sl_list_init(&list);
    SL_LIST_EACH (const struct item, item, link, &list) {
        assert_null(item); /* there is none */
    }
    fill(&list, items, 4);
    SL_LIST_EACH (struct item, item, link, &list) {
        assert_int_equal(item->number, seen++);
        if (item->number != 2) {
            sl_list_remove(&item->link);
        }
    }
    assert_int_equal(seen, 4);
    assert_numbers(&list, 2, 1);
}

SL_CASE(list_take__removes_each_item_before_its_visit)
{
    struct sl_list list;
    struct item items[3];
    int seen = 0;
    sl_list_init(&list);
    fill(&list, items, 3);
    SL_LIST_TAKE (struct item, item, link, &list) {
        assert_int_equal(item->number, seen++);
        assert_false(sl_list_linked(&item->link));
        if (seen == 2) { /* also what the body appends is visited */
            items[0].number = 3;
            sl_list_append(&list, &items[0].link);
        }
    }
    assert_int_equal(seen, 4);
    assert_null(SL_LIST_FIRST(struct item, link, &list));
    assert_null(SL_LIST_POP(struct item, link, &list));
}

SL_CASE(list_foreach__body_may_remove_the_link)
{
    struct sl_list list;
    struct item items[4];
    sl_list_init(&list);
    fill(&list, items, 4);
    SL_LIST_FOREACH (link, &list) {
        sl_list_remove(link);
        sl_list_remove(link); /* harmless: it is in no list */
    }
    assert_true(sl_list_empty(&list));
}
