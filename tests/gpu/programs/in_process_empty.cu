// The workload `empty` of `scripts/bench-overhead --in-process`: a step is 2000 empty kernels and the wait
// for them. It talks as in_process.py does.
#include "expect.h"
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <poll.h>
#include <vector>

__global__ void empty() {}

static void step() {
  for (int i = 0; i < 2000; i++) empty<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
}

static long long clock_ns(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void print_list(const char *name, const std::vector<long long> &values) {
  printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); i++) printf(i ? ", %lld" : "%lld", values[i]);
  printf("]");
}

// The answer to `client on|off LIBRARY`.
static void switch_client(char *rest) {
  char *library = strchr(rest, ' ');
  if (!library) return;
  *library++ = 0;
  library[strcspn(library, "\n")] = 0;
  void *loaded = dlopen(library, RTLD_NOW);
  auto change = loaded ? (int (*)(int))dlsym(loaded, "cupti_client_switch") : nullptr;
  const int status = change ? change(!strcmp(rest, "on")) : -1;
  if (status) printf("cupti client: error %d\n", status);
  else puts("DONE");
  fflush(stdout);
}

int main() {
  for (int i = 0; i < 5; i++) step();
  puts("READY");
  fflush(stdout);
  setvbuf(stdin, nullptr, _IONBF, 0);
  char line[4200];
  for (;;) {
    pollfd input = {0, POLLIN, 0};
    if (poll(&input, 1, 0) <= 0) {
      step();
      continue;
    }
    if (!fgets(line, sizeof line, stdin)) return 0;
    if (!strncmp(line, "client ", 7)) {
      switch_client(line + 7);
      continue;
    }
    long steps = 0, ms = 0;
    if (sscanf(line, "measure %ld %ld", &steps, &ms) != 2) return 2;
    step(), step();
    std::vector<long long> times, cpu;
    long long begin = clock_ns(CLOCK_MONOTONIC), used = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    const long long until = begin + ms * 1000000;
    while ((long)times.size() < steps || begin < until) {
      step();
      const long long now = clock_ns(CLOCK_MONOTONIC), used_now = clock_ns(CLOCK_THREAD_CPUTIME_ID);
      times.push_back(now - begin);
      cpu.push_back(used_now - used);
      begin = now;
      used = used_now;
    }
    printf("BLOCK {");
    print_list("ns", times);
    printf(", ");
    print_list("cpu_ns", cpu);
    puts("}");
    fflush(stdout);
  }
}
