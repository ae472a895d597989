/* A runtime-API program in the one respect that matters here: it asks for the private tables. */
#include <stdio.h>

int cuInit(unsigned flags);
int cuGetExportTable(const void **table, const void *id);

int main(void)
{
    static const unsigned char id[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const void *table = NULL;
    cuInit(0);
    int code = cuGetExportTable(&table, id);
    printf("cuGetExportTable: %d\n", code);
    return code ? 4 : 0;
}
