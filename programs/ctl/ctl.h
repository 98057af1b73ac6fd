/* A run of starling-ctl: its options, its connection to the job, and its verbs. A verb makes a JSON
 * value, which is printed as JSON or as text. One thread, which may block until the deadline. */
#ifndef SL_CTL_CTL_H
#define SL_CTL_CTL_H

#include <jansson.h>
#include <starling_placement.h>
#include <starling_rows.h>

#include "config/settings.h"

struct sl_ctl {
    char **words; /* behind the verb */
    uint32_t word_count;
    struct sl_settings settings;
    struct {
        uint64_t timeout_ns, since, limit;
        const char *out, *http;
        bool json, yes, replace, dry_run;
    } flags;
    uint64_t deadline_ns;
    bool has_timeout; /* --timeout is given */
    struct sl_client *client;
    struct sl_reason reason;
};

/* Milliseconds until the deadline, at least 1. */
uint32_t sl_ctl_time_left_ms(const struct sl_ctl *ctl);

/* Sets the reason to that of the library. Returns err. */
int sl_ctl_failed(struct sl_ctl *ctl, int err);

/* Opens the table that the first word names. */
int sl_ctl_open_table(struct sl_ctl *ctl, struct sl_table **table, struct sl_table_spec *spec);

/* Before a change: announces it, after the user has agreed, to the coordinator. what: "erase 3 keys
 * of table x". Errors: CANCELLED, INVALID (nobody can be asked: --yes), REFUSED. */
int sl_ctl_confirm(struct sl_ctl *ctl, const char *what);

/* Fetches the state of the job from the coordinator's HTTP server; the caller frees it. */
int sl_ctl_fetch_state(struct sl_ctl *ctl, json_t **state);

/* Adds the table's rates to the object, if the coordinator's HTTP server says them. */
void sl_ctl_add_rates(struct sl_ctl *ctl, json_t *table);

/* The verbs. Each writes a new value to *out; NULL: it has printed all. */
int sl_ctl_status(struct sl_ctl *ctl, json_t **out);
int sl_ctl_members(struct sl_ctl *ctl, json_t **out);
int sl_ctl_top(struct sl_ctl *ctl, json_t **out);
int sl_ctl_slow(struct sl_ctl *ctl, json_t **out);
int sl_ctl_events(struct sl_ctl *ctl, json_t **out);
int sl_ctl_tables(struct sl_ctl *ctl, json_t **out);
int sl_ctl_table(struct sl_ctl *ctl, json_t **out);
int sl_ctl_get(struct sl_ctl *ctl, json_t **out);
int sl_ctl_set(struct sl_ctl *ctl, json_t **out);
int sl_ctl_erase(struct sl_ctl *ctl, json_t **out);
int sl_ctl_evict(struct sl_ctl *ctl, json_t **out);
int sl_ctl_drop(struct sl_ctl *ctl, json_t **out);
int sl_ctl_scan(struct sl_ctl *ctl, json_t **out);
int sl_ctl_shards(struct sl_ctl *ctl, json_t **out);
int sl_ctl_move(struct sl_ctl *ctl, json_t **out);
int sl_ctl_drain(struct sl_ctl *ctl, json_t **out);
int sl_ctl_balance(struct sl_ctl *ctl, json_t **out);

#endif
