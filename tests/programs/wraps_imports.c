/* A library that wraps every function named in the file NAMES, which the test generates: WRAP(number, name) a line.
   COUNT is their number. Each wrapper looks up the real function by dlsym(RTLD_NEXT) at its first call, as sanitizers do, and
   jumps to it; no signature is needed, because registers and stack are left as the caller made them.

   If the lookup itself calls the function that is being looked up, the program would recurse for ever. The wrapper
   then names the function and aborts.

   wraps_watch(region, begin, end) makes the calling thread report each wrapped function that code between the two
   addresses calls, once a region, on stderr: "watched REGION: NAME". A null region ends that. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/syscall.h>


#define WRAP(number, name) #name,
static const char *const names[] = {
#include NAMES
};
#undef WRAP

/* Initial-exec: an access must not call __tls_get_addr, which may allocate. */
#define THREAD static __thread __attribute__((tls_model("initial-exec")))

__attribute__((visibility("hidden"))) void *wraps_real[COUNT];
/* Not zero: every call takes the long way. */
__attribute__((visibility("hidden"))) int wraps_watched;

/* Functions that this thread is looking up, the outermost first. Volatile: dlsym is declared as a leaf, which lets
   the compiler store these after it. */
THREAD volatile int pending[COUNT];
THREAD volatile int pending_count;
THREAD const char *region;
THREAD const char *from, *to;
THREAD unsigned char reported[COUNT];

/* The raw system calls: the C library's functions may be wrapped. */
static long kernel(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void say(const char *text)
{
    size_t length = 0;
    while (((const volatile char *)text)[length])
        length++;
    kernel(SYS_write, 2, (long)text, (long)length);
}

static void die(int number, const char *why)
{
    say("\nwraps_imports: ");
    say(names[number]);
    say(why);
    for (int i = 0; i < pending_count; i++) {
        say(" > ");
        say(names[pending[i]]);
    }
    say("\n");
    kernel(SYS_kill, kernel(SYS_getpid, 0, 0, 0), 6, 0);
    kernel(SYS_exit_group, 134, 0, 0);
}

/* What the wrapper of that number jumps to. */
__attribute__((visibility("hidden"))) void *wraps_resolve(int number, const char *caller)
{
    if (region && caller >= from && caller < to && !reported[number]) {
        reported[number] = 1;
        say("watched ");
        say(region);
        say(": ");
        say(names[number]);
        say("\n");
    }
    if (wraps_real[number])
        return wraps_real[number];
    for (int i = 0; i < pending_count; i++)
        if (pending[i] == number)
            die(number, " was called by its own lookup:");
    pending[pending_count++] = number;
    void *real = dlsym(RTLD_NEXT, names[number]);
    pending_count--;
    if (!real)
        die(number, " was not found by its lookup:");
    wraps_real[number] = real;
    return real;
}

/* The C library's dlsym frees the text of an earlier error: a wrapper of free that looks it up later than here can
   recurse without any tracer. */
__attribute__((constructor)) static void look_up_free(void)
{
    for (int i = 0; i < COUNT; i++)
        if (names[i][0] == 'f' && names[i][1] == 'r' && names[i][2] == 'e' && names[i][3] == 'e' && !names[i][4])
            wraps_resolve(i, NULL);
}

void wraps_watch(const char *name, const char *begin, const char *end)
{
    wraps_watched = name != NULL;
    region = name;
    from = begin;
    to = end;
    for (int i = 0; i < COUNT; i++)
        ((volatile unsigned char *)reported)[i] = 0;
}

/* r11 belongs to nobody between a caller and a function. A variadic function wants al, hence rax is kept. */
__asm__(".macro wrapper number, name\n"
        ".text\n.globl \\name\n.type \\name, @function\n\\name:\n"
        "movq wraps_real + 8 * \\number(%rip), %r11\n"
        "testq %r11, %r11\n"
        "jz 1f\n"
        "cmpl $0, wraps_watched(%rip)\n"
        "jnz 1f\n"
        "jmp *%r11\n"
        "1:\n"
        "pushq %rbp\n"
        "movq %rsp, %rbp\n"
        "pushq %rdi\npushq %rsi\npushq %rdx\npushq %rcx\npushq %r8\npushq %r9\npushq %rax\npushq %r10\n"
        "subq $128, %rsp\n"
        "andq $-16, %rsp\n"
        "movups %xmm0, (%rsp)\nmovups %xmm1, 16(%rsp)\nmovups %xmm2, 32(%rsp)\nmovups %xmm3, 48(%rsp)\n"
        "movups %xmm4, 64(%rsp)\nmovups %xmm5, 80(%rsp)\nmovups %xmm6, 96(%rsp)\nmovups %xmm7, 112(%rsp)\n"
        "movl $\\number, %edi\n"
        "movq 8(%rbp), %rsi\n"
        "call wraps_resolve\n"
        "movq %rax, %r11\n"
        "movups (%rsp), %xmm0\nmovups 16(%rsp), %xmm1\nmovups 32(%rsp), %xmm2\nmovups 48(%rsp), %xmm3\n"
        "movups 64(%rsp), %xmm4\nmovups 80(%rsp), %xmm5\nmovups 96(%rsp), %xmm6\nmovups 112(%rsp), %xmm7\n"
        "leaq -64(%rbp), %rsp\n"
        "popq %r10\npopq %rax\npopq %r9\npopq %r8\npopq %rcx\npopq %rdx\npopq %rsi\npopq %rdi\n"
        "popq %rbp\n"
        "jmp *%r11\n"
        ".size \\name, . - \\name\n"
        ".endm\n");

#define WRAP(number, name) __asm__("wrapper " #number ", " #name "\n");
#include NAMES
