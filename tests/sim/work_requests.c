/* Which request a push went in: known once it was sent. */
#include "tests/sim/work.h"
#include "worker/client/client_internal.h"
#include "worker/client/step_internal.h"

struct section {
    struct sl_request_view view;
    uint64_t request_id;
    uint32_t shard, index;
};

static bool is_one_of(const struct sl_request_view *view, uint64_t witness)
{
    if (view->keys == NULL) {
        return witness >= view->section.start &&
               witness - view->section.start < view->section.count;
    }
    uint32_t at = 0;
    while (at < view->section.key_count && view->keys[at] != witness) {
        at++;
    }
    return at < view->section.key_count;
}

/* A push that was cut in two is in neither: of it nothing is known. */
static void note_units(struct sl_sim_work *work, const struct section *section)
{
    for (uint32_t i = work->unit_first; i < work->unit_end; i++) {
        struct sl_sim_unit *unit = &work->oracle->units[i];
        if (unit->shard == section->shard &&
            work->oracle->tables[unit->table].id == section->view.section.table_id &&
            is_one_of(&section->view, unit->witness[0]) &&
            is_one_of(&section->view, unit->witness[1])) {
            unit->request_id = section->request_id;
            unit->section = section->index;
        }
    }
}

/* The body of a dense push may lie elsewhere: then its section is the last one. */
static bool read_section(struct sl_bytes *cursor, const struct sl_sim_work *work,
                         struct sl_request_view *out)
{
    *out = (struct sl_request_view){0};
    if (sl_request_read_section(cursor, &out->section) != 0) {
        return false;
    }
    if (out->section.op == SL_REQUEST_PUSH || out->section.op == SL_REQUEST_PUSH_PULL) {
        const uint32_t dim = work->oracle->tables[out->section.table_id].spec.dim;
        return sl_request_read_body(cursor, &out->section, dim, out) == 0;
    }
    (void)sl_bytes_take(cursor, sl_request_body_bytes(&out->section, 0));
    return true;
}

static void note_request(struct sl_sim_work *work, const struct sl_request *request)
{
    struct sl_bytes cursor = sl_bytes_over(request->body, request->body_bytes);
    struct section section = {.request_id = request->id, .shard = request->shard};
    struct sl_request_prefix prefix = {0};
    int err = sl_request_read_prefix(&cursor, &prefix);
    while (err == 0 && section.index < prefix.section_count &&
           read_section(&cursor, work, &section.view)) {
        if (sl_request_pushes(section.view.section.op)) {
            note_units(work, &section);
        }
        section.index++;
    }
}

void sl_sim_work_note_requests(struct sl_sim_work *work)
{
    const struct sl_step *step = work->step;
    const bool is_wanted = work->oracle->plan->disk.is_there && work->unit_first < work->unit_end;
    for (uint32_t i = 0; is_wanted && i < step->client->io_count; i++) {
        for (const struct sl_request *at = step->substeps[i].requests.first; at != NULL;
             at = at->next) {
            if (at->id != 0 && at->writes) {
                note_request(work, at);
            }
        }
    }
}
