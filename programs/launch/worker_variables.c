#include "programs/launch/worker_variables.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/cli_option.h"
#include "core/log.h"

/* With a cluster store every server may host the coordinator. */
static int append_coordinator(struct sl_words *variables, const struct sl_launch_options *options,
                              const struct sl_plan_hosts *hosts)
{
    const bool has_store = options->settings.flags.cluster_store != NULL;
    const size_t bytes = has_store ? strlen(hosts->ps) : strcspn(hosts->ps, ",");
    return sl_words_append_format(variables, "STARLING_COORDINATOR=%.*s", (int)bytes, hosts->ps);
}

static int append_place(struct sl_words *variables, const struct sl_plan_hosts *hosts,
                        uint32_t index)
{
    const struct sl_words *workers = &hosts->workers;
    uint32_t local_rank = 0, local_count = 0;
    for (uint32_t i = 0; i < workers->count; i++) {
        const bool is_here = strcmp(workers->items[i], workers->items[index]) == 0;
        local_count += is_here;
        local_rank += is_here && i < index;
    }
    const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"RANK", index},
                   {"WORLD_SIZE", workers->count},
                   {"LOCAL_RANK", local_rank},
                   {"LOCAL_WORLD_SIZE", local_count},
                   {"MASTER_PORT", hosts->master_port}};
    int err = 0;
    for (size_t i = 0; err == 0 && i < sizeof numbers / sizeof numbers[0]; i++) {
        err = sl_words_append_format(variables, "%s=%u", numbers[i].name, numbers[i].value);
    }
    return err;
}

/* torch.distributed takes an IPv6 address without brackets. */
static int append_master(struct sl_words *variables, const struct sl_plan_hosts *hosts)
{
    const char *host = hosts->workers.items[0];
    const size_t bracket = host[0] == '[';
    return sl_words_append_format(variables, "MASTER_ADDR=%.*s", (int)(strlen(host) - 2 * bracket),
                                  host + bracket);
}

/* Hosts have the form of endpoints, so no character needs an escape. Workers have no ports: the
 * launcher reserves none for them. */
static void print_tf_config(FILE *out, const struct sl_plan_hosts *hosts, uint32_t index)
{
    fputs("TF_CONFIG={\"cluster\": {\"ps\": [", out);
    const char *at = hosts->ps;
    for (size_t bytes = strcspn(at, ","); bytes > 0; bytes = strcspn(at, ",")) {
        fprintf(out, "%s\"%.*s\"", at == hosts->ps ? "" : ", ", (int)bytes, at);
        at += bytes + (at[bytes] == ',');
    }
    fputs("], \"worker\": [", out);
    for (uint32_t i = 0; i < hosts->workers.count; i++) {
        fprintf(out, "%s\"%s\"", i == 0 ? "" : ", ", hosts->workers.items[i]);
    }
    fprintf(out, "]}, \"task\": {\"type\": \"worker\", \"index\": %u}}", index);
}

static int append_tf_config(struct sl_words *variables, const struct sl_plan_hosts *hosts,
                            uint32_t index)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (out == NULL) {
        return SL_ERR_NO_MEMORY;
    }
    print_tf_config(out, hosts, index);
    int err = fclose(out) == 0 ? 0 : SL_ERR_NO_MEMORY;
    if (err == 0 && bytes <= SL_WORKER_VARIABLES_TF_CONFIG_BYTES) {
        err = sl_words_append(variables, text);
    } else if (err == 0 && index == 0) {
        sl_log_warn("TF_CONFIG would have %zu bytes, more than %d: the workers do not get it; "
                    "RANK and WORLD_SIZE have their places",
                    bytes, SL_WORKER_VARIABLES_TF_CONFIG_BYTES);
    }
    free(text);
    return err;
}

int sl_worker_variables_append(struct sl_words *variables, const struct sl_launch_options *options,
                               const struct sl_plan_hosts *hosts, uint32_t index)
{
    int err = append_coordinator(variables, options, hosts);
    err = err != 0 ? err : append_place(variables, hosts, index);
    err = err != 0 ? err : append_master(variables, hosts);
    return err != 0 ? err : append_tf_config(variables, hosts, index);
}

int sl_worker_variables_append_flag(struct sl_words *variables, const struct sl_cli_option *option,
                                    const char *value)
{
    char name[SL_CLI_NAME_BYTES];
    sl_cli_option_variable(option, true, name);
    return sl_words_append_format(variables, "%s=%s", name, value);
}
