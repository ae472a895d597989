/* The launches of launches.c, which checking_driver.c knows. */
#include <stdint.h>

/* No value is that of another argument, and none is as narrow as it might be. */
#define GX 0x81000001u
#define GY 0x82000002u
#define GZ 0x83000003u
#define BX 0x84000004u
#define BY 0x85000005u
#define BZ 0x86000006u
#define STREAM ((void *)(intptr_t)0x1234567812340007)
#define PARAMETERS ((void **)(intptr_t)0x1234567812340008)
#define EXTRA ((void **)(intptr_t)0x1234567812340009)

typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream, *attributes;
    unsigned attribute_count;
} Configuration;
