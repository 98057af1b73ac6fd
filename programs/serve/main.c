/* starling-serve: the roles of model serving. */
#include <stdio.h>
#include <string.h>

#include "config/cli.h"
#include "programs/serve/check.h"
#include "programs/serve/client.h"
#include "programs/serve/deploy.h"
#include "programs/serve/engine/blas.h"
#include "programs/serve/gateway_run.h"
#include "programs/serve/generate.h"
#include "programs/serve/local.h"
#include "programs/serve/worker_run.h"

#define PROGRAM    "starling-serve"
#define LENGTH(of) (uint32_t)(sizeof(of) / sizeof((of)[0]))

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv); /* argv[0] is the role */
} roles[] = {
    {"client", "Sends the requests of a list, and prints latencies.", sl_serve_client_run},
    {"gateway", "Serves models over HTTP, by workers that join.", sl_serve_gateway_run},
    {"worker", "Computes requests of gateways.", sl_serve_worker_run},
    {"check", "Tells what would be served of an ONNX model.", sl_serve_check_run},
    {"deploy", "Publishes ONNX models for workers to serve.", sl_serve_deploy_run},
    {"rollback", "Removes the newest versions of a model.", sl_serve_rollback_run},
    {"generate", "Makes models of templates, with other weights.", sl_serve_generate_run},
};

static void print_help(FILE *to)
{
    (void)fprintf(to, PROGRAM ": serves models.\n\n");
    for (uint32_t i = 0; i < LENGTH(roles); i++) {
        (void)fprintf(to, "  " PROGRAM " %s\n      %s\n", roles[i].name, roles[i].summary);
    }
    (void)fprintf(to, "\n" PROGRAM " ROLE --help lists the options. Without a role:\n\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    sl_blas_init();
    for (uint32_t i = 0; i < LENGTH(roles); i++) {
        if (strcmp(roles[i].name, name) == 0) {
            return roles[i].run(argc - 1, argv + 1);
        }
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        print_help(stdout);
    }
    if (name[0] == '-') {
        return sl_serve_local_run(argc, argv);
    }
    if (argc > 1) {
        (void)fprintf(stderr, PROGRAM ": unknown role \"%s\"\n", name);
    }
    print_help(stderr);
    return SL_CLI_EXIT_USAGE;
}
