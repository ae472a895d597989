/* Loads the plugin RTLD_LOCAL and prints what look-ups in its scope and in ours find. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

typedef void *Find(const char *);

int main(int argc, char **argv)
{
    void *plugin = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) {
        puts(dlerror());
        return 1;
    }
    Find *in_default = (Find *)dlsym(plugin, "plugin_default"), *in_next = (Find *)dlsym(plugin, "plugin_next");
    const char *names[] = {"cuLaunchKernel", "cuInit", "cuDeviceGetCount", "plugin_version", "no_such_symbol"};
    for (int i = 0; i < 5; i++)
        printf("%s: plugin default %s, plugin next %s, ours default %s\n", names[i],
               in_default(names[i]) ? "found" : "nothing", in_next(names[i]) ? "found" : "nothing",
               dlsym(RTLD_DEFAULT, names[i]) ? "found" : "nothing");
    return 0;
}
