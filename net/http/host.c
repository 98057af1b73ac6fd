#include "net/http/host.h"

#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/endpoint.h"

/* Copies the host of "host", "host:port", "[v6]" or "[v6]:port". False: none of these. */
static bool take_host(const char *header, char host[SL_LIMIT_ENDPOINT_BYTES])
{
    const bool is_v6 = header[0] == '[';
    const char *begin = header + is_v6;
    const size_t bytes = strcspn(begin, is_v6 ? "]" : ":");
    const char *end = begin + bytes + is_v6;
    if (bytes == 0 || (is_v6 && begin[bytes] != ']') || bytes >= SL_LIMIT_ENDPOINT_BYTES ||
        (*end != '\0' && *end != ':') ||
        (*end == ':' && end[1 + strspn(end + 1, "0123456789")] != '\0')) {
        return false;
    }
    memcpy(host, begin, bytes);
    host[bytes] = '\0';
    return true;
}

static bool is_own_address(const char *host, int fd)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    struct sl_endpoint own;
    if (getsockname(fd, (struct sockaddr *)&address, &bytes) != 0 ||
        sl_endpoint_from_sockaddr(&address, &own) != 0) {
        return false;
    }
    static const char mapped[] = "::ffff:"; /* IPv4 at a socket of IPv6 */
    const bool is_mapped = strncmp(own.host, mapped, sizeof mapped - 1) == 0;
    return strcasecmp(host, own.host + (is_mapped ? sizeof mapped - 1 : 0)) == 0;
}

bool sl_host_is_accepted(const char *header, int fd, const char *configured)
{
    char host[SL_LIMIT_ENDPOINT_BYTES];
    char machine[SL_LIMIT_ENDPOINT_BYTES] = "";
    if (!take_host(header, host)) {
        return false;
    }
    (void)gethostname(machine, sizeof machine - 1);
    return strcasecmp(host, "localhost") == 0 || strcasecmp(host, configured) == 0 ||
           strcasecmp(host, machine) == 0 || is_own_address(host, fd);
}
