// Runs cupti_user.c where that was built as a library with a CUPTI inside: cupti_library_host SCENARIO first|later loads it
// from CUPTI_USER_LIBRARY before its first call of the driver.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  const char *library = getenv("CUPTI_USER_LIBRARY");
  void *handle = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
  int (*run)(int, char **) = handle ? (int (*)(int, char **))dlsym(handle, "cupti_user_main") : NULL;
  if (!run) return fprintf(stderr, "%s\n", library ? dlerror() : "CUPTI_USER_LIBRARY is not set"), 3;
  return run(argc, argv);
}
