/* libmicrohttpd with constant answers, the baseline of the gateway of starling-serve: a thread of
 * its own, which reads bodies and drops them. GET is answered with the description of a model that
 * has one input of 64 values, so that starling-serve client can ask for it. Prints its address;
 * ends on SIGTERM. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char description[] =
    "{\"name\":\"bare\",\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[-1,64]}]}";
static char answer[] = "{\"model_name\":\"bare\",\"model_version\":\"1\",\"parameters\":"
                       "{\"queue_us\":0,\"load_us\":0,\"compute_us\":0},\"outputs\":[]}";
static struct MHD_Response *responses[2];

static enum MHD_Result on_request(void *ctx, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *piece,
                                  size_t *piece_bytes, void **context)
{
    if (*context == NULL || *piece_bytes > 0) { /* a head, or a piece of a body */
        *context = responses;
        *piece_bytes = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, 200, responses[strcmp(method, "POST") == 0]);
}

int main(void)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sigset_t signals;
    int number;
    (void)sigemptyset(&signals);
    (void)sigaddset(&signals, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &signals, NULL);
    responses[0] = MHD_create_response_from_buffer(sizeof description - 1, description,
                                                   MHD_RESPMEM_PERSISTENT);
    responses[1] =
        MHD_create_response_from_buffer(sizeof answer - 1, answer, MHD_RESPMEM_PERSISTENT);
    struct MHD_Daemon *daemon =
        MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, on_request, NULL,
                         MHD_OPTION_SOCK_ADDR, &address, MHD_OPTION_END);
    if (daemon == NULL) {
        (void)fprintf(stderr, "bare_http: libmicrohttpd does not start\n");
        return EXIT_FAILURE;
    }
    (void)printf("127.0.0.1:%u is libmicrohttpd\n",
                 MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    (void)fflush(stdout);
    (void)sigwait(&signals, &number);
    MHD_stop_daemon(daemon);
    MHD_destroy_response(responses[0]);
    MHD_destroy_response(responses[1]);
    return EXIT_SUCCESS;
}
