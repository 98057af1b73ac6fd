#include "tests/support/memory_store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"

#define PAIRS_MAX   4096
#define LEASES_MAX  4096
#define HANDLES_MAX 64
#define ASKED_MAX   256

struct handle {
    struct sl_metastore base;
    struct memory_store *memory;
    bool is_cut, is_late, is_held, repeats, remembers, is_full;
};

struct lease {
    uint64_t id; /* 0: none */
    uint64_t until_ns;
    uint32_t ttl_s;
};

struct memory_store {
    uint64_t now_ns, revision, lease_id;
    struct sl_metastore_item *pairs[PAIRS_MAX]; /* by key */
    uint32_t pair_count;
    struct lease leases[LEASES_MAX];
    uint32_t lease_count; /* ended ones included */
    struct handle handles[HANDLES_MAX];
    uint32_t handle_count;
    struct {
        struct handle *handle;
        struct sl_metastore_request *ask;
    } asked[ASKED_MAX];
    uint32_t asked_count;
    struct sl_metastore_request past; /* a write that was remembered; no changes: none */
};

static void on_ask(struct sl_metastore *base, struct sl_metastore_request *ask)
{
    struct handle *handle = (struct handle *)base;
    struct memory_store *memory = handle->memory;
    sl_assert(memory->asked_count < ASKED_MAX);
    memory->asked[memory->asked_count].handle = handle;
    memory->asked[memory->asked_count].ask = ask;
    memory->asked_count++;
}

static const struct sl_metastore_ops OPS = {.ask = on_ask};

struct memory_store *memory_store_create(void)
{
    struct memory_store *memory = calloc(1, sizeof *memory);
    sl_assert(memory != NULL);
    return memory;
}

static void remove_at(struct memory_store *memory, uint32_t at)
{
    free(memory->pairs[at]->value);
    free(memory->pairs[at]);
    memory->pair_count--;
    memmove(&memory->pairs[at], &memory->pairs[at + 1], (memory->pair_count - at) * sizeof(void *));
}

static void forget_past(struct memory_store *memory)
{
    for (size_t i = 0; i < memory->past.change_count; i++) {
        free(memory->past.changes[i].value);
    }
    free(memory->past.changes);
    free((void *)(uintptr_t)memory->past.was);
    memory->past = (struct sl_metastore_request){.change_count = 0};
}

void memory_store_destroy(struct memory_store *memory)
{
    while (memory->pair_count > 0) {
        remove_at(memory, memory->pair_count - 1);
    }
    forget_past(memory);
    free(memory);
}

struct sl_metastore *memory_store_handle(struct memory_store *memory)
{
    sl_assert(memory->handle_count < HANDLES_MAX);
    struct handle *handle = &memory->handles[memory->handle_count++];
    *handle = (struct handle){.base.ops = &OPS, .memory = memory};
    return &handle->base;
}

static bool begins(const char *key, const char *prefix)
{
    return strncmp(key, prefix, strlen(prefix)) == 0;
}

static uint32_t find(const struct memory_store *memory, const char *key)
{
    uint32_t at = 0;
    while (at < memory->pair_count && strcmp(memory->pairs[at]->key, key) < 0) {
        at++;
    }
    return at;
}

const struct sl_metastore_item *memory_store_look(const struct memory_store *memory,
                                                  const char *key)
{
    uint32_t at = find(memory, key);
    bool found = at < memory->pair_count && strcmp(memory->pairs[at]->key, key) == 0;
    return found ? memory->pairs[at] : NULL;
}

uint32_t memory_store_count(const struct memory_store *memory, const char *prefix)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < memory->pair_count; i++) {
        count += begins(memory->pairs[i]->key, prefix) ? 1 : 0;
    }
    return count;
}

static struct lease *lease_of(struct memory_store *memory, uint64_t id)
{
    for (uint32_t i = 0; i < memory->lease_count; i++) {
        if (memory->leases[i].id == id) {
            return &memory->leases[i];
        }
    }
    return NULL;
}

static void end_lease(struct memory_store *memory, struct lease *lease)
{
    for (uint32_t i = memory->pair_count; i-- > 0;) {
        if (memory->pairs[i]->lease == lease->id) {
            remove_at(memory, i);
            memory->revision++;
        }
    }
    lease->id = 0;
}

void memory_store_pass(struct memory_store *memory, uint64_t now_ns)
{
    memory->now_ns = now_ns;
    for (uint32_t i = 0; i < memory->lease_count; i++) {
        if (memory->leases[i].id != 0 && memory->leases[i].until_ns <= now_ns) {
            end_lease(memory, &memory->leases[i]);
        }
    }
}

static void put(struct memory_store *memory, const struct sl_metastore_change *change)
{
    uint32_t at = find(memory, change->key);
    bool is_new = memory_store_look(memory, change->key) == NULL;
    if (is_new) {
        sl_assert(memory->pair_count < PAIRS_MAX);
        memmove(&memory->pairs[at + 1], &memory->pairs[at],
                (memory->pair_count - at) * sizeof(void *));
        memory->pairs[at] = calloc(1, sizeof *memory->pairs[at]);
        memory->pair_count++;
        memcpy(memory->pairs[at]->key, change->key, sizeof change->key);
        memory->pairs[at]->created = memory->revision;
    }
    struct sl_metastore_item *pair = memory->pairs[at];
    free(pair->value);
    pair->value = malloc(change->value_bytes + 1);
    if (change->value_bytes > 0) {
        memcpy(pair->value, change->value, change->value_bytes);
    }
    pair->value[change->value_bytes] = '\0';
    pair->value_bytes = change->value_bytes;
    pair->lease = change->lease;
}

static void apply(struct memory_store *memory, const struct sl_metastore_change *change)
{
    for (uint32_t i = memory->pair_count; change->removes && i-- > 0;) {
        const char *key = memory->pairs[i]->key;
        if (change->is_prefix ? begins(key, change->key) : strcmp(key, change->key) == 0) {
            remove_at(memory, i);
        }
    }
    if (!change->removes) {
        put(memory, change);
    }
}

static void add_pair(const struct sl_metastore_item *pair, struct sl_metastore_answer *answer)
{
    struct sl_metastore_item *to = sl_metastore_answer_add(answer, pair->value_bytes);
    sl_assert(to != NULL);
    memcpy(to->key, pair->key, sizeof to->key);
    memcpy(to->value, pair->value, pair->value_bytes + 1);
    to->created = pair->created;
    to->lease = pair->lease;
}

static void read_pairs(const struct memory_store *memory, struct sl_metastore_request *ask)
{
    for (uint32_t i = 0; i < memory->pair_count; i++) {
        const struct sl_metastore_item *pair = memory->pairs[i];
        if (ask->is_prefix ? begins(pair->key, ask->key) : strcmp(pair->key, ask->key) == 0) {
            add_pair(pair, &ask->answer);
        }
    }
}

static void write_pairs(struct memory_store *memory, struct sl_metastore_request *ask);

static void remember(struct memory_store *memory, const struct sl_metastore_request *ask)
{
    memory->past = *ask;
    memory->past.answer = (struct sl_metastore_answer){0};
    memory->past.was = NULL;
    if (ask->was != NULL) {
        char *was = malloc(memory->past.was_bytes + 1);
        sl_assert(was != NULL);
        memcpy(was, ask->was, memory->past.was_bytes);
        memory->past.was = was;
    }
    memory->past.changes = calloc(ask->change_count, sizeof *ask->changes);
    sl_assert(memory->past.changes != NULL);
    for (size_t i = 0; i < ask->change_count; i++) {
        const struct sl_metastore_change *from = &ask->changes[i];
        memory->past.changes[i] = *from;
        memory->past.changes[i].value = malloc(from->value_bytes + 1);
        sl_assert(memory->past.changes[i].value != NULL);
        if (from->value_bytes > 0) {
            memcpy(memory->past.changes[i].value, from->value, from->value_bytes);
        }
    }
}

void memory_store_remember(struct sl_metastore *handle)
{
    forget_past(((struct handle *)handle)->memory);
    ((struct handle *)handle)->remembers = true;
}

bool memory_store_play(struct memory_store *memory)
{
    sl_assert(memory->past.change_count > 0);
    struct sl_metastore_request ask = memory->past;
    write_pairs(memory, &ask);
    sl_metastore_answer_fini(&ask.answer);
    return ask.answer.held;
}

static void write_pairs(struct memory_store *memory, struct sl_metastore_request *ask)
{
    const struct sl_metastore_item *guard = memory_store_look(memory, ask->key);
    sl_assert(ask->change_count <= SL_METASTORE_CHANGES_MAX);
    for (size_t i = 0; i < ask->change_count; i++) {
        if (ask->changes[i].lease != 0 && lease_of(memory, ask->changes[i].lease) == NULL) {
            sl_metastore_answer_fail(&ask->answer, SL_ERR_NOT_FOUND, "no such lease");
            return;
        }
    }
    ask->answer.held =
        ask->guard == SL_METASTORE_ALWAYS || (ask->guard == SL_METASTORE_ABSENT && guard == NULL) ||
        (ask->guard == SL_METASTORE_CREATED && guard != NULL && guard->created == ask->revision &&
         (ask->was == NULL || (guard->value_bytes == ask->was_bytes &&
                               memcmp(guard->value, ask->was, guard->value_bytes) == 0)));
    if (!ask->answer.held) {
        if (guard != NULL) {
            add_pair(guard, &ask->answer);
        }
        return;
    }
    ask->answer.revision = ++memory->revision;
    for (size_t i = 0; i < ask->change_count; i++) {
        apply(memory, &ask->changes[i]);
    }
}

static void carry_out(struct memory_store *memory, struct sl_metastore_request *ask)
{
    struct lease *lease = NULL;
    switch (ask->kind) {
    case SL_METASTORE_LEASE_GRANT:
        lease = lease_of(memory, 0);
        if (lease == NULL) {
            sl_assert(memory->lease_count < LEASES_MAX);
            lease = &memory->leases[memory->lease_count++];
        }
        *lease = (struct lease){.id = ++memory->lease_id,
                                .ttl_s = ask->ttl_s,
                                .until_ns = memory->now_ns + ask->ttl_s * SL_CLOCK_NS_PER_S};
        ask->answer.lease = lease->id;
        ask->answer.ttl_s = ask->ttl_s;
        break;
    case SL_METASTORE_LEASE_RENEW:
        lease = lease_of(memory, ask->lease);
        if (lease == NULL) {
            sl_metastore_answer_fail(&ask->answer, SL_ERR_NOT_FOUND, "no such lease");
            break;
        }
        lease->until_ns = memory->now_ns + lease->ttl_s * SL_CLOCK_NS_PER_S;
        ask->answer.ttl_s = lease->ttl_s;
        break;
    case SL_METASTORE_LEASE_REVOKE:
        lease = lease_of(memory, ask->lease);
        if (lease != NULL && ask->lease != 0) {
            end_lease(memory, lease);
        }
        break;
    case SL_METASTORE_READ:
        read_pairs(memory, ask);
        break;
    case SL_METASTORE_WRITE:
        write_pairs(memory, ask);
        break;
    }
}

static void take(struct memory_store *memory, uint32_t at)
{
    memory->asked_count--;
    memmove(&memory->asked[at], &memory->asked[at + 1],
            (memory->asked_count - at) * sizeof memory->asked[0]);
}

bool memory_store_answer(struct memory_store *memory)
{
    uint32_t at = 0;
    while (at < memory->asked_count && memory->asked[at].handle->is_held) {
        at++;
    }
    if (at == memory->asked_count) {
        return false;
    }
    struct handle *handle = memory->asked[at].handle;
    struct sl_metastore_request *ask = memory->asked[at].ask;
    take(memory, at);
    const bool is_refused = handle->is_full && (ask->kind == SL_METASTORE_LEASE_GRANT ||
                                                ask->kind == SL_METASTORE_WRITE);
    if (is_refused) {
        sl_metastore_answer_fail(&ask->answer, SL_ERR_IO, "database space exceeded");
    } else if (!handle->is_cut || handle->is_late) {
        carry_out(memory, ask);
    }
    if (handle->remembers && ask->kind == SL_METASTORE_WRITE && ask->answer.held) {
        remember(memory, ask);
        handle->remembers = false;
    }
    if (!handle->is_cut && handle->repeats) {
        sl_metastore_answer_fini(&ask->answer);
        ask->answer = (struct sl_metastore_answer){0};
        carry_out(memory, ask);
    }
    if (handle->is_cut) {
        sl_metastore_answer_fini(&ask->answer);
        ask->answer = (struct sl_metastore_answer){0};
        sl_metastore_answer_fail(&ask->answer, SL_ERR_IO, "cut off");
    }
    ask->done(ask->ctx, ask);
    return true;
}

void memory_store_cut(struct sl_metastore *handle, bool cut, bool late)
{
    ((struct handle *)handle)->is_cut = cut;
    ((struct handle *)handle)->is_late = late;
}

void memory_store_fill(struct sl_metastore *handle, bool full)
{
    ((struct handle *)handle)->is_full = full;
}

void memory_store_repeat(struct sl_metastore *handle, bool repeat)
{
    ((struct handle *)handle)->repeats = repeat;
}

void memory_store_hold(struct sl_metastore *handle, bool hold)
{
    ((struct handle *)handle)->is_held = hold;
}

/* Answers what this handle has asked. */
static void end_asked(struct sl_metastore *handle, bool carries_out, int err, const char *reason)
{
    struct memory_store *memory = ((struct handle *)handle)->memory;
    for (uint32_t i = 0; i < memory->asked_count;) {
        struct sl_metastore_request *ask = memory->asked[i].ask;
        if (&memory->asked[i].handle->base != handle) {
            i++;
            continue;
        }
        take(memory, i);
        if (carries_out) {
            carry_out(memory, ask);
            sl_metastore_answer_fini(&ask->answer);
            ask->answer = (struct sl_metastore_answer){0};
        }
        carries_out = false; /* the rest was never asked */
        sl_metastore_answer_fail(&ask->answer, err, "%s", reason);
        ask->done(ask->ctx, ask);
    }
}

void memory_store_forget(struct sl_metastore *handle, bool carries_out)
{
    end_asked(handle, carries_out, SL_ERR_CANCELLED, "closed");
}

void memory_store_time_out(struct sl_metastore *handle)
{
    end_asked(handle, false, SL_ERR_DEADLINE, "timed out");
}

void memory_store_set(struct memory_store *memory, const char *key, const char *value)
{
    memory_store_put(memory, key, value, value == NULL ? 0 : strlen(value));
}

void memory_store_put(struct memory_store *memory, const char *key, const void *value,
                      size_t value_bytes)
{
    struct sl_metastore_change change = {
        .removes = value == NULL,
        .value = (uint8_t *)(uintptr_t)value,
        .value_bytes = value_bytes,
    };
    (void)snprintf(change.key, sizeof change.key, "%s", key);
    memory->revision++;
    apply(memory, &change);
}
