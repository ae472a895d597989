/* No CUDA at all: says how many threads and descriptors it has, which must be what it would have alone. */
#include <dirent.h>
#include <stdio.h>

static int entries(const char *folder)
{
    int count = 0;
    DIR *open = opendir(folder);
    while (open && readdir(open))
        count++;
    return count;
}

int main(void)
{
    printf("threads %d descriptors %d\n", entries("/proc/self/task"), entries("/proc/self/fd"));
    return 0;
}
