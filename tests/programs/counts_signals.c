/* Counts its signals. Reads words: "counts" has it say them, "kill0" send SIGUSR1 to its own group, "killparent" to its
   parent; it ends with its input. The argument: "leaves" makes it leave its process group at first. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t counts[65];

static void count(int signal)
{
    counts[signal]++;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigfillset(&action.sa_mask);
    int heard[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGCONT, SIGRTMIN, SIGRTMIN + 1};
    for (unsigned i = 0; i < sizeof heard / sizeof *heard; i++)
        sigaction(heard[i], &action, NULL);
    if (argc > 1 && !strcmp(argv[1], "leaves") && setpgid(0, 0))
        return 1;
    printf("ready %d\n", getpid());
    fflush(stdout);
    char word[32];
    while (fgets(word, sizeof word, stdin)) {
        if (!strcmp(word, "kill0\n"))
            kill(0, SIGUSR1);
        if (!strcmp(word, "killparent\n"))
            kill(getppid(), SIGUSR1);
        if (!strcmp(word, "counts\n")) {
            printf("TERM %d INT %d HUP %d QUIT %d USR1 %d CONT %d RT %d FENCE %d\n", counts[SIGTERM], counts[SIGINT],
                   counts[SIGHUP], counts[SIGQUIT], counts[SIGUSR1], counts[SIGCONT], counts[SIGRTMIN + 1],
                   counts[SIGRTMIN]);
            fflush(stdout);
        }
    }
    return 3;
}
