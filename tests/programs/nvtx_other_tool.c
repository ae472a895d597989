/* Another tool for NVTX: says that it was asked, and takes nothing. */
#include <stdio.h>

int InitializeInjectionNvtx2(void *get_export_table)
{
    puts(get_export_table ? "the other tool" : "nothing");
    return 1;
}
