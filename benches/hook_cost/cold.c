/* Launches as a real program makes them: between two of them the caches lose what the hook needs. As a library, for a caller
 * at any depth of Python. */
#include <stdlib.h>
#include <x86intrin.h>
#include "stub_driver.h"

enum { MOST = 1 << 20 };
static volatile char *other;
static long other_bytes, code_times;
static unsigned ticks[MOST];
static long launches;
static double begun_ns;
static unsigned long long begun;

/* 128 KiB of code: a jump in each line. */
static __attribute__((noinline)) void run_other_code(void)
{
    __asm__ volatile(".balign 64\n.rept 2048\njmp 1f\n.balign 64\n1:\n.endr\n");
}

/* `bytes` of memory are read between two launches, and the code is run `times`. */
void begin_cold(long bytes, long times)
{
    begin();
    other = calloc(1, bytes + 64);
    other_bytes = bytes;
    code_times = times;
    begun_ns = now_ns();
    begun = __rdtsc();
}

static int by_size(const void *one, const void *another)
{
    unsigned a = *(const unsigned *)one, b = *(const unsigned *)another;
    return (a > b) - (a < b);
}

/* What a launch took in ns, the driver's own time included: the median. */
double median_ns(void)
{
    double ns_per_tick = (now_ns() - begun_ns) / (__rdtsc() - begun);
    qsort(ticks, launches, sizeof *ticks, by_size);
    return launches ? ticks[launches / 2] * ns_per_tick : 0;
}

void launch_cold(void)
{
    static unsigned turn;
    /* In an order that no prefetcher guesses: an odd number times the index. */
    unsigned long lines = other_bytes / 64;
    for (unsigned long index = 0; index < lines; index++)
        other[(index * 40503 + turn) % lines * 64]++;
    turn++;
    for (long time = 0; time < code_times; time++)
        run_other_code();
    unsigned before;
    unsigned long long from = __rdtscp(&before);
    cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    unsigned took = __rdtscp(&before) - from;
    if (launches < MOST)
        ticks[launches++] = took;
}
