/* Forty threads that launch once, once more in a C++ destructor of a thread-local, and once in each
 * of the four rounds of their keys' destructors: six launches a thread, five of them at its end. */
#include "life.h"
#include <pthread.h>

static Cuda cuda;
static pthread_key_t key;

extern void *__dso_handle;
extern int __cxa_thread_atexit_impl(void (*function)(void *), void *object, void *library);

static void destroy_local(void *unused)
{
    (void)unused;
    launch_and_check(cuda.first, NULL);
}

static void destroy_value(void *value)
{
    launch_and_check(cuda.first, NULL);
    if ((long)value < 4)
        pthread_setspecific(key, (void *)((long)value + 1));
}

static void *work(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    __cxa_thread_atexit_impl(destroy_local, NULL, __dso_handle);
    pthread_setspecific(key, (void *)1);
    launch_and_check(cuda.first, NULL);
    return unused;
}

int main(void)
{
    cuda = cuda_start();
    pthread_key_create(&key, destroy_value);
    for (int i = 0; i < 40; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, work, NULL);
        pthread_join(thread, NULL);
    }
    OK(cuCtxSynchronize());
    show_life();
    return 0;
}
