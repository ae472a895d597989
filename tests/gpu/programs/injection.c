// A tool that the driver itself loads (CUDA_INJECTION64_PATH) and that subscribes to CUPTI before anybody else can:
// counts launches by callback and writes the number to INJECTION_OUT at exit.
#define _GNU_SOURCE
#include "../cupti_load.h"
#include "../cupti_min.h"

typedef void (*callback_function)(void *, uint32_t, uint32_t, const callback_data *);
static long launches, subscribed = -1;

static void called(void *data, uint32_t domain, uint32_t number, const callback_data *call) {
  (void)data;
  if (domain == DOMAIN_DRIVER_API && number == CBID_LAUNCH && call->site == SITE_ENTER) __atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
}

static void write_out(void) {
  FILE *out = getenv("INJECTION_OUT") ? fopen(getenv("INJECTION_OUT"), "w") : NULL;
  if (!out) return;
  fprintf(out, "subscribe=%ld launches=%ld\n", subscribed, launches);
  fclose(out);
}

int InitializeInjection(void) {
  void *library = load_cupti(), *handle = NULL;
  if (!library) return 1;
  int (*subscribe)(void **, callback_function, void *) = (int (*)(void **, callback_function, void *))dlsym(library, "cuptiSubscribe");
  int (*enable)(uint32_t, void *, int, uint32_t) = (int (*)(uint32_t, void *, int, uint32_t))dlsym(library, "cuptiEnableCallback");
  if (!subscribe || !enable) return 1;
  subscribed = subscribe(&handle, called, NULL);
  if (!subscribed) subscribed = enable(1, handle, DOMAIN_DRIVER_API, CBID_LAUNCH);
  atexit(write_out);
  return 1;
}
