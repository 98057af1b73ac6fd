/* Thread-specific data, in place of the C library's, which has 1,024 keys: too few for a thousand
 * simulated processes. starling-sim has one thread, so that a key is one pointer. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#define KEYS_MAX 4096

static struct {
    bool is_used;
    const void *value;
} keys[KEYS_MAX];

/* The names that the linker gives them (--wrap). */
int __wrap_pthread_key_create(pthread_key_t *key, void (*ended)(void *));
int __wrap_pthread_key_delete(pthread_key_t key);
int __wrap_pthread_setspecific(pthread_key_t key, const void *value);
void *__wrap_pthread_getspecific(pthread_key_t key);

int __wrap_pthread_key_create(pthread_key_t *key, void (*ended)(void *))
{
    for (pthread_key_t i = 0; i < KEYS_MAX; i++) {
        if (!keys[i].is_used) {
            keys[i].is_used = true;
            *key = i;
            return 0;
        }
    }
    return EAGAIN;
}

int __wrap_pthread_key_delete(pthread_key_t key)
{
    keys[key].is_used = false;
    keys[key].value = NULL;
    return 0;
}

int __wrap_pthread_setspecific(pthread_key_t key, const void *value)
{
    keys[key].value = value;
    return 0;
}

void *__wrap_pthread_getspecific(pthread_key_t key)
{
    return (void *)keys[key].value;
}
