// Finds the libcupti a test client should use: the one already mapped (a second copy would be refused), else
// CUPTI_CLIENT_LIB, else the dynamic linker's own.
#ifndef GPUTRACE_TEST_CUPTI_LOAD_H
#define GPUTRACE_TEST_CUPTI_LOAD_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char cupti_path[4096];

static inline void *load_cupti(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[4600];
  while (maps && fgets(line, sizeof line, maps)) {
    char *path = strchr(line, '/');
    if (!path || !strstr(path, "/libcupti.so")) continue;
    path[strcspn(path, "\n")] = 0;
    snprintf(cupti_path, sizeof cupti_path, "%s", path);
    break;
  }
  if (maps) fclose(maps);
  if (!cupti_path[0] && getenv("CUPTI_CLIENT_LIB"))
    snprintf(cupti_path, sizeof cupti_path, "%s", getenv("CUPTI_CLIENT_LIB"));
  void *library = cupti_path[0] ? dlopen(cupti_path, RTLD_NOW) : NULL;
  static const char *const usual[] = {"libcupti.so.13", "libcupti.so.12", "libcupti.so"};
  for (int i = 0; !library && !cupti_path[0] && i < 3; i++)
    if ((library = dlopen(usual[i], RTLD_NOW))) snprintf(cupti_path, sizeof cupti_path, "%s", usual[i]);
  if (!library) fprintf(stderr, "cupti client: no libcupti: %s\n", dlerror());
  return library;
}
#endif
