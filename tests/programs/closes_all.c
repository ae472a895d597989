/* Closes every descriptor that it did not open itself, as daemons do, and fills the numbers with
 * its own. The argument says how: close, close_range, closefrom, or dup2 without closing first.
 * Nothing but what it writes may be in its files and sockets, and nothing may be taken out. */
#define _GNU_SOURCE
#include "life.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

enum { FIRST = 3, LAST = 1023, THREADS = 70 };
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

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "close";
    char text[64] = {0};
    int ends[2], odd = 0, even = 0, last = 0;
    cuda = cuda_start();
    launch(cuda.first, NULL);
    close_all(how);

    /* Even numbers become a file of its own, odd ones one end of a socket of its own. */
    int file = memfd_create("mine", 0);
    if (file < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
        return 1;
    for (int number = FIRST; number <= LAST; number++) {
        int from = number % 2 ? ends[0] : file;
        if (number != file && number != ends[0] && number != ends[1] && dup2(from, number) == number)
            number % 2 ? odd++ : even++;
    }
    printf("%d numbers are mine\n", odd + even);
    /* Waits in the socket for whoever reads from one of the numbers. */
    if (send(ends[1], "for me alone", 12, 0) != 12 || write(file, "begin ", 6) != 6)
        return 2;

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
        return 3;
    long read = pread(file, text, sizeof text - 1, 0);
    printf("the file has %ld bytes: %s\n", read, text);
    memset(text, 0, sizeof text);
    read = recv(ends[0], text, sizeof text - 1, MSG_DONTWAIT);
    printf("the socket has %ld bytes: %s\n", read, text);
    printf("more in it: %s\n", recv(ends[0], text, 1, MSG_DONTWAIT) < 0 ? strerror(errno) : "yes");
    printf("at its other end: %s\n", recv(ends[1], text, 1, MSG_DONTWAIT) < 0 ? strerror(errno) : "something");
    for (int number = FIRST; number <= LAST; number++)
        last += fcntl(number, F_GETFD) >= 0;
    printf("%d numbers are still mine\n", last);
    fflush(stdout);
    return 7;
}
