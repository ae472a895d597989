/* Becomes the program of its arguments. Linked statically it is a launcher that no loader puts a library into. */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    if (argc > 1)
        execv(argv[1], argv + 1);
    perror(argc > 1 ? argv[1] : "no program");
    return 96;
}
