/* A library with a CUPTI inside, as one that is linked to a static libcupti and hides its symbols: what such a one is
   known by (MARK, NEEDS), and a libcupti of its own, whose functions it finds past dlsym, as a linker would bind them.
   MIB, DEVICE_MIB: so many MiB of constants, and of device code. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifdef MARK
const char inner_cupti_mark[] = ".entry __CuptiCnpEntryExitHeplerKernel{exit;}";
#endif
#ifdef NEEDS
int (*inner_cupti_needs)(pthread_rwlock_t *, const struct timespec *) = pthread_rwlock_timedwrlock;
#endif
#ifdef MIB
const char inner_cupti_constants[MIB << 20] = {1};
#endif
#ifdef DEVICE_MIB
__attribute__((section(".nv_fatbin"))) const char inner_cupti_device_code[DEVICE_MIB << 20] = {1};
#endif

static void *bound(void *library, const char *name)
{
    struct link_map *map = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *strings = NULL;
    size_t bytes = 0;
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    for (const ElfW(Dyn) *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRTAB)
            strings = (const void *)entry->d_un.d_ptr;
        if (entry->d_tag == DT_STRSZ)
            bytes = entry->d_un.d_val;
    }
    for (; (const char *)(symbols + 1) <= strings; symbols++)
        if (symbols->st_shndx && symbols->st_name < bytes && !strcmp(strings + symbols->st_name, name))
            return (void *)(map->l_addr + symbols->st_value);
    return NULL;
}

#define dlsym bound
#include "cupti.h"
#undef dlsym

/* What every libcupti begins with. */
static int looks_for_the_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    return driver && dlsym(driver, "cuDeviceGet") && dlsym(driver, "cuGetExportTable");
}

/* A library that holds none does so, too, and more than once. */
int inner_cupti_asks(void)
{
    int found = 0;
    for (int i = 0; i < 100; i++)
        found += looks_for_the_driver();
    return found;
}

static void *handle;
static long called;
static void count(void *user, int domain, uint32_t id, const CallData *data) { (void)user, (void)domain, (void)id, (void)data, called++; }

void inner_cupti_begins(const char *path)
{
    cupti_load_from(path);
    printf("the driver is %s\n", looks_for_the_driver() ? "there" : "not there");
    printf("register %d\n", cuptiActivityRegisterCallbacks(request, complete));
    printf("the driver is %s\n", looks_for_the_driver() ? "there" : "not there");
    int code = cuptiSubscribe(&handle, count, NULL);
    printf("subscribe %d\n", code);
    if (code)
        return;
    cuptiEnableDomain(1, handle, DRIVER_API);
    cuptiActivityEnable(CONCURRENT_KERNEL);
}

void inner_cupti_ends(void)
{
    cuptiActivityFlushAll(0);
    tell("records");
    printf("%ld callbacks\n", called);
}
