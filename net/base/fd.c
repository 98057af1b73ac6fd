#include "net/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int sl_fd_lift(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    const int lifted = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int failed = errno;
    close(fd);
    errno = failed;
    return lifted;
}
