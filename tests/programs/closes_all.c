/* Closes every descriptor that it did not open itself, as daemons do, and fills the numbers with
 * its own. The argument says how: close, close_range, closefrom, or dup2 without closing first.
 * Nothing but what it writes may be in its files and sockets, and nothing may be taken out: a
 * parent without CUDA keeps the other end of the socket to the end. */
#define _GNU_SOURCE
#include "life.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum { FIRST = 5, LAST = 1023, THREADS = 70 };
static Cuda cuda;
static pthread_barrier_t all;

static void *launches(void *unused)
{
    OK(cuCtxSetCurrent(cuda.context));
    pthread_barrier_wait(&all);
    for (int i = 0; i < 10; i++)
        launch(cuda.first, NULL);
    pthread_barrier_wait(&all);
    return unused;
}

static void close_all(const char *how)
{
    if (!strcmp(how, "close"))
        for (int number = FIRST; number <= LAST; number++)
            close(number);
    else if (!strcmp(how, "close_range"))
        close_range(FIRST, ~0U, 0);
    else if (!strcmp(how, "closefrom"))
        closefrom(FIRST);
}

/* Reads what came out at the other end, when everybody else has ended. */
static int keep(int end, pid_t child)
{
    char text[256];
    int status = -1, count = 0;
    waitpid(child, &status, 0);
    for (long read; (read = recv(end, text, sizeof text, 0)) > 0; count++)
        printf("at the other end: %ld bytes\n", read);
    printf("messages at the other end: %d\n", count);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "close";
    char text[64] = {0};
    int ends[2], last = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0 || ends[0] >= FIRST)
        return 1;
    pid_t child = fork();
    if (child != 0) {
        close(ends[0]);
        return keep(ends[1], child);
    }
    /* Waits in the socket for whoever reads from one of the numbers. */
    if (send(ends[1], "for me alone", 12, 0) != 12)
        return 2;
    cuda = cuda_start();
    launch(cuda.first, NULL);
    close_all(how);

    /* The lower numbers become a file of its own, the higher ones its end of the socket. */
    int file = memfd_create("mine", 0);
    if (file < 0 || write(file, "begin ", 6) != 6)
        return 3;
    for (int number = FIRST; number <= LAST; number++)
        if (number != file && dup2(number < 256 ? file : ends[0], number) != number)
            return 4;

    /* So many at once need more memory, which is handed over by descriptor. */
    pthread_t threads[THREADS];
    pthread_barrier_init(&all, NULL, THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, launches, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 300; i++) {
        launch(cuda.first, NULL);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    OK(cuCtxSynchronize());

    if (write(file, "end", 3) != 3)
        return 5;
    long read = pread(file, text, sizeof text - 1, 0);
    printf("the file has %ld bytes: %s\n", read, text);
    memset(text, 0, sizeof text);
    read = recv(ends[0], text, sizeof text - 1, MSG_DONTWAIT);
    printf("the socket has %ld bytes: %s\n", read, text);
    printf("more in it: %s\n", recv(ends[0], text, 1, MSG_DONTWAIT) < 0 ? strerror(errno) : "yes");
    for (int number = FIRST; number <= LAST; number++)
        last += fcntl(number, F_GETFD) >= 0;
    printf("%d numbers are mine\n", last);
    fflush(stdout);
    exit(7);
}
