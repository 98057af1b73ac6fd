/* The state of the job, from the coordinator's HTTP server, as starling-top shows it. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/ctl/ctl.h"
#include "programs/top/panel.h"
#include "programs/top/source.h"

static int open_source(struct sl_ctl *ctl, struct sl_source **out)
{
    const char *http =
        ctl->flags.http != NULL ? ctl->flags.http : sl_client_coordinator_http(ctl->client);
    const struct sl_source_options options = {.url = http,
                                              .token_file = ctl->settings.flags.http.token_file,
                                              .authority = ctl->settings.security.authority};
    return http[0] != '\0' ? sl_source_create(&options, out, &ctl->reason)
                           : sl_reason_fail(&ctl->reason, SL_ERR_NOT_FOUND,
                                            "the coordinator has no HTTP server (--http off), "
                                            "which knows this");
}

int sl_ctl_fetch_state(struct sl_ctl *ctl, json_t **state)
{
    struct sl_source *source = NULL;
    int err = open_source(ctl, &source);
    err = err != 0 ? err : sl_source_fetch(source, state, &ctl->reason);
    sl_source_destroy(&source);
    /* A bad answer is no wrong use of this program. */
    return err == SL_ERR_INVALID ? SL_ERR_PROTOCOL : err;
}

static int print_panel(struct sl_ctl *ctl, uint32_t panel, const json_t *state)
{
    uint32_t count;
    struct sl_panel_row *rows =
        sl_panel_rows(panel, state, (struct sl_panel_order){0}, "", SL_PANEL_LINE_BYTES, &count);
    if (rows == NULL) {
        return sl_reason_fail(&ctl->reason, SL_ERR_NO_MEMORY, "no memory");
    }
    for (uint32_t row = 0; row <= count; row++) {
        (void)puts(rows[row].line);
    }
    free(rows);
    return 0;
}

int sl_ctl_status(struct sl_ctl *ctl, json_t **out)
{
    json_t *state = NULL;
    struct sl_panel_summary summary;
    const int err = sl_ctl_fetch_state(ctl, &state);
    if (err == 0 && ctl->flags.json) {
        *out = json_incref(json_object_get(state, "cluster"));
        for (const char *const *list = (const char *const[]){"servers", "workers", "tables", NULL};
             *list != NULL; list++) {
            (void)json_object_set_new(
                *out, *list,
                json_integer((json_int_t)json_array_size(json_object_get(*out, *list))));
        }
    } else if (err == 0) {
        sl_panel_summary(state, &summary);
        (void)printf("%s\n%s\n%s\n", summary.job, summary.training, summary.totals);
    }
    json_decref(state);
    return err;
}

int sl_ctl_members(struct sl_ctl *ctl, json_t **out)
{
    json_t *state = NULL;
    int err = sl_ctl_fetch_state(ctl, &state);
    const json_t *cluster = json_object_get(state, "cluster");
    if (err == 0 && ctl->flags.json) {
        *out = json_pack("{s:O, s:O}", "servers", json_object_get(cluster, "servers"), "workers",
                         json_object_get(cluster, "workers"));
    } else if (err == 0) {
        err = print_panel(ctl, SL_PANEL_SERVERS, state);
        (void)putchar('\n');
        err = err != 0 ? err : print_panel(ctl, SL_PANEL_WORKERS, state);
    }
    json_decref(state);
    return err;
}

/* Returns the item of the list whose member has this value; NULL: there is none. */
static json_t *find_item(const json_t *list, const char *member, const char *value)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        const char *text = json_string_value(json_object_get(item, member));
        if (text != NULL && strcmp(text, value) == 0) {
            return item;
        }
    }
    return NULL;
}

int sl_ctl_top(struct sl_ctl *ctl, json_t **out)
{
    json_t *state = NULL;
    const char *table = ctl->words[0];
    int err = sl_ctl_fetch_state(ctl, &state);
    json_t *hot = json_object_get(state, "hot");
    json_t *found = find_item(json_object_get(hot, "tables"), "table", table);
    if (err == 0 && found == NULL &&
        find_item(json_object_get(json_object_get(state, "cluster"), "tables"), "name", table) ==
            NULL) {
        err = sl_reason_fail(&ctl->reason, SL_ERR_NOT_FOUND,
                             "no server has reported a table \"%s\"", table);
    } else if (err == 0) {
        json_t *own = found != NULL
                          ? json_incref(found)
                          : json_pack("{s:s, s:i, s:[]}", "table", table, "sampled", 0, "keys");
        (void)json_object_set_new(hot, "tables", json_pack("[O]", own));
        err = ctl->flags.json ? 0 : print_panel(ctl, SL_PANEL_KEYS, state);
        *out = ctl->flags.json ? json_incref(own) : NULL;
        json_decref(own);
    }
    json_decref(state);
    return err;
}

int sl_ctl_slow(struct sl_ctl *ctl, json_t **out)
{
    json_t *state = NULL;
    int err = sl_ctl_fetch_state(ctl, &state);
    if (err == 0 && ctl->flags.json) {
        *out = json_incref(json_object_get(state, "slow"));
    } else if (err == 0) {
        err = print_panel(ctl, SL_PANEL_SLOW, state);
    }
    json_decref(state);
    return err;
}

/* Whether the word is in the text, and no part of a longer one. */
static bool says(const char *text, const char *word)
{
    const size_t length = strlen(word);
    const char *at = length == 0 ? NULL : strstr(text, word);
    while (at != NULL &&
           ((at != text && isalnum((unsigned char)at[-1])) || isalnum((unsigned char)at[length]))) {
        at = strstr(at + 1, word);
    }
    return length == 0 || at != NULL;
}

/* Returns the fields whose values the text does not say; NULL: there is none. */
static json_t *fields_beside(json_t *fields, const char *text)
{
    json_t *kept = json_object(), *value;
    const char *name;
    json_object_foreach(fields, name, value)
    {
        char *written = json_is_string(value) ? strdup(json_string_value(value))
                                              : json_dumps(value, JSON_ENCODE_ANY);
        if (written == NULL || !says(text, written)) {
            (void)json_object_set(kept, name, value);
        }
        free(written);
    }
    if (json_object_size(kept) == 0) {
        json_decref(kept);
        kept = NULL;
    }
    return kept;
}

/* For people: the time of day, and no field twice. */
static void shorten_event(json_t *event)
{
    char time[SL_PANEL_CELL_BYTES];
    const char *text = json_string_value(json_object_get(event, "text"));
    json_t *kept = fields_beside(json_object_get(event, "fields"), text == NULL ? "" : text);
    sl_panel_time(json_number_value(json_object_get(event, "time")), time);
    (void)json_object_set_new(event, "time", json_string(time));
    (void)json_object_del(event, "fields");
    if (kept != NULL) {
        (void)json_object_set_new(event, "fields", kept);
    }
}

int sl_ctl_events(struct sl_ctl *ctl, json_t **out)
{
    struct sl_source *source = NULL;
    json_t *events = NULL;
    int err = open_source(ctl, &source);
    err = err != 0 ? err : sl_source_get(source, "events", &events, &ctl->reason);
    if (err == 0) {
        size_t i;
        json_t *event;
        *out = json_incref(json_object_get(events, "events"));
        json_array_foreach(*out, i, event)
        {
            if (!ctl->flags.json) {
                shorten_event(event);
            }
        }
    }
    json_decref(events);
    sl_source_destroy(&source);
    return err == SL_ERR_INVALID ? SL_ERR_PROTOCOL : err;
}

void sl_ctl_add_rates(struct sl_ctl *ctl, json_t *table)
{
    json_t *state = NULL;
    if (sl_client_coordinator_http(ctl->client)[0] == '\0' ||
        sl_ctl_fetch_state(ctl, &state) != 0) {
        return;
    }
    const json_t *found = find_item(json_object_get(json_object_get(state, "cluster"), "tables"),
                                    "name", ctl->words[0]);
    for (const char *const *rate =
             (const char *const[]){"pulled_keys_s", "pushed_keys_s", "evicted_keys_s", NULL};
         *rate != NULL; rate++) {
        json_t *value = json_object_get(found, *rate);
        if (value != NULL) {
            (void)json_object_set(table, *rate, value);
        }
    }
    json_decref(state);
}
