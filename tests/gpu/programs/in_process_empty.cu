// The workload `empty` of `scripts/bench-overhead --in-process`: a step is 2000 empty kernels and the wait
// for them. It talks as in_process.py does.
#include "expect.h"
#include <chrono>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <vector>

__global__ void empty() {}

static void step() {
  for (int i = 0; i < 2000; i++) empty<<<1, 32>>>();
  CHECK(cudaDeviceSynchronize());
}

static long long now_ns() { return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

int main() {
  for (int i = 0; i < 5; i++) step();
  puts("READY");
  fflush(stdout);
  setvbuf(stdin, nullptr, _IONBF, 0);
  char line[256];
  for (;;) {
    pollfd input = {0, POLLIN, 0};
    if (poll(&input, 1, 0) <= 0) {
      step();
      continue;
    }
    if (!fgets(line, sizeof line, stdin)) return 0;
    long steps = 0, ms = 0, done = 0;
    if (sscanf(line, "measure %ld %ld", &steps, &ms) != 2) return 2;
    step(), step();
    std::vector<long long> times = {now_ns()};
    for (; done < steps || times.back() - times.front() < ms * 1000000; done++) step(), times.push_back(now_ns());
    printf("BLOCK %ld %lld ", done, times.back() - times.front());
    for (long at = 0; at < done; at++) printf(at ? ",%lld" : "%lld", times[at + 1] - times[at]);
    putchar('\n');
    fflush(stdout);
  }
}
