#include "rdma.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"

bool rdma_target_init(struct conformance_target *target, const char *name, const char *variable)
{
    static char endpoint[SL_LIMIT_ENDPOINT_BYTES];
    const char *address = getenv(variable);
    const char *missing = sl_builtin_missing(SL_ENDPOINT_RDMA);
    if (missing != NULL || address == NULL || address[0] == '\0') {
        fprintf(stderr, "skipped: %s%s\n", missing != NULL ? "" : "no device: set ",
                missing != NULL ? missing : variable);
        return false;
    }
    const bool is_v6 = strchr(address, ':') != NULL;
    snprintf(endpoint, sizeof endpoint, "rdma://%s%s%s:0", is_v6 ? "[" : "", address,
             is_v6 ? "]" : "");
    target->name = name;
    target->ops = sl_builtin_find(SL_ENDPOINT_RDMA);
    target->endpoint = endpoint;
    target->shakes_hands = true;
    target->is_slow = true;
    conformance_target = target;
    enum sl_log_level least = SL_LOG_ERROR; /* a peer that is turned away is no news here */
    const char *wanted = getenv("STARLING_LOG");
    if (wanted != NULL) {
        (void)sl_log_parse_level(wanted, &least);
    }
    sl_log_setup(least, name);
    return true;
}

uint32_t rdma_count_fds(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 4096; fd++) {
        count += fcntl(fd, F_GETFD) >= 0;
    }
    return count;
}

/* "0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0" */
uint32_t rdma_count_objects(const char *kind)
{
    const char *device = getenv("RDMA_DEV");
    char command[128], line[512] = "", word[32];
    snprintf(command, sizeof command, "rdma resource show %s", device != NULL ? device : "");
    FILE *said = popen(command, "r");
    assert_non_null(said);
    while (strstr(line, " qp ") == NULL) {
        assert_non_null(fgets(line, sizeof line, said));
    }
    pclose(said);
    snprintf(word, sizeof word, " %s ", kind);
    const char *at = strstr(line, word);
    assert_non_null(at);
    return (uint32_t)strtoul(at + strlen(word), NULL, 10);
}

uint64_t rdma_read_counter(const char *name)
{
    const char *device = getenv("RDMA_DEV");
    char path[256];
    unsigned long long value = 0;
    snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters/%s",
             device != NULL ? device : "", name);
    FILE *file = fopen(path, "re");
    if (file != NULL) {
        if (fscanf(file, "%llu", &value) != 1) {
            value = 0;
        }
        fclose(file);
    }
    return value;
}
