"""PyTorch: element-wise work whose kernels a line can be counted by hand, forward and backward.

torch_backward.py [threads|graph|modules|compile|trees]: without an argument on the calling thread and PyTorch's own; with `threads` two of
torch.nn.parallel's; with `graph` captured and replayed; with `modules` by modules in each other; with `compile` by torch.compile; with `trees` by torch.compile, whose graphs
are captured and replayed for each (cudagraph trees). A comment `LAUNCHES n in plain, n in threads` says how many kernels are launched for a line in each way to run. Those of a backward pass are the
line's of its forward pass, but in a thread's first pass, and in threads that never call `backward()`: there they are the line's that calls it.
"""
import sys

import torch

WHAT = sys.argv[1] if len(sys.argv) > 1 else "plain"
STEPS = 20
device = torch.device("cuda", 0)


def forward(x, w):
    y = x * w  # LAUNCHES 39 in plain, 39 in graph, 20 in threads
    y = torch.tanh(y)  # LAUNCHES 39 in plain, 39 in graph, 20 in threads
    return y


def plain():
    x, grad = torch.ones(1 << 16, device=device), torch.full((1 << 16,), 0.5, device=device)
    w = torch.ones(1 << 16, device=device, requires_grad=True)
    torch.cuda.synchronize()
    for _ in range(STEPS):
        w.grad = None
        y = forward(x, w)
        # Each pass: tanh_backward and mul, and nothing for a gradient that is taken over as it is.
        y.backward(grad)  # LAUNCHES 2 in plain
    torch.cuda.synchronize()
    return w.grad.sum().item()


def threads():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(1 << 16, device=device))

        def forward(self, x):
            return forward(x, self.w)

    modules = [Module(), Module()]
    x, grad = torch.ones(1 << 16, device=device), torch.full((1 << 16,), 0.5, device=device)
    for _ in range(STEPS // 2):
        for module in modules:
            module.w.grad = None
        first, second = torch.nn.parallel.parallel_apply(modules, [(x,), (x,)], devices=[device, device])
        torch.autograd.backward([first, second], [grad, grad])  # LAUNCHES 40 in threads
    torch.cuda.synchronize()
    return sum(module.w.grad.sum().item() for module in modules)


def graph():
    x, grad = torch.ones(1 << 16, device=device), torch.full((1 << 16,), 0.5, device=device)
    w = torch.ones(1 << 16, device=device, requires_grad=True)

    def step():
        w.grad = None
        forward(x, w).backward(grad)  # LAUNCHES 2 in graph

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        step()
    # One before the capture, the captured one is only replayed.
    for _ in range(STEPS - 1):
        captured.replay()
    torch.cuda.synchronize()
    return w.grad.sum().item()


class Scale(torch.nn.Module):
    def forward(self, x):
        return x * 2 * 3 * 4


class Bend(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(torch.sigmoid(x))


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale, self.bend = Scale(), Bend()

    def forward(self, x):
        return self.scale(self.bend(x)) + 1


def modules():
    """A step has as many kernels backward as forward: three of Scale, two of Bend; one more forward of Both."""
    model, x, grad = Both(), torch.ones(1 << 16, device=device, requires_grad=True), torch.ones(1 << 16, device=device)
    for _ in range(STEPS):
        x.grad = None
        model(x).backward(grad)
    torch.cuda.synchronize()
    return x.grad.sum().item()


def compiled():
    step = torch.compile(lambda x, w: forward(x, w))
    x, grad = torch.ones(1 << 16, device=device), torch.full((1 << 16,), 0.5, device=device)
    w = torch.ones(1 << 16, device=device, requires_grad=True)
    for _ in range(STEPS):
        w.grad = None
        y = step(x, w)  # COMPILED forward
        y.backward(grad)  # COMPILED backward
    torch.cuda.synchronize()
    return w.grad.sum().item()


def trees():
    step = torch.compile(lambda x, w: forward(x, w), mode="reduce-overhead")
    x, w = torch.ones(1 << 16, device=device), torch.ones(1 << 16, device=device)
    with torch.no_grad():
        for _ in range(STEPS):
            torch.compiler.cudagraph_mark_step_begin()
            y = step(x, w)  # TREES forward
    torch.cuda.synchronize()
    return y.sum().item()


print("sum", {"plain": plain, "threads": threads, "graph": graph, "modules": modules, "compile": compiled, "trees": trees}[WHAT]())
