"""Uses PyTorch's caching allocator, and prints one line of JSON with what PyTorch itself says of it: memory_blocks.py MODE

train     a training loop with its history of memory recorded: figures, live bytes by line, and segments
streams   a tensor that another stream uses when it is taken back, and threads that give tensors to each other
profile   the same loop under torch.profiler with profile_memory: the memory events of the host and of the device
"""

import collections
import inspect
import json
import os
import sys
import tempfile
import threading

import torch

LINES = {}
torch.manual_seed(1)


def here(mark):
    LINES[mark] = inspect.currentframe().f_back.f_lineno + 1


def model():
    here("parameters")
    layers = torch.nn.Sequential(*[torch.nn.Linear(512, 512, device="cuda") for _ in range(6)])
    return layers, torch.optim.SGD(layers.parameters(), 1e-3, momentum=0.9, foreach=False)


def steps(layers, optimizer, count, kept):
    for index in range(count):
        here("batch")
        batch = torch.randn(128, 512, device="cuda")
        here("forward")
        loss = layers(batch).square().mean()
        optimizer.zero_grad()
        here("backward")
        loss.backward()
        optimizer.step()
        if index % 10 == 0:
            here("kept")
            kept.append(torch.empty(3 << 20, dtype=torch.uint8, device="cuda"))
        # Pieces of many sizes between what stays.
        for size in (700, 70_000, 7_000_000):
            torch.empty(size + index * 512, dtype=torch.uint8, device="cuda")


def own_line(frames):
    """The innermost line of this file."""
    return next((frame["line"] for frame in frames if frame["filename"] == __file__), None)


def figures():
    stats = torch.cuda.memory_stats()
    return {"allocated": stats["allocated_bytes.all.current"], "peak": stats["allocated_bytes.all.peak"], "reserved": stats["reserved_bytes.all.current"],
            "reserved_peak": stats["reserved_bytes.all.peak"], "active": stats["active_bytes.all.current"], "allocations": stats["allocation.all.allocated"],
            "frees": stats["allocation.all.freed"], "lines": LINES}


# What is live when figures are taken is live at the end.
alive = []


def train():
    torch.cuda.memory._record_memory_history(stacks="python", max_entries=1_000_000)
    layers, optimizer = model()
    kept = []
    alive.append((layers, optimizer, kept))
    steps(layers, optimizer, 60, kept)
    torch.cuda.synchronize()
    by_line, segments = collections.Counter(), []
    for segment in torch.cuda.memory_snapshot():
        blocks = [block for block in segment["blocks"] if block["state"] == "active_allocated"]
        segments.append([segment["address"], segment["total_size"], sum(block["size"] for block in blocks)])
        for block in blocks:
            by_line[str(own_line(block.get("frames", [])))] += block["size"]
    return {**figures(), "by_line": by_line, "segments": segments}


def streams():
    other, tensors = torch.cuda.Stream(), [None] * 4
    barrier = threading.Barrier(4)

    def run(number):
        for turn in range(100):
            tensors[number] = torch.empty(1000 * (number + 1) + turn, dtype=torch.uint8, device="cuda")
            barrier.wait()
            tensors[(number + 1) % 4] = None
            barrier.wait()
    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pending = torch.ones(8 << 20, dtype=torch.uint8, device="cuda")
    with torch.cuda.stream(other):
        torch.cuda._sleep(200_000_000)
        pending.record_stream(other)
    del pending
    # Taken back, and not free yet: active and not allocated.
    return figures()


def profile():
    layers, optimizer = model()
    steps(layers, optimizer, 5, [])
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        steps(layers, optimizer, 10, [])
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        with open(file.name, encoding="utf-8") as text:
            events = [event["args"] for event in json.load(text)["traceEvents"] if event.get("name") == "[memory]"]
    found = collections.defaultdict(list)
    for event in events:
        found[str(event["Device Type"])].append(event["Bytes"])
    return {"events": {device: [len(all_of), sum(all_of), sum(map(abs, all_of))] for device, all_of in found.items()}}


said = {"train": train, "streams": streams, "profile": profile}[sys.argv[1]]()
print(json.dumps(said), flush=True)
os._exit(0)
