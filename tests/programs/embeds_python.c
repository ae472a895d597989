/* Loads a libpython after its first use of CUDA, privately; launches with 1 block until it was surely seen, then with 2.
 * After the interpreter's end it launches with 3 blocks, and with 4 in the next one. Argument: the libpython. */
#include <dlfcn.h>
#include <unistd.h>

#include "driver.h"

static Cuda cuda;
static int blocks = 1;

typedef void *object;
struct method {
    const char *name;
    object (*call)(object, object);
    int flags;
    const char *doc;
};

static object none;

static object launch_blocks(object self, object arguments)
{
    (void)self, (void)arguments;
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(cuda.first, blocks, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    return none;
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(98);
    }
    return found;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 97;
    cuda = cuda_start();
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 96;
    }
    void (*begin)(int) = symbol(library, "Py_InitializeEx");
    void (*end)(void) = symbol(library, "Py_Finalize");
    int (*run)(const char *) = symbol(library, "PyRun_SimpleString");
    object (*module)(const char *) = symbol(library, "PyImport_AddModule");
    int (*add)(object, const char *, object) = symbol(library, "PyModule_AddObject");
    object (*function)(struct method *, object, object) = symbol(library, "PyCFunction_NewEx");
    void (*keep)(object) = symbol(library, "Py_IncRef");
    /* METH_NOARGS. */
    static struct method launch_method = {"launch", launch_blocks, 4, NULL};
    const char *script = "def inside():\n    launch()\ninside()\n";
    for (int round = 0; round < 2; round++) {
        begin(0);
        none = symbol(library, "_Py_NoneStruct");
        for (int i = 0; i < 10000; i++)
            keep(none);
        add(module("__main__"), "launch", function(&launch_method, NULL, NULL));
        /* The library is noticed within some 50 ms. */
        for (int i = 0; round == 0 && i < 100; i++) {
            if (run(script))
                return 95;
            usleep(20000);
        }
        blocks = round == 0 ? 2 : 4;
        if (run(script))
            return 94;
        end();
        blocks = 3;
        launch_blocks(NULL, NULL);
    }
    OK(cuCtxSynchronize());
    return 0;
}
