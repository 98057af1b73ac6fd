#include "net/dpdk/neighbour.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/hash.h"
#include "net/dpdk/neighbour_packet.h"

#define ENTRIES  1024U
#define BUCKETS  1024U
#define NOBODY   UINT16_MAX
#define ASK_NS   (100 * SL_CLOCK_NS_PER_MS)
#define FRESH_NS (30 * SL_CLOCK_NS_PER_S)

enum knowledge { UNKNOWN, KNOWN, DOUBTED };

struct entry {
    struct in6_addr ip;
    uint8_t mac[6];
    enum knowledge mac_is;
    bool asked;
    bool wanted;           /* looked up by a connection */
    uint16_t next;         /* in its bucket */
    uint64_t last_seen_ns; /* not UNKNOWN: time of the last confirmation; else of creation */
    uint64_t asked_ns;
};

struct sl_dpdk_neighbours {
    struct sl_dpdk_self self;
    bool news, has_rival;
    uint8_t rival[6];
    uint32_t count;
    uint16_t buckets[BUCKETS];
    struct entry entries[ENTRIES];
};

int sl_dpdk_neighbours_open(const struct sl_dpdk_self *self, struct sl_dpdk_neighbours **out)
{
    struct sl_dpdk_neighbours *neighbours = calloc(1, sizeof *neighbours);
    if (neighbours == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    neighbours->self = *self;
    memset(neighbours->buckets, 0xff, sizeof neighbours->buckets);
    *out = neighbours;
    return 0;
}

void sl_dpdk_neighbours_close(struct sl_dpdk_neighbours **neighbours)
{
    free(*neighbours);
    *neighbours = NULL;
}

/* The next hop */

static bool neighbour_is_same(const struct in6_addr *a, const struct in6_addr *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static bool begins_alike(const struct in6_addr *a, const struct in6_addr *b, uint32_t bits)
{
    uint32_t bytes = bits / 8, mask = 0xff00U >> bits % 8 & 0xffU;
    return memcmp(a, b, bytes) == 0 &&
           (mask == 0 || ((a->s6_addr[bytes] ^ b->s6_addr[bytes]) & mask) == 0);
}

/* The address whose Ethernet address leads to ip; NULL: ip has another family. */
static const struct in6_addr *next_hop(const struct sl_dpdk_self *self, const struct in6_addr *ip)
{
    bool is_v4 = IN6_IS_ADDR_V4MAPPED(&self->ip);
    if (is_v4 != (bool)IN6_IS_ADDR_V4MAPPED(ip)) {
        return NULL;
    }
    uint32_t before = is_v4 ? 96 : 0, bits = before + self->prefix_bits;
    bool is_beside = self->prefix_bits == 0 || bits >= 128 || IN6_IS_ADDR_LINKLOCAL(ip) ||
                     begins_alike(&self->ip, ip, bits);
    return is_beside || !self->has_gateway ? ip : &self->gateway;
}

/* The table */

static uint16_t *neighbour_bucket_of(struct sl_dpdk_neighbours *neighbours,
                                     const struct in6_addr *ip)
{
    uint64_t words[2];
    memcpy(words, ip, sizeof words);
    return &neighbours->buckets[sl_hash_key(words[0] ^ sl_hash_key(words[1])) % BUCKETS];
}

static struct entry *neighbour_find(struct sl_dpdk_neighbours *neighbours,
                                    const struct in6_addr *ip)
{
    for (uint16_t i = *neighbour_bucket_of(neighbours, ip); i != NOBODY;
         i = neighbours->entries[i].next) {
        if (neighbour_is_same(&neighbours->entries[i].ip, ip)) {
            return &neighbours->entries[i];
        }
    }
    return NULL;
}

/* The entry to replace: the one not confirmed for the longest time, among unwanted entries if there
 * are any. */
static uint16_t find_oldest(const struct sl_dpdk_neighbours *neighbours)
{
    uint16_t oldest = 0;
    for (uint16_t i = 1; i < ENTRIES; i++) {
        const struct entry *entry = &neighbours->entries[i], *best = &neighbours->entries[oldest];
        if (entry->wanted != best->wanted ? best->wanted
                                          : entry->last_seen_ns < best->last_seen_ns) {
            oldest = i;
        }
    }
    return oldest;
}

static void forget(struct sl_dpdk_neighbours *neighbours, uint16_t index)
{
    uint16_t *at = neighbour_bucket_of(neighbours, &neighbours->entries[index].ip);
    while (*at != index) {
        at = &neighbours->entries[*at].next;
    }
    *at = neighbours->entries[index].next;
}

/* NULL: full of wanted entries, and this one is not wanted. */
static struct entry *neighbour_find_or_make(struct sl_dpdk_neighbours *neighbours,
                                            const struct in6_addr *ip, bool is_wanted,
                                            uint64_t now_ns)
{
    struct entry *entry = neighbour_find(neighbours, ip);
    if (entry != NULL) {
        entry->wanted = entry->wanted || is_wanted;
        return entry;
    }
    uint16_t index = (uint16_t)neighbours->count;
    if (neighbours->count < ENTRIES) {
        neighbours->count++;
    } else {
        index = find_oldest(neighbours);
        if (neighbours->entries[index].wanted && !is_wanted) {
            return NULL;
        }
        forget(neighbours, index);
    }
    uint16_t *bucket = neighbour_bucket_of(neighbours, ip);
    entry = &neighbours->entries[index];
    *entry =
        (struct entry){.ip = *ip, .wanted = is_wanted, .next = *bucket, .last_seen_ns = now_ns};
    *bucket = index;
    return entry;
}

static void learn(struct sl_dpdk_neighbours *neighbours, struct entry *entry, const uint8_t *mac,
                  uint64_t now_ns)
{
    neighbours->news =
        neighbours->news || (entry->mac_is == UNKNOWN && entry->asked) ||
        (entry->mac_is != UNKNOWN && memcmp(entry->mac, mac, sizeof entry->mac) != 0);
    memcpy(entry->mac, mac, sizeof entry->mac);
    entry->mac_is = KNOWN;
    entry->last_seen_ns = now_ns;
}

/* Requests and answers */

bool sl_dpdk_neighbours_find(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                             uint64_t now_ns, uint8_t mac[6], uint8_t *ask, uint32_t *ask_bytes)
{
    *ask_bytes = 0;
    const struct in6_addr *hop = next_hop(&neighbours->self, ip);
    if (hop == NULL) {
        return false;
    }
    struct entry *entry = neighbour_find_or_make(neighbours, hop, true, now_ns);
    bool is_fresh = entry->mac_is == KNOWN && now_ns - entry->last_seen_ns < FRESH_NS;
    if (!is_fresh && (!entry->asked || now_ns - entry->asked_ns >= ASK_NS)) {
        entry->asked = true;
        entry->asked_ns = now_ns;
        *ask_bytes = sl_dpdk_neighbour_ask(&neighbours->self, hop, ask);
    }
    if (entry->mac_is != UNKNOWN) {
        memcpy(mac, entry->mac, sizeof entry->mac);
    }
    return entry->mac_is != UNKNOWN;
}

bool sl_dpdk_neighbours_look(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                             uint8_t mac[6])
{
    const struct in6_addr *hop = next_hop(&neighbours->self, ip);
    const struct entry *entry = hop != NULL ? neighbour_find(neighbours, hop) : NULL;
    if (entry == NULL || entry->mac_is == UNKNOWN) {
        return false;
    }
    memcpy(mac, entry->mac, sizeof entry->mac);
    return true;
}

void sl_dpdk_neighbours_doubt(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip)
{
    const struct in6_addr *hop = next_hop(&neighbours->self, ip);
    struct entry *entry = hop != NULL ? neighbour_find(neighbours, hop) : NULL;
    if (entry != NULL && entry->mac_is == KNOWN) {
        entry->mac_is = DOUBTED;
    }
}

bool sl_dpdk_neighbours_news(struct sl_dpdk_neighbours *neighbours)
{
    const bool news = neighbours->news;
    neighbours->news = false;
    return news;
}

bool sl_dpdk_neighbours_rival(struct sl_dpdk_neighbours *neighbours, uint8_t mac[6])
{
    const bool has_rival = neighbours->has_rival;
    neighbours->has_rival = false;
    memcpy(mac, neighbours->rival, sizeof neighbours->rival);
    return has_rival;
}

uint32_t sl_dpdk_neighbours_take(struct sl_dpdk_neighbours *neighbours, const uint8_t *packet,
                                 uint32_t length, uint64_t now_ns, uint8_t *answer)
{
    struct sl_dpdk_neighbour_said said;
    const struct sl_dpdk_self *self = &neighbours->self;
    if (!sl_dpdk_neighbour_parse(packet, length, &said)) {
        return 0;
    }
    bool for_us = said.asks && neighbour_is_same(&said.target, &self->ip);
    const bool says_to_be_us = said.tells && neighbour_is_same(&said.who, &self->ip);
    if (says_to_be_us && memcmp(said.mac, self->mac, sizeof said.mac) != 0) {
        neighbours->has_rival = true;
        memcpy(neighbours->rival, said.mac, sizeof neighbours->rival);
    }
    if (said.tells && !says_to_be_us) {
        struct entry *entry = for_us ? neighbour_find_or_make(neighbours, &said.who, false, now_ns)
                                     : neighbour_find(neighbours, &said.who);
        if (entry != NULL) {
            learn(neighbours, entry, said.mac, now_ns);
        }
    }
    return for_us ? sl_dpdk_neighbour_answer(self, &said, answer) : 0;
}

void sl_dpdk_neighbours_confirm(struct sl_dpdk_neighbours *neighbours, const struct in6_addr *ip,
                                const uint8_t mac[6], uint64_t now_ns)
{
    const struct in6_addr *hop = next_hop(&neighbours->self, ip);
    if (hop == NULL) {
        return;
    }
    if (hop == ip) {
        learn(neighbours, neighbour_find_or_make(neighbours, ip, true, now_ns), mac, now_ns);
        return;
    }
    /* The return path of a routed peer may use another gateway. */
    struct entry *entry = neighbour_find(neighbours, hop);
    if (entry != NULL && entry->mac_is != UNKNOWN &&
        memcmp(entry->mac, mac, sizeof entry->mac) == 0) {
        entry->last_seen_ns = now_ns;
        entry->mac_is = KNOWN;
    }
}
