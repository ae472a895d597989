/* Says one line and ends with a code of its own. */
#include <stdio.h>

int main(void)
{
    puts("ran");
    return 9;
}
