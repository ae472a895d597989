/* The bursts as a library, for a caller at any depth of Python; and launches one by one, between which Python may run. */
#include "../hook_cost/bursts.h"

enum { MOST = 1 << 20, DISTURBED_NS = 20000 };
static unsigned long long each[MOST];
static long count, left_out;
static double first_ns;
static unsigned long long first;

void begin_bursts(void)
{
    begin();
}

double time_bursts(long away)
{
    return bursts(away);
}

/* One launch, of which the time is noted. */
void launch_once(void)
{
    if (!count) {
        first_ns = now_ns();
        first = __rdtsc();
    }
    unsigned long long ticks = -__rdtsc();
    cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
    ticks += __rdtsc();
    if (count < MOST)
        each[count++] = ticks;
}

/* The mean of what was noted, without launches during which something else ran, which are counted. */
double mean_of_noted(void)
{
    double ns_per_tick = (now_ns() - first_ns) / (__rdtsc() - first), sum = 0;
    long kept = 0;
    for (long at = 0; at < count; at++) {
        double ns = each[at] * ns_per_tick;
        if (ns < DISTURBED_NS) {
            sum += ns;
            kept++;
        }
    }
    left_out += count - kept;
    count = 0;
    return sum / kept;
}

long noted_and_left_out(void)
{
    return left_out;
}
