"""Plants a fault in a PyTorch program's use of memory, and prints one line of JSON with the line of it: memory_planted.py MODE

steady         a training loop that leaks nothing
cycle          each turn leaves a tensor in a reference cycle, and the collection of garbage is off
cache          a dictionary of results that grows with each turn
fragmentation  small tensors that stay among large ones that go: free memory is in pieces
"""

import gc
import inspect
import json
import sys
import time

import torch

LINES = {}
# Four seconds and more: what is leaked is what grows in the last half of the time, and cuBLAS takes a second to start.
TURNS = 200


def here(mark):
    LINES[mark] = inspect.currentframe().f_back.f_lineno + 1


def model():
    layers = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
    return layers, torch.optim.Adam(layers.parameters())


def train(turn):
    """A loop of ordinary steps with what `turn` does in each."""
    layers, optimizer = model()
    for index in range(TURNS):
        loss = layers(torch.randn(256, 1024, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        turn(index)
        torch.cuda.synchronize()
        time.sleep(0.02)


def steady():
    train(lambda index: None)


class Node:
    pass


def cycle():
    gc.disable()

    def turn(index):
        node = Node()
        node.itself = node
        here("cycle")
        node.tensor = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
    train(turn)


def cache():
    results = {}

    def turn(index):
        here("cache")
        results[index] = torch.empty(16 << 20, dtype=torch.uint8, device="cuda")
    train(turn)


def fragmentation():
    kept = []
    for _ in range(TURNS // 4):
        here("fragmentation")
        large, small = (torch.empty(size, dtype=torch.uint8, device="cuda") for size in (18 << 20, 1100 << 10))
        kept.append(small)
        del large
    # Without a kernel nothing says that PyTorch is at work.
    kept[0].zero_()
    del kept[::2]
    torch.empty(24 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()


{"steady": steady, "cycle": cycle, "cache": cache, "fragmentation": fragmentation}[sys.argv[1]]()
stats = torch.cuda.memory_stats()
print(json.dumps({"lines": LINES, "reserved": stats["reserved_bytes.all.current"], "allocated": stats["allocated_bytes.all.current"]}))
