/* Four rounds of ten launches and a wait, of which rounds 1 and 3 are inside of a range: `captured HOW
   [ROUNDS]`, with HOW profiler, push, domain, start, early (a range pushed before CUDA is used), forked (the
   same, in a child), warmup (a range that ends before it), or none. With neighbours each round has a range
   with one launch, and another thread's that begins as it ends, with one launch too. Prints how many launches
   there were. Ranges are made through NVTX's tables, as its headers do. */
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

CUresult cuProfilerStart(void);
CUresult cuProfilerStop(void);

enum { CORE = 1, CORE2 = 5, COUNT = 17 };
static void *functions[6][COUNT];
static void *slots[6][COUNT];

static int function_table(unsigned module, void ****table, unsigned *count)
{
    static void **pointers[6][COUNT];
    if (module >= 6)
        return 0;
    for (int i = 0; i < COUNT; i++) {
        slots[module][i] = &functions[module][i];
        pointers[module][i] = &functions[module][i];
    }
    *table = pointers[module];
    *count = COUNT;
    return 1;
}

static struct {
    size_t bytes;
    int (*function_table)(unsigned, void ****, unsigned *);
} callbacks = {sizeof callbacks, function_table};

static const void *export_table(unsigned id)
{
    return id == 1 ? &callbacks : NULL;
}

/* What NVTX does at its first call. */
static void nvtx_start(void)
{
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    int (*initialise)(const void *(*)(unsigned)) = library ? dlsym(library, "InitializeInjectionNvtx2") : NULL;
    if (initialise)
        initialise(export_table);
}

static int (*push)(const char *), (*pop)(void), (*domain_pop)(void *);
static unsigned long (*start)(const char *);
static void (*end)(unsigned long);
static int (*domain_push)(void *, const void *);
static void *(*domain_create)(const char *);

/* nvtxEventAttributes_t. */
static struct {
    unsigned short version, size;
    unsigned category;
    int color_kind;
    unsigned color;
    int payload_kind, reserved;
    unsigned long payload;
    int message_kind;
    const char *message;
} attributes = {2, 48, 0, 0, 0, 0, 0, 0, 1, "step"};

static atomic_int turn_of_other;

static void spin(int times)
{
    for (volatile int i = 0; i < times; i++)
        ;
}

static void *other(void *cuda)
{
    OK(cuCtxSetCurrent(((Cuda *)cuda)->context));
    for (int round = 1;; round++) {
        int turn;
        while ((turn = turn_of_other) == 0)
            sched_yield();
        if (turn < 0)
            return NULL;
        spin(round * 7 % 200);
        push("step");
        usleep(200);
        launch(((Cuda *)cuda)->first, NULL);
        pop();
        turn_of_other = 0;
    }
}

static int neighbours(int rounds)
{
    Cuda cuda = cuda_start();
    pthread_t thread;
    pthread_create(&thread, NULL, other, &cuda);
    for (int round = 0; round < rounds; round++) {
        push("step");
        launch(cuda.first, NULL);
        turn_of_other = 1;
        spin(round * 11 % 200);
        pop();
        while (turn_of_other)
            sched_yield();
    }
    turn_of_other = -1;
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    printf("%d\n", 2 * rounds);
    return 0;
}

int main(int count, char **arguments)
{
    const char *how = count > 1 ? arguments[1] : "none";
    int rounds = count > 2 ? atoi(arguments[2]) : 4, done = 0;
    nvtx_start();
    push = functions[CORE][9], pop = functions[CORE][11], start = functions[CORE][5], end = functions[CORE][7];
    domain_create = functions[CORE2][12], domain_push = functions[CORE2][4], domain_pop = functions[CORE2][5];
    if (strcmp(how, "neighbours") == 0)
        return neighbours(rounds);
    if (strcmp(how, "forked") == 0) {
        pid_t child = fork();
        if (child)
            return waitpid(child, NULL, 0) != child;
        how = "early";
    }
    int is_early = strcmp(how, "early") == 0, is_warm = strcmp(how, "warmup") == 0;
    if (is_early || is_warm)
        push("step");
    if (is_warm)
        pop(), how = "push";
    Cuda cuda = cuda_start();
    void *domain = strcmp(how, "domain") == 0 ? domain_create("library") : NULL;
    CUstream stream;
    OK(cuStreamCreate(&stream, 1));
    for (int round = 0; round < rounds; round++) {
        int is_inside = round % 2;
        unsigned long id = 0;
        if (is_inside && strcmp(how, "profiler") == 0)
            OK(cuProfilerStart());
        if (is_inside && strcmp(how, "push") == 0)
            push("step"), push("step"), push("other"), pop(), pop();
        if (is_inside && domain)
            domain_push(domain, &attributes);
        if (is_inside && strcmp(how, "start") == 0)
            id = start("step");
        for (int i = 0; i < 10; i++, done++)
            launch(cuda.first, stream);
        if (is_early && round == 0)
            pop();
        if (is_inside && strcmp(how, "profiler") == 0)
            OK(cuProfilerStop());
        if (is_inside && strcmp(how, "push") == 0)
            pop();
        if (is_inside && domain)
            domain_pop(domain);
        if (id)
            end(id);
        OK(cuStreamSynchronize(stream));
    }
    printf("%d\n", done);
    fflush(stdout);
    /* Time for SIGTERM. */
    if (getenv("CAPTURED_WAITS"))
        sleep(60);
    return 0;
}
