#include "tests/sim/costs.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "core/assert.h"
#include "net/wire/request.h"

#define COST(name)                                                                                 \
    {                                                                                              \
#name, offsetof(struct sl_sim_costs, name)                                                 \
    }

static const struct {
    const char *name;
    size_t offset;
} FIELDS[] = {
    COST(server.pulled), COST(server.pushed), COST(server.in_byte), COST(server.out_byte),
    COST(client.pulled), COST(client.pushed), COST(client.in_byte), COST(client.out_byte),
    COST(call),          COST(frame),         COST(swap),           COST(idle),
    COST(wake),          COST(latency),       COST(bandwidth),
};
#define FIELD_COUNT (sizeof FIELDS / sizeof FIELDS[0])

/* Of a line; the index of the field, or FIELD_COUNT. */
static size_t set_field(struct sl_sim_costs *costs, const char *line)
{
    char name[32];
    double value;
    if (sscanf(line, "%31s %lf", name, &value) != 2 || !(value >= 0)) {
        return FIELD_COUNT;
    }
    size_t i = 0;
    while (i < FIELD_COUNT && strcmp(FIELDS[i].name, name) != 0) {
        i++;
    }
    if (i < FIELD_COUNT) {
        memcpy((char *)costs + FIELDS[i].offset, &value, sizeof value);
    }
    return i;
}

bool sl_sim_costs_read(const char *path, struct sl_sim_costs *out)
{
    FILE *file = fopen(path, "r");
    uint32_t seen = 0;
    char line[256];
    *out = (struct sl_sim_costs){0};
    if (file == NULL) {
        perror(path);
        return false;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        const size_t begin = strspn(line, " \t\r\n");
        if (line[begin] == '\0' || line[begin] == '#') {
            continue;
        }
        const size_t field = set_field(out, line);
        if (field == FIELD_COUNT) {
            (void)fprintf(stderr, "%s: not a cost: %s", path, line);
            seen = 0;
            break;
        }
        seen |= 1U << field;
    }
    (void)fclose(file);
    for (size_t i = 0; i < FIELD_COUNT; i++) {
        if ((seen & 1U << i) == 0) {
            (void)fprintf(stderr, "%s: %s is missing\n", path, FIELDS[i].name);
            return false;
        }
    }
    return true;
}

static double rows_ns(const struct sl_sim_side_costs *side, const uint8_t *payload, uint32_t bytes)
{
    struct sl_bytes cursor = sl_bytes_over(payload, bytes);
    struct sl_request_prefix prefix;
    struct sl_request_section section;
    double ns = 0;
    /* The first section tells: a worker's request has one, and perhaps a tick. */
    if (sl_request_read_prefix(&cursor, &prefix) == 0 &&
        sl_request_read_section(&cursor, &section) == 0) {
        ns = section.key_count * (sl_request_pushes(section.op) ? side->pushed : side->pulled);
    }
    return ns;
}

void sl_sim_meter_frame(struct sl_sim_meter *meter, uint32_t host, bool is_sent,
                        const uint8_t *frame, uint32_t bytes, uint64_t *called)
{
    if (meter->costs == NULL) {
        return;
    }
    const struct sl_sim_side_costs *side =
        host < meter->server_count ? &meter->costs->server : &meter->costs->client;
    struct sl_frame header;
    const int err = sl_frame_decode(frame, &header);
    sl_assert(err == 0); /* what ours send is well-formed */
    meter->spent_ns += *called != meter->turn ? meter->costs->call : 0;
    meter->spent_ns += meter->costs->frame + bytes * (is_sent ? side->out_byte : side->in_byte);
    if (header.type == SL_FRAME_REQUEST) {
        meter->spent_ns +=
            rows_ns(side, frame + SL_FRAME_HEADER_BYTES, bytes - SL_FRAME_HEADER_BYTES);
    }
    *called = meter->turn;
}
