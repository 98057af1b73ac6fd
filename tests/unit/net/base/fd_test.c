#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "net/base/fd.h"
#include "tests/support/unit.h"

SL_CASE(fd_lift__above_the_standard_descriptors)
{
    const int saved = dup(STDIN_FILENO);
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(sl_fd_lift(fd), fd);
    close(STDIN_FILENO);
    close(fd);
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(fd, STDIN_FILENO);
    fd = sl_fd_lift(fd);
    assert_true(fd > STDERR_FILENO);
    assert_int_equal(fcntl(STDIN_FILENO, F_GETFD), -1);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    close(fd);
    dup2(saved, STDIN_FILENO);
    close(saved);
    errno = EMFILE;
    assert_int_equal(sl_fd_lift(-1), -1);
    assert_int_equal(errno, EMFILE);
}
