// Runs cupti_user.c where that was built as a library with a CUPTI inside. It was linked to it (LINKED), or
// cupti_library_host before|after SCENARIO first|later: loads it from CUPTI_USER_LIBRARY before or after its own cuInit.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LINKED
int cupti_user_main(int argc, char **argv);
int main(int argc, char **argv) { return cupti_user_main(argc, argv); }
#else
static void *find(const char *library, const char *name) {
  void *handle = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : NULL;
  void *found = handle ? dlsym(handle, name) : NULL;
  if (!found) fprintf(stderr, "no %s: %s\n", name, library ? dlerror() : "CUPTI_USER_LIBRARY is not set"), exit(3);
  return found;
}

int main(int argc, char **argv) {
  if (argc < 4) return 3;
  if (!strcmp(argv[1], "after")) {
    int (*init)(unsigned) = (int (*)(unsigned))find("libcuda.so.1", "cuInit");
    int code = init(0);
    if (code) return fprintf(stderr, "cuInit %d\n", code), 3;
  }
  int (*run)(int, char **) = (int (*)(int, char **))find(getenv("CUPTI_USER_LIBRARY"), "cupti_user_main");
  return run(argc - 1, argv + 1);
}
#endif
