/* A library that launches through what it is given; FUNCTION is its inner function's name. */
typedef void (*Launch)(int);

static volatile int sink;

__attribute__((noinline)) void FUNCTION(Launch launch, int blocks)
{
    launch(blocks);
    sink++;
}

void work(Launch launch, int blocks)
{
    FUNCTION(launch, blocks);
    sink++;
}
