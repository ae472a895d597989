/* Uses CUDA and asks, before and after, whether anybody loaded CUPTI. */
#define _GNU_SOURCE
#include "life.h"

static void probe(void)
{
    static const char *const names[] = {"cuptiSubscribe", "cuptiActivityEnable", "cuptiSubscribe_v2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *found = dlsym(RTLD_DEFAULT, names[i]);
        const char *said = dlerror();
        printf("%s: %s, %s\n", names[i], found ? "found" : "nothing", said ? said : "no error");
    }
}

int main(void)
{
    probe();
    Cuda cuda = cuda_start();
    probe();
    for (int i = 0; i < 3; i++)
        launch(cuda.first, NULL);
    OK(cuCtxSynchronize());
    probe();
    show_life();
    return 0;
}
