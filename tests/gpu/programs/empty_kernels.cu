// Nanoseconds a launch: bursts of 500 empty kernels (host time only: the queue never fills), long runs of empty kernels
// with the wait included, and 5 us kernels. empty_kernels [REPEATS]; one RESULT line a measure, one value a repeat.
#include "expect.h"
#include <chrono>
#include <string>

__global__ void empty(int *p) { if (p && threadIdx.x == 9999) *p = 1; }
__global__ void spin(int *p, long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) {}
  if (p && threadIdx.x == 9999) *p = 1;
}

static double now_ns() { return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A benchmark that runs several processes lets each work only in its turn (tests/gpu/harness/gate.py). Opening a FIFO waits for the other end.
static FILE *go_gate, *done_gate;
static void wait_for_go() {
  char byte;
  if (go_gate && fread(&byte, 1, 1, go_gate) < 1) exit(3);
}
static void first_turn() {
  const char *go = getenv("BENCH_GO"), *done = getenv("BENCH_DONE"), *ready = getenv("BENCH_READY");
  if (ready) { FILE *f = fopen(ready, "w"); if (f) fclose(f); }
  go_gate = go ? fopen(go, "r") : nullptr;
  done_gate = done ? fopen(done, "w") : nullptr;
  wait_for_go();
}
static void next_turn() {
  if (done_gate && (fputc('d', done_gate) == EOF || fflush(done_gate) != 0)) exit(3);
  wait_for_go();
}

int main(int argc, char **argv) {
  const int repeats = argc > 1 ? atoi(argv[1]) : 8, many = 50000, spins = 2000, bursts = 20;
  first_turn();
  int *p;
  CHECK(cudaMalloc(&p, 4096));
  for (int i = 0; i < 5000; i++) empty<<<1, 32>>>(p);
  spin<<<1, 32>>>(p, 9000);
  CHECK(cudaDeviceSynchronize());
  std::string burst, total, spinning;
  for (int r = 0; r < repeats; r++) {
    next_turn();
    double host = 0;
    for (int b = 0; b < bursts; b++) {
      double start = now_ns();
      for (int i = 0; i < 500; i++) empty<<<1, 32>>>(p);
      host += now_ns() - start;
      CHECK(cudaDeviceSynchronize());
    }
    burst += (r ? "," : "") + std::to_string(host / (500.0 * bursts));
    double start = now_ns();
    for (int i = 0; i < many; i++) empty<<<1, 32>>>(p);
    CHECK(cudaDeviceSynchronize());
    total += (r ? "," : "") + std::to_string((now_ns() - start) / many);
    start = now_ns();
    for (int i = 0; i < spins; i++) spin<<<1, 32>>>(p, 9000);
    CHECK(cudaDeviceSynchronize());
    spinning += (r ? "," : "") + std::to_string((now_ns() - start) / spins);
  }
  CHECK(cudaGetLastError());
  printf("RESULT empty_burst500_ns=%s\nRESULT empty_total_ns=%s\nRESULT spin5us_total_ns=%s\n", burst.c_str(), total.c_str(), spinning.c_str());
  fflush(stdout);
  next_turn();  // To end is a turn too.
  return 0;
}
