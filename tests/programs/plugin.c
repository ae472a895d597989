/* A plugin that is loaded RTLD_LOCAL: libcuda is in its scope and in nobody else's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

/* Keeps the plugin's own dependency on the driver. */
int cuDriverGetVersion(int *version);

int plugin_version(void)
{
    int version = 0;
    cuDriverGetVersion(&version);
    return version;
}

void *plugin_default(const char *name) { return dlsym(RTLD_DEFAULT, name); }
void *plugin_next(const char *name) { return dlsym(RTLD_NEXT, name); }
