#include "bench/pslite_options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define ROUNDS_MAX 1000000000ULL

static const char *const MODE_NAMES[SL_BENCH_PSLITE_MODES] = {
    [SL_BENCH_PSLITE_PUSH_THEN_PULL] = "push then pull",
    [SL_BENCH_PSLITE_PUSH_PULL] = "push_pull",
    [SL_BENCH_PSLITE_PUSH] = "push",
    [SL_BENCH_PSLITE_PULL] = "pull",
};

const char *sl_bench_pslite_mode_name(enum sl_bench_pslite_mode mode)
{
    return MODE_NAMES[mode];
}

struct sl_bench_pslite_load sl_bench_pslite_options_defaults(void)
{
    return (struct sl_bench_pslite_load){.len = 1024000,
                                         .repeat = 10,
                                         .mode = SL_BENCH_PSLITE_PUSH_PULL,
                                         .keys_per_server = 40,
                                         .log_rounds = 10};
}

/* A number that has a name, and what it may be. */
struct number {
    const char *name;
    uint64_t least, most;
    const char *accepts; /* said instead of the two; or NULL */
};

static int read_number(const struct number *number, const char *text, uint64_t *out,
                       struct sl_reason *reason)
{
    char *end;
    errno = 0;
    const uint64_t value = strtoull(text, &end, 10);
    if (text[0] >= '0' && text[0] <= '9' && errno == 0 && *end == '\0' && value >= number->least &&
        value <= number->most) {
        *out = value;
        return 0;
    }
    if (number->accepts != NULL) {
        sl_reason_set(reason, "%s=%.64s: accepts %s", number->name, text, number->accepts);
    } else {
        sl_reason_set(reason, "%s=%.64s: accepts a number from %" PRIu64 " to %" PRIu64,
                      number->name, text, number->least, number->most);
    }
    return SL_ERR_INVALID;
}

int sl_bench_pslite_options_arguments(struct sl_bench_pslite_load *load, int argc, char **argv,
                                      int *taken, struct sl_reason *reason)
{
    static const struct number numbers[] = {
        {.name = "LEN", .least = 1, .most = SL_BENCH_PSLITE_LEN_MAX},
        {.name = "REPEAT", .least = 1, .most = ROUNDS_MAX},
        {.name = "MODE",
         .most = SL_BENCH_PSLITE_MODES - 1,
         .accepts = "0 (push, then pull), 1 (push_pull), 2 (push) or 3 (pull)"},
    };
    enum { COUNT = sizeof numbers / sizeof numbers[0] };
    uint64_t values[COUNT] = {load->len, load->repeat, load->mode};
    int count = 0;
    while (count + 1 < argc && argv[count + 1][0] != '-') {
        if (count == COUNT) {
            return sl_reason_fail(reason, SL_ERR_INVALID,
                                  "%.64s: accepts LEN, REPEAT and MODE only", argv[count + 1]);
        }
        const int err = read_number(&numbers[count], argv[count + 1], &values[count], reason);
        if (err != 0) {
            return err;
        }
        count++;
    }
    load->len = values[0];
    load->repeat = (uint32_t)values[1];
    load->mode = (enum sl_bench_pslite_mode)values[2];
    *taken = count;
    return 0;
}

int sl_bench_pslite_options_environment(struct sl_bench_pslite_load *load, struct sl_reason *reason)
{
    static const struct number numbers[] = {
        {.name = "NUM_KEY_PER_SERVER", .least = 1, .most = SL_BENCH_PSLITE_KEYS_MAX},
        {.name = "LOG_DURATION", .least = 1, .most = ROUNDS_MAX},
        {.name = "TOTAL_DURATION", .least = 1, .most = ROUNDS_MAX},
    };
    uint32_t *const targets[] = {&load->keys_per_server, &load->log_rounds, &load->total_rounds};
    int err = 0;
    for (size_t i = 0; err == 0 && i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *text = getenv(numbers[i].name);
        uint64_t value = *targets[i];
        if (text != NULL && text[0] != '\0') {
            err = read_number(&numbers[i], text, &value, reason);
        }
        *targets[i] = (uint32_t)value;
    }
    return err;
}

int sl_bench_pslite_options_check(const struct sl_bench_pslite_load *load, struct sl_reason *reason)
{
    const uint32_t width = sl_bench_pslite_options_value_bytes(load->handler);
    if (load->len % width != 0) {
        return sl_reason_fail(reason, SL_ERR_INVALID,
                              "LEN=%" PRIu64
                              ": accepts multiples of %u with --handler sum, which adds f32",
                              load->len, width);
    }
    return 0;
}

int sl_bench_pslite_options_parse(const struct sl_bench_program *program,
                                  const struct sl_cli_option *own, uint32_t own_count,
                                  struct sl_bench_common *common, const int *handler,
                                  struct sl_bench_pslite_load *load, int *taken, int argc,
                                  char **argv)
{
    struct sl_reason reason;
    int err = sl_bench_pslite_options_arguments(load, argc, argv, taken, &reason);
    err = err != 0 ? err : sl_bench_pslite_options_environment(load, &reason);
    if (err == 0) {
        argv[*taken] = argv[0];
        const int parsed =
            sl_bench_parse_program(program, own, own_count, common, argc - *taken, argv + *taken);
        if (parsed != SL_CLI_RUN) {
            return parsed;
        }
        load->handler = (enum sl_bench_pslite_handler) * handler;
        err = sl_bench_pslite_options_check(load, &reason);
    }
    if (err != 0) {
        (void)fprintf(stderr, "starling-bench %s: %s\n", program->name, reason.text);
    }
    return err != 0 ? err : SL_CLI_RUN;
}

uint32_t sl_bench_pslite_options_rounds(const struct sl_bench_pslite_load *load)
{
    return load->total_rounds != 0 ? load->total_rounds : load->repeat;
}

uint32_t sl_bench_pslite_options_value_bytes(enum sl_bench_pslite_handler handler)
{
    return handler == SL_BENCH_PSLITE_SUM ? sizeof(float) : 1;
}

void sl_bench_pslite_options_setting(const struct sl_bench_pslite_load *load, char *text,
                                     size_t text_bytes)
{
    char keys[32] = "one key";
    if (load->mode != SL_BENCH_PSLITE_PUSH_THEN_PULL) {
        (void)snprintf(keys, sizeof keys, "each of %u keys", load->keys_per_server);
    }
    (void)snprintf(text, text_bytes, "%s, %" PRIu64 " bytes of %s of each server, %s",
                   sl_bench_pslite_mode_name(load->mode), load->len, keys,
                   load->handler == SL_BENCH_PSLITE_SUM
                       ? "which adds pushes up"
                       : "which keeps the first push of a key and acknowledges the others");
}
