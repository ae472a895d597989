"""Calls that fail in PyTorch, each at a line of its own: torch_failures.py [clean]

`clean` does ordinary things only: training steps, pinned memory, events that are polled, a graph: nothing may be called a failure.
Otherwise: memory that is refused for good, memory that is given once PyTorch has given back what it caches, and a launch that the driver refuses.
Prints one line of JSON: lines by mark, and whether each did fail.
"""

import ctypes
import inspect
import json
import sys

import torch

LINES = {}


def here(mark):
    LINES[mark] = inspect.currentframe().f_back.f_lineno + 1


def clean():
    model = torch.nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        pinned = torch.randn(64, 256).pin_memory()
        loss = model(pinned.to("cuda", non_blocking=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    done = torch.cuda.Event()
    done.record()
    while not done.query():
        pass
    graph = torch.cuda.CUDAGraph()
    still = torch.randn(64, 256, device="cuda")
    with torch.no_grad(), torch.cuda.graph(graph):
        model(still)
    graph.replay()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def too_much():
    here("too_much")
    return torch.empty(1 << 46, dtype=torch.uint8, device="cuda")


def again(free):
    """Half of what is free is cached in small pieces; what is asked for fits once they are given back."""
    pieces = [torch.empty(256 << 20, dtype=torch.uint8, device="cuda") for _ in range(free // 2 // (256 << 20))]
    del pieces
    here("again")
    return torch.empty(free * 7 // 10, dtype=torch.uint8, device="cuda")


def refused():
    """A launch through the driver, with a block that no device takes."""
    driver = ctypes.CDLL("libcuda.so.1")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    text = b".version 7.0\n.target sm_50\n.address_size 64\n.visible .entry nothing() { ret; }\n"
    assert driver.cuModuleLoadData(ctypes.byref(module), text) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, b"nothing") == 0
    driver.cuLaunchKernel.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    here("refused")
    return driver.cuLaunchKernel(function, 1, 1, 1, 4096, 1, 1, 0, None, None, None)


if sys.argv[1:] == ["clean"]:
    clean()
    print(json.dumps({}))
    sys.exit()
torch.zeros(1, device="cuda")
failed = {}
try:
    too_much()
except torch.cuda.OutOfMemoryError:
    failed["too_much"] = True
again(torch.cuda.mem_get_info()[0])
failed["refused"] = refused() == 1
torch.cuda.synchronize()
print(json.dumps({"lines": LINES, "failed": failed}))
