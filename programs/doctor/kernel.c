/* Kernel features: io_uring and descriptors for every ps; TCP and shared memory. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "core/format.h"
#include "programs/doctor/checks.h"
#include "programs/doctor/files.h"

/* Enough for a ps with some hundred workers; each connection takes a descriptor. */
#define FILES_AMPLE 4096

/* Lists the missing features; returns how many. */
static uint32_t list_lacks(const struct sl_doctor_ring *ring, char *text, size_t text_bytes)
{
    const struct {
        bool is_there;
        const char *name;
    } features[] = {
        {ring->multishot_recv, "multishot receives"},
        {ring->provided_buffer_rings, "buffer rings"},
        {ring->deferred_taskrun, "deferred task work"},
    };
    uint32_t count = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if (!features[i].is_there) {
            (void)sl_format_add(text, text_bytes, ", ", "%s", features[i].name);
            count++;
        }
    }
    return count;
}

static void explain_refusal(struct sl_doctor *doctor, int err, const char *release)
{
    char disabled[16];
    const char *check = "io_uring";
    struct sl_doctor_finding *finding;
    (void)sl_doctor_files_line(doctor, disabled, sizeof disabled,
                               "/proc/sys/kernel/io_uring_disabled");
    if (err == -EPERM && (strcmp(disabled, "1") == 0 || strcmp(disabled, "2") == 0)) {
        finding = sl_doctor_find(doctor, SL_DOCTOR_MISSING, SL_DOCTOR_EVERY, check,
                                 "kernel.io_uring_disabled is %s", disabled);
        sl_doctor_advise(finding, "sysctl -w kernel.io_uring_disabled=0, as root%s",
                         disabled[0] == '1' ? "; or join the group kernel.io_uring_group" : "");
    } else if (err == -EPERM) {
        finding = sl_doctor_find(doctor, SL_DOCTOR_MISSING, SL_DOCTOR_EVERY, check,
                                 "not permitted, though the kernel has it");
        sl_doctor_advise(finding, "let the container's seccomp profile allow io_uring_setup, "
                                  "io_uring_enter and io_uring_register (docker run "
                                  "--security-opt seccomp=FILE)");
    } else if (err == -ENOSYS || err == -EINVAL) {
        finding = sl_doctor_find(doctor, SL_DOCTOR_MISSING, SL_DOCTOR_EVERY, check,
                                 "Linux %s has none that is recent enough", release);
        sl_doctor_advise(finding, "Linux 5.19 or later; 6.1 has everything that is used");
    } else {
        finding =
            sl_doctor_find(doctor, SL_DOCTOR_MISSING, SL_DOCTOR_EVERY, check, "%s", strerror(-err));
        sl_doctor_advise(finding, "look at the limits on open files (ulimit -n), locked memory "
                                  "(ulimit -l) and the control group's memory");
    }
}

static void check_ring(struct sl_doctor *doctor)
{
    char release[64], lacks[96];
    (void)sl_doctor_files_line(doctor, release, sizeof release, "/proc/sys/kernel/osrelease");
    struct sl_doctor_ring ring = {0};
    int err = doctor->system->probe_ring(&ring);
    if (err != 0) {
        explain_refusal(doctor, err, release);
        return;
    }
    if (list_lacks(&ring, lacks, sizeof lacks) == 0) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "io_uring",
                             "Linux %s: multishot receives, buffer rings, deferred task work",
                             release);
        return;
    }
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "io_uring",
                                    "Linux %s: without %s", release, lacks),
                     "it works, with more system calls; Linux 6.1 has all of it");
}

static void check_files(struct sl_doctor *doctor)
{
    const uint64_t most = doctor->system->files_max;
    if (most == UINT64_MAX || most >= FILES_AMPLE) {
        char number[24];
        (void)snprintf(number, sizeof number, "%" PRIu64, most);
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "open files", "%s",
                             most == UINT64_MAX ? "no limit" : number);
        return;
    }
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "open files",
                                    "%" PRIu64 ": each connection of each shard takes one", most),
                     "raise the hard limit (ulimit -Hn, /etc/security/limits.conf, LimitNOFILE= "
                     "of systemd) to %d or more",
                     FILES_AMPLE);
}

static bool has_word(const char *words, const char *word)
{
    const size_t length = strlen(word);
    while (*words != '\0') {
        const size_t here = strcspn(words, " ");
        if (here == length && memcmp(words, word, length) == 0) {
            return true;
        }
        words += here + strspn(words + here, " ");
    }
    return false;
}

static void check_congestion(struct sl_doctor *doctor)
{
    char system[64], available[256];
    const char *chosen = doctor->options->congestion_control;
    (void)sl_doctor_files_line(doctor, system, sizeof system,
                               "/proc/sys/net/ipv4/tcp_congestion_control");
    (void)sl_doctor_files_line(doctor, available, sizeof available,
                               "/proc/sys/net/ipv4/tcp_available_congestion_control");
    if (chosen != NULL && available[0] != '\0' && !has_word(available, chosen)) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, SL_DOCTOR_OF(SL_ENDPOINT_TCP),
                                        "tcp", "STARLING_TCP_CONGESTION=%s is not one of: %s",
                                        chosen, available),
                         "modprobe tcp_%s, or choose another", chosen);
        return;
    }
    const char *used = chosen != NULL ? chosen : system[0] != '\0' ? system : "unknown";
    if (strncmp(used, "bbr", 3) != 0) {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "tcp", "congestion control %s", used);
        return;
    }
    sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_WARNING, 0, "tcp",
                                    "congestion control %s: large tables take up to 1.4 times as "
                                    "long",
                                    used),
                     "STARLING_TCP_CONGESTION=cubic, for all processes in one data centre");
}

static void check_shm(struct sl_doctor *doctor)
{
    const struct sl_doctor_system *system = doctor->system;
    const uint32_t shm = SL_DOCTOR_OF(SL_ENDPOINT_SHM);
    if (system->no_memfd != NULL) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, shm, "shm",
                                        "no memory to share (memfd_create): %s", system->no_memfd),
                         "allow memfd_create in the container's seccomp profile; workers on this "
                         "host connect over tcp until then");
    } else if (system->no_abstract != NULL) {
        sl_doctor_advise(sl_doctor_find(doctor, SL_DOCTOR_MISSING, shm, "shm",
                                        "no unix sockets with abstract names: %s",
                                        system->no_abstract),
                         "allow unix sockets in the sandbox's profile; workers on this host "
                         "connect over tcp until then");
    } else {
        (void)sl_doctor_find(doctor, SL_DOCTOR_OK, 0, "shm",
                             "with processes of the same user and network namespace");
    }
}

void sl_doctor_kernel_check(struct sl_doctor *doctor)
{
    check_ring(doctor);
    check_files(doctor);
    check_congestion(doctor);
    check_shm(doctor);
}
