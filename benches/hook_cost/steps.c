/* Instructions of one launch, each with the registers before it, as a library: the processor traps after every
   instruction, and the trap's handler writes them down. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include "stub_driver.h"

enum { MOST = 1 << 16, REGISTERS = 17 };
static const int order[REGISTERS] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8,
                                     REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP};
static unsigned long long steps[MOST][REGISTERS];
static volatile int count;
static volatile int is_on;

static void trapped(int number, siginfo_t *info, void *context)
{
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)number, (void)info;
    if (!is_on) {
        registers[REG_EFL] &= ~0x100ll;
        return;
    }
    if (count < MOST) {
        for (int at = 0; at < REGISTERS; at++)
            steps[count][at] = registers[order[at]];
        count++;
    }
}

/* Warm launches, then one in steps, which go to the file with the process's mappings. */
void write_steps(const char *path)
{
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    unsigned long long fs;
    sigaction(SIGTRAP, &action, 0);
    for (int round = 0; round < 2; round++) {
        /* The hook that measures itself is one in 61: the second round's launch is another one. */
        volatile int warm = 61 * 3 + 7;
        count = 0;
        /* One call site for all launches: their stacks are the same. */
        for (int launch = 0; launch <= warm; launch++) {
            if (launch == warm) {
                is_on = 1;
                __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
            }
            cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0);
        }
        is_on = 0;
    }
    __asm__ volatile("movq %%fs:0, %0" : "=r"(fs));
    FILE *out = fopen(path, "w");
    fprintf(out, "fs %llx driver %p\n", fs, (void *)cuLaunchKernel);
    for (int at = 0; at < count; at++) {
        for (int which = 0; which < REGISTERS; which++)
            fprintf(out, "%llx ", steps[at][which]);
        fputc('\n', out);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[1024];
    while (fgets(line, sizeof line, maps))
        fprintf(out, "map %s", line);
    fclose(maps);
    fclose(out);
}

void begin_steps(void)
{
    begin();
}

#ifndef AS_LIBRARY
int main(int count_of, char **arguments)
{
    (void)count_of;
    begin();
    write_steps(arguments[1]);
    return 0;
}
#endif
