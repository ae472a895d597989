/* Nanoseconds a launch from DEPTH native frames, each of a function of its own: the lower quartile of many bursts, launch after
 * launch, and with 1 MiB of other memory read between launches. A second argument, `coroutine`, has them on a stack of the program's
 * own. */
#include "../hook_cost/bursts.h"

#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

static volatile int sink;

typedef double (*level)(int depth, long away);
static level levels[];

/* A frame of each function: of 40 to 500 bytes. */
#define LEVEL(number)                                                                                                  \
    static __attribute__((noinline)) double level_##number(int depth, long away)                                       \
    {                                                                                                                  \
        volatile char room[40 + number % 8 * 60];                                                                      \
        room[number % 40] = 1;                                                                                         \
        double result = depth ? levels[(number + 1) % 64](depth - 1, away) : bursts(away);                             \
        sink += room[number % 40];                                                                                     \
        return result;                                                                                                 \
    }
#define EIGHT(with, tens) with(tens##0) with(tens##1) with(tens##2) with(tens##3) with(tens##4) with(tens##5) with(tens##6) with(tens##7)
#define ALL(with) EIGHT(with, 1) EIGHT(with, 2) EIGHT(with, 3) EIGHT(with, 4) EIGHT(with, 5) EIGHT(with, 6) EIGHT(with, 7) EIGHT(with, 8)
ALL(LEVEL)
#define NAME(number) level_##number,
static level levels[] = {ALL(NAME)};

static int depth;
static ucontext_t outside, coroutine;

static void measure(void)
{
    double hot = levels[0](depth, 0);
    printf("%.1f %.1f\n", hot, levels[0](depth, 1 << 20));
}

int main(int count, char **arguments)
{
    enum { BYTES = 1 << 20 };
    /* main, these, `measure`, `bursts`, and what the C library has around main. */
    depth = count > 1 ? atoi(arguments[1]) - 7 : 23;
    begin();
    if (count < 3) {
        measure();
        return 0;
    }
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    coroutine.uc_stack.ss_size = BYTES;
    coroutine.uc_link = &outside;
    makecontext(&coroutine, measure, 0);
    swapcontext(&outside, &coroutine);
    return 0;
}
