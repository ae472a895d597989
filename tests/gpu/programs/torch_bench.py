"""The PyTorch workloads of scripts/bench-overhead, timed in this process after a warm-up; start-up is not in any figure.

small: an eager training step of about 640 launches, launch-bound. launches: 100 operations of four numbers. blocks: 100 tensors that are made and
freed. graph: a CUDA graph of 300 nodes. gpu: a GPU-bound step. Prints `RESULT name=v1,v2,…`, one value a repeat, in milliseconds a step or replay. Each repeat is a turn, where turns
are given (tests/gpu/harness/gate.py); all is warm before the first. BENCH_CORES=FIRST,SECOND,OTHERS… puts the thread of the program, that of
its backward passes and all others on cores of their own from then on.
"""
import argparse
import os
import sys
import time

import torch
from torch import nn

arguments = argparse.ArgumentParser()
arguments.add_argument("--workloads", default="small,graph,gpu")
arguments.add_argument("--repeats", type=int, default=8)
arguments.add_argument("--profiler", choices=["none", "cuda", "cpu+cuda"], default="none")
# Only where this is the program: in_process.py imports the workloads.
options = arguments.parse_args() if __name__ == "__main__" else None


class Turns:
    """When this process may work: processes that are compared take turns, and import beforehand. BENCH_GO and BENCH_DONE are FIFOs."""

    def __init__(self):
        self.go, self.done = os.environ.get("BENCH_GO"), os.environ.get("BENCH_DONE")
        if self.go:
            open(os.environ["BENCH_READY"], "w").close()
            self.go = open(self.go, "rb", buffering=0)
            self.done = open(self.done, "wb", buffering=0)
            self.wait()

    def wait(self):
        if not self.go.read(1):
            sys.exit(3)  # Nobody gives turns any more.

    def next(self):
        """This one's turn is over; waits for the next."""
        if self.go:
            self.done.write(b"d")
            self.wait()


def training(width, layers, batch, length, foreach, between=None):
    """Steps of training. `between` is called in the midst of them, on the thread that is at work: before each layer, also of the backward pass, and before its
    share of the optimizer."""
    with torch.device("cuda"):
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True, dropout=0.0)
        model = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    parts = model.layers if between else [model]
    optimizers = [torch.optim.AdamW(part.parameters(), 1e-4, foreach=foreach) for part in parts]
    for part in parts if between else ():
        part.register_forward_pre_hook(lambda *_: between())
        part.register_forward_hook(lambda _, __, out: out.register_hook(lambda _: between()) and None)
    x = torch.randn(batch, length, width, device="cuda")

    def step():
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(x).float().pow(2).mean()
        loss.backward()
        for optimizer in optimizers:
            if between:
                between()
            optimizer.step()

    return step


def graph_replay():
    graph = torch.cuda.CUDAGraph()
    y = torch.randn(64, 256, device="cuda")
    weights = [torch.randn(256, 256, device="cuda") for _ in range(100)]

    def chain():
        z = y
        for w in weights:
            z = torch.relu(z @ w) * 0.1
        return z

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            chain()
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph):
        kept = chain()
    graph.kept = kept
    return graph.replay


def launches():
    x = torch.zeros(4, device="cuda")

    def call():
        for _ in range(100):
            x.add_(1)

    return call


def blocks():
    def call():
        for _ in range(100):
            torch.empty(4, device="cuda")

    return call


# name: (maker, warm-up calls, calls a repeat)
WORKLOADS = {
    "launches": (launches, 5, 20),
    "blocks": (blocks, 5, 20),
    "small": (lambda **more: training(128, 4, 8, 64, False, **more), 10, 20),
    "graph": (graph_replay, 20, 100),
    "gpu": (lambda: training(2048, 8, 16, 1024, True), 3, 2),
}


def profiler():
    kinds = torch.profiler.ProfilerActivity
    chosen = [kinds.CUDA] if options.profiler == "cuda" else [kinds.CPU, kinds.CUDA]
    return torch.profiler.profile(activities=chosen)


def prepare(name):
    """A workload, warm."""
    make, warm_up, _ = WORKLOADS[name]
    call = make()
    for _ in range(warm_up):
        call()
    torch.cuda.synchronize()
    return call


def pin(cores):
    first, second, *others = (int(core) for core in cores.split(","))
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as name:
                is_backward = name.read().startswith("pt_autograd")
            wanted = {first} if int(thread) == os.getpid() else {second} if is_backward else set(others)
            os.sched_setaffinity(int(thread), wanted)
        except (FileNotFoundError, ProcessLookupError):
            pass  # It has ended meanwhile.


def measure(name, call, turns):
    _, warm_up, calls = WORKLOADS[name]
    # What others used of the device meanwhile may have cooled it.
    for _ in range(min(2, warm_up)):
        call()
    torch.cuda.synchronize()
    running = profiler() if options.profiler != "none" else None
    if running:
        running.start()
        for _ in range(2):
            call()
        torch.cuda.synchronize()
    times = []
    for _ in range(options.repeats):
        turns.next()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / calls * 1e3)
    if running:
        running.stop()
    print(f"RESULT torch_{name}_ms=" + ",".join(f"{t:.5f}" for t in times), flush=True)


torch.manual_seed(0)
if options:
    prepared = {name: prepare(name) for name in options.workloads.split(",")}
    turns = Turns()
    if os.environ.get("BENCH_CORES"):
        pin(os.environ["BENCH_CORES"])
    for workload, call in prepared.items():
        measure(workload, call, turns)
    # To end, and to write what a tracer writes then, is a turn too.
    turns.next()
