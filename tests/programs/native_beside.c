/* Launches from a thread on a stack of the program's own without a guard, beside which lies another stack that goes while the
 * thread lives, through functions whose tables lead there; or while a handler faults on purpose. The argument says how; a second one, `filtered`, has a seccomp filter
 * end the process if it copies memory by the kernel, and `unanswered` has one that also refuses to say which pages there are. The Nth
 * kind launches with N blocks. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>

#include "driver.h"

#define NOINLINE __attribute__((noinline, used))
#define KIB 1024

/* From below: a coroutine's stack, a stack that goes, the thread's own. */
enum { COROUTINE = 64 * KIB, GOES = 192 * KIB, OWN = 256 * KIB, TIMES = 20000 };

static Cuda cuda;
static volatile int sink;
static char *stacks;
static const char *how;

NOINLINE void launch_blocks(int blocks)
{
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    OK(cuLaunchKernel(cuda.first, blocks, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    sink++;
}

/* A function that keeps its own table: `frame` is where it says that its caller's frame begins. */
#define SAYS(name, frame)                                                                                              \
    __asm__(".text\n.type " #name ", @function\n" #name ":\n.cfi_startproc\n"                                          \
            "push %rbx\n.cfi_def_cfa_offset " #frame "\ncall launch_blocks\n.globl after_" #name "\nafter_" #name ":\n" \
            "pop %rbx\nret\n.cfi_endproc\n.size " #name ", .-" #name);                                                \
    void name(int blocks);                                                                                             \
    extern const char after_##name[]

SAYS(honest, 16);
SAYS(leads_beside, 131072);

/* Says that it is what a signal handler returns to, and that `from` with the stack pointer `sp` was interrupted. */
__asm__(".text\n.type as_handler, @function\nas_handler:\n.cfi_startproc\n.cfi_signal_frame\n"
        "sub $264, %rsp\nmov %rsi, 160(%rsp)\nmov %rdx, 168(%rsp)\nmovq $0, 120(%rsp)\n"
        "call launch_blocks\nadd $264, %rsp\nret\n.cfi_endproc\n.size as_handler, .-as_handler");
void as_handler(int blocks, void *sp, const void *from);

static ucontext_t outside, coroutine;
static void (*in_coroutine)(void);

static void begin(void)
{
    in_coroutine();
}

static void on_coroutine(void (*function)(void))
{
    in_coroutine = function;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stacks;
    coroutine.uc_stack.ss_size = COROUTINE;
    coroutine.uc_link = &outside;
    makecontext(&coroutine, begin, 0);
    swapcontext(&outside, &coroutine);
}

static NOINLINE void honestly(void)
{
    honest(2);
    sink++;
}

static NOINLINE void beside(void)
{
    leads_beside(3);
    sink++;
}

/* Over several pages of the coroutine's stack, with the signals that the thread blocks as they were. */
static NOINLINE void down(int levels, int blocks)
{
    volatile char room[900];
    room[levels] = 1;
    if (levels)
        down(levels - 1, blocks);
    else
        honest(blocks);
    sink += room[levels];
}

static NOINLINE void deep(void)
{
    sigset_t none, some, now;
    sigemptyset(&none);
    sigemptyset(&some);
    sigaddset(&some, SIGUSR1);
    sigaddset(&some, SIGPIPE);
    sigaddset(&some, SIGRTMAX);
    for (int blocks = 5; blocks <= 6; blocks++) {
        pthread_sigmask(SIG_SETMASK, blocks == 5 ? &none : &some, NULL);
        down(30, blocks);
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        if (memcmp(&now, blocks == 5 ? &none : &some, 8))
            exit(8);
    }
}

/* As a profiler's does: asks for a word that is not there, and catches the fault. */
static __thread sigjmp_buf asked;
static volatile int *volatile nowhere = (volatile int *)16;

static void caught(int number)
{
    (void)number;
    siglongjmp(asked, 1);
}

static void asks(int number)
{
    (void)number;
    if (!sigsetjmp(asked, 1))
        sink += *nowhere;
}

static NOINLINE void while_asked(void)
{
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    signal(SIGSEGV, caught);
    signal(SIGPROF, asks);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 0; i < TIMES; i++)
        down(30, 7);
    setitimer(ITIMER_PROF, &never, NULL);
}

static atomic_int is_gone, launches, rounds, is_over;

static NOINLINE void again_and_again(void)
{
    while (!atomic_load(&is_gone))
        sched_yield();
    for (int i = 0; i < TIMES; i++) {
        while (atomic_load(&rounds) < i / 10)
            sched_yield();
        leads_beside(3);
        atomic_fetch_add(&launches, 1);
    }
    atomic_store(&is_over, 1);
}

/* Takes away what lies at `start`, or gives it back. In the meantime nobody else's mapping may come there. */
static void map_there(void *start, int protection)
{
    if (mmap(start, GOES, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != start)
        exit(9);
}

static void *come_and_go(void *start)
{
    while (!atomic_load(&is_over)) {
        map_there(start, PROT_NONE);
        atomic_store(&is_gone, 1);
        /* A whole launch falls into the first time. */
        do
            sched_yield();
        while (!atomic_load(&launches));
        map_there(start, PROT_READ | PROT_WRITE);
        ((volatile char *)start)[128 * KIB] = 0;
        atomic_fetch_add(&rounds, 1);
    }
    return start;
}

static NOINLINE void *in_thread(void *argument)
{
    char *goes = stacks + COROUTINE;
    OK(cuCtxSetCurrent(cuda.context));
    honest(1);
    on_coroutine(honestly);
    if (!strcmp(how, "races")) {
        pthread_t other;
        pthread_create(&other, NULL, come_and_go, goes);
        on_coroutine(again_and_again);
        pthread_join(other, NULL);
        return argument;
    }
    if (!strcmp(how, "deep") || !strcmp(how, "faults")) {
        on_coroutine(!strcmp(how, "deep") ? deep : while_asked);
        return argument;
    }
    map_there(goes, PROT_NONE);
    if (!strcmp(how, "coroutine"))
        on_coroutine(beside);
    else
        as_handler(4, goes + 128 * KIB, after_honest);
    honest(1);
    return argument;
}

static void filter(int refuses)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigprocmask, 0, 3),
        /* What is to be done with signals is nothing that the kernel knows: a question about a page. */
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refuses ? -1u : 4711, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        exit(9);
}

int main(int count, char **arguments)
{
    how = count > 1 ? arguments[1] : "coroutine";
    if (count > 2)
        filter(!strcmp(arguments[2], "unanswered"));
    cuda = cuda_start();
    stacks = mmap(NULL, COROUTINE + GOES + OWN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stacks + COROUTINE + GOES, OWN);
    if (pthread_create(&thread, &attributes, in_thread, NULL))
        return 9;
    pthread_join(thread, NULL);
    OK(cuCtxSynchronize());
    return 0;
}
