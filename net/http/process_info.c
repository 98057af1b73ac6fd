#include "net/http/process_info.h"

#include <jansson.h>
#include <unistd.h>

#include "core/arena_pages.h"
#include "core/clock.h"
#include "core/event.h"
#include "core/metrics_process.h"

static double seconds(uint64_t ns)
{
    return (double)ns / (double)SL_CLOCK_NS_PER_S;
}

static json_t *list_options(const struct sl_option_values *options)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < options->count; i++) {
        const struct sl_option_value *option = &options->items[i];
        (void)json_array_append_new(list,
                                    json_pack("{s:s, s:s, s:s}", "name", option->name, "value",
                                              option->value, "source", option->source));
    }
    return list;
}

void sl_process_info_read_events(void *ctx, const struct sl_query *query, struct sl_reply *reply)
{
    size_t bytes = 0;
    char *list = sl_event_list(&bytes);
    sl_reply_take(reply, list, bytes);
}

void sl_process_info_reply(const struct sl_process_info *self, struct sl_reply *reply)
{
    const uint64_t uptime_ns = sl_clock_now_ns(sl_clock_system()) - self->begun_ns;
    sl_reply_json(reply,
                  json_pack("{s:s, s:s, s:I, s:s, s:I, s:f, s:s, s:o, s:I, s:I, s:I, s:o}", "name",
                            self->name, "role", self->role, "task", (json_int_t)self->task_index,
                            "version", STARLING_VERSION, "pid", (json_int_t)getpid(), "uptime_s",
                            seconds(uptime_ns), "http", self->http, "reactors", self->reactors,
                            "memory", (json_int_t)sl_metrics_process_resident_bytes(),
                            "memory_limit", (json_int_t)self->memory_limit, "ordinary_pages",
                            (json_int_t)sl_arena_pages_ordinary_bytes(), "options",
                            list_options(self->options)));
}
