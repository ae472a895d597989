/* The bursts as a library, for a caller at any depth of Python. */
#include "../hook_cost/bursts.h"

void begin_bursts(void)
{
    begin();
}

double time_bursts(long away)
{
    return bursts(away);
}
