// CUDA IPC between a process and its child, which is forked before either uses CUDA: memory and an event by their handles.
#include "../expect.h"
#include <sys/wait.h>
#include <unistd.h>

__global__ void add_one(int *p, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] += 1;
}

enum { N = 4096, LAUNCHES = 25 };
struct handles {
  cudaIpcMemHandle_t memory;
  cudaIpcEventHandle_t event;
};

static void launch(int *p) {
  for (int i = 0; i < LAUNCHES; i++) add_one<<<N / 256, 256>>>(p, N);
  CHECK(cudaGetLastError());
}

static int child(int from, int to) {
  struct handles its;
  int *p;
  cudaEvent_t event;
  if (read(from, &its, sizeof its) != sizeof its) return 5;
  CHECK(cudaIpcOpenMemHandle((void **)&p, its.memory, cudaIpcMemLazyEnablePeerAccess));
  CHECK(cudaIpcOpenEventHandle(&event, its.event));
  CHECK(cudaStreamWaitEvent(0, event, 0));
  launch(p);
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaEventDestroy(event));
  CHECK(cudaIpcCloseMemHandle(p));
  return write(to, "", 1) == 1 ? 0 : 5;
}

int main() {
  int there[2], back[2], *p, got = 0, status = 0;
  char done;
  if (pipe(there) || pipe(back)) return 5;
  pid_t pid = fork();
  if (pid < 0) return 5;
  if (pid == 0) {
    close(there[1]);  // Where the parent fails, the child reads an end of file.
    return child(there[0], back[1]);
  }
  close(back[1]);
  struct handles mine;
  cudaEvent_t event;
  CHECK(cudaMalloc(&p, N * sizeof(int)));
  CHECK(cudaMemset(p, 0, N * sizeof(int)));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  launch(p);
  CHECK(cudaEventRecord(event, 0));
  CHECK(cudaIpcGetMemHandle(&mine.memory, p));
  CHECK(cudaIpcGetEventHandle(&mine.event, event));
  if (write(there[1], &mine, sizeof mine) != sizeof mine || read(back[0], &done, 1) != 1) return 6;
  CHECK(cudaMemcpy(&got, p + N - 1, sizeof got, cudaMemcpyDeviceToHost));
  if (waitpid(pid, &status, 0) != pid || status) return 7;
  printf("got %d\n", got);
  struct expect both = {2 * LAUNCHES, 0, 0, 2 * LAUNCHES, 0, 1, 1};
  print_expect(&both);
  return got == 2 * LAUNCHES ? 0 : 4;
}
