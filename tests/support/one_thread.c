/* Linked into tests of one thread (sl_test's ONE_THREAD), in place of what makes another: such a
 * test is not run where races are looked for. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *ctx);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*start)(void *), void *ctx)
{
    (void)fprintf(stderr, "a second thread, in a test that CMakeLists.txt says has one: take "
                          "ONE_THREAD out there\n");
    abort();
}
