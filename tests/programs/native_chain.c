/* Launches from known chains of calls: functions of several kinds, one of them inlined; a thread; a signal handler on a stack
 * of its own; a deep recursion. The Nth kind launches with N blocks. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>

#include "driver.h"

#define NOINLINE __attribute__((noinline))

static Cuda cuda;
static volatile int sink;

static NOINLINE void launch_blocks(int blocks)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(cuda.first, blocks, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    sink++;
}

static inline __attribute__((always_inline)) void inlined(int blocks)
{
    sink += blocks;
    launch_blocks(blocks); /* line: inlined */
    sink += blocks;
}

static NOINLINE void with_room(int blocks)
{
    volatile char room[3000];
    room[blocks] = 1;
    inlined(blocks); /* line: with_room */
    sink += room[blocks];
}

static NOINLINE void with_aligned(int blocks)
{
    volatile char room[64] __attribute__((aligned(64)));
    room[blocks] = 1;
    with_room(blocks); /* line: with_aligned */
    sink += room[blocks];
}

static NOINLINE void with_variable_room(int blocks, int size)
{
    volatile char room[size];
    room[blocks] = 1;
    with_aligned(blocks); /* line: with_variable_room */
    sink += room[blocks];
}

static int compared(const void *one, const void *other)
{
    (void)one, (void)other;
    if (sink >= 0) {
        sink = -1000;
        with_variable_room(2, 200);
    }
    return 0;
}

static NOINLINE void *in_thread(void *argument)
{
    OK(cuCtxSetCurrent(cuda.context));
    with_room(3);
    return argument;
}

static void in_handler(int signal)
{
    (void)signal;
    with_room(sink == -5 ? 5 : 4);
}

static NOINLINE void interrupted(int value)
{
    sink = value;
    raise(SIGUSR1); /* line: interrupted */
    sink++;
}

static NOINLINE int deep(int levels)
{
    if (levels == 0) {
        launch_blocks(6);
        return 1;
    }
    int below = deep(levels - 1);
    sink += below;
    return below + 1;
}

int main(void)
{
    cuda = cuda_start();
    with_variable_room(1, 100); /* line: main */
    int numbers[] = {2, 1};
    sink = 0;
    qsort(numbers, 2, sizeof *numbers, compared);

    pthread_t thread;
    pthread_create(&thread, NULL, in_thread, NULL);
    pthread_join(thread, NULL);

    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = in_handler, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    interrupted(-4);
    action.sa_flags = 0;
    sigaction(SIGUSR1, &action, NULL);
    interrupted(-5);

    sink = deep(10000);
    OK(cuCtxSynchronize());
    return 0;
}
