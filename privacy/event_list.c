#include "privacy/event_list.h"

#include <string.h>

static const uint32_t marked_too_many = UINT32_MAX;

static void forget(tacit_event_list *list)
{
    *list = (tacit_event_list){.too_many = true};
}

/* By neighbours, sigma and q; 0 for the same event, whatever its count. */
static int compare(const tacit_event *a, const tacit_event *b)
{
    if (a->neighbours != b->neighbours)
        return a->neighbours < b->neighbours ? -1 : 1;
    if (a->sigma != b->sigma)
        return a->sigma < b->sigma ? -1 : 1;
    return (a->q > b->q) - (a->q < b->q);
}

static void insert(tacit_event_list *list, uint32_t at, const tacit_event *event)
{
    if (list->n == TACIT_EVENT_LIST_MAX) {
        forget(list);
        return;
    }
    memmove(&list->item[at + 1], &list->item[at], (list->n - at) * sizeof *list->item);
    list->item[at] = *event;
    list->n++;
}

void tacit_event_list_add(tacit_event_list *list, const tacit_event *event)
{
    uint32_t at = 0;
    if (list->too_many || event->count == 0)
        return;
    while (at < list->n && compare(&list->item[at], event) < 0)
        at++;
    if (at == list->n || compare(&list->item[at], event) != 0) {
        insert(list, at, event);
        return;
    }
    uint64_t *count = &list->item[at].count;
    if (!tacit_add_u64(*count, event->count, count))
        forget(list);
}

void tacit_event_list_join(tacit_event_list *list, const tacit_event_list *other)
{
    if (other->too_many)
        forget(list);
    for (uint32_t i = 0; i < other->n; i++)
        tacit_event_list_add(list, &other->item[i]);
}

void tacit_event_list_repeat(tacit_event_list *list, uint32_t times)
{
    for (uint32_t i = 0; i < list->n; i++)
        if (!tacit_mul_u64(list->item[i].count, times, &list->item[i].count)) {
            forget(list);
            return;
        }
}

bool tacit_event_list_equal(const tacit_event_list *a, const tacit_event_list *b)
{
    bool equal = a->n == b->n && a->too_many == b->too_many;
    for (uint32_t i = 0; equal && i < a->n; i++)
        equal = compare(&a->item[i], &b->item[i]) == 0 && a->item[i].count == b->item[i].count;
    return equal;
}

void tacit_event_list_write(const tacit_event_list *list, uint8_t out[TACIT_EVENT_LIST_BYTES])
{
    memset(out, 0, TACIT_EVENT_LIST_BYTES);
    tacit_store_u32(out, list->too_many ? marked_too_many : list->n);
    for (uint32_t i = 0; i < list->n; i++) {
        uint8_t *at = out + 4 + 28 * (size_t)i;
        tacit_store_u32(at, (uint32_t)list->item[i].neighbours);
        tacit_store_f64(at + 4, list->item[i].sigma);
        tacit_store_f64(at + 12, list->item[i].q);
        tacit_store_u64(at + 20, list->item[i].count);
    }
}

static tacit_event read_event(tacit_cursor *from)
{
    tacit_event e = {.neighbours = (tacit_neighbours)tacit_cursor_u32(from)};
    e.sigma = tacit_cursor_f64(from);
    e.q = tacit_cursor_f64(from);
    e.count = tacit_cursor_u64(from);
    return e;
}

static bool is_unused(const tacit_event *e)
{
    return e->neighbours == 0 && e->sigma == 0 && e->q == 0 && e->count == 0;
}

/* Counts have no bound here but that of their type: what an accountant makes of them is its own
 * affair (privacy/budget.h). */
static bool is_event(const tacit_event *e)
{
    tacit_event one = *e;
    one.count = 1;
    return e->count > 0 && tacit_event_validate(&one, NULL) == TACIT_OK;
}

bool tacit_event_list_read(tacit_event_list *out, tacit_cursor *from)
{
    uint32_t n = tacit_cursor_u32(from);
    *out = (tacit_event_list){.too_many = n == marked_too_many};
    out->n = out->too_many ? 0 : n;
    bool sound = out->n <= TACIT_EVENT_LIST_MAX;
    for (uint32_t i = 0; i < TACIT_EVENT_LIST_MAX; i++) {
        tacit_event e = read_event(from);
        bool used = sound && i < out->n;
        sound = sound && (used ? is_event(&e) : is_unused(&e)) &&
                (!used || i == 0 || compare(&out->item[i - 1], &e) < 0);
        if (used)
            out->item[i] = e;
    }
    return sound && !from->failed;
}
