"""Nanoseconds an operator of PyTorch's takes on four numbers in the host's memory, in this process.

The first argument says who watches: nobody (`bare`; under gputrace, gputrace), or `nvtx`, `dispatch`, `profiler`. With
`backward` as the second it is a backward pass through eight operators, per node.
"""

import contextlib
import ctypes
import sys
import time

import torch

torch.set_num_threads(1)
watcher = sys.argv[1]
backward = sys.argv[2:] == ["backward"]
# A session of gputrace's begins with it.
assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0


def watched():
    if watcher == "nvtx":
        return torch.autograd.profiler.emit_nvtx()
    if watcher == "profiler":
        return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    if watcher == "dispatch":
        from torch.utils._python_dispatch import TorchDispatchMode

        class Mode(TorchDispatchMode):
            def __torch_dispatch__(self, function, types, args=(), kwargs=None):
                return function(*args, **(kwargs or {}))

        return Mode()
    return contextlib.nullcontext()


def operators(count):
    numbers = torch.ones(4)
    begin = time.perf_counter_ns()
    for _ in range(count):
        torch.neg(numbers, out=numbers)
    return (time.perf_counter_ns() - begin) / count


def passes(count):
    numbers = torch.ones(4, requires_grad=True)
    total = 0
    for _ in range(count // 10):
        result = numbers
        for _ in range(8):
            result = -result
        result = result.sum()
        begin = time.perf_counter_ns()
        result.backward()
        total += time.perf_counter_ns() - begin
    return total / (count // 10) / 10


measure = passes if backward else operators
with watched():
    measure(2000)
    print("%.1f" % min(measure(5000) for _ in range(30)))
