#include "net/dpdk/module/memif_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

static int make_directory(struct sl_module_memif_private *private)
{
    (void)snprintf(private->directory, sizeof private->directory, "/tmp/starling-memif-XXXXXX");
    if (mkdtemp(private->directory) == NULL) {
        private->directory[0] = '\0';
        return errno;
    }
    (void)snprintf(private->address.path, sizeof private->address.path, "%s/s", private->directory);
    return 0;
}

static int listen_at_name(struct sl_module_memif_private *private)
{
    uint64_t random;
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random) {
        return errno;
    }
    private->address.is_abstract = true;
    (void)snprintf(private->address.path, sizeof private->address.path, "starling-%ld-%016llx",
                   (long)getpid(), (unsigned long long)random);
    const int fd = sl_module_memif_socket_listen(&private->address);
    private->listening = fd >= 0 ? fd : -1;
    return fd >= 0 ? 0 : -fd;
}

int sl_module_memif_private_make(struct sl_module_memif_private *out, bool is_server)
{
    *out = (struct sl_module_memif_private){.listening = -1, .file = -1};
    return is_server ? make_directory(out) : listen_at_name(out);
}

static void remove_directory(struct sl_module_memif_private *private)
{
    if (private->directory[0] != '\0') {
        (void)unlink(private->address.path);
        (void)rmdir(private->directory);
        private->directory[0] = '\0';
    }
}

int sl_module_memif_private_seal(struct sl_module_memif_private *private)
{
    int code = 0;
    if (private->directory[0] != '\0') {
        private->file = open(private->address.path, O_PATH | O_CLOEXEC);
        code = private->file < 0 ? errno : 0;
    }
    remove_directory(private);
    return code;
}

void sl_module_memif_private_discard(struct sl_module_memif_private *private)
{
    remove_directory(private);
    sl_module_memif_socket_close(&private->listening);
    sl_module_memif_socket_close(&private->file);
}

/* The file has no name any more, but by its descriptor. */
int sl_module_memif_private_dial(const struct sl_module_memif_private *private)
{
    struct sl_module_memif_address address = {.is_abstract = false};
    (void)snprintf(address.path, sizeof address.path, "/proc/self/fd/%d", private->file);
    const int fd = sl_module_memif_socket_dial(&address);
    return fd >= 0 ? fd : -1;
}

/* Nobody but this process knows the name, yet anybody may try. */
int sl_module_memif_private_accept(const struct sl_module_memif_private *private)
{
    int fd = sl_module_memif_socket_accept(private->listening);
    while (fd >= 0) {
        struct ucred who = {0};
        socklen_t bytes = sizeof who;
        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.pid == getpid()) {
            return fd;
        }
        sl_module_memif_socket_close(&fd);
        fd = sl_module_memif_socket_accept(private->listening);
    }
    return -1;
}
