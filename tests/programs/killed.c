/* A session's worth of killed programs: children that launch kernels numbered by their grid, each killed by SIGKILL at a
 * random moment. Arguments: seed, kills, how many at a time. Prints for each child: its index, its process id, and the
 * number of the last launch that is known to have returned. The parent itself never uses the driver. */
#include "driver.h"
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Fewer than a thread's ring holds (65 536 cells), so that nothing can be dropped however late the collector is. */
enum { LAUNCHES_MAX = 60000, AT_ONCE_MAX = 16 };

typedef struct {
    _Atomic unsigned begun, returned;
} Progress;

static unsigned long long state;

static unsigned random_below(unsigned bound)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return bound ? (unsigned)(state >> 11) % bound : 0;
}

static unsigned long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void child(unsigned index, Progress *progress)
{
    /* The parent and the collector come first, or most kills would come long after they were due. */
    if (nice(10) == -1)
        _exit(1);
    Cuda cuda = cuda_start();
    unsigned long long unused = 0;
    void *parameters[] = {&unused};
    for (unsigned number = 1; number <= LAUNCHES_MAX; number++) {
        atomic_store(&progress->begun, number);
        /* The grid says which launch of which child this is. */
        OK(cuLaunchKernel(cuda.first, number, index + 1, 1, 32, 1, 1, 0, NULL, parameters, NULL));
        atomic_store(&progress->returned, number);
    }
    for (;;)
        pause();
}

typedef struct {
    pid_t pid;
    unsigned index, after_launches;
    /* How long it goes on once it has made its launches, and, when that is known, until when. */
    unsigned long long rest_ns, not_before_ns;
} Running;

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    state = strtoull(argv[1], NULL, 10) * 0x9e3779b97f4a7c15ull + 1;
    unsigned kills = atoi(argv[2]), at_once = atoi(argv[3]), started = 0, killed = 0;
    if (at_once > AT_ONCE_MAX)
        return 2;
    size_t bytes = kills * sizeof(Progress);
    Progress *all = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED)
        return 3;
    Running running[AT_ONCE_MAX] = {0};
    while (killed < kills) {
        for (unsigned slot = 0; slot < at_once; slot++) {
            Running *one = &running[slot];
            if (!one->pid && started < kills) {
                unsigned index = started++;
                one->index = index;
                /* One in eight while it starts, at any time; the others among their launches, from the first to the
                 * last, as likely among the first ten as among the first thousands. One in eight goes on for a
                 * while: how soon the device's records come depends on the machine, and these have some. */
                unsigned moment = random_below(8);
                one->after_launches = moment == 0 ? 0 : 1 + random_below(1u << (1 + random_below(13)));
                one->rest_ns = moment < 2 ? random_below(moment == 0 ? 30000000 : 100000000) : 0;
                one->not_before_ns = 0;
                one->pid = fork();
                if (one->pid < 0)
                    return 4;
                if (one->pid == 0)
                    child(index, &all[index]);
            }
            if (one->pid && !one->not_before_ns &&
                atomic_load(&all[one->index].returned) >= one->after_launches)
                one->not_before_ns = now_ns() + one->rest_ns;
            if (one->pid && one->not_before_ns && now_ns() >= one->not_before_ns) {
                /* Not always at the same instruction of a launch. */
                unsigned long long until_ns = now_ns() + random_below(4000);
                while (now_ns() < until_ns)
                    ;
                int status;
                kill(one->pid, SIGKILL);
                waitpid(one->pid, &status, 0);
                if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
                    fprintf(stderr, "child %u ended by itself: %x\n", one->index, status);
                    return 5;
                }
                printf("%u %d %u\n", one->index, one->pid, atomic_load(&all[one->index].returned));
                one->pid = 0;
                killed++;
            }
        }
        usleep(50);
    }
    return 0;
}
