/* Takes something away from itself, as a sandbox does, and then uses CUDA: `forbid CALL ERROR`
   by a seccomp filter, `limit NAME VALUE` by a resource limit, `soft NAME VALUE` by one that may be raised again. */
#define _GNU_SOURCE
#include "driver.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In place of an error: the process is ended for the call. */
enum { ENDS = 4000 };

static struct sock_filter filter[64];
static unsigned short length;

static void add(unsigned short code, unsigned k, unsigned char if_true, unsigned char if_false)
{
    filter[length++] = (struct sock_filter){code, if_true, if_false, k};
}

static void answer(long call, int error)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1);
    add(BPF_RET | BPF_K, error == ENDS ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | error, 0, 0);
}

/* A process is refused, a thread is not: clone says in its flags which it makes, clone3 cannot be asked. */
static void answer_processes(int error)
{
    answer(SYS_fork, error);
    answer(SYS_vfork, error);
    answer(SYS_clone3, ENOSYS);
    add(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0]), 0, 0);
    add(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 1, 0);
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error, 0, 0);
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
}

static void forbid(const char *name, int error)
{
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr), 0, 0);
    if (!strcmp(name, "memfd_create"))
        answer(SYS_memfd_create, error);
    else if (!strcmp(name, "socket"))
        answer(SYS_socket, error), answer(SYS_socketpair, error);
    else if (!strcmp(name, "connect"))
        answer(SYS_connect, error);
    else if (!strcmp(name, "sendmsg"))
        answer(SYS_sendmsg, error);
    else if (!strcmp(name, "clone"))
        answer(SYS_clone, error), answer(SYS_clone3, error), answer(SYS_fork, error), answer(SYS_vfork, error);
    else if (!strcmp(name, "process_vm_readv"))
        answer(SYS_process_vm_readv, error);
    else if (!strcmp(name, "membarrier"))
        answer(SYS_membarrier, error);
    else if (!strcmp(name, "fork"))
        answer_processes(error);
    else
        exit(97);
    add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        exit(96);
}

/* The bytes in use now that a number of the kernel's line counts: 0 the address space, 5 data. */
static unsigned long long bytes_in_use(int number)
{
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    for (int i = 0; file && i <= number; i++)
        if (fscanf(file, "%llu", &pages) != 1)
            exit(95);
    if (!file)
        exit(95);
    fclose(file);
    return pages * (unsigned long long)sysconf(_SC_PAGESIZE);
}

static void limit(const char *name, unsigned long long value, int may_raise)
{
    int resource = RLIMIT_MEMLOCK;
    if (!strcmp(name, "nofile")) {
        /* So many more than are open, with no hole below. */
        int next = open("/dev/null", O_RDONLY);
        close(next);
        resource = RLIMIT_NOFILE;
        value += (unsigned)next;
    } else if (!strcmp(name, "as")) {
        resource = RLIMIT_AS;
        value = bytes_in_use(0) + (value << 20);
    } else if (!strcmp(name, "data")) {
        resource = RLIMIT_DATA;
        value = bytes_in_use(5) + (value << 20);
    } else if (!strcmp(name, "nproc")) {
        resource = RLIMIT_NPROC;
    } else if (!strcmp(name, "fsize")) {
        resource = RLIMIT_FSIZE;
    }
    struct rlimit both = {value, may_raise ? RLIM_INFINITY : value};
    if (setrlimit(resource, &both))
        exit(94);
}

static void *wait_for_the_end(void *barrier)
{
    pthread_barrier_wait(barrier);
    return NULL;
}

/* What a program does with the memory that it has: threads that live at once, and a block. */
static void use_memory(void)
{
    pthread_t threads[8];
    pthread_barrier_t barrier;
    int started = 0;
    pthread_barrier_init(&barrier, NULL, 9);
    while (started < 8 && !pthread_create(&threads[started], NULL, wait_for_the_end, &barrier))
        started++;
    void *block = malloc(16 << 20);
    printf("%d threads, %s\n", started, block ? "16 MiB" : "no memory");
    free(block);
    if (started < 8)
        exit(7);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* Whether this process's collector has a limit of address space. */
static void tell_of_the_collector(void)
{
    char own[32], path[300], text[4096];
    int length = snprintf(own, sizeof own, "--pid%c%d", 0, (int)getpid());
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes && (entry = readdir(processes));) {
        snprintf(path, sizeof path, "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "r");
        size_t bytes = file ? fread(text, 1, sizeof text, file) : 0;
        if (file)
            fclose(file);
        if (!memmem(text, bytes, own, (size_t)length + 1))
            continue;
        struct rlimit its;
        if (prlimit(atoi(entry->d_name), RLIMIT_AS, NULL, &its))
            exit(92);
        puts(its.rlim_cur == RLIM_INFINITY ? "its collector may have all there is" : "its collector is limited");
    }
    closedir(processes);
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 93;
    if (!strcmp(argv[1], "forbid")) {
        const char *error = argv[3];
        forbid(argv[2], !strcmp(error, "EPERM") ? EPERM : !strcmp(error, "EAGAIN") ? EAGAIN : !strcmp(error, "ENDS") ? ENDS : ENOSYS);
    } else {
        limit(argv[2], strtoull(argv[3], NULL, 10), !strcmp(argv[1], "soft"));
    }
    Cuda cuda = cuda_start();
    errno = 4711;
    for (int i = 0; i < 10; i++)
        launch(cuda.first, NULL);
    printf("errno %d\n", errno);
    OK(cuCtxSynchronize());
    if (!strcmp(argv[2], "as") || !strcmp(argv[2], "data"))
        use_memory();
    int opened = 0;
    while (opened < 16 && open("/dev/null", O_RDONLY) >= 0)
        opened++;
    printf("launched, %d files open\n", opened);
    if (!strcmp(argv[1], "soft"))
        tell_of_the_collector();
    return 7;
}
