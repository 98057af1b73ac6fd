#include "ps/leader/election.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/assert.h"
#include "core/clock.h"
#include "core/endpoint.h"
#include "core/log.h"

#define POLLS_A_TTL    4
#define KEEPS_A_TTL    4
#define RETRY_NS       (200 * SL_CLOCK_NS_PER_MS)

#define TOO_LATE       "the cluster store did not renew its lease in time"

/* Safety margin: a winner gives up a fifth of the lease early, more than two clocks can differ by
 * in one lease. */
#define MARGIN_DIVISOR 5

enum state {
    WATCHING, /* reads the key from time to time */
    READING,
    GRANTING,
    CLAIMING,
    HOLDING,
    REVOKING, /* of a lease that did not win, or whose term ended */
    RESIGNED
};

enum trouble {
    NO_TROUBLE,
    OUT_OF_REACH,   /* ends with any answer */
    REFUSES_CHANGES /* a change failed: a successful read does not end it */
};

struct sl_election {
    struct sl_election_options options;
    char key[SL_METASTORE_KEY_BYTES];
    enum state state;
    struct sl_metastore_request ask;  /* all kinds but LEASE_RENEW */
    struct sl_metastore_request keep; /* LEASE_RENEW, after winning */
    bool asking, keeping;             /* the request is in flight */
    struct sl_metastore_change claim;
    char value[512];
    uint64_t lease;
    uint64_t ttl_ns;
    uint64_t asked_ns;      /* when the request in flight was sent */
    uint64_t keep_asked_ns; /* likewise */
    uint64_t until_ns;      /* the lease lasts at least until then */
    uint64_t keep_at_ns;
    uint64_t look_at_ns;
    uint64_t pause_ns; /* before the next attempt after a revocation */
    uint64_t term;
    struct sl_election_leader leader;
    enum trouble trouble; /* of the metastore; logged */
    bool *over;           /* argument of sl_election_resign */
};

static uint64_t now_of(const struct sl_election *election)
{
    return election->options.now_ns(election->options.ctx);
}

/* Reachability of the metastore */

static bool changes(enum sl_metastore_kind kind)
{
    return kind == SL_METASTORE_LEASE_GRANT || kind == SL_METASTORE_WRITE;
}

/* Logs a failure once. A full metastore answers reads and refuses changes. So a failed change
 * counts as repaired when a change succeeds, or when a read shows another leader and no change is
 * needed. */
static void note_answer(struct sl_election *election, enum sl_metastore_kind kind,
                        const struct sl_metastore_answer *answer)
{
    const bool leads_on = kind == SL_METASTORE_READ && answer->item_count > 0;
    bool is_out = answer->err == SL_ERR_DEADLINE || answer->err == SL_ERR_IO;
    if (answer->err != 0 && answer->err != SL_ERR_NOT_FOUND && answer->err != SL_ERR_CANCELLED) {
        if (election->trouble == NO_TROUBLE) {
            sl_log_warn("the cluster store %s: %s; serving continues, membership waits",
                        is_out ? "is out of reach" : "does not do what it is asked for",
                        answer->reason);
        }
        const bool refuses = changes(kind) || election->trouble == REFUSES_CHANGES;
        election->trouble = refuses ? REFUSES_CHANGES : OUT_OF_REACH;
    } else if (answer->err != SL_ERR_CANCELLED &&
               (election->trouble == OUT_OF_REACH ||
                (election->trouble == REFUSES_CHANGES && (changes(kind) || leads_on)))) {
        election->trouble = NO_TROUBLE;
        sl_log_info("the cluster store answers again");
    }
}

/* The leader's value */

static bool read_string(const json_t *root, const char *name, char *to, size_t bytes)
{
    const char *text = json_string_value(json_object_get(root, name));
    if (text == NULL || strlen(text) >= bytes) {
        return false;
    }
    memcpy(to, text, strlen(text) + 1);
    return true;
}

/* Other programs can write to the key: the value is checked like a peer's message. */
static bool parse_leader(const struct sl_metastore_item *item, struct sl_election_leader *out)
{
    struct sl_election_leader leader = {.term = item->created};
    struct sl_endpoint endpoint;
    char id[24];
    json_t *root = json_loadb((const char *)item->value, item->value_bytes, 0, NULL);
    bool is_good = read_string(root, "name", leader.name, sizeof leader.name) &&
                   read_string(root, "endpoint", leader.endpoint, sizeof leader.endpoint) &&
                   read_string(root, "id", id, sizeof id) &&
                   sl_endpoint_parse(leader.endpoint, &endpoint, NULL) == 0;
    json_decref(root);
    if (!is_good) {
        return false;
    }
    char *end;
    errno = 0;
    leader.id = strtoull(id, &end, 16);
    *out = leader;
    return errno == 0 && *end == '\0' && leader.id != 0;
}

static int write_value(struct sl_election *election)
{
    const struct sl_election_options *options = &election->options;
    char id[24];
    (void)snprintf(id, sizeof id, "%016" PRIx64, options->id);
    json_t *root =
        json_pack("{ss ss ss}", "name", options->name, "endpoint", options->endpoint, "id", id);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (text == NULL || strlen(text) >= sizeof election->value) {
        free(text);
        return SL_ERR_NO_MEMORY;
    }
    memcpy(election->value, text, strlen(text) + 1);
    free(text);
    return 0;
}

static void set_leader(struct sl_election *election, const struct sl_election_leader *leader)
{
    if (election->leader.term != leader->term) {
        election->leader = *leader;
        election->options.leader(election->options.ctx, &election->leader);
    }
}

/* Takes the leader from the answer to a read; no item: no leader. */
static void see_leader(struct sl_election *election, const struct sl_metastore_answer *answer)
{
    struct sl_election_leader leader = {0};
    if (answer->item_count > 0 && !parse_leader(&answer->pairs[0], &leader)) {
        sl_log_warn("%s in the cluster store is not what a coordinator writes", election->key);
        leader = (struct sl_election_leader){0};
    }
    set_leader(election, &leader);
}

/* Requests */

static void on_answer(void *ctx, struct sl_metastore_request *ask);

static void ask_metastore(struct sl_election *election, enum state state,
                          enum sl_metastore_kind kind)
{
    sl_assert(!election->asking);
    struct sl_metastore_request *ask = &election->ask;
    *ask = (struct sl_metastore_request){
        .kind = kind,
        .timeout_ns = election->ttl_ns / 2,
        .ttl_s = election->options.ttl_s,
        .lease = election->lease,
        .done = on_answer,
        .ctx = election,
    };
    memcpy(ask->key, election->key, sizeof ask->key);
    if (kind == SL_METASTORE_WRITE) {
        ask->guard = SL_METASTORE_ABSENT;
        ask->changes = &election->claim;
        ask->change_count = 1;
        election->claim.lease = election->lease;
    }
    election->state = state;
    election->asking = true;
    if (kind != SL_METASTORE_WRITE) {
        election->asked_ns = now_of(election); /* a lease counts from its request */
    }
    sl_metastore_request(election->options.metastore, ask);
}

static void watch_again(struct sl_election *election, uint64_t pause_ns)
{
    election->state = WATCHING;
    election->look_at_ns = now_of(election) + pause_ns;
}

static void revoke(struct sl_election *election, uint64_t pause_ns)
{
    election->pause_ns = pause_ns;
    if (!election->asking) { /* else the lease expires by itself */
        ask_metastore(election, REVOKING, SL_METASTORE_LEASE_REVOKE);
    }
}

static void set_until(struct sl_election *election, uint64_t asked_ns)
{
    election->until_ns = asked_ns + election->ttl_ns - election->ttl_ns / MARGIN_DIVISOR;
    election->keep_at_ns = asked_ns + election->ttl_ns / KEEPS_A_TTL;
}

static void win(struct sl_election *election, uint64_t term)
{
    const struct sl_election_options *options = &election->options;
    election->state = HOLDING;
    election->term = term;
    set_until(election, election->asked_ns);
    struct sl_election_leader self = {.term = term, .id = options->id};
    memcpy(self.name, options->name, sizeof self.name);
    memcpy(self.endpoint, options->endpoint, sizeof self.endpoint);
    set_leader(election, &self);
    options->won(options->ctx, term);
}

static void lose(struct sl_election *election, const char *why, uint64_t pause_ns)
{
    const struct sl_election_leader nobody = {0};
    watch_again(election, pause_ns);
    election->term = 0;
    set_leader(election, &nobody);
    election->options.lost(election->options.ctx, why);
    if (election->state == WATCHING) {
        revoke(election, pause_ns); /* other candidates need not wait for its expiry */
    }
}

/* Answers */

static void read_came(struct sl_election *election, const struct sl_metastore_answer *answer)
{
    watch_again(election, election->ttl_ns / POLLS_A_TTL);
    if (answer->err != 0) {
        return;
    }
    see_leader(election, answer);
    if (answer->item_count == 0 && election->options.campaigns) {
        ask_metastore(election, GRANTING, SL_METASTORE_LEASE_GRANT);
    }
}

static void grant_came(struct sl_election *election, const struct sl_metastore_answer *answer)
{
    watch_again(election, RETRY_NS);
    if (answer->err == 0) {
        election->lease = answer->lease;
        ask_metastore(election, CLAIMING, SL_METASTORE_WRITE);
    }
}

static void claim_came(struct sl_election *election, const struct sl_metastore_answer *answer)
{
    /* etcd may have run our claim twice: then the guard fails on our own key. */
    const struct sl_metastore_item *item = answer->item_count == 0 ? NULL : &answer->pairs[0];
    watch_again(election, RETRY_NS);
    if (answer->err == 0 && answer->held) {
        win(election, answer->revision);
    } else if (answer->err == 0 && item != NULL && item->lease == election->lease) {
        win(election, item->created);
    } else {
        if (answer->err == 0) {
            see_leader(election, answer);
        }
        revoke(election, RETRY_NS);
    }
}

/* Revokes the lease that a request in flight created before sl_election_resign. */
static void answer_resigned(struct sl_election *election, const struct sl_metastore_answer *answer)
{
    if (election->ask.kind == SL_METASTORE_LEASE_GRANT && answer->err == 0) {
        election->lease = answer->lease;
    }
    bool may_hold =
        election->ask.kind == SL_METASTORE_LEASE_GRANT || election->ask.kind == SL_METASTORE_WRITE;
    if (may_hold && answer->err != SL_ERR_CANCELLED && election->lease != 0) {
        ask_metastore(election, RESIGNED, SL_METASTORE_LEASE_REVOKE);
    }
}

static void look_over(struct sl_election *election)
{
    if (election->over != NULL && !election->asking && !election->keeping) {
        *election->over = true;
    }
}

static void on_answer(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_election *election = ctx;
    struct sl_metastore_answer answer = ask->answer; /* the callback may reuse the request */
    election->asking = false;
    note_answer(election, ask->kind, &answer);
    if (answer.err == SL_ERR_CANCELLED) {
        election->state = RESIGNED; /* the metastore is closing: send no more requests */
        look_over(election);
        return;
    }
    switch (election->state) {
    case READING:
        read_came(election, &answer);
        break;
    case GRANTING:
        grant_came(election, &answer);
        break;
    case CLAIMING:
        claim_came(election, &answer);
        break;
    case REVOKING:
        watch_again(election, election->pause_ns);
        break;
    case RESIGNED:
        answer_resigned(election, &answer);
        break;
    case WATCHING:
    case HOLDING:
        break;
    }
    sl_metastore_answer_fini(&answer);
    look_over(election);
}

/* Handles an answer to LEASE_RENEW in this term. */
static void kept(struct sl_election *election, int err)
{
    if (now_of(election) >= election->until_ns) {
        lose(election, TOO_LATE, RETRY_NS); /* messages sent since until_ns were dropped */
    } else if (err == 0) {
        set_until(election, election->keep_asked_ns);
    } else if (err == SL_ERR_NOT_FOUND) {
        lose(election, "the cluster store has ended its lease", RETRY_NS);
    } else {
        election->keep_at_ns = now_of(election) + RETRY_NS; /* until_ns decides when to give up */
    }
}

static void on_kept(void *ctx, struct sl_metastore_request *ask)
{
    struct sl_election *election = ctx;
    election->keeping = false;
    if (ask->answer.err == SL_ERR_CANCELLED) {
        election->state = RESIGNED;
    }
    note_answer(election, ask->kind, &ask->answer);
    /* An answer about the lease of an earlier term, revoked when that term ended, does not concern
     * this one. */
    if (election->state == HOLDING && ask->lease == election->lease) {
        kept(election, ask->answer.err);
    }
    look_over(election);
}

/* Time */

static void keep(struct sl_election *election, uint64_t now_ns)
{
    election->keeping = true;
    election->keep_asked_ns = now_ns;
    election->keep = (struct sl_metastore_request){
        .kind = SL_METASTORE_LEASE_RENEW,
        .timeout_ns = election->ttl_ns / 3,
        .lease = election->lease,
        .done = on_kept,
        .ctx = election,
    };
    sl_metastore_request(election->options.metastore, &election->keep);
}

void sl_election_tick(struct sl_election *election, uint64_t now_ns)
{
    if (election->state == HOLDING && now_ns >= election->until_ns) {
        lose(election, TOO_LATE, RETRY_NS);
    } else if (election->state == HOLDING && !election->keeping && now_ns >= election->keep_at_ns) {
        keep(election, now_ns);
    } else if (election->state == WATCHING && !election->asking && now_ns >= election->look_at_ns) {
        ask_metastore(election, READING, SL_METASTORE_READ);
    }
}

bool sl_election_holds(const struct sl_election *election, uint64_t now_ns)
{
    return election->state == HOLDING && now_ns < election->until_ns;
}

const struct sl_election_leader *sl_election_leader(const struct sl_election *election)
{
    return &election->leader;
}

const char *sl_election_key(const struct sl_election *election)
{
    return election->key;
}

const char *sl_election_value(const struct sl_election *election)
{
    return election->value;
}

uint64_t sl_election_lease(const struct sl_election *election)
{
    return election->lease;
}

void sl_election_depose(struct sl_election *election, const char *why)
{
    if (election->state == HOLDING) {
        lose(election, why, election->ttl_ns); /* gives other candidates time to win */
    }
}

/* Create and destroy */

int sl_election_create(const struct sl_election_options *options, struct sl_election **out)
{
    sl_assert(options->ttl_s >= 2);
    sl_assert(options->id != 0);
    struct sl_election *election = calloc(1, sizeof *election);
    if (election == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    election->options = *options;
    election->options.prefix = NULL;
    election->ttl_ns = options->ttl_s * SL_CLOCK_NS_PER_S;
    int length = snprintf(election->key, sizeof election->key, "%s/coordinator", options->prefix);
    int err = length < (int)sizeof election->key ? write_value(election) : SL_ERR_INVALID;
    if (err != 0) {
        free(election);
        return err;
    }
    memcpy(election->claim.key, election->key, sizeof election->claim.key);
    election->claim.value = (uint8_t *)election->value;
    election->claim.value_bytes = strlen(election->value);
    *out = election;
    return 0;
}

void sl_election_resign(struct sl_election *election, bool *over)
{
    bool holds = election->state == HOLDING;
    election->over = over;
    election->state = RESIGNED;
    if (holds && !election->asking) {
        ask_metastore(election, RESIGNED, SL_METASTORE_LEASE_REVOKE);
    }
    look_over(election);
}

void sl_election_destroy(struct sl_election **election)
{
    sl_assert(!(*election)->asking);
    sl_assert(!(*election)->keeping);
    free(*election);
    *election = NULL;
}
