// The workload `empty` of `scripts/bench-overhead --in-process`: a step is 2000 empty kernels and the wait
// for them. It talks as in_process.py does.
#include "expect.h"
#include <chrono>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <poll.h>
#include <vector>

__global__ void empty() {}

static void step() {
  for (int i = 0; i < 2000; i++) empty<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
}

static long long now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

static void print_steps(const std::vector<long long> &times) {
  for (size_t at = 1; at < times.size(); at++) printf(at > 1 ? ",%lld" : " %lld", times[at] - times[at - 1]);
}

// The answer to `client on|off LIBRARY`.
static void switch_client(char *word) {
  char *library = strchr(word, ' ');
  void *loaded = nullptr;
  if (library) {
    *library++ = 0;
    library[strcspn(library, "\n")] = 0;
    loaded = dlopen(library, RTLD_NOW);
  }
  auto change = loaded ? (int (*)(int))dlsym(loaded, "cupti_client_switch") : nullptr;
  const int status = change ? change(!strcmp(word, "on")) : -1;
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
    std::vector<long long> times = {now_ns()};
    while ((long)times.size() <= steps || times.back() - times.front() < ms * 1000000) {
      step();
      times.push_back(now_ns());
    }
    printf("BLOCK %zu %lld", times.size() - 1, times.back() - times.front());
    print_steps(times);
    putchar('\n');
    fflush(stdout);
  }
}
