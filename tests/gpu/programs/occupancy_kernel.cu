// One kernel that wants every register it can get; built once for each register limit, its name given as KERNEL.
extern "C" __global__ void KERNEL(float *p, int n) {
  extern __shared__ float scratch[];
  float v[240];
#pragma unroll
  for (int i = 0; i < 240; i++) v[i] = p[i * 32 + (threadIdx.x & 31)];
  for (int round = 0; round < n; round++) {
#pragma unroll
    for (int i = 0; i < 240; i++) v[i] = v[i] * v[(i + 7) % 240] + v[(i + 121) % 240];
  }
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 240; i++) sum += v[i];
  if (n == -1) scratch[threadIdx.x] = sum;
  if (sum == 12345.0f) p[0] = sum;
}
