"""Holds memory by RMM's pool on cudaMalloc, and prints one line of JSON with what it counts."""
import json
import os
import signal
import sys

import rmm

upstream = rmm.mr.StatisticsResourceAdaptor(rmm.mr.CudaMemoryResource())
pool = rmm.mr.PoolMemoryResource(upstream, initial_pool_size=32 << 20, maximum_pool_size=512 << 20)
rmm.mr.set_current_device_resource(pool)
held = [rmm.DeviceBuffer(size=(turn % 9 + 1) << 20) for turn in range(30)]
del held[::2]
counted = upstream.allocation_counts
of = lambda name: counted[name] if isinstance(counted, dict) else getattr(counted, name)
print(json.dumps({"current": of("current_bytes"), "peak": of("peak_bytes"), "allocations": of("total_count"), "pool": pool.pool_size()}))
sys.stdout.flush()
os.kill(os.getpid(), signal.SIGKILL)
