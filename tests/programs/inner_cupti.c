/* A library with a CUPTI inside, as one that is linked to a static libcupti and hides its symbols: it finds the functions
   of a libcupti of its own past dlsym, as a linker would bind them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

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

static void *handle;
static long called;
static void count(void *user, int domain, uint32_t id, const CallData *data) { (void)user, (void)domain, (void)id, (void)data, called++; }

void inner_cupti_begins(const char *path)
{
    cupti_load_from(path);
    printf("register %d\n", cuptiActivityRegisterCallbacks(request, complete));
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
