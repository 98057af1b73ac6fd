#include "tests/sim/transfer_oracle.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/assert.h"

/* Addresses go over the wire: they are the same in every run. */
#define ADDRESS_FIRST 0x200000000000U
#define ADDRESS_STEP  0x100000000U

static void *map(uint32_t host, size_t bytes)
{
    void *wanted = (void *)(uintptr_t)(ADDRESS_FIRST + host * (uint64_t)ADDRESS_STEP);
    void *base = mmap(wanted, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    sl_assert(base == wanted);
    return base;
}

void sl_sim_transfer_oracle_init(struct sl_sim_transfer_oracle *oracle,
                                 const struct sl_sim_transfer_plan *plan)
{
    *oracle = (struct sl_sim_transfer_oracle){
        .plan = plan, .word_count = sl_sim_transfer_served_words(plan), .origin_room = 1024};
    oracle->origins = calloc(oracle->origin_room, sizeof *oracle->origins);
    oracle->incarnations = calloc(1, sizeof *oracle->incarnations);
    sl_assert(oracle->origins != NULL && oracle->incarnations != NULL);
    for (uint32_t i = 0; i < plan->process_count; i++) {
        struct sl_sim_transfer_memory *memory = &oracle->memories[i];
        memory->words = map(i, oracle->word_count * sizeof *memory->words);
        memory->floors = calloc(oracle->word_count, sizeof *memory->floors);
        sl_assert(memory->floors != NULL);
    }
}

void sl_sim_transfer_oracle_fini(struct sl_sim_transfer_oracle *oracle)
{
    for (uint32_t i = 0; i < oracle->plan->process_count; i++) {
        (void)munmap(oracle->memories[i].words, oracle->word_count * sizeof(uint64_t));
        free(oracle->memories[i].floors);
    }
    free(oracle->origins);
    free(oracle->notices);
    free(oracle->incarnations);
}

static uint32_t add_origin(struct sl_sim_transfer_oracle *oracle,
                           const struct sl_sim_transfer_origin *origin)
{
    if (oracle->origin_count == oracle->origin_room) {
        oracle->origin_room *= 2;
        oracle->origins = realloc(oracle->origins, oracle->origin_room * sizeof *oracle->origins);
        sl_assert(oracle->origins != NULL);
    }
    oracle->origins[oracle->origin_count] = *origin;
    return oracle->origin_count++;
}

void sl_sim_transfer_oracle_fill(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                 uint32_t first, uint32_t words, bool is_private)
{
    struct sl_sim_transfer_memory *memory = &oracle->memories[host];
    const uint32_t event = ++oracle->event;
    const struct sl_sim_transfer_origin owner = {.life = memory->life,
                                                 .target_life = memory->life,
                                                 .target = host,
                                                 .first = first,
                                                 .words = words,
                                                 .begun = event,
                                                 .over = event,
                                                 .completed = true,
                                                 .is_owner = true,
                                                 .is_private = is_private};
    const uint32_t number = add_origin(oracle, &owner);
    for (uint32_t word = first; word < first + words; word++) {
        memory->words[word] = sl_sim_transfer_value(number, word);
        memory->floors[word] = (struct sl_sim_transfer_floor){.base = event};
    }
}

uint32_t sl_sim_transfer_oracle_begin(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                      uint64_t incarnation)
{
    const uint32_t life = ++oracle->life_count;
    oracle->incarnations = realloc(oracle->incarnations, (life + 1) * sizeof *oracle->incarnations);
    sl_assert(oracle->incarnations != NULL);
    oracle->incarnations[life] = incarnation;
    for (uint32_t i = 0; i < oracle->plan->process_count; i++) {
        for (uint32_t word = 0; word < oracle->word_count; word++) {
            for (uint32_t handle = 0; handle < SL_SIM_TRANSFER_HANDLES_MAX; handle++) {
                oracle->memories[i].floors[word].same[host * SL_SIM_TRANSFER_HANDLES_MAX + handle] =
                    0; /* another engine */
            }
        }
    }
    oracle->memories[host].life = life;
    sl_sim_transfer_oracle_fill(oracle, host, 0, oracle->word_count, false);
    return life;
}

uint32_t sl_sim_transfer_oracle_life(const struct sl_sim_transfer_oracle *oracle,
                                     uint64_t incarnation)
{
    uint32_t life = oracle->life_count;
    while (life > 0 && oracle->incarnations[life] != incarnation) {
        life--;
    }
    return life;
}

uint32_t sl_sim_transfer_oracle_write(struct sl_sim_transfer_oracle *oracle, uint32_t life,
                                      uint32_t peer, uint32_t target_life, uint32_t first,
                                      uint32_t words)
{
    const struct sl_sim_transfer_origin origin = {.life = life,
                                                  .target_life = target_life,
                                                  .target = peer / SL_SIM_TRANSFER_HANDLES_MAX,
                                                  .handle = peer % SL_SIM_TRANSFER_HANDLES_MAX,
                                                  .first = first,
                                                  .words = words,
                                                  .begun = ++oracle->event,
                                                  .over = UINT32_MAX};
    return add_origin(oracle, &origin);
}

/* Judging one word */

struct sight {
    const char *of; /* the oracle that looks, for values from too long ago */
    uint32_t host;  /* that looks; UINT32_MAX: the owner */

    uint32_t target, target_life;
};

static void fail(struct sl_sim_transfer_oracle *oracle, const struct sight *sight, const char *of,
                 uint32_t word, uint64_t value, const char *why)
{
    sl_sim_fail(&oracle->breach, of,
                "process %d sees word %u of process %u as %016" PRIx64 ", event %u: %s",
                (int)sight->host, word, sight->target, value, oracle->event, why);
}

/* A value is too old when a WRITE has completed there that began after the value's own was over.
 * When a WRITE without success was over is certain only beside others of its segment; of one that
 * has completed, `any`, which is at least each of `same`, says all. */
static void judge_age(struct sl_sim_transfer_oracle *oracle, const struct sight *sight,
                      uint32_t word, uint64_t value, const struct sl_sim_transfer_floor *floor)
{
    const struct sl_sim_transfer_origin *origin = &oracle->origins[value >> 32];
    if (origin->begun < floor->base) {
        fail(oracle, sight, "unregister", word, value, "of an earlier registration");
    } else if (origin->completed && origin->over < floor->any) {
        fail(oracle, sight, sight->of, word, value,
             "a WRITE has completed there that began after this one was over");
    }
    for (uint32_t host = 0; host < oracle->plan->process_count; host++) {
        const uint32_t same = host * SL_SIM_TRANSFER_HANDLES_MAX + origin->handle;
        if (oracle->memories[host].life == origin->life && origin->over < floor->same[same]) {
            fail(oracle, sight, sight->of, word, value,
                 "a later WRITE by the same segment has completed there");
        }
    }
}

static void judge(struct sl_sim_transfer_oracle *oracle, const struct sight *sight, uint32_t word,
                  uint64_t value, const struct sl_sim_transfer_floor *floor)
{
    const uint32_t number = (uint32_t)(value >> 32);
    const struct sl_sim_transfer_origin *origin = &oracle->origins[number];
    if (number >= oracle->origin_count || (uint32_t)value != word ||
        origin->target != sight->target) {
        fail(oracle, sight, "content", word, value, "it does not belong there");
    } else if (word < origin->first || word >= origin->first + origin->words) {
        fail(oracle, sight, "guards", word, value, "no WRITE has named this word");
    } else if (origin->target_life != sight->target_life) {
        fail(oracle, sight, "incarnation", word, value, "meant for another incarnation");
    } else if (origin->is_private && sight->host != UINT32_MAX) {
        fail(oracle, sight, "unregister", word, value, "of memory that was not registered");
    } else {
        judge_age(oracle, sight, word, value, floor);
    }
}

/* The WRITE has completed: what it has replaced must not be seen any more. */
static void judge_applied(struct sl_sim_transfer_oracle *oracle,
                          const struct sl_sim_transfer_origin *origin, uint32_t host,
                          const char *of)
{
    struct sl_sim_transfer_memory *memory = &oracle->memories[origin->target];
    const uint32_t same = host * SL_SIM_TRANSFER_HANDLES_MAX + origin->handle;
    if (memory->life != origin->target_life) {
        return;
    }
    const struct sight sight = {
        .of = of, .host = UINT32_MAX, .target = origin->target, .target_life = origin->target_life};
    for (uint32_t word = origin->first; word < origin->first + origin->words; word++) {
        struct sl_sim_transfer_floor *floor = &memory->floors[word];
        if (origin->begun < floor->base) {
            continue; /* registered anew since */
        }
        floor->any = origin->begun > floor->any ? origin->begun : floor->any;
        floor->same[same] = origin->begun > floor->same[same] ? origin->begun : floor->same[same];
        judge(oracle, &sight, word, memory->words[word], floor);
    }
}

void sl_sim_transfer_oracle_written(struct sl_sim_transfer_oracle *oracle, uint32_t number,
                                    uint32_t host, bool completed)
{
    struct sl_sim_transfer_origin *origin = &oracle->origins[number];
    origin->over = ++oracle->event;
    origin->completed = completed;
    if (completed) {
        judge_applied(oracle, origin, host, "applied");
    }
}

/* Notices */

uint32_t sl_sim_transfer_oracle_notice(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                       uint32_t target, uint32_t target_life)
{
    if (oracle->notice_count == oracle->notice_room) {
        oracle->notice_room = 2 * oracle->notice_room + 64;
        oracle->notices = realloc(oracle->notices, oracle->notice_room * sizeof *oracle->notices);
        sl_assert(oracle->notices != NULL);
    }
    oracle->notices[oracle->notice_count] =
        (struct sl_sim_transfer_notice){.target = target,
                                        .target_life = target_life,
                                        .host = host,
                                        .first_origin = oracle->origin_count};
    return oracle->notice_count++;
}

void sl_sim_transfer_oracle_taken(struct sl_sim_transfer_oracle *oracle, uint32_t number,
                                  uint32_t host)
{
    struct sl_sim_transfer_notice *notice = &oracle->notices[number];
    if (number >= oracle->notice_count || notice->target != host || notice->taken ||
        notice->target_life != oracle->memories[host].life) {
        sl_sim_fail(&oracle->breach, "notice", "process %u, life %u, takes notice %u%s", host,
                    oracle->memories[host].life, number,
                    number >= oracle->notice_count ? ", which was not sent"
                    : notice->taken                ? " again"
                    : notice->target != host       ? ", meant for another one"
                                                   : ", meant for an earlier life");
        return;
    }
    notice->taken = true;
    for (uint32_t i = 0; i < notice->origin_count; i++) {
        judge_applied(oracle, &oracle->origins[notice->first_origin + i], notice->host, "notice");
    }
}

void sl_sim_transfer_oracle_judge_notices(struct sl_sim_transfer_oracle *oracle, uint32_t host)
{
    for (uint32_t i = 0; i < oracle->notice_count; i++) {
        const struct sl_sim_transfer_notice *notice = &oracle->notices[i];
        if (notice->target == host && notice->target_life == oracle->memories[host].life &&
            notice->confirmed && !notice->taken) {
            sl_sim_fail(&oracle->breach, "notice", "notice %u for process %u is lost", i, host);
        }
    }
}

void sl_sim_transfer_oracle_read(struct sl_sim_transfer_oracle *oracle, uint32_t host,
                                 uint32_t target, uint32_t target_life, uint32_t first,
                                 uint32_t words, const uint64_t *values,
                                 const struct sl_sim_transfer_floor *floors)
{
    const struct sight sight = {
        .of = "time", .host = host, .target = target, .target_life = target_life};
    for (uint32_t i = 0; i < words; i++) {
        judge(oracle, &sight, first + i, values[i], &floors[i]);
    }
}

void sl_sim_transfer_oracle_scan(struct sl_sim_transfer_oracle *oracle, uint32_t host)
{
    const struct sl_sim_transfer_memory *memory = &oracle->memories[host];
    const struct sight sight = {
        .of = "late", .host = UINT32_MAX, .target = host, .target_life = memory->life};
    for (uint32_t word = 0; memory->life != 0 && word < oracle->word_count; word++) {
        judge(oracle, &sight, word, memory->words[word], &memory->floors[word]);
    }
}

void sl_sim_transfer_oracle_end(struct sl_sim_transfer_oracle *oracle, uint32_t host)
{
    sl_sim_transfer_oracle_scan(oracle, host);
    oracle->memories[host].life = 0;
}
