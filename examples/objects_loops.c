/* A trainer that publishes its weights every few steps, and an actor that loads them: the loops of
 * docs/objects.md.
 *
 *   cc objects_loops.c $(pkg-config --cflags --libs starling-objects) -o objects_loops
 *   ./objects_loops train                     prints the address of its catalogue, such as:
 *   ./objects_loops act 127.0.0.1:41000       its views are in its own memory, or
 *   starling-objects serve --agent --catalogue 127.0.0.1:41000
 *   ./objects_loops act-by-agent default      in that of the agent, with all actors of the host */
#include <signal.h>
#include <starling_objects.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME       "team/model"
#define TIMEOUT_MS 60000
#define STEPS      10 /* between two versions */
#define LAST       8  /* the number of the version after which both loops end */
#define WEIGHTS    1000000

/* catalogue: its address; NULL: this node hosts it. */
static int start(const char *catalogue, struct sl_objects **objects)
{
    const struct sl_transfer_options engine = {.name = "127.0.0.1:0"}; /* on loopback */
    const struct sl_objects_options options = {.struct_size = sizeof options,
                                               .engine_options = &engine,
                                               .catalogue = catalogue,
                                               .pool_bytes = 64 << 20}; /* 4 versions fit */
    return sl_objects_create(&options, objects);
}

/* This process needs no catalogue, no engine and no pool. */
static int start_by_agent(const char *agent, struct sl_objects **objects)
{
    const struct sl_objects_options options = {.struct_size = sizeof options, .agent = agent};
    return sl_objects_create(&options, objects);
}

static void train_step(float *weights)
{
    for (uint64_t i = 0; i < WEIGHTS; i++) {
        weights[i] += 1;
    }
}

static void use(uint64_t version, const struct sl_object_tensor *tensor)
{
    const float *data = tensor->data;
    printf("version %llu: %s are %.0f\n", (unsigned long long)version, tensor->name,
           data[WEIGHTS - 1]);
}

static int train(struct sl_objects *objects, float *weights)
{
    const struct sl_publish_options options = {
        .struct_size = sizeof options, .name = NAME, .origin = SL_ORIGIN_HOST, .take_over = true};
    const struct sl_object_tensor tensor = {.name = "weights",
                                            .type = SL_OBJECT_F32,
                                            .rank = 1,
                                            .shape = {WEIGHTS},
                                            .data = weights,
                                            .bytes = WEIGHTS * sizeof *weights};
    uint64_t version = 0;
    int err = 0;
    while (version < LAST && (err == 0 || err == SL_ERR_DEADLINE)) {
        for (int i = 0; i < STEPS; i++) {
            train_step(weights);
        }
        struct sl_publication *publication = NULL;
        err = sl_publish_begin(objects, &options, TIMEOUT_MS, &publication);
        err = err != 0 ? err : sl_publish_tensor(publication, &tensor);
        err = err != 0 ? err : sl_publish_commit(publication, TIMEOUT_MS, &version);
        sl_publish_end(&publication); /* after a DEADLINE readers may see this version, or not */
    }
    return err;
}

static int act(struct sl_objects *objects)
{
    const struct sl_subscribe_options options = {.struct_size = sizeof options, .follow = true};
    struct sl_subscription *subscription = NULL;
    struct sl_object_tensor weights;
    uint64_t version = 0, newest; /* in use; announced */
    int err = sl_subscription_open(objects, NAME, &options, TIMEOUT_MS, &subscription);
    while (subscription != NULL && version < LAST && (err == 0 || err == SL_ERR_DEADLINE)) {
        struct sl_view *view = NULL;
        err = sl_subscription_wait(subscription, version, TIMEOUT_MS, &newest);
        err = err != 0 ? err : sl_view_open(subscription, NULL, TIMEOUT_MS, &view);
        err = err != 0 ? err : sl_view_tensor(view, "weights", &weights, NULL);
        if (err == 0) {
            version = sl_view_version(view);
            use(version, &weights);
        }
        sl_view_close(&view);
    }
    sl_subscription_close(&subscription);
    return err;
}

int main(int argc, char **argv)
{
    const bool trains = argc == 2 && strcmp(argv[1], "train") == 0;
    const bool has_agent = argc == 3 && strcmp(argv[1], "act-by-agent") == 0;
    if (!trains && !has_agent && (argc != 3 || strcmp(argv[1], "act") != 0)) {
        fprintf(stderr, "usage: %s train | act CATALOGUE | act-by-agent AGENT\n", argv[0]);
        return 2;
    }
    sigset_t signals; /* blocked here, and so in the threads of the node */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(trains ? SIG_BLOCK : SIG_UNBLOCK, &signals, NULL);
    struct sl_objects *objects = NULL;
    float *weights = calloc(WEIGHTS, sizeof *weights); /* of the trainer */
    int err = weights == NULL ? SL_ERR_NO_MEMORY
              : has_agent     ? start_by_agent(argv[2], &objects)
                              : start(trains ? NULL : argv[2], &objects);
    if (err == 0 && trains) {
        printf("%s\n", sl_objects_address(objects));
        fflush(stdout);
        err = train(objects, weights);
    } else if (err == 0) {
        err = act(objects);
    }
    if (err != 0) {
        fprintf(stderr, "%s: %s: %s\n", argv[0], sl_err_name(err), sl_objects_last_error());
    } else if (trains) {
        sigwait(&signals, &(int){0}); /* serves the last version until then */
    }
    sl_objects_destroy(&objects);
    free(weights);
    return err == 0 ? 0 : 1;
}
