/* Launches from stacks that no table describes: code made at run time, functions whose tables lie, a stack of a coroutine's
 * own, which is gone afterwards. The Nth kind launches with N blocks. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <ucontext.h>

#include "driver.h"

#define NOINLINE __attribute__((noinline, used))

static Cuda cuda;
static volatile int sink;

NOINLINE void launch_blocks(int blocks)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(cuda.first, blocks, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    sink++;
}

static NOINLINE void from_made_code(void)
{
    /* sub rsp, 8; call rsi; add rsp, 8; ret */
    static const unsigned char code[] = {0x48, 0x83, 0xec, 8, 0xff, 0xd6, 0x48, 0x83, 0xc4, 8, 0xc3};
    void *made = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    mprotect(made, 4096, PROT_READ | PROT_EXEC);
    ((void (*)(int, void (*)(int)))made)(1, launch_blocks);
    munmap(made, 4096);
    sink++;
}

/* Each keeps its own tables from the assembler and says something else about where its caller is. */
#define LIES(name, directives)                                                                                         \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n"                                          \
            "push %rbx\n" directives "call launch_blocks\npop %rbx\nret\n.cfi_endproc\n.size " #name ", .-" #name);   \
    void name(int blocks)

LIES(too_high, ".cfi_def_cfa_offset 8388608\n");
LIES(far_away, ".cfi_def_cfa_offset 134217720\n");
LIES(too_low, ".cfi_def_cfa_offset -800\n");
LIES(same_place, ".cfi_def_cfa_offset 0\n");
LIES(between, ".cfi_def_cfa_offset 20\n");
LIES(other_register, ".cfi_def_cfa rdi, 16\n");
LIES(by_frame_pointer, ".cfi_def_cfa rbp, 16\n");
LIES(nowhere, ".cfi_undefined rip\n");
LIES(by_program, ".cfi_escape 0x0f, 0x03, 0x77, 0x08, 0x06\n");

static ucontext_t outside, coroutine;

static NOINLINE void in_coroutine(void)
{
    launch_blocks(20);
    sink++;
}

static NOINLINE void on_a_stack_of_its_own(void)
{
    enum { BYTES = 1 << 16 };
    for (int i = 0; i < 100; i++) {
        char *stack = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        getcontext(&coroutine);
        coroutine.uc_stack.ss_sp = stack + (i % 2 ? 0 : BYTES / 2);
        coroutine.uc_stack.ss_size = BYTES / 2;
        coroutine.uc_link = &outside;
        makecontext(&coroutine, in_coroutine, 0);
        swapcontext(&outside, &coroutine);
        munmap(stack, BYTES);
    }
}

int main(void)
{
    cuda = cuda_start();
    for (int times = 0; times < 3; times++) {
        from_made_code();
        too_high(2);
        far_away(3);
        too_low(4);
        same_place(5);
        between(6);
        other_register(7);
        by_frame_pointer(8);
        nowhere(9);
        by_program(10);
    }
    on_a_stack_of_its_own();
    OK(cuCtxSynchronize());
    return 0;
}
